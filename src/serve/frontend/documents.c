/* Field numbers are those of proto/; zeros are omitted, as in proto3. */
#include "serve/frontend/documents.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/protobuf/pb.h"
#include "core/base/num.h"
#include "serve/config/config.h"
#include "serve/scheduler/statistics/statistics.h"

/* The field of a response that holds the ModelIndex, ModelStatistics or ModelConfig. */
enum { DOCUMENT = 1 };

/* ---- metadata -------------------------------------------------------------------------------- */

/* Over every protocol. */
static const char *const EXTENSIONS[] = {"classification",
                                         "model_repository",
                                         "model_repository(unload_dependents)",
                                         "model_configuration",
                                         "binary_tensor_data",
                                         "parameters",
                                         "statistics",
                                         "logging",
                                         "trace",
                                         "system_shared_memory",
                                         "sequence",
                                         "schedule_policy",
                                         NULL};

void document_encode_server(const char *name, const char *version, struct buf *out) {
    v2_grpc_server_metadata_encode(out, name, version, EXTENSIONS);
}

enum status document_encode_metadata(struct repository *repository, struct str model,
                                     struct str version, struct buf *out, struct error *err) {
    struct model_version *found;
    enum status st = repository_find(repository, model, version, &found, err);
    if (st != ST_OK) {
        return st;
    }
    const struct model_spec *spec = model_version_spec(found);
    size_t n = 1;
    const uint64_t *versions = &spec->version;
    if (!version.ptr) {
        versions = model_version_siblings(found, &n);
    }
    v2_grpc_model_metadata_encode(out, spec, versions, n);
    model_version_unref(found);
    return ST_OK;
}

/* ---- index ----------------------------------------------------------------------------------- */

/* The state names of the extension; "" for a version that was never loaded. */
static const char *const STATES[REPOSITORY_PHASES] = {
    [REPOSITORY_LOADING] = "LOADING",      [REPOSITORY_READY] = "READY",
    [REPOSITORY_FAILED] = "UNAVAILABLE",   [REPOSITORY_UNLOADING] = "UNLOADING",
    [REPOSITORY_UNLOADED] = "UNAVAILABLE", [REPOSITORY_UNTOUCHED] = "",
};

struct index {
    struct buf *out;
    bool ready;
};

/* ModelIndex */
enum { INDEX_NAME = 1, INDEX_VERSION = 2, INDEX_STATE = 3, INDEX_REASON = 4 };

static void add_entry(void *user, const struct repository_entry *entry) {
    struct index *index = user;
    char number[20];
    /* A model that was loaded with files of a request, or whose files were removed, is in no
     * directory while it is served. */
    bool known =
        entry->listed || entry->phase == REPOSITORY_READY || entry->phase == REPOSITORY_LOADING;
    if (!known || entry->replaced || (index->ready && entry->phase != REPOSITORY_READY)) {
        return;
    }
    size_t begun = pb_begin(index->out, DOCUMENT);
    size_t len = entry->number > 0 ? num_print_u64(number, entry->number) : 0;
    pb_add_string(index->out, INDEX_NAME, entry->model);
    pb_add_string(index->out, INDEX_VERSION, str_make(number, len));
    pb_add_string(index->out, INDEX_STATE, str_of(STATES[entry->phase]));
    pb_add_string(index->out, INDEX_REASON,
                  str_of(entry->phase == REPOSITORY_UNLOADED ? "unloaded" : entry->reason));
    pb_end(index->out, begun);
}

void document_encode_index(struct repository *repository, bool ready, struct buf *out) {
    struct index index = {.out = out, .ready = ready};
    repository_visit(repository, add_entry, &index);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* ModelStatistics */
enum {
    MODEL_NAME = 1,
    MODEL_VERSION = 2,
    MODEL_LAST_INFERENCE = 3,
    MODEL_INFERENCE_COUNT = 4,
    MODEL_EXECUTION_COUNT = 5,
    MODEL_INFERENCE_STATS = 6,
    MODEL_BATCH_STATS = 7,
    MODEL_RESPONSE_STATS = 9,
};

/* InferStatistics */
enum {
    SUCCESS = 1,
    FAIL = 2,
    QUEUE = 3,
    COMPUTE_INPUT = 4,
    COMPUTE_INFER = 5,
    COMPUTE_OUTPUT = 6,
    CACHE_HIT = 7,
    CACHE_MISS = 8,
};

/* InferBatchStatistics */
enum { BATCH_SIZE = 1, BATCH_INPUT = 2, BATCH_INFER = 3, BATCH_OUTPUT = 4 };

/* InferResponseStatistics */
enum {
    RESPONSE_INFER = 1,
    RESPONSE_OUTPUT = 2,
    RESPONSE_SUCCEEDED = 3,
    RESPONSE_FAILED = 4,
    RESPONSE_WAS_EMPTY = 5,
    RESPONSE_CANCELLED = 6,
};

/* A map entry */
enum { MAP_KEY = 1, MAP_VALUE = 2 };

/* StatisticDuration */
enum { COUNT = 1, NS = 2 };

static void add_time(struct buf *out, uint32_t field, uint64_t count, uint64_t ns) {
    size_t at = pb_begin(out, field);
    pb_add_number(out, COUNT, count);
    pb_add_number(out, NS, ns);
    pb_end(out, at);
}

static void add_requests(struct buf *out, const struct model_statistics *statistics) {
    uint64_t n_computed = statistics->n_computed;
    size_t at = pb_begin(out, MODEL_INFERENCE_STATS);
    add_time(out, SUCCESS, statistics->success.count, statistics->success.ns);
    add_time(out, FAIL, statistics->fail.count, statistics->fail.ns);
    add_time(out, QUEUE, statistics->queue.count, statistics->queue.ns);
    add_time(out, COMPUTE_INPUT, n_computed, statistics->compute.input_ns);
    add_time(out, COMPUTE_INFER, n_computed, statistics->compute.infer_ns);
    add_time(out, COMPUTE_OUTPUT, n_computed, statistics->compute.output_ns);
    add_time(out, CACHE_HIT, statistics->cache_hit.count, statistics->cache_hit.ns);
    add_time(out, CACHE_MISS, statistics->cache_miss.count, statistics->cache_miss.ns);
    pb_end(out, at);
}

static void add_batches(struct buf *out, struct model_version *version) {
    struct statistics_batch *batches;
    size_t n = model_version_batches(version, out->arena, &batches);
    for (size_t i = 0; i < n; i++) {
        const struct statistics_batch *batch = &batches[i];
        size_t at = pb_begin(out, MODEL_BATCH_STATS);
        pb_add_number(out, BATCH_SIZE, batch->size);
        add_time(out, BATCH_INPUT, batch->count, batch->compute.input_ns);
        add_time(out, BATCH_INFER, batch->count, batch->compute.infer_ns);
        add_time(out, BATCH_OUTPUT, batch->count, batch->compute.output_ns);
        pb_end(out, at);
    }
}

static void add_responses(struct buf *out, struct model_version *version) {
    struct statistics_response *responses;
    size_t n = model_version_responses(version, out->arena, &responses);
    for (size_t i = 0; i < n; i++) {
        char place[24];
        size_t at = pb_begin(out, MODEL_RESPONSE_STATS);
        snprintf(place, sizeof(place), "%zu", i);
        pb_add_string(out, MAP_KEY, str_of(place));
        size_t value = pb_begin(out, MAP_VALUE);
        const struct statistics_response *response = &responses[i];
        add_time(out, RESPONSE_INFER, response->infer.count, response->infer.ns);
        add_time(out, RESPONSE_OUTPUT, response->output.count, response->output.ns);
        add_time(out, RESPONSE_SUCCEEDED, response->success.count, response->success.ns);
        add_time(out, RESPONSE_FAILED, response->fail.count, response->fail.ns);
        add_time(out, RESPONSE_WAS_EMPTY, response->empty.count, response->empty.ns);
        add_time(out, RESPONSE_CANCELLED, response->cancel.count, response->cancel.ns);
        pb_end(out, value);
        pb_end(out, at);
    }
}

static void add_version(void *user, struct model_version *version) {
    struct buf *out = user;
    const struct model_spec *spec = model_version_spec(version);
    struct model_statistics statistics;
    model_version_statistics(version, &statistics);
    size_t at = pb_begin(out, DOCUMENT);
    pb_add_string(out, MODEL_NAME, spec->name);
    pb_add_string(out, MODEL_VERSION, spec->version_text);
    pb_add_number(out, MODEL_LAST_INFERENCE, statistics.last_inference_ms);
    pb_add_number(out, MODEL_INFERENCE_COUNT, statistics.n_inferences);
    pb_add_number(out, MODEL_EXECUTION_COUNT, statistics.n_executions);
    add_requests(out, &statistics);
    add_batches(out, version);
    add_responses(out, version);
    pb_end(out, at);
}

enum status document_encode_statistics(struct repository *repository, struct str model,
                                       struct str version, struct buf *out, struct error *err) {
    enum status st = repository_visit_ready(repository, model, version, add_version, out, err);
    if (st == ST_OK) {
        return ST_OK;
    }
    error_prefix(err, "requested model version is not available for model"); /* as the reference */
    return err->status = ST_BAD_REQUEST;
}

void document_encode_all_statistics(struct repository *repository, struct buf *out) {
    struct error err;
    enum status st = repository_visit_ready(repository, str_make(NULL, 0), str_make(NULL, 0),
                                            add_version, out, &err);
    assert(st == ST_OK); /* no model is named */
    (void)st;
}

/* ---- configuration --------------------------------------------------------------------------- */

/* ModelConfig. Fields that Sluice does not use are absent. */
enum {
    CONFIG_NAME = 1,
    CONFIG_PLATFORM = 2,
    CONFIG_VERSION_POLICY = 3,
    CONFIG_MAX_BATCH_SIZE = 4,
    CONFIG_INPUT = 5,
    CONFIG_OUTPUT = 6,
    CONFIG_INSTANCE_GROUP = 7,
    CONFIG_DEFAULT_MODEL_FILENAME = 8,
    CONFIG_DYNAMIC_BATCHING = 11,
    CONFIG_OPTIMIZATION = 12,
    CONFIG_SEQUENCE_BATCHING = 13,
    CONFIG_PARAMETERS = 14,
    CONFIG_ENSEMBLE_SCHEDULING = 15,
    CONFIG_MODEL_WARMUP = 16,
    CONFIG_BACKEND = 17,
    CONFIG_MODEL_OPERATIONS = 18,
    CONFIG_TRANSACTION_POLICY = 19,
    CONFIG_BATCH_INPUT = 20,
    CONFIG_BATCH_OUTPUT = 21,
    CONFIG_REPOSITORY_AGENTS = 23,
    CONFIG_RESPONSE_CACHE = 24,
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
    size_t input = pb_begin(out, CONFIG_INPUT);
    pb_add_string(out, 1, tensor->name);
    pb_add_number(out, 2, data_type(tensor->datatype));
    pb_add_number(out, 3, tensor->format);
    add_shape(out, 4, tensor->dims);
    add_reshape(out, 5, tensor);
    pb_add_number(out, 7, tensor->ragged);
    pb_add_number(out, 8, tensor->optional);
    pb_end(out, input);
}

static void add_output(struct buf *out, const struct model_config_tensor *tensor) {
    size_t output = pb_begin(out, CONFIG_OUTPUT);
    pb_add_string(out, 1, tensor->name);
    pb_add_number(out, 2, data_type(tensor->datatype));
    add_shape(out, 3, tensor->dims);
    pb_add_string(out, 4, tensor->label_filename);
    add_reshape(out, 5, tensor);
    pb_end(out, output);
}

static void add_batch_input(struct buf *out, const struct model_batch_input *batch_input) {
    static const uint8_t kinds[] = {
        [BATCH_ELEMENT_COUNT] = 0,
        [BATCH_ACCUMULATED_ELEMENT_COUNT] = 1,
        [BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO] = 2,
        [BATCH_MAX_ELEMENT_COUNT_AS_SHAPE] = 3,
        [BATCH_ITEM_SHAPE] = 4,
        [BATCH_ITEM_SHAPE_FLATTEN] = 5,
    };
    size_t at = pb_begin(out, CONFIG_BATCH_INPUT);
    pb_add_number(out, 1, kinds[batch_input->kind]);
    for (size_t i = 0; i < batch_input->n_targets; i++) {
        pb_add_string(out, 2, batch_input->targets[i]);
    }
    pb_add_number(out, 3, data_type(batch_input->datatype));
    pb_add_string(out, 4, batch_input->source);
    pb_end(out, at);
}

/* The only kind is 0, the default. */
static void add_batch_output(struct buf *out, const struct model_batch_output *batch_output) {
    size_t at = pb_begin(out, CONFIG_BATCH_OUTPUT);
    for (size_t i = 0; i < batch_output->n_targets; i++) {
        pb_add_string(out, 1, batch_output->targets[i]);
    }
    pb_add_string(out, 3, batch_output->source);
    pb_end(out, at);
}

static void add_policy(struct buf *out, const struct model_config *config) {
    size_t policy = pb_begin(out, CONFIG_VERSION_POLICY);
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
    size_t batching = pb_begin(out, CONFIG_DYNAMIC_BATCHING);
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

/* ---- configuration: sequences ---------------------------------------------------------------- */

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

static void add_state(struct buf *out, const struct model_state *state) {
    size_t item = pb_begin(out, 5);
    pb_add_string(out, 1, state->input_name);
    pb_add_string(out, 2, state->output_name);
    pb_add_number(out, 3, data_type(state->datatype));
    add_shape(out, 4, state->dims);
    if (state->has_initial) {
        bool is_file = state->initial_file.len > 0;
        size_t initial = pb_begin(out, 5);
        pb_add_number(out, 1, data_type(state->datatype));
        add_shape(out, 2, state->initial_dims);
        pb_add_number(out, 3, !is_file);
        pb_add_string(out, 4, state->initial_file);
        pb_add_string(out, 5, state->initial_name);
        pb_end(out, initial);
    }
    pb_add_number(out, 6, state->same_buffer);
    pb_add_number(out, 7, state->growable);
    pb_end(out, item);
}

static void add_sequences(struct buf *out, const struct model_config *config) {
    const struct model_sequences *sequences = &config->sequences;
    if (sequences->strategy == SEQUENCES_NONE) {
        return;
    }
    size_t batching = pb_begin(out, CONFIG_SEQUENCE_BATCHING);
    pb_add_number(out, 1, sequences->idle_us);
    for (size_t i = 0; i < sequences->n_controls; i++) {
        add_control(out, &sequences->controls[i]);
    }
    if (sequences->strategy == SEQUENCES_DIRECT) {
        add_direct(out, config);
    } else {
        add_oldest(out, config);
    }
    for (size_t i = 0; i < sequences->n_states; i++) {
        add_state(out, &sequences->states[i]);
    }
    pb_add_number(out, 6, sequences->iterative);
    pb_end(out, batching);
}

/* ---- configuration: other fields ------------------------------------------------------------- */

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
        size_t warmup = pb_begin(out, CONFIG_MODEL_WARMUP);
        pb_add_string(out, 1, sample->name);
        pb_add_number(out, 2, sample->batch_size);
        for (size_t j = 0; j < sample->n_inputs; j++) {
            add_warmup_input(out, &sample->inputs[j]);
        }
        pb_add_number(out, 4, sample->count);
        pb_end(out, warmup);
    }
}

static void add_optimization(struct buf *out, const struct model_config *config) {
    if (config->graph_level != 0) {
        size_t optimization = pb_begin(out, CONFIG_OPTIMIZATION);
        size_t graph = pb_begin(out, 1);
        pb_add_varint(out, 1, (uint64_t)config->graph_level);
        pb_end(out, graph);
        pb_end(out, optimization);
    }
}

static void add_operations(struct buf *out, const struct model_config *config) {
    if (config->n_libraries > 0) {
        size_t operations = pb_begin(out, CONFIG_MODEL_OPERATIONS);
        for (size_t i = 0; i < config->n_libraries; i++) {
            pb_add_string(out, 1, config->libraries[i].filename);
        }
        pb_end(out, operations);
    }
}

/* All checksums as of one agent. */
static void add_agents(struct buf *out, const struct model_config *config) {
    if (config->n_checksums == 0) {
        return;
    }
    size_t agents = pb_begin(out, CONFIG_REPOSITORY_AGENTS), agent = pb_begin(out, 1);
    pb_add_string(out, 1, STR("checksum"));
    for (size_t i = 0; i < config->n_checksums; i++) {
        const struct model_config_checksum *checksum = &config->checksums[i];
        size_t entry = pb_begin(out, 2);
        size_t key = pb_begin(out, 1);
        buf_add_str(out, STR("MD5:"));
        buf_add_str(out, checksum->filename);
        pb_end(out, key);
        pb_add_string(out, 2, checksum->md5);
        pb_end(out, entry);
    }
    pb_end(out, agent);
    pb_end(out, agents);
}

/* ---- configuration: ensembles ---------------------------------------------------------------- */

static void add_map(struct buf *out, uint32_t number, const struct model_ensemble *ensemble,
                    const struct ensemble_map *map, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t entry = pb_begin(out, number);
        pb_add_string(out, MAP_KEY, map[i].name);
        pb_add_string(out, MAP_VALUE, ensemble->tensors[map[i].tensor].name);
        pb_end(out, entry);
    }
}

static void add_ensemble(struct buf *out, const struct model_ensemble *ensemble) {
    size_t scheduling = pb_begin(out, CONFIG_ENSEMBLE_SCHEDULING);
    for (size_t i = 0; i < ensemble->n_steps; i++) {
        const struct ensemble_step *step = &ensemble->steps[i];
        uint64_t version = 0;
        bool pinned = step->version.ptr && num_parse_u64(step->version, &version);
        size_t at = pb_begin(out, 1);
        pb_add_string(out, 1, step->model);
        pb_add_varint(out, 2, pinned ? version : UINT64_MAX /* -1 */);
        add_map(out, 3, ensemble, step->inputs, step->n_inputs);
        add_map(out, 4, ensemble, step->outputs, step->n_outputs);
        pb_end(out, at);
    }
    pb_add_number(out, 2, ensemble->max_inflight_requests);
    pb_end(out, scheduling);
}

/* ---- configuration: the whole ---------------------------------------------------------------- */

/* `number`: of the group; one without a name has that of the model with it. */
static void add_instance_group(struct buf *out, const struct model_config *config, size_t number,
                               const struct model_instance_group *group) {
    size_t whole = pb_begin(out, CONFIG_INSTANCE_GROUP);
    if (group->name.len > 0) {
        pb_add_string(out, 1, group->name);
    } else {
        size_t name = pb_begin(out, 1);
        buf_printf(out, "%.*s_%zu", STR_ARG(config->name), number);
        pb_end(out, name);
    }
    pb_add_number(out, 2, group->count);
    pb_add_number(out, 4, KIND_CPU);
    pb_add_string(out, 9, group->names_policy ? group->host_policy : STR(""));
    pb_end(out, whole);
}

static void add_instances(struct buf *out, const struct model_config *config) {
    const struct model_instance_group all = {.count = config->instance_count};
    for (size_t i = 0; i < config->n_groups; i++) {
        add_instance_group(out, config, i, &config->groups[i]);
    }
    if (config->n_groups == 0) {
        add_instance_group(out, config, 0, &all);
    }
}

static void add_config(struct buf *out, const struct model_config *config) {
    bool is_ensemble = config->ensemble.n_steps > 0;
    size_t whole = pb_begin(out, DOCUMENT);
    pb_add_string(out, CONFIG_NAME, config->name);
    if (is_ensemble || !str_eq(config->platform, config->backend)) { /* as Triton */
        pb_add_string(out, CONFIG_PLATFORM, config->platform);
    }
    add_policy(out, config);
    pb_add_number(out, CONFIG_MAX_BATCH_SIZE, config->max_batch_size);
    for (size_t i = 0; i < config->n_inputs; i++) {
        add_input(out, &config->inputs[i]);
    }
    for (size_t i = 0; i < config->n_outputs; i++) {
        add_output(out, &config->outputs[i]);
    }
    for (size_t i = 0; i < config->n_batch_inputs; i++) {
        add_batch_input(out, &config->batch_inputs[i]);
    }
    for (size_t i = 0; i < config->n_batch_outputs; i++) {
        add_batch_output(out, &config->batch_outputs[i]);
    }
    if (is_ensemble) {
        add_ensemble(out, &config->ensemble);
    } else {
        add_instances(out, config);
    }
    pb_add_string(out, CONFIG_DEFAULT_MODEL_FILENAME, config->default_filename);
    add_batching(out, config);
    add_optimization(out, config);
    add_sequences(out, config);
    for (size_t i = 0; i < config->n_params; i++) {
        size_t entry = pb_begin(out, CONFIG_PARAMETERS);
        pb_add_string(out, 1, config->params[i].name);
        size_t value = pb_begin(out, 2);
        pb_add_string(out, 1, config->params[i].value);
        pb_end(out, value);
        pb_end(out, entry);
    }
    add_warmups(out, config);
    pb_add_string(out, CONFIG_BACKEND, is_ensemble ? STR("") : config->backend);
    add_operations(out, config);
    size_t policy = pb_begin(out, CONFIG_TRANSACTION_POLICY);
    pb_add_number(out, 1, config->decoupled);
    pb_end(out, policy);
    add_agents(out, config);
    if (config->response_cache) {
        size_t cache = pb_begin(out, CONFIG_RESPONSE_CACHE);
        pb_add_number(out, 1, true);
        pb_end(out, cache);
    }
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

enum { CONFIG_JSON_MAX = 1 << 26, CONFIG_BYTES = 1024 /* of one, about */ };

enum status document_print_config(struct arena *arena, const struct model_config *config,
                                  struct str *out, struct error *err) {
    struct buf message;
    buf_init(&message, arena, CONFIG_BYTES);
    add_config(&message, config);
    if (message.failed) {
        return error_no_memory(err, "the model's configuration");
    }
    return v2_grpc_document_print(arena, V2_GRPC_CONFIG, str_make(message.data, message.len),
                                  CONFIG_JSON_MAX, out, err);
}
