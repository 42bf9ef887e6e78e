/* Control inputs are tensors of one element: the configured value for true or false, or the
 * sequence's identifier. */
#include "serve/config/sequence_control.h"

#include <string.h>

#include "core/tensor/bytes.h"

static const int64_t ONES[2] = {1, 1};

const struct plan_control *control_find(const struct model_plan *plan, uint32_t index) {
    for (size_t i = 0; i < plan->n_controls; i++) {
        if (plan->controls[i].index == index) {
            return &plan->controls[i];
        }
    }
    return NULL;
}

static bool control_value(enum model_control_kind kind, const struct sequence_params *params) {
    switch (kind) {
    case CONTROL_START:
        return params && params->start;
    case CONTROL_END:
        return params && params->end;
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
