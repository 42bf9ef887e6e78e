/* Requests that are held for a moment, so that those with the same prompt which come at the same
 * time are placed together (burst_assign.h): upstream's burst-prefix-cache-producer. A pool has one
 * window at a time, of all its workers: the proxy spreads a burst over connections, and they over
 * workers. It begins with the first request, and ends after the window's time, when a timer of any
 * of its requests seals it; requests that come later begin another one.
 *
 * A request that leaves (its client disconnects, or its queue deadline passes) does not change what
 * the others wait for.
 *
 * Thread: any, except where a function says another. */
#ifndef SLUICE_PICK_POOL_PREFIX_BURST_H
#define SLUICE_PICK_POOL_PREFIX_BURST_H

#include <sys/queue.h>

#include "pick/pool/endpoint/address.h"
#include "pick/pool/prefix/burst_assign.h"

/* A window has at most so many requests, whatever the configuration says: they are placed at
 * once. */
enum { BURST_MOST = 2048 };

struct burst_batch;
struct pool;
struct pool_reader;
struct pool_request;
struct pool_wakeup;

/* Embedded in a request. Zeroed it is in no window. Thread of its fields: the request's; the lock
 * of windows guards `batch` and what follows. */
struct burst_member {
    struct pool_wakeup *wakeup; /* to be called when it is released */
    struct burst_batch *batch;  /* NULL: in no window */
    uint32_t entry;
    bool is_released; /* in the wakeup's list */
    bool is_assigned; /* `target` is set */
    struct endpoint_address target;
    TAILQ_ENTRY(burst_member) link;
};
TAILQ_HEAD(burst_members, burst_member);

/* The request joins the window that is open, or begins one. Its prompt was matched
 * (pool_prompt_match). Returns: when the window ends (clock_now_ns); 0: it is full, or there is no
 * memory, and the request is not held. Thread: the reader's. */
uint64_t burst_join(struct pool_reader *reader, const struct pool_request *request,
                    struct burst_member *member);
/* The window's time has passed: releases its requests, unless that is done already. */
void burst_seal(struct pool *pool, struct burst_member *member);
/* The request waits no longer, for whatever reason; one that is in no window is ignored. */
void burst_leave(struct pool *pool, struct burst_member *member);

#endif
