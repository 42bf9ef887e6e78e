/* The server as a whole: assigns connections to workers, drains and stops; and what one worker has
 * of it: its connections, timer and buffers.
 *
 * Work that must not run inside a callback (freeing calls, closing the worker) is deferred to the
 * end of the event-loop iteration. */
#include "net/server/server.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "net/server/call.h"
#include "net/server/conn_limit.h"
#include "net/server/listener.h"
#include "net/server/tls/conn.h"

static void on_one_closed(struct net_server *server);

static const uint64_t LINGER_NS = 5000000000u; /* between two reads of dropped input */
static const uint64_t CLIENT_CHECK_NS = 100000000u;
static const uint64_t REFUSAL_GAP_NS = 1000000000u;

/* ---- deferred work --------------------------------------------------------------------------- */

void server_worker_free_ended_calls(struct server_worker *server_worker) {
    while (server_worker->ended) {
        struct net_call *call = server_worker->ended;
        server_worker->ended = call->ended_next;
        arena_free(call->reply_arena);
        arena_free(call->arena); /* the call lives in it */
    }
}

void server_worker_schedule_resume(struct server_worker *server_worker, struct net_conn *conn) {
    loop_iteration_wait(worker_loop_iteration(server_worker->worker), &conn->turn);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct server_worker *server_worker = handle->data;
    worker_post(server_worker->server->acceptor, &server_worker->done_msg);
}

static void run_done(struct worker_msg *msg) {
    struct server_worker *server_worker = CONTAINER_OF(msg, struct server_worker, done_msg);
    on_one_closed(server_worker->server);
}

/* Closes the worker's timer once it has no connections and no calls. */
static void close_if_done(struct server_worker *server_worker) {
    if (!server_worker->stopping || server_worker->done || server_worker->n_conns > 0 ||
        server_worker->n_calls > 0) {
        return;
    }
    server_worker->done = true;
    if (!server_worker->started) {
        worker_post(server_worker->server->acceptor, &server_worker->done_msg);
        return;
    }
    loop_iteration_end_wait(worker_loop_iteration(server_worker->worker),
                            &server_worker->client_timers_turn);
    body_pool_fini(&server_worker->pool);
    uv_close((uv_handle_t *)&server_worker->timer, on_timer_closed);
}

static bool is_idle(const struct net_conn *conn) {
    return conn->phase == NET_OPEN && !net_conn_is_sending(conn) && !conn->pending_input &&
           !net_tls_in_handshake(conn) && conn->protocol->is_idle(conn);
}

static void drain_conn(struct net_conn *conn) {
    if (conn->phase == NET_OPEN && conn->protocol->on_drain) {
        conn->protocol->on_drain(conn);
        net_conn_update_io(conn);
    } else if (is_idle(conn) && !net_conn_has_unread(conn)) {
        net_conn_close(conn);
    }
}

static void end_drain(struct server_worker *server_worker) {
    if (server_worker->drains) {
        server_worker->drains = false;
        server_worker->drain_next = NULL;
        loop_iteration_end_wait(worker_loop_iteration(server_worker->worker),
                                &server_worker->drain_turn);
        atomic_fetch_sub_explicit(&server_worker->server->n_telling, 1, memory_order_relaxed);
    }
}

/* Tells the connections that were open when the drain began: as many as fit into the iteration,
 * the others in their turn. Later ones know it (server_worker_is_draining). */
static void run_drain_turn(struct loop_turn *turn) {
    struct server_worker *server_worker = CONTAINER_OF(turn, struct server_worker, drain_turn);
    struct loop_iteration *iteration = worker_loop_iteration(server_worker->worker);
    struct net_conn *conn;
    while ((conn = server_worker->drain_next)) {
        server_worker->drain_next = LIST_NEXT(conn, link);
        drain_conn(conn);
        if (server_worker->drain_next && loop_iteration_is_over(iteration)) {
            loop_iteration_wait(iteration, turn);
            break;
        }
    }
    server_worker_free_ended_calls(server_worker);
    if (!server_worker->drain_next) {
        end_drain(server_worker);
    }
}

static void run_drain(struct worker_msg *msg) {
    struct server_worker *server_worker = CONTAINER_OF(msg, struct server_worker, drain_msg);
    server_worker->drains = true;
    server_worker->drain_next = LIST_FIRST(&server_worker->conns);
    loop_iteration_wait(worker_loop_iteration(server_worker->worker), &server_worker->drain_turn);
}

static void run_stop(struct worker_msg *msg) {
    struct server_worker *server_worker = CONTAINER_OF(msg, struct server_worker, stop_msg);
    server_worker->stopping = true;
    end_drain(server_worker);
    struct net_conn *conn;
    LIST_FOREACH(conn, &server_worker->conns, link) {
        net_conn_close(conn); /* it leaves the list when its handle is closed */
    }
    if (server_worker->started) {
        server_worker_schedule_deferred(server_worker);
    } else {
        close_if_done(server_worker);
    }
}

static bool run_deferred(struct deferred_task *task) {
    struct server_worker *server_worker = CONTAINER_OF(task, struct server_worker, deferred);
    const struct net_protocol *protocol = server_worker->server->protocol;
    bool again = protocol->run_deferred && protocol->run_deferred(server_worker);
    server_worker_free_ended_calls(server_worker);
    close_if_done(server_worker);
    return again && !server_worker->done;
}

void server_worker_schedule_deferred(struct server_worker *server_worker) {
    if (!server_worker->done) {
        loop_iteration_defer(worker_loop_iteration(server_worker->worker),
                             &server_worker->deferred);
    }
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

void server_worker_schedule_timer(struct server_worker *server_worker, uint64_t due_ns) {
    if (due_ns >= server_worker->timer_due_ns || server_worker->done) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t delay_ns = clock_between_ns(now_ns, due_ns);
    server_worker->timer_due_ns = now_ns + delay_ns;
    uv_update_time(worker_loop(server_worker->worker));
    uv_timer_start(&server_worker->timer, on_timer, delay_ns / 1000000 + 1, 0);
}

uint64_t server_worker_set_conn_timer(struct server_worker *server_worker, struct net_conn *conn,
                                      enum net_timeout timeout) {
    if (timeout == NET_TIMEOUT_NONE) {
        timer_list_stop(&server_worker->conn_timers, &conn->timeout);
        return 0;
    }
    uint64_t now_ns = clock_now_ns();
    timer_list_start(&server_worker->conn_timers, &conn->timeout, (uint8_t)timeout, now_ns);
    if (conn->timeout.armed) {
        server_worker_schedule_timer(server_worker, conn->timeout.due_ns);
    }
    return now_ns;
}

void server_worker_start_keepalive(struct server_worker *server_worker, struct net_conn *conn) {
    timer_list_start(&server_worker->conn_timers, &conn->keepalive, NET_TIMEOUT_KEEPALIVE,
                     clock_now_ns());
    if (conn->keepalive.armed) {
        server_worker_schedule_timer(server_worker, conn->keepalive.due_ns);
    }
}

/* Where many connections time out at once, the rest follows in the next iterations. `was_late`: the
 * timer has waited for one more poll. */
static void run_conn_timers(struct server_worker *server_worker, uint64_t now_ns, bool was_late) {
    struct loop_iteration *iteration = worker_loop_iteration(server_worker->worker);
    struct list_timer *due;
    while (timer_list_next_ns(&server_worker->conn_timers) <= now_ns) {
        if (loop_share_is_spent(&iteration->timers, LOOP_TIMERS_NS)) {
            return;
        }
        due = timer_list_pop_due(&server_worker->conn_timers, now_ns);
        if (due->timer_class == NET_TIMEOUT_KEEPALIVE) {
            net_conn_probe(CONTAINER_OF(due, struct net_conn, keepalive));
        } else if (was_late && due->timer_class == NET_TIMEOUT_WRITE) {
            net_conn_update_io(CONTAINER_OF(due, struct net_conn, timeout)); /* starts it again */
        } else {
            net_conn_timed_out(CONTAINER_OF(due, struct net_conn, timeout),
                               (enum net_timeout)due->timer_class);
        }
    }
}

/* Of its connections, and of their calls. */
static void run_client_timers(struct server_worker *server_worker, uint64_t now_ns, bool was_late) {
    run_conn_timers(server_worker, now_ns, was_late);
    if (server_worker->server->protocol->on_timer) {
        server_worker->server->protocol->on_timer(server_worker, now_ns);
    }
    server_worker_schedule_timer(server_worker, timer_list_next_ns(&server_worker->conn_timers));
}

static void run_client_timers_turn(struct loop_turn *turn) {
    struct server_worker *server_worker =
        CONTAINER_OF(turn, struct server_worker, client_timers_turn);
    run_client_timers(server_worker, clock_now_ns(), server_worker->timed_out_late);
    server_worker_free_ended_calls(server_worker);
}

/* Late (timer_is_late), it runs after one more poll of the sockets, which reads what clients have
 * sent. A write then gets its whole timeout again: nothing was written meanwhile. What the
 * connections that wait for a turn have received is read first, too. */
static void on_timer(uv_timer_t *timer) {
    struct server_worker *server_worker = timer->data;
    uint64_t now_ns = clock_now_ns();
    struct loop_iteration *iteration = worker_loop_iteration(server_worker->worker);
    enum late_timer_result late = late_timer_check(&server_worker->late_timer, iteration,
                                                   server_worker->timer_due_ns, now_ns);
    bool was_late = late == TIMER_AFTER_POLL;
    server_worker->timer_due_ns = UINT64_MAX;
    if (late == TIMER_WAITS_FOR_POLL) {
        server_worker_schedule_timer(server_worker, now_ns);
        return;
    }
    if (loop_iteration_n_turns(iteration) > 0) {
        server_worker->timed_out_late = was_late;
        loop_iteration_wait(iteration, &server_worker->client_timers_turn);
    } else {
        run_client_timers(server_worker, now_ns, was_late);
    }
    server_worker_schedule_timer(server_worker, server_memory_on_timer(server_worker, now_ns));
    server_worker_schedule_timer(server_worker, server_sockets_on_timer(server_worker, now_ns));
    server_worker_schedule_timer(server_worker, body_pool_trim(&server_worker->pool, now_ns));
}

/* ---- starting and stopping a worker ---------------------------------------------------------- */

static void server_worker_init(struct server_worker *server_worker, struct net_server *server,
                               struct worker *worker) {
    const struct net_limits *limits = &server->limits;
    *server_worker = (struct server_worker){
        .server = server,
        .worker = worker,
        .timer_due_ns = UINT64_MAX,
        .send_slices = {.run = net_conns_send_slices},
        .deferred = {.run = run_deferred, .runs_last = true},
        .client_timers_turn = {.run = run_client_timers_turn},
        .drain_turn = {.run = run_drain_turn},
        .drain_msg.run = run_drain,
        .stop_msg.run = run_stop,
        .done_msg.run = run_done,
        .conn_timers = {.after_ns = {[NET_TIMEOUT_IDLE] = limits->idle_timeout_ns,
                                     [NET_TIMEOUT_HEAD] = limits->header_timeout_ns,
                                     [NET_TIMEOUT_BODY] = limits->body_timeout_ns,
                                     [NET_TIMEOUT_WRITE] = limits->write_timeout_ns,
                                     [NET_TIMEOUT_LINGER] = LINGER_NS,
                                     [NET_TIMEOUT_CLIENT] = CLIENT_CHECK_NS,
                                     [NET_TIMEOUT_KEEPALIVE] = limits->keepalive_time_ns}},
    };
    timer_list_init(&server_worker->conn_timers);
    server_memory_init(server_worker);
    server_sockets_init(&server_worker->sockets);
}

static void server_worker_fini(struct server_worker *server_worker) {
    assert(server_worker->n_conns == 0 && server_worker->n_calls == 0 && !server_worker->ended);
    server_memory_fini(server_worker);
    free(server_worker->tls);
    free(server_worker->in);
    free(server_worker->out);
}

/* ---- connections ----------------------------------------------------------------------------- */

bool server_worker_start(struct server_worker *server_worker) {
    if (server_worker->started) {
        return true;
    }
    free(server_worker->in);
    free(server_worker->out);
    server_worker->in = malloc(NET_READ_BYTES);
    server_worker->out = malloc(NET_COALESCE_BUFFER_BYTES);
    if (!server_worker->in || !server_worker->out) {
        return false;
    }
    /* Of the body budget, a 16th may stay cached between bodies; it is in no budget. */
    const struct net_server *server = server_worker->server;
    uint64_t kept = server->budget->body_memory / 16 / server->n_workers;
    body_pool_init(&server_worker->pool, kept < SIZE_MAX ? (size_t)kept : SIZE_MAX);
    uv_timer_init(worker_loop(server_worker->worker), &server_worker->timer); /* cannot fail */
    server_worker->timer.data = server_worker;
    server_worker->started = true;
    return true;
}

void server_worker_add_conn(struct server_worker *server_worker, struct net_conn *conn) {
    LIST_INSERT_HEAD(&server_worker->conns, conn, link);
    server_worker->n_conns++;
}

void server_worker_remove_conn(struct server_worker *server_worker, struct net_conn *conn) {
    loop_iteration_end_wait(worker_loop_iteration(server_worker->worker), &conn->turn);
    if (server_worker->drain_next == conn) {
        server_worker->drain_next = LIST_NEXT(conn, link);
    }
    LIST_REMOVE(conn, link);
    server_worker->n_conns--;
}

enum status net_server_init(struct net_server *server, const struct net_server_options *options,
                            struct error *err) {
    assert(options->n_workers > 0);
    struct server_worker *workers = calloc(options->n_workers, sizeof(*workers));
    if (!workers) {
        return error_no_memory(err, "a server");
    }
    *server = (struct net_server){
        .protocol = options->protocol,
        .limits = options->limits,
        .budget = options->budget,
        .acceptor = options->acceptor,
        .workers = workers,
        .n_workers = options->n_workers,
    };
    for (size_t i = 0; i < server->n_workers; i++) {
        server_worker_init(&workers[i], server, options->workers[i]);
    }
    conn_table_init(&server->budget->conns);
    server->budget_user = (struct net_budget_user){.protocol = options->protocol->name,
                                                   .relieve = net_server_relieve,
                                                   .relieve_pages = net_server_relieve_pages,
                                                   .add_use = net_server_add_use};
    net_budget_add_user(server->budget, &server->budget_user);
    return ST_OK;
}

void net_server_fini(struct net_server *server) {
    assert(server->n_listen_endpoints == 0 || (server->stopping && server->n_open == 0));
    net_budget_remove_user(server->budget, &server->budget_user);
    for (size_t i = 0; i < server->n_workers; i++) {
        server_worker_fini(&server->workers[i]);
    }
    for (size_t i = 0; i < server->n_listen_endpoints; i++) {
        free(server->listen_endpoints[i]);
    }
    free(server->workers);
    free(server->listen_endpoints);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Returns: the worker with the fewest connections; round robin among equals. */
static struct server_worker *worker_choose(struct net_server *server) {
    struct server_worker *best = NULL;
    uint64_t best_load = UINT64_MAX;
    assert(server->n_workers > 0);
    for (size_t i = 0; i < server->n_workers; i++) {
        struct server_worker *server_worker =
            &server->workers[(server->next_worker + i) % server->n_workers];
        uint64_t load =
            atomic_load_explicit(&server_worker->n_assigned_conns, memory_order_relaxed);
        if (load < best_load) {
            best = server_worker;
            best_load = load;
        }
    }
    server->next_worker = (server->next_worker + 1) % server->n_workers;
    return best;
}

static void run_open(struct worker_msg *msg) {
    struct net_conn *conn = CONTAINER_OF(msg, struct net_conn, msg);
    struct net_budget *budget = conn->server_worker->server->budget;
    bool is_admitted = conn->admission == NET_ADMITTED;
    net_conn_open(conn);
    if (is_admitted) {
        atomic_fetch_sub_explicit(&budget->n_opening, 1, memory_order_release);
    }
}

/* Returns: NULL when out of memory. */
static struct net_conn *conn_new(const struct listen_endpoint *listen_endpoint) {
    const struct net_protocol *protocol = listen_endpoint->server->protocol;
    struct net_conn *conn = calloc(1, protocol->conn_bytes);
    if (!conn || (listen_endpoint->tls && !net_tls_attach(conn, listen_endpoint->tls))) {
        free(conn);
        return NULL;
    }
    conn->protocol = protocol;
    conn->listen_endpoint = listen_endpoint;
    conn->server_worker = worker_choose(listen_endpoint->server);
    write_queue_init(&conn->writes);
    conn->turn.run = net_conn_run_turn;
    if (protocol->init) {
        protocol->init(conn);
    }
    return conn;
}

/* While so many connections wait for a turn of a worker, further ones wait in the backlog, but for
 * some in each millisecond. */
enum { MAX_WAITING_TURNS = 128, MAX_ACCEPTED_SLOWLY = 4 };

/* What clients have sent and no worker has read yet is in the kernel's buffers, up to 128 KiB for
 * each; of a connection in the backlog it does not count as memory of the process. */
static bool has_many_turns(const struct net_server *server) {
    for (size_t i = 0; i < server->n_workers; i++) {
        if (loop_iteration_n_turns(worker_loop_iteration(server->workers[i].worker)) >
            MAX_WAITING_TURNS) {
            return true;
        }
    }
    return false;
}

/* Returns: whether one more may be accepted in this millisecond, of the few while many turns are
 * waited for: so new ones get one as well where clients always have more to be read. */
static bool may_accept_slowly(struct net_server *server) {
    uint64_t now_ms = clock_now_ns() / 1000000;
    if (now_ms != server->slowly_ms) {
        server->slowly_ms = now_ms;
        server->n_accepted_slowly = 0;
    }
    return server->n_accepted_slowly++ < MAX_ACCEPTED_SLOWLY;
}

static bool may_accept(void *user) {
    const struct listen_endpoint *listen_endpoint = user;
    return net_conn_limit_may_accept(listen_endpoint->server->budget) &&
           (!has_many_turns(listen_endpoint->server) || may_accept_slowly(listen_endpoint->server));
}

static void on_no_descriptors(void *user) {
    net_conn_limit_free_descriptors(((const struct listen_endpoint *)user)->server);
}

/* A gRPC client that got SETTINGS and then GOAWAY connects again at once, and without an error for
 * its calls; one whose connection was closed before waits, longer each time, and fails its calls.
 * So only the first in a second gets the reason. Returns: whether this one does. */
static bool takes_to_refuse(struct net_server *server) {
    struct net_budget *budget = server->budget;
    uint64_t now_ns = clock_now_ns();
    if (atomic_load_explicit(&budget->n_refused, memory_order_relaxed) >=
            net_budget_max_refusals(budget) ||
        (server->protocol->refusal_invites_retry && server->refused_ns > 0 &&
         now_ns - server->refused_ns < REFUSAL_GAP_NS)) {
        return false;
    }
    server->refused_ns = now_ns;
    return true;
}

static void on_accept(void *user, int fd, int family, uint64_t host) {
    const struct listen_endpoint *listen_endpoint = user;
    struct net_server *server = listen_endpoint->server;
    struct net_budget *budget = server->budget;
    enum net_admission admission = net_conn_limit_admit(server, host);
    if (admission != NET_ADMITTED && !takes_to_refuse(server)) {
        close(fd);
        metric_add(METRIC_CONNECTIONS_REFUSED_TOTAL, 1);
        return;
    }
    if (admission != NET_ADMITTED) {
        net_budget_add_refused(budget);
    }
    struct net_conn *conn = conn_new(listen_endpoint);
    if (!conn) {
        close(fd);
        if (admission != NET_ADMITTED) {
            net_budget_remove_refused(budget);
        } else {
            net_budget_remove_conn(budget);
            net_budget_give_conn(budget, server->protocol->conn_memory_bytes);
        }
        return;
    }
    conn->fd = fd;
    conn->is_unix = family == AF_UNIX;
    conn->host = host;
    conn->admission = (uint8_t)admission;
    conn_entry_set_idle(&conn->entry, CONN_BUSY); /* until it is open */
    conn_entry_set_waiting(&conn->entry, CONN_BUSY);
    conn_entry_set_fd(&conn->entry, -1);
    conn_table_add(&budget->conns, &conn->entry, host);
    atomic_fetch_add_explicit(&conn->server_worker->n_assigned_conns, 1, memory_order_relaxed);
    if (conn->server_worker->worker == server->acceptor) {
        net_conn_open(conn);
    } else {
        if (admission == NET_ADMITTED) {
            atomic_fetch_add_explicit(&budget->n_opening, 1, memory_order_relaxed);
        }
        conn->msg.run = run_open;
        worker_post(conn->server_worker->worker, &conn->msg);
    }
}

uint64_t net_server_in_flight(const struct net_server *server) {
    uint64_t n = 0;
    for (size_t i = 0; i < server->n_workers; i++) {
        n += atomic_load_explicit(&server->workers[i].in_flight, memory_order_relaxed);
    }
    bool is_telling = atomic_load_explicit(&server->n_telling, memory_order_relaxed) > 0;
    return n == 0 && is_telling ? 1 : n;
}

/* ---- creating and freeing -------------------------------------------------------------------- */

/* A listener or a worker has closed its last handle. */
static void on_one_closed(struct net_server *server) {
    assert(server->n_open > 0);
    if (--server->n_open == 0 && server->stopping) {
        server->done(server->user);
    }
}

static void on_listener_closed(void *user) {
    on_one_closed(((const struct listen_endpoint *)user)->server);
}

/* Allocates an endpoint and a slot for it. Returns: NULL when out of memory. */
static struct listen_endpoint *listen_endpoint_new(struct net_server *server,
                                                   const struct tls_server *tls, const void *user) {
    size_t n = server->n_listen_endpoints;
    struct listen_endpoint **listen_endpoints =
        realloc(server->listen_endpoints, (n + 1) * sizeof(struct listen_endpoint *));
    if (!listen_endpoints) {
        return NULL;
    }
    server->listen_endpoints = listen_endpoints;
    struct listen_endpoint *listen_endpoint = calloc(1, sizeof(*listen_endpoint));
    if (listen_endpoint) {
        listen_endpoint->server = server;
        listen_endpoint->tls = tls;
        listen_endpoint->user = user;
    }
    return listen_endpoint;
}

/* Says when the memory for connections suffices for fewer than --max-connections. */
static void log_fitting_connections(const struct listen_endpoint *listen_endpoint) {
    const struct net_server *server = listen_endpoint->server;
    const struct net_budget *budget = server->budget;
    uint64_t n_bytes = server->protocol->conn_memory_bytes +
                       (listen_endpoint->tls ? NET_TLS_SESSION_MEMORY_BYTES : 0);
    uint64_t n_fitting = net_budget_conn_limit(budget) / n_bytes;
    n_fitting = n_fitting > NET_BUDGET_FREE_CONNS ? n_fitting : NET_BUDGET_FREE_CONNS;
    if (n_fitting < budget->max_connections) {
        log_event(LOG_INFO, "fewer connections than --max-connections, for half of --client-memory",
                  LOG_CSTR("listener", listen_endpoint->text),
                  LOG_CSTR("protocol", server->protocol->name),
                  LOG_U64("max_connections", budget->max_connections), LOG_U64("used", n_fitting),
                  LOG_U64("bytes_each", n_bytes));
    }
}

enum status net_server_listen(struct net_server *server, const struct address *address,
                              const struct tls_server *tls, const void *user, struct address *bound,
                              struct error *err) {
    struct listen_endpoint *listen_endpoint = listen_endpoint_new(server, tls, user);
    if (!listen_endpoint) {
        return error_no_memory(err, "a listener");
    }
    struct listener_events events = {.on_accept = on_accept,
                                     .may_accept = may_accept,
                                     .on_no_descriptors = on_no_descriptors,
                                     .on_closed = on_listener_closed,
                                     .user = listen_endpoint};
    enum status st = listener_open(worker_loop(server->acceptor), address, &server->limits, &events,
                                   &listen_endpoint->listener, bound, err);
    if (st != ST_OK) {
        free(listen_endpoint);
        return st;
    }
    bool is_tcp = !address_is_unix(bound);
    listen_endpoint->web =
        (struct web_listener){is_tcp, is_tcp && address_is_local(bound), address_port(bound)};
    address_print(bound, listen_endpoint->text);
    log_fitting_connections(listen_endpoint);
    server->listen_endpoints[server->n_listen_endpoints++] = listen_endpoint;
    server->n_open++;
    return ST_OK;
}

void net_server_drain(struct net_server *server) {
    if (atomic_load(&server->draining) || server->stopping) {
        return;
    }
    atomic_store(&server->draining, true);
    for (size_t i = 0; i < server->n_workers; i++) {
        atomic_fetch_add_explicit(&server->n_telling, 1, memory_order_relaxed);
        worker_post(server->workers[i].worker, &server->workers[i].drain_msg);
    }
}

void net_server_stop(struct net_server *server, void (*done)(void *user), void *user) {
    if (server->stopping) {
        return;
    }
    server->stopping = true;
    server->done = done;
    server->user = user;
    server->n_open += server->n_workers;
    for (size_t i = 0; i < server->n_listen_endpoints; i++) {
        listener_close(server->listen_endpoints[i]->listener);
    }
    for (size_t i = 0; i < server->n_workers; i++) {
        worker_post(server->workers[i].worker, &server->workers[i].stop_msg);
    }
}
