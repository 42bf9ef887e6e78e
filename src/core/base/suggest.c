/* The Damerau-Levenshtein distance (optimal string alignment) over three rows. Long names are not
 * compared: mistyped names are short. */
#include "core/base/suggest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One row of the table: row[j] is the distance of a[0..i] and b[0..j-1]. */
static void distance_row(struct str a, size_t i, struct str b, const size_t *before,
                         const size_t *last, size_t *row) {
    row[0] = i + 1;
    for (size_t j = 0; j < b.len; j++) {
        size_t replace = last[j] + (a.ptr[i] != b.ptr[j]);
        size_t insert_or_drop = (row[j] < last[j + 1] ? row[j] : last[j + 1]) + 1;
        row[j + 1] = insert_or_drop < replace ? insert_or_drop : replace;
        if (i > 0 && j > 0 && a.ptr[i] == b.ptr[j - 1] && a.ptr[i - 1] == b.ptr[j] &&
            before[j - 1] + 1 < row[j + 1]) {
            row[j + 1] = before[j - 1] + 1;
        }
    }
}

size_t suggest_distance(struct str a, struct str b) {
    if (a.len > SUGGEST_MAX_BYTES || b.len > SUGGEST_MAX_BYTES) {
        return SIZE_MAX;
    }
    size_t rows[3][SUGGEST_MAX_BYTES + 1];
    for (size_t j = 0; j <= b.len; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 0; i < a.len; i++) {
        distance_row(a, i, b, rows[(i + 2) % 3], rows[i % 3], rows[(i + 1) % 3]);
    }
    return rows[a.len % 3][b.len];
}

void suggest_consider(struct suggestion *suggestion, struct str wanted, struct str name) {
    size_t distance = suggest_distance(wanted, name);
    size_t allowed = wanted.len > 3 ? wanted.len / 3 : wanted.len / 2;
    struct str beginning = wanted.len < name.len ? wanted : name;
    if (distance == SIZE_MAX) {
        return;
    }
    if (beginning.len >= 3 && str_starts_with(wanted, beginning) &&
        str_starts_with(name, beginning)) {
        distance = distance > 0 ? 1 : 0;
    }
    if (distance > allowed || (suggestion->best.ptr && distance >= suggestion->distance)) {
        return;
    }
    suggestion->best = name;
    suggestion->distance = distance;
}

const char *suggest_hint(const struct suggestion *suggestion, char out[SUGGEST_HINT_BYTES]) {
    out[0] = '\0';
    if (suggestion->best.ptr) {
        snprintf(out, SUGGEST_HINT_BYTES, "; did you mean \"%.*s\"?", STR_ARG(suggestion->best));
    }
    return out;
}
