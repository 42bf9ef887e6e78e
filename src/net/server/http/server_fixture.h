/* Fixture for the HTTP server tests: a server on net/server/server_fixture.h, a handler with a
 * resource for each kind of response, and a response parser.
 *
 *     GET  /hello       "hello", at once          GET /later      "later", by a message
 *     POST /echo        the body                  POST /later     the body, by a message
 *     POST /refuse      404 in on_head            GET /big        8 MiB of 'b'
 *     POST /small       the body, at most 10      GET /never      after test_answer_never
 *     POST /aligned?N   byte N is aligned: "yes"  GET /fields     with Allow
 *     GET  /greedy      503, all memory taken
 *
 * A body with Content-Encoding gzip or deflate is decompressed. */
#ifndef SLUICE_NET_SERVER_HTTP_SERVER_FIXTURE_H
#define SLUICE_NET_SERVER_HTTP_SERVER_FIXTURE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/base/num.h"
#include "net/server/grpc/server.h"
#include "net/server/http/server.h"
#include "net/server/server_fixture.h"
#include "net/server/shutdown.h"

enum { TEST_BIG_BYTES = 8 << 20, TEST_ANSWER_BYTES = 1 << 16 };

/* A delayed response. */
struct test_later {
    struct worker_msg msg;
    struct http_exchange *exchange;
    struct test_server *server;
};

/* Of all requests: the router's on_head, and the handler. */
struct test_handler {
    void (*on_head)(struct http_exchange *exchange, void *context);
    struct http_handler after_head; /* its on_body is of those with a body */
    bool speaks_h2;
};

struct test_server {
    struct test_host host;
    struct http_server *server;
    struct grpc_server *h2; /* without methods; or NULL */
    struct test_handler handler;
    struct http_handler without_body;
    char *big;
    atomic_int heads, bodies, ends, gones, releases, replies;
    struct test_later *_Atomic never; /* the waiting one */
};

/* ---- the handler ----------------------------------------------------------------------------- */

static inline void test_released(void *user) {
    atomic_fetch_add(&((struct test_server *)user)->releases, 1);
}

static inline void test_reply(struct test_server *server, struct http_exchange *exchange,
                              struct str text, const struct http_field *fields, size_t n_fields) {
    /* In three pieces, one of them empty. */
    size_t half = text.len / 2;
    struct piece pieces[] = {{text.ptr, half}, {text.ptr, 0}, {text.ptr + half, text.len - half}};
    atomic_fetch_add(&server->replies, 1);
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = "text/plain",
                                              .fields = fields,
                                              .n_fields = n_fields,
                                              .pieces = pieces,
                                              .n_pieces = 3,
                                              .release = test_released,
                                              .user = server});
}

static inline void test_fail(struct http_exchange *exchange, enum status status) {
    struct error err;
    error_set(&err, status, "%s", status_text(status));
    http_reply_error(exchange, &err, NULL, 0);
}

static inline void test_run_later(struct worker_msg *msg) {
    struct test_later *later = (struct test_later *)msg;
    struct http_exchange *exchange = later->exchange;
    test_reply(later->server, exchange, exchange->head.has_body ? exchange->body : STR("later"),
               NULL, 0);
}

static inline struct test_later *test_later_new(struct test_server *server,
                                                struct http_exchange *exchange) {
    struct test_later *later = arena_calloc(exchange->arena, 1, sizeof(*later));
    assert_non_null(later);
    *later = (struct test_later){{NULL, test_run_later}, exchange, server};
    return later;
}

static inline void test_plan(struct http_exchange *exchange) {
    struct str value;
    uint64_t align;
    if (http_head_find(&exchange->head, STR("Content-Encoding"), &value) > 0) {
        exchange->plan.coding = str_is(value, "gzip") ? HTTP_GZIP : HTTP_DEFLATE;
    }
    if (str_is(exchange->head.path, "/small")) {
        exchange->plan.max_bytes = 10;
    }
    if (num_parse_u64(exchange->head.query, &align)) {
        exchange->plan.align_at = (size_t)align;
    }
}

static inline void test_on_head(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    struct str path = exchange->head.path;
    atomic_fetch_add(&server->heads, 1);
    assert_true(worker_is_current(exchange->worker));
    test_plan(exchange);
    if (str_is(path, "/refuse")) {
        test_fail(exchange, ST_NOT_FOUND);
    } else if (exchange->head.has_body) {
        return;
    } else if (str_is(path, "/later")) {
        worker_post(exchange->worker, &test_later_new(server, exchange)->msg);
    } else if (str_is(path, "/never")) {
        atomic_store(&server->never, test_later_new(server, exchange));
    } else if (str_is(path, "/greedy")) {
        while (arena_alloc(exchange->arena, 16)) {
        }
        test_fail(exchange, ST_NO_MEMORY);
    } else if (str_is(path, "/big")) {
        test_reply(server, exchange, str_make(server->big, TEST_BIG_BYTES), NULL, 0);
    } else if (str_is(path, "/fields")) {
        struct http_field field = {STR("Allow"), STR("GET, HEAD")};
        test_reply(server, exchange, STR("fields"), &field, 1);
    } else if (str_is(path, "/echo")) {
        test_reply(server, exchange, STR(""), NULL, 0);
    } else {
        test_reply(server, exchange, STR("hello"), NULL, 0);
    }
}

static inline void test_on_body(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    struct str path = exchange->head.path;
    atomic_fetch_add(&server->bodies, 1);
    if (str_is(path, "/later")) {
        worker_post(exchange->worker, &test_later_new(server, exchange)->msg);
    } else if (str_is(path, "/aligned")) {
        uintptr_t at = (uintptr_t)exchange->body.ptr + exchange->plan.align_at;
        test_reply(server, exchange, at % 64 == 0 ? STR("yes") : STR("no"), NULL, 0);
    } else {
        test_reply(server, exchange, exchange->body, NULL, 0);
    }
}

static inline void test_on_gone(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    assert_true(exchange->client_disconnected || exchange->client_half_closed);
    assert_true((exchange->account == NULL) == exchange->client_disconnected);
    atomic_fetch_add(&server->gones, 1);
}

static inline void test_on_end(struct http_exchange *exchange, void *context) {
    (void)exchange;
    atomic_fetch_add(&((struct test_server *)context)->ends, 1);
}

static inline const char *test_error_body(struct buf *out, const struct error *error,
                                          void *context) {
    (void)context;
    buf_printf(out, "%s", status_name(error->status));
    return "text/plain";
}

/* Makes /never respond. */
static inline void test_answer_never(struct test_server *server) {
    struct test_later *later = NULL;
    while (!(later = atomic_exchange(&server->never, NULL))) {
        usleep(1000);
    }
    worker_post(later->exchange->worker, &later->msg);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Large limits; each test lowers those it is about. */
static inline struct net_limits test_limits(void) {
    const uint64_t second = 1000000000u;
    return (struct net_limits){
        .max_header_size = 4096,
        .max_body_size = 16 << 20,
        .idle_timeout_ns = 60 * second,
        .header_timeout_ns = 60 * second,
        .body_timeout_ns = 60 * second,
        .min_body_rate = 1,
        .write_timeout_ns = 60 * second,
        .discard_size = UINT64_MAX,
    };
}

static inline void test_route(struct http_exchange *exchange, void *context) {
    struct test_server *server = context;
    exchange->handler =
        exchange->head.has_body ? &server->handler.after_head : &server->without_body;
    server->handler.on_head(exchange, server);
}

/* `handler` gets the server as context. `tls` NULL: no TLS. */
static inline void test_server_start_as(struct test_server *server, struct test_handler handler,
                                        const struct net_limits *limits, struct net_budget budget,
                                        const char *address, const struct tls_server *tls) {
    struct error err;
    struct address wanted;
    *server = (struct test_server){
        .handler = handler, .without_body = handler.after_head, .big = malloc(TEST_BIG_BYTES)};
    server->without_body.on_body = NULL;
    memset(server->big, 'b', TEST_BIG_BYTES);
    test_host_init(&server->host, budget);
    struct http_server_options options = {
        .limits = *limits,
        .budget = &server->host.budget,
        .router = {.context = server, .on_head = test_route, .error_body = test_error_body},
        .workers = server->host.workers,
        .n_workers = TEST_WORKERS,
        .acceptor = server->host.workers[0],
        .server_name = "test",
    };
    if (handler.speaks_h2) {
        struct grpc_server_options h2 = {.limits = {.net = *limits,
                                                    .max_streams = 1000,
                                                    .stream_window_bytes = 1 << 18,
                                                    .connection_window_bytes = 1 << 20},
                                         .budget = &server->host.budget,
                                         .workers = server->host.workers,
                                         .n_workers = TEST_WORKERS,
                                         .acceptor = server->host.workers[0]};
        assert_int_equal(grpc_server_new(&h2, &server->h2, &err), ST_OK);
        options.h2 = server->h2;
    }
    assert_int_equal(address_parse(str_of(address), &wanted, &err), ST_OK);
    assert_int_equal(http_server_new(&options, &server->server, &err), ST_OK);
    if (http_server_listen(server->server, &wanted, tls, &server->host.bound, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    test_host_start(&server->host);
}

static inline void test_server_start_over(struct test_server *server,
                                          const struct net_limits *limits, struct net_budget budget,
                                          const char *address, const struct tls_server *tls) {
    struct test_handler handler = {
        .on_head = test_on_head,
        .after_head = {.on_body = test_on_body,
                       .on_disconnect = test_on_gone,
                       .on_end = test_on_end},
    };
    test_server_start_as(server, handler, limits, budget, address, tls);
}

static inline void test_server_start_with(struct test_server *server,
                                          const struct net_limits *limits, struct net_budget budget,
                                          const char *address) {
    test_server_start_over(server, limits, budget, address, NULL);
}

static inline void test_server_start(struct test_server *server, const struct net_limits *limits,
                                     const char *address) {
    test_server_start_with(server, limits, test_budget(), address);
}

static inline struct test_server *test_server_of(struct worker_msg *msg) {
    return CONTAINER_OF(msg, struct test_server, host.control);
}

static inline void test_run_drain(struct worker_msg *msg) {
    net_server_drain(http_server_net(test_server_of(msg)->server));
}

static inline void test_http_stopped(void *user) {
    struct test_server *server = user;
    if (server->h2) {
        net_server_stop(grpc_server_net(server->h2), test_host_stopped, &server->host);
    } else {
        test_host_stopped(&server->host);
    }
}

static inline void test_run_stop(struct worker_msg *msg) {
    struct test_server *server = test_server_of(msg);
    net_server_stop(http_server_net(server->server), test_http_stopped, server);
    net_server_stop(http_server_net(server->server), test_http_stopped, NULL); /* no effect */
}

static inline void test_ask_stop(struct test_server *server) {
    test_host_ask_stop(&server->host, test_run_stop);
}

/* Stops the server and checks that nothing leaked: every exchange has ended, every response is
 * released. */
static inline void test_server_stop(struct test_server *server) {
    test_ask_stop(server);
    test_host_wait(&server->host);
    assert_int_equal(net_server_in_flight(http_server_net(server->server)), 0);
    http_server_free(server->server);
    grpc_server_free(server->h2);
    test_host_fini(&server->host);
    assert_int_equal(server->ends, server->heads);
    assert_int_equal(server->releases, server->replies);
    free(server->big);
}

/* ---- the client ------------------------------------------------------------------------------ */

static inline int test_connect(const struct test_server *server) {
    return test_connect_to(&server->host.bound);
}

/* A response: status, raw head, body. */
struct test_answer {
    int status;
    char head[4096];
    size_t head_len;
    char body[TEST_ANSWER_BYTES];
    size_t body_len;
    bool closes; /* has Connection: close */
};

static inline bool test_head_has(const struct test_answer *answer, const char *line) {
    return strstr(answer->head, line) != NULL;
}

/* Returns: false when the connection ends before the head is complete. `head_request`: no body
 * follows. */
static inline bool test_read_answer(int fd, struct test_answer *answer, bool head_request) {
    *answer = (struct test_answer){0};
    while (answer->head_len < 4 ||
           memcmp(answer->head + answer->head_len - 4, "\r\n\r\n", 4) != 0) {
        assert_true(answer->head_len < sizeof(answer->head) - 1);
        if (test_read(fd, answer->head + answer->head_len, 1) == 0) {
            return false;
        }
        answer->head_len++;
    }
    uint64_t status = 0, length = 0;
    assert_memory_equal(answer->head, "HTTP/1.1 ", 9);
    assert_true(num_parse_u64(str_make(answer->head + 9, 3), &status));
    answer->status = (int)status;
    const char *at = strstr(answer->head, "\r\nContent-Length: ");
    if (at) {
        at += strlen("\r\nContent-Length: ");
        assert_true(num_parse_u64(str_make(at, strcspn(at, "\r")), &length));
    }
    answer->closes = test_head_has(answer, "\r\nConnection: close\r\n");
    if (!head_request) {
        assert_true(length <= sizeof(answer->body));
        answer->body_len = test_read(fd, answer->body, (size_t)length);
        assert_int_equal(answer->body_len, length);
    }
    return true;
}

/* Reads a response and checks its status and body. */
static inline void test_expect(int fd, int status, const char *body) {
    static struct test_answer answer;
    if (!test_read_answer(fd, &answer, false)) {
        fail_msg("expected %d %s, got the end of the connection after \"%s\"", status, body,
                 answer.head);
    }
    if (answer.status != status || !str_is(str_make(answer.body, answer.body_len), body)) {
        fail_msg("expected %d %s, got %d %.*s", status, body, answer.status, (int)answer.body_len,
                 answer.body);
    }
}

#endif
