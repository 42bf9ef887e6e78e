/* What a pool's configuration came to, as a block of text that a person reads: `sluice pick
 * --check`. Every setting is there, those that were left to their defaults too. */
#ifndef SLUICE_DISCOVER_POOL_PRINT_H
#define SLUICE_DISCOVER_POOL_PRINT_H

#include "base/buf.h"
#include "pool/pool_spec.h"

void pool_print(const struct pool_spec *spec, struct buf *out);

#endif
