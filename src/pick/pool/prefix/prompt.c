/* A pool's use of the prefix table, and what else is recorded of requests: tokens in flight, cold
 * requests, response times. */
#include "pick/pool/prefix/prompt.h"

#include "core/event/clock.h"
#include "pick/pool/state.h"

/* After so many requests without a response that was seen the proxy is taken for one that shows
 * none (response_header_mode: SKIP): prompts are then recorded at the pick. */
enum { MOST_UNSEEN = 64 };

/* The weight of a new response time in the mean. */
static const float NEW_SHARE = 0.1f;

const struct pool_request_needs *pool_request_needs(const struct pool_reader *reader) {
    static const struct pool_request_needs nothing = {.prompt = false};
    const struct profile *profile = pool_active_profile(reader);
    return profile ? &profile->needs : &nothing;
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* For each whole block of the prompt. When out of memory the prompt counts as unknown. */
static bool reserve_hashes(struct pool_prompt *prompt, struct prefix_blocks blocks) {
    size_t n_whole = (prompt->system.len + prompt->text.len) / blocks.block_bytes;
    uint32_t n = n_whole < blocks.most ? (uint32_t)n_whole : blocks.most;
    if (prompt->cap < n) {
        prompt->hashes = arena_alloc_array(prompt->arena, n, sizeof(*prompt->hashes));
        prompt->cap = prompt->hashes ? n : 0;
    }
    return prompt->cap >= n;
}

/* Returns: member + 1; 0: no member of the snapshot has this host number. */
static uint32_t member_of(const struct pool_snapshot *snapshot, uint32_t host) {
    uint32_t i = host - snapshot->first_host; /* below first_host it wraps to a large number */
    return i < snapshot->n_hosts ? snapshot->hosts[i] : 0;
}

void pool_prompt_match(struct pool_reader *reader, const struct profile *profile,
                       const struct pool_request *request, struct str model) {
    const struct prefix_table *table = reader->pool->prefix_table;
    const struct pool_request_needs *needs = &profile->needs;
    struct prefix_matches *out = &reader->prefix;
    struct pool_prompt *prompt = request->prompt;
    struct prefix_hit hits[PREFIX_MAX_HOSTS];
    out->n_blocks = out->n = 0;
    if (prompt) {
        prompt->n_hashes = 0;
    }
    if (!prompt || !needs->prompt || !table || !reserve_hashes(prompt, needs->blocks)) {
        return;
    }
    prompt->n_hashes = prefix_chain_hash(needs->blocks, prefix_table_seed(table), model,
                                         prompt->system, prompt->text, prompt->hashes);
    uint32_t n = prefix_table_find(table, prompt->hashes, prompt->n_hashes, hits);
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

/* The number of blocks that fit into the endpoint's KV cache, where it is reported. */
static uint32_t capacity_of(const struct pool_reader *reader,
                            const struct pool_request_needs *needs,
                            const struct endpoint *endpoint) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    uint32_t member = member_of(snapshot, endpoint->host);
    if (!needs->auto_capacity || member == 0) {
        return needs->capacity;
    }
    const struct load_cell *cell = &snapshot->loads[member - 1];
    uint64_t tokens = (uint64_t)atomic_load_explicit(&cell->kv_block_tokens, memory_order_relaxed) *
                      atomic_load_explicit(&cell->n_kv_blocks, memory_order_relaxed);
    bool is_set = atomic_load_explicit(&cell->known, memory_order_relaxed) & LOAD_KV_SIZE;
    uint64_t n = tokens / needs->blocks.block_bytes * PROMPT_BYTES_PER_TOKEN;
    return !is_set || n == 0 ? needs->capacity : n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

/* Records the hashes that were computed for the pick. */
static void record_prompt(struct pool_reader *reader, const struct pool_request_needs *needs,
                          const struct pool_prompt *prompt, const struct endpoint *endpoint) {
    if (prompt && prompt->n_hashes > 0 && reader->pool->prefix_table) {
        prefix_table_add(reader->pool->prefix_table, endpoint->host,
                         capacity_of(reader, needs, endpoint), prompt->hashes, prompt->n_hashes);
    }
}

/* The number of the prompt's first blocks that the endpoint has already. */
static uint32_t count_known_blocks(const struct pool_reader *reader,
                                   const struct endpoint *endpoint) {
    const struct prefix_matches *found = &reader->prefix;
    for (uint32_t i = 0; i < found->n; i++) {
        if (reader->snapshot->members[found->hits[i].member].endpoint == endpoint) {
            return found->hits[i].n_blocks;
        }
    }
    return 0;
}

static bool sees_responses(const struct pool *pool) {
    return atomic_load_explicit(&pool->n_unseen, memory_order_relaxed) <= MOST_UNSEEN;
}

static void hold_prompt(struct pool_reader *reader, struct pool_prompt *prompt,
                        const struct endpoint *endpoint) {
    struct prefix_table *table = reader->pool->prefix_table;
    uint32_t n_known = count_known_blocks(reader, endpoint);
    if (prompt->n_hashes > n_known && table) {
        prefix_table_hold(table, endpoint->host, prompt->hashes + n_known,
                          prompt->n_hashes - n_known, &prompt->hold);
    }
}

static void release_hold(struct pool_reader *reader, struct pool_prompt *prompt) {
    if (prompt->hold.n > 0 && reader->pool->prefix_table) {
        prefix_table_unhold(reader->pool->prefix_table, &prompt->hold);
    }
}

/* Until the first response is seen it is unknown whether the proxy shows any: n_unseen begins above
 * MOST_UNSEEN (pool_new). */
void pool_prompt_answered(struct pool_reader *reader, struct pool_prompt *prompt,
                          const struct endpoint *endpoint, bool taken) {
    const struct pool_request_needs *needs = pool_request_needs(reader);
    struct pool *pool = reader->pool;
    if (atomic_load_explicit(&pool->n_unseen, memory_order_relaxed) > 0) {
        atomic_store_explicit(&pool->n_unseen, 0, memory_order_relaxed);
    }
    if (taken && endpoint && needs->prompt) {
        record_prompt(reader, needs, prompt, endpoint);
    }
    release_hold(reader, prompt);
}

void pool_prompt_unanswered(struct pool_reader *reader, struct pool_prompt *prompt) {
    if (sees_responses(reader->pool)) {
        atomic_fetch_add_explicit(&reader->pool->n_unseen, 1, memory_order_relaxed);
    }
    release_hold(reader, prompt);
}

/* ---- a pick ---------------------------------------------------------------------------------- */

void pool_prompt_add_in_flight(struct pool_reader *reader, const struct pool_request *request,
                               const struct profile *profile, struct endpoint *endpoint) {
    endpoint_add_tokens(reader->pool, endpoint, request->n_tokens);
    if (profile && profile->needs.cold_requests && reader->prefix.n == 0) {
        uint32_t turn =
            atomic_fetch_add_explicit(&reader->pool->last_cold_request, 1, memory_order_relaxed);
        atomic_store_explicit(&endpoint->last_cold_request, turn + 1, memory_order_relaxed);
    }
}

void pool_prompt_record(struct pool_reader *reader, const struct pool_request *request,
                        const struct profile *profile, struct pool_ticket *ticket) {
    struct endpoint *endpoint = ticket->endpoint;
    ticket->n_tokens = request->n_tokens;
    if (!profile) {
        return;
    }
    if (profile->needs.prompt && request->prompt && sees_responses(reader->pool)) {
        hold_prompt(reader, request->prompt, endpoint);
    } else if (profile->needs.prompt) {
        record_prompt(reader, &profile->needs, request->prompt, endpoint);
    }
    if (profile->needs.latency) {
        ticket->sent_ns = clock_now_ns();
    }
}

/* ---- response times -------------------------------------------------------------------------- */

static void update_mean(_Atomic float *cell, bool is_first, float seconds) {
    float old = atomic_load_explicit(cell, memory_order_relaxed);
    float mean = is_first ? seconds : old + (seconds - old) * NEW_SHARE;
    atomic_store_explicit(cell, mean, memory_order_relaxed);
}

enum { MOST_COMPARED = 256 };

/* The first response of an endpoint may be slow for another reason than the endpoint, as a new
 * connection: its mean begins as that of the others, of which the next MOST_COMPARED in the
 * snapshot are read. Without any the response is the mean. Under the lock. */
static void begin_means(const struct pool *pool, struct endpoint *endpoint, float seconds) {
    const struct pool_snapshot *snapshot = pool->snapshot;
    uint32_t n = snapshot->n_members, n_measured = 0;
    float first_byte_s = 0, answer_s = 0;
    for (uint32_t i = 1; endpoint->in_pool && i < n && i <= MOST_COMPARED; i++) {
        const struct endpoint *other = snapshot->members[(endpoint->member + i) % n].endpoint;
        if (endpoint_answered_ns(other) != 0) {
            first_byte_s += endpoint_first_byte_s(other);
            answer_s += endpoint_answer_s(other);
            n_measured++;
        }
    }
    bool measured = n_measured > 0;
    float begin_s = measured ? first_byte_s / (float)n_measured : seconds;
    update_mean(&endpoint->first_byte_s, true, begin_s);
    update_mean(&endpoint->answer_s, true, measured ? answer_s / (float)n_measured : seconds);
}

static void record_first_byte(const struct pool *pool, struct endpoint *endpoint, float seconds,
                              uint64_t now_ns) {
    if (endpoint_answered_ns(endpoint) == 0) {
        begin_means(pool, endpoint, seconds);
    }
    update_mean(&endpoint->first_byte_s, false, seconds);
    atomic_store_explicit(&endpoint->answered_ns, now_ns, memory_order_relaxed);
}

void pool_ticket_request_ended(struct pool_ticket *ticket) {
    if (ticket->sent_ns != 0 && !ticket->response_started) {
        ticket->sent_ns = clock_now_ns();
    }
}

void pool_ticket_response_started(struct pool *pool, struct pool_ticket *ticket, bool good) {
    struct endpoint *endpoint = ticket->endpoint;
    if (!endpoint || !good || ticket->sent_ns == 0) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    ticket->response_started = true;
    lock_acquire(&pool->lock);
    record_first_byte(pool, endpoint, (float)(now_ns - ticket->sent_ns) / 1e9f, now_ns);
    endpoint_record_change(pool, endpoint);
    lock_release(&pool->lock);
}

void pool_ticket_response_ended(const struct pool_ticket *ticket) {
    if (ticket->endpoint && ticket->response_started) {
        float seconds = (float)(clock_now_ns() - ticket->sent_ns) / 1e9f;
        update_mean(&ticket->endpoint->answer_s, false, seconds);
    }
}
