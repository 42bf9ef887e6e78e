/* Fixture for the gRPC server tests: a server on net/server/server_fixture.h with a method of each
 * kind, and a client on a socket. */
#ifndef SLUICE_NET_SERVER_GRPC_SERVER_FIXTURE_H
#define SLUICE_NET_SERVER_GRPC_SERVER_FIXTURE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/un.h>

#include "core/base/compiler.h"
#include "net/client/grpc/grpc_client_fixture.h"
#include "net/server/grpc/server.h"
#include "net/server/server_fixture.h"
#include "net/server/shutdown.h"

enum { MOST_LATER = 64, TEST_METHODS = 10, PAIR_MESSAGES = 64, PAIR_BYTES = 1000 };

/* A call that the test finishes. */
struct test_later {
    struct worker_msg msg;
    struct grpc_call *_Atomic call;
};

struct test_grpc {
    struct test_host host;
    struct grpc_server *server;
    struct grpc_method methods[TEST_METHODS];
    struct grpc_call *pair; /* the first call of test_step_pair; one at a time */
    atomic_int n_blocked, n_before_probe;
    atomic_bool unblocked;
    int n_busy[TEST_WORKERS];
    atomic_int begins, cancels, ends;
    atomic_int of_worker[TEST_WORKERS];
    atomic_int n_later;
    struct test_later later[MOST_LATER];
};

/* ---- methods --------------------------------------------------------------------------------- */

static inline struct test_grpc *test_grpc_of(const struct grpc_call *call) {
    return call->method->context;
}

static inline void test_count(struct grpc_call *call, enum grpc_event event) {
    struct test_grpc *test = test_grpc_of(call);
    assert_true(worker_is_current(call->worker));
    if (event == GRPC_BEGIN) {
        atomic_fetch_add(&test->begins, 1);
        atomic_fetch_add(&test->of_worker[call->worker == test->host.workers[1]], 1);
    }
    atomic_fetch_add(event == GRPC_CANCELLED ? &test->cancels : &test->ends,
                     event == GRPC_CANCELLED || event == GRPC_END);
}

static inline void test_release(void *user) {
    grpc_message_free(user);
}

static inline void test_send_back(struct grpc_call *call) {
    struct piece piece = {call->message->data.ptr, call->message->data.len};
    grpc_send(call, &piece, 1, test_release, call->message);
}

static inline void test_step_echo(struct grpc_call *call, enum grpc_event event) {
    test_count(call, event);
    if (event == GRPC_MESSAGE) {
        test_send_back(call);
        grpc_finish(call, NULL);
    }
}

static inline void test_step_bidi(struct grpc_call *call, enum grpc_event event) {
    test_count(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        test_send_back(call);
        grpc_read(call);
    } else if (event == GRPC_HALF_CLOSE || event == GRPC_CANCELLED) {
        grpc_finish(call, NULL);
    }
}

/* Waits for test_finish_later. */
static inline void test_step_later(struct grpc_call *call, enum grpc_event event) {
    struct test_grpc *test = test_grpc_of(call);
    test_count(call, event);
    if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
        atomic_store(&test->later[atomic_fetch_add(&test->n_later, 1)].call, call);
    }
}

/* Sends a message of 8 MB for each byte of the request. */
static inline void test_step_flood(struct grpc_call *call, enum grpc_event event) {
    static const char zeros[8000000];
    test_count(call, event);
    if (event == GRPC_MESSAGE) {
        struct piece piece = {zeros, sizeof(zeros)};
        grpc_message_free(call->message);
        grpc_send(call, &piece, 1, NULL, NULL);
        grpc_finish(call, NULL);
    }
}

/* Sends a message back and reads the next one when that is sent. */
static inline void test_step_turns(struct grpc_call *call, enum grpc_event event) {
    test_count(call, event);
    if (event == GRPC_BEGIN || event == GRPC_WRITABLE) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        test_send_back(call);
    } else if (event == GRPC_HALF_CLOSE || event == GRPC_CANCELLED) {
        grpc_finish(call, NULL);
    }
}

/* With the second call the first one gets a message, and the second one PAIR_MESSAGES: more than
 * one output has capacity for. Both finish when the message of the first is sent. */
static inline void test_step_pair(struct grpc_call *call, enum grpc_event event) {
    static const char zeros[PAIR_BYTES];
    struct test_grpc *test = test_grpc_of(call);
    struct piece piece = {zeros, sizeof(zeros)};
    test_count(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
        if (!test->pair) {
            test->pair = call;
            return;
        }
        grpc_send(test->pair, &piece, 1, NULL, NULL);
        for (int i = 0; i < PAIR_MESSAGES; i++) {
            grpc_send(call, &piece, 1, NULL, NULL);
        }
        test->pair->user = call;
    } else if (event == GRPC_WRITABLE && call == test->pair) {
        grpc_finish(call->user, NULL);
        grpc_finish(call, NULL);
    } else if (event == GRPC_CANCELLED) {
        grpc_finish(call, NULL);
    }
}

/* Waits for test_read_later after its first message, and reads all others at once. */
static inline void test_step_held(struct grpc_call *call, enum grpc_event event) {
    struct test_grpc *test = test_grpc_of(call);
    test_count(call, event);
    if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
        if (!call->user) {
            call->user = test;
            atomic_store(&test->later[atomic_fetch_add(&test->n_later, 1)].call, call);
            return;
        }
        test->n_busy[call->worker == test->host.workers[1]]++;
    }
    if (event == GRPC_BEGIN || event == GRPC_MESSAGE) {
        grpc_read(call);
    } else if (event == GRPC_HALF_CLOSE || event == GRPC_CANCELLED) {
        grpc_finish(call, NULL);
    }
}

/* Takes a millisecond. */
static inline void test_step_busy(struct grpc_call *call, enum grpc_event event) {
    struct test_grpc *test = test_grpc_of(call);
    if (event == GRPC_MESSAGE) {
        usleep(1000);
        test->n_busy[call->worker == test->host.workers[1]]++;
    }
    test_step_echo(call, event);
}

/* Takes until the test sets `unblocked`. */
static inline void test_step_block(struct grpc_call *call, enum grpc_event event) {
    struct test_grpc *test = test_grpc_of(call);
    if (event == GRPC_MESSAGE) {
        atomic_fetch_add(&test->n_blocked, 1);
        while (!atomic_load(&test->unblocked)) {
            usleep(1000);
        }
    }
    test_step_echo(call, event);
}

/* Counts the calls of test_step_busy, or the messages of test_step_held, before it on its
 * worker. */
static inline void test_step_probe(struct grpc_call *call, enum grpc_event event) {
    struct test_grpc *test = test_grpc_of(call);
    if (event == GRPC_MESSAGE) {
        int n = test->n_busy[call->worker == test->host.workers[1]];
        if (n > atomic_load(&test->n_before_probe)) { /* of the worker with the most */
            atomic_store(&test->n_before_probe, n);
        }
    }
    test_step_echo(call, event);
}

/* ---- the server ------------------------------------------------------------------------------ */

static inline struct grpc_limits test_limits(void) {
    return (struct grpc_limits){
        .net = {.max_header_size = 8192, .max_body_size = 32 << 20, .request_memory = 1 << 20},
        .max_streams = 100,
        .stream_window_bytes = 1 << 20,
        .connection_window_bytes = 4 << 20};
}

/* `tls` may be NULL. */
static inline void test_grpc_start_over(struct test_grpc *test, const struct grpc_limits *limits,
                                        struct net_budget budget, const struct tls_server *tls,
                                        const char *address_text) {
    struct address address;
    struct error err;
    *test = (struct test_grpc){
        .methods = {
            {.path = "/t.T/Echo", .on_event = test_step_echo, .context = test},
            {.path = "/t.T/Bidi", .on_event = test_step_bidi, .streams = true, .context = test},
            {.path = "/t.T/Later", .on_event = test_step_later, .context = test},
            {.path = "/t.T/Flood", .on_event = test_step_flood, .context = test},
            {.path = "/t.T/Turns", .on_event = test_step_turns, .streams = true, .context = test},
            {.path = "/t.T/Pair", .on_event = test_step_pair, .streams = true, .context = test},
            {.path = "/t.T/Held", .on_event = test_step_held, .streams = true, .context = test},
            {.path = "/t.T/Busy", .on_event = test_step_busy, .context = test},
            {.path = "/t.T/Block", .on_event = test_step_block, .context = test},
            {.path = "/t.T/Probe", .on_event = test_step_probe, .context = test}}};
    test_host_init(&test->host, budget);
    struct grpc_server_options options = {.limits = *limits,
                                          .budget = &test->host.budget,
                                          .methods = test->methods,
                                          .n_methods = TEST_METHODS,
                                          .workers = test->host.workers,
                                          .n_workers = TEST_WORKERS,
                                          .acceptor = test->host.workers[0]};
    assert_int_equal(grpc_server_new(&options, &test->server, &err), ST_OK);
    assert_int_equal(address_parse(str_of(address_text), &address, &err), ST_OK);
    assert_int_equal(grpc_server_listen(test->server, &address, tls, &test->host.bound, &err),
                     ST_OK);
    test_host_start(&test->host);
}

static inline void test_grpc_start(struct test_grpc *test, const struct grpc_limits *limits,
                                   uint64_t max_connections, const char *address_text) {
    struct net_budget budget = test_budget();
    budget.max_connections = max_connections;
    test_grpc_start_over(test, limits, budget, NULL, address_text);
}

static inline struct test_grpc *test_of_control(struct worker_msg *msg) {
    return CONTAINER_OF(msg, struct test_grpc, host.control);
}

static inline void test_run_drain(struct worker_msg *msg) {
    net_server_drain(grpc_server_net(test_of_control(msg)->server));
}

static inline void test_run_stop(struct worker_msg *msg) {
    struct test_grpc *test = test_of_control(msg);
    net_server_stop(grpc_server_net(test->server), test_host_stopped, &test->host);
}

static inline void test_grpc_end(struct test_grpc *test) {
    test_host_ask_stop(&test->host, test_run_stop);
    test_host_wait(&test->host);
    assert_int_equal(net_server_in_flight(grpc_server_net(test->server)), 0);
    grpc_server_free(test->server);
    assert_int_equal(test->begins, test->ends);
    test_host_fini(&test->host);
}

static inline void test_run_finish(struct worker_msg *msg) {
    struct grpc_call *call = atomic_load(&((struct test_later *)msg)->call);
    struct piece piece = {"late", 4};
    grpc_send(call, &piece, 1, NULL, NULL);
    grpc_finish(call, NULL);
}

/* Finishes the n-th waiting call. */
static inline void test_finish_later(struct test_grpc *test, int n) {
    struct test_later *later = &test->later[n];
    struct grpc_call *call = atomic_load(&later->call);
    later->msg.run = test_run_finish;
    worker_post(call->worker, &later->msg);
}

static inline void test_run_read(struct worker_msg *msg) {
    grpc_read(atomic_load(&((struct test_later *)msg)->call));
}

/* Lets the n-th waiting call read. */
static inline void test_read_later(struct test_grpc *test, int n) {
    struct test_later *later = &test->later[n];
    later->msg.run = test_run_read;
    worker_post(atomic_load(&later->call)->worker, &later->msg);
}

/* ---- the client ------------------------------------------------------------------------------ */

struct live {
    int fd;
    bool ended; /* by the server */
    struct client client;
};

static inline struct live *live_open_as(const struct test_grpc *test, bool stingy) {
    struct live *live = calloc(1, sizeof(*live));
    live->fd = test_connect_to(&test->host.bound);
    live->client.stingy = stingy;
    client_open(&live->client, NULL, 0);
    return live;
}

static inline struct live *live_open(const struct test_grpc *test) {
    return live_open_as(test, false);
}

/* Opens the windows to their maximum. */
static inline void live_open_windows(struct live *live) {
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30};
    nghttp2_submit_settings(live->client.h2, NGHTTP2_FLAG_NONE, &window, 1);
    nghttp2_session_set_local_window_size(live->client.h2, NGHTTP2_FLAG_NONE, 0, 1 << 30);
}

static inline void live_close(struct live *live) {
    if (live->fd >= 0) {
        close(live->fd);
    }
    client_close(&live->client);
    free(live);
}

/* Bytes to be sent at once. */
struct live_output {
    char bytes[262144];
    size_t len;
};

/* Appends the client's output. */
static inline void live_collect(struct live *live, struct live_output *output) {
    const uint8_t *data;
    for (ssize_t n; (n = nghttp2_session_mem_send(live->client.h2, &data)) > 0;) {
        assert_true(output->len + (size_t)n <= sizeof(output->bytes));
        memcpy(output->bytes + output->len, data, (size_t)n);
        output->len += (size_t)n;
    }
}

/* Sends the client's output, which the server reads at once if it is small. */
static inline void live_send_at_once(struct live *live) {
    struct live_output output = {.len = 0};
    live_collect(live, &output);
    test_send(live->fd, str_make(output.bytes, output.len));
}

/* Sends the client's output as far as the socket takes it, and reads once. */
static inline void live_step(struct live *live, bool wait) {
    const uint8_t *data;
    char bytes[65536];
    for (ssize_t n; !live->ended && (n = nghttp2_session_mem_send(live->client.h2, &data)) > 0;) {
        if (!test_try_send(live->fd, (const char *)data, (size_t)n)) {
            live->ended = true;
        }
    }
    struct pollfd poll_fd = {.fd = live->fd, .events = POLLIN};
    if (poll(&poll_fd, 1, wait ? 60000 : 0) == 0) {
        assert_false(wait); /* no response */
        return;
    }
    ssize_t n = recv(live->fd, bytes, sizeof(bytes), 0);
    if (n <= 0) {
        live->ended = true;
    } else if (nghttp2_session_mem_recv(live->client.h2, (const uint8_t *)bytes, (size_t)n) != n) {
        fail_msg("the client did not understand");
    }
}

static inline void live_until_closed(struct live *live, const struct client_call *call) {
    while (!call->closed && !live->ended) {
        live_step(live, true);
    }
}

static inline void live_until_ended(struct live *live) {
    while (!live->ended) {
        live_step(live, true);
    }
}

static inline void live_until_goaway(struct live *live) {
    while (!live->client.goaway && !live->ended) {
        live_step(live, true);
    }
}

#endif
