/* Writes of a connection that wait for the socket, oldest first. The connection takes them part by
 * part: TLS encrypts a few records at a time, a plain connection sends a bounded number of bytes in
 * each iteration of the event loop.
 *
 * Thread: the connection's worker. */
#ifndef SLUICE_NET_SERVER_WRITE_QUEUE_H
#define SLUICE_NET_SERVER_WRITE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>
#include <uv.h>

/* A position in a list of buffers. */
struct write_cursor {
    const uv_buf_t *bufs;
    unsigned n;
    size_t at; /* in the first buffer */
};

/* Owns: the list of buffers; the caller of write_queue_add owns the bytes. */
struct queued_write {
    STAILQ_ENTRY(queued_write) link;
    uv_write_t *write;
    uv_write_cb done;
    struct write_cursor rest; /* not taken yet */
    uv_buf_t bufs[];
};
STAILQ_HEAD(queued_writes, queued_write);

struct write_queue {
    struct queued_writes writes;
    size_t n_bytes; /* not taken yet, of all writes */
};

void write_queue_init(struct write_queue *queue);
static inline bool write_queue_is_empty(const struct write_queue *queue) {
    return STAILQ_EMPTY(&queue->writes);
}
/* Appends a write: copies the list, not the bytes, which stay in use until `done` is called with
 * `write`. Returns: false when out of memory. */
bool write_queue_add(struct write_queue *queue, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                     uv_write_cb done);
/* `n_bytes` of one of the writes were taken. */
void write_queue_advance(struct write_queue *queue, struct queued_write *write, size_t n_bytes);
/* Removes the last write without a call of `done`. */
void write_queue_remove_last(struct write_queue *queue);
/* Moves the writes at the front that were taken whole to *done. */
void write_queue_pop_taken(struct write_queue *queue, struct queued_writes *done);
/* Moves all writes to *done. */
void write_queue_pop_all(struct write_queue *queue, struct queued_writes *done);
/* Frees the writes of the list and calls their `done`, which may use the connection's queue. */
void queued_writes_complete(struct queued_writes *writes, int status);

void write_cursor_advance(struct write_cursor *cursor, size_t n_bytes);
/* Sets bufs[0] to bufs[max_bufs - 1] to the bytes after the cursor, at most `max_bytes`. Returns:
 * how many buffers were set. */
unsigned write_cursor_peek(struct write_cursor cursor, size_t max_bytes, uv_buf_t *bufs,
                           unsigned max_bufs);

#endif
