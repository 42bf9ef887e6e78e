/* A simulated model server: slots for concurrent requests, a KV cache in tokens, and a queue. A
 * running request first has its prompt computed, one prompt at a time, then generates its tokens,
 * slower the more requests run. Prefixes of prompts stay in a prefix cache with memory of its own,
 * and are not computed again.
 *
 * All of it is arithmetic on simulated time: the same requests at the same times end at the same
 * times. */
#ifndef SLUICE_BENCH_SIMULATE_SERVER_H
#define SLUICE_BENCH_SIMULATE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "pick/pool/pool.h"

enum {
    SERVER_SLOTS = 32,
    SERVER_KV_TOKENS = 60000,
    SERVER_PREFIXES = 6, /* prefixes in the cache */
    SERVER_PROMPT_TOKENS_PER_S = 20000,
};

/* The time of a token: alone, and with every slot used. */
static const uint64_t SERVER_TOKEN_NS = 10000000, SERVER_TOKEN_BUSY_NS = 20000000;

struct sim_request {
    uint64_t arrives_ns;
    uint32_t n_prompt, n_answer; /* tokens */
    uint32_t prefix;             /* shared prefix; 0: none */
    uint32_t n_prefix;           /* its tokens, counted in n_prompt */
    /* Results. */
    uint32_t server;
    struct pool_ticket ticket;
    uint64_t first_ns, end_ns; /* first and last token; set when it starts to run */
    struct sim_request *next;  /* in the queue */
};

struct sim_server {
    double speed; /* 1: the times above */
    uint32_t n_waiting, n_running;
    uint32_t n_kv_tokens;      /* of running requests, without shared prefixes */
    uint64_t prompts_until_ns; /* when the last prompt will be computed */
    struct sim_request *first, *last;
    struct {
        uint32_t prefix;
        uint64_t used_ns;
    } prefixes[SERVER_PREFIXES];
    uint64_t n_hits; /* requests whose prefix was cached */
};

/* Queues the request. */
void sim_server_take(struct sim_server *server, struct sim_request *request);
/* Starts the next queued request, if there is capacity. Returns: NULL, or the request, with its
 * times set. */
struct sim_request *sim_server_begin(struct sim_server *server, uint64_t now_ns);
/* The request has ended. */
void sim_server_end(struct sim_server *server, const struct sim_request *request);
/* Fills in the load report that a scrape would read. */
void sim_server_say(const struct sim_server *server, struct endpoint_load *out);

#endif
