/* Parses a request's sequence parameters. Invalid ones are refused, because a stateful model would
 * mix up sequences. */
#include "serve/config/sequence_params.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/quote.h"
#include "core/tensor/bytes.h"

static enum status read_id(const struct param *param, struct sequence_id *out, struct error *err) {
    *out = (struct sequence_id){0};
    if (param && param->kind == PARAM_INT64 && param->int64 >= 0) {
        out->number = (uint64_t)param->int64;
    } else if (param && param->kind == PARAM_UINT64) {
        out->number = param->uint64;
    } else if (param && param->kind == PARAM_STRING) {
        out->is_text = true;
        out->text = param->string;
    } else if (param) {
        return error_set(err, ST_BAD_FIELD,
                         "parameter \"sequence_id\" must be a whole number that is not negative, "
                         "or text");
    }
    if (out->text.len > SEQUENCE_ID_BYTES) {
        return error_set(err, ST_BAD_FIELD,
                         "parameter \"sequence_id\" must not be longer than %d bytes, got %zu",
                         SEQUENCE_ID_BYTES, out->text.len);
    }
    return ST_OK;
}

static enum status read_flag(struct params params, const char *name, bool *out, struct error *err) {
    const struct param *param = params_find(params, name);
    if (param && param->kind != PARAM_BOOL) {
        return error_set(err, ST_BAD_FIELD, "parameter \"%s\" must be true or false", name);
    }
    *out = param && param->boolean;
    return ST_OK;
}

/* The identifier must fit the datatype of the model's CORRID input, if it has one. */
static enum status check_id_kind(const struct model_config *config, const struct sequence_id *id,
                                 struct error *err) {
    for (size_t i = 0; i < config->sequences.n_controls; i++) {
        const struct model_control *control = &config->sequences.controls[i];
        bool wants_text = control->datatype == DT_BYTES;
        if (control->kind == CONTROL_CORRID && wants_text != id->is_text) {
            return error_set(err, ST_BAD_SEQUENCE,
                             "the model takes identifiers of sequences as %s, but "
                             "\"sequence_id\" is %s",
                             datatype_config_name(control->datatype),
                             id->is_text ? "text" : "a number");
        }
    }
    return ST_OK;
}

/* Returns: ST_NO_MEMORY. */
static enum status make_id(const struct model_config *config, const struct infer_request *request,
                           _Atomic uint64_t *n_made, struct sequence_id *out, struct error *err) {
    out->number = atomic_fetch_add_explicit(n_made, 1, memory_order_relaxed) + 1;
    for (size_t i = 0; i < config->sequences.n_controls; i++) {
        const struct model_control *control = &config->sequences.controls[i];
        out->is_text |= control->kind == CONTROL_CORRID && control->datatype == DT_BYTES;
    }
    if (out->is_text) {
        out->text = arena_printf(request->arena, "%" PRIu64, out->number);
        out->number = 0;
    }
    return !out->is_text || out->text.ptr ? ST_OK
                                          : error_no_memory(err, "the identifier of a sequence");
}

enum status sequence_params_parse(const struct model_config *config,
                                  const struct infer_request *request, _Atomic uint64_t *n_made,
                                  struct sequence_params *out, struct error *err) {
    char name
        [QUOTED_NAME_BYTES]; /* the texts begin as the reference server's: clients compare them */
    struct params none = {NULL, 0};
    struct params params = request->params_are_opaque ? none : request->params;
    if (read_id(params_find(params, "sequence_id"), &out->id, err) != ST_OK ||
        read_flag(params, "sequence_start", &out->start, err) != ST_OK ||
        read_flag(params, "sequence_end", &out->end, err) != ST_OK) {
        return err->status;
    }
    bool has_id = out->id.number != 0 || out->id.text.len > 0;
    if (config->sequences.iterative) {
        out->start = out->end = out->iterative = true;
        if (!has_id && make_id(config, request, n_made, &out->id, err) != ST_OK) {
            return err->status;
        }
    } else if (!has_id) {
        return error_set(err, ST_BAD_SEQUENCE,
                         "inference request to model %s must specify a non-zero or non-empty "
                         "correlation ID: requests to this model belong to sequences, by the "
                         "parameter \"sequence_id\"",
                         quote_name_single(config->name, name));
    }
    if (request->batch > 1) {
        return error_set(err, ST_BAD_SEQUENCE,
                         "inference request to model %s must specify batch-size 1 due to "
                         "requirements of sequence batcher; this one has %llu rows",
                         quote_name_single(config->name, name), (unsigned long long)request->batch);
    }
    return check_id_kind(config, &out->id, err);
}

const char *sequence_id_print(const struct sequence_id *id, char out[SEQUENCE_ID_TEXT_BYTES]) {
    if (id->is_text) {
        snprintf(out, SEQUENCE_ID_TEXT_BYTES, "\"%.*s\"", STR_ARG(id->text));
    } else {
        snprintf(out, SEQUENCE_ID_TEXT_BYTES, "%llu", (unsigned long long)id->number);
    }
    return out;
}

/* ---- control inputs -------------------------------------------------------------------------- */

/* They are tensors of one element: the configured value for true or false, or the sequence's
 * identifier. */

static const int64_t ONES[2] = {1, 1};

const struct plan_control *control_find(const struct model_plan *plan, uint32_t index) {
    for (size_t i = 0; i < plan->n_controls; i++) {
        if (plan->controls[i].index == index) {
            return &plan->controls[i];
        }
    }
    return NULL;
}

/* An iterative sequence ends when the backend says so. */
static bool control_value(enum model_control_kind kind, const struct sequence_params *params) {
    switch (kind) {
    case CONTROL_START:
        return params && params->start;
    case CONTROL_END:
        return params && params->end && !params->iterative;
    case CONTROL_READY:
    case CONTROL_CORRID:
        break;
    }
    return params != NULL;
}

/* Writes the low bits of a number that is too large for the datatype. Numbers are little-endian, as
 * the machine is. */
static size_t put_id(const struct sequence_id *id, enum datatype datatype, unsigned char *out) {
    if (datatype != DT_BYTES) {
        memcpy(out, &id->number, sizeof(id->number));
        return datatype_size(datatype);
    }
    uint32_t len = (uint32_t)id->text.len;
    bytes_encode_length(out, len);
    if (len > 0) {
        memcpy(out + BYTES_LENGTH_BYTES, id->text.ptr, len);
    }
    return BYTES_LENGTH_BYTES + len;
}

static bool fill_control(struct arena *arena, const struct model_control *control, size_t rank,
                         const struct sequence_params *params, sluice_input *out) {
    static const struct sequence_id none = {0};
    const struct sequence_id *id = params ? &params->id : &none;
    size_t most = sizeof(id->number) + BYTES_LENGTH_BYTES + id->text.len;
    unsigned char *bytes = arena_alloc_aligned(arena, most, sizeof(uint64_t));
    sluice_piece *piece = arena_alloc(arena, sizeof(*piece));
    if (!bytes || !piece) {
        return false;
    }
    size_t n_bytes = datatype_size(control->datatype);
    if (control->kind == CONTROL_CORRID) {
        n_bytes = put_id(id, control->datatype, bytes);
    } else {
        memcpy(bytes, control->values[control_value(control->kind, params)], n_bytes);
    }
    *piece = (sluice_piece){bytes, n_bytes};
    *out = (sluice_input){.datatype = (sluice_datatype)control->datatype,
                          .name = control->name.ptr,
                          .dims = ONES,
                          .rank = rank,
                          .n_bytes = n_bytes,
                          .pieces = piece,
                          .n_pieces = 1};
    return true;
}

bool controls_fill(struct arena *arena, const struct model_plan *plan,
                   const struct sequence_params *params, sluice_input *inputs, size_t *n) {
    size_t rank = plan->spec.max_batch_size > 0 ? 2 : 1;
    for (size_t i = 0; i < plan->n_controls; i++) {
        sluice_input input;
        if (!fill_control(arena, plan->controls[i].control, rank, params, &input)) {
            return false;
        }
        input.index = plan->controls[i].index;
        size_t at = (*n)++;
        for (; at > 0 && inputs[at - 1].index > input.index; at--) {
            inputs[at] = inputs[at - 1];
        }
        inputs[at] = input;
    }
    return true;
}

void controls_set_continued(const struct model_plan *plan, const sluice_input *inputs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct plan_control *control = control_find(plan, inputs[i].index);
        if (control && control->control->kind == CONTROL_START) {
            memcpy((void *)(uintptr_t)inputs[i].pieces[0].data, control->control->values[false],
                   inputs[i].n_bytes);
        }
    }
}
