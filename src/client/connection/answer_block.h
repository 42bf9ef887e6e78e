/* Memory that the bytes of an answer are received into, and that the next answer reuses. Each call
 * of libsluice has one, so that its answer stays while the next call runs. Zero-initialized. */
#ifndef SLUICE_CLIENT_CONNECTION_ANSWER_BLOCK_H
#define SLUICE_CLIENT_CONNECTION_ANSWER_BLOCK_H

#include <stddef.h>

struct answer_block {
    char *data; /* from malloc or aligned_alloc; the owner of the block frees it */
    size_t n_bytes;
};

#endif
