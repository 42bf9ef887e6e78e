/* The effective configuration of pools as text, for `sluice pick --check`: every setting, including
 * the defaults. */
#ifndef SLUICE_PICK_CONFIG_SPEC_PRINT_H
#define SLUICE_PICK_CONFIG_SPEC_PRINT_H

#include "core/base/buf.h"
#include "pick/pool/set.h"

void pool_spec_print(const struct pool_spec *spec, struct buf *out);
/* Prints all pools, each with the requests that it matches if there is a list. */
void pool_specs_print(const struct pool_specs *specs, struct buf *out);

#endif
