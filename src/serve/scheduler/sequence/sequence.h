/* The sequences of a model version (sequence batching): which are open, which instance each is
 * bound to, and which of their calls wait. Waiting calls are also in the scheduler's queue, which
 * owns them. The caller passes the time and holds the scheduler's lock.
 *
 * A sequence is open from its first request until its last arrived. It owns a slot at one instance
 * until all its requests were executed; sequences without a slot wait in the backlog in order of
 * arrival. The requests of a sequence run one after the other. */
#ifndef SLUICE_SERVE_SCHEDULER_SEQUENCE_SEQUENCE_H
#define SLUICE_SERVE_SCHEDULER_SEQUENCE_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/hash.h"
#include "serve/config/sequence_params.h"
#include "serve/scheduler/batch.h"
#include "serve/scheduler/call_run.h"

struct instance_sequences;
struct sequence;

TAILQ_HEAD(sequence_list, sequence);

/* A sequence that is open, or has calls that wait or run. On the heap. */
struct sequence {
    struct sequence_id id; /* its text is `text` below */
    struct sequence *hash_next;
    bool open;
    bool running;
    struct call_list calls; /* waiting; linked by sequence_link */
    size_t n_waiting;
    struct instance_sequences *instance; /* where it owns a slot; NULL: it is in the backlog */
    size_t slot;                         /* direct: its row */
    uint64_t idle_since_ns;              /* since when no call of it waits or runs */
    struct state_value **states;         /* of its latest answer; NULL: the first value. Written by
                                            the backend's thread while a call runs (state.h) */
    size_t n_states;
    struct sequence_list *in; /* the list it is in: backlog, idle, or its instance's ready or
                                 running */
    TAILQ_ENTRY(sequence) link;
    char text[];
};

/* The slots of one instance. */
struct instance_sequences {
    struct sequence_list ready; /* by the arrival of the first waiting call */
    struct sequence_list running;
    struct sequence **slots; /* direct: the owner of each row; NULL: free */
    size_t n_free;
};

struct sequences {
    /* set before the first call */
    enum model_sequence_strategy strategy;
    size_t slots_per_instance; /* capacity of an instance */
    size_t min_batch_slots;    /* direct: this many ready rows run without waiting for more */
    uint64_t idle_ns;
    size_t n_states;
    bool until_answered; /* a sequence goes on when its call was answered, not when the execution
                            ended */
    struct instance_sequences *instances; /* one per instance */
    size_t n_instances;

    struct sequence_list backlog, idle;
    struct sequence **table; /* hash table of open sequences */
    size_t table_mask;
    size_t n_open, n_all;
    size_t n_backlog_calls;   /* calls of sequences in the backlog */
    size_t n_continued_calls; /* waiting calls that ran before: no queue limit holds for them */
    struct hash_key key;      /* for the hash table */
    uint64_t n_arrived;
    bool promoted; /* a sequence got a slot, or lost the calls in front of a start, so another
                      thread may have work; the reader clears it */
};

/* *out is NULL without sequence batching. Returns: ST_NO_MEMORY. Owns: *out, until
 * sequences_free. */
enum status sequences_new(const struct model_config *config, size_t n_instances,
                          struct sequences **out, struct error *err) SLUICE_MUST_USE;
/* No call waits or runs. NULL is allowed. */
void sequences_free(struct sequences *all);

/* Closes sequences that were idle for too long. Returns: when to call again; UINT64_MAX: not
 * needed. */
uint64_t sequences_expire_idle(struct sequences *all, uint64_t now_ns);
/* Finds the sequence of call->sequence_params; call->sequence NULL: the call starts one. Returns:
 * ST_BAD_SEQUENCE when the sequence is not open. */
enum status sequences_find(struct sequences *all, struct call *call,
                           struct error *err) SLUICE_MUST_USE;
/* Returns: whether the call, after sequences_find, has to wait for a slot. */
bool sequences_must_wait_for_slot(struct sequences *all, const struct call *call);
/* Adds a waiting call to its sequence. Returns: ST_NO_MEMORY. */
enum status sequences_add(struct sequences *all, struct call *call,
                          struct error *err) SLUICE_MUST_USE;
/* Removes a waiting call that will not run. The later calls of its sequence are moved to
 * `followers`, linked by sequence_link. */
void sequences_drop(struct sequences *all, struct call *call, uint64_t now_ns,
                    struct call_list *followers);

/* Returns: whether a batch is due for that instance, as scheduler_is_due. */
bool sequences_are_due(const struct sequences *all, const struct batch_rules *rules,
                       size_t instance, uint64_t now_ns, uint64_t *until_ns);
/* Starts the next batch of that instance: in order of arrival, or, direct, by row with NULL for a
 * row without a call. Returns: the number of entries, at most INSTANCE_REQUESTS_MAX. */
size_t sequences_take(struct sequences *all, const struct batch_rules *rules, size_t instance,
                      struct call **batch, uint64_t now_ns);
/* An execution of that instance ended. */
void sequences_executed(struct sequences *all, size_t instance, uint64_t now_ns);
/* until_answered: a call that ran was answered. */
void sequences_answered(struct sequences *all, struct call *call, uint64_t now_ns);

/* Puts a call that ran in front of its sequence again. */
void sequences_run_again(struct sequences *all, struct call *call, uint64_t now_ns);

#endif
