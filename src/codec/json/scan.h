/* One pass over a JSON text before a tree is made of it: how deep, how many values, where does it
 * end, are there bare NaN or Infinity? It bounds what the parser will cost; whether the text is
 * JSON is the parser's business. */
#ifndef SLUICE_CODEC_JSON_SCAN_H
#define SLUICE_CODEC_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

struct json_scan {
    uint64_t n_values; /* no parser will make more values (keys count as values) */
    uint64_t depth;    /* the deepest nesting of arrays and objects */
    size_t end;        /* behind the first object or array; the text's length where none closes */
    bool non_finite;   /* a bare NaN, Infinity or -Infinity stands outside strings */
    bool has_unknown_word;      /* where non_finite: also a bare word that is none of these, nor
                                  true,
                            false or null (without non_finite the parser knows all words by
                            itself) */
    size_t unknown_word_offset; /* where the first of those is */
    size_t unknown_word_bytes;  /* how long it is */
};

/* Scans `text` up to `end`; what is behind is not looked at. */
void json_scan(struct str text, struct json_scan *out);

#endif
