/* What a session says, as the proxy wants it: the picked endpoint, or why there is none. Clauses:
 * "Destination Endpoint" and its constraints, "Destination endpoint fallback". */
#ifndef SLUICE_PICK_SESSION_PROCESSING_RESPONSE_H
#define SLUICE_PICK_SESSION_PROCESSING_RESPONSE_H

#include "pick/session/request.h"
#include "pick/session/send_queue.h"

/* What leaves of a pick, in the stream's arena: the pick's own views end with the reader's next
 * look. */
struct pick_destination {
    struct str endpoint; /* for header and metadata; with FALLBACK_LIST all of them, with commas */
    struct str fallback; /* FALLBACK_KEY; ptr NULL: there is none */
};

/* Returns: ST_NO_MEMORY. Owns: `out->endpoint` is the ticket's endpoint's, or in `arena`. */
enum status pick_destination_print(struct arena *arena, const struct pool_pick *pick,
                                   enum protocol_fallback fallback, struct pick_destination *out,
                                   struct error *err) __attribute__((warn_unused_result));

/* What the answer to a request's headers or body says besides. */
struct pick_mutation {
    enum ext_proc_kind kind;
    const struct pick_destination *destination;   /* NULL: it was told before */
    struct str path;                              /* the new ":path"; ptr NULL: as it is */
    struct str content_length;                    /* the new one; ptr NULL: as it is */
    const struct ext_proc_processing_mode *modes; /* NULL: as configured */
    const struct piece *body;                     /* instead of the one that came; NULL: as it is */
    size_t n_body;
    struct pick_message_ref *ref; /* whose bytes `body` are */
};

/* Returns: as pick_send_queue_push. */
enum status pick_send_mutation(struct pick_send_queue *send_queue, const struct protocol *protocol,
                               const struct pick_mutation *mutation, struct error *err)
    __attribute__((warn_unused_result));

/* "Nothing is changed", to whatever came but a body in a duplex mode. */
enum status pick_send_continue(struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                               struct error *err) __attribute__((warn_unused_result));

/* The client is told `why` at once, in the form that it reads. Returns: as pick_send_queue_push. */
enum status pick_send_refusal(struct pick_send_queue *send_queue, struct arena *arena,
                              const struct pool_spec *spec, const struct pick_request *request,
                              const struct error *why, struct error *err)
    __attribute__((warn_unused_result));

#endif
