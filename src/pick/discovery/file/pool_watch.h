/* Where the pools come from, and looking at it again: a configuration file, endpoints that were
 * named on the command line, a cluster's objects, or all of them. A file that changed is taken over
 * whole; one that cannot be used leaves the pools as they are, is logged once for each state it is
 * in, and counted. Names among the endpoints are somebody else's to resolve
 * (pick/discovery/dns/watch.h), who is asked for their addresses each time that pools are made.
 *
 * Thread: one at a time. Reading a file blocks: it is local, and small. */
#ifndef SLUICE_PICK_DISCOVERY_FILE_POOL_WATCH_H
#define SLUICE_PICK_DISCOVERY_FILE_POOL_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"
#include "pick/pool/set.h"

struct dns_watch;
struct kube_store;
struct pool_watch;

struct pool_watch_options {
    const char *path;         /* NULL: no file */
    const char *text;         /* what stands beside the file, or in its place; NULL: nothing */
    const char *extra_config; /* and more YAML, that flags have made; NULL: none */
    const char
        *extra_config_flag; /* the flag that `more` is of; NULL: `more` is left out where the above
                              have
                             a document of Sluice's own form */
    const char *const *endpoints; /* "IP:PORT" or "NAME:PORT" */
    size_t n_endpoints;
    /* What of it is the pool is in the pool, once all of it is known; NULL: none. */
    const struct kube_store *cluster;
};

/* Reads all of it and makes it what `pools` are. The options' texts must stay as long as the watch;
 * the set, too. Returns: ST_BAD_CONFIG, ST_IO, ST_NO_MEMORY. Owns: *out until pool_watch_free. */
enum status pool_watch_new(const struct pool_watch_options *options, struct pool_set *pools,
                           struct pool_watch **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. The pools stay. */
void pool_watch_free(struct pool_watch *watch);

/* Looks again; whoever has a timer calls it, every second or so. Returns: the pools are others now:
 * let their readers look. */
bool pool_watch_check(struct pool_watch *watch);

/* From now on `dns` resolves the names, beginning with those that the pools have. Until then they
 * have no addresses. It stays as long as the watch is looked at. */
void pool_watch_set_dns(struct pool_watch *watch, struct dns_watch *dns);
/* Names have other addresses, or the cluster other objects: the pools are made anew, of what was
 * read last. Returns: they are others now. */
bool pool_watch_rebuild(struct pool_watch *watch);

/* Reads it all without making pools, for a look at what it comes to. Owns: *out until
 * pool_specs_free. */
enum status pool_watch_read(const struct pool_watch_options *options, struct pool_specs *out,
                            struct error *err) __attribute__((warn_unused_result));

#endif
