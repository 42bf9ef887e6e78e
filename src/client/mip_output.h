/* Sending of a MIP request: iterates over its bytes. Items are sent without a copy; their heads
 * are written into a small window when needed, so that the memory does not grow with the number
 * of items. */
#ifndef SLUICE_CLIENT_MIP_OUTPUT_H
#define SLUICE_CLIENT_MIP_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "codec/mip/packet.h"

enum {
    MIP_OUTPUT_FRONT_BYTES = MIP_HEADER_BYTES + MIP_COUNTS_BYTES,
    MIP_OUTPUT_ITEMS = 128, /* heads in the window */
};

struct mip_output {
    const struct mip_infer *infer; /* NULL: a ping */
    char front[MIP_OUTPUT_FRONT_BYTES];
    size_t n_front; /* bytes in `front` for this request */
    size_t n_front_sent;
    size_t next_item;   /* the first that is not completely sent */
    size_t n_item_sent; /* bytes sent of it, including its head */
    char heads[MIP_OUTPUT_ITEMS][MIP_ITEM_HEAD_BYTES];
};

/* `infer`, whose payload has `n_bytes` (mip_infer_size), and its items must stay until the
 * exchange is done. */
void mip_output_begin_ping(struct mip_output *output);
void mip_output_begin_infer(struct mip_output *output, const struct mip_infer *infer,
                            uint32_t n_bytes);
/* Starts again at the first byte. */
void mip_output_restart(struct mip_output *output);

/* Returns the next bytes in at most `max` pieces, as session_ops.output. */
size_t mip_output_pieces(struct mip_output *output, struct iovec *out, size_t max);
void mip_output_sent(struct mip_output *output, size_t n_bytes);
bool mip_output_is_sent(const struct mip_output *output);

#endif
