/* Position in a packet: bytes sent of the front, the next item, and bytes sent of it. */
#include "client/mip_output.h"

#include <assert.h>

void mip_output_restart(struct mip_output *output) {
    output->n_front_sent = output->next_item = output->n_item_sent = 0;
}

void mip_output_begin_ping(struct mip_output *output) {
    const struct mip_header header = {
        .version = MIP_VERSION, .kind = MIP_PING, .subtype = MIP_REQUEST};
    output->infer = NULL;
    output->n_front = MIP_HEADER_BYTES;
    mip_header_encode(&header, output->front);
    mip_output_restart(output);
}

void mip_output_begin_infer(struct mip_output *output, const struct mip_infer *infer,
                            uint32_t n_bytes) {
    output->infer = infer;
    output->n_front = MIP_OUTPUT_FRONT_BYTES;
    mip_infer_head_encode(infer, false, n_bytes, output->front);
    mip_output_restart(output);
}

/* Adds the rest of a piece after *skip bytes; *skip is reduced by the piece's size. Returns: 1,
 * or 0 if nothing is left. */
static size_t add_piece(struct iovec *out, const char *data, size_t n_bytes, size_t *skip) {
    size_t n_gone = *skip < n_bytes ? *skip : n_bytes;
    *skip -= n_gone;
    if (n_gone == n_bytes) {
        return 0;
    }
    *out = (struct iovec){(char *)(uintptr_t)data + n_gone, n_bytes - n_gone};
    return 1;
}

static size_t n_items(const struct mip_output *output) {
    return output->infer ? output->infer->n_items : 0;
}

size_t mip_output_pieces(struct mip_output *output, struct iovec *out, size_t max) {
    size_t skip = output->n_front_sent;
    size_t n = add_piece(out, output->front, output->n_front, &skip);
    size_t n_ready = n_items(output) - output->next_item;
    n_ready = n_ready < MIP_OUTPUT_ITEMS ? n_ready : MIP_OUTPUT_ITEMS;
    skip = output->n_item_sent;
    for (size_t i = 0; i < n_ready && n < max; i++) {
        const struct mip_item *item = &output->infer->items[output->next_item + i];
        mip_item_head_encode(item, output->heads[i]);
        n += add_piece(out + n, output->heads[i], MIP_ITEM_HEAD_BYTES, &skip);
        if (n < max) {
            n += add_piece(out + n, item->data.ptr, item->data.len, &skip);
        }
    }
    return n;
}

void mip_output_sent(struct mip_output *output, size_t n_bytes) {
    size_t n_front = output->n_front - output->n_front_sent;
    n_front = n_bytes < n_front ? n_bytes : n_front;
    output->n_front_sent += n_front;
    output->n_item_sent += n_bytes - n_front;
    while (output->next_item < n_items(output)) {
        size_t n_item = MIP_ITEM_HEAD_BYTES + output->infer->items[output->next_item].data.len;
        if (output->n_item_sent < n_item) {
            return;
        }
        output->n_item_sent -= n_item;
        output->next_item++;
    }
    assert(output->n_item_sent == 0);
}

bool mip_output_is_sent(const struct mip_output *output) {
    return output->n_front_sent == output->n_front && output->next_item == n_items(output);
}
