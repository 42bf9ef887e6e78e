/* Memory blocks that are freed together, for a model's signature. */
#ifndef SLUICE_COMMON_BLOCK_H
#define SLUICE_COMMON_BLOCK_H

#include <stddef.h>

#include "sluice/backend.h"

struct block; /* a list of blocks, initially NULL */

/* Allocates zeroed memory for `n` times `n_bytes`. Owns: the list, until blocks_free. Returns:
 * NULL, with the error set. */
void *block_alloc(struct block **blocks, size_t n, size_t n_bytes, sluice_error *error);
/* Allocates a copy of `text`. */
char *block_strdup(struct block **blocks, const char *text, sluice_error *error);
void blocks_free(struct block **blocks);

#endif
