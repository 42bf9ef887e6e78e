/* A watch's memory, and what its two halves call of each other: watch.c decides what is asked
 * and when, watch_answer.c reads what comes of it. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_WATCH_STATE_H
#define SLUICE_PICK_DISCOVERY_KUBE_WATCH_STATE_H

#include "codec/kube/stream.h"
#include "core/base/random.h"
#include "core/event/lock.h"
#include "pick/discovery/kube/watch.h"

enum { KUBE_VERSION_BYTES = 256 };

struct kube_watch {
    struct kube_watch_options options;
    char *name;       /* of the resource, for people: "pods", "inferencepools.inference…" */
    char *path;       /* of the collection */
    char *query;      /* the selectors: "&labelSelector=…" */
    struct lock lock; /* of the state, which others look at */
    struct kube_watch_status state;
    struct kube_call *call; /* what is asked; NULL: it waits */
    struct timer timer;     /* the end of a wait, or a look at a watch */
    struct prng prng;
    bool stopped;
    /* The list: */
    bool listing;      /* what is asked, or next */
    unsigned page;     /* objects in one */
    char *next_page;   /* what the server goes on with; NULL: from the front */
    bool was_served;   /* the last list was one */
    unsigned n_absent; /* answers in turn that there is no such kind */
    /* The watch: */
    char version[KUBE_VERSION_BYTES];
    struct kube_stream stream;
    uint64_t asked_ns, heard_ns; /* when it began; when the last byte came */
    bool watch_failed;           /* since one lasted */
    /* Failures in turn, since a watch lasted. */
    unsigned n_turn;
};

/* ---- watch.c ---------------------------------------------------------------------------- */

/* Asks for the next page, or for a watch, as `listing` says. */
void kube_watch_send_request(struct kube_watch *watch);
/* Asks again after so long. */
void kube_watch_send_request_in(struct kube_watch *watch, uint64_t wait_ns);
/* Now it is so; `err` NULL: nothing is wrong. */
void kube_watch_set_phase(struct kube_watch *watch, enum kube_phase phase, const struct error *err);
/* What is known is up to date. */
void kube_watch_set_fresh(struct kube_watch *watch, bool event);
/* A list from the front comes next. */
void kube_watch_relist(struct kube_watch *watch);
/* The watch does what it should. */
void kube_watch_reset_back_off(struct kube_watch *watch);
/* The next wait of a row of failures, which this one is in. */
uint64_t kube_watch_back_off_ns(struct kube_watch *watch);
/* Up to so long. */
uint64_t kube_watch_jitter_ns(struct kube_watch *watch, uint64_t most_ns);

/* ---- watch_answer.c --------------------------------------------------------------------- */

/* What kube_ask has. */
void kube_watch_on_page(void *user, const struct kube_response *answer);
void kube_watch_on_piece(void *user, struct str bytes);
void kube_watch_on_end(void *user, const struct kube_response *answer);
/* The watch that runs has said nothing for too long. */
void kube_watch_on_silence(struct kube_watch *watch);
/* What was asked for could not be. */
void kube_watch_on_failure(struct kube_watch *watch, const struct kube_response *answer);

#endif
