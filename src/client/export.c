/* What servers of KServe v2 answered to public structs. Texts get their NUL in a copy. */
#include "client/convert.h"

#include <string.h>

#include "core/tensor/pieces.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a call");
}

/* A copy with a NUL behind it. */
static enum status export_text(struct arena *arena, struct str text, const char **out,
                               struct error *err) {
    if (text.len > 0 && memchr(text.ptr, '\0', text.len)) {
        return error_set(err, ST_BAD_ANSWER, "the server's answer has a name with a NUL in it");
    }
    struct str copy = arena_dup(arena, text);
    *out = copy.ptr;
    return copy.ptr ? ST_OK : no_memory(err);
}

/* The bytes of a tensor in one piece: where they are, if that is one. */
static enum status export_data(struct arena *arena, const struct tensor *tensor, const void **out,
                               struct error *err) {
    if (tensor->n_pieces <= 1) {
        *out = tensor->n_pieces == 1 ? tensor->pieces[0].data : "";
        return ST_OK;
    }
    char *all = arena_alloc(arena, tensor->n_bytes);
    if (!all) {
        return no_memory(err);
    }
    pieces_copy(tensor->pieces, tensor->n_pieces, all, tensor->n_bytes);
    *out = all;
    return ST_OK;
}

/* … or where the caller wants them. */
static enum status export_data_copy(const struct tensor *tensor, size_t index,
                                    const sluice_buffer *buffer, const void **out,
                                    struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES];
    if (tensor->n_bytes > buffer->n_bytes) {
        return error_set(err, ST_NO_ROOM, "output %zu (%s) has %zu bytes, and its buffer only %zu",
                         index, tensor_name_print(tensor->name, name), tensor->n_bytes,
                         buffer->n_bytes);
    }
    pieces_copy(tensor->pieces, tensor->n_pieces, buffer->data, tensor->n_bytes);
    *out = buffer->data;
    return ST_OK;
}

static enum status export_outputs(struct arena *arena, const struct infer_response *response,
                                  struct client_buffers buffers, sluice_infer_answer *out,
                                  struct error *err) {
    sluice_tensor *outputs = arena_calloc(arena, response->n_outputs, sizeof(*outputs));
    if (!outputs) {
        return no_memory(err);
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < response->n_outputs && status == ST_OK; i++) {
        const struct tensor *from = &response->outputs[i];
        bool placed = i < buffers.n && buffers.items[i].data;
        outputs[i] = (sluice_tensor){.datatype = (sluice_datatype)from->datatype,
                                     .dims = from->shape.dims,
                                     .rank = from->shape.rank,
                                     .n_bytes = from->n_bytes};
        status = placed ? export_data_copy(from, i, &buffers.items[i], &outputs[i].data, err)
                        : export_data(arena, from, &outputs[i].data, err);
        if (status == ST_OK) {
            status = export_text(arena, from->name, &outputs[i].name, err);
        }
    }
    out->outputs = outputs;
    out->n_outputs = response->n_outputs;
    return status;
}

static enum status export_params(struct arena *arena, struct params params,
                                 sluice_infer_answer *out, struct error *err) {
    sluice_param *items = arena_calloc(arena, params.n, sizeof(*items));
    if (!items) {
        return no_memory(err);
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < params.n && status == ST_OK; i++) {
        const struct param *from = &params.items[i];
        items[i] = (sluice_param){.name_bytes = from->name.len,
                                  .kind = (sluice_param_kind)from->kind,
                                  .boolean = from->boolean,
                                  .int64 = from->int64,
                                  .uint64 = from->uint64,
                                  .number = from->number,
                                  .string_bytes = from->string.len};
        items[i].string = arena_dup(arena, from->string).ptr; /* may hold NULs */
        status =
            items[i].string ? export_text(arena, from->name, &items[i].name, err) : no_memory(err);
    }
    out->params = items;
    out->n_params = params.n;
    return status;
}

enum status client_answer_export(struct arena *arena, const struct v2_client_response *answer,
                                 struct client_buffers buffers, sluice_infer_answer *out,
                                 struct error *err) {
    enum status status = export_text(arena, answer->id, &out->id, err);
    if (status == ST_OK) {
        status = export_text(arena, answer->model_name, &out->model, err);
    }
    if (status == ST_OK) {
        status = export_text(arena, answer->model_version, &out->version, err);
    }
    if (status == ST_OK) {
        status = export_outputs(arena, &answer->infer, buffers, out, err);
    }
    return status == ST_OK ? export_params(arena, answer->infer.params, out, err) : status;
}

static enum status export_specs(struct arena *arena, const struct tensor_spec *specs, size_t n,
                                const sluice_tensor_spec **out, struct error *err) {
    sluice_tensor_spec *made = arena_calloc(arena, n, sizeof(*made));
    if (!made) {
        return no_memory(err);
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < n && status == ST_OK; i++) {
        made[i] = (sluice_tensor_spec){.datatype = (sluice_datatype)specs[i].datatype,
                                       .dims = specs[i].shape.dims,
                                       .rank = specs[i].shape.rank};
        status = export_text(arena, specs[i].name, &made[i].name, err);
    }
    *out = made;
    return status;
}

enum status client_model_export(struct arena *arena, const struct model_spec *model,
                                sluice_model_metadata *out, struct error *err) {
    enum status status = export_text(arena, model->name, &out->name, err);
    if (status == ST_OK) {
        status = export_text(arena, model->version_text, &out->version, err);
    }
    if (status == ST_OK) {
        status = export_text(arena, model->platform, &out->platform, err);
    }
    if (status == ST_OK) {
        status = export_specs(arena, model->inputs, model->n_inputs, &out->inputs, err);
    }
    if (status == ST_OK) {
        status = export_specs(arena, model->outputs, model->n_outputs, &out->outputs, err);
    }
    out->n_inputs = model->n_inputs;
    out->n_outputs = model->n_outputs;
    return status;
}

enum status client_server_export(struct arena *arena, const struct v2_server_metadata *server,
                                 sluice_server_metadata *out, struct error *err) {
    const char **extensions = arena_calloc(arena, server->n_extensions, sizeof(*extensions));
    if (!extensions) {
        return no_memory(err);
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
