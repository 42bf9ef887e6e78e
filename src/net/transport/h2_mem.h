/* nghttp2's memory: for each stream it takes some small blocks, the same for every one. For the
 * grpc_*.c files of this room only. */
#ifndef SLUICE_NET_TRANSPORT_H2_MEM_H
#define SLUICE_NET_TRANSPORT_H2_MEM_H

#include <nghttp2/nghttp2.h>

#include "core/base/small_blocks.h"

/* What all connections of a worker may keep for the next streams. */
enum { H2_MEM_MAX_BYTES = 1 << 20 };

/* `blocks` outlives the sessions that are made with it. */
nghttp2_mem h2_mem_from_blocks(struct small_blocks *blocks);

#endif
