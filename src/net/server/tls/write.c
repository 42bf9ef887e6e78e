/* Plain bytes into records, and records to the socket. Small pieces are put together, since each
 * record costs; large ones are sealed from where they lie. */
#include <stdlib.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "net/server/tls/conn.h"

enum {
    MAX_ENCRYPTED_WRITES = 16
}; /* copies on their way: a peer that asks for more and reads none is closed */

/* A place in a list of buffers. */
struct cursor {
    const uv_buf_t *bufs;
    unsigned n;
    size_t at; /* within the first */
};

/* A write that waits: the list is its own, the bytes are its caller's. */
struct net_tls_write {
    struct net_tls_write *next;
    uv_write_t *write;
    uv_write_cb done;
    struct cursor rest; /* what is not yet sealed */
    uv_buf_t bufs[];
};

/* Sealed bytes that the socket did not take at once. */
struct encrypted_write {
    uv_write_t write;
    struct net_conn *conn;
    size_t n_bytes;
    char data[];
};

/* ---- records --------------------------------------------------------------------------------- */

static void cursor_advance(struct cursor *cursor, size_t n_bytes) {
    cursor->at += n_bytes;
    while (cursor->n > 0 && cursor->at >= cursor->bufs->len) {
        cursor->at -= cursor->bufs->len;
        cursor->bufs++;
        cursor->n--;
    }
}

/* The plain bytes of the next record, which stay behind the cursor: from where they lie, or, where
 * that would make small records, put together in `place`. */
static struct str next_record(struct cursor from, char *place) {
    size_t left = from.bufs->len - from.at, n = 0;
    if (left >= TLS_RECORD_BYTES || from.n == 1) {
        return str_make(from.bufs->base + from.at,
                        left < TLS_RECORD_BYTES ? left : TLS_RECORD_BYTES);
    }
    while (from.n > 0 && n < TLS_RECORD_BYTES) {
        left = from.bufs->len - from.at;
        size_t piece = left < TLS_RECORD_BYTES - n ? left : TLS_RECORD_BYTES - n;
        memcpy(place + n, from.bufs->base + from.at, piece);
        n += piece;
        cursor_advance(&from, piece);
    }
    return str_make(place, n);
}

/* Seals as many records as fit. Returns: plain bytes, or -1 when the session is over. */
static ssize_t encrypt_records(struct net_conn *conn, struct tls_io *io, struct cursor *from) {
    size_t n = 0;
    while (from->n > 0) {
        struct str record = next_record(*from, conn->server_worker->tls->gathered);
        enum tls_result result = tls_session_write(&conn->tls->session, io, record);
        if (result == TLS_WANT_WRITE) {
            break;
        }
        if (result != TLS_DONE) {
            return -1;
        }
        cursor_advance(from, record.len);
        n += record.len;
    }
    return (ssize_t)n;
}

/* ---- sealed bytes to the socket -------------------------------------------------------------- */

static int send_waiting(struct net_conn *conn);

/* Takes off the list what has left. */
static struct net_tls_write *pop_done(struct net_tls *tls) {
    struct net_tls_write *first = tls->first, **end = &first;
    while (*end && (*end)->rest.n == 0) {
        end = &(*end)->next;
    }
    tls->first = *end;
    *end = NULL;
    return first;
}

static void complete_writes(struct net_tls_write *list, int status) {
    while (list) {
        struct net_tls_write *next = list->next;
        uv_write_t *write = list->write;
        uv_write_cb done = list->done;
        free(list);
        done(write, status);
        list = next;
    }
}

static void on_encrypted_sent(uv_write_t *write, int status) {
    struct encrypted_write *encrypted = (struct encrypted_write *)write;
    struct net_conn *conn = encrypted->conn;
    size_t n_bytes = encrypted->n_bytes;
    free(encrypted);
    conn->n_encrypted_writes--;
    if (status < 0) {
        net_conn_close(conn);
        return; /* and what waits is told when the handle is closed */
    }
    metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)n_bytes);
    if (conn->n_encrypted_writes == 0) {
        struct net_tls_write *done = pop_done(conn->tls);
        if (send_waiting(conn) != 0) {
            net_conn_close(conn);
        }
        complete_writes(done, 0);
    }
    if (conn->phase == NET_LINGER && !net_conn_is_sending(conn)) {
        net_conn_half_close(conn);
    }
    net_conn_update_io(conn);
}

static struct encrypted_write *encrypted_new(struct net_conn *conn, size_t cap) {
    struct encrypted_write *encrypted = malloc(sizeof(*encrypted) + cap);
    if (encrypted) {
        encrypted->conn = conn;
        encrypted->n_bytes = 0;
    }
    return encrypted;
}

/* Takes `sealed` over. Returns: 0, or libuv's error. */
static int encrypted_send(struct net_conn *conn, struct encrypted_write *encrypted) {
    uv_buf_t buf = {.base = encrypted->data, .len = encrypted->n_bytes};
    int rc = uv_write(&encrypted->write, &conn->uv.stream, &buf, 1, on_encrypted_sent);
    if (rc == 0) {
        conn->n_encrypted_writes++;
    } else {
        free(encrypted);
    }
    return rc;
}

bool net_tls_send_encrypted(struct net_conn *conn, const char *data, size_t n_bytes) {
    /* libuv's type has no const; nobody writes there. */
    uv_buf_t buf = {.base = (char *)(uintptr_t)data, .len = n_bytes};
    int rc = uv_try_write(&conn->uv.stream, &buf, 1); /* nothing, when there is a queue */
    size_t n = rc > 0 ? (size_t)rc : 0;
    metric_add(METRIC_SENT_BYTES_TOTAL, (int64_t)n);
    if (n == n_bytes) {
        return true;
    }
    bool hopeless = (rc < 0 && rc != UV_EAGAIN) || conn->n_encrypted_writes >= MAX_ENCRYPTED_WRITES;
    struct encrypted_write *encrypted = hopeless ? NULL : encrypted_new(conn, n_bytes - n);
    if (encrypted) {
        encrypted->n_bytes = n_bytes - n;
        memcpy(encrypted->data, data + n, encrypted->n_bytes);
    }
    if (!encrypted || encrypted_send(conn, encrypted) != 0) {
        net_conn_close(conn);
        return false;
    }
    return true;
}

/* ---- writes ---------------------------------------------------------------------------------- */

ssize_t net_tls_try_write(struct net_conn *conn, const uv_buf_t *bufs, unsigned n) {
    struct tls_io io = {.out = conn->server_worker->tls->encrypted,
                        .out_cap = NET_TLS_ENCRYPTED_BYTES};
    struct cursor from = {bufs, n, 0};
    if (conn->n_encrypted_writes > 0 || conn->tls->first) {
        return 0; /* not before those */
    }
    ssize_t n_plain = encrypt_records(conn, &io, &from);
    if (n_plain < 0 || !net_tls_send_encrypted(conn, io.out, io.out_len)) {
        return UV_ECONNABORTED;
    }
    return n_plain;
}

/* Seals what waits, as much as goes in one piece, into `sealed`. Returns: false when the session is
 * over. */
static bool encrypt_waiting(struct net_conn *conn, struct encrypted_write *encrypted) {
    struct net_tls *tls = conn->tls;
    struct tls_io io = {.out = encrypted->data, .out_cap = NET_TLS_ENCRYPTED_BYTES};
    for (struct net_tls_write *write = tls->first; write; write = write->next) {
        ssize_t n = encrypt_records(conn, &io, &write->rest);
        if (n < 0) {
            return false;
        }
        tls->n_waiting_bytes -= (size_t)n;
        if (write->rest.n > 0) {
            break;
        }
    }
    encrypted->n_bytes = io.out_len;
    return true;
}

/* Sends the next piece of what waits; nothing else is on its way. Returns: 0, or an error that ends
 * the connection. */
static int send_waiting(struct net_conn *conn) {
    if (!conn->tls->first || conn->phase == NET_CLOSED) {
        return 0;
    }
    struct encrypted_write *encrypted = encrypted_new(conn, NET_TLS_ENCRYPTED_BYTES);
    if (!encrypted) {
        return UV_ENOMEM;
    }
    if (!encrypt_waiting(conn, encrypted)) {
        free(encrypted);
        return UV_ECONNABORTED;
    }
    return encrypted_send(conn, encrypted);
}

static struct net_tls_write *waiting_new(uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                                         uv_write_cb done) {
    struct net_tls_write *waiting = malloc(sizeof(*waiting) + n * sizeof(*bufs));
    if (waiting) {
        memcpy(waiting->bufs, bufs, n * sizeof(*bufs));
        waiting->next = NULL;
        waiting->write = write;
        waiting->done = done;
        waiting->rest = (struct cursor){waiting->bufs, n, 0};
    }
    return waiting;
}

int net_tls_queue_write(struct net_conn *conn, uv_write_t *write, const uv_buf_t *bufs, unsigned n,
                        uv_write_cb done) {
    struct net_tls *tls = conn->tls;
    struct net_tls_write *waiting = waiting_new(write, bufs, n, done);
    if (!waiting) {
        return UV_ENOMEM;
    }
    if (tls->first) {
        tls->last->next = waiting;
    } else {
        tls->first = waiting;
    }
    tls->last = waiting;
    for (unsigned i = 0; i < n; i++) {
        tls->n_waiting_bytes += bufs[i].len;
    }
    int rc = conn->n_encrypted_writes == 0 ? send_waiting(conn) : 0;
    if (rc != 0) { /* then it was the only one */
        tls->first = NULL;
        free(waiting);
    }
    return rc;
}

void net_tls_cancel_writes(struct net_conn *conn) {
    struct net_tls_write *list = conn->tls ? conn->tls->first : NULL;
    if (list) {
        conn->tls->first = NULL;
        complete_writes(list, UV_ECANCELED);
    }
}
