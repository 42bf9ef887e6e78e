/* Public requests of KServe v2 to the internal structs, and answers to public structs. Texts are
 * copied to get their NUL. */
#include "client/convert.h"

#include <string.h>

#include "client/sized_struct.h"

#include "core/tensor/tensor.h"

/* ---- public requests to internal structs ----------------------------------------------------- */

/* Public and internal ids of datatypes and parameter kinds are equal. */
_Static_assert((int)SLUICE_BOOL == (int)DT_BOOL && (int)SLUICE_BF16 == (int)DT_BF16 &&
                   (int)SLUICE_BYTES == (int)DT_BYTES,
               "ids of datatype.def differ from sluice/types.h");
_Static_assert((int)SLUICE_PARAM_BOOL == (int)PARAM_BOOL &&
                   (int)SLUICE_PARAM_INT64 == (int)PARAM_INT64 &&
                   (int)SLUICE_PARAM_UINT64 == (int)PARAM_UINT64 &&
                   (int)SLUICE_PARAM_DOUBLE == (int)PARAM_DOUBLE &&
                   (int)SLUICE_PARAM_STRING == (int)PARAM_STRING,
               "kinds of param.h differ from sluice/client.h");

/* Schedule policy extension, "timeout": in microseconds. */
static void add_timeout(struct params *params, struct param *last, uint64_t timeout_us) {
    static const struct str TIMEOUT = {"timeout", 7};
    for (size_t i = 0; i < params->n; i++) {
        if (str_eq(params->items[i].name, TIMEOUT)) {
            return;
        }
    }
    int64_t value = timeout_us < INT64_MAX ? (int64_t)timeout_us : INT64_MAX;
    *last = (struct param){.name = TIMEOUT, .kind = PARAM_INT64, .int64 = value};
    params->n++;
}

static enum status import_params(struct arena *arena, const sluice_infer_request *request,
                                 uint64_t timeout_us, struct params *out, struct error *err) {
    struct param *items = arena_calloc(arena, request->n_params + 1, sizeof(*items));
    if (!items) {
        return error_no_memory(err, "a call");
    }
    for (size_t i = 0; i < request->n_params; i++) {
        sluice_parameter from;
        enum status status =
            sized_array_read(&from, sizeof(from), request->params, i, "sluice_parameter", err);
        if (status != ST_OK) {
            return status;
        }
        if (!from.name) {
            return error_set(err, ST_BAD_FIELD, "parameter %zu has no name", i);
        }
        items[i] = (struct param){.name = str_of(from.name),
                                  .kind = (enum param_kind)from.kind,
                                  .boolean = from.boolean != 0,
                                  .int64 = from.int64,
                                  .uint64 = from.uint64,
                                  .number = from.number,
                                  .string = str_make(from.string, from.string_bytes)};
    }
    *out = (struct params){items, request->n_params};
    if (timeout_us > 0) {
        add_timeout(out, &items[request->n_params], timeout_us);
    }
    return ST_OK;
}

/* The bytes are the caller's, or in shared memory. */
static enum status set_bytes(struct arena *arena, const sluice_tensor *from,
                             struct infer_input *out, struct error *err) {
    uint64_t expected = 0;
    if (!from->shm_region) {
        struct piece *piece = arena_alloc(arena, sizeof(*piece));
        if (!piece) {
            return error_no_memory(err, "a call");
        }
        *piece = (struct piece){from->data, from->n_bytes};
        out->tensor.pieces = piece;
        out->tensor.n_pieces = 1;
        out->tensor.n_bytes = from->n_bytes;
        return ST_OK;
    }
    if (from->data) {
        return error_set(err, ST_BAD_FIELD, "input \"%s\" has both data and shm_region",
                         from->name);
    }
    if (out->tensor.datatype != DT_BYTES &&
        (!shape_bytes(out->tensor.shape, out->tensor.datatype, &expected) ||
         expected != from->n_bytes)) {
        return error_set(err, ST_BAD_DATA, "input \"%s\": %zu bytes don't fit its shape",
                         from->name, from->n_bytes);
    }
    out->region = (struct infer_region){str_of(from->shm_region), from->shm_offset, from->n_bytes};
    return ST_OK;
}

static enum status import_tensor(struct arena *arena, const sluice_tensor *from, size_t index,
                                 struct infer_input *out, struct error *err) {
    bool lacks_data = from->n_bytes > 0 && !from->data && !from->shm_region;
    if (!from->name || (from->rank > 0 && !from->dims) || lacks_data) {
        return error_set(err, ST_BAD_FIELD, "input %zu lacks its name, dims or data", index);
    }
    if ((int)from->datatype <= (int)DT_INVALID || (int)from->datatype >= (int)DT_COUNT_) {
        return error_set(err, ST_BAD_DATATYPE, "input \"%s\": unknown datatype %d", from->name,
                         (int)from->datatype);
    }
    if (from->rank > SHAPE_MAX_RANK) {
        return error_set(err, ST_BAD_SHAPE,
                         "input \"%s\" has %zu dimensions; at most %d are supported", from->name,
                         from->rank, SHAPE_MAX_RANK);
    }
    out->tensor = (struct tensor){.name = str_of(from->name),
                                  .datatype = (enum datatype)from->datatype,
                                  .shape = {from->dims, from->rank}};
    return set_bytes(arena, from, out, err);
}

static enum status import_inputs(struct arena *arena, const sluice_infer_request *request,
                                 struct infer_request *out, struct error *err) {
    out->n_inputs = request->n_inputs;
    out->inputs = arena_calloc(arena, request->n_inputs, sizeof(*out->inputs));
    if (!out->inputs) {
        return error_no_memory(err, "a call");
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < request->n_inputs && status == ST_OK; i++) {
        sluice_tensor from;
        status = sized_array_read(&from, sizeof(from), request->inputs, i, "sluice_tensor", err);
        if (status == ST_OK) {
            status = import_tensor(arena, &from, i, &out->inputs[i], err);
        }
    }
    return status;
}

/* Copies the caller's elements. Returns: ST_BAD_FIELD if some have names and others have none. */
static enum status import_buffers(struct arena *arena, const sluice_infer_request *request,
                                  struct client_buffers *out, struct error *err) {
    sluice_wanted *items = arena_calloc(arena, request->n_wanted, sizeof(*items));
    *out = (struct client_buffers){0};
    if (!items) {
        return error_no_memory(err, "a call");
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        enum status status =
            sized_array_read(&items[i], sizeof(*items), request->wanted, i, "sluice_wanted", err);
        if (status != ST_OK) {
            return status;
        }
        if (!items[i].name != !items[0].name) {
            return error_set(err, ST_BAD_FIELD,
                             "output %zu %s a name, unlike the first: either all wanted outputs "
                             "have names or none has",
                             i, items[i].name ? "has" : "lacks");
        }
        if ((items[i].n_classes > 0 || items[i].shm_region) && !items[i].name) {
            return error_set(err, ST_BAD_FIELD, "output %zu: n_classes and shm_region need a name",
                             i);
        }
        if (items[i].shm_region && (items[i].n_classes > 0 || items[i].data)) {
            return error_set(err, ST_BAD_FIELD,
                             "output %zu: shm_region excludes n_classes and data", i);
        }
        out->has_shm |= items[i].shm_region != NULL;
    }
    out->items = items;
    out->n = request->n_wanted;
    return ST_OK;
}

/* The names of the outputs, if the caller has given them. */
static enum status import_outputs(struct arena *arena, const struct client_buffers *buffers,
                                  struct infer_request *out, struct error *err) {
    out->n_wanted = buffers->n > 0 && buffers->items[0].name ? buffers->n : 0;
    out->wanted = arena_calloc(arena, out->n_wanted, sizeof(*out->wanted));
    if (!out->wanted) {
        return error_no_memory(err, "a call");
    }
    for (size_t i = 0; i < out->n_wanted; i++) {
        const sluice_wanted *from = &buffers->items[i];
        out->wanted[i].name = str_of(from->name);
        out->wanted[i].n_classes = from->n_classes;
        if (from->shm_region) {
            out->wanted[i].region =
                (struct infer_region){str_of(from->shm_region), from->shm_offset, from->shm_bytes};
        }
    }
    return ST_OK;
}

enum status client_infer_import(struct arena *arena, const sluice_infer_request *request,
                                uint64_t timeout_us, struct client_infer *out,
                                struct client_buffers *buffers, struct error *err) {
    struct v2_request *made = arena_calloc(arena, 1, sizeof(*made));
    if (!made) {
        return error_no_memory(err, "a call");
    }
    if (!request->model) {
        return error_set(err, ST_BAD_FIELD, "the request names no model");
    }
    if ((int)request->form < 0 || request->form > SLUICE_FORM_RAW) {
        return error_set(err, ST_BAD_FIELD, "unknown form %d", (int)request->form);
    }
    made->infer.arena = arena;
    made->infer.id = request->id ? str_of(request->id) : STR("");
    made->binary_default = request->form == SLUICE_FORM_BINARY;
    *out = (struct client_infer){.model = str_of(request->model),
                                 .version = str_of(request->version),
                                 .request = made,
                                 .raw = request->form == SLUICE_FORM_RAW};
    enum status status = import_inputs(arena, request, &made->infer, err);
    if (status == ST_OK) {
        status = import_buffers(arena, request, buffers, err);
    }
    if (status == ST_OK) {
        status = import_outputs(arena, buffers, &made->infer, err);
    }
    if (status == ST_OK) {
        status = import_params(arena, request, timeout_us, &made->infer.params, err);
    }
    if (status == ST_OK && request->form == SLUICE_FORM_JSON) {
        out->forms = v2_forms_all(arena, request->n_inputs, V2_FORM_JSON);
        status = out->forms ? ST_OK : error_no_memory(err, "a call");
    }
    return status;
}

/* ---- answers to public structs --------------------------------------------------------------- */

/* Makes a NUL-terminated copy. */
static enum status export_text(struct arena *arena, struct str text, const char **out,
                               struct error *err) {
    if (text.len > 0 && memchr(text.ptr, '\0', text.len)) {
        return error_set(err, ST_BAD_ANSWER, "the server's answer has a name with a NUL in it");
    }
    struct str copy = arena_dup(arena, text);
    *out = copy.ptr;
    return copy.ptr ? ST_OK : error_no_memory(err, "a call");
}

/* The bytes of a tensor in one piece, copied if there are several. */
static enum status export_data(struct arena *arena, const struct tensor *tensor, const void **out,
                               struct error *err) {
    if (tensor->n_pieces <= 1) {
        *out = tensor->n_pieces == 1 ? tensor->pieces[0].data : "";
        return ST_OK;
    }
    char *all = arena_alloc(arena, tensor->n_bytes);
    if (!all) {
        return error_no_memory(err, "a call");
    }
    pieces_copy(tensor->pieces, tensor->n_pieces, all, tensor->n_bytes);
    *out = all;
    return ST_OK;
}

/* The same, into the caller's buffer. */
static enum status export_data_copy(const struct tensor *tensor, size_t index,
                                    const sluice_wanted *buffer, const void **out,
                                    struct error *err) {
    char name[QUOTED_NAME_BYTES];
    if (tensor->n_bytes > buffer->n_bytes) {
        return error_set(err, ST_NO_ROOM, "output %zu (%s) has %zu bytes, and its buffer only %zu",
                         index, quote_name(tensor->name, name), tensor->n_bytes, buffer->n_bytes);
    }
    pieces_copy(tensor->pieces, tensor->n_pieces, buffer->data, tensor->n_bytes);
    *out = buffer->data;
    return ST_OK;
}

/* What the caller said about an output. Returns: NULL: nothing. */
static const sluice_wanted *wanted_for(struct client_buffers buffers, size_t index,
                                       struct str name) {
    if (buffers.n == 0 || !buffers.items[0].name) {
        return index < buffers.n ? &buffers.items[index] : NULL;
    }
    for (size_t i = 0; i < buffers.n && buffers.items[i].name; i++) {
        if (str_is(name, buffers.items[i].name)) {
            return &buffers.items[i];
        }
    }
    return NULL;
}

/* An output that the server has written to shared memory. */
static enum status export_region(const struct tensor *from, const sluice_wanted *wanted,
                                 sluice_tensor *out, struct error *err) {
    char name[QUOTED_NAME_BYTES];
    uint64_t n_bytes = wanted ? wanted->shm_bytes : 0;
    if (!wanted || !wanted->shm_region) {
        return error_set(err, ST_BAD_ANSWER, "the server's answer: output %s has no data",
                         quote_name(from->name, name));
    }
    if (from->datatype != DT_BYTES &&
        (!shape_bytes(from->shape, from->datatype, &n_bytes) || n_bytes > wanted->shm_bytes)) {
        return error_set(err, ST_BAD_ANSWER,
                         "the server's answer: output %s does not fit its %llu bytes of shared "
                         "memory",
                         quote_name(from->name, name), (unsigned long long)wanted->shm_bytes);
    }
    out->shm_region = wanted->shm_region;
    out->shm_offset = wanted->shm_offset;
    out->n_bytes = (size_t)n_bytes;
    return ST_OK;
}

static enum status export_output(struct arena *arena, const struct v2_client_response *answer,
                                 size_t index, const sluice_wanted *wanted, sluice_tensor *out,
                                 struct error *err) {
    const struct tensor *from = &answer->infer.outputs[index];
    *out = (sluice_tensor){.size = sizeof(*out),
                           .datatype = (sluice_datatype)from->datatype,
                           .dims = from->shape.dims,
                           .rank = from->shape.rank,
                           .n_bytes = from->n_bytes};
    enum status status = export_text(arena, from->name, &out->name, err);
    if (status != ST_OK) {
        return status;
    }
    if (answer->forms && answer->forms[index] == V2_FORM_DEFAULT) {
        return export_region(from, wanted, out, err);
    }
    return wanted && wanted->data ? export_data_copy(from, index, wanted, &out->data, err)
                                  : export_data(arena, from, &out->data, err);
}

static enum status export_outputs(struct arena *arena, const struct v2_client_response *answer,
                                  struct client_buffers buffers, struct client_answer *out,
                                  struct error *err) {
    const struct infer_response *response = &answer->infer;
    sluice_tensor *outputs = arena_calloc(arena, response->n_outputs, sizeof(*outputs));
    if (!outputs) {
        return error_no_memory(err, "a call");
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < response->n_outputs && status == ST_OK; i++) {
        const sluice_wanted *wanted = wanted_for(buffers, i, response->outputs[i].name);
        status = export_output(arena, answer, i, wanted, &outputs[i], err);
    }
    out->outputs = outputs;
    out->info.n_outputs = response->n_outputs;
    return status;
}

static enum status export_params(struct arena *arena, struct params params,
                                 struct client_answer *out, struct error *err) {
    sluice_parameter *items = arena_calloc(arena, params.n, sizeof(*items));
    if (!items) {
        return error_no_memory(err, "a call");
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < params.n && status == ST_OK; i++) {
        const struct param *from = &params.items[i];
        items[i] = (sluice_parameter){.size = sizeof(*items),
                                      .kind = (sluice_param_kind)from->kind,
                                      .boolean = from->boolean,
                                      .int64 = from->int64,
                                      .uint64 = from->uint64,
                                      .number = from->number,
                                      .string_bytes = from->string.len};
        items[i].string = arena_dup(arena, from->string).ptr; /* may contain NULs */
        status = items[i].string ? export_text(arena, from->name, &items[i].name, err)
                                 : error_no_memory(err, "a call");
    }
    out->params = items;
    out->info.n_params = params.n;
    return status;
}

enum status client_answer_export(struct arena *arena, const struct v2_client_response *answer,
                                 struct client_buffers buffers, struct client_answer *out,
                                 struct error *err) {
    out->info = (sluice_answer_info){.size = sizeof(out->info)};
    enum status status = export_text(arena, answer->id, &out->info.id, err);
    if (status == ST_OK) {
        status = export_text(arena, answer->model_name, &out->info.model, err);
    }
    if (status == ST_OK) {
        status = export_text(arena, answer->model_version, &out->info.version, err);
    }
    if (status == ST_OK) {
        status = export_outputs(arena, answer, buffers, out, err);
    }
    return status == ST_OK ? export_params(arena, answer->infer.params, out, err) : status;
}

static enum status export_specs(struct arena *arena, const struct tensor_spec *specs, size_t n,
                                const sluice_tensor_spec **out, struct error *err) {
    sluice_tensor_spec *made = arena_calloc(arena, n, sizeof(*made));
    if (!made) {
        return error_no_memory(err, "a call");
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < n && status == ST_OK; i++) {
        made[i] = (sluice_tensor_spec){.size = sizeof(*made),
                                       .datatype = (sluice_datatype)specs[i].datatype,
                                       .dims = specs[i].shape.dims,
                                       .rank = specs[i].shape.rank};
        status = export_text(arena, specs[i].name, &made[i].name, err);
    }
    *out = made;
    return status;
}

enum status client_model_export(struct arena *arena, const struct model_spec *model,
                                struct client_model *out, struct error *err) {
    sluice_model_metadata *info = &out->info;
    *info = (sluice_model_metadata){
        .size = sizeof(*info), .n_inputs = model->n_inputs, .n_outputs = model->n_outputs};
    enum status status = export_text(arena, model->name, &info->name, err);
    if (status == ST_OK) {
        status = export_text(arena, model->version_text, &info->version, err);
    }
    if (status == ST_OK) {
        status = export_text(arena, model->platform, &info->platform, err);
    }
    if (status == ST_OK) {
        status = export_specs(arena, model->inputs, model->n_inputs, &out->inputs, err);
    }
    if (status == ST_OK) {
        status = export_specs(arena, model->outputs, model->n_outputs, &out->outputs, err);
    }
    return status;
}

enum status client_server_export(struct arena *arena, const struct v2_server_metadata *server,
                                 sluice_server_metadata *out, struct error *err) {
    const char **extensions = arena_calloc(arena, server->n_extensions, sizeof(*extensions));
    if (!extensions) {
        return error_no_memory(err, "a call");
    }
    enum status status = export_text(arena, server->name, &out->name, err);
    if (status == ST_OK) {
        status = export_text(arena, server->version, &out->version, err);
    }
    for (size_t i = 0; i < server->n_extensions && status == ST_OK; i++) {
        status = export_text(arena, server->extensions[i], &extensions[i], err);
    }
    out->extensions = extensions;
    out->n_extensions = server->n_extensions;
    return status;
}
