/* A hash of bytes, for tables: fast, and with a seed that nobody else knows not to be foreseen. Not
 * for secrets. */
#ifndef SLUICE_CORE_BASE_HASH_H
#define SLUICE_CORE_BASE_HASH_H

#include <stdint.h>

#include "core/base/str.h"

uint64_t hash_text(struct str text, uint64_t seed);

#endif
