/* The client as a whole: parses its target, runs deferred work, opens connections as calls need
 * them with a backoff after failures, and stops. */
#include "net/client/grpc/grpc_client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/compiler.h"
#include "core/base/num.h"
#include "core/event/clock.h"
#include "net/client/grpc/conn.h"

static void grpc_client_target_fini(struct grpc_client_target *target);

static enum status target_error(struct str text, const char *why, struct error *err) {
    return error_set(
        err, ST_BAD_CONFIG,
        "\"%.*s\" is not a server address: %s. Expected HOST:PORT (127.0.0.1:8001), [IPV6]:PORT, "
        "or unix:/PATH",
        STR_ARG(text), why);
}

static char *dup_text(struct str text) {
    char *copy = malloc(text.len + 1);
    if (copy) {
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
    }
    return copy;
}

static enum status set_parts(struct grpc_client_target *out, struct str text, struct str host,
                             struct error *err) {
    out->text = dup_text(text);
    out->host = dup_text(host);
    if (!out->text || !out->host) {
        grpc_client_target_fini(out);
        return error_no_memory(err, "a gRPC client");
    }
    return ST_OK;
}

/* Letters, digits, dots, hyphens. Underscores are not allowed in host names, but are common in
 * those of containers. */
static bool is_name(struct str host) {
    bool good = host.len > 0 && host.len <= 253;
    for (size_t i = 0; i < host.len && good; i++) {
        char c = host.ptr[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_';
    }
    return good;
}

/* Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: grpc_client_target_fini. */
static enum status grpc_client_target_parse(struct str text, struct grpc_client_target *out,
                                            struct error *err) {
    *out = (struct grpc_client_target){0};
    if (str_starts_with(text, STR("unix:"))) {
        enum status st = address_parse(text, &out->address, err);
        return st == ST_OK ? set_parts(out, text, STR("localhost"), err) : st;
    }
    size_t colon = text.len;
    while (colon > 0 && text.ptr[colon - 1] != ':') {
        colon--;
    }
    struct str host = str_make(text.ptr, colon > 0 ? colon - 1 : 0);
    uint64_t port;
    if (colon == 0) {
        return target_error(text, "the port is missing", err);
    }
    if (!num_parse_u64(str_make(text.ptr + colon, text.len - colon), &port) || port == 0 ||
        port > UINT16_MAX) {
        return target_error(text, "the port is a number from 1 to 65535", err);
    }
    snprintf(out->port, sizeof(out->port), "%u", (unsigned)port);
    bool numeric = host.len > 0 && !str_eq_nocase(host, STR("localhost")) &&
                   address_parse(text, &out->address, NULL) == ST_OK;
    if (!numeric) {
        out->address.len = 0;
        if (!is_name(host)) {
            return target_error(text, "the host is neither a name nor an address", err);
        }
    }
    bool bracketed = host.len >= 2 && host.ptr[0] == '[';
    return set_parts(out, text, bracketed ? str_make(host.ptr + 1, host.len - 2) : host, err);
}

static void grpc_client_target_fini(struct grpc_client_target *target) {
    free(target->text);
    free(target->host);
    target->text = target->host = NULL;
}

enum { MAX_ROUNDS = 4 }; /* in one deferred run, so that other work on the loop is not delayed */

/* ---- connections ----------------------------------------------------------------------------- */

/* Returns: the connection on which a call can start, or NULL. Others finish their calls. */
static struct grpc_client_conn *conn_for_call(const struct grpc_client *client) {
    struct grpc_client_conn *conn;
    LIST_FOREACH(conn, &client->conns, link) {
        if (conn->phase == GRPC_CLIENT_CONNECTED &&
            grpc_client_session_can_start_call(&conn->session)) {
            return conn;
        }
    }
    return NULL;
}

static void begin_calls(struct grpc_client *client) {
    struct grpc_client_conn *conn;
    while (!TAILQ_EMPTY(&client->core.waiting) && (conn = conn_for_call(client))) {
        conn->used = true;
        (void)grpc_client_stream_start(TAILQ_FIRST(&client->core.waiting), &conn->session);
    }
}

/* Returns: whether a connection can start calls, now or once connected. */
static bool has_usable_conn(const struct grpc_client *client) {
    const struct grpc_client_conn *conn;
    LIST_FOREACH(conn, &client->conns, link) {
        if (grpc_client_conn_is_usable(conn)) {
            return true;
        }
    }
    return false;
}

void grpc_client_start_backoff(struct grpc_client *client, const struct error *err) {
    const struct grpc_client_limits *limits = &client->core.limits;
    uint64_t now_ns = clock_now_ns();
    client->why = *err;
    if (now_ns < client->next_attempt_ns) {
        return; /* the address before this one failed and counted already */
    }
    client->n_failures++;
    client->next_attempt_ns = now_ns + backoff_wait(limits->initial_backoff_ns,
                                                    limits->max_backoff_ns, client->n_failures);
}

/* Opens a connection for waiting calls if there is none; not during the backoff, in which calls
 * fail with the reason of the last failure. */
static void connect_as_needed(struct grpc_client *client) {
    if (TAILQ_EMPTY(&client->core.waiting) || has_usable_conn(client)) {
        return;
    }
    if (clock_now_ns() < client->next_attempt_ns || !grpc_client_conn_new(client)) {
        grpc_client_core_fail_waiting(&client->core, &client->why, false);
    }
}

static void free_closed_conns(struct grpc_client *client) {
    struct grpc_client_conn *conn = LIST_FIRST(&client->conns), *next;
    for (; conn; conn = next) {
        next = LIST_NEXT(conn, link);
        if (conn->session.call_answered) {
            client->n_failures = 0;
        }
        if (grpc_client_conn_can_free(conn)) {
            LIST_REMOVE(conn, link);
            grpc_client_conn_free(conn);
        }
    }
}

/* ---- closing --------------------------------------------------------------------------------- */

static void run_done(struct worker_msg *msg) {
    const struct grpc_client *client = CONTAINER_OF(msg, struct grpc_client, done_msg);
    client->done(client->user);
}

/* Ends all calls, sends GOAWAY as far as the sockets take it at once, and closes the
 * connections. */
static void stop_all(struct grpc_client *client) {
    struct error err;
    error_set(&err, ST_CANCELLED, "the client was stopped");
    grpc_client_core_fail_waiting(&client->core, &err, true);
    struct grpc_client_conn *conn;
    LIST_FOREACH(conn, &client->conns, link) {
        if (conn->phase != GRPC_CLIENT_CONNECTED) {
            continue;
        }
        struct grpc_client_stream *stream;
        TAILQ_FOREACH(stream, &conn->session.streams, link) {
            grpc_client_stream_set_status(stream, -1, &err);
        }
        grpc_client_session_send_goaway(&conn->session);
        grpc_client_conn_flush(conn);
    }
    LIST_FOREACH(conn, &client->conns, link) {
        grpc_client_conn_close(conn, &err);
    }
}

static void close_if_done(struct grpc_client *client) {
    if (LIST_EMPTY(&client->conns) && client->core.n_alive == 0) {
        timer_stop(worker_timers(client->worker), &client->timer);
        client->open = false;
        worker_post(client->worker, &client->done_msg);
    }
}

/* ---- deferred work --------------------------------------------------------------------------- */

static void run_round(struct grpc_client *client) {
    if (client->stopping) {
        stop_all(client);
    } else {
        begin_calls(client);
        connect_as_needed(client);
    }
    struct grpc_client_conn *conn;
    LIST_FOREACH(conn, &client->conns, link) {
        grpc_client_conn_flush(conn);
    }
    grpc_client_core_sweep(&client->core);
    free_closed_conns(client);
}

static void update_timer(struct grpc_client *client) {
    uint64_t due_ns = grpc_client_core_next_timer_ns(&client->core);
    uint64_t trim_ns = body_pool_trim(&client->core.pool, clock_now_ns());
    if (!TAILQ_EMPTY(&client->core.waiting) && client->next_attempt_ns < due_ns &&
        client->why.status != ST_OK && !has_usable_conn(client)) {
        due_ns = client->next_attempt_ns;
    }
    due_ns = trim_ns < due_ns ? trim_ns : due_ns;
    if (due_ns == UINT64_MAX) {
        timer_stop(worker_timers(client->worker), &client->timer);
    } else {
        timer_start(worker_timers(client->worker), &client->timer, due_ns);
    }
}

static bool run_deferred(struct deferred_task *task) {
    struct grpc_client *client = CONTAINER_OF(task, struct grpc_client, deferred);
    for (unsigned n = 0; client->has_deferred && n < MAX_ROUNDS; n++) {
        client->has_deferred = false;
        run_round(client);
    }
    if (client->stopping) {
        close_if_done(client);
    } else {
        update_timer(client);
    }
    return client->has_deferred && client->open;
}

void grpc_client_schedule_deferred(struct grpc_client *client) {
    client->has_deferred = true;
    if (client->open) {
        loop_iteration_defer(worker_loop_iteration(client->worker), &client->deferred);
    }
}

static void schedule_deferred(struct grpc_client_core *core) {
    grpc_client_schedule_deferred(CONTAINER_OF(core, struct grpc_client, core));
}

static void on_timeout(struct timer *timer) {
    struct grpc_client *client = CONTAINER_OF(timer, struct grpc_client, timer);
    grpc_client_core_run_timers(&client->core, clock_now_ns());
    grpc_client_schedule_deferred(client);
}

/* ---- creating and freeing a client ----------------------------------------------------------- */

static enum status make_core(struct grpc_client *client, const struct grpc_client_options *options,
                             struct error *err) {
    struct str authority = options->authority;
    if (authority.len == 0) {
        bool is_unix = address_is_unix(&client->target.address);
        authority = is_unix ? STR("localhost") : options->target;
    }
    client->authority = malloc(authority.len + 1);
    if (!client->authority) {
        return error_no_memory(err, "a gRPC client");
    }
    memcpy(client->authority, authority.ptr, authority.len);
    client->core.limits = options->limits;
    client->core.is_tls = options->tls != NULL;
    client->core.authority = str_make(client->authority, authority.len);
    client->core.arenas = worker_arenas(client->worker);
    client->core.schedule_deferred = schedule_deferred;
    return grpc_client_core_init(&client->core, err);
}

enum status grpc_client_new(const struct grpc_client_options *options, struct grpc_client **out,
                            struct error *err) {
    struct grpc_client *client = calloc(1, sizeof(*client));
    *out = NULL;
    if (!client) {
        return error_no_memory(err, "a gRPC client");
    }
    client->worker = options->worker;
    client->deferred = (struct deferred_task){.run = run_deferred, .runs_last = true};
    client->timer.on_expire = on_timeout;
    client->done_msg.run = run_done;
    client->tls = options->tls;
    enum status st = grpc_client_target_parse(options->target, &client->target, err);
    if (st == ST_OK && client->tls) {
        st = grpc_client_tls_check(client->tls, err);
    }
    if (st == ST_OK) {
        st = make_core(client, options, err);
    }
    if (st != ST_OK) {
        grpc_client_free(client);
        return st;
    }
    client->open = true;
    *out = client;
    return ST_OK;
}

void grpc_client_stop(struct grpc_client *client, void (*done)(void *user), void *user) {
    assert(!client->stopping);
    client->stopping = true;
    client->done = done;
    client->user = user;
    grpc_client_schedule_deferred(client);
}

void grpc_client_free(struct grpc_client *client) {
    if (!client) {
        return;
    }
    assert(!client->open && LIST_EMPTY(&client->conns));
    if (client->core.schedule_deferred) {
        grpc_client_core_fini(&client->core);
    }
    grpc_client_target_fini(&client->target);
    free(client->authority);
    free(client);
}

enum status grpc_client_start_call(struct grpc_client *client,
                                   const struct grpc_client_call_options *options,
                                   struct grpc_client_call **out, struct error *err) {
    struct grpc_client_stream *stream;
    enum status st = grpc_client_stream_new(&client->core, options, &stream, err);
    if (st == ST_OK) {
        *out = &stream->call;
    }
    return st;
}

size_t grpc_client_n_connected(const struct grpc_client *client) {
    size_t n = 0;
    const struct grpc_client_conn *conn;
    LIST_FOREACH(conn, &client->conns, link) {
        n += conn->phase == GRPC_CLIENT_CONNECTED && grpc_client_conn_is_usable(conn);
    }
    return n;
}
