/* What the pools' configuration came to, as a block of text that a person reads: `sluice pick
 * --check`. Every setting is there, those that were left to their defaults too. */
#ifndef SLUICE_PICK_CONFIG_SPEC_PRINT_H
#define SLUICE_PICK_CONFIG_SPEC_PRINT_H

#include "core/base/buf.h"
#include "pick/pool/set.h"

void pool_spec_print(const struct pool_spec *spec, struct buf *out);
/* All of them, with what each takes where there is a list. */
void pool_specs_print(const struct pool_specs *specs, struct buf *out);

#endif
