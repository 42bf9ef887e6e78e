/* The limits of connections (--max-connections) and of their memory (half of --client-memory):
 * which connection is closed to make room for another one. Each connection is in the budget's table
 * (net/transport/conn_table.h), where its worker notes whether it is idle, or waits for its client.
 * Another thread chooses one there, and its worker looks again before it closes it. Internal to
 * net/server. */
#ifndef SLUICE_NET_SERVER_CONN_LIMIT_H
#define SLUICE_NET_SERVER_CONN_LIMIT_H

#include "net/server/conn.h"
#include "net/server/server.h"

/* ---- for new connections; thread: the acceptor's --------------------------------------------- */

/* Descriptors and memory of those whose place was taken are in use until their workers close them;
 * of those that wait for their workers to open them, it is not known yet which are idle. Returns:
 * whether another one may be accepted now; false: soon. */
bool net_conn_limit_may_accept(const struct net_budget *budget);
/* Takes a place and the memory of a new connection of `host` (address_peer_hash); if need be others
 * are closed for it. While others are being opened, one is accepted beyond the limits. Owns, if it
 * is NET_ADMITTED: net_budget_remove_conn and net_budget_give_conn of its conn_memory_bytes. */
enum net_admission net_conn_limit_admit(struct net_server *server, uint64_t host);
/* The connection moves to a server whose protocol takes `n_bytes` more: they are taken in any case.
 * Returns: whether there is a place for it, if need be that of others, which are closed. Thread:
 * the connection's worker. */
bool net_conn_limit_extend(struct net_conn *conn, uint64_t n_bytes) SLUICE_MUST_USE;
/* The process is out of descriptors: closes some connections. */
void net_conn_limit_free_descriptors(struct net_server *server);

/* ---- for memory ------------------------------------------------------------------------------ */

/* memory_conn_add, of a kind that counts in the half for connections; if need be others are closed
 * for it. Thread: the connection's worker. */
bool net_conn_take_memory(struct net_conn *conn, enum memory_conn_kind kind,
                          uint64_t n_bytes) SLUICE_MUST_USE;
/* Closes connections that are idle for a second, of peers that have more than 16. Returns: how
 * many, at most `most`. Thread: any. */
size_t net_conn_limit_close_idle(struct net_budget *budget, size_t most);

/* ---- for the worker of a connection ---------------------------------------------------------- */

/* Its requests wait for the client from now on. */
static inline void net_conn_set_waiting_now(struct net_conn *conn) {
    uint64_t now_ms = uv_now(worker_loop(conn->server_worker->worker));
    conn_entry_set_waiting(&conn->entry, now_ms * 1000000);
}
/* Runs conn->msg of a connection that another one has taken the place of: closes it, if it still
 * waits for its client. */
void net_conn_evict(struct net_conn *conn);

#endif
