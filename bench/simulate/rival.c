/* The arithmetic of upstream's plugins, each in a function. */
#include "rival.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "blocks.h"
#include "engine.h"
#include "events.h"

enum { MOST_PLUGINS = 32, MOST_STEPS = 8, MOST_PRODUCERS = 4, MOST_HASHES = 1 << 12 };
static const uint64_t MS_NS = 1000000;

enum rival_kind {
    RIVAL_NONE, /* what neither chooses nor counts: sources, extractors, policies */
    RIVAL_PRODUCER,
    RIVAL_AFFINITY_FILTER,
    RIVAL_ROLE_FILTER,
    RIVAL_QUEUE,
    RIVAL_KV_CACHE,
    RIVAL_PREFIX,
    RIVAL_ACTIVE,
    RIVAL_TOKENS,
    RIVAL_COLD,
};

static const struct {
    const char *type;
    enum rival_kind kind;
    enum stage_role role;
} KINDS[] = {
    {"approx-prefix-cache-producer", RIVAL_PRODUCER, 0},
    {"prefix-cache-affinity-filter", RIVAL_AFFINITY_FILTER, 0},
    {"prefill-filter", RIVAL_ROLE_FILTER, STAGE_PREFILL},
    {"decode-filter", RIVAL_ROLE_FILTER, STAGE_DECODE},
    {"queue-scorer", RIVAL_QUEUE, 0},
    {"kv-cache-utilization-scorer", RIVAL_KV_CACHE, 0},
    {"prefix-cache-scorer", RIVAL_PREFIX, 0},
    {"active-request-scorer", RIVAL_ACTIVE, 0},
    {"token-load-scorer", RIVAL_TOKENS, 0},
    {"no-hit-lru-scorer", RIVAL_COLD, 0},
    {"inflight-load-producer", RIVAL_NONE, 0},
    {"always-disagg-pd-decider", RIVAL_NONE, 0},
    {"disagg-profile-handler", RIVAL_NONE, 0},
    {"single-profile-handler", RIVAL_NONE, 0},
    {"max-score-picker", RIVAL_NONE, 0},
    {"metrics-data-source", RIVAL_NONE, 0},
    {"core-metrics-extractor", RIVAL_NONE, 0},
    {"concurrency-detector", RIVAL_NONE, 0},
    {"utilization-detector", RIVAL_NONE, 0},
    {"agent-identity", RIVAL_NONE, 0},
    {"program-aware-fairness", RIVAL_NONE, 0},
    {"round-robin-fairness-policy", RIVAL_NONE, 0},
    {"fcfs-ordering-policy", RIVAL_NONE, 0},
};

struct producer {
    struct str name;
    uint32_t block_tokens;
    uint64_t max_blocks, capacity;
    bool is_tuned;
    struct sim_blocks masks; /* a bit for each server that was sent the block */
    struct sim_blocks of[RIVAL_MOST_SERVERS];
    uint64_t room[RIVAL_MOST_SERVERS]; /* set with the first prompt */
};

struct plugin_of_rival {
    enum rival_kind kind;
    enum stage_role role;
    struct str name;
    yyjson_val *parameters;
};

struct step {
    const struct plugin_of_rival *plugin;
    double weight;
    uint32_t producer;
};

struct rival_profile {
    bool is_set;
    struct step filters[MOST_STEPS], scorers[MOST_STEPS];
    size_t n_filters, n_scorers;
};

struct server {
    uint8_t roles;
    uint32_t n_waiting, n_kv_blocks;
    double kv_cache_used;
    uint64_t polled_ns;
    int64_t n_requests, n_tokens;
    uint64_t last_cold; /* 0: never */
};

struct rival {
    uint32_t n_servers;
    struct server servers[RIVAL_MOST_SERVERS];
    struct producer producers[MOST_PRODUCERS];
    uint32_t n_producers;
    struct plugin_of_rival plugins[MOST_PLUGINS];
    size_t n_plugins;
    struct rival_profile profiles[N_STAGE_ROLES];
    bool queues;
    double max_concurrency; /* 0: the load of engines counts */
    uint64_t n_cold, n_picks;
    /* Of the request that is being picked for. */
    uint64_t hashes[MOST_PRODUCERS][MOST_HASHES];
    uint32_t n_hashes[MOST_PRODUCERS];
    uint32_t matches[MOST_PRODUCERS][RIVAL_MOST_SERVERS];
};

/* ---- the configuration ----------------------------------------------------------------------- */

static double number_of(yyjson_val *object, const char *name, double preset) {
    double value = preset;
    json_get_f64(json_member(object, name), &value);
    return value;
}

static void stop(const char *what, struct str name) {
    fprintf(stderr, "simulate: upstream's %s \"%.*s\" is not simulated\n", what, STR_ARG(name));
    exit(1);
}

static void add_producer(struct rival *rival, struct str name, yyjson_val *parameters) {
    struct producer *producer = &rival->producers[rival->n_producers++];
    yyjson_val *tuned = json_member(parameters, "autoTune");
    double block = number_of(parameters, "blockSizeTokens", 16);
    double most = number_of(parameters, "maxPrefixTokensToMatch", 131072);
    assert(rival->n_producers <= MOST_PRODUCERS);
    producer->name = name;
    producer->is_tuned = !tuned || json_bool(tuned);
    block = producer->is_tuned ? ENGINE_KV_BLOCK_TOKENS : block;
    producer->block_tokens = block < 64 ? 64 : (uint32_t)block;
    producer->max_blocks = (uint64_t)most / producer->block_tokens;
    producer->capacity = (uint64_t)number_of(parameters, "lruCapacityPerServer", 31250);
    sim_blocks_init(&producer->masks);
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        sim_blocks_init(&producer->of[i]);
    }
}

static void read_plugins(struct rival *rival, yyjson_val *config) {
    struct json_iter item = json_elements(json_member(config, "plugins"));
    while (json_iter_next(&item)) {
        struct str type = json_text(json_member(item.value, "type"));
        struct str name = json_text(json_member(item.value, "name"));
        struct plugin_of_rival *plugin = &rival->plugins[rival->n_plugins++];
        size_t i = 0;
        assert(rival->n_plugins <= MOST_PLUGINS);
        while (i < sizeof(KINDS) / sizeof(KINDS[0]) && !str_is(type, KINDS[i].type)) {
            i++;
        }
        if (i == sizeof(KINDS) / sizeof(KINDS[0])) {
            stop("plugin", type);
        }
        *plugin = (struct plugin_of_rival){.kind = KINDS[i].kind,
                                           .role = KINDS[i].role,
                                           .name = name.len > 0 ? name : type,
                                           .parameters = json_member(item.value, "parameters")};
        if (plugin->kind == RIVAL_PRODUCER) {
            add_producer(rival, plugin->name, plugin->parameters);
        }
        if (str_is(type, "concurrency-detector")) {
            rival->max_concurrency = number_of(plugin->parameters, "maxConcurrency", 100);
        }
    }
}

/* The producer that the plugin names, by default upstream's default name, which is made if no
 * plugin has it. */
static uint32_t producer_of(struct rival *rival, const struct plugin_of_rival *plugin) {
    struct str name = json_text(json_member(plugin->parameters, "prefixMatchInfoProducerName"));
    uint32_t i = 0;
    name = name.len > 0 ? name : STR("approx-prefix-cache-producer");
    while (i < rival->n_producers && !str_eq(rival->producers[i].name, name)) {
        i++;
    }
    if (i == rival->n_producers) {
        add_producer(rival, name, NULL);
    }
    return i;
}

static const struct plugin_of_rival *find_plugin(const struct rival *rival, struct str name) {
    for (size_t i = 0; i < rival->n_plugins; i++) {
        if (str_eq(rival->plugins[i].name, name)) {
            return &rival->plugins[i];
        }
    }
    stop("reference", name);
    return NULL;
}

static void read_profile(struct rival *rival, yyjson_val *profile, struct rival_profile *out) {
    struct json_iter item = json_elements(json_member(profile, "plugins"));
    out->is_set = true;
    while (json_iter_next(&item)) {
        struct str name = json_text(json_member(item.value, "pluginRef"));
        const struct plugin_of_rival *plugin = find_plugin(rival, name);
        struct step step = {.plugin = plugin, .weight = number_of(item.value, "weight", 1)};
        bool is_filter = plugin->kind == RIVAL_AFFINITY_FILTER || plugin->kind == RIVAL_ROLE_FILTER;
        if (plugin->kind == RIVAL_AFFINITY_FILTER || plugin->kind == RIVAL_PREFIX ||
            plugin->kind == RIVAL_COLD) {
            step.producer = producer_of(rival, plugin);
        }
        assert(out->n_filters < MOST_STEPS && out->n_scorers < MOST_STEPS);
        if (is_filter) {
            out->filters[out->n_filters++] = step;
        } else if (plugin->kind != RIVAL_NONE && plugin->kind != RIVAL_PRODUCER) {
            out->scorers[out->n_scorers++] = step;
        }
    }
}

struct rival *rival_new(yyjson_val *config, uint32_t n_servers, const uint8_t *roles) {
    struct rival *rival = calloc(1, sizeof(*rival));
    if (!rival) {
        sim_no_memory();
    }
    assert(n_servers <= RIVAL_MOST_SERVERS);
    rival->n_servers = n_servers;
    for (uint32_t i = 0; i < n_servers; i++) {
        rival->servers[i].roles = roles[i];
    }
    read_plugins(rival, config);
    struct json_iter item = json_elements(json_member(config, "schedulingProfiles"));
    while (json_iter_next(&item)) {
        bool is_prefill = json_text_is(json_member(item.value, "name"), "prefill");
        read_profile(rival, item.value,
                     &rival->profiles[is_prefill ? STAGE_PREFILL : STAGE_DECODE]);
    }
    item = json_elements(json_member(config, "featureGates"));
    while (json_iter_next(&item)) {
        rival->queues = rival->queues || json_text_is(item.value, "flowControl");
    }
    return rival;
}

void rival_free(struct rival *rival) {
    for (uint32_t i = 0; i < rival->n_producers; i++) {
        sim_blocks_fini(&rival->producers[i].masks);
        for (uint32_t k = 0; k < rival->n_servers; k++) {
            sim_blocks_fini(&rival->producers[i].of[k]);
        }
    }
    free(rival);
}

/* ---- loads ----------------------------------------------------------------------------------- */

void rival_poll(struct rival *rival, uint32_t server, const struct endpoint_load *load,
                uint64_t now_ns) {
    struct server *of = &rival->servers[server];
    of->n_waiting = load->n_waiting;
    of->kv_cache_used = load->kv_cache_used;
    of->n_kv_blocks = load->n_kv_blocks;
    of->polled_ns = now_ns;
}

/* Of the whole pool: the requests in flight, or the mean of what the engines have used of the
 * limits of the default detector: 5 waiting requests and 80 % of the cache; one without a report of
 * the last 200 ms counts as full. */
bool rival_admits(const struct rival *rival, uint64_t now_ns) {
    double sum = 0, most = rival->max_concurrency;
    if (!rival->queues) {
        return true;
    }
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        const struct server *server = &rival->servers[i];
        bool is_stale = server->polled_ns == 0 || now_ns - server->polled_ns > 200 * MS_NS;
        double waiting = server->n_waiting / 5.0, cache = server->kv_cache_used / 0.8;
        sum += most > 0   ? (double)server->n_requests / most
               : is_stale ? 1
                          : (waiting > cache ? waiting : cache);
    }
    return sum / rival->n_servers < 1;
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* The last block may be a part. */
static void hash_prompt(struct rival *rival, const struct sim_text *text, uint32_t n_prompt) {
    for (uint32_t i = 0; i < rival->n_producers; i++) {
        const struct producer *producer = &rival->producers[i];
        uint32_t block = producer->block_tokens, n = (n_prompt + block - 1) / block;
        n = n < producer->max_blocks ? n : (uint32_t)producer->max_blocks;
        assert(n <= MOST_HASHES);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t end = (k + 1) * block < n_prompt ? (k + 1) * block : n_prompt;
            rival->hashes[i][k] = sim_text_hash(text, block, end);
        }
        rival->n_hashes[i] = n;
    }
}

/* Up to the first block that no server was sent each block counts, also after a gap. */
static void match_prompt(struct rival *rival) {
    for (uint32_t i = 0; i < rival->n_producers; i++) {
        const struct sim_block *found;
        for (uint32_t k = 0; k < rival->n_servers; k++) {
            rival->matches[i][k] = 0;
        }
        for (uint32_t k = 0;
             k < rival->n_hashes[i] &&
             (found = sim_blocks_find(&rival->producers[i].masks, rival->hashes[i][k]));
             k++) {
            for (uint32_t at = 0; at < rival->n_servers; at++) {
                rival->matches[i][at] += found->value >> at & 1;
            }
        }
    }
}

static void record_prompt(struct rival *rival, uint32_t server) {
    for (uint32_t i = 0; i < rival->n_producers; i++) {
        struct producer *producer = &rival->producers[i];
        struct sim_blocks *of = &producer->of[server];
        if (producer->room[server] == 0) {
            uint32_t reported = rival->servers[server].n_kv_blocks;
            bool is_reported = producer->is_tuned && reported > 0;
            producer->room[server] = is_reported ? reported : producer->capacity;
        }
        for (uint32_t k = 0; k < rival->n_hashes[i]; k++) {
            sim_blocks_use(of, rival->hashes[i][k]);
            sim_blocks_use(&producer->masks, rival->hashes[i][k])->value |= UINT64_C(1) << server;
            if (of->n > producer->room[server]) {
                struct sim_block *oldest = sim_blocks_oldest(of);
                struct sim_block *mask = sim_blocks_find(&producer->masks, oldest->hash);
                mask->value &= ~(UINT64_C(1) << server);
                if (mask->value == 0) {
                    sim_blocks_remove(&producer->masks, mask);
                }
                sim_blocks_remove(of, oldest);
            }
        }
    }
}

/* Tokens of the prompt that the server has to compute, by the default producer. */
static uint64_t n_uncached(const struct rival *rival, uint32_t server, uint32_t n_prompt) {
    for (uint32_t i = 0; i < rival->n_producers; i++) {
        const struct producer *producer = &rival->producers[i];
        if (str_is(producer->name, "approx-prefix-cache-producer")) {
            uint64_t n_indexed = (uint64_t)rival->n_hashes[i] * producer->block_tokens;
            uint64_t n_cached = (uint64_t)rival->matches[i][server] * producer->block_tokens;
            return n_indexed - n_cached + (n_prompt > n_indexed ? n_prompt - n_indexed : 0);
        }
    }
    return n_prompt;
}

/* ---- filters --------------------------------------------------------------------------------- */

static double share_cached(const struct rival *rival, const struct step *step, uint32_t server) {
    uint32_t n = rival->n_hashes[step->producer];
    return n > 0 ? (double)rival->matches[step->producer][server] / n : 0;
}

/* The servers with most of the prompt, unless the others are so much sooner done with what they
 * have. */
static uint32_t filter_by_affinity(const struct rival *rival, const struct step *step,
                                   uint32_t candidates) {
    yyjson_val *parameters = step->plugin->parameters;
    double threshold = number_of(parameters, "affinityThreshold", 0.8);
    double most_ms = number_of(parameters, "maxTTFTPenaltyMs", 18000);
    double speed = number_of(parameters, "peakPrefillThroughput", 15928);
    double best = INFINITY, best_other = INFINITY;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        if (candidates >> i & 1) {
            bool has = share_cached(rival, step, i) >= threshold;
            double ms = (double)rival->servers[i].n_tokens / speed * 1000;
            double *least = has ? &best : &best_other;
            *least = ms < *least ? ms : *least;
            kept |= has ? UINT32_C(1) << i : 0;
        }
    }
    bool is_slow = most_ms > 0 && kept != candidates && best - best_other > most_ms;
    return kept == 0 || is_slow ? candidates : kept;
}

static uint32_t filter(const struct rival *rival, const struct step *step, uint32_t candidates) {
    if (step->plugin->kind == RIVAL_AFFINITY_FILTER) {
        return filter_by_affinity(rival, step, candidates);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        kept |= (uint32_t)(rival->servers[i].roles >> step->plugin->role & 1) << i;
    }
    return kept & candidates;
}

/* ---- scorers --------------------------------------------------------------------------------- */

static double score_queue(const struct rival *rival, uint32_t candidates, uint32_t server) {
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        if (candidates >> i & 1) {
            uint32_t n = rival->servers[i].n_waiting;
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
    }
    return most > least ? (double)(most - rival->servers[server].n_waiting) / (most - least) : 1;
}

static double score_active(const struct rival *rival, const struct step *step, uint32_t candidates,
                           uint32_t server) {
    yyjson_val *parameters = step->plugin->parameters;
    int64_t most = 0, n = rival->servers[server].n_requests;
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        bool is_more = candidates >> i & 1 && rival->servers[i].n_requests > most;
        most = is_more ? rival->servers[i].n_requests : most;
    }
    return (double)n <= number_of(parameters, "idleThreshold", 0)
               ? 1
               : (double)(most - n) / (double)most * number_of(parameters, "maxBusyScore", 1);
}

static double score_tokens(const struct rival *rival, const struct step *step, uint32_t server,
                           uint32_t n_prompt) {
    double most = number_of(step->plugin->parameters, "queueThresholdTokens", 4194304);
    double n =
        (double)rival->servers[server].n_tokens + (double)n_uncached(rival, server, n_prompt);
    return 1 - (n < most ? n : most) / most;
}

static bool is_cold(const struct rival *rival, const struct step *step, uint32_t candidates) {
    bool any = false;
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        any = any || (candidates >> i & 1 && rival->matches[step->producer][i] > 0);
    }
    return !any;
}

/* A prompt that no server has goes to the one that has not been sent such a one for the longest
 * time. */
static double score_cold(const struct rival *rival, const struct step *step, uint32_t candidates,
                         uint32_t server) {
    uint32_t rank = 0, n = 0;
    uint64_t own = rival->servers[server].last_cold;
    if (!is_cold(rival, step, candidates)) {
        return 0.5;
    }
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        if (candidates >> i & 1) {
            uint64_t other = rival->servers[i].last_cold;
            rank += other < own || (other == own && i < server);
            n++;
        }
    }
    return n > 1 ? 1 - (double)rank / (n - 1) : 1;
}

static double score(const struct rival *rival, const struct step *step, uint32_t candidates,
                    uint32_t server, uint32_t n_prompt) {
    switch (step->plugin->kind) {
    case RIVAL_QUEUE:
        return score_queue(rival, candidates, server);
    case RIVAL_KV_CACHE:
        return 1 - rival->servers[server].kv_cache_used;
    case RIVAL_PREFIX:
        return share_cached(rival, step, server);
    case RIVAL_ACTIVE:
        return score_active(rival, step, candidates, server);
    case RIVAL_TOKENS:
        return score_tokens(rival, step, server, n_prompt);
    case RIVAL_COLD:
        return score_cold(rival, step, candidates, server);
    case RIVAL_NONE:
    case RIVAL_PRODUCER:
    case RIVAL_AFFINITY_FILTER:
    case RIVAL_ROLE_FILTER:
        break;
    }
    return 0;
}

/* ---- a pick ---------------------------------------------------------------------------------- */

/* Equal scores in turn. */
static uint32_t run_profile(struct rival *rival, const struct rival_profile *profile,
                            uint32_t n_prompt) {
    uint32_t candidates = (UINT32_C(1) << rival->n_servers) - 1, found = UINT32_MAX;
    uint32_t first = (uint32_t)(rival->n_picks++ % rival->n_servers);
    double best = -1;
    for (size_t i = 0; i < profile->n_filters; i++) {
        candidates = filter(rival, &profile->filters[i], candidates);
    }
    for (uint32_t i = 0; i < rival->n_servers; i++) {
        uint32_t server = (first + i) % rival->n_servers;
        double sum = 0;
        for (size_t k = 0; k < profile->n_scorers && candidates >> server & 1; k++) {
            sum += profile->scorers[k].weight *
                   score(rival, &profile->scorers[k], candidates, server, n_prompt);
        }
        if (candidates >> server & 1 && sum > best) {
            best = sum;
            found = server;
        }
    }
    assert(found != UINT32_MAX);
    return found;
}

static void note_cold(struct rival *rival, const struct rival_profile *profile, uint32_t server) {
    uint32_t all = (UINT32_C(1) << rival->n_servers) - 1;
    for (size_t i = 0; i < profile->n_scorers; i++) {
        if (profile->scorers[i].plugin->kind == RIVAL_COLD &&
            is_cold(rival, &profile->scorers[i], all)) {
            rival->servers[server].last_cold = ++rival->n_cold;
        }
    }
}

void rival_pick(struct rival *rival, const struct sim_text *text, const struct sim_turn *turn,
                struct rival_pick *out) {
    *out = (struct rival_pick){.has_stage = {false}};
    hash_prompt(rival, text, turn->n_prompt);
    match_prompt(rival);
    for (enum stage_role role = 0; role < N_STAGE_ROLES; role++) {
        const struct rival_profile *profile = &rival->profiles[role];
        out->has_stage[role] = profile->is_set;
        if (profile->is_set) {
            out->servers[role] = run_profile(rival, profile, turn->n_prompt);
        }
    }
    for (enum stage_role role = 0; role < N_STAGE_ROLES; role++) {
        if (out->has_stage[role]) {
            struct server *server = &rival->servers[out->servers[role]];
            note_cold(rival, &rival->profiles[role], out->servers[role]);
            out->n_tokens[role] = n_uncached(rival, out->servers[role], turn->n_prompt);
            server->n_requests++;
            server->n_tokens += (int64_t)out->n_tokens[role];
            record_prompt(rival, out->servers[role]);
        }
    }
}

static void release(struct rival *rival, struct rival_pick *pick, enum stage_role role, bool all) {
    struct server *server = &rival->servers[pick->servers[role]];
    if (pick->has_stage[role]) {
        server->n_tokens -= (int64_t)pick->n_tokens[role];
        pick->n_tokens[role] = 0;
        server->n_requests -= all;
        pick->has_stage[role] = !all;
    }
}

void rival_answered(struct rival *rival, struct rival_pick *pick) {
    release(rival, pick, STAGE_PREFILL, true);
    release(rival, pick, STAGE_DECODE, false);
}

void rival_ended(struct rival *rival, struct rival_pick *pick) {
    release(rival, pick, STAGE_PREFILL, true);
    release(rival, pick, STAGE_DECODE, true);
}
