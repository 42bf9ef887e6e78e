/* The configuration file of the pools: YAML, one document of our own format and any number of
 * objects of the Gateway API Inference Extension (docs/picker.md describes the format). Text in,
 * specs of pools out, no I/O. Unknown settings are errors, with the line and the closest known
 * name.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_DISCOVERY_FILE_POOL_FILE_H
#define SLUICE_PICK_DISCOVERY_FILE_POOL_FILE_H

#include <stdbool.h>

#include "core/base/doc/reader.h"
#include "pick/pool/set.h"

/* One of several texts that are read as one file. */
struct pool_config_source {
    const char *name; /* for messages */
    struct str text;
    bool is_default; /* skipped if a source before it has a document of our own format */
};

enum { POOL_CONFIG_MAX_SOURCES = 4 };

/* `name` is the file's name in messages. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out until
 * pool_specs_free. */
enum status pool_file_parse(const char *name, struct str text, struct pool_specs *out,
                            struct error *err) SLUICE_MUST_USE;
/* The same for 1 to POOL_CONFIG_MAX_SOURCES texts. `errors` collects all errors of the texts, of
 * which `*err` is one then; NULL: the first ends it. */
enum status pool_file_parse_all(const struct pool_config_source *sources, size_t n,
                                struct doc_errors *errors, struct pool_specs *out,
                                struct error *err) SLUICE_MUST_USE;

/* Adds an endpoint of the command line, "IP:PORT" or "NAME:PORT". It is in the pool whatever the
 * selector is. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. */
enum status pool_file_add_endpoint(struct pool_spec *spec, struct str text,
                                   struct error *err) SLUICE_MUST_USE;

#endif
