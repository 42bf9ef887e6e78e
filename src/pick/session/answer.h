/* What a session says, as the proxy wants it: the picked endpoint, or why there is none. Clauses:
 * "Destination Endpoint" and its constraints, "Destination endpoint fallback". */
#ifndef SLUICE_PICK_SESSION_ANSWER_H
#define SLUICE_PICK_SESSION_ANSWER_H

#include "pick/session/outbox.h"
#include "pick/session/request.h"

/* What leaves of a pick, in the stream's arena: the pick's own views end with the reader's next
 * look. */
struct pick_choice {
    struct str endpoint; /* for header and metadata; with FALLBACK_LIST all of them, with commas */
    struct str fallback; /* FALLBACK_KEY; ptr NULL: there is none */
};

/* Returns: ST_NO_MEMORY. Owns: `out->endpoint` is the ticket's endpoint's, or in `arena`. */
enum status pick_choice_print(struct arena *arena, const struct pool_pick *pick,
                              enum protocol_fallback fallback, struct pick_choice *out,
                              struct error *err) __attribute__((warn_unused_result));

/* What the answer to a request's headers or body says besides. */
struct pick_news {
    enum ext_proc_kind kind;
    const struct pick_choice *choice;   /* NULL: it was told before */
    struct str path;                    /* the new ":path"; ptr NULL: as it is */
    struct str content_length;          /* the new one; ptr NULL: as it is */
    const struct ext_proc_modes *modes; /* NULL: as configured */
    const struct piece *body;           /* instead of the one that came; NULL: as it is */
    size_t n_body;
    struct pick_kept *of; /* whose bytes `body` are */
};

/* Returns: as pick_outbox_answer. */
enum status pick_tell(struct pick_outbox *outbox, const struct protocol *protocol,
                      const struct pick_news *news, struct error *err)
    __attribute__((warn_unused_result));

/* "Nothing is changed", to whatever came but a body in a duplex mode. */
enum status pick_tell_nothing(struct pick_outbox *outbox, enum ext_proc_kind kind,
                              struct error *err) __attribute__((warn_unused_result));

/* The client is told `why` at once, in the form that it reads. Returns: as pick_outbox_answer. */
enum status pick_refuse(struct pick_outbox *outbox, struct arena *arena,
                        const struct pool_spec *spec, const struct pick_request *request,
                        const struct error *why, struct error *err)
    __attribute__((warn_unused_result));

#endif
