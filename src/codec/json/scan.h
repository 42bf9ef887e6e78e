/* One pass over a JSON text before a tree is built: its depth, number of values, end, and bare NaN
 * or Infinity. It bounds the cost of parsing; the parser checks the grammar. */
#ifndef SLUICE_CODEC_JSON_SCAN_H
#define SLUICE_CODEC_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

struct json_scan {
    uint64_t n_values; /* at least the number of values that a parser makes (keys count as
                          values) */
    uint64_t depth;    /* the deepest nesting of arrays and objects */
    size_t end;        /* after the first object or array; the text's length where none closes */
    bool non_finite;   /* there is a bare NaN, Infinity or -Infinity outside strings */
    bool has_unknown_word;      /* valid when non_finite: there is also a bare word that is none
                                   of these, nor true, false or null (else the parser reports it) */
    size_t unknown_word_offset; /* of the first such word */
    size_t unknown_word_bytes;  /* its length */
};

/* Scans `text` up to `end`; later bytes are ignored. */
void json_scan(struct str text, struct json_scan *out);

#endif
