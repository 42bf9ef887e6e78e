/* Upstream's picker, from a description of its algorithm: what it makes of the same configuration.
 * Filters, then the weighted sum of scores, then the highest one, equal ones in turn. Its tables of
 * prefixes have an LRU for each server and producer. Requests and tokens in flight are counted at
 * the pick; tokens are released with the first part of the answer, requests at its end; what
 * engines report is as old as the last poll, and is not corrected in between.
 *
 * Thread: one at a time. */
#ifndef SLUICE_BENCH_SIMULATE_RIVAL_H
#define SLUICE_BENCH_SIMULATE_RIVAL_H

#include "core/base/json_value.h"
#include "pick/pool/endpoint/load.h"
#include "pick/pool/profile/handler.h"
#include "workload.h"

enum { RIVAL_MOST_SERVERS = 32 };

struct rival;

/* `config`: an EndpointPickerConfig; it has no plugin that is not simulated. `roles`: a bit for
 * each enum stage_role of a server. Ends the program when out of memory, and for other plugins. */
struct rival *rival_new(yyjson_val *config, uint32_t n_servers, const uint8_t *roles);
void rival_free(struct rival *rival);

/* A poll of the server's metrics. */
void rival_poll(struct rival *rival, uint32_t server, const struct endpoint_load *load,
                uint64_t now_ns);

/* A request that was picked for: its servers, and the tokens that it counts there. */
struct rival_pick {
    bool has_stage[N_STAGE_ROLES];
    uint32_t servers[N_STAGE_ROLES];
    uint64_t n_tokens[N_STAGE_ROLES];
};

/* Whether flow control lets the next request go. */
bool rival_admits(const struct rival *rival, uint64_t now_ns);
void rival_pick(struct rival *rival, const struct sim_text *text, const struct sim_turn *turn,
                struct rival_pick *out);
/* The answer's first part was seen. */
void rival_answered(struct rival *rival, struct rival_pick *pick);
/* The answer has ended. */
void rival_ended(struct rival *rival, struct rival_pick *pick);

#endif
