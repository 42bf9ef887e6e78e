/* Resolves the names of pools, again and again, and says when their addresses are others. Which
 * name is asked for when is names.h's matter, what an answer is query.h's.
 *
 * Changes that come within a few milliseconds are told together. A name that begins to fail, or is
 * well again, is a line in the log; one that goes on as it was is not.
 *
 * Thread: the worker's, for everything but dns_watch_report. */
#ifndef SLUICE_PICK_DISCOVERY_DNS_WATCH_H
#define SLUICE_PICK_DISCOVERY_DNS_WATCH_H

#include "core/event/worker.h"
#include "pick/discovery/dns/names.h"

struct dns_watch;

struct dns_watch_options {
    struct worker *worker;
    /* Addresses are others now: make the pools anew (dns_watch_add_endpoints). Never from within a
     * call. */
    void (*on_addresses_changed)(void *user);
    /* Called whenever no name is left whose first answer has not come, behind `changed`. */
    void (*on_all_resolved)(void *user);
    void *user;
    const char *system_file; /* where the system's servers stand; NULL: /etc/resolv.conf */
};

/* Without names at first. Returns: ST_NO_MEMORY. Owns: *out until dns_watch_free. */
enum status dns_watch_new(const struct dns_watch_options *options, struct dns_watch **out,
                          struct error *err) __attribute__((warn_unused_result));
/* From now on their names are resolved (NULL: none), of which nothing is borrowed. */
void dns_watch_set_pools(struct dns_watch *watch, const struct pool_specs *specs);
/* To be called every second or so: the system's servers may be others. */
void dns_watch_check_system_file(struct dns_watch *watch);
/* Appends the endpoints that the spec's names are, as far as they are known. Returns:
 * ST_NO_MEMORY. */
enum status dns_watch_add_endpoints(const struct dns_watch *watch, struct pool_spec *spec,
                                    struct error *err) __attribute__((warn_unused_result));
/* Gives up what is under way; `done` when nothing is left on the loop, perhaps from within. */
void dns_watch_stop(struct dns_watch *watch, void (*done)(void *user), void *user);
/* After `done`, or of one that never followed. NULL is allowed. */
void dns_watch_free(struct dns_watch *watch);

/* What is known of a name, for a look from outside. */
struct dns_report {
    struct str name;
    enum dns_records records;
    enum dns_state state;
    struct str error;                         /* empty: none */
    const struct endpoint_address *addresses; /* port 0: the pool's configuration has it */
    size_t n_addresses;
    uint64_t answered_ns; /* clock_now_ns of the last answer; 0: none yet */
};

/* All names as they are now, copied into the arena. Returns: how many are at *out; 0 too when out
 * of memory. Thread: any. */
size_t dns_watch_report(struct dns_watch *watch, struct arena *arena, struct dns_report **out);

#endif
