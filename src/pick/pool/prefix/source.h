/* The endpoint that another one may fetch the beginning of a prompt from, with what was computed
 * for it, instead of computing it again: upstream's p2p-source-producer. The candidates that have
 * most of the prompt, up to a block less, share the requests: each by one divided by the requests
 * that wait there, plus one, and the request's id decides.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_PREFIX_SOURCE_H
#define SLUICE_PICK_POOL_PREFIX_SOURCE_H

#include "core/base/arena.h"
#include "pick/pool/endpoint/address.h"
#include "pick/pool/prefix/table.h"

/* Set once for a request, before its first stage is picked for: what an endpoint has is compared
 * without the request's own prompt. Zeroed memory is no source. */
struct prefix_source {
    bool is_chosen;
    struct endpoint_address address;
    uint32_t n_tokens; /* that it has of the prompt */
    uint32_t n_hits;
    struct {
        uint32_t host, n_tokens;
    } hits[PREFIX_MAX_HOSTS]; /* all endpoints that have a part of it */
};

struct pool_reader;
struct pool_request;
struct candidate_set;
struct pool_request_needs;
/* Sets the source of the request's prompt, by the last pool_prompt_match. Internal to pick/pool. */
void prefix_source_choose(struct pool_reader *reader, const struct pool_request_needs *needs,
                          const struct pool_request *request,
                          const struct candidate_set *candidates);

struct endpoint;
/* For the endpoint that computes the prompt, where the source has `min_tokens` more of it or more.
 * Returns: "IP:PORT" in `arena`; ptr NULL: there is none, or out of memory. */
struct str prefix_source_for(const struct prefix_source *source, const struct endpoint *endpoint,
                             uint32_t min_tokens, struct arena *arena);

#endif
