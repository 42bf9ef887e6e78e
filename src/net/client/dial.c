/* A TCP connection attempt with a timeout. The first event (connected, failed, timed out) reports
 * the result; then the handle closes. */
#include "net/client/dial.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/transport/address.h"

struct dial {
    uv_tcp_t tcp; /* first: a handle is cast to its dial */
    uv_connect_t connect;
    struct timer timer;
    struct worker *worker;
    void (*done)(void *user, const struct dial_result *result);
    void *user;
};

bool dial_error_is_local(int number) {
    switch (number < 0 ? -number : number) { /* errors of libuv are negative numbers of errno */
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EADDRNOTAVAIL:
        return true;
    default:
        return false;
    }
}

static void on_closed(uv_handle_t *handle) {
    free(handle);
}

void dial_cancel(struct dial *dial) {
    timer_stop(worker_timers(dial->worker), &dial->timer);
    dial->done = NULL;
    uv_close((uv_handle_t *)&dial->tcp, on_closed);
}

static void finish_dial(struct dial *dial, const struct dial_result *result) {
    void (*done)(void *user, const struct dial_result *result) = dial->done;
    void *user = dial->user;
    dial_cancel(dial);
    done(user, result);
}

static void on_connected(uv_connect_t *connect, int status) {
    struct dial *dial = (struct dial *)(void *)connect->handle;
    struct dial_result result = {.error.status = ST_OK, .refused = status == UV_ECONNREFUSED};
    if (!dial->done) {
        return; /* already reported or cancelled: this is the close */
    }
    if (result.refused) {
        error_set(&result.error, ST_IO, "refused the connection");
    } else if (dial_error_is_local(status)) {
        error_set(&result.error, ST_OVERLOADED, "no connection can be made: %s",
                  uv_strerror(status));
    } else if (status != 0) {
        error_set(&result.error, ST_IO, "cannot be reached: %s", uv_strerror(status));
    }
    finish_dial(dial, &result);
}

static void on_timeout(struct timer *timer) {
    struct dial *dial = CONTAINER_OF(timer, struct dial, timer);
    struct dial_result result = {.refused = false};
    error_set(&result.error, ST_DEADLINE_EXCEEDED, "timed out");
    finish_dial(dial, &result);
}

enum status dial_start(struct worker *worker, struct str address, uint64_t timeout_ns,
                       void (*done)(void *user, const struct dial_result *result), void *user,
                       struct dial **out, struct error *err) {
    struct address where;
    enum status st = address_parse(address, &where, err);
    if (st != ST_OK) {
        return st;
    }
    struct dial *dial = calloc(1, sizeof(*dial));
    if (!dial) {
        return error_no_memory(err, "a connection to %.*s", STR_ARG(address));
    }
    dial->worker = worker;
    dial->done = done;
    dial->user = user;
    uv_tcp_init(worker_loop(worker), &dial->tcp); /* cannot fail: no socket yet */
    dial->timer.on_expire = on_timeout;
    timer_start(worker_timers(worker), &dial->timer, clock_now_ns() + timeout_ns);
    int rc = uv_tcp_connect(&dial->connect, &dial->tcp, (const struct sockaddr *)&where.storage,
                            on_connected);
    if (rc != 0) {
        dial_cancel(dial);
        return error_set(err, dial_error_is_local(rc) ? ST_OVERLOADED : ST_IO,
                         "no connection to %.*s: %s", STR_ARG(address), uv_strerror(rc));
    }
    *out = dial;
    return ST_OK;
}
