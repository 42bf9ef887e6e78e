/* Reads dynamic_batching (batch sizes, batch delay, priorities, queue policies) and
 * sequence_batching (control inputs and strategy). Limits that depend on the model (max_batch_size,
 * datatypes, shapes) are checked in resolve_config.c. */
#include "serve/config/read.h"

enum { MAX_PRIORITY_LEVELS = 1000 /* each level is a list in the queue of every version */ };

static void read_preferred(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    config_read_numbers(reader, node, &out->preferred_batch_sizes, &out->n_preferred);
}

/* ---- queue policies -------------------------------------------------------------------------- */

static void read_action(struct doc_reader *reader, const struct doc_node *node, void *object) {
    static const char *const actions[] = {"REJECT", "DELAY", NULL};
    struct model_queue_policy *out = object;
    unsigned action = 0;
    doc_reader_word(reader, node, actions, NULL, &action);
    out->delay_on_timeout = action == 1;
}

static const struct doc_member QUEUE_POLICY[] = {
    {"timeout_action", MEMBER_CUSTOM(read_action)},
    {"default_timeout_microseconds",
     MEMBER_WHOLE(struct model_queue_policy, timeout_us, 0, INT64_MAX)},
    {"allow_timeout_override", MEMBER_BOOL(struct model_queue_policy, allow_override)},
    {"max_queue_size", MEMBER_WHOLE(struct model_queue_policy, max_size, 0, INT64_MAX)},
    {0}};

/* ---- priority levels ------------------------------------------------------------------------- */

static void check_default_level(struct doc_reader *reader, const struct doc_node *node,
                                void *object) {
    const struct model_config *config = object;
    struct doc_node levels = doc_get(node->parent, "priority_levels");
    if (config->priority_levels > 0 &&
        (config->default_priority < 1 || config->default_priority > config->priority_levels)) {
        doc_reader_fail(reader, node->val ? node : &levels,
                        "expected a default_priority_level from 1 to priority_levels, %llu, got "
                        "%llu",
                        (unsigned long long)config->priority_levels,
                        (unsigned long long)config->default_priority);
    }
}

static const struct doc_member LEVEL[] = {
    {"key", MEMBER_BY_CALLER}, /* read_level_key: its range depends on priority_levels */
    {"value", MEMBER_OBJECT(QUEUE_POLICY), .offset = offsetof(struct model_config_level, policy)},
    {0}};

static void read_level_key(struct doc_reader *reader, const struct doc_node *node,
                           const struct model_config *config, struct model_config_level *levels,
                           size_t i) {
    struct doc_node key = doc_get(node, "key");
    doc_reader_u64(reader, &key, 1, (int64_t)config->priority_levels, &levels[i].level);
    if (levels[i].level == 0) {
        doc_reader_fail(reader, node, "has no key: the level that it is for");
    }
    for (size_t j = 0; j < i; j++) {
        if (levels[j].level == levels[i].level) {
            doc_reader_fail(reader, &key, "level %llu is given twice",
                            (unsigned long long)levels[i].level);
        }
    }
}

static void read_levels(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    size_t n;
    struct model_config_level *levels = doc_reader_list(reader, node, sizeof(*levels), &n);
    bool applies = out->priority_levels > 0;
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        doc_reader_object(reader, &item, LEVEL, &levels[i]);
        if (applies) {
            read_level_key(reader, &item, out, levels, i);
        }
    }
    if (applies) {
        out->levels = levels;
        out->n_levels = n;
    } else if (n > 0) {
        config_warn(node, "has no effect without priority_levels");
    }
}

/* ---- ordering -------------------------------------------------------------------------------- */

/* Returns: whether a request of this policy can be deprioritized. */
static bool can_delay(const struct model_queue_policy *policy) {
    return policy->delay_on_timeout && (policy->timeout_us > 0 || policy->allow_override);
}

static void check_ordering(struct doc_reader *reader, const struct doc_node *ordering,
                           const struct model_config *config) {
    bool delays = can_delay(&config->queue);
    for (size_t i = 0; i < config->n_levels; i++) {
        delays = delays || can_delay(&config->levels[i].policy);
    }
    if (!config->preserve_ordering) {
        return;
    }
    if (config->priority_levels > 1) {
        doc_reader_fail(reader, ordering,
                        "responses cannot keep the order of requests that have priorities: "
                        "priority_levels is %llu",
                        (unsigned long long)config->priority_levels);
    }
    if (delays) {
        doc_reader_fail(reader, ordering,
                        "responses cannot keep the order of requests that can be delayed: "
                        "timeout_action is DELAY");
    }
}

static const struct doc_member DYNAMIC_BATCHING[] = {
    {"preferred_batch_size", MEMBER_CUSTOM(read_preferred)},
    {"max_queue_delay_microseconds",
     MEMBER_WHOLE(struct model_config, max_queue_delay_us, 0, INT64_MAX)},
    {"preserve_ordering", MEMBER_BOOL(struct model_config, preserve_ordering)},
    {"default_queue_policy", MEMBER_OBJECT(QUEUE_POLICY),
     .offset = offsetof(struct model_config, queue)},
    {"priority_levels", MEMBER_WHOLE(struct model_config, priority_levels, 0, MAX_PRIORITY_LEVELS)},
    {"default_priority_level", MEMBER_WHOLE(struct model_config, default_priority, 0, INT64_MAX),
     .check = check_default_level},
    {"priority_queue_policy", MEMBER_CUSTOM(read_levels)},
    {0}};

void config_read_batching(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    struct doc_node ordering = doc_get(node, "preserve_ordering");
    out->has_dynamic_batching = node->val != NULL;
    doc_reader_object(reader, node, DYNAMIC_BATCHING, out);
    check_ordering(reader, &ordering, out);
}

/* ---- control inputs -------------------------------------------------------------------------- */

static const char *const KINDS[] = {
    [CONTROL_START] = "CONTROL_SEQUENCE_START",
    [CONTROL_READY] = "CONTROL_SEQUENCE_READY",
    [CONTROL_END] = "CONTROL_SEQUENCE_END",
    [CONTROL_CORRID] = "CONTROL_SEQUENCE_CORRID",
    NULL,
};

static void read_value(struct doc_reader *reader, const struct doc_node *node,
                       enum datatype datatype, unsigned char *out) {
    int64_t whole = 0;
    double number = 0;
    bool truth = false;
    if (datatype == DT_INT32) {
        doc_reader_i64(reader, node, INT32_MIN, INT32_MAX, &whole);
        memcpy(out, &(int32_t){(int32_t)whole}, sizeof(int32_t));
    } else if (datatype == DT_FP32) {
        doc_reader_f64(reader, node, &number);
        memcpy(out, &(float){(float)number}, sizeof(float));
    } else {
        doc_reader_bool(reader, node, &truth);
        out[0] = truth;
    }
}

/* A pair of values, for false and for true. */
static void read_pair(struct doc_reader *reader, const struct doc_node *node,
                      enum datatype datatype, struct model_control *out) {
    size_t n = doc_count(node);
    if (n > 0 && (n != 2 || out->datatype != DT_INVALID)) {
        doc_reader_fail(reader, node,
                        "expected one pair, the value for false and the one for true");
    }
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        read_value(reader, &item, datatype, out->values[i]);
        out->datatype = datatype;
    }
}

static void read_int32_pair(struct doc_reader *reader, const struct doc_node *node, void *object) {
    read_pair(reader, node, DT_INT32, object);
}

static void read_fp32_pair(struct doc_reader *reader, const struct doc_node *node, void *object) {
    read_pair(reader, node, DT_FP32, object);
}

static void read_bool_pair(struct doc_reader *reader, const struct doc_node *node, void *object) {
    read_pair(reader, node, DT_BOOL, object);
}

static bool is_for_ids(enum datatype datatype) {
    return datatype == DT_INT32 || datatype == DT_UINT32 || datatype == DT_INT64 ||
           datatype == DT_UINT64 || datatype == DT_BYTES;
}

/* The last member of a control, after the pairs: the datatype of identifiers. */
static void read_id_datatype(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_control *out = object;
    enum datatype of_ids = DT_INVALID;
    bool is_id = out->kind == CONTROL_CORRID;
    config_read_datatype(reader, node, &of_ids);
    if (is_id && (out->datatype != DT_INVALID || !is_for_ids(of_ids))) {
        doc_reader_fail(reader, node->parent,
                        "the identifier of a sequence needs a data_type, TYPE_INT32, TYPE_UINT32, "
                        "TYPE_INT64, TYPE_UINT64 or TYPE_STRING, and no values");
    }
    if (!is_id && (out->datatype == DT_INVALID || of_ids != DT_INVALID)) {
        doc_reader_fail(reader, node->parent,
                        "needs one of int32_false_true, fp32_false_true and bool_false_true, and "
                        "no data_type");
    }
    out->datatype = is_id ? of_ids : out->datatype;
}

static const struct doc_member CONTROL[] = {
    {"kind", MEMBER_WORD(struct model_control, kind, KINDS),
     .text = "CONTROL_SEQUENCE_START, _READY, _END or _CORRID"},
    {"int32_false_true", MEMBER_CUSTOM(read_int32_pair)},
    {"fp32_false_true", MEMBER_CUSTOM(read_fp32_pair)},
    {"bool_false_true", MEMBER_CUSTOM(read_bool_pair)},
    {"data_type", MEMBER_CUSTOM(read_id_datatype)},
    {0}};

static void read_control(struct doc_reader *reader, const struct doc_node *node, void *object) {
    if (doc_count(node) != 1) {
        doc_reader_fail(reader, node->parent, "expected one control, got %zu", doc_count(node));
    }
    struct doc_node only = doc_at(node, 0);
    doc_reader_object(reader, &only, CONTROL, object);
}

static const struct doc_member CONTROL_INPUT[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct model_control, name, struct str, config_read_name)},
    {"control", MEMBER_CUSTOM(read_control)},
    {0}};

static void check_control(struct doc_reader *reader, const struct doc_node *node,
                          const struct model_config *config, const struct model_control *controls,
                          size_t i) {
    const struct model_control *control = &controls[i];
    for (size_t j = 0; j < config->n_inputs; j++) {
        if (str_eq(config->inputs[j].name, control->name)) {
            doc_reader_fail(reader, node, "\"%.*s\" is an input that clients send",
                            STR_ARG(control->name));
        }
    }
    for (size_t j = 0; j < i; j++) {
        if (str_eq(controls[j].name, control->name) || controls[j].kind == control->kind) {
            doc_reader_fail(reader, node, "another control has the same name or kind");
        }
    }
}

static void read_controls(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    struct model_control *controls =
        doc_reader_list(reader, node, sizeof(*controls), &out->sequences.n_controls);
    out->sequences.controls = controls;
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        doc_reader_object(reader, &item, CONTROL_INPUT, &controls[i]);
        check_control(reader, &item, out, controls, i);
    }
}

/* ---- sequence strategies --------------------------------------------------------------------- */

static const struct doc_member DIRECT[] = {
    {"max_queue_delay_microseconds",
     MEMBER_WHOLE(struct model_config, max_queue_delay_us, 0, INT64_MAX)},
    {"minimum_slot_utilization",
     MEMBER_SHARE(struct model_config, sequences.min_utilization, true)},
    {0}};

static const struct doc_member OLDEST[] = {
    {"max_queue_delay_microseconds",
     MEMBER_WHOLE(struct model_config, max_queue_delay_us, 0, INT64_MAX)},
    {"preferred_batch_size", MEMBER_CUSTOM(read_preferred)},
    {"preserve_ordering", MEMBER_BOOL(struct model_config, preserve_ordering)},
    {"max_candidate_sequences",
     MEMBER_WHOLE(struct model_config, sequences.max_candidates, 0, INT32_MAX)},
    {0}};

static const struct doc_member SEQUENCES[] = {
    {"max_sequence_idle_microseconds",
     MEMBER_WHOLE(struct model_config, sequences.idle_us, 0, INT64_MAX)},
    {"control_input", MEMBER_CUSTOM(read_controls)},
    {"direct", MEMBER_OBJECT(DIRECT)},
    {"oldest", MEMBER_OBJECT(OLDEST)},
    {"state", MEMBER_REFUSED("state that the server carries from one request to the next is not "
                             "supported")},
    {"iterative_sequence",
     MEMBER_REFUSED_TRUE("requests that are run again until they are done are not supported")},
    {0}};

void config_read_sequences(struct doc_reader *reader, const struct doc_node *node, void *object) {
    enum { DEFAULT_IDLE_US = 1000000 };
    struct model_config *out = object;
    bool direct = doc_get(node, "direct").val != NULL;
    bool oldest = doc_get(node, "oldest").val != NULL;
    if (!node->val) {
        return;
    }
    if (out->has_dynamic_batching) {
        doc_reader_fail(reader, node, "a model has either this or dynamic_batching");
    }
    if (direct && oldest) {
        doc_reader_fail(reader, node, "has both direct and oldest");
    }
    doc_reader_object(reader, node, SEQUENCES, out);
    out->sequences.strategy = oldest ? SEQUENCES_OLDEST : SEQUENCES_DIRECT;
    if (out->sequences.idle_us == 0) {
        out->sequences.idle_us = DEFAULT_IDLE_US;
    }
}
