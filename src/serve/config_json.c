/* ModelConfig, field by field, in the order in which the reference server prints them. What Sluice
 * has no use for is in it with its default. */
#include "serve/config_json.h"

#include <stdio.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

/* The name of a member, behind a comma where it is not the first. */
static void key(struct buf *out, const char *name) {
    char last = out->len > 0 ? out->data[out->len - 1] : '{';
    if (last != '{' && last != '[') {
        buf_add_char(out, ',');
    }
    buf_add_json_string(out, str_of(name));
    buf_add_char(out, ':');
}

static void add_text(struct buf *out, const char *name, struct str value) {
    key(out, name);
    buf_add_json_string(out, value);
}

static void add_u64(struct buf *out, const char *name, uint64_t value) {
    key(out, name);
    buf_add_u64(out, value);
}

static void add_bool(struct buf *out, const char *name, bool value) {
    key(out, name);
    buf_add_str(out, value ? STR("true") : STR("false"));
}

static void add_empty(struct buf *out, const char *name, const char *what) {
    key(out, name);
    buf_add_str(out, str_of(what));
}

static void add_i64s(struct buf *out, const char *name, const int64_t *values, size_t n) {
    key(out, name);
    buf_add_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            buf_add_char(out, ',');
        }
        buf_add_i64(out, values[i]);
    }
    buf_add_char(out, ']');
}

static void begin(struct buf *out, const char *name, char bracket) {
    key(out, name);
    buf_add_char(out, bracket);
}

/* An element of a list. */
static void begin_element(struct buf *out) {
    buf_add_str(out, out->len > 0 && out->data[out->len - 1] == '}' ? STR(",{") : STR("{"));
}

static void end(struct buf *out, char bracket) {
    buf_add_char(out, bracket);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void add_datatype(struct buf *out, enum datatype datatype) {
    key(out, "data_type");
    buf_add_str(out, STR("\"TYPE_"));
    buf_add_str(out, datatype == DT_BYTES ? STR("STRING") : str_of(datatype_name(datatype)));
    buf_add_char(out, '"');
}

static void add_reshape(struct buf *out, const struct model_config_tensor *tensor) {
    if (tensor->has_reshape) {
        begin(out, "reshape", '{');
        add_i64s(out, "shape", tensor->reshape.dims, tensor->reshape.rank);
        end(out, '}');
    }
}

static void add_input(struct buf *out, const struct model_config_tensor *tensor) {
    begin_element(out);
    add_text(out, "name", tensor->name);
    add_datatype(out, tensor->datatype);
    add_text(out, "format", STR("FORMAT_NONE"));
    add_i64s(out, "dims", tensor->dims.dims, tensor->dims.rank);
    add_reshape(out, tensor);
    add_bool(out, "is_shape_tensor", false);
    add_bool(out, "allow_ragged_batch", false);
    add_bool(out, "optional", tensor->optional);
    add_bool(out, "is_non_linear_format_io", false);
    end(out, '}');
}

static void add_output(struct buf *out, const struct model_config_tensor *tensor) {
    begin_element(out);
    add_text(out, "name", tensor->name);
    add_datatype(out, tensor->datatype);
    add_i64s(out, "dims", tensor->dims.dims, tensor->dims.rank);
    add_reshape(out, tensor);
    add_text(out, "label_filename", tensor->label_filename);
    add_bool(out, "is_shape_tensor", false);
    add_bool(out, "is_non_linear_format_io", false);
    end(out, '}');
}

static void add_tensors(struct buf *out, const char *name, const struct model_config_tensor *all,
                        size_t n,
                        void (*add)(struct buf *out, const struct model_config_tensor *tensor)) {
    begin(out, name, '[');
    for (size_t i = 0; i < n; i++) {
        add(out, &all[i]);
    }
    end(out, ']');
}

/* ---- serving --------------------------------------------------------------------------------- */

static void add_policy(struct buf *out, const struct model_config *config) {
    begin(out, "version_policy", '{');
    switch (config->policy) {
    case VERSIONS_LATEST:
        begin(out, "latest", '{');
        add_u64(out, "num_versions", config->latest_count);
        break;
    case VERSIONS_ALL:
        begin(out, "all", '{');
        break;
    case VERSIONS_SPECIFIC:
        begin(out, "specific", '{');
        add_i64s(out, "versions", (const int64_t *)config->specific, config->n_specific);
        break;
    }
    end(out, '}');
    end(out, '}');
}

static void add_instances(struct buf *out, const struct model_config *config) {
    begin(out, "instance_group", '[');
    begin_element(out);
    add_text(out, "name", config->name);
    add_text(out, "kind", STR("KIND_CPU"));
    add_u64(out, "count", config->instance_count);
    add_empty(out, "gpus", "[]");
    add_empty(out, "secondary_devices", "[]");
    add_empty(out, "profile", "[]");
    add_bool(out, "passive", false);
    add_text(out, "host_policy", STR(""));
    end(out, '}');
    end(out, ']');
}

static void add_queue_policy(struct buf *out, const char *name,
                             const struct model_queue_policy *policy) {
    begin(out, name, '{');
    add_text(out, "timeout_action", policy->delays ? STR("DELAY") : STR("REJECT"));
    add_u64(out, "default_timeout_microseconds", policy->timeout_us);
    add_bool(out, "allow_timeout_override", policy->allow_override);
    add_u64(out, "max_queue_size", policy->max_size);
    end(out, '}');
}

static void add_batching(struct buf *out, const struct model_config *config) {
    if (!config->has_dynamic_batching) {
        return;
    }
    begin(out, "dynamic_batching", '{');
    add_i64s(out, "preferred_batch_size", (const int64_t *)config->preferred_batch_sizes,
             config->n_preferred);
    add_u64(out, "max_queue_delay_microseconds", config->max_queue_delay_us);
    add_bool(out, "preserve_ordering", config->preserve_ordering);
    add_u64(out, "priority_levels", config->priority_levels);
    add_u64(out, "default_priority_level", config->default_priority);
    add_queue_policy(out, "default_queue_policy", &config->queue);
    begin(out, "priority_queue_policy", '{');
    for (size_t i = 0; i < config->n_levels; i++) {
        char level[24];
        snprintf(level, sizeof(level), "%llu", (unsigned long long)config->levels[i].level);
        add_queue_policy(out, level, &config->levels[i].policy);
    }
    end(out, '}');
    end(out, '}');
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* What stands for false and for true, under the datatype's own name; the other two are empty. */
static void add_pair(struct buf *out, const char *name, enum datatype datatype,
                     const struct model_control *control) {
    begin(out, name, '[');
    for (size_t i = 0; i < 2 && control->datatype == datatype; i++) {
        int32_t whole;
        float number;
        memcpy(&whole, control->values[i], sizeof(whole));
        memcpy(&number, control->values[i], sizeof(number));
        buf_add_str(out, i > 0 ? STR(",") : STR(""));
        if (datatype == DT_FP32) {
            buf_printf(out, "%.9g", (double)number);
        } else if (datatype == DT_INT32) {
            buf_add_i64(out, whole);
        } else {
            buf_add_str(out, control->values[i][0] ? STR("true") : STR("false"));
        }
    }
    end(out, ']');
}

static void add_control(struct buf *out, const struct model_control *control) {
    static const struct model_control none = {.datatype = DT_INVALID};
    static const char *const kinds[] = {[CONTROL_START] = "CONTROL_SEQUENCE_START",
                                        [CONTROL_READY] = "CONTROL_SEQUENCE_READY",
                                        [CONTROL_END] = "CONTROL_SEQUENCE_END",
                                        [CONTROL_CORRID] = "CONTROL_SEQUENCE_CORRID"};
    bool is_id = control->kind == CONTROL_CORRID;
    begin_element(out);
    add_text(out, "name", control->name);
    begin(out, "control", '[');
    begin_element(out);
    add_text(out, "kind", str_of(kinds[control->kind]));
    add_pair(out, "int32_false_true", DT_INT32, is_id ? &none : control);
    add_pair(out, "fp32_false_true", DT_FP32, is_id ? &none : control);
    add_pair(out, "bool_false_true", DT_BOOL, is_id ? &none : control);
    if (is_id) {
        add_datatype(out, control->datatype);
    } else {
        add_text(out, "data_type", STR("TYPE_INVALID"));
    }
    end(out, '}');
    end(out, ']');
    end(out, '}');
}

static void add_strategy(struct buf *out, const struct model_config *config) {
    const struct model_sequences *sequences = &config->sequences;
    if (sequences->strategy == SEQUENCES_DIRECT) {
        begin(out, "direct", '{');
        add_u64(out, "max_queue_delay_microseconds", config->max_queue_delay_us);
        key(out, "minimum_slot_utilization");
        buf_printf(out, "%.9g", sequences->min_utilization);
    } else {
        begin(out, "oldest", '{');
        add_u64(out, "max_candidate_sequences", sequences->max_candidates);
        add_i64s(out, "preferred_batch_size", (const int64_t *)config->preferred_batch_sizes,
                 config->n_preferred);
        add_u64(out, "max_queue_delay_microseconds", config->max_queue_delay_us);
        add_bool(out, "preserve_ordering", config->preserve_ordering);
    }
    end(out, '}');
}

static void add_sequences(struct buf *out, const struct model_config *config) {
    const struct model_sequences *sequences = &config->sequences;
    if (sequences->strategy == SEQUENCES_NONE) {
        return;
    }
    begin(out, "sequence_batching", '{');
    add_strategy(out, config);
    add_u64(out, "max_sequence_idle_microseconds", sequences->idle_us);
    begin(out, "control_input", '[');
    for (size_t i = 0; i < sequences->n_controls; i++) {
        add_control(out, &sequences->controls[i]);
    }
    end(out, ']');
    add_empty(out, "state", "[]");
    add_bool(out, "iterative_sequence", false);
    end(out, '}');
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void add_transaction_policy(struct buf *out, const struct model_config *config) {
    begin(out, "model_transaction_policy", '{');
    add_bool(out, "decoupled", config->decoupled);
    end(out, '}');
}

static void add_response_cache(struct buf *out, const struct model_config *config) {
    if (config->response_cache) {
        begin(out, "response_cache", '{');
        add_bool(out, "enable", true);
        end(out, '}');
    }
}

static void add_parameters(struct buf *out, const struct model_config *config) {
    begin(out, "parameters", '{');
    for (size_t i = 0; i < config->n_params; i++) {
        begin(out, config->params[i].name.ptr, '{');
        add_text(out, "string_value", config->params[i].value);
        end(out, '}');
    }
    end(out, '}');
}

/* ---- warm-up --------------------------------------------------------------------------------- */

static void add_warmup_input(struct buf *out, const struct model_warmup_input *input) {
    begin(out, input->name.ptr, '{');
    add_datatype(out, input->datatype);
    add_i64s(out, "dims", input->dims.dims, input->dims.rank);
    switch (input->data) {
    case WARMUP_ZERO:
        add_bool(out, "zero_data", true);
        break;
    case WARMUP_RANDOM:
        add_bool(out, "random_data", true);
        break;
    case WARMUP_FILE:
        add_text(out, "input_data_file", input->filename);
        break;
    }
    end(out, '}');
}

static void add_warmups(struct buf *out, const struct model_config *config) {
    begin(out, "model_warmup", '[');
    for (size_t i = 0; i < config->n_warmups; i++) {
        const struct model_warmup *sample = &config->warmups[i];
        begin_element(out);
        add_text(out, "name", sample->name);
        add_u64(out, "batch_size", sample->batch_size);
        begin(out, "inputs", '{');
        for (size_t j = 0; j < sample->n_inputs; j++) {
            add_warmup_input(out, &sample->inputs[j]);
        }
        end(out, '}');
        add_u64(out, "count", sample->count);
        end(out, '}');
    }
    end(out, ']');
}

/* ---- all of it ------------------------------------------------------------------------------- */

void config_json_print(struct buf *out, const struct model_config *config) {
    buf_add_char(out, '{');
    add_text(out, "name", config->name);
    add_text(out, "platform", config->platform);
    add_text(out, "backend", config->backend);
    add_text(out, "runtime", STR(""));
    add_policy(out, config);
    add_u64(out, "max_batch_size", config->max_batch_size);
    add_tensors(out, "input", config->inputs, config->n_inputs, add_input);
    add_tensors(out, "output", config->outputs, config->n_outputs, add_output);
    add_empty(out, "batch_input", "[]");
    add_empty(out, "batch_output", "[]");
    add_transaction_policy(out, config);
    add_batching(out, config);
    add_sequences(out, config);
    add_instances(out, config);
    add_text(out, "default_model_filename", config->default_filename);
    add_empty(out, "cc_model_filenames", "{}");
    add_empty(out, "metric_tags", "{}");
    add_parameters(out, config);
    add_warmups(out, config);
    add_response_cache(out, config);
    buf_add_char(out, '}');
}
