/* Packets of the Model Invocation Protocol, both directions, sans I/O: a fixed header of 8 bytes,
 * and for an inference 4 bytes of counts and a row of items, each a type, a size and its bytes. All
 * integers are big-endian and unsigned.
 *
 * It refuses to know what an item means (item.h) and what a model takes. */
#ifndef SLUICE_CODEC_MIP_PACKET_H
#define SLUICE_CODEC_MIP_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum {
    MIP_VERSION = 0,
    MIP_HEADER_BYTES = 8,
    MIP_COUNTS_BYTES = 4,
    MIP_ITEM_HEAD_BYTES = 8,
    MIP_MAX_BATCH = 65535,
    MIP_MAX_TENSORS = 255, /* inputs or outputs */
};

enum mip_kind { MIP_ERROR = 0, MIP_PING = 1, MIP_INFER = 2 };
enum mip_subtype { MIP_REQUEST = 0, MIP_RESPONSE = 1 };

/* The subtype of a packet of kind MIP_ERROR; status_mip() gives it for a status. */
enum mip_error {
    MIP_ERROR_PROTOCOL = 0, /* an invalid version */
    MIP_ERROR_SUBTYPE = 1,
    MIP_ERROR_METHOD = 2, /* a kind that is not implemented */
    MIP_ERROR_MEMORY = 3,
    MIP_ERROR_SHAPE = 4, /* a payload that does not match its header */
    MIP_ERROR_INTERNAL = 5,
    MIP_ERRORS
};

/* "PROTOCOL", "SUBTYPE", …; "unknown" for a code that is not one. */
const char *mip_error_name(unsigned code);

enum mip_item_type { MIP_TEXT = 1, MIP_JSON = 2, MIP_IMAGE = 3 };

struct mip_header {
    uint8_t version, kind, subtype, reserved;
    uint32_t n_bytes; /* of the payload: what is still to come */
};

/* Never fails: any 8 bytes are a header; who takes it checks it. */
void mip_header_decode(const char bytes[MIP_HEADER_BYTES], struct mip_header *out);
void mip_header_encode(const struct mip_header *header, char out[MIP_HEADER_BYTES]);

/* Is it a request that a server serves? In the order of the protocol: version, subtype, kind; then
 * a ping has no payload and an inference at least its counts. Returns: ST_BAD_VERSION,
 * ST_BAD_SUBTYPE, ST_BAD_KIND, ST_BAD_FRAMING. (MIP, "Errors") */
enum status mip_header_check_request(const struct mip_header *header, struct error *err)
    __attribute__((warn_unused_result));

struct mip_item {
    uint32_t type; /* enum mip_item_type; others are kept as they are */
    struct str data;
};

/* An inference, either way. Items lie element by element of the batch: all inputs (outputs) of
 * element 0, then those of element 1. */
struct mip_infer {
    uint8_t n_inputs;
    uint8_t n_outputs; /* 0 in a request (a peer's is not looked at) */
    uint16_t batch;
    struct mip_item *items;
    size_t n_items; /* batch x n_inputs in a request, batch x n_outputs in a response */
};

/* Decodes the payload of an inference; `response` says which. Every way in which payload, counts,
 * batch size and item sizes disagree is ST_BAD_FRAMING with the item's index, what was expected and
 * what came: a missing item, one that runs past the end, trailing bytes, batch size 0, no inputs in
 * a request. (A response without outputs has no items.) Before anything is allocated it is known
 * that the items can fit the payload. Items are views of `payload`; the array is in `arena`.
 * Returns: also ST_NO_MEMORY. */
enum status mip_infer_decode(struct arena *arena, struct str payload, bool response,
                             struct mip_infer *out, struct error *err)
    __attribute__((warn_unused_result));

/* The size of the payload of an inference with these items. Returns: ST_BODY_TOO_LARGE when it is
 * more than a packet can say (2^32 - 1), ST_BAD_FRAMING when the counts don't fit the items. */
enum status mip_infer_size(const struct mip_infer *infer, bool response, uint32_t *n_bytes,
                           struct error *err) __attribute__((warn_unused_result));
/* Header and counts of a packet (12 bytes), then the head of each item (8 bytes): the bytes of the
 * items themselves are sent from where they lie. */
void mip_infer_head_encode(const struct mip_infer *infer, bool response, uint32_t n_bytes,
                           char out[MIP_HEADER_BYTES + MIP_COUNTS_BYTES]);
void mip_item_head_encode(const struct mip_item *item, char out[MIP_ITEM_HEAD_BYTES]);

#endif
