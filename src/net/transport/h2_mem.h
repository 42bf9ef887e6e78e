/* Memory for nghttp2, which allocates the same small blocks for each stream. */
#ifndef SLUICE_NET_TRANSPORT_H2_MEM_H
#define SLUICE_NET_TRANSPORT_H2_MEM_H

#include <nghttp2/nghttp2.h>

#include "core/base/small_blocks.h"

/* Limit of the blocks that a worker caches for the next streams. */
enum { H2_MEM_MAX_BYTES = 1 << 20 };

/* Returns: an allocator for nghttp2. `blocks` must outlive the sessions created with it. */
nghttp2_mem h2_mem_from_blocks(struct small_blocks *blocks);

#endif
