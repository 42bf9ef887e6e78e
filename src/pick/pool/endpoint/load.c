/* Stores load reports in cells and reads them. */
#include "pick/pool/endpoint/load.h"

#include "core/base/hash.h"

/* ---- adapters -------------------------------------------------------------------------------- */

uint32_t load_adapter_hash(struct str name) {
    uint32_t hash = (uint32_t)hash_text(name, 0);
    return hash != 0 ? hash : 1;
}

bool load_add_adapter(struct endpoint_load *load, struct str name, bool waiting) {
    uint32_t n = load->n_running_adapters + load->n_waiting_adapters;
    if (n >= LOAD_MAX_ADAPTERS) {
        return false;
    }
    load->adapters[n] = load_adapter_hash(name);
    *(waiting ? &load->n_waiting_adapters : &load->n_running_adapters) += 1;
    return true;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void store_u32(_Atomic uint32_t *cell, uint32_t value) {
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

static uint32_t load_u32(const _Atomic uint32_t *cell) {
    return atomic_load_explicit(cell, memory_order_relaxed);
}

static uint32_t at_most(uint32_t value, uint32_t most) {
    return value < most ? value : most;
}

/* Returns: their summary in one number. */
static uint32_t store_adapters(const struct endpoint_load *load, struct load_adapters *adapters) {
    uint32_t n_running = at_most(load->n_running_adapters, LOAD_MAX_ADAPTERS);
    uint32_t n_waiting = at_most(load->n_waiting_adapters, LOAD_MAX_ADAPTERS - n_running);
    store_u32(&adapters->most, load->max_adapters);
    store_u32(&adapters->n_running, n_running);
    store_u32(&adapters->n_waiting, n_waiting);
    uint32_t sum = n_running + n_waiting < load->max_adapters ? LOAD_ADAPTER_FREE_SLOT : 0;
    for (uint32_t i = 0; i < n_running + n_waiting; i++) {
        store_u32(&adapters->hashes[i], load->adapters[i]);
        sum |= load_adapter_bit(load->adapters[i]);
    }
    return load->known & LOAD_ADAPTERS ? sum : 0;
}

/* A page that counts no running requests does not say. */
static uint32_t count_unreported(const struct endpoint_load *load) {
    uint64_t n_reported = (uint64_t)load->n_running + load->n_waiting;
    bool counts = (load->known & LOAD_WAITING) && (load->known & LOAD_RUNNING);
    return counts && load->in_flight > n_reported ? (uint32_t)(load->in_flight - n_reported) : 0;
}

/* Most of our requests there have no part of the KV cache yet. */
static unsigned find_kv_cache_least(const struct endpoint_load *load) {
    return count_unreported(load) > load->in_flight / 2 ? LOAD_KV_CACHE_LEAST : 0;
}

/* More than this is taken for this: our own requests, and debts, are added in 32 bits. */
enum { MOST_REPORTED = 1 << 30 };

void load_cell_set(const struct endpoint_load *load, struct load_cell *cell,
                   struct load_adapters *adapters) {
    uint32_t n_waiting = at_most(load->n_waiting, MOST_REPORTED);
    float used = load->kv_cache_used;
    bool is_share = used >= 0; /* false for NaN */
    unsigned known = is_share ? load->known : load->known & ~(unsigned)LOAD_KV_CACHE;
    store_u32(&cell->known, known | find_kv_cache_least(load));
    store_u32(&cell->in_flight, load->in_flight);
    store_u32(&cell->n_waiting, n_waiting);
    store_u32(&cell->n_running, at_most(load->n_running, MOST_REPORTED));
    store_u32(&cell->n_counted, n_waiting + count_unreported(load));
    atomic_store_explicit(&cell->kv_cache_used,
                          !is_share  ? 0
                          : used > 1 ? 1
                                     : used,
                          memory_order_relaxed);
    store_u32(&cell->kv_block_tokens, load->kv_block_tokens);
    store_u32(&cell->n_kv_blocks, load->n_kv_blocks);
    store_u32(&cell->adapters, store_adapters(load, adapters));
    atomic_store_explicit(&cell->asked_ns, load->asked_ns, memory_order_relaxed);
    atomic_store_explicit(&cell->until_ns, load->until_ns, memory_order_relaxed);
}

static void fetch_adapters(const struct load_adapters *adapters, struct endpoint_load *out) {
    out->max_adapters = load_u32(&adapters->most);
    out->n_running_adapters = at_most(load_u32(&adapters->n_running), LOAD_MAX_ADAPTERS);
    out->n_waiting_adapters =
        at_most(load_u32(&adapters->n_waiting), LOAD_MAX_ADAPTERS - out->n_running_adapters);
    for (uint32_t i = 0; i < out->n_running_adapters + out->n_waiting_adapters; i++) {
        out->adapters[i] = load_u32(&adapters->hashes[i]);
    }
}

void load_cell_get(const struct load_cell *cell, const struct load_adapters *adapters,
                   uint64_t now_ns, struct endpoint_load *out) {
    *out = (struct endpoint_load){
        .asked_ns = atomic_load_explicit(&cell->asked_ns, memory_order_relaxed),
        .until_ns = atomic_load_explicit(&cell->until_ns, memory_order_relaxed),
        .in_flight = load_u32(&cell->in_flight),
        .n_waiting = load_u32(&cell->n_waiting),
        .n_running = load_u32(&cell->n_running),
        .kv_cache_used = atomic_load_explicit(&cell->kv_cache_used, memory_order_relaxed),
        .kv_block_tokens = load_u32(&cell->kv_block_tokens),
        .n_kv_blocks = load_u32(&cell->n_kv_blocks),
    };
    out->known = out->until_ns > now_ns ? load_u32(&cell->known) : 0;
    fetch_adapters(adapters, out);
}
