/* Writes that wait for the socket. */
#include "net/server/write_queue.h"

#include <stdlib.h>
#include <string.h>

void write_cursor_advance(struct write_cursor *cursor, size_t n_bytes) {
    cursor->at += n_bytes;
    while (cursor->n > 0 && cursor->at >= cursor->bufs->len) {
        cursor->at -= cursor->bufs->len;
        cursor->bufs++;
        cursor->n--;
    }
}

unsigned write_cursor_peek(struct write_cursor cursor, size_t max_bytes, uv_buf_t *bufs,
                           unsigned max_bufs) {
    unsigned n = 0;
    while (cursor.n > 0 && max_bytes > 0 && n < max_bufs) {
        size_t left = cursor.bufs->len - cursor.at;
        size_t len = left < max_bytes ? left : max_bytes;
        bufs[n++] = (uv_buf_t){.base = cursor.bufs->base + cursor.at, .len = len};
        max_bytes -= len;
        write_cursor_advance(&cursor, len);
    }
    return n;
}

void write_queue_init(struct write_queue *queue) {
    STAILQ_INIT(&queue->writes);
    queue->n_bytes = 0;
}

bool write_queue_add(struct write_queue *queue, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                     uv_write_cb done) {
    struct queued_write *queued = malloc(sizeof(*queued) + n * sizeof(*bufs));
    if (!queued) {
        return false;
    }
    memcpy(queued->bufs, bufs, n * sizeof(*bufs));
    queued->write = write;
    queued->done = done;
    queued->rest = (struct write_cursor){queued->bufs, n, 0};
    write_cursor_advance(&queued->rest, 0); /* over empty buffers */
    STAILQ_INSERT_TAIL(&queue->writes, queued, link);
    for (unsigned i = 0; i < n; i++) {
        queue->n_bytes += bufs[i].len;
    }
    return true;
}

void write_queue_advance(struct write_queue *queue, struct queued_write *write, size_t n_bytes) {
    write_cursor_advance(&write->rest, n_bytes);
    queue->n_bytes -= n_bytes;
}

void write_queue_remove_last(struct write_queue *queue) {
    struct queued_write *last = NULL, *write;
    STAILQ_FOREACH(write, &queue->writes, link) {
        last = write;
    }
    STAILQ_REMOVE(&queue->writes, last, queued_write, link);
    for (unsigned i = 0; i < last->rest.n; i++) {
        queue->n_bytes -= last->rest.bufs[i].len;
    }
    queue->n_bytes += last->rest.n > 0 ? last->rest.at : 0;
    free(last);
}

void write_queue_pop_taken(struct write_queue *queue, struct queued_writes *done) {
    struct queued_write *write;
    STAILQ_INIT(done);
    while ((write = STAILQ_FIRST(&queue->writes)) && write->rest.n == 0) {
        STAILQ_REMOVE_HEAD(&queue->writes, link);
        STAILQ_INSERT_TAIL(done, write, link);
    }
}

void write_queue_pop_all(struct write_queue *queue, struct queued_writes *done) {
    STAILQ_INIT(done);
    STAILQ_CONCAT(done, &queue->writes);
    queue->n_bytes = 0;
}

void queued_writes_complete(struct queued_writes *writes, int status) {
    while (!STAILQ_EMPTY(writes)) {
        struct queued_write *first = STAILQ_FIRST(writes);
        uv_write_t *write = first->write;
        uv_write_cb done = first->done;
        STAILQ_REMOVE_HEAD(writes, link);
        free(first);
        done(write, status);
    }
}
