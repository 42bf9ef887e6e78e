/* The loop's step: start calls, expire queued ones, wait, handle events, tell the callers. */
#include "client/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/channel.h"
#include "client/lanes.h"
#include "client/stream.h"
#include "core/base/compiler.h"
#include "core/event/clock.h"

enum { MAX_EVENTS = 64 };

enum status client_loop_init(sluice_client *client, struct error *err) {
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (client->epoll_fd < 0) {
        return error_set(err, ST_NO_MEMORY, "no descriptor for a client: %s", strerror(errno));
    }
    return client->url.protocol == CLIENT_GRPC ? client_channel_new(client, &client->channel, err)
                                               : client_lanes_init(client, err);
}

void client_loop_fini(sluice_client *client) {
    client_lanes_fini(client);
    client_channel_free(client->channel);
    timer_heap_fini(&client->timers);
    if (client->epoll_fd >= 0) {
        close(client->epoll_fd);
    }
}

/* ---- sockets --------------------------------------------------------------------------------- */

void client_watch_set(struct client_watch *watch, int epoll_fd, const struct client_watched *wanted,
                      void *ptr) {
    int fd = wanted->is_out ? -1 : wanted->socket;
    bool is_in =
        watch->fd >= 0 && watch->fd == wanted->socket && watch->n_sockets == wanted->n_sockets;
    struct epoll_event event = {.events = wanted->events, .data.ptr = ptr};
    watch->n_sockets = wanted->n_sockets;
    if (fd < 0 && is_in) {
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, wanted->socket, &event);
    }
    if (fd < 0 || (is_in && wanted->events == watch->events)) {
        watch->fd = fd;
        return;
    }
    watch->events = wanted->events;
    watch->fd = fd;
    if (epoll_ctl(epoll_fd, is_in ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
        watch->fd = -1;
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

enum status client_loop_put_back(sluice_call *call, struct error *err) {
    sluice_client *client = call->client;
    /* the channel takes all calls in its next step, and has their deadlines */
    if (!client->channel &&
        !timer_heap_set(&client->timers, &call->timer, client_call_deadline_ns(call))) {
        return error_no_memory(err, "a call");
    }
    call->state = CLIENT_CALL_QUEUED;
    TAILQ_INSERT_TAIL(&client->queue, call, order);
    return ST_OK;
}

enum status client_loop_start(sluice_call *call, struct error *err) {
    enum status status = client_loop_put_back(call, err);
    call->client->n_under_way += status == ST_OK;
    return status;
}

static void unqueue(sluice_call *call) {
    TAILQ_REMOVE(&call->client->queue, call, order);
    timer_heap_remove(&call->client->timers, &call->timer);
}

sluice_call *client_loop_take(sluice_client *client) {
    sluice_call *call = TAILQ_FIRST(&client->queue);
    unqueue(call);
    call->state = CLIENT_CALL_RUNNING;
    return call;
}

void client_loop_add_done(sluice_call *call) {
    sluice_client *client = call->client;
    TAILQ_INSERT_TAIL(&client->done, call, order);
    call->in_done = true;
    client->n_under_way--;
    client->n_finished++;
}

static const char *retry_after(const sluice_call *call) {
    sluice_header header = {.size = sizeof(header)};
    return sluice_call_find_header(call, "Retry-After", &header) == SLUICE_CLIENT_OK ? header.value
                                                                                     : NULL;
}

/* Pauses a failed call if its policy allows. */
static bool pause_call(sluice_call *call) {
    sluice_client *client = call->client;
    const struct client_failure failure = {.error = &call->error,
                                           .may_have_run = call->sent,
                                           .retry_after = retry_after(call),
                                           .n_attempts = call->n_attempts,
                                           .now_ns = clock_now_ns(),
                                           .deadline_ns = client_call_deadline_ns(call)};
    uint64_t at_ns = client_retry_at_ns(call->retry, &client->retry_budget, &failure);
    if (at_ns == UINT64_MAX || !timer_heap_set(&client->timers, &call->timer, at_ns)) {
        return false;
    }
    client_call_reset(call);
    call->state = CLIENT_CALL_PAUSED;
    return true;
}

void client_loop_end(sluice_call *call) {
    call->n_attempts++;
    if (call->state == CLIENT_CALL_DONE) {
        client_retry_budget_give(&call->client->retry_budget);
    } else if (pause_call(call)) {
        return;
    }
    client_loop_add_done(call);
}

void client_loop_cancel(sluice_call *call) {
    sluice_client *client = call->client;
    if (call->state == CLIENT_CALL_QUEUED) {
        unqueue(call);
    } else if (call->state == CLIENT_CALL_PAUSED) {
        timer_heap_remove(&client->timers, &call->timer);
    } else if (client->channel) {
        client_channel_cancel(call);
    } else {
        client_lanes_cancel(call);
    }
    client->n_under_way--;
}

/* Queued calls are over, paused ones are tried again. */
static void run_timers(sluice_client *client, uint64_t now) {
    struct timer_node *due;
    while ((due = timer_heap_pop_due(&client->timers, now))) {
        struct error err = {0};
        sluice_call *call = CONTAINER_OF(due, sluice_call, timer);
        if (call->state == CLIENT_CALL_QUEUED) {
            unqueue(call);
            (void)error_set(&err, ST_DEADLINE_EXCEEDED,
                            "timed out waiting for one of %zu connections after %.3g s",
                            client->max_lanes, (double)call->timeout_ns / 1e9);
            client_call_fail(call, &err);
            client_loop_add_done(call);
        } else if (client_loop_put_back(call, &err) != ST_OK) {
            client_call_fail(call, &err);
            client_loop_add_done(call);
        }
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static void run_due(sluice_client *client) {
    uint64_t now = clock_now_ns();
    if (client->channel) {
        client_channel_run(client->channel);
    } else {
        client_lanes_run(client, now);
    }
    run_timers(client, now);
}

static uint64_t next_due_ns(const sluice_client *client) {
    uint64_t queued = timer_heap_next_ns(&client->timers);
    uint64_t other =
        client->channel ? client_channel_due_ns(client->channel) : client_lanes_due_ns(client);
    return queued < other ? queued : other;
}

uint64_t sluice_client_timeout_ns(const sluice_client *client) {
    uint64_t due = next_due_ns(client), now = due == UINT64_MAX || due == 0 ? 0 : clock_now_ns();
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

void client_loop_flush(sluice_client *client) {
    client->resolving.may_block = false;
    run_due(client);
    client_stream_run_callbacks(client);
    run_callbacks(client);
}

void client_loop_run(sluice_client *client, uint64_t timeout_ns) {
    struct epoll_event events[MAX_EVENTS];
    uint64_t n_finished = client->n_finished;
    client->resolving.may_block = timeout_ns > 0;
    if (timeout_ns > 0) { /* before it waits */
        run_due(client);
    }
    bool waits = timeout_ns > 0 && client->n_finished == n_finished;
    int n =
        epoll_wait(client->epoll_fd, events, MAX_EVENTS, waits ? wait_ms(client, timeout_ns) : 0);
    for (int i = 0; i < n; i++) {
        if (client->channel) {
            client_channel_on_event(events[i].data.ptr);
        } else {
            client_lanes_on_event(client, events[i].data.ptr);
        }
    }
    if (n > 0 || timeout_ns == 0) {
        run_due(client);
    }
    client_stream_run_callbacks(client);
    run_callbacks(client);
}
