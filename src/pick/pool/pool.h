/* A pool of model servers: what is known of them, and which of them takes a request.
 *
 * The rule: of the endpoints that are in the pool, ready, and in the request's subset, the one that
 * the pool's profile says (pick/pool/profile/profile.h). While nothing is known of loads the
 * default profile says the one with the fewest requests in flight of ours; ties at random. Its
 * count is raised before the answer is returned, so that picks at the same time see each other, and
 * lowered when the ticket is given back. An endpoint that just refused a connection is picked only
 * when no other is left.
 *
 * What the pool is made of is an immutable snapshot (snapshot.h) that is swapped whole. Each
 * worker has a reader, which holds the snapshot that it looked at last: looking again costs a load
 * while nothing has changed, and an old snapshot is freed when the last reader has looked away. The
 * counts are common to all workers; changing them takes a lock for some dozen instructions, however
 * many endpoints there are (pick/pool/profile/ranking.h).
 *
 * It knows no socket: who serves the requests says what came of them. */
#ifndef SLUICE_PICK_POOL_POOL_H
#define SLUICE_PICK_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "pick/pool/prefix/prompt.h"
#include "pick/pool/snapshot.h"
#include "pick/pool/spec.h"
#include "pick/pool/subset.h"

struct pool;
struct pool_waiter;
struct profile;
struct profile_step;

/* ---- the pool -------------------------------------------------------------------------------- */

/* An empty pool, of generation 0. Owns: *out until pool_free. */
enum status pool_new(struct pool **out, struct error *err) __attribute__((warn_unused_result));
/* The same with a name (copied), which never changes. */
enum status pool_new_named(struct str name, struct pool **out, struct error *err)
    __attribute__((warn_unused_result));
/* len 0: it has none. Lives as long as the pool. */
struct str pool_name(const struct pool *pool);
/* Every reader is gone and every ticket given back. NULL is allowed. */
void pool_free(struct pool *pool);
/* One more who wants it to stay, and can reach it already; each reader is one. The last one frees
 * it, when every ticket has been given back. Thread: any. */
void pool_ref(struct pool *pool);
void pool_unref(struct pool *pool);

/* From now on the pool is what `spec` says. An endpoint that stays, by its address, keeps its
 * requests in flight and its state; a new one is ready unless health is checked (spec->health), and
 * then once pool_set_ready says so. One that goes is picked no more; its requests go on.
 * Returns: ST_NO_MEMORY; the pool is as before, and the spec still the caller's.
 * Owns: takes `*spec`, which becomes NULL.
 * Thread: any; one update waits for the other. Let the readers look (pool_reader_refresh) soon
 * after. */
enum status pool_update(struct pool *pool, struct pool_spec **spec, struct error *err)
    __attribute__((warn_unused_result));

/* Of the newest snapshot; 0: nothing has been loaded yet. Thread: any. */
uint64_t pool_generation(const struct pool *pool);

/* Where it is remembered who was sent which prompts, unless it has that already; before the first
 * update. Without one, NULL, nothing is known of that. Owns: a reference. */
void pool_attach_prefix_table(struct pool *pool, struct prefix_table *table);

/* ---- reading --------------------------------------------------------------------------------- */

struct pool_reader;

/* `seed` of its dice; 0: one from the system. Owns: *out until pool_reader_unref.
 * Thread: any; then one at a time. */
enum status pool_reader_new(struct pool *pool, uint64_t seed, struct pool_reader **out,
                            struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. */
void pool_reader_unref(struct pool_reader *reader);
/* One more who uses it, on its thread: it lives until as many have freed it. */
struct pool_reader *pool_reader_ref(struct pool_reader *reader);
/* Whose it is. */
struct pool *pool_reader_pool(const struct pool_reader *reader);

/* The newest snapshot, and with it all that it says: valid until this reader looks or picks again.
 * Who needs it longer takes a reference. Never fails. Thread: the reader's. */
struct pool_snapshot *pool_reader_refresh(struct pool_reader *reader);

/* ---- picking --------------------------------------------------------------------------------- */

/* Why an endpoint was picked, for people. `first` is the one picked, behind it the best of the
 * others that the filters have left. */
enum { POOL_MAX_TRACED = 3 };
struct pool_trace {
    struct str profile;    /* that judged; ptr NULL: the requests in flight decided alone */
    uint32_t n_candidates; /* that it judged */
    struct {
        const struct endpoint *endpoint; /* valid as those of the pick */
        float score;
    } first[POOL_MAX_TRACED];
    size_t n;
};

/* What a request says that matters for the choice. */
struct pool_request {
    struct str model;               /* ptr NULL: it names none, and is never refused for that */
    struct str objective;           /* ptr NULL: it names none */
    struct str session;             /* whose requests belong together; ptr NULL: it names none */
    struct pool_prompt *prompt;     /* NULL: it isn't known, or there is none */
    struct pool_headers headers;    /* find NULL: they aren't known */
    uint32_t n_tokens;              /* to read and to make, as far as it can be said */
    const struct subset *subset;    /* the proxy's hint; NULL: absent, all of the pool */
    const struct subset *selection; /* a second such list (conformance tests); both must hold */
    size_t n_fallbacks;             /* wanted besides the first, at most PROTOCOL_MAX_FALLBACKS */
    struct pool_trace *trace;       /* to be filled in; NULL: nobody wants to know */
    struct str fairness_id;         /* whose turn it is with others; ptr NULL: nobody's */
    uint64_t n_bytes;               /* that it holds while it waits */
    struct pool_waiter *waiter;     /* NULL: it never waits (pick/pool/flow/wait.h) */
};

/* A request in flight to an endpoint. Zeroed memory is none. */
struct pool_ticket {
    struct endpoint *endpoint; /* lives until the ticket is given back */
    uint32_t n_tokens;
    uint64_t picked_ns;    /* 0: nobody wants to know how long it takes */
    bool response_started; /* its answer has, and it is a good one */
};

/* What decided. */
enum pool_picked_by {
    POOL_BY_LEAST_REQUESTS, /* the requests in flight: nothing is known of loads, or the
                                    profile says
                            so */
    POOL_BY_PROFILE,        /* the sums of a profile */
    POOL_BY_LAST_RESORT,    /* nothing better was left: it just refused a connection, or is
                            unchecked */
};

struct pool_pick {
    struct pool_ticket ticket;
    /* The one picked and, behind it, the next best, none twice. Valid until this reader looks or
     * picks again (the first as long as the ticket). */
    const struct endpoint *endpoints[1 + PROTOCOL_MAX_FALLBACKS];
    size_t n_endpoints;
    enum pool_picked_by picked_by;
    struct str pool;   /* its name; empty: it has none. Valid as the endpoints are */
    bool known_model;  /* the configuration has the model's name, or a rewrite for it */
    struct str target; /* the model's name from here on; ptr NULL: as the request has it */
    enum pool_criticality criticality;
    int64_t priority;    /* the objective's; without one, the criticality's */
    bool sheddable;      /* the objective's priority is below 0; without one: Sheddable */
    uint64_t generation; /* of the snapshot that all this is of */
};

/* Picks. On failure the fields about the model are still filled in, as far as they are known. Where
 * the request waits instead (pick/pool/flow/wait.h) the ticket is none. Whatever else comes of it,
 * it does not wait any more.
 * Returns: ST_UNKNOWN_MODEL (404), ST_NO_ENDPOINT (503), ST_SATURATED (429), ST_NO_MEMORY.
 * Owns: out->ticket until pool_release_ticket.
 * Thread: the reader's. ("Destination Endpoint", "Matching An InferenceModel") */
enum status pool_pick(struct pool_reader *reader, const struct pool_request *request,
                      struct pool_pick *out, struct error *err) __attribute__((warn_unused_result));

/* What pool_pick would say of a request that has its endpoint already, now that its model is known:
 * all of `*out` but the endpoints and the ticket. Returns: ST_UNKNOWN_MODEL, ST_SATURATED, where
 * the others at that endpoint are too many. Thread: the reader's. */
enum status pool_check_picked(struct pool_reader *reader, const struct pool_request *request,
                              const struct pool_ticket *ticket, struct pool_pick *out,
                              struct error *err) __attribute__((warn_unused_result));
/* The request has ended, however it did: at every end, once. The ticket becomes none; none is left
 * alone. Thread: any. */
void pool_release_ticket(struct pool *pool, struct pool_ticket *ticket);
/* Its answer begins, `good` as its status says, and has ended as it should: how long that took is
 * remembered, where a profile wants it. Thread: any. */
void pool_ticket_response_started(struct pool *pool, struct pool_ticket *ticket, bool good);
void pool_ticket_response_ended(const struct pool_ticket *ticket);
/* Another endpoint than the picked one took the request: from now on it counts there. One that is
 * not in the pool changes nothing. Returns: it was another. Thread: the reader's. */
bool pool_ticket_move(struct pool_reader *reader, struct pool_ticket *ticket,
                      const struct endpoint_address *served);

/* ---- explaining a pick ----------------------------------------------------------------------- */

/* Of an endpoint that is ready and named by the request. */
struct pool_endpoint_explanation {
    uint32_t member;
    uint32_t known; /* and so on: as in candidate_columns, as all plugins saw it */
    float in_flight, n_waiting, n_running, kv_cache_used;
    float score;                           /* the sum of all */
    const struct profile_step *removed_by; /* the filter that took it away, or NULL */
    float *scores;                         /* of each scorer, from 0 to 1, without weights */
};

struct pool_explanation {
    const struct profile *profile;           /* NULL: the fewest requests in flight is picked */
    struct pool_endpoint_explanation *items; /* in the order of their members; all in the arena.
                                                Where requests
                                      can wait, without those that are full, if others are left */
    size_t n;
    bool full; /* all that may take the request are */
};

/* As pool_pick would do it with the pool that the reader has looked at last: members are those of
 * that snapshot, which the caller has in its hand. Returns: ST_NO_MEMORY.
 * Thread: the reader's; the result is good until it looks or picks again. */
enum status pool_explain(struct pool_reader *reader, const struct pool_request *request,
                         struct arena *arena, struct pool_explanation *out, struct error *err)
    __attribute__((warn_unused_result));

/* ---- what becomes known of endpoints --------------------------------------------------------- */

/* The caller holds a snapshot with it, or a ticket for it. Thread: any. */

/* Checks found it ready, or not; before the first time nothing is known of it. One that is not in
 * the pool any more, or that nobody is to check, is left alone. */
void pool_set_ready(struct pool *pool, struct endpoint *endpoint, bool ready);
/* It refused a connection: avoided for spec->refused_ns from now (clock_now_ns). One that is
 * known not to be ready is left alone. */
void pool_report_refused(struct pool *pool, struct endpoint *endpoint);
/* It answered: avoided no more. */
void pool_report_answered(struct pool *pool, struct endpoint *endpoint);
/* It said what its load is. One that is not in the pool any more is left alone. */
void pool_set_load(struct pool *pool, const struct endpoint *endpoint,
                   const struct endpoint_load *load);
/* It was asked and did not. Thread: one at a time. */
void pool_count_scrape_failure(const struct endpoint *endpoint);

/* ---- a look from outside --------------------------------------------------------------------- */

struct pool_stats {
    uint64_t generation;
    uint32_t n_endpoints;
    uint32_t n_ready;     /* those that refused among them */
    uint32_t n_unchecked; /* neither known to be ready nor not */
    uint32_t n_refused;
    uint64_t n_in_flight; /* of endpoints that have left the pool, too */
};

/* Thread: any. */
void pool_get_stats(struct pool *pool, struct pool_stats *out);

#endif
