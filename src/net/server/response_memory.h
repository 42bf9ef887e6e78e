/* The memory of a worker's responses: its quota of the budget, and the closing of connections that
 * do not read their responses while requests wait for memory. Internal to net/server.
 *
 * Thread: the worker's, unless stated otherwise. */
#ifndef SLUICE_NET_SERVER_RESPONSE_MEMORY_H
#define SLUICE_NET_SERVER_RESPONSE_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/event/loop_iteration.h"
#include "core/event/worker.h"
#include "core/os/log_limit.h"
#include "net/transport/memory_account.h"

struct net_conn;
struct net_server;
struct server_worker;

/* A message to a worker that it is to close connections. */
struct relief {
    struct worker_msg msg;
    atomic_bool posted; /* it is on its way */
};

/* Embedded in struct server_worker. */
struct server_memory {
    struct memory_quota quota;
    struct deferred_task task;  /* grants what waits, at the end of the event-loop iteration */
    uint64_t due_ns;            /* of memory_quota_run; UINT64_MAX: nothing waits */
    struct relief slow_readers; /* another worker needs memory */
    struct relief pages;        /* a page does not fit */
    struct log_limit log;
};

/* Embedded in struct net_conn: how its client reads, observed while memory is short, and by
 * reports. */
struct conn_reading {
    uint64_t n_taken;     /* when observed first, or last found reading */
    uint64_t since_ns;    /* 0: not observed */
    uint64_t observed_ns; /* last */
};

void server_memory_init(struct server_worker *server_worker);
void server_memory_fini(struct server_worker *server_worker);
/* Runs what is due. Returns: when to call it next. */
uint64_t server_memory_on_timer(struct server_worker *server_worker, uint64_t now_ns);
/* For net_budget_user.relieve, of a server: tells all its workers. Thread: any. */
void net_server_relieve(struct net_budget_user *user);
/* For net_budget_user.relieve_pages. Thread: any. */
void net_server_relieve_pages(struct net_budget_user *user);
/* For net_budget_user.add_use. Thread: any. */
void net_server_add_use(const struct net_budget_user *user, struct net_budget_use *use);
/* Notes how far the client has read. Returns: since when nothing was read of what waits for it; 0:
 * nothing waits. Thread: the worker's. */
uint64_t net_conn_unread_since(struct net_conn *conn, uint64_t now_ns);

#endif
