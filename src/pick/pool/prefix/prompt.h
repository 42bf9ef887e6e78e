/* What a request says, as far as it matters for who takes it, and what comes of that: how its
 * prompt begins and who was sent such prompts, how much work it is, how long its answer takes.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_PREFIX_PROMPT_H
#define SLUICE_PICK_POOL_PREFIX_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/str.h"
#include "pick/pool/prefix/table.h"

#define PREFIX_BLOCKS_DEFAULT                                                                      \
    { .block_bytes = 64, .most = 256 }
enum { PREFIX_CAPACITY_DEFAULT = 31250, PREFIX_MAX_TEXT_BYTES = 4 << 20 };

/* What a profile wants to know of requests. */
struct pool_request_needs {
    bool prompt;        /* how a prompt begins, where the body is seen */
    bool body;          /* and the body is to be waited for, where the proxy shows it */
    bool cold_requests; /* who was sent one of which nobody had the beginning */
    bool latency;       /* how long answers take */
    bool is_set;        /* a plugin has said the following */
    struct prefix_blocks blocks;
    uint32_t capacity;  /* blocks that an endpoint keeps, as far as it does not say it itself */
    bool auto_capacity; /* what it says of its cache counts */
};

/* Of the profile that a pick would have now, of what the reader looked at last. */
struct pool_reader;
const struct pool_request_needs *pool_request_needs(const struct pool_reader *reader);

/* A request's headers. */
struct pool_headers {
    struct str (*find)(const void *of, struct str name); /* in lower case; ptr NULL: it has none */
    const void *of;
};

/* Each is how a text begins: as much as was seen of it, or as is wanted (wants->blocks). */
struct pool_prompt {
    struct str system, text;
    struct arena *arena; /* for what follows, which is the pool's, of the last pick */
    uint64_t *hashes;
    uint32_t n_hashes, cap;
};

/* Cuts the prompt of a request that is to be picked for, and looks who was sent its beginning.
 * For pool*.c. */
struct profile;
struct pool_request;
void pool_prompt_match(struct pool_reader *reader, const struct profile *profile,
                       const struct pool_request *request, struct str model);
/* The request will be sent to the endpoint: what others see of that at once. Under the lock, before
 * its count is raised. For pool*.c. */
struct endpoint;
void pool_prompt_add_in_flight(struct pool_reader *reader, const struct pool_request *request,
                               const struct profile *profile, struct endpoint *endpoint);
/* The request is sent to the ticket's endpoint: all that is remembered of that. For pool*.c. */
struct pool_ticket;
void pool_prompt_record(struct pool_reader *reader, const struct pool_request *request,
                        const struct profile *profile, struct pool_ticket *ticket);

/* Another endpoint than the picked one took the request. */
void pool_prompt_record_moved(struct pool_reader *reader, const struct pool_prompt *prompt,
                              const struct endpoint *endpoint);

#endif
