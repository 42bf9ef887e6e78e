/* Packets to structs and back. No number of a peer is trusted: an item is a view only if all of
 * its bytes are present, and the array of items is allocated only if the payload is long enough
 * for their heads. */
#include "codec/mip/packet.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/base/checked.h"
#include "core/base/plural.h"

const char *mip_error_name(unsigned code) {
    static const char *const names[MIP_ERRORS] = {
        [MIP_ERROR_PROTOCOL] = "PROTOCOL", [MIP_ERROR_SUBTYPE] = "SUBTYPE",
        [MIP_ERROR_METHOD] = "METHOD",     [MIP_ERROR_MEMORY] = "MEMORY",
        [MIP_ERROR_SHAPE] = "SHAPE",       [MIP_ERROR_INTERNAL] = "INTERNAL",
    };
    return code < MIP_ERRORS ? names[code] : "unknown";
}

/* ---- integers -------------------------------------------------------------------------------- */

static uint32_t get_u32(const char *bytes) {
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void put_u32(char *out, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        out[i] = (char)(value >> (24 - 8 * i));
    }
}

/* ---- the header ------------------------------------------------------------------------------ */

void mip_header_decode(const char bytes[MIP_HEADER_BYTES], struct mip_header *out) {
    *out = (struct mip_header){
        .version = (uint8_t)bytes[0],
        .kind = (uint8_t)bytes[1],
        .subtype = (uint8_t)bytes[2],
        .reserved = (uint8_t)bytes[3],
        .n_bytes = get_u32(bytes + 4),
    };
}

void mip_header_encode(const struct mip_header *header, char out[MIP_HEADER_BYTES]) {
    out[0] = (char)header->version;
    out[1] = (char)header->kind;
    out[2] = (char)header->subtype;
    out[3] = (char)header->reserved;
    put_u32(out + 4, header->n_bytes);
}

static enum status check_ping(const struct mip_header *header, struct error *err) {
    if (header->n_bytes > 0) {
        return error_set(err, ST_BAD_FRAMING,
                         "expected a ping without payload, got %" PRIu32 " bytes of it",
                         header->n_bytes);
    }
    return ST_OK;
}

static enum status check_counts_size(size_t n_bytes, struct error *err) {
    if (n_bytes < MIP_COUNTS_BYTES) {
        return error_set(err, ST_BAD_FRAMING,
                         "expected an inference with at least %d bytes of payload, got %zu",
                         MIP_COUNTS_BYTES, n_bytes);
    }
    return ST_OK;
}

enum status mip_header_check_request(const struct mip_header *header, struct error *err) {
    if (header->version != MIP_VERSION) {
        return error_set(err, ST_BAD_VERSION, "expected MIP version %d, got %u", MIP_VERSION,
                         header->version);
    }
    if (header->subtype != MIP_REQUEST) {
        return error_set(err, ST_BAD_SUBTYPE, "expected a packet of subtype %d (request), got %u",
                         MIP_REQUEST, header->subtype);
    }
    if (header->kind == MIP_PING) {
        return check_ping(header, err);
    }
    if (header->kind == MIP_INFER) {
        return check_counts_size(header->n_bytes, err);
    }
    return error_set(err, ST_BAD_KIND,
                     "expected a packet of kind %d (ping) or %d (inference), got %u", MIP_PING,
                     MIP_INFER, header->kind);
}

/* ---- the payload of an inference ------------------------------------------------------------- */

/* Number of items per batch element. */
static unsigned per_element(const struct mip_infer *infer, bool response) {
    return response ? infer->n_outputs : infer->n_inputs;
}

static enum status check_counts(const struct mip_infer *infer, bool response, struct error *err) {
    if (infer->batch == 0) {
        return error_set(err, ST_BAD_FRAMING, "expected a batch size from 1 to %d, got 0",
                         MIP_MAX_BATCH);
    }
    if (!response && infer->n_inputs == 0) {
        return error_set(err, ST_BAD_FRAMING, "expected 1 to %d inputs, got 0", MIP_MAX_TENSORS);
    }
    return ST_OK;
}

/* Fills `err` with the item's position, followed by the text. Returns: ST_BAD_FRAMING. */
__attribute__((format(printf, 5, 6))) static enum status bad_item(const struct mip_infer *infer,
                                                                  bool response, size_t index,
                                                                  struct error *err,
                                                                  const char *format, ...) {
    char sentence[ERROR_TEXT_BYTES];
    unsigned n = per_element(infer, response);
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    return error_set(err, ST_BAD_FRAMING, "item %zu of %zu (batch element %zu, %s %zu): %s", index,
                     infer->n_items, index / n, response ? "output" : "input", index % n, sentence);
}

/* Checks all items in `rest`, and stores them in infer->items unless that is NULL. */
static enum status walk_items(struct str rest, bool response, struct mip_infer *infer,
                              struct error *err) {
    for (size_t i = 0; i < infer->n_items; i++) {
        if (rest.len < MIP_ITEM_HEAD_BYTES) {
            return bad_item(infer, response, i, err,
                            "expected %d bytes of type and size, got %zu to the payload's end",
                            MIP_ITEM_HEAD_BYTES, rest.len);
        }
        uint32_t type = get_u32(rest.ptr), size = get_u32(rest.ptr + 4);
        rest = str_make(rest.ptr + MIP_ITEM_HEAD_BYTES, rest.len - MIP_ITEM_HEAD_BYTES);
        if (size > rest.len) {
            return bad_item(infer, response, i, err,
                            "expected %" PRIu32 " bytes of data, got %zu to the payload's end",
                            size, rest.len);
        }
        if (infer->items) {
            infer->items[i] = (struct mip_item){type, str_make(rest.ptr, size)};
        }
        rest = str_make(rest.ptr + size, rest.len - size);
    }
    if (rest.len > 0) {
        return error_set(err, ST_BAD_FRAMING,
                         "expected a payload of %zu items, got %zu bytes more after them",
                         infer->n_items, rest.len);
    }
    return ST_OK;
}

enum status mip_infer_counts_decode(struct str payload, bool response, struct mip_infer *out,
                                    struct error *err) {
    enum status status = check_counts_size(payload.len, err);
    if (status != ST_OK) {
        return status;
    }
    uint32_t counts = get_u32(payload.ptr);
    *out = (struct mip_infer){
        .n_inputs = (uint8_t)(counts >> 24),
        .n_outputs = (uint8_t)(counts >> 16),
        .batch = (uint16_t)counts,
    };
    out->n_items = (size_t)out->batch * per_element(out, response);
    return check_counts(out, response, err);
}

enum status mip_infer_decode(struct arena *arena, struct str payload, bool response,
                             struct mip_infer *out, struct error *err) {
    enum status status = mip_infer_counts_decode(payload, response, out, err);
    if (status != ST_OK) {
        return status;
    }
    struct str rest = str_make(payload.ptr + MIP_COUNTS_BYTES, payload.len - MIP_COUNTS_BYTES);
    /* If even the heads don't fit, walk_items reports the missing item, and nothing is
     * allocated. */
    if (out->n_items <= rest.len / MIP_ITEM_HEAD_BYTES) {
        out->items = arena_calloc(arena, out->n_items, sizeof(*out->items));
        if (!out->items) {
            return error_no_memory(err, "%zu items", out->n_items);
        }
    }
    return walk_items(rest, response, out, err);
}

enum status mip_infer_size(const struct mip_infer *infer, bool response, uint32_t *n_bytes,
                           struct error *err) {
    enum status status = check_counts(infer, response, err);
    if (status != ST_OK) {
        return status;
    }
    unsigned n = per_element(infer, response);
    if (infer->n_items != (size_t)infer->batch * n) {
        return error_set(err, ST_BAD_FRAMING,
                         "expected %zu items for batch size %u and %u %s%s, got %zu",
                         (size_t)infer->batch * n, infer->batch, n, response ? "output" : "input",
                         plural_s(n), infer->n_items);
    }
    size_t sum = MIP_COUNTS_BYTES;
    bool fits = true;
    for (size_t i = 0; fits && i < infer->n_items; i++) {
        fits = checked_add(sum, MIP_ITEM_HEAD_BYTES, &sum) &&
               checked_add(sum, infer->items[i].data.len, &sum) && sum <= UINT32_MAX;
    }
    if (!fits) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "expected a payload of at most %" PRIu32 " bytes (the limit of a "
                         "packet), got more",
                         UINT32_MAX);
    }
    *n_bytes = (uint32_t)sum;
    return ST_OK;
}

void mip_infer_head_encode(const struct mip_infer *infer, bool response, uint32_t n_bytes,
                           char out[MIP_HEADER_BYTES + MIP_COUNTS_BYTES]) {
    const struct mip_header header = {
        .version = MIP_VERSION,
        .kind = MIP_INFER,
        .subtype = response ? MIP_RESPONSE : MIP_REQUEST,
        .n_bytes = n_bytes,
    };
    mip_header_encode(&header, out);
    put_u32(out + MIP_HEADER_BYTES,
            (uint32_t)infer->n_inputs << 24 | (uint32_t)infer->n_outputs << 16 | infer->batch);
}

void mip_item_head_encode(const struct mip_item *item, char out[MIP_ITEM_HEAD_BYTES]) {
    assert(item->data.len <= UINT32_MAX); /* checked by mip_infer_size */
    put_u32(out, item->type);
    put_u32(out + 4, (uint32_t)item->data.len);
}
