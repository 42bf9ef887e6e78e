/* The stages of a pick: a list of choices that one request needs, each of an endpoint of its own
 * out of candidates of its own, with a ticket until the stage ends. The first stage is the
 * destination: the endpoint that the proxy sends the request to. The others (a server that
 * prefills, one that encodes pictures) are named to the destination in a header each.
 *
 * A profile handler of the pool (pick/pool/profile/handler.h) says which stages there are, and in
 * which order they are picked for; its deciders leave some out. For one of these, but the
 * destination, without an endpoint the handler says what becomes of the request.
 *
 * Stages are picked for in their order. Where one has to wait the request is queued, and keeps the
 * tickets of those before it. Where one fails the request is refused, and all tickets are released.
 *
 * Internal to pick/session. */
#ifndef SLUICE_PICK_SESSION_STAGES_H
#define SLUICE_PICK_SESSION_STAGES_H

#include "pick/session/session.h"

/* The picked endpoints as the response names them, in the stream's arena: the views of struct
 * pool_pick are valid only until the reader is refreshed. */
struct pick_destination {
    struct str endpoint; /* for header and metadata; with FALLBACK_LIST all, separated by commas.
                            Valid as long as the ticket */
    struct str fallback; /* FALLBACK_KEY; ptr NULL: none */
    struct str rank;     /* the endpoint, where `endpoint` has another port; ptr NULL: it has its */
};

enum pick_stage_result {
    PICK_STAGE_UNDECIDED,
    PICK_STAGE_WANTED, /* it is picked for, or waits for that */
    PICK_STAGE_PICKED,
    PICK_STAGE_LEFT_OUT,    /* by the decider */
    PICK_STAGE_NO_ENDPOINT, /* the request does without it */
};

struct pick_stage {
    const struct pick_stage_plan *plan;
    enum pick_stage_result result;
    struct pool_ticket ticket;  /* empty before the stage is picked for, and after its end */
    struct pool_prompt *prompt; /* NULL: none, or the response has begun */
    struct pick_destination destination;
    /* With several stages: what struct pool_pick says, in the stream's arena. */
    struct str target;
    uint32_t n_cached_tokens;
    enum pool_picked_by picked_by;
    bool known_model;
    int64_t priority;
    /* The endpoints that the proxy was told to try after the picked one, in order. */
    struct endpoint_address *fallbacks;
    size_t n_fallbacks;
};

struct pick_stages {
    struct pick_stage *items;
    size_t n;
    size_t n_picked;                /* so many of the following were picked for, or left out */
    uint8_t order[PICK_MAX_STAGES]; /* the indexes of stages in the order of their picks */
    bool waits;                     /* the next one is queued: it goes on waiting, whatever the
                                       configuration is by now */
    bool by_handler;                /* the pool has a profile handler */
    bool is_disagg;                 /* which decides on stages */
    bool removes_headers;           /* those that name servers to each other, if a client set
                                       them */
    uint16_t primary_port;          /* of it: the destination's port; 0: the endpoint's */
    struct pool_scores *scores;     /* of the destination; NULL: not needed */
    struct str source;              /* the endpoint that has most of the prompt; ptr NULL: none */
    struct pick_stage first;        /* `items` of a request with one stage */
};

#endif
