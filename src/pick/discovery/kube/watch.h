/* One collection of an API server's objects, listed and then watched, for as long as it runs: what
 * is added, changed and deleted is told as it is heard.
 *
 * A list comes in pages and is told as a whole: `begin`, its objects as KUBE_LISTED, `synced`. What
 * was known before and is not among them is gone by `synced`, and not before: of a list that breaks
 * off, `begin` comes again. Between `begin` and `synced` no other event comes. Lists come at first,
 * and whenever the server no longer has what happened since (410), or nobody knows.
 *
 * The server may be away for hours: nothing is told then, and what is known stays. It is asked
 * again after about 1 s, 2 s, … 30 s, or when it says (Retry-After). A kind that the server does
 * not serve (404) is an empty list, with the phase KUBE_NOT_SERVED; it is asked for again about
 * twice a minute. If it was served before, three answers in turn have to say so.
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
    KUBE_LISTING,    /* no answer yet, or a list is under way */
    KUBE_WATCHING,   /* all is told as it happens */
    KUBE_NOT_SERVED, /* the server has no such kind */
    KUBE_DENIED,     /* 401, 403: we may not, as whom the server takes us for */
    KUBE_FAILING,    /* no connection, or an answer that is none */
};

/* "listing", … */
extern const char *const KUBE_PHASE_TEXTS[];

struct kube_watch_status {
    enum kube_phase phase;
    bool synced;         /* a whole list was told (an empty one of what is not served, too) */
    uint64_t heard_ns;   /* clock_now_ns, when what is known was last known to be up to date; 0 */
    uint64_t n_lists;    /* whole ones that were told */
    uint64_t n_events;   /* added, changed, deleted */
    uint64_t n_failures; /* asks that came to nothing */
    struct error error;  /* of the last failure; ST_OK: it is well */
};

struct kube_watch_options {
    struct worker *worker;
    struct kube_client *client;    /* the worker's */
    struct kube_resource resource; /* copied */
    const char *label_selector;    /* "app=a,tier in (x)"; NULL: all */
    const char *field_selector;    /* "metadata.name=a"; NULL: all */
    unsigned page;                 /* objects in a page of a list; 0: 500 */
    size_t object_bytes;           /* of one object as JSON; 0: 4 MiB */
    unsigned watch_s;              /* a watch is asked for that long, up to twice; 0: 300 s */
    uint64_t silence_ns;           /* one that says nothing for so long is begun again; 0: 150 s */
    /* None of them from within a call of this header; kube_watch_stop may be called from each. */
    void (*on_list_begin)(void *user);
    /* `object` is valid until it returns. One of KUBE_DELETED is as it was in the end, or (the
     * selector fits no more) as it is. */
    void (*on_object)(void *user, enum kube_event event, const struct doc_node *object);
    void (*on_list_end)(void *user);
    /* The phase is another, or the error is; NULL: nobody asks. Logged here already. */
    void (*on_status)(void *user, const struct kube_watch_status *state);
    void *user;
};

/* Begins at once. Returns: ST_NO_MEMORY. Owns: *out until kube_watch_free. */
enum status kube_watch_new(const struct kube_watch_options *options, struct kube_watch **out,
                           struct error *err) __attribute__((warn_unused_result));
/* Nothing is called any more; idempotent. Before the client is stopped. */
void kube_watch_stop(struct kube_watch *watch);
/* Stops it, too; not from within a callback. NULL is allowed. */
void kube_watch_free(struct kube_watch *watch);
/* As it is now. Thread: any. */
void kube_watch_report(struct kube_watch *watch, struct kube_watch_status *out);

/* The wait after `n_failures` failures in a row: about 1 s, 2 s, … 30 s, each varied by a
 * quarter. */
uint64_t kube_watch_back_off_ns(struct prng *prng, unsigned n_failures);

#endif
