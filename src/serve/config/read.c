/* Reads config.pbtxt by tables: each message of Triton's ModelConfig, whose text form it is, has a
 * row for each of its fields. MEMBER_IGNORED is for a field without which the answers are the same,
 * and is logged; MEMBER_REFUSED for one without which they would be others. Limits that depend on
 * the model (max_batch_size, datatypes, shapes) are checked in resolve_config.c. */
#include "serve/config/config.h"

#include <ctype.h>
#include <string.h>

#include "core/base/doc/reader.h"
#include "core/base/log.h"
#include "core/base/num.h"
#include "serve/config/ensemble_read.h"
#include "serve/config/resolve_config.h"

enum { MAX_BATCH_SIZE = 2147483647 /* an int32 in ModelConfig */ };

static void warn_at(const struct doc_node *node, const char *what) {
    struct error where;
    doc_error(node, &where, "%s", what);
    log_event(LOG_WARNING, "configuration", LOG_CSTR("text", where.text));
}

static void warn_ignored(struct doc_reader *reader, const struct doc_node *node, const char *why) {
    char text[ERROR_TEXT_BYTES];
    (void)reader;
    snprintf(text, sizeof(text), "has no effect: %s", why);
    warn_at(node, text);
}

static void read_name(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    doc_reader_text(reader, node, out);
    if (name->len == 0) {
        doc_reader_fail(reader, node->parent, "has no %s", node->key);
    }
}

/* A path inside the model's directory. */
static void check_inside(struct doc_reader *reader, const struct doc_node *node, struct str path) {
    if (path.len > 0 && path.ptr[0] == '/') {
        doc_reader_fail(reader, node,
                        "\"%.*s\" must not begin with /: it is a file of the model's own",
                        STR_ARG(path));
    }
    struct str rest = path;
    while (rest.ptr) {
        if (str_is(str_cut(&rest, '/'), "..")) {
            doc_reader_fail(reader, node, "\"%.*s\" must not lead out of the model's directory",
                            STR_ARG(path));
        }
    }
}

static void read_filename(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *path = out;
    doc_reader_text(reader, node, out);
    check_inside(reader, node, *path);
}

static void read_numbers(struct doc_reader *reader, const struct doc_node *list,
                         const uint64_t **out, size_t *n) {
    uint64_t *numbers = doc_reader_list(reader, list, sizeof(*numbers), n);
    *out = numbers;
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item);) {
        doc_reader_u64(reader, &item, 1, INT64_MAX, numbers++);
    }
}

/* The names of a list are compared with each other, and clients give configurations, too. */
enum { MAX_TENSORS = 4096, MAX_PARAMS = 500 };

static void check_count(struct doc_reader *reader, const struct doc_node *list, size_t max) {
    size_t n = doc_count(list);
    if (n > max) {
        doc_reader_fail(reader, list, "expected at most %zu entries, got %zu", max, n);
    }
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* One dimension is left for the batch dimension. */
enum { MAX_DIMS = SHAPE_MAX_RANK - 1 };

static void read_dims(struct doc_reader *reader, const struct doc_node *list, struct shape *out) {
    size_t n = doc_count(list);
    if (n > MAX_DIMS) {
        doc_reader_fail(reader, list, "expected at most %d dimensions, got %zu", MAX_DIMS, n);
    }
    int64_t *dims = doc_reader_list(reader, list, sizeof(*dims), &n);
    *out = (struct shape){dims, n};
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item); dims++) {
        doc_reader_i64(reader, &item, INT64_MIN, INT64_MAX, dims);
        if (*dims < -1 || *dims == 0) {
            doc_reader_fail(reader, &item, "expected a size of at least 1, or -1 for any, got %lld",
                            (long long)*dims);
        }
    }
}

static void read_datatype(struct doc_reader *reader, const struct doc_node *node, void *out) {
    enum datatype *datatype = out;
    struct str name = {NULL, 0};
    doc_reader_view(reader, node, &name);
    /* TYPE_INVALID is protobuf's default and means absent. */
    if (!name.ptr || str_is(name, "TYPE_INVALID")) {
        return;
    }
    *datatype = datatype_parse_config(name);
    if (*datatype == DT_INVALID) {
        doc_reader_fail(reader, node,
                        "\"%.*s\" is no data type; those are TYPE_BOOL, TYPE_UINT8 to TYPE_UINT64, "
                        "TYPE_INT8 to TYPE_INT64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_BF16 and "
                        "TYPE_STRING",
                        STR_ARG(name));
    }
}

static void read_tensor_dims(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config_tensor *out = object;
    char place[DOC_PLACE_BYTES];
    if (!node->val) {
        return;
    }
    read_dims(reader, node, &out->dims);
    if (out->dims.rank == 0) {
        doc_reader_fail(reader, node,
                        "must not be empty; a tensor without dimensions is dims: [ 1 ] with "
                        "reshape: { shape: [ ] }");
    }
    out->has_dims = true;
    out->dims_origin = arena_printf(reader->arena, "dims in %s", doc_place_print(node, place));
    if (!out->dims_origin.ptr) {
        doc_reader_no_memory(reader);
    }
}

static void read_reshape_shape(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    struct model_config_tensor *out = object;
    if (!out->has_dims) {
        doc_reader_fail(reader, node->parent, "needs dims beside it");
    }
    read_dims(reader, node, &out->reshape);
    if (doc_reader_ok(reader) && !reshape_is_valid(out->dims, out->reshape)) {
        char dims[SHAPE_TEXT_BYTES], reshape[SHAPE_TEXT_BYTES];
        doc_reader_fail(reader, node->parent,
                        "%s has not as many elements as dims %s (between any two -1 they must "
                        "agree)",
                        shape_print(out->reshape, reshape), shape_print(out->dims, dims));
    }
    out->has_reshape = true;
}

static const struct doc_member RESHAPE[] = {
    {"shape", MEMBER_CUSTOM(read_reshape_shape), .form = "sizes with as many elements as dims"},
    {0}};

static const char DATATYPE[] = "TYPE_BOOL, TYPE_FP32, …";
static const char DIMS[] = "sizes of 1 or more, or -1 for any";
static const char FILENAME[] = "a path below the model's directory";

static const char NOT_ROW_MAJOR[] = "tensors that are not row-major are not supported";
static const char SHAPE_TENSOR[] = "shape tensors are not supported";
static const char *const FORMATS[] = {"FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW", NULL};

static const struct doc_member INPUT[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct model_config_tensor, name, struct str, read_name),
     .form = "text, required"},
    {"data_type",
     MEMBER_CUSTOM_FIELD(struct model_config_tensor, datatype, enum datatype, read_datatype),
     .form = DATATYPE},
    {"dims", MEMBER_CUSTOM(read_tensor_dims), .form = DIMS},
    {"reshape", MEMBER_OBJECT(RESHAPE)},
    {"optional", MEMBER_BOOL(struct model_config_tensor, optional)},
    {"format", MEMBER_WORD(struct model_config_tensor, format, FORMATS)},
    {"is_shape_tensor", MEMBER_REFUSED_TRUE(SHAPE_TENSOR)},
    {"allow_ragged_batch", MEMBER_BOOL(struct model_config_tensor, ragged)},
    {"is_non_linear_format_io", MEMBER_REFUSED_TRUE(NOT_ROW_MAJOR)},
    {0}};

static const struct doc_member OUTPUT[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct model_config_tensor, name, struct str, read_name),
     .form = "text, required"},
    {"data_type",
     MEMBER_CUSTOM_FIELD(struct model_config_tensor, datatype, enum datatype, read_datatype),
     .form = DATATYPE},
    {"dims", MEMBER_CUSTOM(read_tensor_dims), .form = DIMS},
    {"reshape", MEMBER_OBJECT(RESHAPE)},
    {"label_filename",
     MEMBER_CUSTOM_FIELD(struct model_config_tensor, label_filename, struct str, read_filename),
     .form = FILENAME},
    {"is_shape_tensor", MEMBER_REFUSED_TRUE(SHAPE_TENSOR)},
    {"is_non_linear_format_io", MEMBER_REFUSED_TRUE(NOT_ROW_MAJOR)},
    {0}};

static struct model_config_tensor *read_tensors(struct doc_reader *reader,
                                                const struct doc_node *list,
                                                const struct doc_member *members, size_t *n) {
    check_count(reader, list, MAX_TENSORS);
    struct model_config_tensor *tensors = doc_reader_list(reader, list, sizeof(*tensors), n);
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, list, &item); i++) {
        doc_reader_object(reader, &item, members, &tensors[i]);
        for (size_t j = 0; doc_reader_ok(reader) && j < i; j++) {
            if (str_eq(tensors[j].name, tensors[i].name)) {
                doc_reader_fail(reader, &item, "the name \"%.*s\" is taken already",
                                STR_ARG(tensors[i].name));
            }
        }
    }
    return tensors;
}

static void read_inputs(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    out->inputs = read_tensors(reader, node, INPUT, &out->n_inputs);
}

static void read_outputs(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    out->outputs = read_tensors(reader, node, OUTPUT, &out->n_outputs);
}

/* ---- batch_input and batch_output ------------------------------------------------------------ */

static void read_names(struct doc_reader *reader, const struct doc_node *list,
                       const struct str **out, size_t *n) {
    check_count(reader, list, MAX_TENSORS);
    struct str *names = doc_reader_list(reader, list, sizeof(*names), n);
    *out = names;
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item); names++) {
        doc_reader_text(reader, &item, names);
        if (names->len == 0) {
            doc_reader_fail(reader, &item, "must not be empty");
        }
    }
    if (doc_reader_ok(reader) && *n == 0) {
        doc_reader_fail(reader, list->parent, "has no %s", list->key);
    }
}

/* Each kind has one source. */
static void read_source(struct doc_reader *reader, const struct doc_node *node, struct str *out) {
    const struct str *names = NULL;
    size_t n = 0;
    read_names(reader, node, &names, &n);
    if (n > 1) {
        doc_reader_fail(reader, node, "expected one input, got %zu", n);
    }
    if (doc_reader_ok(reader)) {
        *out = names[0];
    }
}

static void read_input_targets(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    struct model_batch_input *out = object;
    read_names(reader, node, &out->targets, &out->n_targets);
}

static void read_input_source(struct doc_reader *reader, const struct doc_node *node,
                              void *object) {
    struct model_batch_input *out = object;
    read_source(reader, node, &out->source);
}

static void read_made_datatype(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const enum datatype *datatype = out;
    read_datatype(reader, node, out);
    if (*datatype != DT_INT32 && *datatype != DT_FP32) {
        doc_reader_fail(reader, node->val ? node : node->parent,
                        "the data_type of an input that the server makes is TYPE_INT32 or "
                        "TYPE_FP32");
    }
}

static const char *const BATCH_INPUT_KINDS[] = {
    [BATCH_ELEMENT_COUNT] = "BATCH_ELEMENT_COUNT",
    [BATCH_ACCUMULATED_ELEMENT_COUNT] = "BATCH_ACCUMULATED_ELEMENT_COUNT",
    [BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO] = "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
    [BATCH_MAX_ELEMENT_COUNT_AS_SHAPE] = "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
    [BATCH_ITEM_SHAPE] = "BATCH_ITEM_SHAPE",
    [BATCH_ITEM_SHAPE_FLATTEN] = "BATCH_ITEM_SHAPE_FLATTEN",
    NULL,
};

static const char TARGETS[] = "names, one at least";
static const char SOURCE[] = "the name of one input";

static const struct doc_member BATCH_INPUT[] = {
    {"kind", MEMBER_WORD(struct model_batch_input, kind, BATCH_INPUT_KINDS)},
    {"target_name", MEMBER_CUSTOM(read_input_targets), .form = TARGETS},
    {"data_type",
     MEMBER_CUSTOM_FIELD(struct model_batch_input, datatype, enum datatype, read_made_datatype),
     .form = "TYPE_INT32 or TYPE_FP32"},
    {"source_input", MEMBER_CUSTOM(read_input_source), .form = SOURCE},
    {0}};

static void read_batch_inputs(struct doc_reader *reader, const struct doc_node *node,
                              void *object) {
    struct model_config *out = object;
    check_count(reader, node, MAX_TENSORS);
    struct model_batch_input *items =
        doc_reader_list(reader, node, sizeof(*items), &out->n_batch_inputs);
    out->batch_inputs = items;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item); items++) {
        doc_reader_object(reader, &item, BATCH_INPUT, items);
        items->place = doc_reader_place(reader, &item);
    }
}

static void read_output_targets(struct doc_reader *reader, const struct doc_node *node,
                                void *object) {
    struct model_batch_output *out = object;
    read_names(reader, node, &out->targets, &out->n_targets);
}

static void read_output_source(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    struct model_batch_output *out = object;
    read_source(reader, node, &out->source);
}

static const char *const BATCH_OUTPUT_KINDS[] = {"BATCH_SCATTER_WITH_INPUT_SHAPE", NULL};

static const struct doc_member BATCH_OUTPUT[] = {
    {"target_name", MEMBER_CUSTOM(read_output_targets), .form = TARGETS},
    {"kind", MEMBER_UNUSED_WORD(BATCH_OUTPUT_KINDS)},
    {"source_input", MEMBER_CUSTOM(read_output_source), .form = SOURCE},
    {0}};

static void read_batch_outputs(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    struct model_config *out = object;
    check_count(reader, node, MAX_TENSORS);
    struct model_batch_output *items =
        doc_reader_list(reader, node, sizeof(*items), &out->n_batch_outputs);
    out->batch_outputs = items;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item); items++) {
        doc_reader_object(reader, &item, BATCH_OUTPUT, items);
        items->place = doc_reader_place(reader, &item);
    }
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

static size_t find_param(const struct model_config *config, struct str name) {
    size_t i = 0;
    while (i < config->n_params && !str_eq(config->params[i].name, name)) {
        i++;
    }
    return i;
}

bool model_config_has_param(const struct model_config *config, struct str name) {
    return find_param(config, name) < config->n_params;
}

static enum status read_pad_multiple(struct str value, uint64_t *out, struct error *err) {
    if (!num_parse_u64(value, out) || *out == 0 || *out > INT32_MAX) {
        return error_set(err, ST_BAD_CONFIG,
                         "sluice.pad_multiple is a whole number from 1 to %d, not \"%.*s\"",
                         INT32_MAX, STR_ARG(value));
    }
    return ST_OK;
}

/* Splits "sluice.pad_mask.INPUT". Returns: false when it is none of these. */
static bool parse_padding(const struct model_config_param *param, struct model_padding *out) {
    static const char *const prefixes[] = {[PADDING_VALUE] = "sluice.pad.",
                                           [PADDING_MASK] = "sluice.pad_mask.",
                                           [PADDING_LENGTH] = "sluice.pad_length.",
                                           [PADDING_CUT] = "sluice.pad_cut."};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        struct str prefix = str_of(prefixes[i]);
        if (str_starts_with(param->name, prefix) && param->name.len > prefix.len) {
            *out = (struct model_padding){
                .kind = (enum model_padding_kind)i,
                .param = param->name,
                .name = str_make(param->name.ptr + prefix.len, param->name.len - prefix.len),
                .value = param->value};
            return true;
        }
    }
    return false;
}

/* Adds it, or replaces the one of that name; the array may be shared with a copy of the
 * configuration. */
static enum status set_padding(struct arena *arena, struct model_config *config,
                               struct model_padding padding, struct error *err) {
    size_t at = 0;
    while (at < config->n_paddings && !str_eq(config->paddings[at].param, padding.param)) {
        at++;
    }
    size_t n = at < config->n_paddings ? config->n_paddings : config->n_paddings + 1;
    struct model_padding *paddings = arena_calloc(arena, n, sizeof(*paddings));
    size_t skip = padding.param.len - padding.name.len;
    padding.param = arena_dup(arena, padding.param);
    padding.value = arena_dup(arena, padding.value);
    if (!paddings || !padding.param.ptr || !padding.value.ptr) {
        return error_no_memory(err, "the model's configuration");
    }
    padding.name = str_make(padding.param.ptr + skip, padding.param.len - skip);
    for (size_t i = 0; i < config->n_paddings; i++) {
        paddings[i] = config->paddings[i];
    }
    paddings[at] = padding;
    config->paddings = paddings;
    config->n_paddings = n;
    return ST_OK;
}

/* Parameters whose names begin with "sluice.". */
static enum status set_own_param(struct arena *arena, struct model_config *config,
                                 const struct model_config_param *param, struct error *err) {
    struct model_padding padding;
    if (str_is(param->name, "sluice.run_on")) {
        return read_run_on(param->value, &config->run_on, err);
    }
    if (str_is(param->name, "sluice.pad_multiple")) {
        return read_pad_multiple(param->value, &config->pad_multiple, err);
    }
    if (parse_padding(param, &padding)) {
        return set_padding(arena, config, padding, err);
    }
    return error_set(err, ST_BAD_CONFIG,
                     "unknown parameter \"%.*s\"; known are sluice.run_on, sluice.pad.INPUT, "
                     "sluice.pad_mask.INPUT, sluice.pad_length.INPUT, sluice.pad_cut.OUTPUT and "
                     "sluice.pad_multiple",
                     STR_ARG(param->name));
}

enum status model_config_set_param(struct arena *arena, struct model_config *config,
                                   const struct model_config_param *param, struct error *err) {
    if (str_starts_with(param->name, str_of(own_prefix))) {
        return set_own_param(arena, config, param, err);
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

static const struct doc_member PARAMETER_VALUE[] = {
    {"string_value", MEMBER_TEXT(struct model_config_param, value)}, {0}};

static const struct doc_member PARAMETER[] = {
    {"key", MEMBER_CUSTOM_FIELD(struct model_config_param, name, struct str, read_name),
     .form = "text, required"},
    {"value", MEMBER_OBJECT(PARAMETER_VALUE)},
    {0}};

static void add_param(struct doc_reader *reader, const struct doc_node *node,
                      struct model_config *out) {
    struct model_config_param param = {.value = STR("")};
    struct error why;
    doc_reader_object(reader, node, PARAMETER, &param);
    if (!doc_reader_ok(reader)) {
        return;
    }
    if (find_param(out, param.name) < out->n_params) {
        doc_reader_fail(reader, node, "\"%.*s\" is given twice", STR_ARG(param.name));
        return;
    }
    enum status st = model_config_set_param(reader->arena, out, &param, &why);
    if (st == ST_NO_MEMORY) {
        doc_reader_no_memory(reader);
    } else if (st != ST_OK) { /* its text does not name the place */
        doc_reader_fail(reader, node, "%s", why.text);
    }
}

static void read_params(struct doc_reader *reader, const struct doc_node *node, void *object) {
    check_count(reader, node, MAX_PARAMS);
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        add_param(reader, &item, object);
    }
}

/* ---- model_warmup ---------------------------------------------------------------------------- */

static void read_fixed_dims(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct shape *shape = out;
    struct doc_node item = {0};
    read_dims(reader, node, out);
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        if (shape->dims[i] < 0) {
            doc_reader_fail(reader, &item, "these dimensions must be fixed, not -1");
        }
    }
}

static void read_required_datatype(struct doc_reader *reader, const struct doc_node *node,
                                   void *out) {
    const enum datatype *datatype = out;
    read_datatype(reader, node, out);
    if (*datatype == DT_INVALID) {
        doc_reader_fail(reader, node->parent, "has no data_type");
    }
}

/* One of `inputs` while it is read. */
struct sample_input {
    struct model_warmup_input input;
    bool is_zero, is_random;
};

static void check_sample_key(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct sample_input *sample = object;
    if (sample->input.name.len == 0) {
        doc_reader_fail(reader, node->parent, "has no key: the name of the input");
    }
}

static void check_sample_value(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    (void)object;
    if (!node->val) {
        doc_reader_fail(reader, node->parent, "has no value");
    }
}

/* Exactly one of three fields is the source of the bytes; the file is the last. */
static void check_sample_data(struct doc_reader *reader, const struct doc_node *node,
                              void *object) {
    struct sample_input *sample = object;
    bool is_file = sample->input.filename.len > 0;
    if ((int)sample->is_zero + (int)sample->is_random + (int)is_file != 1) {
        doc_reader_fail(reader, node->parent,
                        "expected one of zero_data: true, random_data: true and input_data_file");
    }
    sample->input.data = is_file ? WARMUP_FILE : sample->is_random ? WARMUP_RANDOM : WARMUP_ZERO;
}

static const struct doc_member WARMUP_INPUT[] = {
    {"data_type",
     MEMBER_CUSTOM_FIELD(struct sample_input, input.datatype, enum datatype,
                         read_required_datatype),
     .form = DATATYPE},
    {"dims", MEMBER_CUSTOM_FIELD(struct sample_input, input.dims, struct shape, read_fixed_dims),
     .form = "sizes of 1 or more"},
    {"zero_data", MEMBER_BOOL(struct sample_input, is_zero)},
    {"random_data", MEMBER_BOOL(struct sample_input, is_random)},
    {"input_data_file",
     MEMBER_CUSTOM_FIELD(struct sample_input, input.filename, struct str, read_filename),
     .form = "a file in the model's folder warmup", .check = check_sample_data},
    {0}};

static const struct doc_member WARMUP_ENTRY[] = {
    {"key", MEMBER_TEXT(struct sample_input, input.name), .check = check_sample_key},
    {"value", MEMBER_OBJECT(WARMUP_INPUT), .check = check_sample_value},
    {0}};

static void read_sample_inputs(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    struct model_warmup *out = object;
    struct model_warmup_input *inputs =
        doc_reader_list(reader, node, sizeof(*inputs), &out->n_inputs);
    out->inputs = inputs;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        struct sample_input sample = {.is_zero = false};
        doc_reader_object(reader, &item, WARMUP_ENTRY, &sample);
        *inputs++ = sample.input;
    }
}

static const struct doc_member WARMUP[] = {
    {"name", MEMBER_TEXT(struct model_warmup, name)},
    {"batch_size", MEMBER_WHOLE(struct model_warmup, batch_size, 0, INT32_MAX)},
    {"count", MEMBER_WHOLE(struct model_warmup, count, 0, INT32_MAX), .preset = 1},
    {"inputs", MEMBER_CUSTOM(read_sample_inputs), .members = WARMUP_ENTRY},
    {0}};

/* Triton also accepts a sample without a batch size and skips it. */
static void read_warmups(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    size_t n;
    struct model_warmup *samples = doc_reader_list(reader, node, sizeof(*samples), &n);
    out->warmups = samples;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        struct model_warmup sample = {.batch_size = 0};
        doc_reader_object(reader, &item, WARMUP, &sample);
        sample.count = sample.count > 0 ? sample.count : 1;
        if (sample.batch_size > 0) {
            samples[out->n_warmups++] = sample;
        } else if (doc_reader_ok(reader)) {
            warn_at(&item, "is not run: it has no batch_size");
        }
    }
}

/* ---- versions -------------------------------------------------------------------------------- */

static void read_versions(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    read_numbers(reader, node, &out->specific, &out->n_specific);
    if (out->n_specific == 0) {
        doc_reader_fail(reader, node->parent, "lists no versions");
    }
}

static const struct doc_member LATEST[] = {
    {"num_versions", MEMBER_WHOLE(struct model_config, latest_count, 1, UINT32_MAX), .preset = 1},
    {0}};
static const struct doc_member ALL[] = {{0}};
static const struct doc_member SPECIFIC[] = {
    {"versions", MEMBER_CUSTOM(read_versions), .form = "one or more numbers"}, {0}};

/* In the order of the policies. */
static const struct doc_member VERSION_POLICY[] = {{"latest", MEMBER_OBJECT(LATEST)},
                                                   {"all", MEMBER_OBJECT(ALL)},
                                                   {"specific", MEMBER_OBJECT(SPECIFIC)},
                                                   {0}};

static void read_version_policy(struct doc_reader *reader, const struct doc_node *node,
                                void *object) {
    struct model_config *out = object;
    int n = 0;
    for (int i = 0; VERSION_POLICY[i].name; i++) {
        if (doc_get(node, VERSION_POLICY[i].name).val) {
            out->policy = (enum model_version_policy)i;
            n++;
        }
    }
    if (n > 1) {
        doc_reader_fail(reader, node, "has more than one of latest, all and specific");
    }
    doc_reader_object(reader, node, VERSION_POLICY, out);
}

/* ---- instances ------------------------------------------------------------------------------- */

enum { MAX_INSTANCES = 1024 };

struct instance_group {
    struct model_instance_group group;
    struct str policy; /* as configured */
    struct model_config *config;
};

/* A field that asks for GPUs. */
static void take_gpu(struct doc_reader *reader, const struct doc_node *node,
                     struct instance_group *group, const char *instead) {
    if (!group->config->gpu_models_on_cpu) {
        doc_reader_fail(reader, node,
                        "this server runs models on CPUs only: %s, or start it with "
                        "--gpu-models-on-cpu",
                        instead);
    }
    group->config->written_for_gpus = true;
}

static void check_kind(struct doc_reader *reader, const struct doc_node *node, void *object) {
    static const char *const kinds[] = {"KIND_AUTO", "KIND_CPU", "KIND_MODEL", "KIND_GPU", NULL};
    struct instance_group *out = object;
    unsigned kind = 0;
    doc_reader_word(reader, node, kinds, "KIND_AUTO, KIND_CPU or KIND_MODEL", &kind);
    if (strcmp(kinds[kind], "KIND_GPU") == 0) {
        take_gpu(reader, node, out, "KIND_CPU or KIND_AUTO would do");
    } else if (strcmp(kinds[kind], "KIND_MODEL") == 0) {
        out->group.host_policy = STR("model");
    }
}

static void check_gpus(struct doc_reader *reader, const struct doc_node *node, void *object) {
    int64_t unused;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        doc_reader_i64(reader, &item, 0, INT32_MAX, &unused);
    }
    if (doc_count(node) > 0) {
        take_gpu(reader, node, object, "leave gpus out and say KIND_CPU");
    }
}

static const struct doc_member INSTANCE_GROUP[] = {
    {"count", MEMBER_WHOLE(struct instance_group, group.count, 1, MAX_INSTANCES), .preset = 1},
    {"name", MEMBER_TEXT(struct instance_group, group.name)},
    {"kind", MEMBER_CUSTOM(check_kind),
     .form = "KIND_AUTO, KIND_CPU or KIND_MODEL; KIND_GPU with --gpu-models-on-cpu"},
    {"rate_limiter", MEMBER_IGNORED("instances run whenever they have work")},
    {"gpus", MEMBER_CUSTOM(check_gpus),
     .form = "refused without --gpu-models-on-cpu: this server runs models on CPUs only"},
    {"secondary_devices", MEMBER_IGNORED("this server runs models on CPUs only")},
    {"profile", MEMBER_IGNORED("the backends here have no optimisation profiles")},
    {"passive", MEMBER_REFUSED_TRUE("instances that take no requests are not supported")},
    {"host_policy", MEMBER_TEXT(struct instance_group, policy)},
    {0}};

static void read_instances(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    size_t n;
    struct model_instance_group *groups = doc_reader_list(reader, node, sizeof(*groups), &n);
    out->groups = groups;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        struct instance_group read = {.config = out, .group.host_policy = DEFAULT_HOST_POLICY};
        doc_reader_presets(INSTANCE_GROUP, &read);
        doc_reader_object(reader, &item, INSTANCE_GROUP, &read);
        read.group.names_policy = read.policy.len > 0;
        if (read.group.names_policy) {
            read.group.host_policy = read.policy;
        }
        out->instance_count += read.group.count;
        groups[out->n_groups++] = read.group;
    }
    if (out->instance_count > MAX_INSTANCES) {
        doc_reader_fail(reader, node, "%llu instances are more than %d",
                        (unsigned long long)out->instance_count, MAX_INSTANCES);
    }
}

/* ---- dynamic_batching: queue policies -------------------------------------------------------- */

enum { MAX_PRIORITY_LEVELS = 1000 /* each level is a list in the queue of every version */ };

static const char SIZES[] = "one or more sizes, 1 to max_batch_size";

static void read_preferred(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    read_numbers(reader, node, &out->preferred_batch_sizes, &out->n_preferred);
}

static void read_action(struct doc_reader *reader, const struct doc_node *node, void *object) {
    static const char *const actions[] = {"REJECT", "DELAY", NULL};
    struct model_queue_policy *out = object;
    unsigned action = 0;
    doc_reader_word(reader, node, actions, NULL, &action);
    out->delay_on_timeout = action == 1;
}

static const struct doc_member QUEUE_POLICY[] = {
    {"timeout_action", MEMBER_CUSTOM(read_action), .form = "REJECT or DELAY"},
    {"default_timeout_microseconds",
     MEMBER_WHOLE(struct model_queue_policy, timeout_us, 0, INT64_MAX)},
    {"allow_timeout_override", MEMBER_BOOL(struct model_queue_policy, allow_override)},
    {"max_queue_size", MEMBER_WHOLE(struct model_queue_policy, max_size, 0, INT64_MAX)},
    {0}};

/* ---- dynamic_batching: priority levels ------------------------------------------------------- */

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
    /* read_level_key reads it: its range depends on priority_levels. */
    {"key", MEMBER_BY_CALLER, .form = "1 to priority_levels, required"},
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
        warn_at(node, "has no effect without priority_levels");
    }
}

/* ---- dynamic_batching ------------------------------------------------------------------------ */

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
    {"preferred_batch_size", MEMBER_CUSTOM(read_preferred), .form = SIZES},
    {"max_queue_delay_microseconds",
     MEMBER_WHOLE(struct model_config, max_queue_delay_us, 0, INT64_MAX)},
    {"preserve_ordering", MEMBER_BOOL(struct model_config, preserve_ordering)},
    {"default_queue_policy", MEMBER_OBJECT(QUEUE_POLICY),
     .offset = offsetof(struct model_config, queue)},
    {"priority_levels", MEMBER_WHOLE(struct model_config, priority_levels, 0, MAX_PRIORITY_LEVELS)},
    {"default_priority_level", MEMBER_WHOLE(struct model_config, default_priority, 0, INT64_MAX),
     .check = check_default_level},
    {"priority_queue_policy", MEMBER_CUSTOM(read_levels), .members = LEVEL},
    {0}};

static void read_batching(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    struct doc_node ordering = doc_get(node, "preserve_ordering");
    out->has_dynamic_batching = node->val != NULL;
    doc_reader_object(reader, node, DYNAMIC_BATCHING, out);
    check_ordering(reader, &ordering, out);
}

/* ---- sequence_batching: control inputs ------------------------------------------------------- */

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
    read_datatype(reader, node, &of_ids);
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

static const char PAIR[] = "the value for false and the one for true";

static const struct doc_member CONTROL[] = {
    {"kind", MEMBER_WORD(struct model_control, kind, KINDS),
     .text = "CONTROL_SEQUENCE_START, _READY, _END or _CORRID"},
    {"int32_false_true", MEMBER_CUSTOM(read_int32_pair), .form = PAIR},
    {"fp32_false_true", MEMBER_CUSTOM(read_fp32_pair), .form = PAIR},
    {"bool_false_true", MEMBER_CUSTOM(read_bool_pair), .form = PAIR},
    {"data_type", MEMBER_CUSTOM(read_id_datatype), .form = "of CONTROL_SEQUENCE_CORRID"},
    {0}};

static void read_control(struct doc_reader *reader, const struct doc_node *node, void *object) {
    if (doc_count(node) != 1) {
        doc_reader_fail(reader, node->parent, "expected one control, got %zu", doc_count(node));
    }
    struct doc_node only = doc_at(node, 0);
    doc_reader_object(reader, &only, CONTROL, object);
}

static const struct doc_member CONTROL_INPUT[] = {
    {"name", MEMBER_CUSTOM_FIELD(struct model_control, name, struct str, read_name),
     .form = "text, required"},
    {"control", MEMBER_CUSTOM(read_control), .members = CONTROL},
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

/* ---- sequence_batching: states --------------------------------------------------------------- */

/* `initial_state` while it is read. */
struct initial_state {
    struct str name;
    enum datatype datatype;
    struct shape dims;
    bool is_zero;
    struct str filename;
};

static void check_initial_data(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    const struct initial_state *initial = object;
    if (initial->is_zero == (initial->filename.len > 0)) {
        doc_reader_fail(reader, node->parent, "expected one of zero_data: true and data_file");
    }
}

static const struct doc_member INITIAL_STATE[] = {
    {"name", MEMBER_TEXT(struct initial_state, name)},
    {"data_type",
     MEMBER_CUSTOM_FIELD(struct initial_state, datatype, enum datatype, read_required_datatype),
     .form = DATATYPE},
    {"dims", MEMBER_CUSTOM_FIELD(struct initial_state, dims, struct shape, read_fixed_dims),
     .form = "sizes of 1 or more"},
    {"zero_data", MEMBER_BOOL(struct initial_state, is_zero)},
    {"data_file", MEMBER_CUSTOM_FIELD(struct initial_state, filename, struct str, read_filename),
     .form = "a file in the model's folder initial_state", .check = check_initial_data},
    {0}};

static void check_initial_state(struct doc_reader *reader, const struct doc_node *node,
                                const struct model_state *state,
                                const struct initial_state *initial) {
    if (initial->datatype != state->datatype) {
        doc_reader_fail(reader, node, "its data_type is %s, that of the state %s",
                        datatype_config_name(initial->datatype),
                        datatype_config_name(state->datatype));
    }
    if (!shape_matches(initial->dims, state->dims)) {
        char own[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
        doc_reader_fail(reader, node, "its dims are %s, which do not fit those of the state, %s",
                        shape_print(initial->dims, own), shape_print(state->dims, expected));
    }
}

static void read_initial_state(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    struct model_state *out = object;
    if (doc_count(node) > 1) {
        doc_reader_fail(reader, node, "expected at most one initial_state, got %zu",
                        doc_count(node));
    }
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        struct initial_state initial = {.is_zero = false};
        doc_reader_object(reader, &item, INITIAL_STATE, &initial);
        if (doc_reader_ok(reader)) {
            check_initial_state(reader, &item, out, &initial);
        }
        out->has_initial = true;
        out->initial_name = initial.name;
        out->initial_dims = initial.dims;
        out->initial_file = initial.filename;
    }
}

static void check_state_dims(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct model_state *state = object;
    if (state->dims.rank == 0) {
        doc_reader_fail(reader, node->parent, "has no dims");
    }
}

static void read_state_dims(struct doc_reader *reader, const struct doc_node *node, void *out) {
    read_dims(reader, node, out);
}

static const struct doc_member STATE[] = {
    {"input_name", MEMBER_CUSTOM_FIELD(struct model_state, input_name, struct str, read_name),
     .form = "text, required"},
    {"output_name", MEMBER_CUSTOM_FIELD(struct model_state, output_name, struct str, read_name),
     .form = "text, required"},
    {"data_type",
     MEMBER_CUSTOM_FIELD(struct model_state, datatype, enum datatype, read_required_datatype),
     .form = DATATYPE},
    {"dims", MEMBER_CUSTOM_FIELD(struct model_state, dims, struct shape, read_state_dims),
     .form = DIMS, .check = check_state_dims},
    {"initial_state", MEMBER_CUSTOM(read_initial_state), .members = INITIAL_STATE},
    {"use_same_buffer_for_input_output", MEMBER_BOOL(struct model_state, same_buffer)},
    {"use_growable_memory", MEMBER_BOOL(struct model_state, growable)},
    {0}};

/* A state's output may be an output of the model too, which clients then see. */
static void check_state(struct doc_reader *reader, const struct doc_node *node,
                        const struct model_config *config, const struct model_state *states,
                        size_t i) {
    const struct model_state *state = &states[i];
    for (size_t j = 0; j < config->n_inputs; j++) {
        if (str_eq(config->inputs[j].name, state->input_name)) {
            doc_reader_fail(reader, node, "input_name \"%.*s\" is an input that clients send",
                            STR_ARG(state->input_name));
        }
    }
    for (size_t j = 0; j < config->sequences.n_controls; j++) {
        if (str_eq(config->sequences.controls[j].name, state->input_name)) {
            doc_reader_fail(reader, node, "input_name \"%.*s\" is a control_input",
                            STR_ARG(state->input_name));
        }
    }
    for (size_t j = 0; j < i; j++) {
        if (str_eq(states[j].input_name, state->input_name) ||
            str_eq(states[j].output_name, state->output_name)) {
            doc_reader_fail(reader, node, "another state has the same input_name or output_name");
        }
    }
}

static void read_states(struct doc_reader *reader, const struct doc_node *node, void *object) {
    enum { MAX_STATES = 1024 }; /* each request has an input and an output of each */
    struct model_config *out = object;
    check_count(reader, node, MAX_STATES);
    struct model_state *states =
        doc_reader_list(reader, node, sizeof(*states), &out->sequences.n_states);
    out->sequences.states = states;
    struct doc_node item = {0};
    for (size_t i = 0; doc_reader_next(reader, node, &item); i++) {
        char place[DOC_PLACE_BYTES];
        doc_reader_object(reader, &item, STATE, &states[i]);
        if (!doc_reader_ok(reader)) {
            return;
        }
        check_state(reader, &item, out, states, i);
        states[i].origin = arena_printf(reader->arena, "sequence_batching.state[%zu] in %s", i,
                                        doc_place_print(&item, place));
        if (!states[i].origin.ptr) {
            doc_reader_no_memory(reader);
        }
    }
}

/* ---- sequence_batching --------------------------------------------------------------------- */

static const struct doc_member DIRECT[] = {
    {"max_queue_delay_microseconds",
     MEMBER_WHOLE(struct model_config, max_queue_delay_us, 0, INT64_MAX)},
    {"minimum_slot_utilization",
     MEMBER_SHARE(struct model_config, sequences.min_utilization, true)},
    {0}};

static const struct doc_member OLDEST[] = {
    {"max_queue_delay_microseconds",
     MEMBER_WHOLE(struct model_config, max_queue_delay_us, 0, INT64_MAX)},
    {"preferred_batch_size", MEMBER_CUSTOM(read_preferred), .form = SIZES},
    {"preserve_ordering", MEMBER_BOOL(struct model_config, preserve_ordering)},
    {"max_candidate_sequences",
     MEMBER_WHOLE(struct model_config, sequences.max_candidates, 0, INT32_MAX)},
    {0}};

enum { DEFAULT_IDLE_US = 1000000 };

static const struct doc_member SEQUENCES[] = {
    {"max_sequence_idle_microseconds",
     MEMBER_WHOLE(struct model_config, sequences.idle_us, 0, INT64_MAX), .preset = DEFAULT_IDLE_US},
    {"control_input", MEMBER_CUSTOM(read_controls), .members = CONTROL_INPUT},
    {"direct", MEMBER_OBJECT(DIRECT)},
    {"oldest", MEMBER_OBJECT(OLDEST)},
    {"state", MEMBER_CUSTOM(read_states), .members = STATE},
    {"iterative_sequence", MEMBER_BOOL(struct model_config, sequences.iterative)},
    {0}};

static void read_sequences(struct doc_reader *reader, const struct doc_node *node, void *object) {
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

/* ---- responses ------------------------------------------------------------------------------- */

static void check_decoupled(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct model_config *config = object;
    if (config->decoupled && config->preserve_ordering) {
        doc_reader_fail(reader, node,
                        "a decoupled model sends responses as they are made: preserve_ordering "
                        "must not be true");
    }
}

static void check_response_cache(struct doc_reader *reader, const struct doc_node *node,
                                 void *object) {
    const struct model_config *config = object;
    if (config->response_cache && config->decoupled) {
        doc_reader_fail(reader, node,
                        "responses of a decoupled model can't be cached: response_cache must not "
                        "be enabled");
    }
    if (config->response_cache && config->sequences.strategy != SEQUENCES_NONE) {
        doc_reader_fail(reader, node,
                        "responses to requests of sequences can't be cached: response_cache must "
                        "not be enabled");
    }
}

static const struct doc_member TRANSACTION_POLICY[] = {
    {"decoupled", MEMBER_BOOL(struct model_config, decoupled), .check = check_decoupled}, {0}};
static const struct doc_member RESPONSE_CACHE[] = {
    {"enable", MEMBER_BOOL(struct model_config, response_cache), .check = check_response_cache},
    {0}};

/* ---- backend --------------------------------------------------------------------------------- */

struct platform {
    const char *name;
    const char *backend;
};

static const struct platform platforms[] = {
    {"onnxruntime_onnx", "onnxruntime"},     {"openvino", "openvino"},
    {"tensorrt_plan", "tensorrt"},           {"tensorflow_graphdef", "tensorflow"},
    {"tensorflow_savedmodel", "tensorflow"}, {"pytorch_libtorch", "pytorch"},
    {ENSEMBLE_PLATFORM, ENSEMBLE_PLATFORM},
};

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

static void check_backend(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct model_config *config = object;
    if (config->backend.len > 0 && !backend_name_is_valid(config->backend)) {
        doc_reader_fail(reader, node,
                        "\"%.*s\" is not the name of a backend: those are made of a-z, 0-9, _ and "
                        "-",
                        STR_ARG(config->backend));
    }
}

/* Derives the backend from the platform. */
static void check_platform(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++) {
        if (!str_is(out->platform, platforms[i].name)) {
            continue;
        }
        if (out->backend.len > 0 && !str_is(out->backend, platforms[i].backend)) {
            doc_reader_fail(reader, node, "belongs to backend \"%s\", but backend is \"%.*s\"",
                            platforms[i].backend, STR_ARG(out->backend));
        }
        out->backend = str_of(platforms[i].backend);
    }
    if (out->platform.len > 0 && out->backend.len == 0) {
        doc_reader_fail(reader, node,
                        "\"%.*s\" is no known platform (onnxruntime_onnx is one); name the backend "
                        "with `backend:` instead",
                        STR_ARG(out->platform));
    }
}

/* ---- optimization ---------------------------------------------------------------------------- */

static const char *const PRIORITIES[] = {"PRIORITY_DEFAULT", NULL};
static const char NO_GPUS[] = "there are no GPUs";

static const struct doc_member GRAPH[] = {
    {"level", MEMBER_WHOLE(struct model_config, graph_level, GRAPH_LEVEL_MIN, GRAPH_LEVEL_MAX)},
    {0}};

static const struct doc_member OPTIMIZATION[] = {
    {"graph", MEMBER_OBJECT(GRAPH)},
    {"priority", .words = PRIORITIES, MEMBER_IGNORED("instances have one priority")},
    {"cuda", MEMBER_IGNORED(NO_GPUS)},
    {"execution_accelerators", MEMBER_IGNORED("the backend runs on CPUs by itself")},
    {"input_pinned_memory", MEMBER_IGNORED(NO_GPUS)},
    {"output_pinned_memory", MEMBER_IGNORED(NO_GPUS)},
    {"gather_kernel_buffer_threshold", MEMBER_IGNORED(NO_GPUS)},
    {"eager_batching", MEMBER_IGNORED("a batch is formed when an instance is idle")},
    {0}};

/* ---- model_operations ------------------------------------------------------------------------ */

static void read_libraries(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    check_count(reader, node, MAX_PARAMS);
    struct model_config_library *libraries =
        doc_reader_list(reader, node, sizeof(*libraries), &out->n_libraries);
    out->libraries = libraries;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item); libraries++) {
        doc_reader_text(reader, &item, &libraries->filename);
        libraries->place = doc_reader_place(reader, &item);
        if (libraries->filename.len == 0) {
            doc_reader_fail(reader, &item, "expected the path of a library");
        }
    }
}

static const struct doc_member OPERATIONS[] = {
    {"op_library_filename", MEMBER_CUSTOM(read_libraries),
     .form = "paths of libraries, in the model's directory or one of --op-library-dir"},
    {0}};

/* ---- model_repository_agents ----------------------------------------------------------------- */

static void read_agent_name(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct str name = STR("");
    (void)object;
    doc_reader_view(reader, node, &name);
    if (!str_is(name, "checksum")) {
        doc_reader_fail(reader, node->val ? node : node->parent,
                        "there is no repository agent \"%.*s\" here; the only one is checksum",
                        STR_ARG(name));
    }
}

/* "MD5:FILE" */
static void read_checksum_key(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str *filename = out, key = STR("");
    doc_reader_text(reader, node, &key);
    struct str rest = key;
    struct str algorithm = str_cut(&rest, ':');
    if (!rest.ptr || rest.len == 0) {
        doc_reader_fail(reader, node->val ? node : node->parent,
                        "expected MD5:FILE, FILE being below the model's directory, got \"%.*s\"",
                        STR_ARG(key));
    } else if (!str_eq_nocase(algorithm, STR("md5"))) {
        doc_reader_fail(reader, node, "unknown digest \"%.*s\"; the only one is MD5",
                        STR_ARG(algorithm));
    } else {
        *filename = rest;
        check_inside(reader, node, rest);
    }
}

static void read_digest(struct doc_reader *reader, const struct doc_node *node, void *out) {
    enum { MD5_DIGITS = 32 };
    struct str digest = STR("");
    doc_reader_view(reader, node, &digest);
    size_t n = 0;
    while (n < digest.len && isxdigit((unsigned char)digest.ptr[n])) {
        n++;
    }
    if (digest.len != MD5_DIGITS || n != digest.len) {
        doc_reader_fail(reader, node->val ? node : node->parent,
                        "expected the MD5 digest of the file, 32 hexadecimal digits, got "
                        "\"%.*s\"",
                        STR_ARG(digest));
    }
    doc_reader_dup_lower(reader, digest, out);
}

static const struct doc_member CHECKSUM[] = {
    {"key",
     MEMBER_CUSTOM_FIELD(struct model_config_checksum, filename, struct str, read_checksum_key),
     .form = "MD5:FILE, FILE being a path below the model's directory"},
    {"value", MEMBER_CUSTOM_FIELD(struct model_config_checksum, md5, struct str, read_digest),
     .form = "the digest, 32 hexadecimal digits"},
    {0}};

/* Appends to the checksums of the agents before it. */
static void read_checksums(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    check_count(reader, node, MAX_PARAMS);
    size_t n = out->n_checksums + doc_count(node);
    struct model_config_checksum *checksums = doc_reader_calloc(reader, n, sizeof(*checksums));
    if (!checksums) {
        return;
    }
    for (size_t i = 0; i < out->n_checksums; i++) {
        checksums[i] = out->checksums[i];
    }
    out->checksums = checksums;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        struct model_config_checksum *checksum = &checksums[out->n_checksums++];
        doc_reader_object(reader, &item, CHECKSUM, checksum);
        checksum->place = doc_reader_place(reader, &item);
    }
}

static const struct doc_member AGENT[] = {
    {"name", MEMBER_CUSTOM(read_agent_name), .form = "checksum"},
    {"parameters", MEMBER_CUSTOM(read_checksums), .members = CHECKSUM},
    {0}};

enum { MAX_AGENTS = 64 };

static void read_agents(struct doc_reader *reader, const struct doc_node *node, void *object) {
    check_count(reader, node, MAX_AGENTS);
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        doc_reader_object(reader, &item, AGENT, object);
    }
}

static const struct doc_member AGENTS[] = {{"agents", MEMBER_CUSTOM(read_agents), .members = AGENT},
                                           {0}};

/* ---- ensembles ------------------------------------------------------------------------------- */

/* Fields that say how instances run: an ensemble has none. */
static void refuse_for_ensemble(struct doc_reader *reader, const struct doc_node *root) {
    static const char *const fields[] = {"instance_group", "dynamic_batching", "sequence_batching",
                                         "model_warmup",   "batch_input",      "batch_output"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct doc_node node = doc_get(root, fields[i]);
        if (doc_is_present(&node) && doc_count(&node) > 0) {
            doc_reader_fail(reader, &node,
                            "an ensemble has no instances of its own: this belongs into the "
                            "configuration of its members");
        }
    }
}

static void read_ensemble(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct model_config *out = object;
    bool is_ensemble = str_is(out->backend, ENSEMBLE_PLATFORM);
    if (doc_is_present(node) && !is_ensemble) {
        doc_reader_fail(reader, node,
                        "a model with steps is an ensemble: expected platform: \"ensemble\"");
    }
    if (is_ensemble) {
        refuse_for_ensemble(reader, node->parent);
        if (out->n_paddings > 0) {
            doc_reader_fail(reader, node->parent,
                            "an ensemble pads nothing: parameter \"%.*s\" belongs to its members",
                            STR_ARG(out->paddings[0].param));
        }
        ensemble_read(reader, node, out);
        out->platform = STR(ENSEMBLE_PLATFORM);
    }
}

/* ---- model_metrics --------------------------------------------------------------------------- */

enum { MAX_BOUNDS = 100, US_PER_MS = 1000 };

struct metric_control {
    struct str family;
    const uint64_t *bounds;
    size_t n;
};

static const char BOUNDS[] = "milliseconds above 0, ascending, at most 100";

static void read_bounds(struct doc_reader *reader, const struct doc_node *list, void *object) {
    struct metric_control *out = object;
    check_count(reader, list, MAX_BOUNDS);
    uint64_t *bounds = doc_reader_list(reader, list, sizeof(*bounds), &out->n), before = 0;
    out->bounds = bounds;
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item); bounds++) {
        double ms = 0;
        doc_reader_f64(reader, &item, &ms);
        if (doc_reader_ok(reader) && !(ms > 0 && ms < 1e12)) {
            doc_reader_fail(reader, &item, "expected %s", BOUNDS);
        }
        if (!doc_reader_ok(reader)) {
            return;
        }
        *bounds = (uint64_t)(ms * US_PER_MS + 0.5);
        if (*bounds <= before) {
            doc_reader_fail(reader, &item, "expected %s", BOUNDS);
        }
        before = *bounds;
    }
}

static void read_family(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct metric_control *out = object;
    doc_reader_view(reader, node, &out->family);
    if (doc_reader_ok(reader) && !str_is(out->family, "nv_inference_first_response_histogram_ms")) {
        doc_reader_fail(reader, node,
                        "expected nv_inference_first_response_histogram_ms, got "
                        "\"%.*s\"",
                        STR_ARG(out->family));
    }
}

static const struct doc_member METRIC_IDENTIFIER[] = {
    {"family", MEMBER_CUSTOM(read_family), .form = "nv_inference_first_response_histogram_ms"},
    {0}};

static const struct doc_member HISTOGRAM_OPTIONS[] = {
    {"buckets", MEMBER_CUSTOM(read_bounds), .form = BOUNDS}, {0}};

static const struct doc_member METRIC_CONTROL[] = {
    {"metric_identifier", MEMBER_OBJECT(METRIC_IDENTIFIER)},
    {"histogram_options", MEMBER_OBJECT(HISTOGRAM_OPTIONS)},
    {0}};

static void read_metric_controls(struct doc_reader *reader, const struct doc_node *node,
                                 void *object) {
    struct model_config *out = object;
    for (struct doc_node item = {0}; doc_reader_next(reader, node, &item);) {
        struct metric_control control = {0};
        doc_reader_object(reader, &item, METRIC_CONTROL, &control);
        if (doc_reader_ok(reader) && control.family.len == 0) {
            doc_reader_fail(reader, &item, "has no metric_identifier with a family");
        }
        if (doc_reader_ok(reader) && out->n_first_response_bounds > 0) {
            doc_reader_fail(reader, &item, "is the second one of its family");
        }
        out->first_response_bounds = control.bounds;
        out->n_first_response_bounds = control.n;
    }
}

static const struct doc_member METRICS[] = {
    {"metric_control", MEMBER_CUSTOM(read_metric_controls), .members = METRIC_CONTROL}, {0}};

/* ---- top level ------------------------------------------------------------------------------- */

static void note_max_batch_size(struct doc_reader *reader, const struct doc_node *node,
                                void *object) {
    struct model_config *out = object;
    (void)reader;
    out->has_max_batch_size = node->val != NULL;
}

/* Members that exclude others come after them. `.form` of a member with a function of its own is
 * what it takes, for docs/models.md. */
static const struct doc_member MODEL[] = {
    {"name", MEMBER_TEXT(struct model_config, name)},
    {"backend", MEMBER_TEXT(struct model_config, backend), .check = check_backend},
    {"platform", MEMBER_TEXT(struct model_config, platform), .check = check_platform},
    {"max_batch_size", MEMBER_WHOLE(struct model_config, max_batch_size, 0, MAX_BATCH_SIZE),
     .check = note_max_batch_size},
    {"default_model_filename",
     MEMBER_CUSTOM_FIELD(struct model_config, default_filename, struct str, read_filename),
     .form = FILENAME},
    {"input", MEMBER_CUSTOM(read_inputs), .members = INPUT},
    {"output", MEMBER_CUSTOM(read_outputs), .members = OUTPUT},
    {"version_policy", MEMBER_CUSTOM(read_version_policy), .members = VERSION_POLICY},
    {"instance_group", MEMBER_CUSTOM(read_instances), .members = INSTANCE_GROUP},
    {"dynamic_batching", MEMBER_CUSTOM(read_batching), .members = DYNAMIC_BATCHING},
    {"sequence_batching", MEMBER_CUSTOM(read_sequences), .members = SEQUENCES},
    {"model_warmup", MEMBER_CUSTOM(read_warmups), .members = WARMUP},
    {"model_transaction_policy", MEMBER_OBJECT(TRANSACTION_POLICY)},
    {"response_cache", MEMBER_OBJECT(RESPONSE_CACHE)},
    {"parameters", MEMBER_CUSTOM(read_params), .members = PARAMETER},
    {"runtime", MEMBER_IGNORED("the backend's own library is used")},
    {"batch_input", MEMBER_CUSTOM(read_batch_inputs), .members = BATCH_INPUT},
    {"batch_output", MEMBER_CUSTOM(read_batch_outputs), .members = BATCH_OUTPUT},
    {"optimization", MEMBER_OBJECT(OPTIMIZATION)},
    {"ensemble_scheduling", MEMBER_CUSTOM(read_ensemble), .members = ENSEMBLE_SCHEDULING},
    {"cc_model_filenames", MEMBER_IGNORED("there are no GPUs to choose a file for")},
    {"metric_tags", MEMBER_IGNORED("metrics carry no labels of the model's own")},
    {"model_operations", MEMBER_OBJECT(OPERATIONS)},
    {"model_repository_agents", MEMBER_OBJECT(AGENTS)},
    {"model_metrics", MEMBER_OBJECT(METRICS)},
    {0}};

const struct doc_member *model_config_members(void) {
    return MODEL;
}

enum status model_config_read(struct arena *arena, const struct doc *doc,
                              const struct model_config_rules *rules, struct model_config *out,
                              struct error *err) {
    struct doc_reader reader = {.arena = arena,
                                .what = "the model's configuration",
                                .on_ignored = warn_ignored,
                                .err = err};
    struct doc_node root = doc_root(doc);
    *out = (struct model_config){.policy = VERSIONS_LATEST,
                                 .gpu_models_on_cpu = rules && rules->gpu_models_on_cpu};
    doc_reader_presets(LATEST, out);
    doc_reader_object(&reader, &root, MODEL, out);
    return reader.status;
}
