/* Memory of many sizes that is freed together: what a model's signature is made of. */
#ifndef SLUICE_COMMON_BLOCK_H
#define SLUICE_COMMON_BLOCK_H

#include <stddef.h>

#include "sluice/backend.h"

struct block; /* a list of them begins as NULL */

/* Zeroed memory for `n` times `n_bytes`. Owns: the list, until blocks_free. Returns: NULL, with the
 * error set. */
void *block_alloc(struct block **blocks, size_t n, size_t n_bytes, sluice_error *error);
/* The same with a copy of `text`. */
char *block_strdup(struct block **blocks, const char *text, sluice_error *error);
void blocks_free(struct block **blocks);

#endif
