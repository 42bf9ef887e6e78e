/* Sessions by ids that clients send, as upstream's plugins of session affinity have them with the
 * strategy session_id: the first request of a session binds it to the endpoint that it is sent to,
 * and it moves when that endpoint is no candidate any more.
 *
 * Thread: any, but what belongs to a pick. */
#ifndef SLUICE_PICK_POOL_PROFILE_SESSION_ID_H
#define SLUICE_PICK_POOL_PROFILE_SESSION_ID_H

#include "pick/pool/profile/profile.h"
#include "pick/pool/profile/session_table.h"

enum { SESSION_ID_MAX_SOURCES = 16 };

/* Where an id is: a header, or a cookie, or where both are empty what agent-identity finds. */
struct session_id_source {
    struct str header;   /* in lower case */
    struct str cookie;   /* its name */
    struct str producer; /* the session-id-producer that says which of the two (set by
                            pick/config/producers.c); empty: none does */
};

/* Zeroed: the strategy is another one. */
struct session_id_parameters {
    struct session_id_source sources[SESSION_ID_MAX_SOURCES]; /* the first that there is counts */
    size_t n_sources;                                         /* 0: no such strategy */
    struct session_expiry expiry;
    struct str profile; /* whose endpoint the session is bound to; empty: the destination */
    uint32_t index;     /* among the pool's tables */
};

/* What is known of a request's session in one of the tables. */
struct session_choice {
    struct keyed_hash session;
    bool has_session;
    uint64_t bound;  /* the endpoint's number; 0: none */
    bool was_absent; /* when the plugin ran: it is no candidate */
};

/* Reads `sessionIdConfig`, which may be absent, into the parameters. */
void session_id_read(struct doc_reader *reader, const struct doc_node *node,
                     struct session_id_parameters *out);
/* `add_needs` of these plugins: `type` tells tables apart. */
enum status session_id_add_needs(struct session_id_parameters *parameters, const char *type,
                                 struct pool_request_needs *needs,
                                 struct error *err) SLUICE_MUST_USE;

/* Sets the snapshot's tables: those of the older snapshot, which it shares, or new ones. On failure
 * some may be set. */
enum status session_tables_attach(struct pool_snapshot *snapshot, const struct pool_snapshot *old,
                                  struct error *err) SLUICE_MUST_USE;
void session_tables_detach(struct pool_snapshot *snapshot);

/* Finds the request's session in each of the snapshot's tables; one of `out` for each. */
void session_choices_begin(const struct pool_snapshot *snapshot, const struct pool_headers *headers,
                           uint64_t now_ns, struct session_choice *out);
/* Returns: the index of the candidate that the session is bound to; candidates->n: none. */
uint32_t session_id_find(const struct session_id_parameters *parameters,
                         struct candidate_set *candidates);
/* The request is sent to this member by this profile, whose endpoint may be the destination.
 * `is_reduced`: candidates were left out that were only full, so that no session moves. Thread: one
 * at a time for a pool. */
void session_choices_commit(const struct pool_snapshot *snapshot,
                            const struct session_choice *choices, bool is_reduced,
                            const struct profile *profile, bool is_destination, uint32_t member,
                            uint64_t now_ns);

#endif
