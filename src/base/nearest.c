/* Nearest name: the distance of Damerau and Levenshtein (optimal string alignment) over three rows.
 * It refuses long names: what a person mistyped is short. */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

enum { NEAREST_MAX = 63 };

static size_t least(size_t a, size_t b, size_t c) {
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* One row of the table: row[j] is the distance of a[0..i] and b[0..j-1]. */
static void distance_row(const char *a, size_t i, const char *b, size_t n_b, const size_t *before,
                         const size_t *last, size_t *row) {
    row[0] = i + 1;
    for (size_t j = 0; j < n_b; j++) {
        size_t replace = last[j] + (a[i] != b[j]);
        row[j + 1] = least(row[j] + 1, last[j + 1] + 1, replace);
        if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] &&
            before[j - 1] + 1 < row[j + 1]) {
            row[j + 1] = before[j - 1] + 1;
        }
    }
}

size_t nearest_distance(const char *a, const char *b) {
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > NEAREST_MAX || n_b > NEAREST_MAX) {
        return SIZE_MAX;
    }
    size_t rows[3][NEAREST_MAX + 1];
    for (size_t j = 0; j <= n_b; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 0; i < n_a; i++) {
        distance_row(a, i, b, n_b, rows[(i + 2) % 3], rows[i % 3], rows[(i + 1) % 3]);
    }
    return rows[n_a % 3][n_b];
}

void nearest_consider(struct nearest *nearest, const char *wanted, const char *name) {
    size_t n_wanted = strlen(wanted), n_name = strlen(name);
    size_t n = n_wanted < n_name ? n_wanted : n_name;
    size_t distance = nearest_distance(wanted, name);
    size_t allowed = n_wanted > 3 ? n_wanted / 3 : n_wanted / 2;
    if (n >= 3 && strncmp(wanted, name, n) == 0) {
        distance = distance > 0 ? 1 : 0;
    }
    if (distance > allowed || (nearest->best && distance >= nearest->distance)) {
        return;
    }
    nearest->best = name;
    nearest->distance = distance;
}
