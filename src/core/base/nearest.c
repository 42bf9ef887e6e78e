/* Nearest name: the distance of Damerau and Levenshtein (optimal string alignment) over three rows.
 * It refuses long names: what a person mistyped is short. */
#include "core/base/nearest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static size_t least(size_t a, size_t b, size_t c) {
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* One row of the table: row[j] is the distance of a[0..i] and b[0..j-1]. */
static void distance_row(struct str a, size_t i, struct str b, const size_t *before,
                         const size_t *last, size_t *row) {
    row[0] = i + 1;
    for (size_t j = 0; j < b.len; j++) {
        size_t replace = last[j] + (a.ptr[i] != b.ptr[j]);
        row[j + 1] = least(row[j] + 1, last[j + 1] + 1, replace);
        if (i > 0 && j > 0 && a.ptr[i] == b.ptr[j - 1] && a.ptr[i - 1] == b.ptr[j] &&
            before[j - 1] + 1 < row[j + 1]) {
            row[j + 1] = before[j - 1] + 1;
        }
    }
}

size_t nearest_distance(struct str a, struct str b) {
    if (a.len > NEAREST_MAX_BYTES || b.len > NEAREST_MAX_BYTES) {
        return SIZE_MAX;
    }
    size_t rows[3][NEAREST_MAX_BYTES + 1];
    for (size_t j = 0; j <= b.len; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 0; i < a.len; i++) {
        distance_row(a, i, b, rows[(i + 2) % 3], rows[i % 3], rows[(i + 1) % 3]);
    }
    return rows[a.len % 3][b.len];
}

void nearest_consider(struct nearest *nearest, struct str wanted, struct str name) {
    size_t distance = nearest_distance(wanted, name);
    size_t allowed = wanted.len > 3 ? wanted.len / 3 : wanted.len / 2;
    struct str beginning = wanted.len < name.len ? wanted : name;
    if (distance == SIZE_MAX) {
        return;
    }
    if (beginning.len >= 3 && str_starts(wanted, beginning) && str_starts(name, beginning)) {
        distance = distance > 0 ? 1 : 0;
    }
    if (distance > allowed || (nearest->best.ptr && distance >= nearest->distance)) {
        return;
    }
    nearest->best = name;
    nearest->distance = distance;
}

const char *nearest_hint(const struct nearest *nearest, char out[NEAREST_HINT_BYTES]) {
    out[0] = '\0';
    if (nearest->best.ptr) {
        snprintf(out, NEAREST_HINT_BYTES, "; did you mean \"%.*s\"?", STR_ARG(nearest->best));
    }
    return out;
}
