/* The calls of other models by a worker: from the message that makes one to the response that is
 * sent. Responses come on threads of the server that must not wait for a worker: they go into a
 * mailbox, from which the supervisor sends one as soon as the worker asks for it and its socket has
 * room. A worker that does not read makes no thread wait. */
#ifndef SLUICE_PYTHON_CALLS_H
#define SLUICE_PYTHON_CALLS_H

#include <stddef.h>
#include <sys/queue.h>

#include "sluice/backend.h"

struct call;
struct mailbox;
struct message;

/* Of one worker process. Thread: the supervisor. */
struct calls {
    struct mailbox *mailbox; /* NULL: none is open */
    LIST_HEAD(, call) open;
    size_t n_open, n_changes;
    enum calls_blocked {
        CALLS_NOT_BLOCKED,
        CALLS_WAIT_FOR_ROOM, /* something is to be sent, and the socket has no room */
        CALLS_WAIT_FOR_LOCK, /* the same, and another thread sends */
    } blocked;
};

enum {
    CALLS_MAX = 1024,      /* at a time; others are refused */
    CALLS_MAX_CHANGES = 8, /* loads and unloads, likewise */
    CALLS_MAX_MESSAGE = 1 << 20,
};

/* Returns: 0 when memory or descriptors are out. */
int calls_open(struct calls *calls);
/* The worker has ended: cancels its calls. Idempotent. */
void calls_close(sluice_instance *instance);
/* Handle CALL, NEXT, DROP and MANAGE. Return: 0 with `reason` when the message breaks a rule. */
int calls_take(sluice_instance *instance, struct message *message, const char **reason);
/* Returns: a descriptor that can be read when calls_send has something to do. */
int calls_descriptor(const sluice_instance *instance);
/* Sends what can be sent now, without waiting. Returns: 0 when the worker is gone. */
int calls_send(sluice_instance *instance);

#endif
