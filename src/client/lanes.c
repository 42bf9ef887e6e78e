/* Running calls: which connection a call gets, what each waits for, and deadlines. */
#include "client/lanes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { MAX_EVENTS = 64 };

/* ---- lanes ----------------------------------------------------------------------------------- */

static enum status add_lane(sluice_client *client, struct error *err) {
    struct client_lane *lane = calloc(1, sizeof(*lane));
    if (!lane) {
        return error_no_memory(err, "a connection");
    }
    lane->fd = -1;
    enum status status = client_new(&client->options, &lane->client, err);
    if (status != ST_OK) {
        free(lane);
        return status;
    }
    client->n_lanes++;
    TAILQ_INSERT_HEAD(&client->idle, lane, link);
    return ST_OK;
}

enum status client_lanes_init(sluice_client *client, struct error *err) {
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (client->epoll_fd < 0) {
        return error_set(err, ST_NO_MEMORY, "no descriptor for a client: %s", strerror(errno));
    }
    return add_lane(client, err);
}

static void free_lanes(struct client_lanes *lanes) {
    while (!TAILQ_EMPTY(lanes)) {
        struct client_lane *lane = TAILQ_FIRST(lanes);
        TAILQ_REMOVE(lanes, lane, link);
        client_free(lane->client);
        free(lane);
    }
}

void client_lanes_fini(sluice_client *client) {
    assert(TAILQ_EMPTY(&client->busy));
    free_lanes(&client->idle);
    if (client->epoll_fd >= 0) {
        close(client->epoll_fd);
    }
}

/* ---- the epoll set --------------------------------------------------------------------------- */

/* Registers what the lane waits for: an idle connection for its end, and for bytes without a
 * request. A closed socket has left the set by itself; one that only time can help (the backlog of
 * a Unix socket is full) must not be in it: epoll would report it all the time. */
static void update_events(const sluice_client *client, struct client_lane *lane) {
    struct client_waiting waiting;
    uint64_t n_sockets;
    int socket = client_socket(lane->client, &n_sockets);
    client_wait(lane->client, &waiting);
    int fd = lane->call ? waiting.fd : socket;
    uint32_t events = (waiting.read ? EPOLLIN : 0u) | (waiting.write ? EPOLLOUT : 0u);
    events = lane->call ? events : (uint32_t)EPOLLIN;
    bool is_in = lane->fd >= 0 && lane->fd == socket && lane->n_sockets == n_sockets;
    struct epoll_event event = {.events = events, .data.ptr = lane};
    lane->n_sockets = n_sockets;
    if (fd < 0 && is_in) {
        (void)epoll_ctl(client->epoll_fd, EPOLL_CTL_DEL, socket, &event);
    }
    if (fd < 0 || (is_in && events == lane->events)) {
        lane->fd = fd;
        return;
    }
    lane->events = events;
    lane->fd = fd;
    if (epoll_ctl(client->epoll_fd, is_in ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
        lane->fd = -1; /* out of memory: tried again with the next step, at the latest deadline */
    }
}

/* The lane has no call any more. Connected lanes are taken first. */
static void release_lane(sluice_client *client, struct client_lane *lane) {
    uint64_t n_sockets;
    lane->call->lane = NULL;
    lane->call = NULL;
    TAILQ_REMOVE(&client->busy, lane, link);
    if (client_socket(lane->client, &n_sockets) >= 0) {
        TAILQ_INSERT_HEAD(&client->idle, lane, link);
    } else {
        TAILQ_INSERT_TAIL(&client->idle, lane, link);
    }
    update_events(client, lane);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The call is done, and its caller is to be told. */
static void add_done(sluice_call *call) {
    TAILQ_INSERT_TAIL(&call->client->done, call, order);
    call->in_done = true;
    call->client->n_finished++;
}

static enum status begin_exchange(sluice_call *call, const struct client *client,
                                  struct error *err) {
    if (client_url(client)->protocol == CLIENT_HTTP) {
        http_session_set_block(client_http(client), &call->block);
        http_session_begin(client_http(client), call->message);
        return ST_OK;
    }
    mip_session_set_block(client_mip(client), &call->block);
    if (!call->mip_request.items) {
        mip_session_begin_ping(client_mip(client));
        return ST_OK;
    }
    return mip_session_begin_infer(client_mip(client), &call->mip_request, call->mip_bytes,
                                   call->mip_buffer, call->mip_buffer_bytes, err);
}

static void fail_queued(sluice_call *call, const struct error *err) {
    TAILQ_REMOVE(&call->client->queue, call, order);
    client_call_fail(call, err);
    add_done(call);
}

/* Gives lanes to queued calls, in order, while there are any. */
static void assign_calls(sluice_client *client) {
    sluice_call *call;
    while ((call = TAILQ_FIRST(&client->queue))) {
        struct error err = {0};
        enum status status = ST_OK;
        if (TAILQ_EMPTY(&client->idle) && client->n_lanes < client->max_lanes) {
            status = add_lane(client, &err);
            if (status != ST_OK) {
                client->max_lanes = client->n_lanes; /* there is no memory for more */
            }
        }
        struct client_lane *lane = TAILQ_FIRST(&client->idle);
        if (!lane && (status == ST_OK || client->n_lanes > 0)) {
            return; /* a lane that becomes idle continues */
        }
        if (lane) {
            status = begin_exchange(call, lane->client, &err);
        }
        if (status != ST_OK) {
            fail_queued(call, &err);
            continue;
        }
        TAILQ_REMOVE(&client->queue, call, order);
        TAILQ_REMOVE(&client->idle, lane, link);
        TAILQ_INSERT_TAIL(&client->busy, lane, link);
        lane->call = call;
        call->lane = lane;
        call->state = CLIENT_CALL_RUNNING;
        client_start_since(lane->client, call->started_ns, call->timeout_ns);
    }
}

static void step_lane(sluice_client *client, struct client_lane *lane) {
    struct error err = {0};
    bool done = false;
    enum status status = client_step(lane->client, &done, &err);
    if (status == ST_OK && !done) {
        update_events(client, lane);
        return;
    }
    sluice_call *call = lane->call;
    client_call_finish(call, status, &err);
    release_lane(client, lane);
    add_done(call);
}

void client_lanes_cancel(sluice_call *call) {
    if (call->lane) {
        client_cancel(call->lane->client);
        release_lane(call->client, call->lane);
    } else {
        TAILQ_REMOVE(&call->client->queue, call, order);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t deadline_of(const sluice_call *call) {
    uint64_t deadline;
    return __builtin_add_overflow(call->started_ns, call->timeout_ns, &deadline) ? UINT64_MAX
                                                                                 : deadline;
}

static void expire_queued(sluice_client *client, uint64_t now) {
    sluice_call *call, *next;
    for (call = TAILQ_FIRST(&client->queue); call; call = next) {
        next = TAILQ_NEXT(call, order);
        if (deadline_of(call) <= now) {
            struct error err = {0};
            (void)error_set(&err, ST_DEADLINE_EXCEEDED,
                            "timed out waiting for one of %zu connections after %.3g s",
                            client->max_lanes, (double)call->timeout_ns / 1e9);
            fail_queued(call, &err);
        }
    }
}

/* Starts calls and steps the lanes whose time has come. A lane that becomes idle starts the next
 * call. */
static void run_due(sluice_client *client) {
    uint64_t now = client_now_ns();
    struct client_lane *lane, *next;
    assign_calls(client);
    for (lane = TAILQ_FIRST(&client->busy); lane; lane = next) {
        next = TAILQ_NEXT(lane, link);
        if (client_due_ns(lane->client) <= now) {
            step_lane(client, lane);
        }
    }
    expire_queued(client, now);
}

static uint64_t next_due_ns(const sluice_client *client) {
    uint64_t due = UINT64_MAX;
    const struct client_lane *lane;
    const sluice_call *call;
    TAILQ_FOREACH(lane, &client->busy, link) {
        uint64_t lane_due = client_due_ns(lane->client);
        due = lane_due < due ? lane_due : due;
    }
    if (!TAILQ_EMPTY(&client->queue) && !TAILQ_EMPTY(&client->idle)) {
        return 0;
    }
    if (!TAILQ_EMPTY(&client->queue) && client->n_lanes < client->max_lanes) {
        return 0;
    }
    TAILQ_FOREACH(call, &client->queue, order) {
        uint64_t deadline = deadline_of(call);
        due = deadline < due ? deadline : due;
    }
    return due;
}

uint64_t sluice_client_timeout_ns(const sluice_client *client) {
    uint64_t due = next_due_ns(client), now = due == UINT64_MAX || due == 0 ? 0 : client_now_ns();
    if (due == UINT64_MAX) {
        return UINT64_MAX;
    }
    return due > now ? due - now : 0;
}

int sluice_client_fd(const sluice_client *client) {
    return client->epoll_fd;
}

/* ---- running --------------------------------------------------------------------------------- */

static int wait_ms(const sluice_client *client, uint64_t timeout_ns) {
    enum { HOUR_MS = 3600000, NS_PER_MS = 1000000 };
    if (timeout_ns > 0) {
        uint64_t due_ns = sluice_client_timeout_ns(client);
        timeout_ns = due_ns < timeout_ns ? due_ns : timeout_ns;
    }
    uint64_t ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS > 0);
    return ms > HOUR_MS ? HOUR_MS : (int)ms; /* waking up early is harmless */
}

/* Tells the callers of the calls that are done. A callback may start and free calls. */
static void run_callbacks(sluice_client *client) {
    sluice_call *call = TAILQ_FIRST(&client->done);
    while (call) {
        if (!call->on_done) { /* for sluice_client_next_done */
            call = TAILQ_NEXT(call, order);
            continue;
        }
        TAILQ_REMOVE(&client->done, call, order);
        call->in_done = false;
        call->on_done(call, call->user);
        call = TAILQ_FIRST(&client->done); /* the callback may have changed the list */
    }
}

void client_lanes_run(sluice_client *client, uint64_t timeout_ns) {
    struct epoll_event events[MAX_EVENTS];
    uint64_t n_finished = client->n_finished;
    run_due(client);
    bool waits = client->n_finished == n_finished;
    int n =
        epoll_wait(client->epoll_fd, events, MAX_EVENTS, waits ? wait_ms(client, timeout_ns) : 0);
    for (int i = 0; i < n; i++) {
        struct client_lane *lane = events[i].data.ptr;
        if (lane->call) {
            step_lane(client, lane);
        } else {
            client_check_idle(lane->client);
            update_events(client, lane);
        }
    }
    if (n > 0) {
        run_due(client);
    }
    run_callbacks(client);
}
