/* Public requests of KServe v2 to the rooms' own structs. It refuses only what it can't express;
 * what a server would have to refuse is wire's matter. */
#include "client/convert.h"

/* The ids of datatypes and the kinds of parameters are the same on both sides. */
_Static_assert((int)SLUICE_BOOL == (int)DT_BOOL && (int)SLUICE_BF16 == (int)DT_BF16 &&
                   (int)SLUICE_BYTES == (int)DT_BYTES,
               "datatype.def has the public ids");
_Static_assert((int)SLUICE_PARAM_BOOL == (int)PARAM_BOOL &&
                   (int)SLUICE_PARAM_INT64 == (int)PARAM_INT64 &&
                   (int)SLUICE_PARAM_UINT64 == (int)PARAM_UINT64 &&
                   (int)SLUICE_PARAM_DOUBLE == (int)PARAM_DOUBLE &&
                   (int)SLUICE_PARAM_STRING == (int)PARAM_STRING,
               "param.h has the public kinds");

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a call");
}

static enum status import_params(struct arena *arena, const sluice_infer_request *request,
                                 struct params *out, struct error *err) {
    struct param *items = arena_calloc(arena, request->n_params, sizeof(*items));
    if (!items) {
        return no_memory(err);
    }
    for (size_t i = 0; i < request->n_params; i++) {
        const sluice_param *from = &request->params[i];
        if (!from->name) {
            return error_set(err, ST_BAD_FIELD, "parameter %zu has no name", i);
        }
        items[i] = (struct param){.name = str_make(from->name, from->name_bytes),
                                  .kind = (enum param_kind)from->kind,
                                  .boolean = from->boolean != 0,
                                  .int64 = from->int64,
                                  .uint64 = from->uint64,
                                  .number = from->number,
                                  .string = str_make(from->string, from->string_bytes)};
    }
    *out = (struct params){items, request->n_params};
    return ST_OK;
}

static enum status import_tensor(struct arena *arena, const sluice_tensor *from, size_t index,
                                 struct tensor *out, struct error *err) {
    if (!from->name || (from->rank > 0 && !from->dims) || (from->n_bytes > 0 && !from->data)) {
        return error_set(err, ST_BAD_FIELD, "input %zu lacks its name, dims or data", index);
    }
    if ((int)from->datatype <= (int)DT_INVALID || (int)from->datatype >= (int)DT_COUNT_) {
        return error_set(err, ST_BAD_DATATYPE, "input \"%s\": there is no datatype %d", from->name,
                         (int)from->datatype);
    }
    if (from->rank > SHAPE_MAX_RANK) {
        return error_set(err, ST_BAD_SHAPE, "input \"%s\" has %zu dimensions; at most %d are known",
                         from->name, from->rank, SHAPE_MAX_RANK);
    }
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    if (!piece) {
        return no_memory(err);
    }
    *piece = (struct piece){from->data, from->n_bytes};
    *out = (struct tensor){.name = str_of(from->name),
                           .datatype = (enum datatype)from->datatype,
                           .shape = {from->dims, from->rank},
                           .pieces = piece,
                           .n_pieces = 1,
                           .n_bytes = from->n_bytes};
    return ST_OK;
}

static enum status import_inputs(struct arena *arena, const sluice_infer_request *request,
                                 struct infer_request *out, struct error *err) {
    out->n_inputs = request->n_inputs;
    out->inputs = arena_calloc(arena, request->n_inputs, sizeof(*out->inputs));
    if (!out->inputs) {
        return no_memory(err);
    }
    enum status status = ST_OK;
    for (size_t i = 0; i < request->n_inputs && status == ST_OK; i++) {
        status = import_tensor(arena, &request->inputs[i], i, &out->inputs[i].tensor, err);
    }
    return status;
}

static enum status import_outputs(struct arena *arena, const sluice_infer_request *request,
                                  struct infer_request *out, struct error *err) {
    out->n_wanted = request->n_outputs;
    out->wanted = arena_calloc(arena, request->n_outputs, sizeof(*out->wanted));
    if (!out->wanted) {
        return no_memory(err);
    }
    for (size_t i = 0; i < request->n_outputs; i++) {
        if (!request->outputs[i]) {
            return error_set(err, ST_BAD_FIELD, "output %zu has no name", i);
        }
        out->wanted[i].name = str_of(request->outputs[i]);
    }
    return ST_OK;
}

enum status client_infer_import(struct arena *arena, const sluice_infer_request *request,
                                struct client_infer *out, struct error *err) {
    struct v2_request *made = arena_calloc(arena, 1, sizeof(*made));
    if (!made) {
        return no_memory(err);
    }
    if (!request->model) {
        return error_set(err, ST_BAD_FIELD, "the request names no model");
    }
    if ((int)request->form < 0 || request->form > SLUICE_FORM_RAW) {
        return error_set(err, ST_BAD_FIELD, "there is no form %d", (int)request->form);
    }
    made->infer.arena = arena;
    made->infer.id = request->id ? str_of(request->id) : STR("");
    made->binary_default = request->form == SLUICE_FORM_BINARY;
    *out = (struct client_infer){.model = str_of(request->model),
                                 .version = str_of(request->version),
                                 .request = made,
                                 .raw = request->form == SLUICE_FORM_RAW,
                                 .timeout_ns = request->timeout_ns};
    enum status status = import_inputs(arena, request, &made->infer, err);
    if (status == ST_OK) {
        status = import_outputs(arena, request, &made->infer, err);
    }
    if (status == ST_OK) {
        status = import_params(arena, request, &made->infer.params, err);
    }
    if (status == ST_OK && request->form == SLUICE_FORM_JSON) {
        out->forms = v2_forms_all(arena, request->n_inputs, V2_FORM_JSON);
        status = out->forms ? ST_OK : no_memory(err);
    }
    return status;
}
