/* A model server as a model of one: it has slots for so many requests at a time, a KV cache of so
 * many tokens, and a queue for those that find no room. A request that begins first has its prompt
 * computed, one prompt after the other, then its answer token by token, slower the more run beside
 * it. Beginnings of prompts stay in a prefix cache, which has memory of its own, and are not
 * computed again.
 *
 * All of it is arithmetic on the simulation's time: the same requests at the same times always end
 * at the same times. */
#ifndef SLUICE_BENCH_SIMULATE_SERVER_H
#define SLUICE_BENCH_SIMULATE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "pick/pool/pool.h"

enum {
    SERVER_SLOTS = 32,
    SERVER_KV_TOKENS = 60000,
    SERVER_PREFIXES = 6, /* that the prefix cache keeps */
    SERVER_PROMPT_TOKENS_PER_S = 20000,
};

/* Of a token of the answer: alone, and with every slot taken. */
static const uint64_t SERVER_TOKEN_NS = 10000000, SERVER_TOKEN_BUSY_NS = 20000000;

struct sim_request {
    uint64_t arrives_ns;
    uint32_t n_prompt, n_answer; /* tokens */
    uint32_t prefix;             /* the prompt's beginning that others share; 0: none */
    uint32_t n_prefix;           /* its tokens, among n_prompt */
    /* What becomes of it. */
    uint32_t server;
    struct pool_ticket ticket;
    uint64_t first_ns, end_ns; /* of the answer; known when it begins to run */
    struct sim_request *next;  /* in the queue */
};

struct sim_server {
    double speed; /* 1: as above */
    uint32_t n_waiting, n_running;
    uint32_t n_kv_tokens;      /* of those that run, without shared beginnings */
    uint64_t prompts_until_ns; /* when the last prompt will be computed */
    struct sim_request *first, *last;
    struct {
        uint32_t prefix;
        uint64_t used_ns;
    } prefixes[SERVER_PREFIXES];
    uint64_t n_hits; /* requests whose prefix was there */
};

/* Into the queue. */
void sim_server_take(struct sim_server *server, struct sim_request *request);
/* The next request begins, if one waits and there is room. Returns: NULL, or it, with the times at
 * which its answer will begin and end. */
struct sim_request *sim_server_begin(struct sim_server *server, uint64_t now_ns);
/* Its time has come. */
void sim_server_end(struct sim_server *server, const struct sim_request *request);
/* What its metrics page would say. */
void sim_server_say(const struct sim_server *server, struct endpoint_load *out);

#endif
