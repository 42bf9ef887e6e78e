/* A pool's use of the prefix table, and what else is recorded of requests: tokens in flight, cold
 * requests, response times. */
#include "pick/pool/prefix/prompt.h"

#include "core/base/hash.h"
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

/* ---- the text -------------------------------------------------------------------------------- */

/* The size of the producer's blocks. Upstream takes that of the first endpoint, too. */
static uint32_t block_bytes_of(const struct pool_reader *reader,
                               const struct prefix_producer *producer) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    if (!producer->auto_block || snapshot->n_members == 0) {
        return producer->block_bytes;
    }
    const struct load_cell *cell = &snapshot->loads[0];
    uint32_t n = atomic_load_explicit(&cell->kv_block_tokens, memory_order_relaxed);
    bool is_set = atomic_load_explicit(&cell->known, memory_order_relaxed) & LOAD_KV_SIZE;
    bool fits = n > PREFIX_BLOCK_TOKENS_MIN && n <= PREFIX_MAX_BLOCK_BYTES / PROMPT_BYTES_PER_TOKEN;
    return is_set && fits ? n * PROMPT_BYTES_PER_TOKEN : producer->block_bytes;
}

uint64_t prompt_text_media_seed(const struct pool_reader *reader) {
    const struct prefix_table *table = reader->pool->prefix_table;
    return table ? prefix_table_seed(table) : 0;
}

static struct prompt_chains *find_chains(const struct prompt_text *text, uint32_t block_bytes) {
    for (uint32_t i = 0; i < text->n; i++) {
        if (text->chains[i].text.blocks.block_bytes == block_bytes) {
            return &text->chains[i];
        }
    }
    return NULL;
}

/* When out of memory the prompt counts as unknown. */
void prompt_text_init(struct prompt_text *text, const struct pool_reader *reader,
                      struct arena *arena) {
    const struct pool_request_needs *needs = pool_request_needs(reader);
    const struct prefix_table *table = reader->pool->prefix_table;
    *text = (struct prompt_text){.arena = arena};
    if (!table || needs->used_prefixes == 0) {
        return;
    }
    text->chains = arena_alloc_array(arena, needs->n_prefixes, sizeof(*text->chains));
    for (uint32_t i = 0; text->chains && i < needs->n_prefixes; i++) {
        const struct prefix_producer *producer = &needs->prefixes[i];
        if (!pool_needs_prefix(needs, i) || producer->kind == PREFIX_MEDIA) {
            continue;
        }
        uint32_t block_bytes = block_bytes_of(reader, producer);
        struct prefix_blocks blocks = prefix_producer_blocks(producer, block_bytes);
        struct prompt_chains *chains = find_chains(text, block_bytes);
        if (chains) {
            uint32_t most = chains->text.blocks.most;
            chains->text.blocks.most = chains->system.blocks.most =
                blocks.most > most ? blocks.most : most;
            continue;
        }
        chains = &text->chains[text->n++];
        *chains = (struct prompt_chains){.n = 0};
        prefix_chain_init(&chains->system, arena, blocks, prefix_table_seed(table));
        prefix_chain_init(&chains->text, arena, blocks, prefix_table_seed(table));
    }
}

void prompt_text_add(struct prompt_text *text, bool system, struct str bytes) {
    for (uint32_t i = 0; !text->fixed && i < text->n; i++) {
        prefix_chain_add(system ? &text->chains[i].system : &text->chains[i].text, bytes);
    }
}

void prompt_text_end(struct prompt_text *text, bool system) {
    for (uint32_t i = 0; !text->fixed && i < text->n; i++) {
        prefix_chain_end(system ? &text->chains[i].system : &text->chains[i].text);
    }
}

uint64_t prompt_text_bytes(const struct prompt_text *text) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < text->n; i++) {
        const struct prompt_chains *chains = &text->chains[i];
        uint32_t n_joined = chains->n_system > 0 ? chains->n : 0;
        n += ((uint64_t)chains->system.cap + chains->text.cap + n_joined) * sizeof(uint64_t);
    }
    return n;
}

struct pool_prompt *pool_prompt_init(struct pool_prompt *prompt, const struct pool_reader *reader,
                                     struct arena *arena, struct str text) {
    *prompt = (struct pool_prompt){.text = arena_alloc(arena, sizeof(*prompt->text))};
    if (!prompt->text) {
        return NULL;
    }
    prompt_text_init(prompt->text, reader, arena);
    prompt_text_add(prompt->text, false, text);
    prompt_text_end(prompt->text, false);
    return prompt;
}

/* The hashes of both texts. Text after a system text that has not ended is not known to follow
 * it. */
static void join_chains(struct arena *arena, struct prompt_chains *chains) {
    const struct prefix_chain *system = &chains->system, *text = &chains->text;
    bool is_partial = system->n + system->n_rest > 0 && !system->ended;
    uint32_t n_text = is_partial ? 0 : text->n;
    uint32_t n = system->n + n_text, most = text->blocks.most;
    n = n < most ? n : most;
    if (system->n == 0) {
        chains->hashes = text->hashes;
        chains->n = n_text;
        return;
    }
    if (chains->n_system == system->n && chains->n == n) {
        return;
    }
    uint64_t *hashes = arena_alloc_array(arena, n, sizeof(*hashes));
    chains->n = hashes ? n : 0;
    chains->n_system = system->n;
    chains->hashes = hashes;
    for (uint32_t i = 0; i < chains->n; i++) {
        hashes[i] = i < system->n ? system->hashes[i] : text->hashes[i - system->n] ^ system->last;
    }
}

/* ---- matches --------------------------------------------------------------------------------- */

/* Returns: member + 1; 0: no member of the snapshot has this host number. */
static uint32_t member_of(const struct pool_snapshot *snapshot, uint32_t host) {
    uint32_t i = host - snapshot->first_host; /* below first_host it wraps to a large number */
    return i < snapshot->n_hosts ? snapshot->hosts[i] : 0;
}

static void find_matches(const struct pool_reader *reader, const struct prefix_key *key,
                         struct prefix_matches *out) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    struct prefix_hit hits[PREFIX_MAX_HOSTS];
    uint32_t n = prefix_table_find(reader->pool->prefix_table, key, hits);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t member = member_of(snapshot, hits[i].host);
        if (member != 0) {
            out->hits[out->n].member = member - 1;
            out->hits[out->n++].n_blocks = hits[i].n_blocks;
        }
    }
    out->n_blocks = key->n;
}

static void add_media_hit(struct media_matches *out, uint32_t member, uint8_t kind) {
    uint32_t i = 0;
    while (i < out->n && out->hits[i].member != member) {
        i++;
    }
    if (i == MEDIA_MAX_HITS) {
        return;
    }
    if (i == out->n) {
        memset(&out->hits[out->n], 0, sizeof(out->hits[out->n]));
        out->hits[out->n++].member = member;
    }
    out->hits[i].n_items++;
    out->hits[i].n_by_kind[kind]++;
}

/* Each item by itself: they have no order. */
static void find_media(const struct pool_reader *reader, const struct prefix_key *key,
                       const uint8_t *kinds, struct media_matches *out) {
    struct prefix_key item = *key;
    item.n = 1;
    for (uint32_t k = 0; k < key->n; k++, item.hashes++) {
        struct prefix_hit hits[PREFIX_MAX_HOSTS];
        uint32_t n = prefix_table_find(reader->pool->prefix_table, &item, hits);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t member = member_of(reader->snapshot, hits[i].host);
            if (member != 0) {
                add_media_hit(out, member - 1, kinds[k]);
            }
        }
    }
    out->n_items = key->n;
}

static void match_media(struct pool_reader *reader, const struct prefix_producer *producer,
                        uint32_t index, struct pool_prompt *prompt) {
    const struct prompt_text *text = prompt->text;
    prompt->keys[index] = (struct prefix_key){.hashes = text->media,
                                              .n = text->n_media,
                                              .index = index,
                                              .salt = prefix_producer_salt(producer)};
    find_media(reader, &prompt->keys[index], text->media_kinds, &reader->media[index]);
}

static void set_key(const struct prefix_producer *producer, uint32_t index, uint32_t block_bytes,
                    uint64_t salt, struct pool_prompt *prompt) {
    struct prompt_chains *chains = find_chains(prompt->text, block_bytes);
    struct prefix_key *key = &prompt->keys[index];
    *key = (struct prefix_key){.index = index};
    if (chains) {
        uint32_t most = prefix_producer_blocks(producer, block_bytes).most;
        join_chains(prompt->text->arena, chains);
        key->hashes = chains->hashes;
        key->n = chains->n < most ? chains->n : most;
        key->salt = salt ^ prefix_producer_salt(producer);
    }
}

/* All of the prompt is at the endpoint that it was assigned. */
static void match_assigned(const struct pool_reader *reader, const struct pool_prompt *prompt,
                           uint32_t n_blocks, struct prefix_matches *out) {
    const struct prompt_text *text = prompt->text;
    const struct pool_member *member =
        text->is_assigned ? pool_snapshot_find(reader->snapshot, &text->assigned) : NULL;
    out->n_blocks = n_blocks;
    out->is_placed = true;
    if (member && n_blocks > 0) {
        out->hits[out->n].member = (uint32_t)(member - reader->snapshot->members);
        out->hits[out->n++].n_blocks = n_blocks;
    }
}

static void match_text(struct pool_reader *reader, const struct prefix_producer *producer,
                       uint32_t index, uint64_t salt, struct pool_prompt *prompt) {
    struct prefix_matches *out = &reader->prefixes[index];
    out->block_bytes = block_bytes_of(reader, producer);
    set_key(producer, index, out->block_bytes, salt, prompt);
    if (producer->kind == PREFIX_BURST) {
        match_assigned(reader, prompt, prompt->keys[index].n, out);
    } else {
        find_matches(reader, &prompt->keys[index], out);
    }
}

/* Of each used producer. */
static __attribute__((noinline)) void match_prompt(struct pool_reader *reader,
                                                   const struct pool_request_needs *needs,
                                                   const struct pool_request *request,
                                                   struct str model,
                                                   const struct candidate_set *candidates) {
    struct pool_prompt *prompt = request->prompt;
    struct plugin_clock *clock = reader->clock_runs ? &reader->clock : NULL;
    uint64_t seed = prefix_table_seed(reader->pool->prefix_table);
    uint64_t salt = hash_text(model, seed) ^ prompt->text->salt;
    for (uint32_t used = needs->used_prefixes; used != 0; used &= used - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(used);
        const struct prefix_producer *producer = &needs->prefixes[i];
        plugin_clock_begin(clock);
        if (producer->kind == PREFIX_MEDIA) {
            match_media(reader, producer, i, prompt);
        } else {
            match_text(reader, producer, i, salt, prompt);
        }
        plugin_clock_end_producer(clock, i);
    }
    if (needs->source.on && !request->fellow) {
        prefix_source_choose(reader, needs, request, candidates);
    }
}

void pool_prompt_match(struct pool_reader *reader, const struct profile *profile,
                       const struct pool_request *request, struct str model,
                       const struct candidate_set *candidates) {
    const struct pool_request_needs *needs = &profile->needs;
    for (uint32_t i = 0; i < needs->n_prefixes; i++) {
        reader->prefixes[i].n_blocks = reader->prefixes[i].n = 0;
        reader->prefixes[i].is_placed = false;
        reader->media[i].n_items = reader->media[i].n = 0;
    }
    if (request->prompt && needs->used_prefixes != 0 && reader->pool->prefix_table) {
        match_prompt(reader, needs, request, model, candidates);
    }
}

/* ---- recording ------------------------------------------------------------------------------- */

/* The number of blocks that fit into the endpoint's KV cache, where it is reported. */
static uint32_t capacity_of(const struct pool_reader *reader,
                            const struct prefix_producer *producer,
                            const struct endpoint *endpoint) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    uint32_t member = member_of(snapshot, endpoint->host);
    if (!producer->auto_capacity || member == 0) {
        return producer->capacity;
    }
    const struct load_cell *cell = &snapshot->loads[member - 1];
    uint64_t tokens = (uint64_t)atomic_load_explicit(&cell->kv_block_tokens, memory_order_relaxed) *
                      atomic_load_explicit(&cell->n_kv_blocks, memory_order_relaxed);
    bool is_set = atomic_load_explicit(&cell->known, memory_order_relaxed) & LOAD_KV_SIZE;
    uint64_t n = tokens * PROMPT_BYTES_PER_TOKEN / block_bytes_of(reader, producer);
    return !is_set || n == 0 ? producer->capacity : n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

/* The producer remembers what endpoints were sent. */
static bool is_recorded(const struct pool_request_needs *needs, uint32_t i) {
    return pool_needs_prefix(needs, i) && needs->prefixes[i].kind != PREFIX_BURST;
}

/* Records the hashes of the pick. */
static void record_prompt(struct pool_reader *reader, const struct pool_request_needs *needs,
                          const struct pool_prompt *prompt, const struct endpoint *endpoint) {
    struct prefix_table *table = reader->pool->prefix_table;
    for (uint32_t i = 0; table && i < needs->n_prefixes; i++) {
        if (is_recorded(needs, i)) {
            prefix_table_add(table, endpoint->host,
                             capacity_of(reader, &needs->prefixes[i], endpoint), &prompt->keys[i]);
        }
    }
}

/* The number of the prompt's first blocks that the endpoint has already. */
static uint32_t count_known_blocks(const struct pool_reader *reader, uint32_t index,
                                   const struct endpoint *endpoint) {
    const struct prefix_matches *found = &reader->prefixes[index];
    for (uint32_t i = 0; i < found->n; i++) {
        if (reader->snapshot->members[found->hits[i].member].endpoint == endpoint) {
            return found->hits[i].n_blocks;
        }
    }
    return 0;
}

uint32_t pool_prompt_cached_tokens(const struct pool_reader *reader,
                                   const struct endpoint *endpoint) {
    uint64_t n_blocks = count_known_blocks(reader, 0, endpoint);
    return (uint32_t)(n_blocks * reader->prefixes[0].block_bytes / PROMPT_BYTES_PER_TOKEN);
}

static bool sees_responses(const struct pool *pool) {
    return atomic_load_explicit(&pool->n_unseen, memory_order_relaxed) <= MOST_UNSEEN;
}

static void hold_prompt(struct pool_reader *reader, const struct pool_request_needs *needs,
                        struct pool_prompt *prompt, const struct endpoint *endpoint) {
    struct prefix_table *table = reader->pool->prefix_table;
    for (uint32_t i = 0; table && i < needs->n_prefixes; i++) {
        struct prefix_key key = prompt->keys[i];
        uint32_t n_known = count_known_blocks(reader, i, endpoint);
        if (is_recorded(needs, i) && key.n > n_known) {
            key.hashes += n_known;
            key.n -= n_known;
            prefix_table_hold(table, endpoint->host, &key, &prompt->holds[i]);
        }
    }
}

static void release_holds(struct pool_reader *reader, struct pool_prompt *prompt) {
    struct prefix_table *table = reader->pool->prefix_table;
    for (uint32_t i = 0; table && i < PREFIX_MAX_INDEXES; i++) {
        if (prompt->holds[i].key.n > 0) {
            prefix_table_unhold(table, &prompt->holds[i]);
        }
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
    release_holds(reader, prompt);
}

void pool_prompt_unanswered(struct pool_reader *reader, struct pool_prompt *prompt) {
    if (sees_responses(reader->pool)) {
        atomic_fetch_add_explicit(&reader->pool->n_unseen, 1, memory_order_relaxed);
    }
    release_holds(reader, prompt);
}

/* ---- a pick ---------------------------------------------------------------------------------- */

/* What the request counts at the endpoint. */
static uint32_t count_tokens(const struct pool_reader *reader, const struct pool_request *request,
                             const struct pool_request_needs *needs,
                             const struct endpoint *endpoint) {
    const struct load_producer *load = &needs->load;
    const struct prefix_matches *found = &reader->prefixes[load->prefix];
    uint32_t n_blocks = 0, n_cached = 0;
    if (request->prompt && pool_needs_prefix(needs, load->prefix)) {
        n_blocks = found->n_blocks;
        n_cached = count_known_blocks(reader, load->prefix, endpoint);
    }
    return (uint32_t)load_producer_count(load, request->n_tokens, request->max_output_tokens,
                                         found->block_bytes, n_blocks, n_cached);
}

/* Once for each request, of all endpoints of the pool. */
static void count_media(struct pool_reader *reader, uint32_t index,
                        const struct prompt_text *text) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    const struct media_matches *found = &reader->media[index];
    metric_cell *ratios = reader->pool->media_ratios[index];
    for (uint32_t i = 0; i < found->n_items; i++) {
        metric_cell_add(&reader->pool->media[index].n_items[text->media_kinds[i]], 1);
    }
    for (uint32_t i = 0; i < found->n; i++) {
        struct endpoint *endpoint = snapshot->members[found->hits[i].member].endpoint;
        for (size_t k = 0; k < N_MEDIA_KINDS; k++) {
            metric_cell_add(&endpoint->media_hits[index].n_items[k], found->hits[i].n_by_kind[k]);
        }
        metric_scale_add(&PREFIX_HIT_RATIOS, ratios,
                         PREFIX_HIT_ALL * found->hits[i].n_items / found->n_items);
    }
    if (found->n_items > 0) {
        metric_scale_add_many(&PREFIX_HIT_RATIOS, ratios, 0, snapshot->n_members - found->n);
    }
}

/* Of the destination's profile, as upstream counts them. */
static __attribute__((noinline)) void count_hits(struct pool_reader *reader,
                                                 const struct pool_request_needs *needs,
                                                 const struct pool_request *request,
                                                 const struct endpoint *endpoint) {
    for (uint32_t used = needs->used_prefixes; used != 0; used &= used - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(used);
        if (needs->prefixes[i].kind == PREFIX_MEDIA) {
            count_media(reader, i, request->prompt->text);
        } else if (needs->prefixes[i].kind == PREFIX_TEXT) {
            const struct prefix_matches *found = &reader->prefixes[i];
            prefix_hits_add(&reader->pool->prefix_hits[i], found->block_bytes,
                            count_known_blocks(reader, i, endpoint), found->n_blocks,
                            request->n_tokens);
        }
    }
}

void pool_read_prefix_hits(const struct pool *pool, uint32_t index, struct prefix_hit_counts *out) {
    prefix_hits_read(&pool->prefix_hits[index], out);
}

void pool_read_media_lookups(const struct pool *pool, uint32_t index,
                             uint64_t n_items[N_MEDIA_KINDS],
                             uint64_t ratios[PREFIX_HIT_RATIO_CELLS]) {
    for (size_t k = 0; k < N_MEDIA_KINDS; k++) {
        n_items[k] += metric_cell_read(&pool->media[index].n_items[k]);
    }
    metric_scale_read(&PREFIX_HIT_RATIOS, pool->media_ratios[index], ratios);
}

uint64_t pool_prefix_size(const struct pool *pool, const struct pool_snapshot *snapshot,
                          uint32_t index) {
    uint64_t n = 0;
    for (uint32_t i = 0; pool->prefix_table && i < snapshot->n_members; i++) {
        n += prefix_table_host_blocks(pool->prefix_table, snapshot->members[i].endpoint->host,
                                      index);
    }
    return n;
}

void pool_prompt_add_in_flight(struct pool_reader *reader, const struct pool_request *request,
                               const struct profile *profile, struct endpoint *endpoint,
                               struct pool_ticket *ticket) {
    ticket->n_tokens = request->n_tokens;
    if (request->prompt && profile && profile->needs.used_prefixes != 0 &&
        request->stage == STAGE_DECODE) {
        count_hits(reader, &profile->needs, request, endpoint);
    }
    if (profile && profile->needs.tokens) {
        ticket->n_tokens = count_tokens(reader, request, &profile->needs, endpoint);
        ticket->counts_prompt = !profile->needs.load.adds_output;
    }
    endpoint_add_tokens(reader->pool, endpoint, ticket->n_tokens);
    if (profile && profile->needs.cold_requests &&
        reader->prefixes[profile->needs.cold_prefix].n == 0) {
        uint32_t turn =
            atomic_fetch_add_explicit(&reader->pool->last_cold_request, 1, memory_order_relaxed);
        atomic_store_explicit(&endpoint->last_cold_request, turn + 1, memory_order_relaxed);
    }
}

static __attribute__((noinline)) void keep_prompt(struct pool_reader *reader,
                                                  const struct pool_request_needs *needs,
                                                  struct pool_prompt *prompt,
                                                  const struct endpoint *endpoint) {
    prompt->text->fixed = true;
    if (sees_responses(reader->pool)) {
        hold_prompt(reader, needs, prompt, endpoint);
    } else {
        record_prompt(reader, needs, prompt, endpoint);
    }
}

void pool_prompt_record(struct pool_reader *reader, const struct pool_request *request,
                        const struct profile *profile, struct pool_ticket *ticket) {
    struct endpoint *endpoint = ticket->endpoint;
    if (!profile) {
        return;
    }
    if (request->prompt && profile->needs.prompt) {
        keep_prompt(reader, &profile->needs, request->prompt, endpoint);
    }
    if (profile->needs.latency) {
        ticket->sent_ns = clock_now_ns();
    }
}

void pool_ticket_end_prompt(struct pool *pool, struct pool_ticket *ticket) {
    if (!ticket->endpoint || !ticket->counts_prompt || ticket->n_tokens == 0) {
        return;
    }
    lock_acquire(&pool->lock);
    endpoint_add_tokens(pool, ticket->endpoint, -(int64_t)ticket->n_tokens);
    endpoint_record_change(pool, ticket->endpoint);
    lock_release(&pool->lock);
    ticket->n_tokens = 0;
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
