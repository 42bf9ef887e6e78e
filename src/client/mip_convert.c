/* Public requests of MIP to packets, and packets to public answers. */
#include "client/mip_convert.h"

#include <inttypes.h>

#include "client/sized_struct.h"

_Static_assert((int)SLUICE_MIP_TEXT == (int)MIP_TEXT && (int)SLUICE_MIP_JSON == (int)MIP_JSON &&
                   (int)SLUICE_MIP_IMAGE == (int)MIP_IMAGE,
               "item types of codec/mip/packet.h differ from sluice/client.h");
_Static_assert((int)SLUICE_MIP_PROTOCOL == (int)MIP_ERROR_PROTOCOL &&
                   (int)SLUICE_MIP_INTERNAL == (int)MIP_ERROR_INTERNAL,
               "error codes of codec/mip/packet.h differ from sluice/client.h");

/* ---- requests -------------------------------------------------------------------------------- */

static enum status check_counts(const sluice_mip_request *request, struct error *err) {
    if (request->n_inputs < 1 || request->n_inputs > MIP_MAX_TENSORS) {
        return error_set(err, ST_BAD_FIELD, "n_inputs: expected 1 to %d, got %" PRIu32,
                         MIP_MAX_TENSORS, request->n_inputs);
    }
    if (request->batch < 1 || request->batch > MIP_MAX_BATCH) {
        return error_set(err, ST_BAD_FIELD, "batch: expected 1 to %d, got %" PRIu32, MIP_MAX_BATCH,
                         request->batch);
    }
    return request->items ? ST_OK : error_set(err, ST_BAD_FIELD, "the request has no items");
}

static enum status import_item(const sluice_mip_item *items, size_t index, struct mip_item *out,
                               struct error *err) {
    sluice_mip_item given, *from = &given;
    enum status status =
        sized_array_read(&given, sizeof(given), items, index, "sluice_mip_item", err);
    if (status != ST_OK) {
        return status;
    }
    if ((int)from->type < MIP_TEXT || (int)from->type > MIP_IMAGE) {
        return error_set(err, ST_BAD_FIELD,
                         "item %zu: expected type %d (text), %d (JSON) or %d (image), got %d",
                         index, MIP_TEXT, MIP_JSON, MIP_IMAGE, (int)from->type);
    }
    if (!from->data && from->n_bytes > 0) {
        return error_set(err, ST_BAD_FIELD, "item %zu lacks its data", index);
    }
    *out = (struct mip_item){(uint32_t)from->type, str_make(from->data, from->n_bytes)};
    return ST_OK;
}

enum status client_mip_import(struct arena *arena, const sluice_mip_request *request,
                              struct mip_infer *out, uint32_t *n_bytes, struct error *err) {
    enum status status = check_counts(request, err);
    if (status != ST_OK) {
        return status;
    }
    *out = (struct mip_infer){.n_inputs = (uint8_t)request->n_inputs,
                              .batch = (uint16_t)request->batch,
                              .n_items = (size_t)request->batch * request->n_inputs};
    out->items = arena_alloc(arena, out->n_items * sizeof(*out->items));
    if (!out->items) {
        return error_no_memory(err, "%zu items", out->n_items);
    }
    for (size_t i = 0; i < out->n_items && status == ST_OK; i++) {
        status = import_item(request->items, i, &out->items[i], err);
    }
    return status == ST_OK ? mip_infer_size(out, false, n_bytes, err) : status;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Error texts as in the protocol's document. */
static const char *mip_error_text(unsigned code) {
    static const char *const words[MIP_ERRORS] = {
        [MIP_ERROR_PROTOCOL] = "it does not speak this version of the protocol",
        [MIP_ERROR_SUBTYPE] = "it did not take the packet for a request",
        [MIP_ERROR_METHOD] = "it does not implement this kind of call",
        [MIP_ERROR_MEMORY] = "it has no memory for the request",
        [MIP_ERROR_SHAPE] = "the items do not fit their header, or the model",
        [MIP_ERROR_INTERNAL] = "it failed, or could not read an item",
    };
    return code < MIP_ERRORS ? words[code] : "a code that the protocol does not have";
}

enum status client_mip_check(const struct mip_session *session, size_t buffer_bytes,
                             struct error *err) {
    unsigned code = mip_session_error(session);
    switch (mip_session_outcome(session)) {
    case MIP_REFUSED:
        return error_set(err, ST_REFUSED, "the server refused: %s (MIP error %u, %s)",
                         mip_error_text(code), code, mip_error_name(code));
    case MIP_BUFFER_TOO_SMALL:
        return error_set(err, ST_NO_ROOM,
                         "the answer's payload has %" PRIu32 " bytes, and the buffer only %zu",
                         mip_session_payload_bytes(session), buffer_bytes);
    case MIP_ANSWERED:
        break;
    }
    return ST_OK;
}

static enum status check_answer(const struct mip_infer *answer, const struct mip_infer *request,
                                struct error *err) {
    if (answer->batch != request->batch) {
        return error_set(err, ST_BAD_ANSWER,
                         "the server's answer: expected batch size %u as in the request, got %u",
                         request->batch, answer->batch);
    }
    if (answer->n_inputs != request->n_inputs) {
        return error_set(err, ST_BAD_ANSWER,
                         "the server's answer: expected n-input %u as in the request, got %u",
                         request->n_inputs, answer->n_inputs);
    }
    return ST_OK;
}

enum status client_mip_export(struct arena *arena, struct str payload,
                              const struct mip_infer *request, struct client_mip_answer *out,
                              struct error *err) {
    struct mip_infer answer;
    enum status status = mip_infer_decode(arena, payload, true, &answer, err);
    if (status != ST_OK && status != ST_NO_MEMORY) {
        error_prefix(err, "the server's answer");
        status = err->status = ST_BAD_ANSWER;
    }
    if (status == ST_OK) {
        status = check_answer(&answer, request, err);
    }
    if (status != ST_OK) {
        return status;
    }
    sluice_mip_item *items = arena_alloc(arena, answer.n_items * sizeof(*items));
    if (!items) {
        return error_no_memory(err, "%zu items", answer.n_items);
    }
    for (size_t i = 0; i < answer.n_items; i++) {
        const struct mip_item *from = &answer.items[i];
        items[i] = (sluice_mip_item){.size = sizeof(*items),
                                     .type = (sluice_mip_type)from->type,
                                     .data = from->data.ptr,
                                     .n_bytes = from->data.len};
    }
    *out = (struct client_mip_answer){.items = items,
                                      .n_inputs = answer.n_inputs,
                                      .n_outputs = answer.n_outputs,
                                      .batch = answer.batch};
    return ST_OK;
}
