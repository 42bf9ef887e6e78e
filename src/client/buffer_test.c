/* Memory: the caller's buffers for answers, answers that are too large or announce too much, and
 * requests of very many items. After every failure the next call succeeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_peer.h"
#include "codec/mip/packet.h"
#include "sluice/client_mip.h"

enum { MAX_ANSWER_BYTES = 4 << 20 };

static struct peer peer;
static sluice_client *client;
static sluice_call *call;
static sluice_client_error error = {.size = sizeof(error)};

static void open_client(bool mip, uint64_t max_answer_bytes) {
    peer_open(&peer, mip);
    const sluice_client_options options = {.size = sizeof(options),
                                           .url = peer.url,
                                           .timeout_ns = TEST_TIMEOUT_NS,
                                           .max_answer_bytes = max_answer_bytes};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
}

static void close_client(void) {
    sluice_client_close(client);
    peer_close(&peer);
}

static void expect(sluice_client_status is, sluice_client_status status, const char *says) {
    test_expect(&error, is, status, says);
}

static void accept_request(void) {
    expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING, "not done yet");
    (void)peer_accept(&peer);
    assert_true(peer_read(&peer) > 0);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static const int64_t dims[] = {1};
static const sluice_tensor input = {.size = sizeof(sluice_tensor),
                                    .name = "x",
                                    .datatype = SLUICE_UINT8,
                                    .dims = dims,
                                    .rank = 1,
                                    .data = "\1",
                                    .n_bytes = 1};

/* Sends an inference with these buffers, and answers it with `n_bytes` at `answer`. */
static sluice_client_status infer(const sluice_wanted *wanted, size_t n_wanted, const char *answer,
                                  size_t n_bytes) {
    const sluice_infer_request request = {.size = sizeof(request),
                                          .model = "m",
                                          .inputs = &input,
                                          .n_inputs = 1,
                                          .wanted = wanted,
                                          .n_wanted = n_wanted};
    expect(sluice_client_start_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK, "");
    accept_request();
    peer_send(&peer, answer, n_bytes);
    return client_run_to_end(client, call, &error);
}

#define OUTPUTS_JSON                                                                               \
    "{\"outputs\":["                                                                               \
    "{\"name\":\"a\",\"datatype\":\"INT16\",\"shape\":[2],\"parameters\":{\"binary_data_size\":4}" \
    "},"                                                                                           \
    "{\"name\":\"b\",\"datatype\":\"UINT8\",\"shape\":[3],\"data\":[1,2,3]},"                      \
    "{\"name\":\"c\",\"datatype\":\"BYTES\",\"shape\":[1],\"parameters\":{\"binary_data_size\":6}" \
    "}]}"

/* *out: an answer. Returns: its size. */
static size_t outputs_answer(char *out, size_t max) {
    static const char body[] = OUTPUTS_JSON "\1\0\2\0\2\0\0\0hi";
    int n = snprintf(out, max,
                     "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: %zu\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     sizeof(OUTPUTS_JSON) - 1, sizeof(body) - 1);
    memcpy(out + n, body, sizeof(body) - 1);
    return (size_t)n + sizeof(body) - 1;
}

static void buffer_each_output_is_copied_or_too_small(void **state) {
    (void)state;
    static const struct {
        size_t rooms[4]; /* SIZE_MAX: no buffer */
        size_t n;
        const char *says; /* NULL: success */
    } rows[] = {
        {{0}, 0, NULL},
        {{4, 3, 6}, 3, NULL},
        {{4, 3, 6, 0}, 4, NULL},
        {{100, SIZE_MAX, 100}, 3, NULL},
        {{SIZE_MAX, SIZE_MAX, 6}, 3, NULL},
        {{4}, 1, NULL},
        {{3, 3, 6}, 3, "output 0 (\"a\") has 4 bytes, and its buffer only 3"},
        {{4, 2, 6}, 3, "output 1 (\"b\") has 3 bytes, and its buffer only 2"},
        {{4, 3, 0}, 3, "output 2 (\"c\") has 6 bytes, and its buffer only 0"},
    };
    static const char *const wanted[] = {"\1\0\2\0", "\1\2\3", "\2\0\0\0hi"};
    static const size_t n_bytes_wanted[] = {4, 3, 6};
    static const char *const names[] = {"a", "b", "c"};
    static char places[4][100], answer[1024];
    size_t n_answer = outputs_answer(answer, sizeof(answer));
    open_client(false, 0);
    for (size_t round = 0; round < 2 * sizeof(rows) / sizeof(*rows); round++) {
        size_t i = round / 2;
        bool named = round % 2 == 1; /* by name, or by index */
        sluice_wanted buffers[4];
        for (size_t k = 0; k < 4; k++) {
            bool none = rows[i].rooms[k] == SIZE_MAX;
            buffers[k] = (sluice_wanted){.size = sizeof(*buffers),
                                         .name = named && k < 3 ? names[k] : NULL,
                                         .data = none ? NULL : places[k],
                                         .n_bytes = none ? 100 : rows[i].rooms[k]};
        }
        memset(places, 0x55, sizeof(places));
        size_t n = named && rows[i].n > 3 ? 3 : rows[i].n;
        expect(infer(buffers, n, answer, n_answer),
               rows[i].says ? SLUICE_CLIENT_BUFFER_TOO_SMALL : SLUICE_CLIENT_OK, rows[i].says);
        for (size_t k = 0; k < 3 && !rows[i].says; k++) {
            sluice_tensor made = {.size = sizeof(made)};
            assert_int_equal(sluice_call_output(call, k, &made), SLUICE_CLIENT_OK);
            bool placed = k < n && buffers[k].data;
            assert_int_equal(made.data == places[k], placed);
            assert_int_equal(made.n_bytes, n_bytes_wanted[k]);
            assert_memory_equal(made.data, wanted[k], n_bytes_wanted[k]);
            assert_int_equal(places[k][placed ? n_bytes_wanted[k] : 0], 0x55);
        }
        assert_true(!rows[i].says || error.http_status == 200);
        sluice_call_free(call);
    }
    assert_false(peer_accept(&peer)); /* one connection for all */
    close_client();
}

#define HUGE_JSON                                                                                  \
    "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n"                                                    \
    "Inference-Header-Content-Length: 18446744073709551615\r\n\r\n"

/* Sizes beyond any real answer fail before memory is allocated. */
static void buffer_huge_http_answer_is_refused(void **state) {
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n{",
        "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n{",
        "HTTP/1.1 200 OK\r\nContent-Length: 4194305\r\n\r\n{",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n",
        HUGE_JSON,
    };
    static char answer[1024], rest[1 << 16];
    size_t n_answer = outputs_answer(answer, sizeof(answer));
    open_client(false, MAX_ANSWER_BYTES);
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        const sluice_infer_request request = {
            .size = sizeof(request), .model = "m", .inputs = &input, .n_inputs = 1};
        expect(sluice_client_start_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK,
               "");
        accept_request();
        peer_send(&peer, answers[i], strlen(answers[i]));
        sluice_client_status status = client_step_until_blocked(client, call, &error);
        for (int n = 0; status == SLUICE_CLIENT_PENDING && n < 1000; n++) {
            peer_send(&peer, rest, sizeof(rest)); /* as much as the socket takes */
            status = client_step_until_blocked(client, call, &error);
        }
        expect(status, i == 4 ? SLUICE_CLIENT_PROTOCOL : SLUICE_CLIENT_TOO_LARGE, "nswer");
        sluice_call_free(call);
        expect(infer(NULL, 0, answer, n_answer), SLUICE_CLIENT_OK, "");
        sluice_call_free(call);
    }
    close_client();
}

/* ---- MIP ------------------------------------------------------------------------------------- */

static const sluice_mip_item item = {
    .size = sizeof(sluice_mip_item), .type = SLUICE_MIP_TEXT, .data = "hello", .n_bytes = 5};

static void start_mip(void *buffer, size_t n_bytes) {
    const sluice_mip_request request = {.size = sizeof(request),
                                        .items = &item,
                                        .n_inputs = 1,
                                        .batch = 1,
                                        .buffer = buffer,
                                        .buffer_bytes = n_bytes};
    expect(sluice_client_start_mip_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK,
           "");
    accept_request();
}

/* An answer with one item of `n_item` bytes: header, counts and the item's head. */
enum { FRONT_BYTES = MIP_HEADER_BYTES + MIP_COUNTS_BYTES + MIP_ITEM_HEAD_BYTES };
static void front_of(uint32_t n_item, char out[FRONT_BYTES]) {
    struct mip_item one = {MIP_JSON, {NULL, n_item}};
    const struct mip_infer answer = {
        .n_inputs = 1, .n_outputs = 1, .batch = 1, .items = &one, .n_items = 1};
    mip_infer_head_encode(&answer, true, n_item + FRONT_BYTES - MIP_HEADER_BYTES, out);
    mip_item_head_encode(&one, out + MIP_HEADER_BYTES + MIP_COUNTS_BYTES);
}

/* Sends `n_item` bytes of an item while the client is stepped. Returns: its last status. */
static sluice_client_status send_item(size_t n_item) {
    static char bytes[1 << 15];
    sluice_client_status status = SLUICE_CLIENT_PENDING;
    memset(bytes, 'x', sizeof(bytes));
    while (n_item > 0 && status == SLUICE_CLIENT_PENDING) {
        size_t n = n_item < sizeof(bytes) ? n_item : sizeof(bytes);
        peer_send(&peer, bytes, n);
        n_item -= n;
        status = client_step_until_blocked(client, call, &error);
    }
    return n_item == 0 && status == SLUICE_CLIENT_PENDING ? client_run_to_end(client, call, &error)
                                                          : status;
}

static void good_mip(char *place, size_t n_place) {
    sluice_mip_item made = {.size = sizeof(made)};
    start_mip(place, n_place);
    peer_send(&peer, "\0\2\1\0\0\0\0\x0e\1\1\0\1\0\0\0\1\0\0\0\2hi", 22);
    expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(sluice_call_mip_item(call, 0, &made), SLUICE_CLIENT_OK);
    assert_memory_equal(made.data, "hi", 2);
    assert_true(!place || (const char *)made.data == place + 12);
    sluice_call_free(call);
}

static void buffer_mip_payload_is_received_or_too_small(void **state) {
    (void)state;
    static char place[2 << 20];
    static const struct {
        uint32_t n_item;
        size_t n_place;
        const char *says; /* NULL: success */
        bool closes;      /* the rest of the answer is too large to drain */
    } rows[] = {
        {0, 12, NULL, false},
        {100, 112, NULL, false},
        {100, 200, NULL, false},
        {1 << 20, 2 << 20, NULL, false},
        {100, 111, "the answer's payload has 112 bytes, and the buffer only 111", false},
        {100, 0, "has 112 bytes, and the buffer only 0", false},
        {100000, 50, "has 100012 bytes, and the buffer only 50", false},
        {1000000, 500000, "and the buffer only 500000", false},
        {3 << 20, 1 << 20, "and the buffer only 1048576", true},
        {3 << 20, 0, "and the buffer only 0", true},
    };
    open_client(true, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char front[FRONT_BYTES];
        sluice_mip_item made = {.size = sizeof(made)};
        start_mip(place, rows[i].n_place);
        front_of(rows[i].n_item, front);
        peer_send(&peer, front, sizeof(front));
        sluice_client_status status = client_step_until_blocked(client, call, &error);
        if (status == SLUICE_CLIENT_PENDING) {
            status = send_item(rows[i].n_item);
        }
        expect(status, rows[i].says ? SLUICE_CLIENT_BUFFER_TOO_SMALL : SLUICE_CLIENT_OK,
               rows[i].says);
        if (!rows[i].says) {
            assert_int_equal(sluice_call_mip_item(call, 0, &made), SLUICE_CLIENT_OK);
            assert_int_equal(made.n_bytes, rows[i].n_item);
            assert_ptr_equal(made.data, place + 12);
        }
        sluice_call_free(call);
        (void)peer_read(&peer);
        assert_int_equal(peer.ended, rows[i].closes);
        good_mip(place, 100);
    }
    close_client();
}

static void buffer_huge_mip_answer_is_refused(void **state) {
    (void)state;
    open_client(true, MAX_ANSWER_BYTES);
    static const char *const headers[] = {"\0\2\1\0\xff\xff\xff\xff", "\0\2\1\0\0\x40\0\1"};
    for (size_t i = 0; i < 2; i++) {
        start_mip(NULL, 0);
        peer_send(&peer, headers[i], 8);
        expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_TOO_LARGE,
               "max_answer_bytes");
        good_mip(NULL, 0);
    }
    start_mip(NULL, 0); /* an error packet whose payload is too large to drain */
    peer_send(&peer, "\0\0\5\0\xff\xff\xff\xff", 8);
    expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_SERVER_ERROR,
           "MIP error 5, INTERNAL");
    good_mip(NULL, 0);
    start_mip(NULL, 0); /* more items than the payload can hold */
    peer_send(&peer, "\0\2\1\0\0\0\0\4\1\xff\0\1", 12);
    expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_PROTOCOL, "item 0 of 255");
    assert_int_equal(error.mip_error, -1);
    good_mip(NULL, 0);
    close_client();
}

/* ---- very many items ------------------------------------------------------------------------- */

enum { N_INPUTS = 16, BATCH = 62500, N_ITEMS = N_INPUTS * BATCH, ITEM_BYTES = 3 };

/* The byte at offset `at` of the request, or of the answer, which has another front. */
static char packet_byte(size_t at, const char front[MIP_HEADER_BYTES + MIP_COUNTS_BYTES]) {
    static const char item_bytes[] = "\0\0\0\2\0\0\0\3[7]";
    enum { FRONT = MIP_HEADER_BYTES + MIP_COUNTS_BYTES };
    return at < FRONT ? front[at] : item_bytes[(at - FRONT) % (MIP_ITEM_HEAD_BYTES + ITEM_BYTES)];
}

enum { PACKET_BYTES = 12 + N_ITEMS * (MIP_ITEM_HEAD_BYTES + ITEM_BYTES) };

static void front_of_many(bool response, char out[MIP_HEADER_BYTES + MIP_COUNTS_BYTES]) {
    const struct mip_infer infer = {
        .n_inputs = N_INPUTS, .n_outputs = response ? N_INPUTS : 0, .batch = BATCH};
    mip_infer_head_encode(&infer, response, PACKET_BYTES - MIP_HEADER_BYTES, out);
}

static void receive_many(void) {
    char front[MIP_HEADER_BYTES + MIP_COUNTS_BYTES];
    size_t n_read = 0;
    front_of_many(false, front);
    while (n_read < PACKET_BYTES) {
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
        (void)peer_accept(&peer);
        ssize_t n = recv(peer.fd, peer.in, sizeof(peer.in), 0);
        assert_true(n > 0);
        for (ssize_t i = 0; i < n; i++) {
            assert_true(peer.in[i] == packet_byte(n_read + (size_t)i, front));
        }
        n_read += (size_t)n;
    }
    assert_int_equal(n_read, PACKET_BYTES);
}

static void answer_many(void) {
    char front[MIP_HEADER_BYTES + MIP_COUNTS_BYTES];
    static char bytes[1 << 15];
    front_of_many(true, front);
    for (size_t n_sent = 0, n; n_sent < PACKET_BYTES; n_sent += n) {
        n = PACKET_BYTES - n_sent < sizeof(bytes) ? PACKET_BYTES - n_sent : sizeof(bytes);
        for (size_t i = 0; i < n; i++) {
            bytes[i] = packet_byte(n_sent + i, front);
        }
        peer_send(&peer, bytes, n);
        sluice_client_status status = client_step_until_blocked(client, call, &error);
        expect(status, n_sent + n < PACKET_BYTES ? SLUICE_CLIENT_PENDING : SLUICE_CLIENT_OK, "");
    }
}

static void buffer_million_items_are_sent_and_received(void **state) {
    (void)state;
    sluice_mip_item *items = calloc(N_ITEMS, sizeof(*items));
    assert_non_null(items);
    for (size_t i = 0; i < N_ITEMS; i++) {
        items[i] = (sluice_mip_item){.size = sizeof(sluice_mip_item),
                                     .type = SLUICE_MIP_JSON,
                                     .data = "[7]",
                                     .n_bytes = ITEM_BYTES};
    }
    const sluice_mip_request request = {
        .size = sizeof(request), .items = items, .n_inputs = N_INPUTS, .batch = BATCH};
    sluice_mip_answer answer = {.size = sizeof(answer)};
    open_client(true, 0);
    expect(sluice_client_start_mip_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK,
           "");
    receive_many();
    answer_many();
    assert_int_equal(sluice_call_mip_answer(call, &answer), SLUICE_CLIENT_OK);
    assert_int_equal(answer.batch, BATCH);
    assert_int_equal(answer.n_outputs, N_INPUTS);
    for (size_t i = 0; i < N_ITEMS; i++) {
        sluice_mip_item made = {.size = sizeof(made)};
        assert_true(sluice_call_mip_item(call, i, &made) == SLUICE_CLIENT_OK);
        assert_true(made.type == SLUICE_MIP_JSON && made.n_bytes == 3 &&
                    memcmp(made.data, "[7]", 3) == 0);
    }
    free(items);
    close_client();
}

/* ---- answers before the request is sent ------------------------------------------------------ */

static char large[8 << 20];

/* A server without memory for the announced size answers at once and stops reading. */
static void buffer_error_before_request_sent_is_returned(void **state) {
    (void)state;
    const sluice_mip_item picture = {.size = sizeof(sluice_mip_item),
                                     .type = SLUICE_MIP_IMAGE,
                                     .data = large,
                                     .n_bytes = sizeof(large)};
    const sluice_mip_request request = {
        .size = sizeof(request), .items = &picture, .n_inputs = 1, .batch = 1};
    for (int hangs_up = 0; hangs_up < 2; hangs_up++) {
        open_client(true, 0);
        expect(sluice_client_start_mip_infer(client, &request, NULL, &call, &error),
               SLUICE_CLIENT_OK, "");
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
        assert_true(peer_accept(&peer));
        peer_send(&peer, "\0\0\3\0\0\0\0\0", 8);
        shutdown(peer.fd, SHUT_RD);
        if (hangs_up) {
            shutdown(peer.fd, SHUT_WR);
        }
        expect(client_run_to_end(client, call, &error), SLUICE_CLIENT_SERVER_ERROR,
               "MIP error 3, MEMORY");
        assert_int_equal(error.mip_error, SLUICE_MIP_MEMORY);
        assert_int_equal(error.http_status, 0);
        good_mip(NULL, 0);
        close_client();
    }
}

/* The server closes the connection in the middle of the request: an error on a new connection;
 * on a reused one the request is sent again. */
static void buffer_close_within_request_fails_or_retries(void **state) {
    (void)state;
    const sluice_mip_item picture = {.size = sizeof(sluice_mip_item),
                                     .type = SLUICE_MIP_IMAGE,
                                     .data = large,
                                     .n_bytes = sizeof(large)};
    const sluice_mip_request request = {
        .size = sizeof(request), .items = &picture, .n_inputs = 1, .batch = 1};
    open_client(true, 0);
    for (int used = 0; used < 2; used++) {
        expect(sluice_client_start_mip_infer(client, &request, NULL, &call, &error),
               SLUICE_CLIENT_OK, "");
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
        assert_int_equal(peer_accept(&peer), !used);
        assert_true(peer_read(&peer) > 0);
        expect(client_step_until_blocked(client, call, &error), SLUICE_CLIENT_PENDING,
               "not done yet");
        peer_disconnect(&peer);
        sluice_client_status status = client_step_until_blocked(client, call, &error);
        if (used) {
            expect(status, SLUICE_CLIENT_PENDING, "not done yet");
            assert_true(peer_accept(&peer));
            peer_disconnect(&peer);
            status = client_step_until_blocked(client, call, &error);
        }
        expect(status, SLUICE_CLIENT_CLOSED, "sending to /tmp/");
        assert_false(peer_accept(&peer));
        good_mip(NULL, 0);
    }
    close_client();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffer_each_output_is_copied_or_too_small),
        cmocka_unit_test(buffer_huge_http_answer_is_refused),
        cmocka_unit_test(buffer_mip_payload_is_received_or_too_small),
        cmocka_unit_test(buffer_huge_mip_answer_is_refused),
        cmocka_unit_test(buffer_million_items_are_sent_and_received),
        cmocka_unit_test(buffer_error_before_request_sent_is_returned),
        cmocka_unit_test(buffer_close_within_request_fails_or_retries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
