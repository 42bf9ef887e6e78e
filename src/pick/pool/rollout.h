/* The rollout screener: while the servers of a pool are replaced by another revision of them, those
 * that share one request are of one revision. Servers that prefill and that decode may not
 * understand each other's caches across revisions. It applies before the filters of every profile,
 * so that the stages of a request cannot choose differently. Names and meaning are those of the
 * upstream project's disaggregatedset-rollout-screener.
 *
 * Thread: an index is immutable, and read by any thread. */
#ifndef SLUICE_PICK_POOL_ROLLOUT_H
#define SLUICE_PICK_POOL_ROLLOUT_H

#include <stdatomic.h>

#include "pick/pool/profile/candidate_set.h"

/* How a request without a revision gets one, among those that have each required role: by the
 * number of ready endpoints, of all roles or of the role that has most in all revisions. */
enum rollout_mode { ROLLOUT_SUM, ROLLOUT_MAX_ROLE, ROLLOUT_DISABLED };

enum { ROLLOUT_MOST_ROLES = 8, ROLLOUT_MOST_SELECTORS = 8, ROLLOUT_MOST_REVISIONS = 64 };

/* A request with the header goes to endpoints only whose label has its value. */
struct rollout_selector {
    struct str name, header /* in lower case */, label;
};

struct rollout_screener {
    struct str name; /* of the plugin */
    enum rollout_mode mode;
    struct pool_labels scope; /* of the endpoints that count */
    struct str revision_label, role_label;
    struct str roles[ROLLOUT_MOST_ROLES]; /* that a revision must have */
    size_t n_roles;
    struct rollout_selector selectors[ROLLOUT_MOST_SELECTORS];
    size_t n_selectors;
    /* Requests of each selector that no endpoint matched; NULL: they are not counted. */
    _Atomic uint64_t *n_unmatched;
};
/* "max-role" */
const char *rollout_mode_name(enum rollout_mode mode);

enum { ROLLOUT_NONE = 255 };

/* The revisions and roles of a snapshot's members. */
struct rollout_index {
    struct str revisions[ROLLOUT_MOST_REVISIONS];
    size_t n_revisions;
    uint8_t *revision_of; /* each member's; ROLLOUT_NONE: it has no such label, or there are too
                             many revisions */
    uint8_t *role_of;     /* index in the screener's roles; ROLLOUT_NONE: another, or it does not
                             count */
};

/* Returns: NULL when out of memory. Owns: in `arena`. */
struct rollout_index *rollout_index_new(const struct rollout_screener *screener,
                                        const struct pool_snapshot *snapshot, struct arena *arena);

/* The share of requests without a revision that each revision gets, 0 to 1, at its index in
 * index->revisions: 0 where it lacks a role. Not with ROLLOUT_DISABLED. */
void rollout_get_shares(const struct rollout_screener *screener, const struct rollout_index *index,
                        const struct pool_snapshot *snapshot, double out[ROLLOUT_MOST_REVISIONS]);

/* Keeps the candidates of one revision: that of `fellow`, the endpoint of an earlier stage of
 * the request (NULL: there is none), or one that is drawn among the candidates'. A request with
 * the header of a selector keeps all that have its value and are of a revision with all roles.
 * Returns: ST_NO_ENDPOINT with the reason where no revision of the candidates has all roles, or no
 * endpoint what a header asks for. */
enum status rollout_screen(const struct rollout_screener *screener,
                           const struct rollout_index *index, const struct endpoint *fellow,
                           struct candidate_set *candidates, struct error *err) SLUICE_MUST_USE;

#endif
