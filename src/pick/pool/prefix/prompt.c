/* Between a pool and the table of prompts; and what is remembered of a request besides. */
#include "pick/pool/prefix/prompt.h"

#include "core/event/clock.h"
#include "pick/pool/state.h"

enum { BYTES_OF_TOKEN = 4 };

/* A new answer counts a tenth, those before the rest. */
static const float NEW_SHARE = 0.1f;

const struct pool_wants *pool_wants(const struct pool_reader *reader) {
    static const struct pool_wants nothing = {.prompt = false};
    const struct profile *profile = pool_profile(reader);
    return profile ? &profile->wants : &nothing;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Without memory nothing is known of it. */
static bool make_room(struct pool_prompt *prompt, uint32_t n) {
    if (prompt->cap < n) {
        prompt->hashes = arena_calloc(prompt->arena, n, sizeof(*prompt->hashes));
        prompt->cap = prompt->hashes ? n : 0;
    }
    return prompt->cap >= n;
}

/* Returns: member + 1; 0: the endpoint with this number is none of the snapshot's. */
static uint32_t member_of(const struct pool_snapshot *snapshot, uint32_t host) {
    uint32_t i = host - snapshot->first_host; /* below the first: a large number */
    return i < snapshot->n_hosts ? snapshot->hosts[i] : 0;
}

void pool_prompt_match(struct pool_reader *reader, const struct profile *profile,
                       const struct pool_request *request, struct str model) {
    const struct prefix_table *table = reader->pool->prefixes;
    const struct pool_wants *wants = &profile->wants;
    struct choice_prefix *out = &reader->prefix;
    struct pool_prompt *prompt = request->prompt;
    struct prefix_hit hits[PREFIX_MOST_HOSTS];
    out->n_blocks = out->n = 0;
    if (prompt) {
        prompt->n_hashes = 0;
    }
    if (!prompt || !wants->prompt || !table || !make_room(prompt, wants->blocks.most)) {
        return;
    }
    prompt->n_hashes = prefix_chain_make(wants->blocks, prefix_table_seed(table), model,
                                         prompt->system, prompt->text, prompt->hashes);
    uint32_t n = prefix_table_match(table, prompt->hashes, prompt->n_hashes, hits);
    const struct pool_snapshot *snapshot = reader->snapshot;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t member = member_of(snapshot, hits[i].host);
        if (member != 0) {
            out->hits[out->n].member = member - 1;
            out->hits[out->n++].n_blocks = hits[i].n_blocks;
        }
    }
    out->n_blocks = prompt->n_hashes;
}

/* In blocks: as many as fit into the cache that it has, where it says so. */
static uint32_t capacity_of(const struct pool_reader *reader, const struct pool_wants *wants,
                            const struct endpoint *endpoint) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    uint32_t member = member_of(snapshot, endpoint->host);
    if (!wants->auto_capacity || member == 0) {
        return wants->capacity;
    }
    const struct load_cell *cell = &snapshot->loads[member - 1];
    uint64_t tokens = (uint64_t)atomic_load_explicit(&cell->kv_block_tokens, memory_order_relaxed) *
                      atomic_load_explicit(&cell->n_kv_blocks, memory_order_relaxed);
    bool is_said = atomic_load_explicit(&cell->known, memory_order_relaxed) & LOAD_KV_SIZE;
    uint64_t n = tokens / wants->blocks.block_bytes * BYTES_OF_TOKEN;
    return !is_said || n == 0 ? wants->capacity : n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

/* It is sent what was cut for the pick. */
static void remember(struct pool_reader *reader, const struct pool_wants *wants,
                     const struct pool_prompt *prompt, const struct endpoint *endpoint) {
    if (prompt && prompt->n_hashes > 0 && reader->pool->prefixes) {
        prefix_table_record(reader->pool->prefixes, endpoint->host,
                            capacity_of(reader, wants, endpoint), prompt->hashes, prompt->n_hashes);
    }
}

void pool_prompt_moved(struct pool_reader *reader, const struct pool_prompt *prompt,
                       const struct endpoint *endpoint) {
    const struct pool_wants *wants = pool_wants(reader);
    if (wants->prompt) {
        remember(reader, wants, prompt, endpoint);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

void pool_prompt_count(struct pool_reader *reader, const struct pool_request *request,
                       const struct profile *profile, struct endpoint *endpoint) {
    endpoint_add_tokens(reader->pool, endpoint, request->n_tokens);
    if (profile && profile->wants.cold && reader->prefix.n == 0) {
        uint32_t turn =
            atomic_fetch_add_explicit(&reader->pool->cold_turn, 1, memory_order_relaxed);
        atomic_store_explicit(&endpoint->cold_turn, turn + 1, memory_order_relaxed);
    }
}

void pool_prompt_picked(struct pool_reader *reader, const struct pool_request *request,
                        const struct profile *profile, struct pool_ticket *ticket) {
    struct endpoint *endpoint = ticket->endpoint;
    ticket->n_tokens = request->n_tokens;
    if (!profile) {
        return;
    }
    if (profile->wants.prompt) {
        remember(reader, &profile->wants, request->prompt, endpoint);
    }
    if (profile->wants.latency) {
        ticket->picked_ns = clock_now_ns();
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void blend(_Atomic float *cell, bool is_first, float seconds) {
    float old = atomic_load_explicit(cell, memory_order_relaxed);
    float mean = is_first ? seconds : old + (seconds - old) * NEW_SHARE;
    atomic_store_explicit(cell, mean, memory_order_relaxed);
}

static void note_begun(struct endpoint *endpoint, float seconds, uint64_t now_ns) {
    bool is_first = endpoint_answered_ns(endpoint) == 0;
    blend(&endpoint->first_byte_s, is_first, seconds);
    if (is_first) { /* the least that it will be */
        blend(&endpoint->answer_s, true, seconds);
    }
    atomic_store_explicit(&endpoint->answered_ns, now_ns, memory_order_relaxed);
}

void pool_ticket_begun(struct pool *pool, struct pool_ticket *ticket, bool good) {
    struct endpoint *endpoint = ticket->endpoint;
    if (!endpoint || !good || ticket->picked_ns == 0) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    ticket->begun = true;
    lock_take(&pool->lock);
    note_begun(endpoint, (float)(now_ns - ticket->picked_ns) / 1e9f, now_ns);
    endpoint_note(pool, endpoint);
    lock_drop(&pool->lock);
}

void pool_ticket_done(const struct pool_ticket *ticket) {
    if (ticket->endpoint && ticket->begun) {
        float seconds = (float)(clock_now_ns() - ticket->picked_ns) / 1e9f;
        blend(&ticket->endpoint->answer_s, false, seconds);
    }
}
