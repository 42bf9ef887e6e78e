/* The hosts whose requests failed of late, of one model version: a client that makes a connection
 * for each request is known again by its host. A table of fixed size; a host may be forgotten for
 * another one.
 *
 * Thread: any; takes no lock. */
#ifndef SLUICE_SERVE_SCHEDULER_FAILING_HOSTS_H
#define SLUICE_SERVE_SCHEDULER_FAILING_HOSTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FAILING_HOSTS = 64 };

struct failing_hosts {
    struct failing_host {
        _Atomic uint64_t host; /* a hash; 0: none */
        _Atomic uint64_t until_ns;
    } rows[FAILING_HOSTS];
};

static inline void failing_hosts_note(struct failing_hosts *all, uint64_t host, uint64_t until_ns) {
    struct failing_host *row = &all->rows[host % FAILING_HOSTS];
    atomic_store_explicit(&row->host, host, memory_order_relaxed);
    atomic_store_explicit(&row->until_ns, until_ns, memory_order_relaxed);
}

static inline bool failing_hosts_has(const struct failing_hosts *all, uint64_t host,
                                     uint64_t now_ns) {
    const struct failing_host *row = &all->rows[host % FAILING_HOSTS];
    return host != 0 && atomic_load_explicit(&row->host, memory_order_relaxed) == host &&
           atomic_load_explicit(&row->until_ns, memory_order_relaxed) > now_ns;
}

#endif
