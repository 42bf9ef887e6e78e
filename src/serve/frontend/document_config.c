/* ModelConfig, field by field. Fields that Sluice does not use are absent. */
#include "serve/frontend/documents.h"

#include <string.h>

#include "codec/protobuf/pb.h"
#include "serve/config/config.h"

/* proto/model_config.proto */
enum {
    CONFIG = 1, /* of ModelConfigResponse */
    NAME = 1,
    PLATFORM = 2,
    VERSION_POLICY = 3,
    MAX_BATCH_SIZE = 4,
    INPUT = 5,
    OUTPUT = 6,
    INSTANCE_GROUP = 7,
    DEFAULT_MODEL_FILENAME = 8,
    DYNAMIC_BATCHING = 11,
    SEQUENCE_BATCHING = 13,
    PARAMETERS = 14,
    MODEL_WARMUP = 16,
    BACKEND = 17,
    TRANSACTION_POLICY = 19,
    RESPONSE_CACHE = 24,
};

enum { KIND_CPU = 2 };

/* The number in the enum DataType. */
static uint64_t data_type(enum datatype datatype) {
    static const uint8_t numbers[DT_COUNT_] = {
        [DT_BOOL] = 1,  [DT_UINT8] = 2, [DT_UINT16] = 3, [DT_UINT32] = 4, [DT_UINT64] = 5,
        [DT_INT8] = 6,  [DT_INT16] = 7, [DT_INT32] = 8,  [DT_INT64] = 9,  [DT_FP16] = 10,
        [DT_FP32] = 11, [DT_FP64] = 12, [DT_BYTES] = 13, [DT_BF16] = 14,
    };
    return numbers[datatype];
}

static void add_shape(struct buf *out, uint32_t number, struct shape shape) {
    pb_add_packed_i64(out, number, shape.dims, shape.rank);
}

static void add_reshape(struct buf *out, uint32_t number,
                        const struct model_config_tensor *tensor) {
    if (tensor->has_reshape) {
        size_t reshape = pb_begin(out, number);
        add_shape(out, 1, tensor->reshape);
        pb_end(out, reshape);
    }
}

static void add_input(struct buf *out, const struct model_config_tensor *tensor) {
    size_t input = pb_begin(out, INPUT);
    pb_add_string(out, 1, tensor->name);
    pb_add_number(out, 2, data_type(tensor->datatype));
    add_shape(out, 4, tensor->dims);
    add_reshape(out, 5, tensor);
    pb_add_number(out, 8, tensor->optional);
    pb_end(out, input);
}

static void add_output(struct buf *out, const struct model_config_tensor *tensor) {
    size_t output = pb_begin(out, OUTPUT);
    pb_add_string(out, 1, tensor->name);
    pb_add_number(out, 2, data_type(tensor->datatype));
    add_shape(out, 3, tensor->dims);
    pb_add_string(out, 4, tensor->label_filename);
    add_reshape(out, 5, tensor);
    pb_end(out, output);
}

static void add_policy(struct buf *out, const struct model_config *config) {
    size_t policy = pb_begin(out, VERSION_POLICY);
    size_t choice = 0;
    switch (config->policy) {
    case VERSIONS_LATEST:
        choice = pb_begin(out, 1);
        pb_add_number(out, 1, config->latest_count);
        break;
    case VERSIONS_ALL:
        choice = pb_begin(out, 2);
        break;
    case VERSIONS_SPECIFIC:
        choice = pb_begin(out, 3);
        pb_add_packed_i64(out, 1, (const int64_t *)config->specific, config->n_specific);
        break;
    }
    pb_end(out, choice);
    pb_end(out, policy);
}

static void add_instances(struct buf *out, const struct model_config *config) {
    size_t group = pb_begin(out, INSTANCE_GROUP);
    pb_add_string(out, 1, config->name);
    pb_add_number(out, 2, config->instance_count);
    pb_add_number(out, 4, KIND_CPU);
    pb_end(out, group);
}

static void add_queue_policy(struct buf *out, uint32_t number,
                             const struct model_queue_policy *policy) {
    size_t queue = pb_begin(out, number);
    pb_add_number(out, 1, policy->delay_on_timeout);
    pb_add_number(out, 2, policy->timeout_us);
    pb_add_number(out, 3, policy->allow_override);
    pb_add_number(out, 4, policy->max_size);
    pb_end(out, queue);
}

static void add_batching(struct buf *out, const struct model_config *config) {
    if (!config->has_dynamic_batching) {
        return;
    }
    size_t batching = pb_begin(out, DYNAMIC_BATCHING);
    pb_add_packed_i64(out, 1, (const int64_t *)config->preferred_batch_sizes, config->n_preferred);
    pb_add_number(out, 2, config->max_queue_delay_us);
    pb_add_number(out, 3, config->preserve_ordering);
    pb_add_number(out, 4, config->priority_levels);
    pb_add_number(out, 5, config->default_priority);
    add_queue_policy(out, 6, &config->queue);
    for (size_t i = 0; i < config->n_levels; i++) {
        size_t entry = pb_begin(out, 7);
        pb_add_varint(out, 1, config->levels[i].level);
        add_queue_policy(out, 2, &config->levels[i].policy);
        pb_end(out, entry);
    }
    pb_end(out, batching);
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void add_values(struct buf *out, const struct model_control *control) {
    int64_t wholes[2];
    for (size_t i = 0; i < 2; i++) {
        int32_t whole;
        memcpy(&whole, control->values[i], sizeof(whole));
        wholes[i] = control->datatype == DT_BOOL ? control->values[i][0] : whole;
    }
    if (control->datatype == DT_FP32) {
        struct str packed = {(const char *)control->values, sizeof(control->values)};
        pb_add_bytes(out, 3, packed);
    } else {
        pb_add_packed_i64(out, control->datatype == DT_INT32 ? 2 : 5, wholes, 2);
    }
}

static void add_control(struct buf *out, const struct model_control *control) {
    static const uint8_t kinds[] = {
        [CONTROL_START] = 0, [CONTROL_READY] = 1, [CONTROL_END] = 2, [CONTROL_CORRID] = 3};
    size_t input = pb_begin(out, 2);
    pb_add_string(out, 1, control->name);
    size_t inner = pb_begin(out, 2);
    pb_add_number(out, 1, kinds[control->kind]);
    if (control->kind == CONTROL_CORRID) {
        pb_add_number(out, 4, data_type(control->datatype));
    } else {
        add_values(out, control);
    }
    pb_end(out, inner);
    pb_end(out, input);
}

static void add_direct(struct buf *out, const struct model_config *config) {
    size_t direct = pb_begin(out, 3);
    float share = (float)config->sequences.min_utilization;
    uint32_t bits;
    memcpy(&bits, &share, sizeof(bits));
    pb_add_number(out, 1, config->max_queue_delay_us);
    if (share > 0) {
        pb_add_fixed32(out, 2, bits);
    }
    pb_end(out, direct);
}

static void add_oldest(struct buf *out, const struct model_config *config) {
    size_t oldest = pb_begin(out, 4);
    pb_add_number(out, 1, config->sequences.max_candidates);
    pb_add_packed_i64(out, 2, (const int64_t *)config->preferred_batch_sizes, config->n_preferred);
    pb_add_number(out, 3, config->max_queue_delay_us);
    pb_add_number(out, 4, config->preserve_ordering);
    pb_end(out, oldest);
}

static void add_sequences(struct buf *out, const struct model_config *config) {
    const struct model_sequences *sequences = &config->sequences;
    if (sequences->strategy == SEQUENCES_NONE) {
        return;
    }
    size_t batching = pb_begin(out, SEQUENCE_BATCHING);
    pb_add_number(out, 1, sequences->idle_us);
    for (size_t i = 0; i < sequences->n_controls; i++) {
        add_control(out, &sequences->controls[i]);
    }
    if (sequences->strategy == SEQUENCES_DIRECT) {
        add_direct(out, config);
    } else {
        add_oldest(out, config);
    }
    pb_end(out, batching);
}

/* ---- other fields ---------------------------------------------------------------------------- */

static void add_transaction_policy(struct buf *out, const struct model_config *config) {
    size_t policy = pb_begin(out, TRANSACTION_POLICY);
    pb_add_number(out, 1, config->decoupled);
    pb_end(out, policy);
}

static void add_response_cache(struct buf *out, const struct model_config *config) {
    if (config->response_cache) {
        size_t cache = pb_begin(out, RESPONSE_CACHE);
        pb_add_number(out, 1, true);
        pb_end(out, cache);
    }
}

static void add_parameters(struct buf *out, const struct model_config *config) {
    for (size_t i = 0; i < config->n_params; i++) {
        size_t entry = pb_begin(out, PARAMETERS);
        pb_add_string(out, 1, config->params[i].name);
        size_t value = pb_begin(out, 2);
        pb_add_string(out, 1, config->params[i].value);
        pb_end(out, value);
        pb_end(out, entry);
    }
}

static void add_warmup_input(struct buf *out, const struct model_warmup_input *input) {
    size_t entry = pb_begin(out, 3);
    pb_add_string(out, 1, input->name);
    size_t value = pb_begin(out, 2);
    pb_add_number(out, 1, data_type(input->datatype));
    add_shape(out, 2, input->dims);
    pb_add_number(out, 3, input->data == WARMUP_ZERO);
    pb_add_number(out, 4, input->data == WARMUP_RANDOM);
    pb_add_string(out, 5, input->filename);
    pb_end(out, value);
    pb_end(out, entry);
}

static void add_warmups(struct buf *out, const struct model_config *config) {
    for (size_t i = 0; i < config->n_warmups; i++) {
        const struct model_warmup *sample = &config->warmups[i];
        size_t warmup = pb_begin(out, MODEL_WARMUP);
        pb_add_string(out, 1, sample->name);
        pb_add_number(out, 2, sample->batch_size);
        for (size_t j = 0; j < sample->n_inputs; j++) {
            add_warmup_input(out, &sample->inputs[j]);
        }
        pb_add_number(out, 4, sample->count);
        pb_end(out, warmup);
    }
}

static void add_config(struct buf *out, const struct model_config *config) {
    size_t whole = pb_begin(out, CONFIG);
    pb_add_string(out, NAME, config->name);
    pb_add_string(out, PLATFORM, config->platform);
    add_policy(out, config);
    pb_add_number(out, MAX_BATCH_SIZE, config->max_batch_size);
    for (size_t i = 0; i < config->n_inputs; i++) {
        add_input(out, &config->inputs[i]);
    }
    for (size_t i = 0; i < config->n_outputs; i++) {
        add_output(out, &config->outputs[i]);
    }
    add_instances(out, config);
    pb_add_string(out, DEFAULT_MODEL_FILENAME, config->default_filename);
    add_batching(out, config);
    add_sequences(out, config);
    add_parameters(out, config);
    add_warmups(out, config);
    pb_add_string(out, BACKEND, config->backend);
    add_transaction_policy(out, config);
    add_response_cache(out, config);
    pb_end(out, whole);
}

enum status document_encode_config(struct repository *repository, struct str model,
                                   struct str version, struct buf *out, struct error *err) {
    struct model_version *found;
    enum status st = repository_find(repository, model, version, &found, err);
    if (st == ST_OK) {
        add_config(out, model_version_config(found));
        model_version_unref(found);
    }
    return st;
}
