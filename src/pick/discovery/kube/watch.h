/* Lists a collection of the API server's objects and then watches it: objects that are added,
 * modified and deleted are reported as their events arrive.
 *
 * A list may have several pages, and is reported as on_list_begin, an on_object with KUBE_LISTED
 * for each object, and on_list_end. Objects that are not in it are deleted by on_list_end, and not
 * before: an incomplete list is followed by another on_list_begin. No other event comes in between.
 * The collection is listed at first, and when events may have been missed, such as after 410.
 *
 * While the server can't be reached nothing is reported, and what is known stays. Requests are
 * repeated after about 1 s, 2 s, … 30 s, or after Retry-After. A kind that the server does not have
 * (404) is an empty list, with the phase KUBE_NOT_SERVED; it is requested again about twice a
 * minute. If it was served before, this takes three responses in a row.
 *
 * Thread: the worker's, for everything but kube_watch_report. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_WATCH_H
#define SLUICE_PICK_DISCOVERY_KUBE_WATCH_H

#include "core/base/arena.h"
#include "core/base/random.h"
#include "pick/discovery/kube/client.h"

struct kube_watch;

enum kube_event { KUBE_LISTED, KUBE_ADDED, KUBE_MODIFIED, KUBE_DELETED };

enum kube_phase {
    KUBE_LISTING,    /* no response yet, or a list is running */
    KUBE_WATCHING,   /* events are reported as they happen */
    KUBE_NOT_SERVED, /* the server does not have the kind */
    KUBE_DENIED,     /* 401, 403: our credentials do not allow it */
    KUBE_FAILING,    /* no connection, or an invalid response */
};

/* "listing", … */
extern const char *const KUBE_PHASE_TEXTS[];

struct kube_watch_status {
    enum kube_phase phase;
    bool synced; /* a whole list was reported, also an empty one of a kind that is not served */
    uint64_t heard_ns;   /* when the objects were last known to be up to date; 0: never */
    uint64_t n_lists;    /* complete lists */
    uint64_t n_events;   /* added, modified, deleted */
    uint64_t n_failures; /* failed requests */
    struct error error;  /* of the last failure; ST_OK: none since */
};

struct kube_watch_options {
    struct worker *worker;
    struct kube_client *client;    /* the worker's */
    struct kube_resource resource; /* copied */
    const char *label_selector;    /* "app=a,tier in (x)"; NULL: all */
    const char *field_selector;    /* "metadata.name=a"; NULL: all */
    unsigned page;                 /* objects in a page of a list; 0: 500 */
    size_t object_bytes;           /* limit of one object as JSON; 0: 4 MiB */
    unsigned watch_s;              /* timeout of a watch, varied up to twice; 0: 300 s */
    uint64_t silence_ns;           /* a watch without data is replaced after this time; 0: 150 s */
    uint64_t retry_ns;             /* the wait after a failure, see kube_watch_back_off_ns; 0: 1
                                      s */
    /* Callbacks: never within a call of this header; each may call kube_watch_stop. */
    void (*on_list_begin)(void *user);
    /* `object` is valid until it returns. For KUBE_DELETED it is the last state, or, when the
     * selector no longer matches, the current one. */
    void (*on_object)(void *user, enum kube_event event, const struct doc_node *object);
    void (*on_list_end)(void *user);
    /* The phase or the error has changed, which is logged already; NULL: not needed. */
    void (*on_status)(void *user, const struct kube_watch_status *state);
    void *user;
};

/* Starts at once. Returns: ST_NO_MEMORY. Owns: *out until kube_watch_free. */
enum status kube_watch_new(const struct kube_watch_options *options, struct kube_watch **out,
                           struct error *err) SLUICE_MUST_USE;
/* No callback follows; idempotent. To be called before the client is stopped. */
void kube_watch_stop(struct kube_watch *watch);
/* Stops it, too; not to be called within a callback. NULL is allowed. */
void kube_watch_free(struct kube_watch *watch);
/* The current state. Thread: any. */
void kube_watch_report(struct kube_watch *watch, struct kube_watch_status *out);

/* The wait after `n_failures` failures in a row: about 1, 2, 4, 8, 16 and from then on 30 times
 * `first_ns`, each varied by a quarter. */
uint64_t kube_watch_back_off_ns(struct prng *prng, uint64_t first_ns, unsigned n_failures);

#endif
