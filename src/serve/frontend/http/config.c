/* ModelConfig as JSON, field by field, in the order in which the reference server prints them.
 * Fields that Sluice does not use have their defaults. */
#include "serve/frontend/http/routes.h"

#include <stdio.h>
#include <string.h>

#include "core/base/json_writer.h"

/* ---- writing --------------------------------------------------------------------------------- */

/* Begins a member whose name comes from a configuration. */
static void begin_named(struct json_writer *json, struct str name) {
    json_write_key_str(json, name);
    json_write_open(json, JSON_ELEMENT, '{');
}

/* `brackets`: "{}" or "[]". */
static void add_empty(struct json_writer *json, const char *name, const char *brackets) {
    json_write_open(json, name, brackets[0]);
    json_write_close(json, brackets[1]);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void add_datatype(struct json_writer *json, enum datatype datatype) {
    char text[32];
    snprintf(text, sizeof(text), "TYPE_%s",
             datatype == DT_BYTES ? "STRING" : datatype_name(datatype));
    json_write_string(json, "data_type", str_of(text));
}

static void add_reshape(struct json_writer *json, const struct model_config_tensor *tensor) {
    if (tensor->has_reshape) {
        json_write_open(json, "reshape", '{');
        json_write_i64s(json, "shape", tensor->reshape.dims, tensor->reshape.rank);
        json_write_close(json, '}');
    }
}

static void add_input(struct json_writer *json, const struct model_config_tensor *tensor) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", tensor->name);
    add_datatype(json, tensor->datatype);
    json_write_string(json, "format", STR("FORMAT_NONE"));
    json_write_i64s(json, "dims", tensor->dims.dims, tensor->dims.rank);
    add_reshape(json, tensor);
    json_write_bool(json, "is_shape_tensor", false);
    json_write_bool(json, "allow_ragged_batch", false);
    json_write_bool(json, "optional", tensor->optional);
    json_write_bool(json, "is_non_linear_format_io", false);
    json_write_close(json, '}');
}

static void add_output(struct json_writer *json, const struct model_config_tensor *tensor) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", tensor->name);
    add_datatype(json, tensor->datatype);
    json_write_i64s(json, "dims", tensor->dims.dims, tensor->dims.rank);
    add_reshape(json, tensor);
    json_write_string(json, "label_filename", tensor->label_filename);
    json_write_bool(json, "is_shape_tensor", false);
    json_write_bool(json, "is_non_linear_format_io", false);
    json_write_close(json, '}');
}

static void add_tensors(struct json_writer *json, const char *name,
                        const struct model_config_tensor *all, size_t n,
                        void (*add)(struct json_writer *json,
                                    const struct model_config_tensor *tensor)) {
    json_write_open(json, name, '[');
    for (size_t i = 0; i < n; i++) {
        add(json, &all[i]);
    }
    json_write_close(json, ']');
}

/* ---- serving --------------------------------------------------------------------------------- */

static void add_policy(struct json_writer *json, const struct model_config *config) {
    json_write_open(json, "version_policy", '{');
    switch (config->policy) {
    case VERSIONS_LATEST:
        json_write_open(json, "latest", '{');
        json_write_u64(json, "num_versions", config->latest_count);
        break;
    case VERSIONS_ALL:
        json_write_open(json, "all", '{');
        break;
    case VERSIONS_SPECIFIC:
        json_write_open(json, "specific", '{');
        json_write_i64s(json, "versions", (const int64_t *)config->specific, config->n_specific);
        break;
    }
    json_write_close(json, '}');
    json_write_close(json, '}');
}

static void add_instances(struct json_writer *json, const struct model_config *config) {
    json_write_open(json, "instance_group", '[');
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", config->name);
    json_write_string(json, "kind", STR("KIND_CPU"));
    json_write_u64(json, "count", config->instance_count);
    add_empty(json, "gpus", "[]");
    add_empty(json, "secondary_devices", "[]");
    add_empty(json, "profile", "[]");
    json_write_bool(json, "passive", false);
    json_write_string(json, "host_policy", STR(""));
    json_write_close(json, '}');
    json_write_close(json, ']');
}

static void add_queue_policy(struct json_writer *json, const char *name,
                             const struct model_queue_policy *policy) {
    json_write_open(json, name, '{');
    json_write_string(json, "timeout_action",
                      policy->delay_on_timeout ? STR("DELAY") : STR("REJECT"));
    json_write_u64(json, "default_timeout_microseconds", policy->timeout_us);
    json_write_bool(json, "allow_timeout_override", policy->allow_override);
    json_write_u64(json, "max_queue_size", policy->max_size);
    json_write_close(json, '}');
}

static void add_batching(struct json_writer *json, const struct model_config *config) {
    if (!config->has_dynamic_batching) {
        return;
    }
    json_write_open(json, "dynamic_batching", '{');
    json_write_i64s(json, "preferred_batch_size", (const int64_t *)config->preferred_batch_sizes,
                    config->n_preferred);
    json_write_u64(json, "max_queue_delay_microseconds", config->max_queue_delay_us);
    json_write_bool(json, "preserve_ordering", config->preserve_ordering);
    json_write_u64(json, "priority_levels", config->priority_levels);
    json_write_u64(json, "default_priority_level", config->default_priority);
    add_queue_policy(json, "default_queue_policy", &config->queue);
    json_write_open(json, "priority_queue_policy", '{');
    for (size_t i = 0; i < config->n_levels; i++) {
        char level[24];
        snprintf(level, sizeof(level), "%llu", (unsigned long long)config->levels[i].level);
        add_queue_policy(json, level, &config->levels[i].policy);
    }
    json_write_close(json, '}');
    json_write_close(json, '}');
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* Adds the values for false and true under the field of the datatype; the fields of the other
 * datatypes are empty. */
static void add_pair(struct json_writer *json, const char *name, enum datatype datatype,
                     const struct model_control *control) {
    json_write_open(json, name, '[');
    for (size_t i = 0; i < 2 && control->datatype == datatype; i++) {
        int32_t whole;
        float number;
        memcpy(&whole, control->values[i], sizeof(whole));
        memcpy(&number, control->values[i], sizeof(number));
        if (datatype == DT_FP32) {
            json_write_digits(json, JSON_ELEMENT, (double)number, 9);
        } else if (datatype == DT_INT32) {
            json_write_i64(json, JSON_ELEMENT, whole);
        } else {
            json_write_bool(json, JSON_ELEMENT, control->values[i][0] != 0);
        }
    }
    json_write_close(json, ']');
}

static void add_control(struct json_writer *json, const struct model_control *control) {
    static const struct model_control none = {.datatype = DT_INVALID};
    static const char *const kinds[] = {[CONTROL_START] = "CONTROL_SEQUENCE_START",
                                        [CONTROL_READY] = "CONTROL_SEQUENCE_READY",
                                        [CONTROL_END] = "CONTROL_SEQUENCE_END",
                                        [CONTROL_CORRID] = "CONTROL_SEQUENCE_CORRID"};
    bool is_id = control->kind == CONTROL_CORRID;
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", control->name);
    json_write_open(json, "control", '[');
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "kind", str_of(kinds[control->kind]));
    add_pair(json, "int32_false_true", DT_INT32, is_id ? &none : control);
    add_pair(json, "fp32_false_true", DT_FP32, is_id ? &none : control);
    add_pair(json, "bool_false_true", DT_BOOL, is_id ? &none : control);
    if (is_id) {
        add_datatype(json, control->datatype);
    } else {
        json_write_string(json, "data_type", STR("TYPE_INVALID"));
    }
    json_write_close(json, '}');
    json_write_close(json, ']');
    json_write_close(json, '}');
}

static void add_strategy(struct json_writer *json, const struct model_config *config) {
    const struct model_sequences *sequences = &config->sequences;
    if (sequences->strategy == SEQUENCES_DIRECT) {
        json_write_open(json, "direct", '{');
        json_write_u64(json, "max_queue_delay_microseconds", config->max_queue_delay_us);
        json_write_digits(json, "minimum_slot_utilization", sequences->min_utilization, 9);
    } else {
        json_write_open(json, "oldest", '{');
        json_write_u64(json, "max_candidate_sequences", sequences->max_candidates);
        json_write_i64s(json, "preferred_batch_size",
                        (const int64_t *)config->preferred_batch_sizes, config->n_preferred);
        json_write_u64(json, "max_queue_delay_microseconds", config->max_queue_delay_us);
        json_write_bool(json, "preserve_ordering", config->preserve_ordering);
    }
    json_write_close(json, '}');
}

static void add_sequences(struct json_writer *json, const struct model_config *config) {
    const struct model_sequences *sequences = &config->sequences;
    if (sequences->strategy == SEQUENCES_NONE) {
        return;
    }
    json_write_open(json, "sequence_batching", '{');
    add_strategy(json, config);
    json_write_u64(json, "max_sequence_idle_microseconds", sequences->idle_us);
    json_write_open(json, "control_input", '[');
    for (size_t i = 0; i < sequences->n_controls; i++) {
        add_control(json, &sequences->controls[i]);
    }
    json_write_close(json, ']');
    add_empty(json, "state", "[]");
    json_write_bool(json, "iterative_sequence", false);
    json_write_close(json, '}');
}

/* ---- other fields ---------------------------------------------------------------------------- */

static void add_transaction_policy(struct json_writer *json, const struct model_config *config) {
    json_write_open(json, "model_transaction_policy", '{');
    json_write_bool(json, "decoupled", config->decoupled);
    json_write_close(json, '}');
}

static void add_response_cache(struct json_writer *json, const struct model_config *config) {
    if (config->response_cache) {
        json_write_open(json, "response_cache", '{');
        json_write_bool(json, "enable", true);
        json_write_close(json, '}');
    }
}

static void add_parameters(struct json_writer *json, const struct model_config *config) {
    json_write_open(json, "parameters", '{');
    for (size_t i = 0; i < config->n_params; i++) {
        begin_named(json, config->params[i].name);
        json_write_string(json, "string_value", config->params[i].value);
        json_write_close(json, '}');
    }
    json_write_close(json, '}');
}

/* ---- warm-up --------------------------------------------------------------------------------- */

static void add_warmup_input(struct json_writer *json, const struct model_warmup_input *input) {
    begin_named(json, input->name);
    add_datatype(json, input->datatype);
    json_write_i64s(json, "dims", input->dims.dims, input->dims.rank);
    switch (input->data) {
    case WARMUP_ZERO:
        json_write_bool(json, "zero_data", true);
        break;
    case WARMUP_RANDOM:
        json_write_bool(json, "random_data", true);
        break;
    case WARMUP_FILE:
        json_write_string(json, "input_data_file", input->filename);
        break;
    }
    json_write_close(json, '}');
}

static void add_warmups(struct json_writer *json, const struct model_config *config) {
    json_write_open(json, "model_warmup", '[');
    for (size_t i = 0; i < config->n_warmups; i++) {
        const struct model_warmup *sample = &config->warmups[i];
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_string(json, "name", sample->name);
        json_write_u64(json, "batch_size", sample->batch_size);
        json_write_open(json, "inputs", '{');
        for (size_t j = 0; j < sample->n_inputs; j++) {
            add_warmup_input(json, &sample->inputs[j]);
        }
        json_write_close(json, '}');
        json_write_u64(json, "count", sample->count);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

/* ---- the configuration ----------------------------------------------------------------------- */

void config_json_print(struct buf *out, const struct model_config *config) {
    struct json_writer all = {.out = out}, *json = &all;
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", config->name);
    json_write_string(json, "platform", config->platform);
    json_write_string(json, "backend", config->backend);
    json_write_string(json, "runtime", STR(""));
    add_policy(json, config);
    json_write_u64(json, "max_batch_size", config->max_batch_size);
    add_tensors(json, "input", config->inputs, config->n_inputs, add_input);
    add_tensors(json, "output", config->outputs, config->n_outputs, add_output);
    add_empty(json, "batch_input", "[]");
    add_empty(json, "batch_output", "[]");
    add_transaction_policy(json, config);
    add_batching(json, config);
    add_sequences(json, config);
    add_instances(json, config);
    json_write_string(json, "default_model_filename", config->default_filename);
    add_empty(json, "cc_model_filenames", "{}");
    add_empty(json, "metric_tags", "{}");
    add_parameters(json, config);
    add_warmups(json, config);
    add_response_cache(json, config);
    json_write_close(json, '}');
}
