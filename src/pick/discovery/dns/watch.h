/* Resolves the DNS names of the pools repeatedly, and notifies its owner when their addresses
 * change. The times of queries are in names.h, a single query is in query.h.
 *
 * Changes within a few milliseconds are notified together. A name that begins to fail, or recovers,
 * is logged once.
 *
 * Thread: the worker's, for everything but dns_watch_report. */
#ifndef SLUICE_PICK_DISCOVERY_DNS_WATCH_H
#define SLUICE_PICK_DISCOVERY_DNS_WATCH_H

#include "core/event/worker.h"
#include "pick/discovery/dns/names.h"

struct dns_watch;

struct dns_watch_options {
    struct worker *worker;
    /* Addresses have changed: the pools are to be made again (dns_watch_add_endpoints). Never
     * within a call of this header. */
    void (*on_addresses_changed)(void *user);
    /* Every name has had its first answer; after on_addresses_changed. */
    void (*on_all_resolved)(void *user);
    void *user;
    const char *system_file; /* the system's servers; NULL: /etc/resolv.conf */
};

/* There are no names at first. Returns: ST_NO_MEMORY. Owns: *out until dns_watch_free. */
enum status dns_watch_new(const struct dns_watch_options *options, struct dns_watch **out,
                          struct error *err) SLUICE_MUST_USE;
/* Sets the names to those of the specs (NULL: none), which are not borrowed. */
void dns_watch_set_pools(struct dns_watch *watch, const struct pool_specs *specs);
/* To be called about every second: checks the system's resolver configuration. */
void dns_watch_check_system_file(struct dns_watch *watch);
/* Appends the known addresses of the spec's names as endpoints. */
void dns_watch_add_endpoints(const struct dns_watch *watch, struct pool_spec *spec);
/* Cancels all queries; calls `done` when nothing is left on the loop, perhaps within the call. */
void dns_watch_stop(struct dns_watch *watch, void (*done)(void *user), void *user);
/* After `done`, or if there never were names. NULL is allowed. */
void dns_watch_free(struct dns_watch *watch);

/* The state of a name. */
struct dns_report {
    struct str name;
    enum dns_records records;
    enum dns_state state;
    struct str error;                         /* empty: none */
    const struct endpoint_address *addresses; /* port 0: the port is in the pool's configuration */
    size_t n_addresses;
    uint64_t answered_ns; /* clock_now_ns of the last answer; 0: none */
};

/* Copies the state of all names into the arena. Returns: how many are at *out; 0 when out of
 * memory, too. Thread: any. */
size_t dns_watch_report(struct dns_watch *watch, struct arena *arena, struct dns_report **out);

#endif
