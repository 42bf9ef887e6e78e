/* Fixture for the tests of the gRPC client on the event loop: a client whose worker the test runs,
 * and a listener whose bytes the test writes. */
#ifndef SLUICE_NET_CLIENT_GRPC_LIVE_FIXTURE_H
#define SLUICE_NET_CLIENT_GRPC_LIVE_FIXTURE_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include "core/event/clock.h"
#include "net/client/grpc/conn.h"
#include "net/client/grpc_session/calls_fixture.h"
#include "net/server/grpc/server_fixture.h"

struct caller {
    struct worker *worker;
    struct grpc_client *client;
    bool stopped;
};

/* ---- a client -------------------------------------------------------------------------------- */

static inline void caller_open(struct caller *caller, const struct grpc_client_options *options) {
    struct grpc_client_options all = *options;
    struct error err;
    *caller = (struct caller){0};
    assert_int_equal(worker_new("caller", &caller->worker, &err), ST_OK);
    all.worker = caller->worker;
    if (grpc_client_new(&all, &caller->client, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
}

static inline void caller_open_to(struct caller *caller, const char *target) {
    caller_open(caller, &(struct grpc_client_options){.target = str_of(target)});
}

/* "127.0.0.1:PORT" or "unix:/PATH". */
static inline const char *address_of(const struct test_grpc *test) {
    static char text[ADDRESS_TEXT_BYTES];
    return address_print(&test->host.bound, text);
}

static inline void caller_open_on(struct caller *caller, const struct test_grpc *test) {
    caller_open_to(caller, address_of(test));
}

/* One event-loop iteration. `wait`: blocks for an event. */
static inline void caller_step(struct caller *caller, bool wait) {
    uv_run(worker_loop(caller->worker), wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
}

static inline void caller_stopped(void *user) {
    ((struct caller *)user)->stopped = true;
}

static inline void caller_close(struct caller *caller) {
    grpc_client_stop(caller->client, caller_stopped, caller);
    while (!caller->stopped) {
        caller_step(caller, true);
    }
    grpc_client_free(caller->client);
    worker_free(caller->worker);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static inline void caller_ask(struct caller *caller, struct call_record *record,
                              const struct grpc_client_call_options *ask) {
    struct grpc_client_call_options all = *ask;
    struct error err;
    *record = (struct call_record){.eager = ask->streams};
    all.on_event = call_record_on_event;
    all.user = record;
    assert_int_equal(grpc_client_start_call(caller->client, &all, &record->call, &err), ST_OK);
}

static inline void caller_unary(struct caller *caller, struct call_record *record, const char *path,
                                struct str text) {
    caller_ask(caller, record, &(struct grpc_client_call_options){.path = str_of(path)});
    call_record_send(record, text);
}

static inline void caller_until_ended(struct caller *caller, const struct call_record *record) {
    while (record->n_ended == 0) {
        caller_step(caller, true);
    }
}

/* Starts a call and waits for its end. */
static inline void caller_call(struct caller *caller, struct call_record *record, const char *path,
                               struct str text) {
    caller_unary(caller, record, path, text);
    caller_until_ended(caller, record);
}

static inline void assert_answered(struct call_record *record, struct str text) {
    if (record->error.status != ST_OK) {
        fail_msg("%s", record->error.text);
    }
    assert_int_equal(record->code, 0);
    assert_int_equal(record->n_ended, 1);
    assert_true(str_eq(str_make(record->in, record->in_len), text));
    free(record->in);
    record->in = NULL;
}

static inline void assert_ended(struct call_record *record, enum status status, const char *part) {
    if (record->error.status != status || !strstr(record->error.text, part)) {
        fail_msg("expected %s \"%s\", got %s \"%s\"", status_name(status), part,
                 status_name(record->error.status), record->error.text);
    }
    free(record->in);
    record->in = NULL;
}

/* Echoes a message and checks the response. */
static inline void caller_echo(struct caller *caller, struct str text) {
    struct call_record record;
    caller_call(caller, &record, "/t.T/Echo", text);
    assert_answered(&record, text);
}

/* ---- a listener run by the test -------------------------------------------------------------- */

struct bare {
    int fd;
    char target[32];
};

static inline void bare_listen(struct bare *bare) {
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sin);
    bare->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(bare->fd >= 0);
    assert_int_equal(bind(bare->fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
    assert_int_equal(listen(bare->fd, 8), 0);
    assert_int_equal(getsockname(bare->fd, (struct sockaddr *)&sin, &len), 0);
    snprintf(bare->target, sizeof(bare->target), "127.0.0.1:%u", ntohs(sin.sin_port));
}

/* Runs the client until it has connected. Returns: the connection. */
static inline int bare_accept(const struct bare *bare, struct caller *caller) {
    int fd;
    while ((fd = accept4(bare->fd, NULL, NULL, SOCK_CLOEXEC)) < 0) {
        caller_step(caller, false);
        usleep(200);
    }
    return fd;
}

/* Runs the client until it has sent something. */
static inline void bare_hear(int fd, struct caller *caller) {
    char bytes[4096];
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) {
        caller_step(caller, false);
        usleep(200);
    }
}

/* Returns: whether the client closed the connection. Received bytes are dropped. */
static inline bool bare_is_closed(int fd) {
    char bytes[4096];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    }
    return n == 0 || errno != EAGAIN;
}

#endif
