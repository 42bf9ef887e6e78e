/* A simulated engine for long prompts: a KV cache of blocks, which keeps the beginnings of prompts
 * as long as there is room, in the GPU and, if the setting says so, in main memory; a queue;
 * prompts computed one after the other, while the tokens of answers are generated at half of the
 * speed; and tokens that take the longer the more of the cache is in use. The numbers are those of
 * a model of 32 billion parameters on two GPUs of 80 GB: the KV cache takes 256 kB for a token.
 *
 * All of it is arithmetic on simulated time. Thread: one at a time. */
#ifndef SLUICE_BENCH_SIMULATE_ENGINE_H
#define SLUICE_BENCH_SIMULATE_ENGINE_H

#include "blocks.h"
#include "pick/pool/endpoint/load.h"

enum {
    ENGINE_BLOCK_TOKENS = 64,    /* in which the simulation counts */
    ENGINE_KV_BLOCK_TOKENS = 16, /* that the engine reports */
    ENGINE_KV_TOKENS = 300000,
    ENGINE_MOST_RUNNING = 256,
    ENGINE_PROMPT_TOKENS_PER_S = 15928,  /* the default of upstream's affinity filter */
    ENGINE_LOADED_TOKENS_PER_S = 200000, /* from main memory */
    ENGINE_TOKEN_NS = 12000000,          /* of an answer, with nothing else in the cache */
    ENGINE_TOKEN_NS_PER_BLOCK = 2500,    /* and for each block in use */
};

/* A request at an engine. */
struct sim_job {
    const uint64_t *hashes; /* of whole blocks, each with those before it; they live as long as the
                               job */
    uint32_t n_prompt_blocks; /* of the prompt */
    uint32_t n_kept_blocks;   /* and of the answer, which stays in the cache, too */
    uint32_t n_prompt, n_answer;
    bool has_cache;       /* another engine computed the prompt */
    uint32_t user;        /* the caller's */
    uint32_t n_cached;    /* result: tokens of the prompt that were not computed */
    uint64_t computed_ns; /* internal: when the prompt will be computed */
    double ends_at;       /* internal: in tokens that the engine generates for each request */
    TAILQ_ENTRY(sim_job) link;
};

TAILQ_HEAD(sim_job_list, sim_job);

struct sim_engine {
    struct sim_blocks used; /* by running requests, with their number */
    struct sim_blocks kept; /* by none */
    struct sim_blocks main; /* in main memory */
    uint64_t n_private;     /* blocks of running requests that no other request can use */
    uint64_t n_main_blocks; /* room in main memory */
    struct sim_job_list waiting, computing, generating;
    uint32_t n_waiting, n_running;
    uint64_t now_ns;
    double generated;            /* tokens for each request that is generating */
    uint64_t n_jobs, n_computed; /* requests that it got, tokens of prompts that it computed */
};

void sim_engine_init(struct sim_engine *engine, uint64_t main_tokens);
void sim_engine_fini(struct sim_engine *engine);
/* Queues the job, which the caller keeps until it ends. */
void sim_engine_take(struct sim_engine *engine, struct sim_job *job);

enum sim_engine_step { ENGINE_NOTHING, ENGINE_FIRST_TOKEN, ENGINE_END };
/* What has happened by now: one thing for each call. Returns: ENGINE_NOTHING when there is nothing
 * more; else `*out` is the job. */
enum sim_engine_step sim_engine_step(struct sim_engine *engine, uint64_t now_ns,
                                     struct sim_job **out);
/* When something happens next, after ENGINE_NOTHING. Returns: UINT64_MAX: nothing does. */
uint64_t sim_engine_due_ns(const struct sim_engine *engine);
/* Fills in the load report that a scrape would read. */
void sim_engine_say(const struct sim_engine *engine, struct endpoint_load *out);

#endif
