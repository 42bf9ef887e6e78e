/* The stages of a pick: a list of choices that one request needs, each of an endpoint of its own
 * out of candidates of its own, with a ticket until the stage ends. The first stage is the
 * destination: the endpoint that the proxy sends the request to. The others (a server that
 * prefills, one that encodes pictures) are named to the destination in a header each.
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
};

struct pick_stage {
    const struct pick_stage_plan *plan;
    struct pool_ticket ticket;  /* empty before the stage is picked for, and after its end */
    struct pool_prompt *prompt; /* NULL: none, or the response has begun */
    struct pick_destination destination;
    /* With several stages: what struct pool_pick says, in the stream's arena. */
    struct str target;
    enum pool_picked_by picked_by;
    bool known_model;
    /* The endpoints that the proxy was told to try after the picked one, in order. */
    struct endpoint_address *fallbacks;
    size_t n_fallbacks;
};

struct pick_stages {
    struct pick_stage *items;
    size_t n;
    size_t n_picked;         /* stages before this index were picked for */
    struct pick_stage first; /* `items` of a request with one stage */
};

#endif
