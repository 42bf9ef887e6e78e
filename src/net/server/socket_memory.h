/* What the kernel holds for connections: input that the server does not read, and output that the
 * client does not take. Control groups of version 2 count it as memory of the process. A connection
 * is measured when it was sent SOCKET_STEP_BYTES since it was last measured, and again and again as
 * long as its socket holds something or it is not read. Less than SOCKET_MIN_BYTES do not count.
 *
 * Back pressure: while the memory for clients is used up, no further request is taken from a
 * connection of HTTP/1.1 or MIP whose socket holds output (conn_socket_is_held), and the kernel
 * takes less of a response before it can send it (conn_socket_limit_output).
 *
 * Input: what clients send before the server reads any of it waits in the kernel, of all of them as
 * much as their windows have space for, and nothing can take it back. So receive buffers begin
 * small where the memory for clients is little (server_receive_bytes), and grow with what is read.
 *
 * Thread: the worker's. */
#ifndef SLUICE_NET_SERVER_SOCKET_MEMORY_H
#define SLUICE_NET_SERVER_SOCKET_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "net/transport/budget.h"
#include "net/transport/memory_account.h"

struct net_conn;
struct server_worker;

enum {
    SOCKET_STEP_BYTES = 4096,
    SOCKET_MIN_BYTES = 4096,
    SOCKET_BURST_BYTES = 32768, /* within an event: of requests that were sent at once */
    /* Of a response, that the kernel takes before it can send them: without a limit it takes
     * megabytes for each client that does not read. At least so much, and this part of the memory
     * for clients: the more, the fewer writes and wake-ups a large response takes. */
    SOCKET_UNSENT_MIN_BYTES = 131072,
    SOCKET_UNSENT_MAX_BYTES = 1 << 20,
    SOCKET_UNSENT_SHARE = 8192,
    SOCKET_UNSENT_TIGHT_BYTES = 8192, /* while the memory for clients is used up */
    /* A receive buffer at first: at least so much, and this part of the memory for clients. Then
     * --max-connections of them take 0.6 of it, at 512 MiB or more. */
    SOCKET_RECEIVE_MIN_BYTES = 16384,
    SOCKET_RECEIVE_MAX_BYTES = 1 << 20,
    SOCKET_RECEIVE_SHARE = 32768,
};

/* Of a connection. Zeroed memory is the initial state. */
struct conn_socket {
    TAILQ_ENTRY(net_conn) link; /* in the worker's list of those that are measured again */
    uint64_t n_written;         /* net_conn.n_written, when it was last measured */
    uint64_t n_out_bytes;       /* of what was measured, output */
    bool listed;
    bool held;       /* it is resumed when it need not be held any more */
    bool is_limited; /* to SOCKET_UNSENT_TIGHT_BYTES */
};

/* Of a worker. */
struct server_sockets {
    TAILQ_HEAD(, net_conn) conns; /* the one that was measured longest ago first */
    uint64_t due_ns;              /* UINT64_MAX: the list is empty */
};

void server_sockets_init(struct server_sockets *sockets);
/* Returns: the size of a connection's receive buffer at first, as the kernel counts; 0: its
 * default. */
static inline int server_receive_bytes(const struct net_budget *budget) {
    uint64_t n_bytes = budget->memory / SOCKET_RECEIVE_SHARE;
    if (budget->memory == 0 || n_bytes > SOCKET_RECEIVE_MAX_BYTES) {
        return 0;
    }
    return n_bytes > SOCKET_RECEIVE_MIN_BYTES ? (int)n_bytes : SOCKET_RECEIVE_MIN_BYTES;
}
/* Returns: how much of a response the kernel takes before it can send it. */
static inline int server_unsent_bytes(const struct net_budget *budget) {
    uint64_t n_bytes = budget->memory / SOCKET_UNSENT_SHARE;
    return budget->memory == 0 || n_bytes > SOCKET_UNSENT_MAX_BYTES ? SOCKET_UNSENT_MAX_BYTES
           : n_bytes > SOCKET_UNSENT_MIN_BYTES                      ? (int)n_bytes
                                                                    : SOCKET_UNSENT_MIN_BYTES;
}
/* `n_written`: net_conn.n_written. Returns: whether it was sent so much since it was measured, or
 * holds something. */
static inline bool conn_socket_is_due(const struct conn_socket *socket, uint64_t n_written,
                                      const struct memory_account *account) {
    return n_written - socket->n_written >= SOCKET_STEP_BYTES ||
           memory_conn_socket_bytes(account) > 0;
}
/* After an event of a connection that is due or is not read: measures it, if it is due. */
void conn_socket_update(struct net_conn *conn);
/* Returns: whether nothing of conn_socket_is_held can apply: it holds no output, and was not sent
 * much since that was measured. */
static inline bool conn_socket_is_free(const struct conn_socket *socket, uint64_t n_written) {
    return socket->n_out_bytes == 0 && n_written - socket->n_written < SOCKET_BURST_BYTES;
}
/* Between two requests of an event: measures a connection that was sent much meanwhile. Returns:
 * whether the next request has to wait; the connection is resumed then. */
bool conn_socket_is_held(struct net_conn *conn);
/* The connection waits for a turn to be read: it is measured, if it still waits then. */
void conn_socket_wait(struct net_conn *conn);
/* Before a large response is sent. */
void conn_socket_limit_output(struct net_conn *conn);
/* The connection is closed. */
void conn_socket_end(struct net_conn *conn);
/* Measures the connections of the list that are due. Returns: when to call it next; UINT64_MAX:
 * never. */
uint64_t server_sockets_on_timer(struct server_worker *server_worker, uint64_t now_ns);

#endif
