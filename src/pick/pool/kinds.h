/* Kinds of requests: those for one model at one path. A server may fail one kind, as it lacks the
 * model, and answer the others: the endpoint is then avoided for that kind alone, and a failure is
 * compared with what other endpoints answer to the same kind.
 *
 * A few kinds, of which requests failed lately, and a few endpoints of each are remembered. Sans
 * clock; the caller serializes the calls. */
#ifndef SLUICE_PICK_POOL_KINDS_H
#define SLUICE_PICK_POOL_KINDS_H

#include "core/base/str.h"
#include "pick/pool/records.h"

enum { REQUEST_KINDS = 32, ENDPOINTS_OF_KIND = 16 };

struct kind_state {
    uint32_t n_bad_in_row;
    bool avoided;
    uint64_t trial_ns;  /* avoided: when it may be tried next */
    uint32_t n_skipped; /* avoided: picks of the kind that went elsewhere since the last trial */
};

struct request_kind {
    uint64_t kind; /* 0: unused */
    uint64_t used_ns;
    struct outcome_record records[ENDPOINTS_OF_KIND];
    struct kind_state states[ENDPOINTS_OF_KIND]; /* of the endpoint of the record */
};

struct request_kinds {
    uint32_t n_avoided; /* pairs of endpoint and kind */
    struct request_kind items[REQUEST_KINDS];
};

/* Never 0. `path_hash`: 0: unknown, and so is the kind: 0. */
uint64_t request_kind_of(uint64_t path_hash, struct str model);

/* How requests of the kind ended at other endpoints; as outcome_records_elsewhere. */
struct outcome_share request_kinds_elsewhere(const struct request_kinds *kinds, uint64_t kind,
                                             const struct endpoint *endpoint,
                                             enum outcome_kind outcome, uint64_t now_ns,
                                             uint64_t age_ns);
/* Records an outcome. A kind gets a place with its first bad one. An answer ends that the endpoint
 * is avoided. `counts`: a bad one counts. Returns: how many that count were there in a row. */
uint32_t request_kinds_add(struct request_kinds *kinds, uint64_t kind,
                           const struct endpoint *endpoint, enum outcome_kind outcome, bool counts,
                           uint64_t now_ns, uint64_t age_ns);
/* Of an endpoint with a record. Returns: false where it was avoided before. */
bool request_kinds_avoid(struct request_kinds *kinds, uint64_t kind,
                         const struct endpoint *endpoint, uint64_t now_ns);
uint32_t request_kinds_count_avoided(const struct request_kinds *kinds, uint64_t kind);
/* The endpoints that requests of the kind should not be sent to now. Returns: their number. */
size_t request_kinds_list_avoided(const struct request_kinds *kinds, uint64_t kind, uint64_t now_ns,
                                  const struct endpoint *out[ENDPOINTS_OF_KIND]);
/* A request of the kind was sent to the endpoint: a trial, if it is avoided. */
void request_kinds_count_pick(struct request_kinds *kinds, uint64_t kind,
                              const struct endpoint *endpoint, uint64_t now_ns);
/* It is not avoided for any kind any more. */
void request_kinds_readmit(struct request_kinds *kinds, const struct endpoint *endpoint);
/* The same, and its records are dropped. */
void request_kinds_forget(struct request_kinds *kinds, const struct endpoint *endpoint);
/* Drops kinds that were not used for so long. */
void request_kinds_expire(struct request_kinds *kinds, uint64_t now_ns, uint64_t age_ns);

#endif
