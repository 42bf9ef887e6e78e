/* The configuration file of the pools: YAML, one document of Sluice's own form and any number of
 * objects of the Gateway API Inference Extension (docs/picker.md has the format). Pure: text in,
 * specs of pools out. What is not understood is an error, with its line and the nearest name that
 * would be.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_DISCOVERY_FILE_POOL_FILE_H
#define SLUICE_PICK_DISCOVERY_FILE_POOL_FILE_H

#include <stdbool.h>

#include "pick/pool/set.h"

/* One text of several that are read as if they were one file. */
struct pool_config_source {
    const char *name; /* what messages call it */
    struct str text;
    bool is_default; /* left out where one before it has a document of Sluice's own form */
};

enum { POOL_CONFIG_MAX_SOURCES = 4 };

/* `name` is what messages call the file. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out until
 * pool_specs_free. */
enum status pool_file_parse(const char *name, struct str text, struct pool_specs *out,
                            struct error *err) __attribute__((warn_unused_result));
/* The same of up to POOL_CONFIG_MAX_SOURCES, of which there is one at least. */
enum status pool_file_parse_all(const struct pool_config_source *sources, size_t n,
                                struct pool_specs *out, struct error *err)
    __attribute__((warn_unused_result));

/* Adds an endpoint that was named apart from the file, "IP:PORT" or "NAME:PORT": it is in the pool
 * whatever the selector says. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. */
enum status pool_file_add_endpoint(struct pool_spec *spec, struct str text, struct error *err)
    __attribute__((warn_unused_result));

#endif
