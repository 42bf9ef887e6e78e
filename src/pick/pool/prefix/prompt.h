/* What a profile needs of requests beyond their headers: the prompt's beginning, for the prefix
 * table; the estimated tokens; the response times.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_PREFIX_PROMPT_H
#define SLUICE_PICK_POOL_PREFIX_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/str.h"
#include "pick/pool/prefix/table.h"

enum { PREFIX_BLOCK_BYTES_DEFAULT = 64, PREFIX_MOST_BLOCKS_DEFAULT = 256 };
enum { PREFIX_CAPACITY_DEFAULT = 31250, PREFIX_MAX_TEXT_BYTES = 4 << 20 };
/* No tokenizer runs here: sizes in tokens are estimated by this. */
enum { PROMPT_BYTES_PER_TOKEN = 4 };

/* What a profile's plugins need of requests. */
struct pool_request_needs {
    bool prompt;        /* the prompt's beginning, where the body is available anyway */
    bool body;          /* and the pick waits for the body, where the proxy sends it */
    bool cold_requests; /* which endpoints were sent requests whose prefix no endpoint had */
    bool latency;       /* response times */
    bool is_set;        /* a plugin has set the following */
    struct prefix_blocks blocks;
    uint32_t capacity;  /* blocks that an endpoint caches, where it does not report its cache
                           size */
    bool auto_capacity; /* use the reported cache size */
};

/* The needs of the profile that a pick would use now, by the reader's snapshot. */
struct pool_reader;
const struct pool_request_needs *pool_request_needs(const struct pool_reader *reader);

/* A request's headers. */
struct pool_headers {
    struct str (*find)(const void *of, struct str name); /* `name` in lower case. Returns: ptr NULL:
                                                            absent */
    const void *of;
};

/* The beginnings of a request's texts, as far as they were received or are needed
 * (needs->blocks). */
struct pool_prompt {
    struct str system, text;
    struct arena *arena; /* for the following, which the last pick computed */
    uint64_t *hashes;
    uint32_t n_hashes, cap;
    struct prefix_hold hold; /* of the pick's endpoint, until the response */
};

/* Computes the hashes of the request's prompt, and finds which endpoints were sent its beginning.
 * Internal to pick/pool. */
struct profile;
struct pool_request;
void pool_prompt_match(struct pool_reader *reader, const struct profile *profile,
                       const struct pool_request *request, struct str model);
/* The endpoint was picked: counts its tokens and cold requests, visible to other picks at once.
 * Under the lock, before its in-flight count is raised. Internal to pick/pool. */
struct endpoint;
void pool_prompt_add_in_flight(struct pool_reader *reader, const struct pool_request *request,
                               const struct profile *profile, struct endpoint *endpoint);
/* Records the time of the pick and, until it is known whether the endpoint takes it, the prompt for
 * the ticket's endpoint. Internal to pick/pool. */
struct pool_ticket;
void pool_prompt_record(struct pool_reader *reader, const struct pool_request *request,
                        const struct profile *profile, struct pool_ticket *ticket);

/* The response has begun. `taken`: the endpoint has taken the prompt, which is recorded for it. It
 * may be another endpoint than the picked one; NULL: none of the pool. */
void pool_prompt_answered(struct pool_reader *reader, struct pool_prompt *prompt,
                          const struct endpoint *endpoint, bool taken);
/* The request has ended without a response that was seen. Nothing is done after
 * pool_prompt_answered. */
void pool_prompt_unanswered(struct pool_reader *reader, struct pool_prompt *prompt);

#endif
