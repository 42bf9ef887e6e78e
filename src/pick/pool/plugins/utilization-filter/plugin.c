/* Removes endpoints of which a measure is above its limit. */
#include "pick/pool/profile/plugin.h"

enum measure { ACTIVE, RUNNING, WAITING, KV_CACHE };

struct condition {
    enum measure measure;
    float most;
};

enum { MOST_CONDITIONS = 16 };

struct limits {
    struct condition conditions[MOST_CONDITIONS]; /* all must hold */
    size_t n;
    bool falls_back;
};

/* ---- parameters ------------------------------------------------------------------------------ */

static void check_most(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct condition *condition = object;
    if (!node->val) {
        doc_reader_fail(reader, node, "expected a number, got nothing");
    } else if (condition->measure == KV_CACHE && condition->most > 1) {
        doc_reader_fail(reader, node, "expected a share from 0 to 1");
    }
}

static void check_measure(struct doc_reader *reader, const struct doc_node *node, void *object) {
    (void)object;
    if (!node->val) {
        doc_reader_fail(reader, node,
                        "expected active-requests, running-requests, waiting-queue or "
                        "kv-cache-utilization, got nothing");
    }
}

static const char *const MEASURES[] = {"active-requests", "running-requests", "waiting-queue",
                                       "kv-cache-utilization", NULL};
static const struct doc_member CONDITION[] = {
    {"metric", MEMBER_WORD(struct condition, measure, MEASURES), .check = check_measure},
    {"maxValue", MEMBER_NUMBER(struct condition, most, 0, INT64_MAX), .check = check_most},
    {0}};

static void read_conditions(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct limits *limits = object;
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n == 0 || n > MOST_CONDITIONS) {
        doc_reader_fail(reader, list, "expected 1 to %d conditions, got %zu", MOST_CONDITIONS, n);
    }
    for (struct doc_node item = {0};
         doc_reader_ok(reader) && doc_reader_next(reader, list, &item);) {
        doc_reader_expect_object(reader, &item);
        doc_reader_object(reader, &item, CONDITION, &limits->conditions[limits->n++]);
    }
}

static const struct doc_member PARAMETERS[] = {
    {"conditions", MEMBER_CUSTOM(read_conditions), .form = "`{metric, maxValue}`, at least one"},
    {"fallbackOnEmpty", MEMBER_BOOL(struct limits, falls_back)},
    {0}};

/* ---- filter ---------------------------------------------------------------------------------- */

/* A value that is not reported counts as 0. */
static float value_of(const struct candidate_set *candidates, enum measure measure, uint32_t i) {
    const struct candidate_columns *columns = candidates->columns;
    switch (measure) {
    case ACTIVE:
        return candidate_set_other_requests(candidates, i);
    case RUNNING:
        return columns->known[i] & LOAD_RUNNING ? columns->n_running[i] : 0;
    case WAITING:
        return columns->known[i] & LOAD_WAITING ? columns->n_waiting[i] : 0;
    case KV_CACHE:
        return columns->known[i] & LOAD_KV_CACHE ? columns->kv_cache_used[i] : 0;
    }
    return 0;
}

static bool is_within_limits(const void *parameters, const struct candidate_set *candidates,
                             uint32_t i) {
    const struct limits *limits = parameters;
    bool within = true;
    for (size_t k = 0; k < limits->n && within; k++) {
        const struct condition *condition = &limits->conditions[k];
        within = value_of(candidates, condition->measure, i) <= condition->most;
    }
    return within;
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    const struct limits *limits = parameters;
    if (limits->falls_back) {
        candidate_set_prefer(candidates, limits, is_within_limits);
    } else {
        candidate_set_filter(candidates, limits, is_within_limits);
    }
}

static bool admits(const void *parameters, uint32_t in_flight, uint64_t n_tokens) {
    const struct limits *limits = parameters;
    bool within = true;
    (void)n_tokens;
    for (size_t k = 0; k < limits->n && !limits->falls_back; k++) {
        const struct condition *condition = &limits->conditions[k];
        within = within && (condition->measure != ACTIVE || (float)in_flight <= condition->most);
    }
    return within;
}

const struct plugin plugin_utilization_filter = {.type = "utilization-filter",
                                                 .kind = PLUGIN_FILTER,
                                                 PLUGIN_PARAMETERS(struct limits, PARAMETERS),
                                                 .filter = filter,
                                                 .admits = admits};
