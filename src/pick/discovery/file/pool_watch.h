/* The sources of the pools: a configuration file, endpoints of the command line, a cluster's
 * objects, or all of them. When one changes, the specs are read again as a whole and published
 * (pool_set_update). A changed file that is invalid leaves the pools as they are, is logged once
 * for each content, and counted. DNS names are resolved by pick/discovery/dns/watch.h, which adds
 * their addresses each time that pools are made.
 *
 * Thread: one at a time. Reading a file blocks: it is local, and small. */
#ifndef SLUICE_PICK_DISCOVERY_FILE_POOL_WATCH_H
#define SLUICE_PICK_DISCOVERY_FILE_POOL_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"
#include "pick/pool/set.h"

struct dns_watch;
struct doc_errors;
struct kube_store;
struct pool_watch;

/* What names fallback endpoints, in place of the pools' own setting. */
enum pool_watch_fallback {
    POOL_WATCH_FALLBACK_CONFIGURED, /* as each pool says */
    POOL_WATCH_FALLBACK_NONE,
    POOL_WATCH_FALLBACK_KEY,
    POOL_WATCH_FALLBACK_LIST,
};

/* `config`, `config_text` and `endpoints` are settings (program/picker/settings.def). */
struct pool_watch_options {
    const char *config;       /* the file's path; NULL: no file */
    const char *config_text;  /* configuration beside the file, or instead of it; NULL: none */
    const char *extra_config; /* more YAML, made from flags; NULL: none */
    /* The flag that `extra_config` is made of. NULL: it has defaults, and is skipped if the texts
     * above have a document of our own format. */
    const char *extra_config_flag;
    const char *name; /* of the pool, where the texts give it none and have no list; NULL: none */
    enum pool_watch_fallback fallback;
    const char *const *endpoints; /* "IP:PORT" or "NAME:PORT" */
    size_t n_endpoints;
    /* Its pool is added to the pool once everything is listed; NULL: none. */
    const struct kube_store *cluster;
    struct doc_errors *errors; /* as pool_file_parse_all */
};

/* Reads all sources and publishes the pools. The options' texts and the set must live as long as
 * the watch. Returns: ST_BAD_CONFIG, ST_IO, ST_NO_MEMORY. Owns: *out until pool_watch_free. */
enum status pool_watch_new(const struct pool_watch_options *options, struct pool_set *pools,
                           struct pool_watch **out, struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. The published pools stay. */
void pool_watch_free(struct pool_watch *watch);

/* Checks the file; to be called about every second. A change counts when two calls in a row find
 * it, or at once with `now`. A file in which a pool lost all of its endpoints is invalid, unless it
 * says `endpoints: []`. Returns: the pools have been published again. */
bool pool_watch_check(struct pool_watch *watch, bool now);

/* From now on `dns` resolves the names, first those of the current pools; before, names have no
 * addresses. Borrows `dns` until the last call of this header. */
void pool_watch_set_dns(struct pool_watch *watch, struct dns_watch *dns);
/* Makes the pools again from the text that was read last, after a change of addresses or of the
 * cluster. Returns: the pools have been published. */
bool pool_watch_rebuild(struct pool_watch *watch);

/* Whether the texts name an endpoints file (upstream's file-discovery). Returns: as
 * pool_watch_read. */
enum status pool_watch_names_endpoints_file(const struct pool_watch_options *options, bool *out,
                                            struct error *err) SLUICE_MUST_USE;

/* Reads all sources without publishing pools, for `sluice pick --check`. Owns: *out until
 * pool_specs_free. */
enum status pool_watch_read(const struct pool_watch_options *options, struct pool_specs *out,
                            struct error *err) SLUICE_MUST_USE;

#endif
