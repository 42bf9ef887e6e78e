/* The sequences of a model version: which are open, which instance each belongs to, which requests
 * of it wait. They hold no requests but by reference: all that wait stand in the scheduler's queue,
 * too. Nothing here reads a clock or knows a lock: the scheduler holds it.
 *
 * A sequence is open from its first request until its last has come. It has a place at one
 * instance until all its requests were executed; while there is no place, sequences wait for one in
 * the order in which they came. A request is executed when the one before it is through. */
#ifndef SLUICE_SERVE_SCHEDULER_SEQUENCE_SEQUENCE_H
#define SLUICE_SERVE_SCHEDULER_SEQUENCE_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/keyed_hash.h"
#include "serve/config/sequence_params.h"
#include "serve/scheduler/batch.h"
#include "serve/scheduler/call.h"

struct instance_sequences;
struct sequence;

struct sequence_list {
    struct sequence *first, *last;
    size_t n;
};

/* On the heap: of one that is open, or has requests that wait or run. */
struct sequence {
    struct sequence_id id; /* its text is part of this */
    struct sequence *hash_next;
    bool open;
    bool running;
    struct call *first, *last; /* those that wait */
    size_t n_waiting;
    struct instance_sequences *instance; /* where it has its place; NULL: it waits for one */
    size_t slot;                         /* direct: its row there */
    uint64_t idle_since_ns;              /* since then nothing of it waits or runs */
    struct sequence_list *in; /* the backlog, its lane's `ready` or `running`, or `resting` */
    struct sequence *next, *prev;
    char text[];
};

/* The places that one instance has. */
struct instance_sequences {
    struct sequence_list ready; /* by the arrival of what waits first */
    struct sequence_list running;
    struct sequence **slots; /* direct: whose row it is; NULL: nobody's */
    size_t n_free;
};

struct sequences {
    /* set before calls come */
    enum model_sequence_strategy strategy;
    size_t slots_per_instance; /* of a lane */
    size_t min_batch_slots;    /* direct: so many rows are worth a batch at once */
    uint64_t idle_ns;
    struct instance_sequences *instances; /* as the instances */
    size_t n_instances;

    struct sequence_list backlog, idle;
    struct sequence **table; /* those that are open */
    size_t table_mask;
    size_t n_open, n_all;
    size_t n_backlog_calls; /* calls of the backlog */
    struct hash_key key;    /* of the table */
    uint64_t n_arrived;
    bool promoted; /* a sequence got a place that others may have to look for: who sees it clears
                      it */
};

/* NULL: the model has none. Returns: ST_NO_MEMORY. Owns: *out, until sequences_free. */
enum status sequences_new(const struct model_config *config, size_t n_instances,
                          struct sequences **out, struct error *err)
    __attribute__((warn_unused_result));
/* Nothing waits or runs. NULL is allowed. */
void sequences_free(struct sequences *all);

/* Ends those that have rested for too long. Returns: when to look again; UINT64_MAX: no need. */
uint64_t sequences_expire_idle(struct sequences *all, uint64_t now_ns);
/* Finds the sequence that the call goes on with, as call->ask says; NULL in call->sequence: it
 * begins one. Returns: ST_BAD_SEQUENCE: that sequence is not open. */
enum status sequences_find(struct sequences *all, struct call *call, struct error *err)
    __attribute__((warn_unused_result));
/* Will the call, which was found, have to wait for a place? */
bool sequences_must_wait_for_slot(struct sequences *all, const struct call *call);
/* The call waits from now on, in that sequence. Returns: ST_NO_MEMORY. */
enum status sequences_add(struct sequences *all, struct call *call, struct error *err)
    __attribute__((warn_unused_result));
/* The call does not wait any more, and will not run. Returns: those of its sequence that can't
 * either, linked by call->later: none of them waits here any more. */
struct call *sequences_drop(struct sequences *all, struct call *call, uint64_t now_ns);

/* Is there something to execute for that lane now? As scheduler_is_due. */
bool sequences_are_due(const struct sequences *all, const struct batch_rules *rules,
                       size_t instance, uint64_t now_ns, uint64_t *until_ns);
/* The calls to be executed there now, which are running then: in the order of arrival, or, direct,
 * by their rows, NULL where a row in between has none. Returns: how many entries, at most
 * INSTANCE_REQUESTS_MAX. */
size_t sequences_take(struct sequences *all, const struct batch_rules *rules, size_t instance,
                      struct call **batch, uint64_t now_ns);
/* Direct: an execution of that lane has returned. */
void sequences_executed(struct sequences *all, size_t instance, uint64_t now_ns);
/* Oldest: the call, which ran, was answered. */
void sequences_answered(struct sequences *all, struct call *call, uint64_t now_ns);

#endif
