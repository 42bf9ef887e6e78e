/* Packets of the Model Invocation Protocol, both directions, sans I/O: a fixed header of 8
 * bytes, and for an inference 4 bytes of counts and a list of items, each a type, a size and its
 * bytes. All integers are big-endian and unsigned. */
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

/* Subtypes of a packet of kind MIP_ERROR; status_mip() maps a status to one. */
enum mip_error {
    MIP_ERROR_PROTOCOL = 0, /* an invalid version */
    MIP_ERROR_SUBTYPE = 1,
    MIP_ERROR_METHOD = 2, /* a kind that is not implemented */
    MIP_ERROR_MEMORY = 3,
    MIP_ERROR_SHAPE = 4, /* a payload that does not match its header */
    MIP_ERROR_INTERNAL = 5,
    MIP_ERRORS
};

/* "PROTOCOL", "SUBTYPE", …; "unknown" for an unassigned code. */
const char *mip_error_name(unsigned code);

enum mip_item_type { MIP_TEXT = 1, MIP_JSON = 2, MIP_IMAGE = 3 };

struct mip_header {
    uint8_t version, kind, subtype, reserved;
    uint32_t n_bytes; /* size of the payload */
};

/* Any 8 bytes are a header; the caller checks it. */
void mip_header_decode(const char bytes[MIP_HEADER_BYTES], struct mip_header *out);
void mip_header_encode(const struct mip_header *header, char out[MIP_HEADER_BYTES]);

/* Checks that the header is a request that a server supports, in the order of the protocol:
 * version, subtype, kind; then that a ping has no payload and an inference at least its counts.
 * Returns: ST_BAD_VERSION, ST_BAD_SUBTYPE, ST_BAD_KIND, ST_BAD_FRAMING. (MIP, "Errors") */
enum status mip_header_check_request(const struct mip_header *header,
                                     struct error *err) SLUICE_MUST_USE;

struct mip_item {
    uint32_t type; /* enum mip_item_type; unknown types are preserved */
    struct str data;
};

/* An inference, request or response. Items are ordered by batch element: all inputs (outputs) of
 * element 0, then those of element 1. */
struct mip_infer {
    uint8_t n_inputs;
    uint8_t n_outputs; /* 0 in a request (a peer's value is ignored) */
    uint16_t batch;
    struct mip_item *items;
    size_t n_items; /* batch x n_inputs in a request, batch x n_outputs in a response */
};

/* Decodes only the counts of the payload, for `n_items`, which takes no time. Returns:
 * ST_BAD_FRAMING. */
enum status mip_infer_counts_decode(struct str payload, bool response, struct mip_infer *out,
                                    struct error *err) SLUICE_MUST_USE;
/* Decodes the payload of an inference request, or response. Any mismatch of payload, counts,
 * batch size and item sizes is ST_BAD_FRAMING with the item's index and the expected and actual
 * size: a missing or truncated item, trailing bytes, batch size 0, no inputs in a request. (A
 * response without outputs has no items.) Nothing is allocated unless the payload can hold the
 * items. Returns: also ST_NO_MEMORY. Owns: the array of items is in `arena`; items are views of
 * `payload`. */
enum status mip_infer_decode(struct arena *arena, struct str payload, bool response,
                             struct mip_infer *out, struct error *err) SLUICE_MUST_USE;

/* Computes the size of the payload. Returns: ST_BODY_TOO_LARGE above 2^32 - 1 bytes, which a
 * header can't represent; ST_BAD_FRAMING when the counts don't fit the items. */
enum status mip_infer_size(const struct mip_infer *infer, bool response, uint32_t *n_bytes,
                           struct error *err) SLUICE_MUST_USE;
/* Encode the header and counts of a packet (12 bytes), and the head of each item (8 bytes). The
 * bytes of the items are sent without a copy. */
void mip_infer_head_encode(const struct mip_infer *infer, bool response, uint32_t n_bytes,
                           char out[MIP_HEADER_BYTES + MIP_COUNTS_BYTES]);
void mip_item_head_encode(const struct mip_item *item, char out[MIP_ITEM_HEAD_BYTES]);

#endif
