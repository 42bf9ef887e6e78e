/* What a profile needs of requests beyond their headers: the hashes of the prompt's beginning, for
 * the prefix table; the estimated tokens; the response times.
 *
 * Thread: the reader's. */
#ifndef SLUICE_PICK_POOL_PREFIX_PROMPT_H
#define SLUICE_PICK_POOL_PREFIX_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/str.h"
#include "pick/pool/prefix/chain.h"
#include "pick/pool/prefix/producer.h"
#include "pick/pool/prefix/source.h"
#include "pick/pool/prefix/table.h"

struct pool_reader;

/* The needs of the profile that a pick would use now, by the reader's snapshot. */
const struct pool_request_needs *pool_request_needs(const struct pool_reader *reader);

/* A request's headers. Functions return ptr NULL for what is absent. */
struct pool_headers {
    struct str (*find)(const void *of, struct str name);   /* `name` in lower case */
    struct str (*cookie)(const void *of, struct str name); /* may be NULL */
    const void *of;
};

/* ---- the prompt of a request ----------------------------------------------------------------- */

/* The hashes of one size of blocks. The system text is placed before the other text, and may arrive
 * after it: each has a chain of its own. */
struct prompt_chains {
    struct prefix_chain system, text;
    /* Those of the system text followed by those of the other text, which are combined with the
     * former's last; made when they are first needed. */
    const uint64_t *hashes;
    uint32_t n, n_system;
};

/* The hashes of a request's prompt, which all its stages share. */
struct prompt_text {
    struct arena *arena;
    struct prompt_chains *chains; /* an item for each size of blocks */
    uint32_t n;
    bool fixed; /* the hashes are in use: further text is ignored */
    /* Hashes of its pictures, sounds and videos, each once, made with prompt_text_media_seed; live
     * as long. */
    const uint64_t *media;
    const uint8_t *media_kinds; /* enum media_kind of each */
    uint32_t n_media;
    bool is_assigned; /* with others of its window, to this endpoint */
    struct endpoint_address assigned;
    uint64_t salt; /* equal prompts with different ones are unrelated */
    struct prefix_source source;
};

/* The seed of the hashes of media, which clients must not know. */
uint64_t prompt_text_media_seed(const struct pool_reader *reader);

/* Starts, with the blocks that the reader's profile needs. `text` is in `arena`, or lives as
 * long. */
void prompt_text_init(struct prompt_text *text, const struct pool_reader *reader,
                      struct arena *arena);
/* Adds to the system text, or to the other text. */
void prompt_text_add(struct prompt_text *text, bool system, struct str bytes);
/* That text has ended. */
void prompt_text_end(struct prompt_text *text, bool system);
/* Memory of the hashes. */
uint64_t prompt_text_bytes(const struct prompt_text *text);

/* What a stage of a pick keeps of the prompt. */
struct pool_prompt {
    struct prompt_text *text;
    struct prefix_key keys[PREFIX_MAX_INDEXES];   /* of the last pick */
    struct prefix_hold holds[PREFIX_MAX_INDEXES]; /* of the pick's endpoint, until the response */
};

/* For a prompt whose text is known as a whole, and has no system text. Returns: `prompt`; NULL when
 * out of memory. */
struct pool_prompt *pool_prompt_init(struct pool_prompt *prompt, const struct pool_reader *reader,
                                     struct arena *arena, struct str text);

/* Finds which endpoints were sent the beginning of the request's prompt, and its media, in each
 * index that the profile uses. Internal to pick/pool. */
struct candidate_set;
struct profile;
struct pool_request;
void pool_prompt_match(struct pool_reader *reader, const struct profile *profile,
                       const struct pool_request *request, struct str model,
                       const struct candidate_set *candidates);
/* The endpoint was picked: counts its tokens and cold requests, visible to other picks at once.
 * Under the lock, before its in-flight count is raised. Internal to pick/pool. */
struct endpoint;
struct pool_ticket;
void pool_prompt_add_in_flight(struct pool_reader *reader, const struct pool_request *request,
                               const struct profile *profile, struct endpoint *endpoint,
                               struct pool_ticket *ticket);
/* Records the time of the pick and, until it is known whether the endpoint takes it, the prompt for
 * the ticket's endpoint. Internal to pick/pool. */
void pool_prompt_record(struct pool_reader *reader, const struct pool_request *request,
                        const struct profile *profile, struct pool_ticket *ticket);

/* An estimate of the prompt's beginning that the endpoint has, by the default producer and the last
 * pool_prompt_match. Internal to pick/pool. */
uint32_t pool_prompt_cached_tokens(const struct pool_reader *reader,
                                   const struct endpoint *endpoint);

/* The response has begun. `taken`: the endpoint has taken the prompt, which is recorded for it. It
 * may be another endpoint than the picked one; NULL: none of the pool. */
void pool_prompt_answered(struct pool_reader *reader, struct pool_prompt *prompt,
                          const struct endpoint *endpoint, bool taken);
/* The request has ended without a response that was seen. Nothing is done after
 * pool_prompt_answered. */
void pool_prompt_unanswered(struct pool_reader *reader, struct pool_prompt *prompt);

#endif
