/* Fixture for the MIP server tests: a server on net/server/server_fixture.h, a handler that
 * responds to an inference with its own items in capitals, and packets of a client. The first item
 * selects what else it does:
 *
 *     later   responds by a message                   never   after test_answer_never
 *     large   responds with 8 MiB                     parts   responds in many pieces
 *     greed   the same, with all its memory taken     fails   responds BACKEND_FAILED
 *     kilos   responds with 1000 bytes
 */
#ifndef SLUICE_NET_SERVER_MIP_SERVER_FIXTURE_H
#define SLUICE_NET_SERVER_MIP_SERVER_FIXTURE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "net/server/mip/server.h"
#include "net/server/server_fixture.h"
#include "net/server/shutdown.h"

enum { TEST_LARGE_BYTES = 8 << 20, TEST_PARTS = 100 };

/* Packets, as string literals to concatenate. A size is a literal of four bytes. */
#define HEAD(kind, subtype, size) "\0" kind subtype "\0" size
#define PING HEAD("\1", "\0", "\0\0\0\0")
#define PONG HEAD("\1", "\1", "\0\0\0\0")
#define FAILED(code) HEAD("\0", code, "\0\0\0\0")
#define PROTOCOL FAILED("\0")
#define SUBTYPE FAILED("\1")
#define METHOD FAILED("\2")
#define MEMORY FAILED("\3")
#define SHAPE FAILED("\4")
#define INTERNAL FAILED("\5")
/* One item of five bytes: a payload of 4 + 8 + 5. */
#define ASK(text5)                                                                                 \
    HEAD("\2", "\0", "\0\0\0\x11")                                                                 \
    "\1\0\0\1"                                                                                     \
    "\0\0\0\1"                                                                                     \
    "\0\0\0\5" text5
#define TOLD(text5)                                                                                \
    HEAD("\2", "\1", "\0\0\0\x11")                                                                 \
    "\1\1\0\1"                                                                                     \
    "\0\0\0\1"                                                                                     \
    "\0\0\0\5" text5

struct test_mip {
    struct test_host host;
    struct mip_server *server;
    const void *user; /* expected listener of the exchanges */
    atomic_int infers, ends, gones, releases, replies;
    atomic_int of_worker[TEST_WORKERS];
    struct test_later *_Atomic never; /* the waiting one */
};

/* A delayed response. */
struct test_later {
    struct worker_msg msg;
    struct mip_exchange *exchange;
    struct test_packet *packet;
};

/* ---- the handler ----------------------------------------------------------------------------- */

/* A packet that is freed when it is sent. */
struct test_packet {
    struct test_mip *mip;
    size_t n_bytes;
    char bytes[];
};

static inline void test_released(void *user) {
    struct test_packet *packet = user;
    atomic_fetch_add(&packet->mip->releases, 1);
    free(packet);
}

/* The items in capitals. */
static inline struct test_packet *test_packet_new(struct test_mip *mip, struct mip_infer *infer) {
    struct error err;
    uint32_t n_payload;
    infer->n_outputs = infer->n_inputs;
    assert_int_equal(mip_infer_size(infer, true, &n_payload, &err), ST_OK);
    struct test_packet *packet = malloc(sizeof(*packet) + MIP_HEADER_BYTES + n_payload);
    assert_non_null(packet);
    packet->mip = mip;
    packet->n_bytes = MIP_HEADER_BYTES + n_payload;
    mip_infer_head_encode(infer, true, n_payload, packet->bytes);
    char *at = packet->bytes + MIP_HEADER_BYTES + MIP_COUNTS_BYTES;
    for (size_t i = 0; i < infer->n_items; i++) {
        struct str data = infer->items[i].data;
        mip_item_head_encode(&infer->items[i], at);
        at += MIP_ITEM_HEAD_BYTES;
        for (size_t j = 0; j < data.len; j++) {
            *at++ =
                (char)(data.ptr[j] >= 'a' && data.ptr[j] <= 'z' ? data.ptr[j] - 32 : data.ptr[j]);
        }
    }
    return packet;
}

/* In that many pieces, the first of them empty. */
static inline void test_reply(struct mip_exchange *exchange, struct test_packet *packet, size_t n) {
    struct piece pieces[TEST_PARTS];
    size_t at = 0;
    assert_true(n >= 2 && n <= TEST_PARTS);
    for (size_t i = 0; i < n; i++) {
        size_t end = packet->n_bytes * i / (n - 1);
        pieces[i] = (struct piece){packet->bytes + at, end - at};
        at = end;
    }
    atomic_fetch_add(&packet->mip->replies, 1);
    mip_reply(exchange,
              &(struct mip_answer){
                  .pieces = pieces, .n_pieces = n, .release = test_released, .user = packet});
}

static inline void test_fail(struct mip_exchange *exchange, enum status status) {
    struct error err;
    error_set(&err, status, "%s", status_text(status));
    mip_reply_error(exchange, &err);
}

static inline void test_run_later(struct worker_msg *msg) {
    struct test_later *later = (struct test_later *)msg;
    test_reply(later->exchange, later->packet, 2);
}

static inline struct test_later *test_later_new(struct mip_exchange *exchange,
                                                struct test_packet *packet) {
    struct test_later *later = arena_calloc(exchange->arena, 1, sizeof(*later));
    assert_non_null(later);
    *later = (struct test_later){{NULL, test_run_later}, exchange, packet};
    return later;
}

static inline void test_answer(struct test_mip *mip, struct mip_exchange *exchange,
                               struct mip_infer *infer) {
    static char large[TEST_LARGE_BYTES];
    struct str text = infer->items[0].data;
    if (str_is(text, "fails")) {
        test_fail(exchange, ST_BACKEND_FAILED);
        return;
    }
    if (str_is(text, "large")) {
        infer->items[0].data = str_make(large, TEST_LARGE_BYTES);
    } else if (str_is(text, "kilos")) {
        infer->items[0].data = str_make(large, 1000);
    }
    struct test_packet *packet = test_packet_new(mip, infer);
    if (str_is(text, "later")) {
        worker_post(exchange->worker, &test_later_new(exchange, packet)->msg);
    } else if (str_is(text, "never")) {
        atomic_store(&mip->never, test_later_new(exchange, packet));
    } else if (str_is(text, "parts") || str_is(text, "greed")) {
        while (str_is(text, "greed") && arena_alloc(exchange->arena, 16)) {
        }
        test_reply(exchange, packet, TEST_PARTS);
    } else {
        test_reply(exchange, packet, 3);
    }
}

static inline void test_on_infer(struct mip_exchange *exchange, void *context) {
    struct test_mip *mip = context;
    struct mip_infer infer;
    struct error err;
    assert_true(worker_is_current(exchange->worker));
    assert_ptr_equal(exchange->listener, mip->user);
    assert_int_equal(exchange->header.n_bytes, exchange->payload.len);
    atomic_fetch_add(&mip->infers, 1);
    for (int i = 0; i < TEST_WORKERS; i++) {
        atomic_fetch_add(&mip->of_worker[i], exchange->worker == mip->host.workers[i]);
    }
    if (mip_infer_decode(exchange->arena, exchange->payload, false, &infer, &err) == ST_OK) {
        test_answer(mip, exchange, &infer);
    } else {
        mip_reply_error(exchange, &err);
    }
}

static inline void test_on_gone(struct mip_exchange *exchange, void *context) {
    (void)exchange;
    atomic_fetch_add(&((struct test_mip *)context)->gones, 1);
}

static inline void test_on_end(struct mip_exchange *exchange, void *context) {
    (void)exchange;
    atomic_fetch_add(&((struct test_mip *)context)->ends, 1);
}

/* Makes "never" respond. */
static inline void test_answer_never(struct test_mip *mip) {
    struct test_later *later = NULL;
    while (!(later = atomic_exchange(&mip->never, NULL))) {
        usleep(1000);
    }
    worker_post(later->exchange->worker, &later->msg);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Large limits; each test lowers those it is about. */
static inline struct net_limits test_limits(void) {
    const uint64_t second = 1000000000u;
    return (struct net_limits){
        .max_body_size = 16 << 20,
        .request_memory = 1 << 20,
        .idle_timeout_ns = 60 * second,
        .header_timeout_ns = 60 * second,
        .body_timeout_ns = 60 * second,
        .min_body_rate = 1,
        .write_timeout_ns = 60 * second,
        .discard_size = UINT64_MAX,
    };
}

static inline void test_mip_start_with(struct test_mip *mip, const struct net_limits *limits,
                                       struct net_budget budget, const char *address) {
    struct error err;
    struct address wanted;
    *mip = (struct test_mip){.user = mip};
    test_host_init(&mip->host, budget);
    struct mip_server_options options = {
        .limits = *limits,
        .budget = &mip->host.budget,
        .handler = {.context = mip,
                    .on_infer = test_on_infer,
                    .on_disconnect = test_on_gone,
                    .on_end = test_on_end},
        .workers = mip->host.workers,
        .n_workers = TEST_WORKERS,
        .acceptor = mip->host.workers[0],
    };
    assert_int_equal(address_parse(str_of(address), &wanted, &err), ST_OK);
    assert_int_equal(mip_server_new(&options, &mip->server, &err), ST_OK);
    if (mip_server_listen(mip->server, &wanted, mip, &mip->host.bound, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    test_host_start(&mip->host);
}

static inline void test_mip_start(struct test_mip *mip, struct net_limits limits) {
    test_mip_start_with(mip, &limits, test_budget(), "127.0.0.1:0");
}

static inline struct test_mip *test_mip_of(struct worker_msg *msg) {
    return CONTAINER_OF(msg, struct test_mip, host.control);
}

static inline void test_run_drain(struct worker_msg *msg) {
    net_server_drain(mip_server_net(test_mip_of(msg)->server));
}

static inline void test_run_stop(struct worker_msg *msg) {
    struct test_mip *mip = test_mip_of(msg);
    net_server_stop(mip_server_net(mip->server), test_host_stopped, &mip->host);
    net_server_stop(mip_server_net(mip->server), test_host_stopped, NULL); /* no effect */
}

/* Stops the server and checks that nothing leaked: every exchange has ended, every response is
 * released. */
static inline void test_mip_stop(struct test_mip *mip) {
    test_host_ask_stop(&mip->host, test_run_stop);
    test_host_wait(&mip->host);
    assert_int_equal(net_server_in_flight(mip_server_net(mip->server)), 0);
    mip_server_free(mip->server);
    test_host_fini(&mip->host);
    assert_int_equal(mip->ends, mip->infers);
    assert_int_equal(mip->releases, mip->replies);
}

/* ---- the client ------------------------------------------------------------------------------ */

static inline int test_connect(const struct test_mip *mip) {
    return test_connect_to(&mip->host.bound);
}

/* Reads and checks these bytes. */
static inline void test_expect(int fd, struct str bytes) {
    char got[4096];
    for (size_t at = 0; at < bytes.len;) {
        size_t n = bytes.len - at < sizeof(got) ? bytes.len - at : sizeof(got);
        size_t came = test_read(fd, got, n);
        if (came != n || memcmp(got, bytes.ptr + at, n) != 0) {
            fail_msg("from byte %zu: expected %zu bytes beginning %02x %02x %02x, got %zu: "
                     "%02x %02x %02x",
                     at, n, (unsigned)bytes.ptr[at] & 255, (unsigned)bytes.ptr[at + 1] & 255,
                     (unsigned)bytes.ptr[at + 2] & 255, came, (unsigned)got[0] & 255,
                     (unsigned)got[1] & 255, (unsigned)got[2] & 255);
        }
        at += n;
    }
}

static inline void test_ask(int fd, struct str sent, struct str expected) {
    test_send(fd, sent);
    test_expect(fd, expected);
}

/* Checks that the server accepts and serves a new connection. */
static inline void test_is_well(const struct test_mip *mip) {
    int fd = test_connect(mip);
    test_ask(fd, STR(PING ASK("hello")), STR(PONG TOLD("HELLO")));
    close(fd);
}

#endif
