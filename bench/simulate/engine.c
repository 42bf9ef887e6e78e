/* Time advances from step to step; in between the speed of generating does not change. */
#include "engine.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

enum { KV_BLOCKS = ENGINE_KV_TOKENS / ENGINE_BLOCK_TOKENS };

void sim_engine_init(struct sim_engine *engine, uint64_t main_tokens) {
    *engine = (struct sim_engine){.n_main_blocks = main_tokens / ENGINE_BLOCK_TOKENS};
    sim_blocks_init(&engine->used);
    sim_blocks_init(&engine->kept);
    sim_blocks_init(&engine->main);
    TAILQ_INIT(&engine->waiting);
    TAILQ_INIT(&engine->computing);
    TAILQ_INIT(&engine->generating);
}

void sim_engine_fini(struct sim_engine *engine) {
    sim_blocks_fini(&engine->used);
    sim_blocks_fini(&engine->kept);
    sim_blocks_fini(&engine->main);
}

void sim_engine_take(struct sim_engine *engine, struct sim_job *job) {
    TAILQ_INSERT_TAIL(&engine->waiting, job, link);
    engine->n_waiting++;
    engine->n_jobs++;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static uint64_t n_in_use(const struct sim_engine *engine) {
    return engine->used.n + engine->n_private;
}

static uint32_t n_blocks_of(const struct sim_job *job) {
    return (job->n_prompt + job->n_answer + ENGINE_BLOCK_TOKENS - 1) / ENGINE_BLOCK_TOKENS;
}

/* Blocks that no request uses make room, the least recently used first. */
static void evict(struct sim_engine *engine) {
    struct sim_block *oldest;
    while (n_in_use(engine) + engine->kept.n > KV_BLOCKS &&
           (oldest = sim_blocks_oldest(&engine->kept))) {
        if (engine->n_main_blocks > 0) {
            sim_blocks_use(&engine->main, oldest->hash);
        }
        sim_blocks_remove(&engine->kept, oldest);
    }
    while (engine->main.n > engine->n_main_blocks) {
        sim_blocks_remove(&engine->main, sim_blocks_oldest(&engine->main));
    }
}

static bool has_room(const struct sim_engine *engine, const struct sim_job *job) {
    uint32_t n_shared = 0;
    while (n_shared < job->n_prompt_blocks &&
           sim_blocks_find(&engine->used, job->hashes[n_shared])) {
        n_shared++;
    }
    return engine->n_running == 0 || (engine->n_running < ENGINE_MOST_RUNNING &&
                                      n_in_use(engine) + n_blocks_of(job) - n_shared <= KV_BLOCKS);
}

/* Where the block is. */
enum place { IS_NOWHERE, IS_IN_MAIN, IS_IN_GPU };

static enum place use_block(struct sim_engine *engine, uint64_t hash) {
    struct sim_block *used = sim_blocks_use(&engine->used, hash);
    struct sim_block *kept = sim_blocks_find(&engine->kept, hash);
    struct sim_block *in_main = sim_blocks_find(&engine->main, hash);
    if (used->value++ > 0) {
        return IS_IN_GPU;
    }
    if (kept) {
        sim_blocks_remove(&engine->kept, kept);
        return IS_IN_GPU;
    }
    if (in_main) {
        sim_blocks_remove(&engine->main, in_main);
        return IS_IN_MAIN;
    }
    return IS_NOWHERE;
}

/* The prompt's blocks are in use. Returns: the time that its first token takes. */
static uint64_t use_blocks(struct sim_engine *engine, struct sim_job *job) {
    uint32_t n_cached = 0, n_loaded = 0;
    bool is_cached = true;
    for (uint32_t i = 0; i < job->n_prompt_blocks; i++) {
        enum place place = use_block(engine, job->hashes[i]);
        is_cached = is_cached && place != IS_NOWHERE;
        n_cached += is_cached;
        n_loaded += is_cached && place == IS_IN_MAIN;
    }
    engine->n_private += n_blocks_of(job) - job->n_prompt_blocks;
    evict(engine);
    job->n_cached = n_cached * ENGINE_BLOCK_TOKENS;
    if (job->has_cache) {
        return 0;
    }
    job->n_cached -= job->n_cached == job->n_prompt; /* one is computed in any case */
    uint32_t n_computed = job->n_prompt - job->n_cached;
    engine->n_computed += n_computed;
    return (uint64_t)n_computed * 1000000000 / ENGINE_PROMPT_TOKENS_PER_S +
           (uint64_t)n_loaded * ENGINE_BLOCK_TOKENS * 1000000000 / ENGINE_LOADED_TOKENS_PER_S;
}

static void release_blocks(struct sim_engine *engine, const struct sim_job *job) {
    engine->n_private -= n_blocks_of(job) - job->n_prompt_blocks;
    for (uint32_t i = job->n_kept_blocks; i-- > 0;) { /* the last ones are evicted first */
        struct sim_block *used = sim_blocks_find(&engine->used, job->hashes[i]);
        if (i >= job->n_prompt_blocks && !used) {
            sim_blocks_use(&engine->kept, job->hashes[i]);
        } else if (i < job->n_prompt_blocks && --used->value == 0) {
            sim_blocks_remove(&engine->used, used);
            sim_blocks_use(&engine->kept, job->hashes[i]);
        }
    }
    evict(engine);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static double ns_per_token(const struct sim_engine *engine) {
    double ns = ENGINE_TOKEN_NS + (double)ENGINE_TOKEN_NS_PER_BLOCK * (double)n_in_use(engine);
    return TAILQ_EMPTY(&engine->computing) ? ns : 2 * ns;
}

static struct sim_job *next_to_end(const struct sim_engine *engine) {
    struct sim_job *job, *found = NULL;
    TAILQ_FOREACH(job, &engine->generating, link) {
        found = !found || job->ends_at < found->ends_at ? job : found;
    }
    return found;
}

/* Waiting requests begin as far as there is room, in their order. */
static void begin_waiting(struct sim_engine *engine) {
    struct sim_job *job;
    while ((job = TAILQ_FIRST(&engine->waiting)) && has_room(engine, job)) {
        const struct sim_job *before = TAILQ_LAST(&engine->computing, sim_job_list);
        TAILQ_REMOVE(&engine->waiting, job, link);
        engine->n_waiting--;
        engine->n_running++;
        job->computed_ns = (before ? before->computed_ns : engine->now_ns);
        job->computed_ns += use_blocks(engine, job);
        TAILQ_INSERT_TAIL(&engine->computing, job, link);
    }
}

enum sim_engine_step sim_engine_step(struct sim_engine *engine, uint64_t now_ns,
                                     struct sim_job **out) {
    assert(now_ns >= engine->now_ns);
    engine->generated += (double)(now_ns - engine->now_ns) / ns_per_token(engine);
    engine->now_ns = now_ns;
    begin_waiting(engine);
    struct sim_job *computed = TAILQ_FIRST(&engine->computing), *ended = next_to_end(engine);
    if (computed && computed->computed_ns <= now_ns) {
        TAILQ_REMOVE(&engine->computing, computed, link);
        computed->ends_at = engine->generated + (double)computed->n_answer;
        TAILQ_INSERT_TAIL(&engine->generating, computed, link);
        *out = computed;
        return ENGINE_FIRST_TOKEN;
    }
    if (ended && ended->ends_at <= engine->generated + 1e-6) {
        TAILQ_REMOVE(&engine->generating, ended, link);
        engine->n_running--;
        release_blocks(engine, ended);
        *out = ended;
        return ENGINE_END;
    }
    return ENGINE_NOTHING;
}

uint64_t sim_engine_due_ns(const struct sim_engine *engine) {
    const struct sim_job *computed = TAILQ_FIRST(&engine->computing);
    const struct sim_job *ended = next_to_end(engine);
    uint64_t due_ns = computed ? computed->computed_ns : UINT64_MAX;
    if (ended) {
        double left_ns = (ended->ends_at - engine->generated) * ns_per_token(engine);
        uint64_t ends_ns = engine->now_ns + 1 + (uint64_t)fmax(left_ns, 0);
        due_ns = ends_ns < due_ns ? ends_ns : due_ns;
    }
    return due_ns;
}

void sim_engine_say(const struct sim_engine *engine, struct endpoint_load *out) {
    out->known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE | LOAD_KV_SIZE;
    out->n_waiting = engine->n_waiting;
    out->n_running = engine->n_running;
    out->kv_cache_used = (float)n_in_use(engine) / KV_BLOCKS;
    out->kv_block_tokens = ENGINE_KV_BLOCK_TOKENS;
    out->n_kv_blocks = ENGINE_KV_TOKENS / ENGINE_KV_BLOCK_TOKENS;
}
