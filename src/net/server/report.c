/* The connection report, collected from all workers. */
#include "net/server/report.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/base/plural.h"
#include "core/event/clock.h"
#include "net/server/conn.h"
#include "net/server/server.h"
#include "net/server/shutdown.h"

enum { NAME_BYTES = 80 };

void net_report_add_name(struct buf *out, struct str name) {
    size_t n = name.len < NAME_BYTES ? name.len : NAME_BYTES;
    for (size_t i = 0; i < n; i++) {
        char c = name.ptr[i];
        buf_add_char(out, c >= 0x20 && c < 0x7f ? c : '?');
    }
    if (n < name.len) {
        buf_add_str(out, STR("..."));
    }
}

enum { WORKER_REPORT_MAX_BYTES = 65536 /* of one worker and server */ };

/* The part of one worker and server. */
struct worker_report {
    struct worker_msg msg;
    struct net_report *report;
    struct server_worker *server_worker;
    struct arena *arena; /* for this part only: it is written on one thread and read on another */
    struct buf text;
    uint64_t n_body_bytes;
    struct net_memory_holder holders[NET_REPORT_HOLDERS];
    size_t n_holders;
    atomic_bool complete; /* the worker has written it */
};

struct net_report {
    struct net_report_server servers[NET_REPORT_SERVERS];
    size_t n_servers, n_worker_reports;
    struct worker_report *worker_reports; /* ordered by server, then worker */
    atomic_size_t n_left;
    struct worker *reply_worker;
    struct worker_msg msg;            /* all parts are complete */
    struct timer timer;               /* of memory reports; the reply does not wait longer */
    bool replied;                     /* freed when all parts are complete */
    struct buf *out;                  /* NULL: no text */
    struct net_memory_report *memory; /* &own_memory, or the caller's */
    struct net_memory_report own_memory;
    void (*done)(void *user);
    void *user;
};

/* ---- on each worker -------------------------------------------------------------------------- */

static void print_conn(struct buf *out, const struct net_conn *conn) {
    static const char *const phases[] = {
        [NET_OPEN] = "", [NET_LINGER] = "closing: ", [NET_CLOSED] = "closed: "};
    char peer[ADDRESS_TEXT_BYTES];
    buf_printf(out, "    %s to %s%s: %s", net_conn_peer(conn, peer), conn->listen_endpoint->text,
               conn->tls ? " over TLS" : "", phases[conn->phase]);
    if (conn->admission != NET_ADMITTED) {
        buf_add_str(out, STR("refused, over the connection limit"));
    } else if (conn->protocol->describe && conn->phase == NET_OPEN) {
        conn->protocol->describe(conn, out);
    }
    if (conn->timeout.armed) {
        uint64_t now_ns = clock_now_ns();
        uint64_t left_ns = clock_between_ns(now_ns, conn->timeout.due_ns);
        buf_printf(out, "; timeout in %.3g s", (double)left_ns / 1e9);
    }
    buf_add_char(out, '\n');
}

static void print_server_worker(struct worker_report *worker_report) {
    size_t n = 0;
    for (const struct net_conn *conn = LIST_FIRST(&worker_report->server_worker->conns);
         conn && n < NET_REPORT_CONNECTIONS && worker_report->text.len < WORKER_REPORT_MAX_BYTES;
         conn = LIST_NEXT(conn, link)) {
        print_conn(&worker_report->text, conn);
        n++;
    }
    if (n < worker_report->server_worker->n_conns) {
        buf_printf(&worker_report->text, "    and %zu more\n",
                   worker_report->server_worker->n_conns - n);
    }
}

static uint64_t held_bytes(const struct net_memory_holder *holder) {
    return holder->n_response_bytes + holder->n_call_bytes + holder->n_conn_bytes +
           holder->n_body_bytes + holder->n_page_bytes;
}

/* Inserts a holder, if it is one of the largest. Returns: its place, or NULL. */
static struct net_memory_holder *insert_holder(struct net_memory_holder *holders, size_t *n,
                                               const struct net_memory_holder *holder) {
    size_t at = *n;
    while (at > 0 && held_bytes(&holders[at - 1]) < held_bytes(holder)) {
        at--;
    }
    if (at == NET_REPORT_HOLDERS) {
        return NULL;
    }
    *n += *n < NET_REPORT_HOLDERS;
    memmove(&holders[at + 1], &holders[at], (*n - at - 1) * sizeof(*holders));
    holders[at] = *holder;
    return &holders[at];
}

static void collect_conn(struct worker_report *worker_report, struct net_conn *conn,
                         uint64_t now_ns) {
    struct net_memory_holder holder = {
        .n_response_bytes = memory_account_held_bytes(conn->account),
        .n_call_bytes = memory_account_call_bytes(conn->account),
        .n_conn_bytes = memory_account_conn_bytes(conn->account),
        .n_page_bytes = memory_account_page_bytes(conn->account),
        .n_body_bytes = conn->protocol->body_bytes ? conn->protocol->body_bytes(conn) : 0};
    uint64_t since_ns = net_conn_unread_since(conn, now_ns);
    worker_report->n_body_bytes += holder.n_body_bytes;
    if (held_bytes(&holder) == 0) {
        return;
    }
    struct net_memory_holder *place =
        insert_holder(worker_report->holders, &worker_report->n_holders, &holder);
    if (place) {
        net_conn_peer(conn, place->peer);
        place->unread = since_ns > 0;
        place->unread_ns = since_ns > 0 && since_ns < now_ns ? now_ns - since_ns : 0;
    }
}

static void run_worker_report(struct worker_msg *msg) {
    struct worker_report *worker_report = CONTAINER_OF(msg, struct worker_report, msg);
    struct net_report *report = worker_report->report;
    uint64_t now_ns = clock_now_ns();
    struct net_conn *conn;
    LIST_FOREACH(conn, &worker_report->server_worker->conns, link) {
        if (conn->phase != NET_CLOSED) {
            collect_conn(worker_report, conn, now_ns);
        }
    }
    if (report->out) {
        print_server_worker(worker_report);
    }
    atomic_store_explicit(&worker_report->complete, true, memory_order_release);
    if (atomic_fetch_sub(&report->n_left, 1) == 1) {
        worker_post(report->reply_worker, &report->msg);
    }
}

/* ---- on the reply worker --------------------------------------------------------------------- */

static void report_free(struct net_report *report) {
    for (size_t i = 0; i < report->n_worker_reports; i++) {
        arena_free(report->worker_reports[i].arena);
    }
    free(report->worker_reports);
    free(report);
}

static uint64_t load(const _Atomic uint64_t *value) {
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void merge_server(struct net_memory_report *memory, const struct net_report_server *server,
                         const struct worker_report *worker_reports) {
    struct net_memory_server *out = &memory->servers[memory->n_servers++];
    *out = (struct net_memory_server){.name = server->name};
    for (size_t i = 0; i < server->server->n_workers; i++) {
        const struct worker_report *part = &worker_reports[i];
        const struct memory_quota *quota = &part->server_worker->memory.quota;
        uint64_t n_bytes = load(&quota->n_bytes), n_call_bytes = load(&quota->n_overhead_bytes);
        out->n_response_bytes += n_bytes > n_call_bytes ? n_bytes - n_call_bytes : 0;
        out->n_call_bytes += n_call_bytes;
        for (size_t j = 0; j < MEMORY_CONN_KINDS; j++) {
            out->n_conn_bytes += load(&quota->n_conn_bytes[j]);
        }
        out->n_waiting += load(&quota->n_waiting_for_budget) + load(&quota->n_waiting_for_account);
        if (!atomic_load_explicit(&part->complete, memory_order_acquire)) {
            memory->n_busy_workers++;
            continue;
        }
        out->n_body_bytes += part->n_body_bytes;
        for (size_t j = 0; j < part->n_holders; j++) {
            struct net_memory_holder *place =
                insert_holder(memory->holders, &memory->n_holders, &part->holders[j]);
            if (place) {
                place->server = server->name;
            }
        }
    }
    memory->n_response_bytes += out->n_response_bytes;
    memory->n_call_bytes += out->n_call_bytes;
    memory->n_conn_bytes += out->n_conn_bytes;
}

/* Only of servers with the first one's budget: the admin listener has its own. */
static void merge_memory(struct net_report *report) {
    const struct net_budget *budget = report->servers[0].server->budget;
    const struct worker_report *worker_reports = report->worker_reports;
    *report->memory = (struct net_memory_report){.limit = budget->memory,
                                                 .n_body_bytes = load(&budget->n_body_bytes),
                                                 .n_request_bytes = load(&budget->n_arena_bytes),
                                                 .n_page_bytes = load(&budget->n_page_bytes)};
    int64_t n_cache_bytes = metric_read(METRIC_RESPONSE_CACHE_BYTES);
    report->memory->n_cache_bytes = n_cache_bytes > 0 ? (uint64_t)n_cache_bytes : 0;
    for (size_t i = 0; i < report->n_servers; i++) {
        const struct net_report_server *server = &report->servers[i];
        if (server->server->budget == budget) {
            merge_server(report->memory, server, worker_reports);
        }
        worker_reports += server->server->n_workers;
    }
}

static void add_bytes(struct buf *out, uint64_t n_bytes, const char *where) {
    if (n_bytes > 0) {
        buf_printf(out, ", %llu in %s", (unsigned long long)n_bytes, where);
    }
}

static void print_memory(struct buf *out, const struct net_memory_report *memory) {
    buf_printf(out, "memory of clients: %llu bytes in responses, %llu in bodies",
               (unsigned long long)memory->n_response_bytes,
               (unsigned long long)memory->n_body_bytes);
    add_bytes(out, memory->n_request_bytes, "requests");
    add_bytes(out, memory->n_page_bytes, "pages");
    add_bytes(out, memory->n_call_bytes, "open calls");
    add_bytes(out, memory->n_conn_bytes, "connections");
    add_bytes(out, memory->n_cache_bytes, "the response cache");
    if (memory->limit > 0) {
        buf_printf(out, ", of %llu", (unsigned long long)memory->limit);
    }
    buf_add_char(out, '\n');
    for (size_t i = 0; i < memory->n_servers; i++) {
        const struct net_memory_server *server = &memory->servers[i];
        buf_printf(out, "  %s: %llu in responses, %llu in bodies", server->name,
                   (unsigned long long)server->n_response_bytes,
                   (unsigned long long)server->n_body_bytes);
        add_bytes(out, server->n_call_bytes, "open calls");
        add_bytes(out, server->n_conn_bytes, "connections");
        buf_printf(out, ", %llu waiting for memory\n", (unsigned long long)server->n_waiting);
    }
    for (size_t i = 0; i < memory->n_holders; i++) {
        const struct net_memory_holder *holder = &memory->holders[i];
        buf_printf(out, "  held by %s, %s: %llu in responses, %llu in bodies", holder->peer,
                   holder->server, (unsigned long long)holder->n_response_bytes,
                   (unsigned long long)holder->n_body_bytes);
        add_bytes(out, holder->n_call_bytes, "open calls");
        add_bytes(out, holder->n_conn_bytes, "TLS and buffers");
        add_bytes(out, holder->n_page_bytes, "pages");
        if (holder->unread) {
            buf_printf(out, ", nothing read for %.3g s", (double)holder->unread_ns / 1e9);
        }
        buf_add_char(out, '\n');
    }
}

static void print_server(struct net_report *report, const struct net_report_server *server,
                         const struct worker_report *worker_report) {
    const struct net_server *net = server->server;
    uint64_t n_requests = net_server_in_flight(net);
    buf_printf(report->out, "%s: %llu request%s in flight\n", server->name,
               (unsigned long long)n_requests, plural_s(n_requests));
    for (size_t i = 0; i < net->n_workers; i++, worker_report++) {
        /* The worker alone knows how many are open now; the assigned count is shared. */
        uint64_t n = atomic_load_explicit(&worker_report->server_worker->n_assigned_conns,
                                          memory_order_relaxed);
        buf_printf(report->out, "  worker %zu: %llu connection%s\n", i, (unsigned long long)n,
                   plural_s(n));
        buf_add_str(report->out, worker_report->text.failed ? STR("    out of memory\n")
                                                            : buf_str(&worker_report->text));
    }
}

static void reply(struct net_report *report) {
    const struct worker_report *worker_report = report->worker_reports;
    report->replied = true;
    merge_memory(report);
    if (report->out) {
        print_memory(report->out, report->memory);
    }
    for (size_t i = 0; report->out && i < report->n_servers; i++) {
        print_server(report, &report->servers[i], worker_report);
        worker_report += report->servers[i].server->n_workers;
    }
    report->done(report->user);
}

static void run_done(struct worker_msg *msg) {
    struct net_report *report = CONTAINER_OF(msg, struct net_report, msg);
    timer_stop(worker_timers(report->reply_worker), &report->timer);
    if (!report->replied) {
        reply(report);
    }
    report_free(report);
}

static void on_wait_over(struct timer *timer) {
    reply(CONTAINER_OF(timer, struct net_report, timer));
}

static bool make_worker_reports(struct net_report *report) {
    size_t total = 0, n = 0;
    for (size_t i = 0; i < report->n_servers; i++) {
        total += report->servers[i].server->n_workers;
    }
    report->worker_reports = calloc(total, sizeof(*report->worker_reports));
    report->n_worker_reports = report->worker_reports ? total : 0;
    bool allocated = report->worker_reports != NULL;
    for (size_t i = 0; allocated && i < report->n_servers; i++) {
        struct net_server *server = report->servers[i].server;
        for (size_t j = 0; allocated && j < server->n_workers; j++, n++) {
            struct worker_report *worker_report = &report->worker_reports[n];
            *worker_report = (struct worker_report){.msg = {.run = run_worker_report},
                                                    .report = report,
                                                    .server_worker = &server->workers[j],
                                                    .arena = arena_new(NULL, 0)};
            allocated = worker_report->arena != NULL;
            if (allocated) {
                buf_init(&worker_report->text, worker_report->arena, 0);
            }
        }
    }
    return allocated;
}

static enum status start(const struct net_report_server *servers, size_t n,
                         struct worker *reply_worker, struct buf *out,
                         struct net_memory_report *memory, void (*done)(void *user), void *user,
                         struct error *err) {
    struct net_report *report = calloc(1, sizeof(*report));
    assert(n >= 1 && n <= NET_REPORT_SERVERS);
    if (report) {
        report->n_servers = n;
        memcpy(report->servers, servers, n * sizeof(*servers));
    }
    if (!report || !make_worker_reports(report)) {
        if (report) {
            report_free(report);
        }
        return error_no_memory(err, "a report");
    }
    report->reply_worker = reply_worker;
    report->msg = (struct worker_msg){.run = run_done};
    report->timer = (struct timer){.on_expire = on_wait_over};
    report->out = out;
    report->memory = memory ? memory : &report->own_memory;
    report->done = done;
    report->user = user;
    atomic_init(&report->n_left, report->n_worker_reports);
    if (memory) {
        timer_start(worker_timers(reply_worker), &report->timer,
                    clock_now_ns() + NET_MEMORY_REPORT_WAIT_NS);
    }
    for (size_t i = 0, n_worker_reports = report->n_worker_reports; i < n_worker_reports; i++) {
        worker_post(report->worker_reports[i].server_worker->worker,
                    &report->worker_reports[i].msg);
    }
    return ST_OK;
}

enum status net_report_start(const struct net_report_server *servers, size_t n,
                             struct worker *reply_worker, struct buf *out, void (*done)(void *user),
                             void *user, struct error *err) {
    return start(servers, n, reply_worker, out, NULL, done, user, err);
}

enum status net_memory_report_start(const struct net_report_server *servers, size_t n,
                                    struct worker *reply_worker, struct net_memory_report *memory,
                                    void (*done)(void *user), void *user, struct error *err) {
    return start(servers, n, reply_worker, NULL, memory, done, user, err);
}
