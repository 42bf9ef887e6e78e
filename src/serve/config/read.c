/* Reads config.pbtxt after config_fields_check (field.def) accepted its fields. dynamic_batching
 * and sequence_batching are in read_batching.c. */
#include "serve/config/read.h"

#include "core/base/log.h"
#include "serve/config/field.h"
#include "serve/config/reshape.h"

enum { MAX_BATCH_SIZE = 2147483647 /* an int32 in ModelConfig */ };

enum status config_read_text(struct arena *arena, const struct doc_node *parent, const char *key,
                             struct str *out, struct error *err) {
    struct doc_node node = doc_get(parent, key);
    struct str text = {NULL, 0};
    enum status st = doc_read_str(&node, &text, err);
    if (st != ST_OK || !text.ptr) {
        return st;
    }
    *out = arena_dup(arena, text);
    if (!out->ptr) {
        return error_no_memory(err, "the model's configuration");
    }
    /* Names are passed to backends and to the file system as C strings. */
    return memchr(text.ptr, '\0', text.len) ? doc_error(&node, err, "holds a NUL byte") : ST_OK;
}

static enum status config_read_filename(struct arena *arena, const struct doc_node *parent,
                                        const char *key, struct str *out, struct error *err) {
    enum status st = config_read_text(arena, parent, key, out, err);
    if (st != ST_OK || out->len == 0) {
        return st;
    }
    struct doc_node node = doc_get(parent, key);
    if (out->ptr[0] == '/') {
        return doc_error(&node, err,
                         "\"%.*s\" must not begin with /: it is a file of the model's own",
                         STR_ARG(*out));
    }
    struct str rest = *out;
    while (rest.ptr) {
        if (str_is(str_cut(&rest, '/'), "..")) {
            return doc_error(&node, err, "\"%.*s\" must not lead out of the model's directory",
                             STR_ARG(*out));
        }
    }
    return ST_OK;
}

enum status config_read_numbers(struct arena *arena, const struct doc_node *node, int64_t min,
                                const uint64_t **out, size_t *n, struct error *err) {
    size_t count = doc_count(node);
    uint64_t *numbers = arena_calloc(arena, count, sizeof(*numbers));
    if (!numbers) {
        return error_no_memory(err, "the model's configuration");
    }
    struct doc_node element = {0};
    for (size_t i = 0; doc_next(node, &element); i++) {
        int64_t number = min;
        enum status st = doc_read_i64(&element, min, INT64_MAX, &number, err);
        if (st != ST_OK) {
            return st;
        }
        numbers[i] = (uint64_t)number;
    }
    *out = numbers;
    *n = count;
    return ST_OK;
}

enum status config_read_count(const struct doc_node *parent, const char *key, uint64_t *out,
                              struct error *err) {
    struct doc_node node = doc_get(parent, key);
    int64_t value = (int64_t)*out;
    enum status st = doc_read_i64(&node, 0, INT64_MAX, &value, err);
    *out = (uint64_t)value;
    return st;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* One dimension is left for the batch dimension. */
enum { MAX_DIMS = SHAPE_MAX_RANK - 1 };

static enum status config_read_dims(struct arena *arena, const struct doc_node *node,
                                    struct shape *out, struct error *err) {
    size_t n = doc_count(node);
    if (n > MAX_DIMS) {
        return doc_error(node, err, "expected at most %d dimensions, got %zu", MAX_DIMS, n);
    }
    int64_t *dims = arena_calloc(arena, n, sizeof(*dims));
    if (!dims) {
        return error_no_memory(err, "the model's configuration");
    }
    struct doc_node element = {0};
    for (size_t i = 0; doc_next(node, &element); i++) {
        enum status st = doc_read_i64(&element, INT64_MIN, INT64_MAX, &dims[i], err);
        if (st != ST_OK) {
            return st;
        }
        if (dims[i] < -1 || dims[i] == 0) {
            return doc_error(&element, err,
                             "expected a size of at least 1, or -1 for any, got %lld",
                             (long long)dims[i]);
        }
    }
    *out = (struct shape){dims, n};
    return ST_OK;
}

enum status config_read_datatype(const struct doc_node *parent, enum datatype *out,
                                 struct error *err) {
    struct doc_node node = doc_get(parent, "data_type");
    struct str name = {NULL, 0};
    enum status st = doc_read_str(&node, &name, err);
    /* TYPE_INVALID is protobuf's default and means absent. */
    if (st != ST_OK || !name.ptr || str_is(name, "TYPE_INVALID")) {
        return st;
    }
    *out = datatype_parse_config(name);
    if (*out == DT_INVALID) {
        return doc_error(
            &node, err,
            "\"%.*s\" is no data type; those are TYPE_BOOL, TYPE_UINT8 to TYPE_UINT64, "
            "TYPE_INT8 to TYPE_INT64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_BF16 and "
            "TYPE_STRING",
            STR_ARG(name));
    }
    return ST_OK;
}

static enum status read_dims_origin(struct arena *arena, const struct doc_node *node,
                                    struct model_config_tensor *out, struct error *err) {
    char place[DOC_PLACE_BYTES];
    out->dims_origin = arena_printf(arena, "dims in %s", doc_place_print(node, place));
    return out->dims_origin.ptr ? ST_OK : error_no_memory(err, "the model's configuration");
}

static enum status read_shape(struct arena *arena, const struct doc_node *parent,
                              struct model_config_tensor *out, struct error *err) {
    struct doc_node node = doc_get(parent, "dims");
    if (!node.val) {
        return ST_OK;
    }
    enum status st = config_read_dims(arena, &node, &out->dims, err);
    if (st == ST_OK && out->dims.rank == 0) {
        return doc_error(&node, err,
                         "must not be empty; a tensor without dimensions is dims: [ 1 ] with "
                         "reshape: { shape: [ ] }");
    }
    out->has_dims = true;
    return st == ST_OK ? read_dims_origin(arena, &node, out, err) : st;
}

static enum status read_reshape(struct arena *arena, const struct doc_node *parent,
                                struct model_config_tensor *out, struct error *err) {
    struct doc_node node = doc_get(parent, "reshape");
    if (!node.val) {
        return ST_OK;
    }
    if (!out->has_dims) {
        return doc_error(&node, err, "needs dims beside it");
    }
    struct doc_node list = doc_get(&node, "shape");
    enum status st = config_read_dims(arena, &list, &out->reshape, err);
    if (st == ST_OK && !reshape_is_valid(out->dims, out->reshape)) {
        char dims[SHAPE_TEXT_BYTES], reshape[SHAPE_TEXT_BYTES];
        st =
            doc_error(&node, err,
                      "%s has not as many elements as dims %s (between any two -1 they must agree)",
                      shape_print(out->reshape, reshape), shape_print(out->dims, dims));
    }
    out->has_reshape = true;
    return st;
}

static enum status read_tensor(struct arena *arena, const struct doc_node *node, bool is_input,
                               struct model_config_tensor *out, struct error *err) {
    enum status st = config_read_text(arena, node, "name", &out->name, err);
    if (st == ST_OK && out->name.len == 0) {
        st = doc_error(node, err, "has no name");
    }
    if (st == ST_OK) {
        st = config_read_datatype(node, &out->datatype, err);
    }
    if (st == ST_OK) {
        st = read_shape(arena, node, out, err);
    }
    if (st == ST_OK) {
        st = read_reshape(arena, node, out, err);
    }
    if (st == ST_OK && is_input) {
        struct doc_node optional = doc_get(node, "optional");
        st = doc_read_bool(&optional, &out->optional, err);
    }
    if (st == ST_OK && !is_input) {
        st = config_read_filename(arena, node, "label_filename", &out->label_filename, err);
    }
    return st;
}

/* The names of a list are compared with each other, and clients give configurations, too. */
enum { MAX_TENSORS = 4096, MAX_PARAMS = 500 };

static enum status check_count(const struct doc_node *list, size_t max, struct error *err) {
    size_t n = doc_count(list);
    return n <= max ? ST_OK : doc_error(list, err, "expected at most %zu entries, got %zu", max, n);
}

static enum status check_unique(const struct doc_node *node,
                                const struct model_config_tensor *tensors, size_t i,
                                struct error *err) {
    for (size_t j = 0; j < i; j++) {
        if (str_eq(tensors[j].name, tensors[i].name)) {
            return doc_error(node, err, "the name \"%.*s\" is taken already",
                             STR_ARG(tensors[i].name));
        }
    }
    return ST_OK;
}

static enum status read_list(struct arena *arena, const struct doc_node *root, const char *key,
                             struct model_config_tensor **out, size_t *n, struct error *err) {
    struct doc_node list = doc_get(root, key);
    size_t count = doc_count(&list);
    enum status checked = check_count(&list, MAX_TENSORS, err);
    if (checked != ST_OK) {
        return checked;
    }
    struct model_config_tensor *tensors = arena_calloc(arena, count, sizeof(*tensors));
    if (!tensors) {
        return error_no_memory(err, "the model's configuration");
    }
    struct doc_node node = {0};
    for (size_t i = 0; doc_next(&list, &node); i++) {
        enum status st = read_tensor(arena, &node, str_is(str_of(key), "input"), &tensors[i], err);
        if (st == ST_OK) {
            st = check_unique(&node, tensors, i, err);
        }
        if (st != ST_OK) {
            return st;
        }
    }
    *out = tensors;
    *n = count;
    return ST_OK;
}

static enum status config_read_tensors(struct arena *arena, const struct doc_node *root,
                                       struct model_config *out, struct error *err) {
    enum status st = read_list(arena, root, "input", &out->inputs, &out->n_inputs, err);
    if (st == ST_OK) {
        st = read_list(arena, root, "output", &out->outputs, &out->n_outputs, err);
    }
    return st;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static const char own_prefix[] = "sluice.";
static const char front_end_prefix[] = "mip.";

bool model_config_param_is_for_backend(const struct model_config_param *param) {
    return !str_starts_with(param->name, str_of(front_end_prefix));
}

static enum status read_run_on(struct str value, enum model_run_on *out, struct error *err) {
    static const char *const names[] = {
        [RUN_AUTO] = "auto", [RUN_ON_WORKER] = "worker", [RUN_ON_INSTANCE] = "instance"};
    for (int i = RUN_AUTO; i <= RUN_ON_INSTANCE; i++) {
        if (str_is(value, names[i])) {
            *out = (enum model_run_on)i;
            return ST_OK;
        }
    }
    return error_set(err, ST_BAD_CONFIG, "sluice.run_on is auto, worker or instance, not \"%.*s\"",
                     STR_ARG(value));
}

static enum status set_server_param(const struct model_config_param *param,
                                    struct model_config *config, struct error *err) {
    if (str_is(param->name, "sluice.run_on")) {
        return read_run_on(param->value, &config->run_on, err);
    }
    return error_set(err, ST_BAD_CONFIG, "unknown parameter \"%.*s\"; known is sluice.run_on",
                     STR_ARG(param->name));
}

static size_t find_param(const struct model_config *config, struct str name) {
    size_t i = 0;
    while (i < config->n_params && !str_eq(config->params[i].name, name)) {
        i++;
    }
    return i;
}

enum status model_config_set_param(struct arena *arena, struct model_config *config,
                                   const struct model_config_param *param, struct error *err) {
    if (str_starts_with(param->name, str_of(own_prefix))) {
        return set_server_param(param, config, err);
    }
    size_t at = find_param(config, param->name);
    size_t n = at < config->n_params ? config->n_params : config->n_params + 1;
    /* The array may be shared with a copy of the configuration, so it is replaced and not
     * changed. */
    struct model_config_param *params = arena_calloc(arena, n, sizeof(*params));
    if (!params) {
        return error_no_memory(err, "the model's configuration");
    }
    for (size_t i = 0; i < config->n_params; i++) {
        params[i] = config->params[i];
    }
    params[at] = *param;
    params[at].name = arena_dup(arena, param->name);
    params[at].value = arena_dup(arena, param->value);
    if (!params[at].name.ptr || !params[at].value.ptr) {
        return error_no_memory(err, "the model's configuration");
    }
    config->params = params;
    config->n_params = n;
    return ST_OK;
}

static enum status read_param(struct arena *arena, const struct doc_node *node,
                              struct model_config_param *out, struct error *err) {
    struct doc_node value = doc_get(node, "value");
    out->value = STR("");
    enum status st = config_read_text(arena, node, "key", &out->name, err);
    if (st == ST_OK && out->name.len == 0) {
        st = doc_error(node, err, "has no key");
    }
    if (st == ST_OK) {
        st = config_read_text(arena, &value, "string_value", &out->value, err);
    }
    return st;
}

static enum status add_param(struct arena *arena, const struct doc_node *node,
                             struct model_config *out, struct error *err) {
    struct model_config_param param = {{NULL, 0}, {NULL, 0}, false};
    enum status st = read_param(arena, node, &param, err);
    if (st != ST_OK) {
        return st;
    }
    if (find_param(out, param.name) < out->n_params) {
        return doc_error(node, err, "\"%.*s\" is given twice", STR_ARG(param.name));
    }
    st = model_config_set_param(arena, out, &param, err);
    if (st == ST_BAD_CONFIG) { /* set_param does not report the place */
        struct error why = *err;
        st = doc_error(node, err, "%s", why.text);
    }
    return st;
}

static enum status config_read_params(struct arena *arena, const struct doc_node *root,
                                      struct model_config *out, struct error *err) {
    struct doc_node list = doc_get(root, "parameters");
    enum status st = check_count(&list, MAX_PARAMS, err);
    struct doc_node node = {0};
    while (st == ST_OK && doc_next(&list, &node)) {
        st = add_param(arena, &node, out, err);
    }
    return st;
}

/* ---- model_warmup: inputs -------------------------------------------------------------------- */

static enum status read_sample_shape(struct arena *arena, const struct doc_node *node,
                                     struct shape *out, struct error *err) {
    struct doc_node dims = doc_get(node, "dims");
    enum status st = config_read_dims(arena, &dims, out, err);
    for (size_t i = 0; i < out->rank && st == ST_OK; i++) {
        if (out->dims[i] < 0) {
            struct doc_node element = doc_at(&dims, i);
            st = doc_error(&element, err, "a sample's dimensions must be fixed, not -1");
        }
    }
    return st;
}

/* Exactly one of the three fields is the source of the bytes. */
static enum status read_sample_data(struct arena *arena, const struct doc_node *node,
                                    struct model_warmup_input *out, struct error *err) {
    struct doc_node zero = doc_get(node, "zero_data"), random = doc_get(node, "random_data");
    bool is_zero = false, is_random = false;
    enum status st = doc_read_bool(&zero, &is_zero, err);
    if (st == ST_OK) {
        st = doc_read_bool(&random, &is_random, err);
    }
    if (st == ST_OK) {
        st = config_read_filename(arena, node, "input_data_file", &out->filename, err);
    }
    bool is_file = out->filename.len > 0;
    if (st == ST_OK && (int)is_zero + (int)is_random + (int)is_file != 1) {
        st = doc_error(node, err,
                       "expected one of zero_data: true, random_data: true and input_data_file");
    }
    out->data = is_file ? WARMUP_FILE : is_random ? WARMUP_RANDOM : WARMUP_ZERO;
    return st;
}

static enum status read_sample_input(struct arena *arena, const struct doc_node *entry,
                                     struct model_warmup_input *out, struct error *err) {
    struct doc_node value = doc_get(entry, "value");
    enum status st = config_read_text(arena, entry, "key", &out->name, err);
    if (st == ST_OK && out->name.len == 0) {
        st = doc_error(entry, err, "has no key: the name of the input");
    }
    if (st == ST_OK && !value.val) {
        st = doc_error(entry, err, "has no value");
    }
    if (st == ST_OK) {
        st = config_read_datatype(&value, &out->datatype, err);
    }
    if (st == ST_OK && out->datatype == DT_INVALID) {
        st = doc_error(&value, err, "has no data_type");
    }
    if (st == ST_OK) {
        st = read_sample_shape(arena, &value, &out->dims, err);
    }
    return st == ST_OK ? read_sample_data(arena, &value, out, err) : st;
}

/* ---- model_warmup: samples ------------------------------------------------------------------- */

static enum status read_sample_inputs(struct arena *arena, const struct doc_node *sample,
                                      struct model_warmup *out, struct error *err) {
    struct doc_node list = doc_get(sample, "inputs");
    size_t n = doc_count(&list);
    struct model_warmup_input *inputs = arena_calloc(arena, n, sizeof(*inputs));
    if (!inputs) {
        return error_no_memory(err, "the model's configuration");
    }
    struct doc_node entry = {0};
    for (size_t i = 0; doc_next(&list, &entry); i++) {
        enum status st = read_sample_input(arena, &entry, &inputs[i], err);
        if (st != ST_OK) {
            return st;
        }
    }
    out->inputs = inputs;
    out->n_inputs = n;
    return ST_OK;
}

static enum status read_number(const struct doc_node *parent, const char *key, uint64_t *out,
                               struct error *err) {
    struct doc_node node = doc_get(parent, key);
    int64_t value = 0;
    enum status st = doc_read_i64(&node, 0, INT32_MAX, &value, err);
    *out = (uint64_t)value;
    return st;
}

static enum status read_sample(struct arena *arena, const struct doc_node *node,
                               struct model_warmup *out, struct error *err) {
    enum status st = config_read_text(arena, node, "name", &out->name, err);
    if (st == ST_OK) {
        st = read_number(node, "batch_size", &out->batch_size, err);
    }
    if (st == ST_OK) {
        st = read_number(node, "count", &out->count, err);
    }
    if (st == ST_OK) {
        st = read_sample_inputs(arena, node, out, err);
    }
    if (out->count == 0) {
        out->count = 1;
    }
    return st;
}

/* Triton also accepts a sample without a batch size and skips it. */
static bool sample_is_run(const struct doc_node *node, const struct model_warmup *sample) {
    struct error where;
    if (sample->batch_size == 0) {
        doc_error(node, &where, "is not run: it has no batch_size");
        log_event(LOG_WARNING, "configuration", LOG_CSTR("text", where.text));
    }
    return sample->batch_size > 0;
}

static enum status config_read_warmups(struct arena *arena, const struct doc_node *root,
                                       struct model_config *out, struct error *err) {
    struct doc_node list = doc_get(root, "model_warmup");
    size_t n = doc_count(&list), n_run = 0;
    struct model_warmup *samples = arena_calloc(arena, n, sizeof(*samples));
    if (!samples) {
        return error_no_memory(err, "the model's configuration");
    }
    struct doc_node node = {0};
    while (doc_next(&list, &node)) {
        enum status st = read_sample(arena, &node, &samples[n_run], err);
        if (st != ST_OK) {
            return st;
        }
        n_run += sample_is_run(&node, &samples[n_run]);
    }
    out->warmups = samples;
    out->n_warmups = n_run;
    return ST_OK;
}

enum { MAX_INSTANCES = 1024 };

/* ---- versions -------------------------------------------------------------------------------- */

static enum status read_latest(const struct doc_node *policy, struct model_config *out,
                               struct error *err) {
    struct doc_node latest = doc_get(policy, "latest");
    struct doc_node number = doc_get(&latest, "num_versions");
    int64_t count = 1;
    enum status st = doc_read_i64(&number, 1, UINT32_MAX, &count, err);
    out->policy = VERSIONS_LATEST;
    out->latest_count = (uint64_t)count;
    return st;
}

static enum status read_specific(struct arena *arena, const struct doc_node *policy,
                                 struct model_config *out, struct error *err) {
    struct doc_node specific = doc_get(policy, "specific");
    struct doc_node versions = doc_get(&specific, "versions");
    out->policy = VERSIONS_SPECIFIC;
    enum status st =
        config_read_numbers(arena, &versions, 1, &out->specific, &out->n_specific, err);
    if (st == ST_OK && out->n_specific == 0) {
        st = doc_error(&specific, err, "lists no versions");
    }
    return st;
}

static enum status read_version_policy(struct arena *arena, const struct doc_node *root,
                                       struct model_config *out, struct error *err) {
    struct doc_node policy = doc_get(root, "version_policy");
    bool latest = doc_get(&policy, "latest").val != NULL;
    bool all = doc_get(&policy, "all").val != NULL;
    bool specific = doc_get(&policy, "specific").val != NULL;
    if ((int)latest + (int)all + (int)specific > 1) {
        return doc_error(&policy, err, "has more than one of latest, all and specific");
    }
    if (all) {
        out->policy = VERSIONS_ALL;
        return ST_OK;
    }
    return specific ? read_specific(arena, &policy, out, err) : read_latest(&policy, out, err);
}

/* ---- instances ------------------------------------------------------------------------------- */

static enum status check_kind(const struct doc_node *group, struct error *err) {
    struct doc_node node = doc_get(group, "kind");
    struct str kind = STR("KIND_AUTO");
    enum status st = doc_read_str(&node, &kind, err);
    if (st != ST_OK || str_is(kind, "KIND_AUTO") || str_is(kind, "KIND_CPU") ||
        str_is(kind, "KIND_MODEL")) {
        return st;
    }
    if (str_is(kind, "KIND_GPU")) {
        return doc_error(&node, err,
                         "this server runs models on CPUs only; KIND_CPU or KIND_AUTO would do");
    }
    return doc_error(&node, err, "expected KIND_AUTO, KIND_CPU or KIND_MODEL, got \"%.*s\"",
                     STR_ARG(kind));
}

static enum status read_instances(const struct doc_node *root, struct model_config *out,
                                  struct error *err) {
    struct doc_node groups = doc_get(root, "instance_group");
    struct doc_node group = {0};
    while (doc_next(&groups, &group)) {
        struct doc_node number = doc_get(&group, "count");
        struct doc_node label = doc_get(&group, "name");
        struct str name;
        int64_t count = 1;
        enum status st = doc_read_i64(&number, 1, MAX_INSTANCES, &count, err);
        if (st == ST_OK) {
            st = doc_read_str(&label, &name, err); /* a label without effect */
        }
        if (st == ST_OK) {
            st = check_kind(&group, err);
        }
        if (st != ST_OK) {
            return st;
        }
        out->instance_count += (uint64_t)count;
    }
    if (out->instance_count > MAX_INSTANCES) {
        return doc_error(&groups, err, "%llu instances are more than %d",
                         (unsigned long long)out->instance_count, MAX_INSTANCES);
    }
    return ST_OK;
}

/* ---- responses ------------------------------------------------------------------------------- */

/* Call after config_read_batching, because preserve_ordering and decoupled exclude each other. */
static enum status read_transaction_policy(const struct doc_node *root, struct model_config *out,
                                           struct error *err) {
    struct doc_node policy = doc_get(root, "model_transaction_policy");
    struct doc_node decoupled = doc_get(&policy, "decoupled");
    enum status st = doc_read_bool(&decoupled, &out->decoupled, err);
    if (st == ST_OK && out->decoupled && out->preserve_ordering) {
        st = doc_error(&decoupled, err,
                       "a decoupled model sends responses as they are made: preserve_ordering "
                       "must not be true");
    }
    return st;
}

/* Call after read_transaction_policy. */
static enum status read_response_cache(const struct doc_node *root, struct model_config *out,
                                       struct error *err) {
    struct doc_node cache = doc_get(root, "response_cache");
    struct doc_node enable = doc_get(&cache, "enable");
    enum status st = doc_read_bool(&enable, &out->response_cache, err);
    if (st == ST_OK && out->response_cache && out->decoupled) {
        st = doc_error(&enable, err,
                       "responses of a decoupled model can't be cached: response_cache must not be "
                       "enabled");
    }
    if (st == ST_OK && out->response_cache && out->sequences.strategy != SEQUENCES_NONE) {
        st = doc_error(&enable, err,
                       "responses to requests of sequences can't be cached: response_cache must "
                       "not be enabled");
    }
    return st;
}

/* ---- serving --------------------------------------------------------------------------------- */

static enum status config_read_serving(struct arena *arena, const struct doc_node *root,
                                       struct model_config *out, struct error *err) {
    enum status st = read_version_policy(arena, root, out, err);
    if (st == ST_OK) {
        st = read_instances(root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_batching(arena, root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_sequences(arena, root, out, err);
    }
    if (st == ST_OK) {
        st = read_transaction_policy(root, out, err);
    }
    if (st == ST_OK) {
        st = read_response_cache(root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_warmups(arena, root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_params(arena, root, out, err);
    }
    return st;
}

/* ---- backend and top level ------------------------------------------------------------------- */

struct platform {
    const char *name;
    const char *backend;
};

static const struct platform platforms[] = {
    {"onnxruntime_onnx", "onnxruntime"},     {"openvino", "openvino"},
    {"tensorrt_plan", "tensorrt"},           {"tensorflow_graphdef", "tensorflow"},
    {"tensorflow_savedmodel", "tensorflow"}, {"pytorch_libtorch", "pytorch"},
};

static enum status backend_of_platform(const struct doc_node *root, struct model_config *out,
                                       struct error *err) {
    struct doc_node node = doc_get(root, "platform");
    if (str_is(out->platform, "ensemble")) {
        return doc_error(&node, err, "ensembles (models made of other models) are not supported");
    }
    for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++) {
        if (!str_is(out->platform, platforms[i].name)) {
            continue;
        }
        if (out->backend.len > 0 && !str_is(out->backend, platforms[i].backend)) {
            return doc_error(&node, err, "belongs to backend \"%s\", but backend is \"%.*s\"",
                             platforms[i].backend, STR_ARG(out->backend));
        }
        out->backend = str_of(platforms[i].backend);
        return ST_OK;
    }
    if (out->backend.len > 0) {
        return ST_OK;
    }
    return doc_error(
        &node, err,
        "\"%.*s\" is no known platform (onnxruntime_onnx is one); name the backend with "
        "`backend:` instead",
        STR_ARG(out->platform));
}

bool backend_name_is_valid(struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!ok) {
            return false;
        }
    }
    return name.len > 0 && name.len <= BACKEND_NAME_MAX;
}

static enum status read_backend(struct arena *arena, const struct doc_node *root,
                                struct model_config *out, struct error *err) {
    enum status st = config_read_text(arena, root, "backend", &out->backend, err);
    if (st == ST_OK) {
        st = config_read_text(arena, root, "platform", &out->platform, err);
    }
    if (st == ST_OK && out->backend.len > 0 && !backend_name_is_valid(out->backend)) {
        struct doc_node node = doc_get(root, "backend");
        st = doc_error(&node, err,
                       "\"%.*s\" is not the name of a backend: those are made of a-z, 0-9, _ and -",
                       STR_ARG(out->backend));
    }
    if (st == ST_OK && out->platform.len > 0) {
        st = backend_of_platform(root, out, err);
    }
    return st;
}

static enum status read_max_batch_size(const struct doc_node *root, struct model_config *out,
                                       struct error *err) {
    struct doc_node node = doc_get(root, "max_batch_size");
    int64_t value = 0;
    enum status st = doc_read_i64(&node, 0, MAX_BATCH_SIZE, &value, err);
    out->has_max_batch_size = node.val != NULL;
    out->max_batch_size = (uint64_t)value;
    return st;
}

enum status model_config_read(struct arena *arena, const struct doc *doc, struct model_config *out,
                              struct error *err) {
    *out = (struct model_config){.policy = VERSIONS_LATEST, .latest_count = 1};
    struct doc_node root = doc_root(doc);
    enum status st = config_fields_check(&root, CONFIG_MODEL, err);
    if (st == ST_OK) {
        st = config_read_text(arena, &root, "name", &out->name, err);
    }
    if (st == ST_OK) {
        st = read_backend(arena, &root, out, err);
    }
    if (st == ST_OK) {
        st = read_max_batch_size(&root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_filename(arena, &root, "default_model_filename", &out->default_filename,
                                  err);
    }
    if (st == ST_OK) {
        st = config_read_tensors(arena, &root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_serving(arena, &root, out, err);
    }
    return st;
}
