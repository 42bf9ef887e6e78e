/* Parameters by name, in linear search: lists are short. */
#include "core/tensor/param.h"

#include <stdlib.h>

const struct param *params_find(struct params params, const char *name) {
    for (size_t i = 0; i < params.n; i++) {
        if (str_is(params.items[i].name, name)) {
            return &params.items[i];
        }
    }
    return NULL;
}

bool param_is_reserved(struct str name) {
    static const char *const names[] = {
        "sequence_id", "sequence_start", "sequence_end",       "priority",
        "timeout",     "headers",        "binary_data_output",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_is(name, names[i])) {
            return true;
        }
    }
    return str_starts_with(name, STR("triton_"));
}

/* ---- duplicates ------------------------------------------------------------------------------ */

static int compare_names(const struct param *a, const struct param *b) {
    if (a->name.len != b->name.len) {
        return a->name.len < b->name.len ? -1 : 1;
    }
    return a->name.len == 0 ? 0 : memcmp(a->name.ptr, b->name.ptr, a->name.len);
}

/* By name, then by place: both point into one array. */
static int compare_names_and_positions(const void *a, const void *b) {
    const struct param *const *left = a, *const *right = b;
    int order = compare_names(*left, *right);
    return order != 0 ? order : (*left > *right) - (*left < *right);
}

/* Marks all but one of each run of equal names. */
static void mark_duplicates(struct param **sorted, size_t n, enum params_keep keep) {
    for (size_t i = n; i-- > 1;) {
        if (keep == PARAMS_KEEP_FIRST && compare_names(sorted[i - 1], sorted[i]) == 0) {
            sorted[i]->name.ptr = NULL;
        }
    }
    for (size_t i = 1; i < n; i++) {
        if (keep == PARAMS_KEEP_LAST && compare_names(sorted[i - 1], sorted[i]) == 0) {
            sorted[i - 1]->name.ptr = NULL;
        }
    }
}

bool params_dedup(struct arena *arena, struct param *items, size_t *n, enum params_keep keep) {
    struct param **sorted = arena_calloc(arena, *n, sizeof(struct param *));
    size_t kept = 0;
    if (!sorted) {
        return false;
    }
    for (size_t i = 0; i < *n; i++) {
        sorted[i] = &items[i];
    }
    qsort(sorted, *n, sizeof(struct param *), compare_names_and_positions);
    mark_duplicates(sorted, *n, keep);
    for (size_t i = 0; i < *n; i++) {
        if (items[i].name.ptr) {
            items[kept++] = items[i];
        }
    }
    *n = kept;
    return true;
}
