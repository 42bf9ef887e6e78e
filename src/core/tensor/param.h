/* Parameters: the named values of a request, a tensor or a response. */
#ifndef SLUICE_CORE_TENSOR_PARAM_H
#define SLUICE_CORE_TENSOR_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/str.h"

enum param_kind { PARAM_BOOL, PARAM_INT64, PARAM_UINT64, PARAM_DOUBLE, PARAM_STRING };

struct param {
    struct str name;
    enum param_kind kind; /* PARAM_UINT64 only for values above INT64_MAX */
    bool boolean;
    int64_t int64;
    uint64_t uint64;
    double number;
    struct str string;
};

struct params {
    const struct param *items;
    size_t n;
};

/* Returns: the parameter of that name, or NULL. */
const struct param *params_find(struct params params, const char *name);

/* Is it a name that the protocols and the scheduler interpret? Backends do not get those. Clause:
 * parameters extension. */
bool param_is_reserved(struct str name);

/* Which of several parameters of one name stays. */
enum params_keep { PARAMS_KEEP_FIRST, PARAMS_KEEP_LAST };
/* Removes all but one of each name; the others stay in their order. It sorts, as a peer chooses how
 * many there are. Names are never NULL. Returns: false when out of memory. */
bool params_dedup(struct arena *arena, struct param *items, size_t *n, enum params_keep keep);

#endif
