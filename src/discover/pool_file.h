/* The configuration file of the pools: YAML, one document of Sluice's own form and any number of
 * objects of the Gateway API Inference Extension (docs/picker.md has the format). Pure: text in,
 * specs of pools out. What is not understood is an error, with its line and the nearest name that
 * would be.
 *
 * Thread: any. */
#ifndef SLUICE_DISCOVER_POOL_FILE_H
#define SLUICE_DISCOVER_POOL_FILE_H

#include "pool/pool_set.h"

/* `name` is what messages call the file. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out until
 * pool_specs_free. */
enum status pool_file_parse(const char *name, struct str text, struct pool_specs *out,
                            struct error *err) __attribute__((warn_unused_result));

/* Adds an endpoint that was named apart from the file, "IP:PORT" or "NAME:PORT": it is in the pool
 * whatever the selector says. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. */
enum status pool_file_add_endpoint(struct pool_spec *spec, struct str text, struct error *err)
    __attribute__((warn_unused_result));

#endif
