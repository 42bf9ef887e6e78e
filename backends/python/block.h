/* Blocks of shared memory between the server and one worker process. Each is a file of memory
 * (memfd) of a fixed size, which the worker cannot change, and which nothing but the two processes
 * refers to: it is gone with them. The server decides which side may write to a block:
 *
 *     IDLE ─→ INPUT    (written by the server, read by the worker) ─→ IDLE
 *          └→ GRANTED  (written by the worker) ─→ OUTPUT (read by the server) ─→ IDLE
 *
 * The worker can write to all of its blocks at any time. So the server reads from them nothing that
 * decides where it reads: sizes and places come in messages. */
#ifndef SLUICE_PYTHON_BLOCK_H
#define SLUICE_PYTHON_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "python/wire.h"

enum block_state { BLOCK_IDLE, BLOCK_INPUT, BLOCK_GRANTED, BLOCK_OUTPUT };

enum {
    BLOCK_MAX_GRANTED = 64, /* that a worker may have and not use */
    BLOCK_MAX = 1024,       /* of one worker */
    BLOCK_TRIM_S = 10,
};

struct block {
    struct block_pool *pool;
    struct block *next;
    uint32_t number; /* from 1 */
    enum block_state state;
    int fd; /* until the worker knows the block; -1: it does */
    size_t n_bytes;
    unsigned char *bytes;
    unsigned n_idle_s; /* BLOCK_IDLE: since so many calls of pool_trim */
    size_t n_refs;     /* BLOCK_OUTPUT: responses that refer to it */
};

/* The blocks of one worker process. It lives until pool_unref of its owner and until the last
 * output was released. */
struct block_pool;

/* Returns: NULL when out of memory. */
struct block_pool *pool_new(void);
/* The worker has ended: its blocks are freed as they are released. */
void pool_unref(struct block_pool *pool);

/* Takes an idle block of at least `n_bytes`, or makes one, and puts it into `state` (INPUT or
 * GRANTED). Returns: NULL, with *reason: memory, descriptors, or too many blocks. Thread: any. */
struct block *pool_take(struct block_pool *pool, size_t n_bytes, enum block_state state,
                        const char **reason);
/* Puts a block back that was not used, or that the worker does not use any more. Returns: 0 when
 * there is none of that number in `state`. Thread: any. */
int pool_give_back(struct block_pool *pool, uint32_t number, enum block_state state);
/* Turns a granted block into an output with one reference. Returns: NULL when it was not granted.
 * Thread: any. */
struct block *pool_accept(struct block_pool *pool, uint32_t number);
void block_ref(struct block *block);
/* Drops a reference on an output. Does not block. Thread: any. */
void block_release(struct block *block);

/* Called once a second: blocks that have been idle for BLOCK_TRIM_S lose their memory, and get it
 * again when they are written. Thread: any. */
void pool_trim(struct block_pool *pool);

/* Adds to a message the blocks that the worker does not know yet, and those that it need not know
 * any more. Returns: the number of descriptors in `fds`, which the caller sends with the message
 * and closes. Thread: that which sends. */
enum { POOL_MAX_FDS = 32 };
size_t pool_announce(struct block_pool *pool, struct wire_buf *buf, int fds[POOL_MAX_FDS]);

#endif
