/* Asking workers what their connections do, and putting the answers together. */
#include "net/server/report.h"

#include <assert.h>
#include <stdlib.h>

#include "core/event/clock.h"
#include "net/server/server.h"

enum { PART_BYTES = 65536 /* of one worker and server, at most */ };

/* What one worker is asked about one server. */
struct part {
    struct worker_msg msg;
    struct net_report *report;
    struct net_shard *shard;
    struct arena *arena; /* of this part only: it is written on one thread and read on another */
    struct buf text;
};

struct net_report {
    struct net_report_server servers[NET_REPORT_SERVERS];
    size_t n_servers, n_parts;
    struct part *parts; /* server by server, shard by shard */
    atomic_size_t n_left;
    struct worker *back;
    struct worker_msg msg;
    struct buf *out;
    void (*done)(void *cookie);
    void *cookie;
};

/* ---- on each worker -------------------------------------------------------------------------- */

static void print_conn(struct buf *out, const struct net_conn *conn) {
    static const char *const phases[] = {
        [NET_OPEN] = "", [NET_LINGER] = "ends: ", [NET_CLOSED] = "is closed: "};
    char peer[ADDRESS_TEXT_BYTES];
    buf_printf(out, "    %s to %s%s: %s", net_conn_peer(conn, peer), conn->entrance->text,
               conn->tls ? " over TLS" : "", phases[conn->phase]);
    if (conn->refused) {
        buf_add_str(out, STR("is refused, one too many"));
    } else if (conn->protocol->describe && conn->phase == NET_OPEN) {
        conn->protocol->describe(conn, out);
    }
    if (conn->timeout.armed) {
        uint64_t now_ns = clock_now_ns();
        uint64_t left_ns = conn->timeout.due_ns > now_ns ? conn->timeout.due_ns - now_ns : 0;
        buf_printf(out, "; %.3g s until it is given up", (double)left_ns / 1e9);
    }
    buf_add_char(out, '\n');
}

static void print_shard(struct part *part) {
    size_t n = 0;
    for (const struct net_conn *conn = part->shard->conns;
         conn && n < NET_REPORT_CONNECTIONS && part->text.len < PART_BYTES; conn = conn->next) {
        print_conn(&part->text, conn);
        n++;
    }
    if (n < part->shard->n_conns) {
        buf_printf(&part->text, "    and %zu more\n", part->shard->n_conns - n);
    }
}

static void run_part(struct worker_msg *msg) {
    struct part *part = (struct part *)(void *)((char *)msg - offsetof(struct part, msg));
    struct net_report *report = part->report;
    print_shard(part);
    if (atomic_fetch_sub(&report->n_left, 1) == 1) {
        worker_post(report->back, &report->msg);
    }
}

/* ---- where it was asked ---------------------------------------------------------------------- */

static void report_free(struct net_report *report) {
    for (size_t i = 0; i < report->n_parts; i++) {
        arena_free(report->parts[i].arena);
    }
    free(report->parts);
    free(report);
}

static void print_server(struct net_report *report, const struct net_report_server *server,
                         const struct part *part) {
    const struct net_server *net = server->server;
    buf_printf(report->out, "%s: %llu requests in flight\n", server->name,
               (unsigned long long)net_server_in_flight(net));
    for (size_t i = 0; i < net->n_shards; i++, part++) {
        /* How many there are now is the worker's to know; how many were given to it is for all. */
        uint64_t n = atomic_load_explicit(&part->shard->load, memory_order_relaxed);
        buf_printf(report->out, "  worker %zu: %llu connections\n", i, (unsigned long long)n);
        buf_add_str(report->out,
                    part->text.failed ? STR("    out of memory\n") : buf_str(&part->text));
    }
}

static void run_done(struct worker_msg *msg) {
    struct net_report *report =
        (struct net_report *)(void *)((char *)msg - offsetof(struct net_report, msg));
    const struct part *part = report->parts;
    void (*done)(void *) = report->done;
    void *cookie = report->cookie;
    for (size_t i = 0; i < report->n_servers; i++) {
        print_server(report, &report->servers[i], part);
        part += report->servers[i].server->n_shards;
    }
    report_free(report);
    done(cookie);
}

static bool make_parts(struct net_report *report) {
    size_t total = 0, n = 0;
    for (size_t i = 0; i < report->n_servers; i++) {
        total += report->servers[i].server->n_shards;
    }
    report->parts = calloc(total, sizeof(*report->parts));
    report->n_parts = report->parts ? total : 0;
    bool room = report->parts != NULL;
    for (size_t i = 0; room && i < report->n_servers; i++) {
        struct net_server *server = report->servers[i].server;
        for (size_t j = 0; room && j < server->n_shards; j++, n++) {
            struct part *part = &report->parts[n];
            *part = (struct part){.msg = {.run = run_part},
                                  .report = report,
                                  .shard = &server->shards[j],
                                  .arena = arena_new(NULL, 0)};
            room = part->arena != NULL;
            if (room) {
                buf_init(&part->text, part->arena, 0);
            }
        }
    }
    return room;
}

enum status net_report_start(const struct net_report_server *servers, size_t n, struct worker *back,
                             struct buf *out, void (*done)(void *cookie), void *cookie,
                             struct error *err) {
    struct net_report *report = calloc(1, sizeof(*report));
    assert(n >= 1 && n <= NET_REPORT_SERVERS);
    if (report) {
        report->n_servers = n;
        memcpy(report->servers, servers, n * sizeof(*servers));
    }
    if (!report || !make_parts(report)) {
        if (report) {
            report_free(report);
        }
        return error_set(err, ST_NO_MEMORY, "out of memory for a report");
    }
    report->back = back;
    report->msg = (struct worker_msg){.run = run_done};
    report->out = out;
    report->done = done;
    report->cookie = cookie;
    atomic_init(&report->n_left, report->n_parts);
    for (size_t i = 0, n_parts = report->n_parts; i < n_parts; i++) {
        worker_post(report->parts[i].shard->worker, &report->parts[i].msg);
    }
    return ST_OK;
}
