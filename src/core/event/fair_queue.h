/* A queue of jobs that clients take turns in: hosts, then the connections of a host, then the jobs
 * of a connection. On each level the next one is that which would end first if all of them were
 * served at the same time, by their estimated times (weighted fair queueing, with the clock of
 * Golestani's self-clocked variant). So a short job passes long ones of others and of its own
 * connection, a client that queues much waits for itself, and a long job waits for a bounded number
 * of short ones.
 *
 * Thread: the caller's lock guards it. */
#ifndef SLUICE_CORE_EVENT_FAIR_QUEUE_H
#define SLUICE_CORE_EVENT_FAIR_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/* Whose job it is. All clients without an address are one host. */
struct fair_client {
    uint64_t host; /* a hash of its address */
    uint64_t conn; /* any number that tells its connections apart */
};

/* A node of a pairing heap: children have no smaller key than their parent. */
struct fair_node {
    uint64_t key;
    uint64_t order;          /* of equal keys the smallest is the first */
    struct fair_node *child; /* the first one */
    struct fair_node *next;  /* the next child of the same parent */
    struct fair_node
        *previous; /* the previous one; of the first child the parent; of the root NULL */
};

struct fair_flow;

/* A job in the queue; embed it. */
struct fair_entry {
    struct fair_node node;
    struct fair_flow *flow; /* its connection */
    uint64_t cost_ns;
};

/* The jobs of a connection, the connections of a host, or all hosts. It exists while it has any. */
struct fair_flow {
    struct fair_node node;    /* in its parent */
    struct fair_flow *parent; /* NULL: all hosts */
    struct fair_node *first;  /* with the smallest key: a flow, or an entry's node */
    uint64_t start;           /* the parent's clock when its first job became the next one */
    uint64_t clock;           /* the key of the job that was taken last */
    struct fair_client client;
    bool is_conn; /* its members are entries */
    LIST_ENTRY(fair_flow) link;
};

enum { FAIR_QUEUE_BUCKETS = 1024 };

struct fair_queue {
    struct fair_flow all;
    struct fair_flow spare[2]; /* a host and its connection, for want of memory */
    size_t n;                  /* jobs */
    uint64_t n_pushed;
    LIST_HEAD(, fair_flow) flows[FAIR_QUEUE_BUCKETS];
};

void fair_queue_init(struct fair_queue *queue);
/* The queue must be empty. */
void fair_queue_fini(struct fair_queue *queue);
/* Adds a job that is estimated to take `cost_ns`. Never fails. */
void fair_queue_push(struct fair_queue *queue, struct fair_entry *entry, struct fair_client client,
                     uint64_t cost_ns);
/* Removes the next job. Returns: NULL when there is none. */
struct fair_entry *fair_queue_pop(struct fair_queue *queue);
/* Removes a job that is in the queue. */
void fair_queue_remove(struct fair_queue *queue, struct fair_entry *entry);

/* Returns: the next job, which stays; NULL when there is none. */
struct fair_entry *fair_queue_first(const struct fair_queue *queue);
/* For queues whose jobs are taken by turns: when the next job would end by the clock. Returns:
 * UINT64_MAX when there is none. */
static inline uint64_t fair_queue_next_end(const struct fair_queue *queue) {
    return queue->all.first ? queue->all.first->key : UINT64_MAX;
}
/* A job was taken from another queue, whose clock is `clock` now. */
static inline void fair_queue_set_clock(struct fair_queue *queue, uint64_t clock) {
    queue->all.clock = queue->all.clock > clock ? queue->all.clock : clock;
}
static inline uint64_t fair_queue_clock(const struct fair_queue *queue) {
    return queue->all.clock;
}

#endif
