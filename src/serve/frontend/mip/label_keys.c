/* Class labels as keys of a MIP answer: none is empty, and those that occur more than once get
 * their index. */
#include "serve/frontend/mip/plan.h"

#include <stdlib.h>

static int compare_labels(const void *a, const void *b) {
    const struct str *left = *(const struct str *const *)a, *right = *(const struct str *const *)b;
    size_t n = left->len < right->len ? left->len : right->len;
    int order = memcmp(left->ptr, right->ptr, n);
    return order != 0 ? order : (left->len > right->len) - (left->len < right->len);
}

static void sort_labels(const struct str **sorted, const struct str *labels, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &labels[i];
    }
    qsort(sorted, n, sizeof(*sorted), compare_labels);
}

static bool is_duplicate(const struct str *const *sorted, size_t n, size_t i) {
    return (i > 0 && str_eq(*sorted[i - 1], *sorted[i])) ||
           (i + 1 < n && str_eq(*sorted[i], *sorted[i + 1]));
}

/* Appends the index to labels that occur more than once; `renamed` has the capacity for all. */
static bool number_duplicates(struct arena *arena, const struct str *const *sorted, size_t n,
                              const struct str *labels, struct str *renamed) {
    for (size_t i = 0; i < n; i++) {
        size_t index = (size_t)(sorted[i] - labels);
        renamed[index] = *sorted[i];
        if (is_duplicate(sorted, n, i)) {
            renamed[index] = arena_printf(arena, "%.*s (%zu)", STR_ARG(*sorted[i]), index);
        }
        if (!renamed[index].ptr) {
            return false;
        }
    }
    return true;
}

static enum status make_unique(struct arena *arena, const char *path, struct labels *labels,
                               struct error *err) {
    size_t n = labels->n;
    const struct str **sorted = arena_calloc(arena, n, sizeof(*sorted));
    struct str *renamed = arena_calloc(arena, n, sizeof(*renamed));
    if (!sorted || !renamed) {
        return error_no_memory(err, "the labels in %s", path);
    }
    sort_labels(sorted, labels->items, n);
    if (!number_duplicates(arena, sorted, n, labels->items, renamed)) {
        return error_no_memory(err, "the labels in %s", path);
    }
    sort_labels(sorted, renamed, n);
    for (size_t i = 0; i + 1 < n; i++) {
        if (str_eq(*sorted[i], *sorted[i + 1])) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s: the label \"%.*s\" is also what another label, which is there "
                             "more than once, is called with its number",
                             path, STR_ARG(*sorted[i]));
        }
    }
    labels->items = renamed;
    return ST_OK;
}

enum status mip_labels_make_keys(struct arena *arena, const char *path, struct labels *labels,
                                 struct error *err) {
    for (size_t i = 0; i < labels->n; i++) { /* a key cannot be empty */
        if (labels->items[i].len == 0) {
            return error_set(err, ST_BAD_CONFIG, "%s:%zu: expected a label, the line is empty",
                             path, i + 1);
        }
    }
    return labels->n > 0 ? make_unique(arena, path, labels, err)
                         : error_set(err, ST_BAD_CONFIG, "%s: the file has no labels", path);
}
