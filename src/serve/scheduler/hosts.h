/* Hosts of clients that are treated apart, of one model version: those whose requests failed of
 * late, and those whose streams were ended because they read slowly. A client that makes a
 * connection for each request is known again by its host. Tables of fixed size; a host may be
 * forgotten for another one.
 *
 * Thread: any; takes no lock. */
#ifndef SLUICE_SERVE_SCHEDULER_HOSTS_H
#define SLUICE_SERVE_SCHEDULER_HOSTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- requests that failed -------------------------------------------------------------------- */

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

/* ---- streams that were ended ----------------------------------------------------------------- */

/* The next streams of such a host may lag for a shorter time while others wait: its N streams cost
 * those that wait twice the setting and N thirty-seconds of it, not N times the setting. */

/* Each ended stream halves the time, down to a thirty-second: 4 MiB at the speed of a network of
 * 1 Gbit/s, with the default of 1 s. */
enum { SLOW_HOSTS = 64, SLOW_HOST_MAX_HALVINGS = 5 };
/* How long a host is known after its last ended stream. */
static const uint64_t SLOW_HOST_NS = UINT64_C(60000000000);

struct slow_hosts {
    struct slow_host {
        _Atomic uint64_t host; /* a hash; 0: none */
        _Atomic uint64_t until_ns;
        _Atomic uint32_t n_ended;
    } rows[SLOW_HOSTS];
};

static inline uint32_t slow_hosts_count(const struct slow_hosts *all, uint64_t host,
                                        uint64_t now_ns) {
    const struct slow_host *row = &all->rows[host % SLOW_HOSTS];
    return host != 0 && atomic_load_explicit(&row->host, memory_order_relaxed) == host &&
                   atomic_load_explicit(&row->until_ns, memory_order_relaxed) > now_ns
               ? atomic_load_explicit(&row->n_ended, memory_order_relaxed)
               : 0;
}

/* A stream of the host was ended. */
static inline void slow_hosts_note(struct slow_hosts *all, uint64_t host, uint64_t now_ns) {
    struct slow_host *row = &all->rows[host % SLOW_HOSTS];
    uint32_t n = slow_hosts_count(all, host, now_ns);
    atomic_store_explicit(&row->n_ended, n < SLOW_HOST_MAX_HALVINGS ? n + 1 : n,
                          memory_order_relaxed);
    atomic_store_explicit(&row->until_ns, now_ns + SLOW_HOST_NS, memory_order_relaxed);
    atomic_store_explicit(&row->host, host, memory_order_relaxed);
}

/* Returns: how long a stream of the host may lag; at least 1. */
static inline uint64_t slow_hosts_timeout_ns(const struct slow_hosts *all, uint64_t host,
                                             uint64_t timeout_ns, uint64_t now_ns) {
    uint64_t left_ns = timeout_ns >> slow_hosts_count(all, host, now_ns);
    return left_ns > 0 ? left_ns : 1;
}

#endif
