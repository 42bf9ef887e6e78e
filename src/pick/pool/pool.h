/* A pool of model servers, and the pick of an endpoint for a request.
 *
 * The rule: of the endpoints that are in the pool, ready, and in the request's subset, the one that
 * the pool's profile chooses (pick/pool/profile/profile.h). While no loads are known the default
 * profile chooses the endpoint with the fewest of our requests in flight; ties at random. Its
 * in-flight count is raised before pool_pick returns, so that concurrent picks see each other, and
 * lowered when the ticket is released. An endpoint that recently refused a connection, sheds load,
 * or was ejected because of failures that the others do not have, is picked only when there is no
 * other, and comes back by a trial (pick/pool/window.c).
 *
 * Members and configuration are an immutable snapshot (snapshot.h), replaced as a whole. Each
 * worker has a reader, which holds the snapshot that it last loaded: refreshing costs a load while
 * nothing has changed, and an old snapshot is freed when the last reader has refreshed. In-flight
 * counts are shared by all workers; changing them takes a lock for some dozen instructions, however
 * many endpoints there are (pick/pool/profile/ranking.h). */
#ifndef SLUICE_PICK_POOL_POOL_H
#define SLUICE_PICK_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "pick/pool/prefix/prompt.h"
#include "pick/pool/profile/handler.h"
#include "pick/pool/snapshot.h"
#include "pick/pool/spec.h"
#include "pick/pool/subset.h"

struct pool;
struct pool_waiter;
struct profile;
struct profile_step;
struct plugin_times_row;

/* ---- the pool -------------------------------------------------------------------------------- */

/* Creates an empty pool, of generation 0. Owns: *out until pool_free. */
enum status pool_new(struct pool **out, struct error *err) SLUICE_MUST_USE;
/* The same with a name (copied), which never changes. */
enum status pool_new_named(struct str name, struct pool **out, struct error *err) SLUICE_MUST_USE;
/* len 0: no name. Valid as long as the pool. */
struct str pool_name(const struct pool *pool);
/* After every reader was freed and every ticket released. NULL is allowed. */
void pool_free(struct pool *pool);
/* Takes a reference; each reader has one. The last pool_unref frees the pool; every ticket must
 * have been released. Thread: any. */
void pool_ref(struct pool *pool);
void pool_unref(struct pool *pool);

/* Replaces members and configuration by those of `spec`. An endpoint that stays, by its address,
 * keeps its requests in flight and its state; a new one is ready at once, or with health checks
 * (spec->health) when pool_set_ready reports it. A removed one is not picked any more; its requests
 * continue.
 * Returns: ST_NO_MEMORY; the pool is unchanged, and the spec still the caller's.
 * Owns: takes `*spec`, which becomes NULL.
 * Thread: any; updates run one after the other. Refresh the readers (pool_reader_refresh) soon
 * after. */
enum status pool_update(struct pool *pool, struct pool_spec **spec,
                        struct error *err) SLUICE_MUST_USE;

/* Of the newest snapshot; 0: nothing was loaded yet. Thread: any. */
uint64_t pool_generation(const struct pool *pool);

/* Attaches the table of prompt prefixes, unless there is one; before the first update. NULL: the
 * pool has no table, and prefix scores are 0. Owns: takes a reference. */
void pool_attach_prefix_table(struct pool *pool, struct prefix_table *table);

/* ---- reading --------------------------------------------------------------------------------- */

struct pool_reader;

/* `seed`: of its random numbers; 0: a random one. Owns: *out until pool_reader_unref.
 * Thread: any; then one at a time. */
enum status pool_reader_new(struct pool *pool, uint64_t seed, struct pool_reader **out,
                            struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void pool_reader_unref(struct pool_reader *reader);
/* Takes a reference. Thread: the reader's. */
struct pool_reader *pool_reader_ref(struct pool_reader *reader);
struct pool *pool_reader_pool(const struct pool_reader *reader);

/* Loads the newest snapshot. The snapshot and all views of it are valid until this reader is
 * refreshed or picks again; take a reference to keep it longer. Never fails. Thread: the
 * reader's. */
struct pool_snapshot *pool_reader_refresh(struct pool_reader *reader);

/* ---- picking --------------------------------------------------------------------------------- */

/* For the log: why an endpoint was picked. `first` has the picked one, then the best of the other
 * candidates. */
enum { POOL_MAX_TRACED = 3 };
struct pool_trace {
    struct str profile;    /* ptr NULL: by in-flight counts alone */
    uint32_t n_candidates; /* after the filters */
    struct {
        const struct endpoint *endpoint; /* valid as those of the pick */
        float score;
    } first[POOL_MAX_TRACED];
    size_t n;
};

/* The scores of all candidates among which a profile chose. */
struct pool_scores {
    struct arena *arena; /* what the scores are copied to */
    struct pool_score {
        struct str endpoint; /* "10.0.0.1:8000" */
        float score;
    } * items;
    size_t n;    /* 0: no profile chose */
    bool failed; /* out of memory */
};

/* Adds what requests found in a prefix index, by its number among the producers. Thread: any. */
void pool_read_prefix_hits(const struct pool *pool, uint32_t index, struct prefix_hit_counts *out);
/* The same of an index of media: items that requests looked up by kind, and which part of each
 * request's items each endpoint was sent before (cells of PREFIX_HIT_RATIOS). */
void pool_read_media_lookups(const struct pool *pool, uint32_t index,
                             uint64_t n_items[N_MEDIA_KINDS],
                             uint64_t ratios[PREFIX_HIT_RATIO_CELLS]);
/* The times of plugins so far: rows that stay as long as the pool. Returns: their number. Thread:
 * any. */
size_t pool_plugin_times(const struct pool *pool, const struct plugin_times_row *const **out);
/* Blocks that the endpoints of the snapshot were sent and that fit into their caches, at most: an
 * endpoint that has lost its cache counts as before. Thread: any. */
uint64_t pool_prefix_size(const struct pool *pool, const struct pool_snapshot *snapshot,
                          uint32_t index);

/* What the pick needs of a request. */
struct pool_request {
    struct str model;               /* ptr NULL: none; such a request is never refused for its
                                       model */
    uint64_t path_hash;             /* with pool_wants_clients; 0: unknown */
    struct str id;                  /* of the request, as in the proxy's log; ptr NULL: none */
    struct str objective;           /* its name; ptr NULL: none */
    struct str session;             /* of session affinity; ptr NULL: none */
    struct pool_prompt *prompt;     /* NULL: unknown or none */
    struct pool_headers headers;    /* find NULL: unknown */
    uint32_t n_tokens;              /* estimate of the prompt; 0: unknown */
    uint32_t max_output_tokens;     /* that the request asks for; 0: unknown */
    const struct subset *subset;    /* the proxy's hint; NULL: absent, the whole pool */
    const struct subset *selection; /* a second list (conformance tests); an endpoint must be in
                                       both */
    size_t n_fallbacks;             /* number of further endpoints wanted, at most
                                       PROTOCOL_MAX_FALLBACKS */
    struct pool_trace *trace;       /* filled in; NULL: not needed */
    struct pool_scores *scores;     /* likewise */
    struct str fairness_id;         /* for round robin in the queue; ptr NULL: none */
    const struct endpoint *peer;    /* of an earlier stage that this one works with; NULL: none */
    const struct endpoint *fellow;  /* of an earlier stage, whichever; NULL: none */
    enum stage_role stage;          /* with a handler: what the endpoint is for */
    bool may_hold;                  /* the pick may be put off (pick/pool/prefix/burst.h) */
    bool is_admitted;               /* an earlier stage was picked for: it is not refused by
                                       chance */
    uint64_t n_bytes;               /* memory of the request while it waits */
    struct pool_waiter *waiter;     /* NULL: the request never waits (pick/pool/flow/wait.h) */
};

/* One request in flight to an endpoint. Zeroed memory is no ticket. */
struct pool_ticket {
    struct endpoint *endpoint; /* valid until the ticket is released */
    uint32_t n_tokens;         /* that it counts at the endpoint */
    bool counts_prompt;    /* until the response begins (pool_ticket_end_prompt), not to the end */
    uint64_t kind;         /* of request (pick/pool/kinds.h); 0: unknown */
    uint64_t number;       /* of the pool's picks, from 1 */
    uint64_t sent_ns;      /* of the pick, or the end of the request's body, where that is seen; 0:
                              response times are not measured */
    bool response_started; /* with a successful status */
    bool has_program;      /* with flow_control.has_programs */
    bool has_turn;         /* with PROGRAMS_DEEPEST: it counts as in flight for the program */
    uint32_t n_estimated;  /* with has_program: tokens, estimated at the pick */
    struct keyed_hash program; /* with has_program: of the fairness id */
};

/* Which rule chose. */
enum pool_picked_by {
    POOL_BY_LEAST_REQUESTS, /* in-flight counts: no loads are known, or the profile is that */
    POOL_BY_PROFILE,        /* the scores of the profile */
    POOL_BY_LAST_RESORT,    /* only avoided endpoints were left: refused a connection, ejected, or
                               not checked yet */
};

struct pool_pick {
    struct pool_ticket ticket;
    /* The picked endpoint, then the next best, each once. Valid until this reader is refreshed or
     * picks again (the first as long as the ticket). */
    const struct endpoint *endpoints[1 + PROTOCOL_MAX_FALLBACKS];
    size_t n_endpoints;
    enum pool_picked_by picked_by;
    uint32_t n_cached_tokens; /* with a handler or refuses_uncached: of the prompt, at the picked
                                 endpoint; estimate */
    struct str pool;          /* its name; empty: none. Valid as the endpoints are */
    struct str target;        /* the model's name for the endpoint; ptr NULL: unchanged */
    enum pool_criticality criticality;
    bool is_list;        /* the profile's picker wants all endpoints in the answer */
    bool is_held;        /* with may_hold: there is capacity, and the request is to join the window
                         before it picks again; the ticket is empty */
    bool known_model;    /* the configuration has the model's name, or a rewrite for it */
    bool sheddable;      /* the objective's priority is below 0; without an objective: Sheddable */
    int64_t priority;    /* of the objective; without one, of the criticality */
    uint64_t generation; /* of the snapshot that was used */
};

/* Picks an endpoint. On failure the fields about the model are filled in as far as they are known.
 * If the request is queued (pick/pool/flow/wait.h) the status is ST_OK and the ticket empty; any
 * other result removes it from the queue.
 * Returns: ST_UNKNOWN_MODEL (404), ST_NO_ENDPOINT (503), ST_SATURATED (429), ST_NO_MEMORY.
 * Owns: out->ticket until pool_release_ticket.
 * Thread: the reader's. Clauses: "Destination Endpoint", "Matching An InferenceModel". */
enum status pool_pick(struct pool_reader *reader, const struct pool_request *request,
                      struct pool_pick *out, struct error *err) SLUICE_MUST_USE;

/* Checks a request that has an endpoint already, when its model becomes known: fills in all of
 * `*out` except endpoints and ticket. Returns: ST_UNKNOWN_MODEL; ST_SATURATED, when a sheddable
 * request's endpoint has too many others. Thread: the reader's. */
enum status pool_check_picked(struct pool_reader *reader, const struct pool_request *request,
                              const struct pool_ticket *ticket, struct pool_pick *out,
                              struct error *err) SLUICE_MUST_USE;
/* A server answered a request whose body the proxy did not send to the picker, so that the model in
 * it was neither checked nor replaced: a warning, the first time. Thread: any. */
void pool_note_unchecked_model(struct pool *pool);
/* A body that the picker requested was received: the proxy does send them. Thread: any. */
void pool_note_requested_body(struct pool *pool);
/* Whether nothing has shown so far what becomes of requests after the pick: no requested body, no
 * response. Thread: any. */
bool pool_is_proxy_silent(const struct pool *pool);
/* Lowers the in-flight count: once at the end of each request, however it ended. The ticket becomes
 * empty; an empty one is ignored. Thread: any. */
void pool_release_ticket(struct pool *pool, struct pool_ticket *ticket);
/* The response has ended, of so many tokens of prompt and output: for bands that serve the fairness
 * id that was served least. Where both are 0, unknown, the estimate at the pick counts. A request
 * counts once. Thread: any. */
void pool_count_service(struct pool *pool, struct pool_ticket *ticket, uint64_t n_prompt,
                        uint64_t n_output);
/* The request's body has ended: response times are measured from here, without the time that the
 * client took to send it. Thread: the ticket's. */
void pool_ticket_request_ended(struct pool_ticket *ticket);
/* The response's body has begun, so the prompt is processed: its tokens do not count any more,
 * where it is them that the ticket counts. Thread: any. */
void pool_ticket_end_prompt(struct pool *pool, struct pool_ticket *ticket);
/* The response has started, `good` by its status, and has ended: records the times where the
 * profile needs them. Thread: any. */
void pool_ticket_response_started(struct pool *pool, struct pool_ticket *ticket, bool good);
void pool_ticket_response_ended(const struct pool_ticket *ticket);
/* The request was sent to another endpoint than the picked one: the ticket and the counts move
 * there. An endpoint outside the pool is ignored. Returns: whether the ticket moved. Thread: the
 * reader's. */
bool pool_ticket_move(struct pool_reader *reader, struct pool_ticket *ticket,
                      const struct endpoint_address *served);

/* ---- explaining a pick ----------------------------------------------------------------------- */

/* For an endpoint that is ready and in the request's subset. */
struct pool_endpoint_explanation {
    uint32_t member;
    uint32_t known; /* this and the following as in candidate_columns, as all plugins read them */
    float in_flight, n_waiting, n_running, kv_cache_used;
    float score;                           /* the sum of all scorers */
    const struct profile_step *removed_by; /* the filter that removed it, or NULL */
    float *scores;                         /* of each scorer, from 0 to 1, without weights */
};

struct pool_explanation {
    const struct profile *profile;           /* NULL: the fewest requests in flight is picked */
    struct pool_endpoint_explanation *items; /* in the order of members; in the arena. With flow
                                                control without full ones, while others have
                                                capacity */
    size_t n;
    bool full; /* all candidates are */
};

/* Runs the profile as pool_pick would, on the snapshot that the reader last loaded: `member` is an
 * index into it. Returns: ST_NO_MEMORY.
 * Thread: the reader's; the result is valid until the reader is refreshed or picks again. */
enum status pool_explain(struct pool_reader *reader, const struct pool_request *request,
                         struct arena *arena, struct pool_explanation *out,
                         struct error *err) SLUICE_MUST_USE;

/* ---- reports about endpoints ----------------------------------------------------------------- */

/* The caller holds a snapshot that has the endpoint, or a ticket for it. Thread: any. */

/* A health check's result; before the first one the readiness is unknown. Ignored for an endpoint
 * outside the pool and for a pool without health checks. */
void pool_set_ready(struct pool *pool, struct endpoint *endpoint, bool ready);
/* It refused a connection: avoided for spec->refused_ns from now (clock_now_ns). Ignored for an
 * endpoint that is not ready. */
void pool_report_refused(struct pool *pool, struct endpoint *endpoint);
/* A health check that began then has succeeded, which ends an ejection (docs/picker/health.md). */
void pool_report_healthy(struct pool *pool, struct endpoint *endpoint, uint64_t begun_ns);
/* It accepted a connection: it is tried now, if it is avoided because of a refused one. */
void pool_report_answered(struct pool *pool, struct endpoint *endpoint);

/* How a request ended that the endpoint received. */
enum pool_outcome {
    POOL_OUTCOME_OK,              /* an answer, the following excepted */
    POOL_OUTCOME_REJECTED,        /* 401, 403, 404: of the request, or of a server that lacks the
                                     model or its credentials */
    POOL_OUTCOME_SHED,            /* 429, 503: the server is full */
    POOL_OUTCOME_5XX,             /* a server error, 503 and the following excepted */
    POOL_OUTCOME_GATEWAY_FAILURE, /* 502, 504, or no response: a failed connection, a reset or a
                                     time-out */
};
/* That of a response with this status; of a call, by its `grpc-status`. */
enum pool_outcome pool_outcome_of_http(struct str status);
enum pool_outcome pool_outcome_of_grpc(struct str status);
struct pool_result {
    enum pool_outcome outcome;
    uint64_t client;         /* hash of the client's name or address; 0: unknown */
    uint64_t kind, number;   /* of the ticket; 0: unknown */
    uint64_t retry_after_ns; /* with POOL_OUTCOME_SHED: as the server says; 0: it does not */
};
/* Whether client and path of requests make a difference: one failed lately. Thread: any. */
bool pool_wants_clients(const struct pool *pool);
/* Outlier detection: failures that the others do not have may eject the endpoint
 * (spec->outlier_detection): it is then avoided until a trial succeeds, which the log and the
 * metrics show. Requests that the proxy never sent, and those that the client cancelled, must not
 * be reported. The request is still counted in flight. */
void pool_report_result(struct pool *pool, struct endpoint *endpoint,
                        const struct pool_result *result);
static inline void pool_report_outcome(struct pool *pool, struct endpoint *endpoint,
                                       enum pool_outcome outcome) {
    pool_report_result(pool, endpoint, &(struct pool_result){.outcome = outcome});
}
/* It was tried in vain before another endpoint answered the same request: avoided as after a
 * refused connection, and a failed request. An address outside the pool is ignored. Returns: false
 * where it was. Thread: the reader's. */
bool pool_report_unserved(struct pool_reader *reader, const struct endpoint_address *address);
/* Its metrics were scraped. Ignored for an endpoint outside the pool. */
void pool_set_load(struct pool *pool, const struct endpoint *endpoint,
                   const struct endpoint_load *load);
/* A page with attributes of it was scraped: `keys` are those of the report, `n` of them. Ignored
 * for an endpoint outside the pool, and where its plugins read other attributes by now. */
void pool_set_attributes(struct pool *pool, const struct endpoint *endpoint,
                         const struct attribute_key *keys, uint32_t n,
                         const struct attribute_report *report);
/* Its metrics could not be scraped. Thread: one at a time. */
void pool_count_scrape_failure(const struct endpoint *endpoint);

/* ---- statistics ------------------------------------------------------------------------------ */

struct pool_stats {
    uint64_t generation;
    uint32_t n_endpoints;
    uint32_t n_ready;     /* avoided ones included */
    uint32_t n_unchecked; /* not checked yet */
    uint32_t n_refused, n_ejected, n_shedding;
    uint32_t n_avoided_kinds; /* pairs of an endpoint and a kind of requests that it fails */
    uint64_t n_in_flight;     /* also at endpoints that were removed */
};

/* Thread: any. */
void pool_get_stats(struct pool *pool, struct pool_stats *out);

#endif
