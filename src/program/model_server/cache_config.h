/* --cache-config, the form in which the reference server takes its cache: NAME,KEY=VALUE, given
 * once for each key. Here there is one cache, `local`, with one key, `size`. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_CACHE_CONFIG_H
#define SLUICE_PROGRAM_MODEL_SERVER_CACHE_CONFIG_H

#include "core/base/status.h"
#include "program/options/options.h"

/* Puts the size, if one is given, into *out, which holds what --cache-size says: 0, or the same.
 * Returns: ST_BAD_CONFIG. */
enum status cache_config_read(const struct option_texts *texts, uint64_t *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
