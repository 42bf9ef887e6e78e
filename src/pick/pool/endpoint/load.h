/* An endpoint's load: its last report (scraped metrics), until when the report is valid, and an
 * estimate for now. The estimate corrects the report by the requests that this picker has sent
 * there, and has seen end there, since: picks between two reports see each other. Our requests that
 * the report counts neither as running nor as waiting wait as well: a server that hangs, and says
 * that it is idle, gets no more of them. Where these are most of our requests, its KV cache is at
 * least as full as it reports: they will need some of it. After the report has expired the endpoint
 * is judged by our requests in flight, as one that never reported.
 *
 * A snapshot has one cell per member in an array, so that a pick over a thousand endpoints reads
 * memory in order. A cell is written under the pool's lock (pool_set_load) and read without it,
 * value by value: two values may be of successive reports. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_LOAD_H
#define SLUICE_PICK_POOL_ENDPOINT_LOAD_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum { LOAD_MAX_ADAPTERS = 28 };

/* What a report contains, and LOAD_KV_CACHE_LEAST. */
enum load_known {
    LOAD_WAITING = 1,
    LOAD_RUNNING = 2,
    LOAD_KV_CACHE = 4,
    LOAD_KV_SIZE = 8,
    LOAD_ADAPTERS = 16,
    LOAD_KV_CACHE_LEAST = 32, /* kv_cache_used is a lower bound; set by load_cell_set */
};

/* A load report. Zeroed memory is an empty one; each value that is set has its bit in `known`. */
struct endpoint_load {
    uint64_t asked_ns;  /* clock_now_ns of the scrape */
    uint64_t until_ns;  /* valid until then */
    uint32_t in_flight; /* endpoint_in_flight at the scrape */
    unsigned known;     /* bits of LOAD_… */
    uint32_t n_waiting; /* requests */
    uint32_t n_running;
    float kv_cache_used;      /* from 0 to 1 */
    uint32_t kv_block_tokens; /* tokens per KV cache block */
    uint32_t n_kv_blocks;
    uint32_t max_adapters; /* LoRA: adapters that can be loaded at the same time */
    uint32_t n_running_adapters, n_waiting_adapters;
    uint32_t adapters[LOAD_MAX_ADAPTERS]; /* hashes of names, running ones first */
};

/* Adds the name of a LoRA adapter; all running ones before the waiting ones. Returns: false when
 * there are LOAD_MAX_ADAPTERS already; the adapter is left out. */
bool load_add_adapter(struct endpoint_load *load, struct str name, bool waiting);
/* Never 0. */
uint32_t load_adapter_hash(struct str name);

/* The adapters in one number, so that most endpoints need no closer look: whether another one can
 * be loaded, and one bit for each adapter, which several adapters may share. 0: not reported. */
static const uint32_t LOAD_ADAPTER_FREE_SLOT = UINT32_C(1) << 31;
static inline uint32_t load_adapter_bit(uint32_t hash) {
    return UINT32_C(1) << hash % 31;
}

/* ---- cells of a snapshot --------------------------------------------------------------------- */

struct load_cell {
    alignas(64) _Atomic uint64_t until_ns; /* 0: no report */
    _Atomic uint64_t asked_ns;
    _Atomic uint32_t known;
    _Atomic uint32_t in_flight;
    _Atomic uint32_t n_waiting;
    _Atomic uint32_t n_running;
    _Atomic uint32_t n_counted; /* n_waiting, and our requests that the report does not count */
    _Atomic float kv_cache_used;
    _Atomic uint32_t kv_block_tokens;
    _Atomic uint32_t n_kv_blocks;
    _Atomic uint32_t adapters; /* summary in one number */
};

struct load_adapters {
    _Atomic uint32_t most;
    _Atomic uint32_t n_running, n_waiting;
    _Atomic uint32_t hashes[LOAD_MAX_ADAPTERS];
};

/* Writes both. Impossible values (NaN, a KV cache share above 1, more than 2^30
 * requests) are corrected. Thread: one at a
 * time. */
void load_cell_set(const struct endpoint_load *load, struct load_cell *cell,
                   struct load_adapters *adapters);
/* The stored report; `known` is 0 when it has expired at `now_ns`, or there was none. */
void load_cell_get(const struct load_cell *cell, const struct load_adapters *adapters,
                   uint64_t now_ns, struct endpoint_load *out);

/* ---- estimates ------------------------------------------------------------------------------- */

/* An estimate for now. */
struct load_estimate {
    unsigned known; /* which of the following are valid */
    uint32_t n_waiting, n_running;
    float kv_cache_used;
    uint32_t adapters;
};

/* Requests sent since the report are assumed to wait there, or to run if none waited; each one that
 * ended let a waiting one run. Never below 0. */
static inline void load_estimate_adjust(struct load_estimate *now, int64_t n_sent) {
    int64_t waiting = (int64_t)now->n_waiting + n_sent, running = now->n_running;
    if (n_sent < 0 ? waiting < 0 : now->n_waiting == 0) {
        running += waiting;
    }
    now->n_waiting = waiting > 0 ? (uint32_t)waiting : 0;
    now->n_running = running > 0 ? (uint32_t)running : 0;
}

/* `in_flight`: our requests there now. */
static inline struct load_estimate load_estimate_get(const struct load_cell *cell, uint64_t now_ns,
                                                     uint32_t in_flight) {
    struct load_estimate now = {0};
    if (atomic_load_explicit(&cell->until_ns, memory_order_relaxed) <= now_ns) {
        return now;
    }
    now.known = atomic_load_explicit(&cell->known, memory_order_relaxed);
    now.n_waiting = atomic_load_explicit(&cell->n_counted, memory_order_relaxed);
    now.n_running = atomic_load_explicit(&cell->n_running, memory_order_relaxed);
    now.kv_cache_used = atomic_load_explicit(&cell->kv_cache_used, memory_order_relaxed);
    now.adapters = atomic_load_explicit(&cell->adapters, memory_order_relaxed);
    load_estimate_adjust(&now, (int64_t)in_flight -
                                   atomic_load_explicit(&cell->in_flight, memory_order_relaxed));
    return now;
}

#endif
