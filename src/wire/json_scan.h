/* One pass over a JSON text before a tree is made of it: how deep, how many values, are there bare
 * NaN or Infinity? It bounds what the parser will cost; whether the text is JSON is the parser's
 * business. */
#ifndef SLUICE_WIRE_JSON_SCAN_H
#define SLUICE_WIRE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct json_scan {
    uint64_t n_values;   /* no parser will make more values (keys count as values) */
    uint64_t depth;      /* the deepest nesting of arrays and objects */
    bool non_finite;     /* a bare NaN, Infinity or -Infinity stands outside strings */
    bool other_word;     /* a bare word that is none of true, false, null, NaN, Infinity */
    size_t other_offset; /* where the first of those is */
};

void json_scan(struct str text, struct json_scan *out);

#endif
