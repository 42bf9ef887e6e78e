/* The MIP exchange: the packets sent are the reference's, and both directions work with pieces
 * of any size. */
#include "client/connection/mip_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/connection/session_fixture.h"

enum { MAX_ANSWER_BYTES = 100000, PACKET_BYTES = 256 };

static struct mip_session *session;
static struct session *base;

static int start(void **state) {
    (void)state;
    session = mip_session_new(MAX_ANSWER_BYTES);
    assert_non_null(session);
    base = mip_session_base(session);
    return 0;
}

static int stop(void **state) {
    (void)state;
    mip_session_free(session);
    return 0;
}

/* Reads a packet of tests/vectors/mip. Returns: its size. */
static size_t load(const char *name, char out[PACKET_BYTES]) {
    char path[128], digits[3] = "";
    size_t n = 0;
    snprintf(path, sizeof(path), "tests/vectors/mip/%s.hex", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fread(digits, 1, 2, file) == 2) {
        assert_true(n < PACKET_BYTES);
        out[n++] = (char)strtoul(digits, NULL, 16);
        (void)fgetc(file);
    }
    fclose(file);
    return n;
}

static struct mip_item items[] = {{MIP_JSON, {"[1, 2]", 6}},
                                  {MIP_JSON, {"[3, 4]", 6}},
                                  {MIP_JSON, {"[5, 6]", 6}},
                                  {MIP_JSON, {"[7, 8]", 6}}};
static const struct mip_infer infer = {.n_inputs = 2, .batch = 2, .items = items, .n_items = 4};

static void begin(void *buffer, size_t n_bytes) {
    uint32_t size;
    struct error err;
    assert_int_equal(mip_infer_size(&infer, false, &size, &err), ST_OK);
    assert_int_equal(mip_session_begin_infer(session, &infer, size, buffer, n_bytes, &err), ST_OK);
}

static void mip_session_ping_completes_at_any_split(void **state) {
    (void)state;
    char request[PACKET_BYTES], answer[PACKET_BYTES], sent[PACKET_BYTES];
    size_t n_request = load("ping-request", request), n_answer = load("ping-response", answer);
    for (size_t step = 1; step < 10; step++) {
        enum status status;
        struct error err = {0};
        mip_session_begin_ping(session);
        assert_int_equal(session_send(base, sent, step, 1), n_request);
        assert_memory_equal(sent, request, n_request);
        assert_false(base->answered);
        assert_int_equal(session_answer(base, answer, n_answer, step, &status, &err), 0);
        assert_true(status == ST_OK && base->done && base->answered && base->reusable);
        assert_int_equal(mip_session_outcome(session), MIP_ANSWERED);
    }
}

static void mip_session_request_is_sent_in_any_pieces(void **state) {
    (void)state;
    char request[PACKET_BYTES], sent[PACKET_BYTES];
    size_t n_request = load("infer-json-2x2-request", request);
    for (size_t step = 1; step <= n_request; step++) {
        for (size_t max = 1; max < 12; max++) {
            begin(NULL, 0);
            for (int twice = 0; twice < 2; twice++) {
                assert_int_equal(session_send(base, sent, step, max), n_request);
                assert_memory_equal(sent, request, n_request);
                base->ops->restart(base);
            }
        }
    }
}

/* Into the session's own buffer, and into caller's buffers, one of exactly the right size. */
static void mip_session_answer_fills_buffer_at_any_split(void **state) {
    (void)state;
    char answer[PACKET_BYTES], sent[PACKET_BYTES], room[PACKET_BYTES];
    size_t n_answer = load("infer-json-2x2-response", answer), n = n_answer - MIP_HEADER_BYTES;
    const size_t rooms[] = {0, n, n + 1, sizeof(room)};
    for (size_t i = 0; i < 4; i++) {
        for (size_t step = 1; step <= n_answer; step++) {
            enum status status;
            struct error err = {0};
            begin(rooms[i] > 0 ? room : NULL, rooms[i]);
            session_send(base, sent, 1000, 64);
            assert_int_equal(session_answer(base, answer, n_answer, step, &status, &err), 0);
            assert_true(status == ST_OK && base->done && base->reusable);
            assert_int_equal(mip_session_outcome(session), MIP_ANSWERED);
            struct str payload = mip_session_payload(session);
            assert_int_equal(payload.len, n);
            assert_memory_equal(payload.ptr, answer + MIP_HEADER_BYTES, n);
            assert_true(rooms[i] == 0 || payload.ptr == room);
        }
    }
}

/* An answer larger than the first block; its first bytes come with the header. */
static void mip_session_large_answer_grows_block(void **state) {
    (void)state;
    enum { N = 90000 };
    static char packet[MIP_HEADER_BYTES + N];
    const struct mip_header header = {.kind = MIP_INFER, .subtype = MIP_RESPONSE, .n_bytes = N};
    mip_header_encode(&header, packet);
    for (size_t i = 0; i < N; i++) {
        packet[MIP_HEADER_BYTES + i] = (char)(i * 7 >> 3);
    }
    const size_t steps[] = {1, 5000, 20000, sizeof(packet)};
    for (size_t i = 0; i < 4; i++) {
        enum status status;
        struct error err = {0};
        mip_session_free(session);
        start(NULL);
        begin(NULL, 0);
        assert_int_equal(session_answer(base, packet, sizeof(packet), steps[i], &status, &err), 0);
        assert_true(base->done && status == ST_OK);
        assert_memory_equal(mip_session_payload(session).ptr, packet + MIP_HEADER_BYTES, N);
    }
}

static void mip_session_error_packet_sets_code(void **state) {
    (void)state;
    static const char *const names[MIP_ERRORS] = {"error-protocol", "error-subtype",
                                                  "error-method",   "error-memory",
                                                  "error-shape",    "error-internal"};
    char room[PACKET_BYTES], answer[PACKET_BYTES + 20];
    for (size_t code = 0; code < MIP_ERRORS; code++) {
        size_t n = load(names[code], answer);
        for (size_t extra = 0; extra < 20; extra += 19) { /* the reference drops a payload too */
            answer[7] = (char)extra;
            for (size_t step = 1; step < 40; step += 3) {
                enum status status;
                struct error err = {0};
                begin(room, 10);
                session_send(base, room, 1000, 64);
                assert_int_equal(session_answer(base, answer, n + extra, step, &status, &err), 0);
                assert_true(status == ST_OK && base->done && base->outcome_known && base->reusable);
                assert_int_equal(mip_session_outcome(session), MIP_REFUSED);
                assert_int_equal(mip_session_error(session), code);
            }
        }
    }
}

struct header_row {
    const char *bytes; /* 8 bytes */
    bool ping, ended;  /* ended: the server closes the connection after them */
    enum status status;
    const char *says;
    enum mip_outcome outcome;
    bool done, reusable;
};

static void check_header(const struct header_row *row, size_t step) {
    enum status status;
    struct error err = {0};
    char room[PACKET_BYTES];
    if (row->ping) {
        mip_session_begin_ping(session);
    } else {
        begin(room, 100);
    }
    session_send(base, room, 1000, 64);
    session_answer(base, row->bytes, MIP_HEADER_BYTES, step, &status, &err);
    if (status == ST_OK && row->ended) {
        status = base->ops->closed(base, &err);
    }
    if (status != row->status || (row->says && !strstr(err.text, row->says))) {
        fail_msg("expected %d \"%s\": %d \"%s\"", (int)row->status, row->says, (int)status,
                 err.text);
    }
    assert_int_equal(base->done, row->done);
    if (base->done) {
        assert_int_equal(mip_session_outcome(session), row->outcome);
        assert_int_equal(base->reusable, row->reusable);
    }
}

static void mip_session_bad_header_is_refused(void **state) {
    (void)state;
    static const struct header_row rows[] = {
        {"\1\2\1\0\0\0\0\4", .status = ST_BAD_ANSWER, .says = "not MIP version 0"},
        {"HTTP/1.1", .status = ST_BAD_ANSWER, .says = "not MIP but HTTP"},
        {"\0\2\0\0\0\0\0\4", .status = ST_BAD_ANSWER, .says = "got kind 2 and subtype 0"},
        {"\0\1\1\0\0\0\0\0", .status = ST_BAD_ANSWER, .says = "expected kind 2 and subtype 1"},
        {"\0\7\1\0\0\0\0\0", .status = ST_BAD_ANSWER, .says = "got kind 7"},
        {"\0\2\1\0\0\0\0\0", .ping = true, .status = ST_BAD_ANSWER, .says = "expected kind 1"},
        {"\0\1\1\0\0\0\0\1", .ping = true, .status = ST_BAD_ANSWER, .says = "no payload"},
        {"\0\2\1\0\0\0\0\3", .status = ST_BAD_ANSWER, .says = "at least 4 bytes, got 3"},
        {"\0\2\1\0\xff\xff\xff\xff", .status = ST_BODY_TOO_LARGE, .says = "max_answer_bytes"},
        {"\0\2\1\0\0\1\x86\xa1", .status = ST_BODY_TOO_LARGE, .says = "100001 bytes, and 100000"},
        {"\0\2\1\0\0\0\0\x40", .ended = true, .status = ST_BAD_ANSWER, .says = "in the middle"},
        /* a buffer of 100 bytes: the payload is dropped */
        {"\0\2\1\0\0\0\0\x65", .done = false},
        {"\0\2\1\0\0\0\0\x65", .ended = true, .outcome = MIP_BUFFER_TOO_SMALL, .done = true},
        /* errors: an undefined code, and payloads too large to drain */
        {"\0\0\x9\0\0\0\0\0", .outcome = MIP_REFUSED, .done = true, .reusable = true},
        {"\0\0\4\xff\0\0\0\0", .outcome = MIP_REFUSED, .done = true, .reusable = true},
        {"\0\0\4\0\0\0\0\1", .done = false},
        {"\0\0\4\0\0\0\0\1", .ended = true, .outcome = MIP_REFUSED, .done = true},
        {"\0\0\4\0\xff\xff\xff\xff", .outcome = MIP_REFUSED, .done = true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (size_t step = 1; step <= MIP_HEADER_BYTES; step++) {
            check_header(&rows[i], step);
        }
    }
}

/* A closed connection is retried only if no byte was received. */
static void mip_session_close_before_answer_is_io_error(void **state) {
    (void)state;
    struct error err = {0};
    enum status status;
    mip_session_begin_ping(session);
    assert_int_equal(base->ops->closed(base, &err), ST_IO);
    assert_non_null(strstr(err.text, "without an answer"));
    assert_false(base->answered);
    mip_session_begin_ping(session);
    session_answer(base, "\0", 1, 1, &status, &err);
    assert_int_equal(base->ops->closed(base, &err), ST_BAD_ANSWER);
    assert_true(base->answered);
}

/* After an answer that came before the request was sent, or with extra bytes, the connection
 * can't be reused. */
static void mip_session_extra_bytes_prevent_reuse(void **state) {
    (void)state;
    char answer[PACKET_BYTES], sent[PACKET_BYTES];
    size_t n_answer = load("error-memory", answer);
    struct iovec out[4];
    enum status status;
    struct error err = {0};
    begin(NULL, 0);
    base->ops->sent(base, 30);
    session_answer(base, answer, n_answer, 100, &status, &err);
    assert_true(base->done && !base->reusable);

    begin(NULL, 0);
    base->ops->sent(base, 30);
    base->ops->drop_output(base);
    assert_int_equal(base->ops->output(base, out, 4), 0);
    session_answer(base, answer, n_answer, 100, &status, &err);
    assert_true(base->done && !base->reusable);

    begin(NULL, 0);
    session_send(base, sent, 1000, 64);
    session_answer(base, answer, n_answer + 1, 100, &status, &err);
    assert_true(base->done && !base->reusable);
    assert_int_equal(mip_session_outcome(session), MIP_REFUSED);
}

/* Random input always ends the session in a valid state. */
static void mip_session_random_bytes_end_in_order(void **state) {
    (void)state;
    uint32_t seed = 1;
    char bytes[PACKET_BYTES], room[64];
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[i] = (char)(i < 7 ? seed >> 30 : seed >> 24); /* headers that are nearly valid */
        }
        bytes[0] = bytes[4] = bytes[5] = 0;
        enum status status;
        struct error err = {0};
        if (round % 5 == 0) {
            mip_session_begin_ping(session);
        } else {
            begin(round % 2 ? room : NULL, sizeof(room));
        }
        session_answer(base, bytes, sizeof(bytes), 1 + seed % 40, &status, &err);
        assert_true(base->answered);
        if (status == ST_OK && !base->done) {
            status = base->ops->closed(base, &err);
        }
        assert_true(status == ST_OK ? base->done : status == ST_BAD_ANSWER && err.text[0]);
        if (base->done && mip_session_outcome(session) == MIP_ANSWERED && round % 5 != 0) {
            struct str payload = mip_session_payload(session);
            size_t n = payload.len < sizeof(bytes) - 8 ? payload.len : sizeof(bytes) - 8;
            assert_memory_equal(payload.ptr, bytes + 8, n);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_session_ping_completes_at_any_split),
        cmocka_unit_test(mip_session_request_is_sent_in_any_pieces),
        cmocka_unit_test(mip_session_answer_fills_buffer_at_any_split),
        cmocka_unit_test(mip_session_large_answer_grows_block),
        cmocka_unit_test(mip_session_error_packet_sets_code),
        cmocka_unit_test(mip_session_bad_header_is_refused),
        cmocka_unit_test(mip_session_close_before_answer_is_io_error),
        cmocka_unit_test(mip_session_extra_bytes_prevent_reuse),
        cmocka_unit_test(mip_session_random_bytes_end_in_order),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
