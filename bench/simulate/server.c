/* The arithmetic of a model server. */
#include "server.h"

#include <assert.h>

void sim_server_take(struct sim_server *server, struct sim_request *request) {
    request->next = NULL;
    *(server->last ? &server->last->next : &server->first) = request;
    server->last = request;
    server->n_waiting++;
}

/* Returns: whether the prefix is cached. Caches it in place of the least recently used one. */
static bool use_prefix(struct sim_server *server, uint32_t prefix, uint64_t now_ns) {
    unsigned at = 0;
    for (unsigned i = 0; i < SERVER_PREFIXES; i++) {
        if (server->prefixes[i].prefix == prefix) {
            server->prefixes[i].used_ns = now_ns;
            server->n_hits++;
            return true;
        }
        at = server->prefixes[i].used_ns < server->prefixes[at].used_ns ? i : at;
    }
    server->prefixes[at].prefix = prefix;
    server->prefixes[at].used_ns = now_ns;
    return false;
}

static uint32_t n_kv_of(const struct sim_request *request) {
    return request->n_prompt - request->n_prefix + request->n_answer;
}

static bool has_room(const struct sim_server *server, const struct sim_request *request) {
    return server->n_running < SERVER_SLOTS &&
           (server->n_running == 0 || server->n_kv_tokens + n_kv_of(request) <= SERVER_KV_TOKENS);
}

/* The time of so many steps of this length on this server. */
static uint64_t time_of(const struct sim_server *server, uint64_t n, double step_ns) {
    return (uint64_t)((double)n * step_ns / server->speed);
}

static void start_request(struct sim_server *server, struct sim_request *request, uint64_t now_ns) {
    bool hit = request->prefix != 0 && use_prefix(server, request->prefix, now_ns);
    uint32_t n_computed = request->n_prompt - (hit ? request->n_prefix : 0);
    uint64_t begin_ns = server->prompts_until_ns > now_ns ? server->prompts_until_ns : now_ns;
    double busy = (double)(server->n_running - 1) / SERVER_SLOTS; /* other running requests */
    double token_ns =
        (double)SERVER_TOKEN_NS + busy * (double)(SERVER_TOKEN_BUSY_NS - SERVER_TOKEN_NS);
    request->first_ns = begin_ns + time_of(server, n_computed, 1e9 / SERVER_PROMPT_TOKENS_PER_S);
    request->end_ns = request->first_ns + time_of(server, request->n_answer, token_ns);
    server->prompts_until_ns = request->first_ns;
}

struct sim_request *sim_server_begin(struct sim_server *server, uint64_t now_ns) {
    struct sim_request *request = server->first;
    if (!request || !has_room(server, request)) {
        return NULL;
    }
    server->first = request->next;
    server->last = server->first ? server->last : NULL;
    server->n_waiting--;
    server->n_running++;
    server->n_kv_tokens += n_kv_of(request);
    start_request(server, request, now_ns);
    return request;
}

void sim_server_end(struct sim_server *server, const struct sim_request *request) {
    assert(server->n_running > 0 && server->n_kv_tokens >= n_kv_of(request));
    server->n_running--;
    server->n_kv_tokens -= n_kv_of(request);
}

void sim_server_say(const struct sim_server *server, struct endpoint_load *out) {
    out->known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE;
    out->n_waiting = server->n_waiting;
    out->n_running = server->n_running;
    out->kv_cache_used = (float)server->n_kv_tokens / SERVER_KV_TOKENS;
}
