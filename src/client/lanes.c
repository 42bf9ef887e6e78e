/* The lanes of a client: which call each gets, and what each waits for. */
#include "client/lanes.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "client/loop.h"
#include "client/stream.h"

/* ---- lanes ----------------------------------------------------------------------------------- */

static enum status add_lane(sluice_client *client, struct error *err) {
    struct client_lane *lane = calloc(1, sizeof(*lane));
    if (!lane) {
        return error_no_memory(err, "a connection");
    }
    lane->watch.fd = -1;
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
    return add_lane(client, err);
}

void client_lanes_fini(sluice_client *client) {
    assert(TAILQ_EMPTY(&client->busy));
    while (!TAILQ_EMPTY(&client->idle)) {
        struct client_lane *lane = TAILQ_FIRST(&client->idle);
        TAILQ_REMOVE(&client->idle, lane, link);
        client_free(lane->client);
        free(lane);
    }
}

/* Registers what the lane waits for: an idle connection for its end, and for bytes without a
 * request. */
static void update_watch(const sluice_client *client, struct client_lane *lane) {
    struct client_waiting waiting;
    struct client_watched wanted = {.events = EPOLLIN};
    wanted.socket = client_socket(lane->client, &wanted.n_sockets);
    if (lane->call) {
        client_wait(lane->client, &waiting);
        wanted.is_out = waiting.fd < 0 || (!waiting.read && !waiting.write);
        wanted.events = (waiting.read ? EPOLLIN : 0u) | (waiting.write ? EPOLLOUT : 0u);
    }
    client_watch_set(&lane->watch, client->epoll_fd, &wanted, lane);
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
    update_watch(client, lane);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static enum status begin_exchange(sluice_call *call, const struct client *client,
                                  struct error *err) {
    if (client_url(client)->protocol == CLIENT_HTTP) {
        http_session_set_block(client_http(client), &call->block);
        http_session_begin(client_http(client), call->message);
        if (call->kind->next) {
            http_session_set_streams(client_http(client));
        }
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

/* Gives the first queued call to the lane. */
static void begin_call(sluice_client *client, struct client_lane *lane) {
    struct error err = {0};
    sluice_call *call = client_loop_take(client);
    if (begin_exchange(call, lane->client, &err) != ST_OK) {
        client_call_fail(call, &err);
        client_loop_add_done(call);
        return;
    }
    TAILQ_REMOVE(&client->idle, lane, link);
    TAILQ_INSERT_TAIL(&client->busy, lane, link);
    lane->call = call;
    call->lane = lane;
    client_start_since(lane->client, call->started_ns, call->timeout_ns);
}

/* Gives lanes to queued calls, in order, while there are any. */
static void assign_calls(sluice_client *client) {
    while (!TAILQ_EMPTY(&client->queue)) {
        struct error err = {0};
        if (TAILQ_EMPTY(&client->idle) && client->n_lanes < client->max_lanes &&
            add_lane(client, &err) != ST_OK) {
            client->max_lanes = client->n_lanes; /* there is no memory for more */
        }
        if (TAILQ_EMPTY(&client->idle)) {
            return; /* a lane that becomes idle continues */
        }
        begin_call(client, TAILQ_FIRST(&client->idle));
    }
}

/* The step of a call with several answers was `status` and `done`. Returns: what it is with
 * them. */
static enum status step_stream(sluice_call *call, enum status status, bool done,
                               struct error *err) {
    if (status != ST_OK) { /* what has come before is good */
        (void)!client_stream_on_end(call, NULL);
        return status;
    }
    if (done) {
        return client_stream_on_end(call, err);
    }
    status = client_stream_on_body(call, err);
    if (status != ST_OK) {
        client_cancel(call->lane->client);
    }
    return status;
}

static void step_lane(sluice_client *client, struct client_lane *lane) {
    struct error err = {0};
    bool done = false;
    sluice_call *call = lane->call;
    enum status status = client_step(lane->client, &done, &err);
    if (call->kind->next) {
        status = step_stream(call, status, done, &err);
    }
    if (status == ST_OK && !done) {
        update_watch(client, lane);
        return;
    }
    call->phase = client_phase(lane->client);
    call->sent = client_has_sent(lane->client);
    client_call_finish(call, status, &err);
    release_lane(client, lane);
    client_loop_end(call);
}

void client_lanes_cancel(sluice_call *call) {
    struct client_lane *lane = call->lane;
    call->sent = client_has_sent(lane->client);
    client_cancel(lane->client);
    release_lane(call->client, lane);
}

/* ---- running --------------------------------------------------------------------------------- */

/* A lane that becomes idle starts the next call in the next step, which is due at once. */
void client_lanes_run(sluice_client *client, uint64_t now_ns) {
    struct client_lane *lane, *next;
    assign_calls(client);
    for (lane = TAILQ_FIRST(&client->busy); lane; lane = next) {
        next = TAILQ_NEXT(lane, link);
        if (client_due_ns(lane->client) <= now_ns) {
            step_lane(client, lane);
        }
    }
}

void client_lanes_on_event(sluice_client *client, struct client_lane *lane) {
    if (lane->call) {
        step_lane(client, lane);
    } else {
        client_check_idle(lane->client);
        update_watch(client, lane);
    }
}

uint64_t client_lanes_due_ns(const sluice_client *client) {
    uint64_t due = UINT64_MAX;
    const struct client_lane *lane;
    bool has_capacity = !TAILQ_EMPTY(&client->idle) || client->n_lanes < client->max_lanes;
    if (!TAILQ_EMPTY(&client->queue) && has_capacity) {
        return 0;
    }
    TAILQ_FOREACH(lane, &client->busy, link) {
        uint64_t lane_due = client_due_ns(lane->client);
        due = lane_due < due ? lane_due : due;
    }
    return due;
}
