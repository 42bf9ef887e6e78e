/* Whether a client may read a page of this program, by its bearer token: as the API server says,
 * which is asked for the token's user (TokenReview) and whether that user may read the page
 * (SubjectAccessReview). Answers are kept for a while, by a keyed hash of token and page; the
 * tokens themselves are not. Errors are not kept.
 *
 * Requests for the same token and page that come while the API server is being asked share its
 * answer. At most KUBE_ACCESS_MAX_ASKED questions are under way, and each ends after
 * KUBE_ACCESS_TIMEOUT_S at the latest.
 *
 * Thread: the client's. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_ACCESS_H
#define SLUICE_PICK_DISCOVERY_KUBE_ACCESS_H

#include <sys/queue.h>

#include "pick/discovery/kube/client.h"

/* Upstream keeps a token's user for a minute and what it may do for five, or, if it may not, for
 * half a minute: together these. */
enum { KUBE_ACCESS_ALLOWED_S = 60, KUBE_ACCESS_DENIED_S = 30, KUBE_ACCESS_TIMEOUT_S = 10 };
enum { KUBE_ACCESS_MAX_KEPT = 1024, KUBE_ACCESS_MAX_ASKED = 32, KUBE_ACCESS_MAX_WAITING = 256 };

struct kube_access;

/* Of one request; the caller's memory, until `done`. */
struct kube_access_waiter {
    /* ST_OK: it may. ST_UNAUTHENTICATED: the token is of no user; ST_ACCESS_DENIED: the user may
     * not; ST_OVERLOADED: too many requests wait; others: the API server did not answer. Called
     * once, perhaps within kube_access_check. */
    void (*done)(struct kube_access_waiter *waiter, const struct error *err);
    LIST_ENTRY(kube_access_waiter) link;
};

/* `client`: must outlive it, and be stopped before kube_access_free. Returns: ST_NO_MEMORY. Owns:
 * *out until kube_access_free. */
enum status kube_access_new(struct kube_client *client, struct kube_access **out,
                            struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void kube_access_free(struct kube_access *access);

/* `verb`: the method of HTTP in lower case. The texts are borrowed during the call. */
void kube_access_check(struct kube_access *access, struct str token, struct str verb,
                       struct str path, struct kube_access_waiter *waiter);

#endif
