/* A request of MIP on its way out: which of its bytes come next. The bytes of items are sent from
 * where they lie; the heads of items are written into a small window as they are needed, so that a
 * packet of a million items takes no more memory than one of two. */
#ifndef SLUICE_CLIENT_MIP_OUTPUT_H
#define SLUICE_CLIENT_MIP_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "codec/mip/packet.h"

enum {
    MIP_OUTPUT_FRONT_BYTES = MIP_HEADER_BYTES + MIP_COUNTS_BYTES,
    MIP_OUTPUT_ITEMS = 128, /* whose heads are ready at a time */
};

struct mip_output {
    const struct mip_infer *infer; /* NULL: a ping */
    char front[MIP_OUTPUT_FRONT_BYTES];
    size_t n_front; /* bytes of it that this request has */
    size_t n_front_sent;
    size_t next_item;   /* the first that is not sent to its end */
    size_t n_item_sent; /* bytes of it, its head included */
    char heads[MIP_OUTPUT_ITEMS][MIP_ITEM_HEAD_BYTES];
};

/* `infer`, whose payload has the size that mip_infer_size said, and its items must stay. */
void mip_output_begin_ping(struct mip_output *output);
void mip_output_begin_infer(struct mip_output *output, const struct mip_infer *infer,
                            uint32_t n_bytes);
/* From the first byte again. */
void mip_output_restart(struct mip_output *output);

/* The next bytes in at most `max` pieces, as session_ops.output. */
size_t mip_output_pieces(struct mip_output *output, struct iovec *out, size_t max);
void mip_output_sent(struct mip_output *output, size_t n_bytes);
bool mip_output_is_sent(const struct mip_output *output);

#endif
