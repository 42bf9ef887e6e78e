/* What is known of an endpoint's load: what it said of itself when it was asked last, until when
 * that counts, and what is made of it now. What it said is corrected by what this picker has sent
 * there since and has seen end since, so that the picks between two answers see each other. What is
 * too old counts no more: then an endpoint is judged by our own requests in flight, like one that
 * never said anything.
 *
 * A snapshot has one cell for each of its members, side by side, so that going through a thousand
 * is going through an array. A cell is written under the pool's lock (pool_set_load) and read by
 * anyone without it, value by value: two of one endpoint may be of answers in a row.
 *
 * It refuses to know where the values come from. */
#ifndef SLUICE_PICK_POOL_ENDPOINT_LOAD_H
#define SLUICE_PICK_POOL_ENDPOINT_LOAD_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"

enum { LOAD_MAX_ADAPTERS = 28 };

/* What an endpoint said something of. */
enum load_known {
    LOAD_WAITING = 1,
    LOAD_RUNNING = 2,
    LOAD_KV_CACHE = 4,
    LOAD_KV_SIZE = 8,
    LOAD_ADAPTERS = 16,
};

/* An answer of an endpoint. Zeroed memory says nothing; what is filled in has its bit in
 * `known`. */
struct endpoint_load {
    uint64_t asked_ns;  /* clock_now_ns when it was asked */
    uint64_t until_ns;  /* from then on it is too old */
    uint32_t in_flight; /* endpoint_in_flight when it was asked */
    unsigned known;     /* LOAD_…, together */
    uint32_t n_waiting; /* requests */
    uint32_t n_running;
    float kv_cache_used;      /* from 0 to 1 */
    uint32_t kv_block_tokens; /* of a block */
    uint32_t n_kv_blocks;
    uint32_t max_adapters; /* LoRA: that it can have loaded at once */
    uint32_t n_running_adapters, n_waiting_adapters;
    uint32_t adapters[LOAD_MAX_ADAPTERS]; /* hashes of names, the running ones first */
};

/* Adds the name of a LoRA adapter: all running ones before the waiting ones. Past
 * LOAD_MAX_ADAPTERS it is left out. Returns: false when it is left out. */
bool load_add_adapter(struct endpoint_load *load, struct str name, bool waiting);
/* Never 0. */
uint32_t load_adapter_hash(struct str name);

/* What an endpoint said of adapters in one number, so that most endpoints need no closer look: is
 * there room for another, and a bit for each that it has, which others may have, too. 0: it said
 * nothing. */
static const uint32_t LOAD_ADAPTER_FREE_SLOT = UINT32_C(1) << 31;
static inline uint32_t load_adapter_bit(uint32_t hash) {
    return UINT32_C(1) << hash % 31;
}

/* ---- in a snapshot --------------------------------------------------------------------------- */

struct load_cell {
    alignas(64) _Atomic uint64_t until_ns; /* 0: nothing is known */
    _Atomic uint64_t asked_ns;
    _Atomic uint32_t known;
    _Atomic uint32_t in_flight;
    _Atomic uint32_t n_waiting;
    _Atomic uint32_t n_running;
    _Atomic float kv_cache_used;
    _Atomic uint32_t kv_block_tokens;
    _Atomic uint32_t n_kv_blocks;
    _Atomic uint32_t adapters; /* in one number */
};

struct load_adapters {
    _Atomic uint32_t most;
    _Atomic uint32_t n_running, n_waiting;
    _Atomic uint32_t hashes[LOAD_MAX_ADAPTERS];
};

/* Writes both, with impossible values (NaN, a cache that is used by more than 1) made harmless.
 * Thread: one at a time. */
void load_cell_set(const struct endpoint_load *load, struct load_cell *cell,
                   struct load_adapters *adapters);
/* What was stored; `known` is 0 when it is too old at `now_ns`, or nothing ever was. */
void load_cell_get(const struct load_cell *cell, const struct load_adapters *adapters,
                   uint64_t now_ns, struct endpoint_load *out);

/* ---- now ------------------------------------------------------------------------------------- */

/* The estimate for this moment. */
struct load_estimate {
    unsigned known; /* what of the following counts */
    uint32_t n_waiting, n_running;
    float kv_cache_used;
    uint32_t adapters;
};

/* Those sent since it was asked wait there, as far as we know, and run if nothing waited. Of those
 * that ended each made room for one that waited. Never below 0. */
static inline void load_estimate_adjust(struct load_estimate *now, int64_t n_sent) {
    int64_t waiting = (int64_t)now->n_waiting + n_sent, running = now->n_running;
    if (n_sent < 0 ? waiting < 0 : now->n_waiting == 0) {
        running += waiting;
    }
    now->n_waiting = waiting > 0 ? (uint32_t)waiting : 0;
    now->n_running = running > 0 ? (uint32_t)running : 0;
}

/* `in_flight`: of ours, now. */
static inline struct load_estimate load_estimate_get(const struct load_cell *cell, uint64_t now_ns,
                                                     uint32_t in_flight) {
    struct load_estimate now = {0};
    if (atomic_load_explicit(&cell->until_ns, memory_order_relaxed) <= now_ns) {
        return now;
    }
    now.known = atomic_load_explicit(&cell->known, memory_order_relaxed);
    now.n_waiting = atomic_load_explicit(&cell->n_waiting, memory_order_relaxed);
    now.n_running = atomic_load_explicit(&cell->n_running, memory_order_relaxed);
    now.kv_cache_used = atomic_load_explicit(&cell->kv_cache_used, memory_order_relaxed);
    now.adapters = atomic_load_explicit(&cell->adapters, memory_order_relaxed);
    load_estimate_adjust(&now, (int64_t)in_flight -
                                   atomic_load_explicit(&cell->in_flight, memory_order_relaxed));
    return now;
}

#endif
