/* Reads dynamic_batching (batch sizes, batch delay, priorities, queue policies) and
 * sequence_batching (control inputs and strategy). Limits that depend on the model (max_batch_size,
 * datatypes, shapes) are checked in resolve_config.c. */
#include "core/base/log.h"
#include "serve/config/read.h"

enum { MAX_PRIORITY_LEVELS = 1000 /* each level is a list in the queue of every version */ };

/* ---- queue policies -------------------------------------------------------------------------- */

static enum status read_action(const struct doc_node *policy, bool *delays, struct error *err) {
    struct doc_node node = doc_get(policy, "timeout_action");
    struct str action = STR("REJECT");
    enum status st = doc_read_str(&node, &action, err);
    *delays = str_is(action, "DELAY");
    if (st == ST_OK && !*delays && !str_is(action, "REJECT")) {
        st = doc_error(&node, err, "expected REJECT or DELAY, got \"%.*s\"", STR_ARG(action));
    }
    return st;
}

static enum status read_policy(const struct doc_node *node, struct model_queue_policy *out,
                               struct error *err) {
    struct doc_node override = doc_get(node, "allow_timeout_override");
    enum status st = read_action(node, &out->delay_on_timeout, err);
    if (st == ST_OK) {
        st = config_read_count(node, "default_timeout_microseconds", &out->timeout_us, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&override, &out->allow_override, err);
    }
    if (st == ST_OK) {
        st = config_read_count(node, "max_queue_size", &out->max_size, err);
    }
    return st;
}

/* ---- priority levels ------------------------------------------------------------------------- */

static enum status read_priorities(const struct doc_node *batching, struct model_config *out,
                                   struct error *err) {
    struct doc_node levels = doc_get(batching, "priority_levels");
    struct doc_node ordinary = doc_get(batching, "default_priority_level");
    int64_t n = 0, number = 0;
    enum status st = doc_read_i64(&levels, 0, MAX_PRIORITY_LEVELS, &n, err);
    if (st == ST_OK) {
        st = doc_read_i64(&ordinary, 0, INT64_MAX, &number, err);
    }
    if (st == ST_OK && n > 0 && (number < 1 || number > n)) {
        st = doc_error(ordinary.val ? &ordinary : &levels, err,
                       "expected a default_priority_level from 1 to priority_levels, %lld, got "
                       "%lld",
                       (long long)n, (long long)number);
    }
    out->priority_levels = (uint64_t)n;
    out->default_priority = (uint64_t)number;
    return st;
}

static enum status read_level(const struct doc_node *node, const struct model_config *config,
                              const struct model_config_level *before, size_t n_before,
                              struct model_config_level *out, struct error *err) {
    struct doc_node key = doc_get(node, "key");
    struct doc_node value = doc_get(node, "value");
    int64_t level = 0;
    enum status st = doc_read_i64(&key, 1, (int64_t)config->priority_levels, &level, err);
    if (st == ST_OK && level == 0) {
        st = doc_error(node, err, "has no key: the level that it is for");
    }
    for (size_t i = 0; i < n_before && st == ST_OK; i++) {
        if (before[i].level == (uint64_t)level) {
            st = doc_error(&key, err, "level %lld is given twice", (long long)level);
        }
    }
    out->level = (uint64_t)level;
    return st == ST_OK ? read_policy(&value, &out->policy, err) : st;
}

static enum status read_levels(struct arena *arena, const struct doc_node *batching,
                               struct model_config *out, struct error *err) {
    struct doc_node list = doc_get(batching, "priority_queue_policy");
    size_t n = doc_count(&list);
    if (n > 0 && out->priority_levels == 0) {
        struct error where;
        doc_error(&list, &where, "has no effect without priority_levels");
        log_event(LOG_WARNING, "configuration", LOG_CSTR("text", where.text));
        return ST_OK;
    }
    struct model_config_level *levels = arena_calloc(arena, n, sizeof(*levels));
    if (!levels) {
        return error_no_memory(err, "the model's configuration");
    }
    struct doc_node node = {0};
    for (size_t i = 0; doc_next(&list, &node); i++) {
        enum status st = read_level(&node, out, levels, i, &levels[i], err);
        if (st != ST_OK) {
            return st;
        }
    }
    out->levels = levels;
    out->n_levels = n;
    return ST_OK;
}

/* ---- ordering -------------------------------------------------------------------------------- */

/* Returns: whether a request of this policy can be deprioritized. */
static bool can_delay(const struct model_queue_policy *policy) {
    return policy->delay_on_timeout && (policy->timeout_us > 0 || policy->allow_override);
}

static enum status check_ordering(const struct doc_node *ordering,
                                  const struct model_config *config, struct error *err) {
    bool delays = can_delay(&config->queue);
    for (size_t i = 0; i < config->n_levels; i++) {
        delays = delays || can_delay(&config->levels[i].policy);
    }
    if (!config->preserve_ordering) {
        return ST_OK;
    }
    if (config->priority_levels > 1) {
        return doc_error(ordering, err,
                         "responses cannot keep the order of requests that have priorities: "
                         "priority_levels is %llu",
                         (unsigned long long)config->priority_levels);
    }
    return delays ? doc_error(ordering, err,
                              "responses cannot keep the order of requests that can be delayed: "
                              "timeout_action is DELAY")
                  : ST_OK;
}

enum status config_read_batching(struct arena *arena, const struct doc_node *root,
                                 struct model_config *out, struct error *err) {
    struct doc_node batching = doc_get(root, "dynamic_batching");
    struct doc_node preferred = doc_get(&batching, "preferred_batch_size");
    struct doc_node ordering = doc_get(&batching, "preserve_ordering");
    struct doc_node policy = doc_get(&batching, "default_queue_policy");
    out->has_dynamic_batching = batching.val != NULL;
    enum status st = config_read_numbers(arena, &preferred, 1, &out->preferred_batch_sizes,
                                         &out->n_preferred, err);
    if (st == ST_OK) {
        st = config_read_count(&batching, "max_queue_delay_microseconds", &out->max_queue_delay_us,
                               err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&ordering, &out->preserve_ordering, err);
    }
    if (st == ST_OK) {
        st = read_policy(&policy, &out->queue, err);
    }
    if (st == ST_OK) {
        st = read_priorities(&batching, out, err);
    }
    if (st == ST_OK) {
        st = read_levels(arena, &batching, out, err);
    }
    return st == ST_OK ? check_ordering(&ordering, out, err) : st;
}

enum { DEFAULT_IDLE_US = 1000000 };

/* ---- control inputs -------------------------------------------------------------------------- */

static const char *const KINDS[] = {
    [CONTROL_START] = "CONTROL_SEQUENCE_START",
    [CONTROL_READY] = "CONTROL_SEQUENCE_READY",
    [CONTROL_END] = "CONTROL_SEQUENCE_END",
    [CONTROL_CORRID] = "CONTROL_SEQUENCE_CORRID",
};

enum { N_KINDS = sizeof(KINDS) / sizeof(KINDS[0]) };

static enum status read_kind(const struct doc_node *control, enum model_control_kind *out,
                             struct error *err) {
    struct doc_node node = doc_get(control, "kind");
    struct str name = str_of(KINDS[CONTROL_START]); /* protobuf's default: the first value */
    enum status st = doc_read_str(&node, &name, err);
    for (int i = 0; i < N_KINDS && st == ST_OK; i++) {
        if (str_is(name, KINDS[i])) {
            *out = (enum model_control_kind)i;
            return ST_OK;
        }
    }
    return st == ST_OK ? doc_error(&node, err,
                                   "expected CONTROL_SEQUENCE_START, _READY, _END or _CORRID, got "
                                   "\"%.*s\"",
                                   STR_ARG(name))
                       : st;
}

static enum status read_value(const struct doc_node *node, enum datatype datatype,
                              unsigned char *out, struct error *err) {
    int64_t whole = 0;
    double number = 0;
    bool truth = false;
    enum status st;
    if (datatype == DT_INT32) {
        st = doc_read_i64(node, INT32_MIN, INT32_MAX, &whole, err);
        memcpy(out, &(int32_t){(int32_t)whole}, sizeof(int32_t));
    } else if (datatype == DT_FP32) {
        st = doc_read_f64(node, &number, err);
        memcpy(out, &(float){(float)number}, sizeof(float));
    } else {
        st = doc_read_bool(node, &truth, err);
        out[0] = truth;
    }
    return st;
}

struct pair {
    const char *name;
    enum datatype datatype;
};

static const struct pair PAIRS[] = {
    {"int32_false_true", DT_INT32}, {"fp32_false_true", DT_FP32}, {"bool_false_true", DT_BOOL}};

enum { N_PAIRS = sizeof(PAIRS) / sizeof(PAIRS[0]) };

/* Reads the pair of values for false and true. Returns: ST_OK with DT_INVALID when no pair is
 * configured. */
static enum status read_values(const struct doc_node *control, struct model_control *out,
                               struct error *err) {
    for (size_t i = 0; i < N_PAIRS; i++) {
        struct doc_node list = doc_get(control, PAIRS[i].name);
        size_t n = doc_count(&list);
        if (n > 0 && (n != 2 || out->datatype != DT_INVALID)) {
            return doc_error(&list, err,
                             "expected one pair, the value for false and the one for true");
        }
        for (size_t j = 0; j < n; j++) {
            struct doc_node element = doc_at(&list, j);
            enum status st = read_value(&element, PAIRS[i].datatype, out->values[j], err);
            if (st != ST_OK) {
                return st;
            }
        }
        out->datatype = n > 0 ? PAIRS[i].datatype : out->datatype;
    }
    return ST_OK;
}

static bool is_for_ids(enum datatype datatype) {
    return datatype == DT_INT32 || datatype == DT_UINT32 || datatype == DT_INT64 ||
           datatype == DT_UINT64 || datatype == DT_BYTES;
}

static enum status read_control(const struct doc_node *node, struct model_control *out,
                                struct error *err) {
    enum datatype of_ids = DT_INVALID;
    enum status st = read_kind(node, &out->kind, err);
    if (st == ST_OK) {
        st = read_values(node, out, err);
    }
    if (st == ST_OK) {
        st = config_read_datatype(node, &of_ids, err);
    }
    bool is_id = out->kind == CONTROL_CORRID;
    if (st != ST_OK) {
        return st;
    }
    if (is_id && (out->datatype != DT_INVALID || !is_for_ids(of_ids))) {
        return doc_error(node, err,
                         "the identifier of a sequence needs a data_type, TYPE_INT32, TYPE_UINT32, "
                         "TYPE_INT64, TYPE_UINT64 or TYPE_STRING, and no values");
    }
    if (!is_id && (out->datatype == DT_INVALID || of_ids != DT_INVALID)) {
        return doc_error(node, err,
                         "needs one of int32_false_true, fp32_false_true and bool_false_true, and "
                         "no data_type");
    }
    out->datatype = is_id ? of_ids : out->datatype;
    return ST_OK;
}

static enum status read_control_input(struct arena *arena, const struct doc_node *node,
                                      struct model_control *out, struct error *err) {
    struct doc_node list = doc_get(node, "control");
    enum status st = config_read_text(arena, node, "name", &out->name, err);
    if (st == ST_OK && out->name.len == 0) {
        st = doc_error(node, err, "has no name");
    }
    if (st == ST_OK && doc_count(&list) != 1) {
        st = doc_error(node, err, "expected one control, got %zu", doc_count(&list));
    }
    struct doc_node control = doc_at(&list, 0);
    return st == ST_OK ? read_control(&control, out, err) : st;
}

static enum status check_control(const struct doc_node *node, const struct model_config *config,
                                 const struct model_control *controls, size_t i,
                                 struct error *err) {
    const struct model_control *control = &controls[i];
    for (size_t j = 0; j < config->n_inputs; j++) {
        if (str_eq(config->inputs[j].name, control->name)) {
            return doc_error(node, err, "\"%.*s\" is an input that clients send",
                             STR_ARG(control->name));
        }
    }
    for (size_t j = 0; j < i; j++) {
        if (str_eq(controls[j].name, control->name) || controls[j].kind == control->kind) {
            return doc_error(node, err, "another control has the same name or kind");
        }
    }
    return ST_OK;
}

static enum status read_controls(struct arena *arena, const struct doc_node *batching,
                                 struct model_config *out, struct error *err) {
    struct doc_node list = doc_get(batching, "control_input");
    size_t n = doc_count(&list);
    struct model_control *controls = arena_calloc(arena, n, sizeof(*controls));
    if (!controls) {
        return error_no_memory(err, "the model's configuration");
    }
    struct doc_node node = {0};
    for (size_t i = 0; doc_next(&list, &node); i++) {
        enum status st = read_control_input(arena, &node, &controls[i], err);
        if (st == ST_OK) {
            st = check_control(&node, out, controls, i, err);
        }
        if (st != ST_OK) {
            return st;
        }
    }
    out->sequences.controls = controls;
    out->sequences.n_controls = n;
    return ST_OK;
}

/* ---- sequence strategies --------------------------------------------------------------------- */

static enum status read_direct(const struct doc_node *direct, struct model_config *out,
                               struct error *err) {
    struct doc_node share = doc_get(direct, "minimum_slot_utilization");
    enum status st =
        config_read_count(direct, "max_queue_delay_microseconds", &out->max_queue_delay_us, err);
    return st == ST_OK ? doc_read_share(&share, true, &out->sequences.min_utilization, err) : st;
}

static enum status read_oldest(struct arena *arena, const struct doc_node *oldest,
                               struct model_config *out, struct error *err) {
    struct doc_node preferred = doc_get(oldest, "preferred_batch_size");
    struct doc_node ordering = doc_get(oldest, "preserve_ordering");
    struct doc_node candidates = doc_get(oldest, "max_candidate_sequences");
    int64_t n = 0;
    enum status st =
        config_read_count(oldest, "max_queue_delay_microseconds", &out->max_queue_delay_us, err);
    if (st == ST_OK) {
        st = config_read_numbers(arena, &preferred, 1, &out->preferred_batch_sizes,
                                 &out->n_preferred, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&ordering, &out->preserve_ordering, err);
    }
    if (st == ST_OK) {
        st = doc_read_i64(&candidates, 0, INT32_MAX, &n, err);
    }
    out->sequences.max_candidates = (uint64_t)n;
    return st;
}

static enum status read_strategy(struct arena *arena, const struct doc_node *batching,
                                 struct model_config *out, struct error *err) {
    struct doc_node direct = doc_get(batching, "direct");
    struct doc_node oldest = doc_get(batching, "oldest");
    if (direct.val && oldest.val) {
        return doc_error(batching, err, "has both direct and oldest");
    }
    out->sequences.strategy = oldest.val ? SEQUENCES_OLDEST : SEQUENCES_DIRECT;
    return oldest.val ? read_oldest(arena, &oldest, out, err) : read_direct(&direct, out, err);
}

enum status config_read_sequences(struct arena *arena, const struct doc_node *root,
                                  struct model_config *out, struct error *err) {
    struct doc_node batching = doc_get(root, "sequence_batching");
    if (!batching.val) {
        return ST_OK;
    }
    if (out->has_dynamic_batching) {
        return doc_error(&batching, err, "a model has either this or dynamic_batching");
    }
    enum status st = config_read_count(&batching, "max_sequence_idle_microseconds",
                                       &out->sequences.idle_us, err);
    if (out->sequences.idle_us == 0) {
        out->sequences.idle_us = DEFAULT_IDLE_US;
    }
    if (st == ST_OK) {
        st = read_controls(arena, &batching, out, err);
    }
    return st == ST_OK ? read_strategy(arena, &batching, out, err) : st;
}
