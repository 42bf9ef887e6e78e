/* An instance and its worker process, internal to the backend.
 *
 * A thread of its own, the supervisor, starts the worker, reads what it sends, answers its
 * requests, and starts it again when it has ended. The thread that calls execute sends the batch,
 * and while the worker executes it reads in the supervisor's place, which saves waking up two
 * threads for each batch: `read_lock` protects what the thread that reads uses. `lock` protects
 * what all use; `send_lock` the socket's sending side and its descriptor. A thread that holds
 * read_lock may take the other two. */
#ifndef SLUICE_PYTHON_INSTANCE_H
#define SLUICE_PYTHON_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "python/block.h"
#include "python/calls.h"
#include "python/lines.h"
#include "python/model.h"
#include "python/process.h"
#include "python/wire.h"

/* A message of the worker's. Responses refer to it until they are released. */
struct message {
    atomic_size_t n_refs;
    size_t n_bytes;
    unsigned char bytes[];
};

void message_unref(struct message *message);

/* What tensors of a message refer to. */
struct held {
    struct message *message;
    struct block *block;   /* NULL: none */
    unsigned char *copies; /* of what the worker could change after it was checked; NULL: none */
};

/* Thread: any. */
void held_release(void *cookie);

enum worker_state { WORKER_STARTING, WORKER_READY, WORKER_DOWN };

/* A request that has no final response yet. Its token is the slot's index and generation. */
struct slot {
    const sluice_request *request; /* NULL: the slot is free */
    uint32_t generation;
    uint32_t batch;
    uint32_t next_free;
};

struct sluice_instance {
    sluice_model *model;
    uint32_t index;
    pthread_t supervisor;
    uint64_t looked_ns; /* when the supervisor last looked after the process: once a second */
    int describes;      /* it calls auto_complete_config, and serves nothing */
    int wake;           /* eventfd: the instance is to be closed */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum worker_state state;
    int closing;
    int opened; /* the first start has ended: `first_status` is set */
    sluice_status first_status;
    sluice_error first_error;
    char why_down[512];
    struct slot *slots;
    uint32_t n_slots, free_slots;          /* free_slots: index + 1 of the first one; 0: none */
    uint32_t batch;                        /* number of the latest */
    int executing;                         /* the batch has not been done */
    const sluice_request *const *requests; /* of the batch, while executing */
    size_t n_requests;
    uint64_t sent_ns; /* when it was sent */
    uint64_t last_output_bytes;
    uint32_t granted; /* a block that came with a batch and was not used; 0: none */

    int executor_reads; /* the thread that executes, and not the supervisor; with read_lock, too */

    pthread_mutex_t send_lock;
    struct process process;
    struct block_pool *pool;   /* of this process */
    struct wire_buf batch_buf; /* of execute */

    pthread_mutex_t read_lock;
    int events;       /* epoll: what the supervisor waits for; -1: none */
    short wanted;     /* of the socket, as `events` has it */
    char broken[512]; /* why the thread that executes has stopped to read; "": it has not */
    struct readiness {
        int checks;       /* the model has is_ready */
        int is_ready;     /* the worker is there, and is_ready has said so: it is counted */
        int in_flight;    /* a CHECK that is not answered yet, sent at sent_ns */
        uint64_t sent_ns; /* of the latest CHECK */
        char why[256];    /* it is not ready; "": it is, or was not asked yet */
    } readiness;
    struct calls calls;
    struct wire_buf reply_buf;
    struct lines lines;
    struct message *incoming; /* incomplete */
    size_t n_incoming;
    unsigned char head[WIRE_HEAD_BYTES];
    size_t n_head;
    struct answer_scratch {
        sluice_output *outputs;
        int64_t *dims;
        sluice_param *params;
        size_t n_outputs, n_dims, n_params;
    } scratch;
};

/* Sends the message in `buf`, whose `n_fds` descriptors are closed in any case. Returns: 0 when the
 * worker is gone. Thread: any; holds send_lock. */
int instance_send_locked(sluice_instance *instance, const struct wire_buf *buf, int *fds,
                         size_t n_fds);

/* Returns: whether a message can be sent without waiting. Holds send_lock. */
int instance_has_room(const sluice_instance *instance);

static inline uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* readiness.c */

enum { READINESS_TIMEOUT_MS = 5000 }; /* without an answer for so long the model is not ready */

/* Counts the instance among those that are ready, or not. Thread: supervisor. */
void readiness_set(sluice_instance *instance, int is_ready);
/* Handles CHECKED; a reader that has failed says that it breaks a rule. Holds read_lock. */
void readiness_take(sluice_instance *instance, struct wire_reader *reader);
/* Has is_ready called where it is time. Returns: in how many ms it is time again; -1: never.
 * Thread: supervisor. */
int readiness_check(sluice_instance *instance);

/* answers.c */

/* The bytes of a tensor of the worker, in the block, or without one from `tail` on. Returns: NULL
 * when they are not where they can be. */
const unsigned char *place_of(const struct message *message, uint32_t tail,
                              const struct block *block, const struct wire_output *tensor);
/* Handles RESULT. Returns: 0 with `reason` when the message breaks a rule. Holds read_lock. */
int answers_take(sluice_instance *instance, struct message *message, const char **reason);
/* Fails all requests without a final response; `batch` 0: of all batches. Thread: supervisor. */
void answers_fail(sluice_instance *instance, uint32_t batch, sluice_status status,
                  const char *text);
void answers_fini(sluice_instance *instance);

/* Slots. The lock is held. */
/* Returns: the token; 0: out of memory. */
uint64_t slot_take(sluice_instance *instance, const sluice_request *request);
/* Returns: the request, NULL: no open one has this token. */
const sluice_request *slot_find(sluice_instance *instance, uint64_t token);
void slot_release(sluice_instance *instance, uint64_t token);

#endif
