/* Sessions under attack: each abuse is counted and capped, the connection is closed with the right
 * error code, and a correct client is not affected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/server/grpc/raw_fixture.h"

static void assert_goaway(const struct grpc_fixture *fixture, uint32_t code) {
    struct str payload = raw_find(fixture, NGHTTP2_GOAWAY, 0);
    assert_true(payload.len >= 8);
    assert_int_equal((unsigned char)payload.ptr[7], code);
    assert_true(grpc_session_is_done(&fixture->session));
    assert_true(fixture->refused[0] != '\0');
}

static void assert_alive(const struct grpc_fixture *fixture) {
    assert_null(raw_find(fixture, NGHTTP2_GOAWAY, 0).ptr);
    assert_false(grpc_session_is_done(&fixture->session));
}

/* Calls reset before their response: a bounded multiple of max_streams is alive, and finally the
 * connection ends. */
static void rapid_reset_bounds_live_calls_and_ends_connection(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    size_t most = 0;
    for (int i = 0; i < 1000; i++) {
        raw_call(&raw, "/t.T/Later", 0);
        raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
        raw_feed(fixture, &raw);
        most = fixture->n_alive > most ? fixture->n_alive : most;
    }
    assert_int_equal(most, 4 * fixture->options.limits.max_streams);
    struct str refused = raw_find(fixture, NGHTTP2_RST_STREAM, raw.id);
    assert_true(refused.len == 4 && refused.ptr[3] == NGHTTP2_REFUSED_STREAM);
    for (size_t i = 0; i < MOST_CALLS; i++) { /* those that the service recorded */
        if (fixture->service.calls[i].call) {
            recorded_call_finish(&fixture->service.calls[i], NULL);
        }
    }
    grpc_core_sweep(&fixture->core);
    raw_end(&raw);
    /* The other calls are not recorded: finish them. */
    struct grpc_stream *stream;
    while ((stream = TAILQ_FIRST(&fixture->session.streams))) {
        static struct recorded_call forgotten;
        forgotten = (struct recorded_call){.call = &stream->call};
        stream->call.user = &forgotten;
        recorded_call_finish(&forgotten, NULL);
        grpc_core_sweep(&fixture->core);
    }
    grpc_fixture_free(fixture);
}

static void reset_flood_ends_connection(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    for (int i = 0; i < 40000; i++) {
        raw_call(&raw, "/t.T/Echo", 0);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
    }
    raw_feed(fixture, &raw);
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* Calls that are refused at once, and reset before the refusal is sent. */
static void reset_flood_of_refused_calls_ends_connection(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    for (int i = 0; i < 40000; i++) {
        raw_call(&raw, "/t.T/Nowhere", i % 2 ? NGHTTP2_FLAG_END_STREAM : 0);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
    }
    raw_feed(fixture, &raw);
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* Resets that the server sends because of an invalid frame count as well. */
static void provoked_resets_end_connection(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    for (int i = 0; i < 40000; i++) {
        raw_call(&raw, "/t.T/Echo", 0);
        raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, raw.id, INT32_MAX); /* overflows */
    }
    raw_feed(fixture, &raw);
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* Proxies end each call so: after its response, with or without END_STREAM. */
static void resets_after_responses_are_allowed(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    for (int i = 0; i < 50000; i++) {
        raw_call(&raw, "/t.T/Bidi", 0);
        raw_frame(&raw, NGHTTP2_DATA, 0, raw.id, "\0\0\0\0\1a", 6);
        raw_feed(fixture, &raw);
        assert_true(fixture->raw_len > 0);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_INTERNAL_ERROR);
        fixture->raw_len = i + 1 < 50000 ? 0 : fixture->raw_len;
        if (i % 1000 == 999) { /* acknowledges windows */
            raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, 0, 6000);
        }
    }
    raw_feed(fixture, &raw);
    assert_alive(fixture);
    assert_int_equal(fixture->n_alive, 0);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

static void flood(void (*frame)(struct raw *raw), int n, bool ends) {
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    raw_call(&raw, "/t.T/Bidi", 0);
    for (int i = 0; i < n; i++) {
        frame(&raw);
        if (i % 500 == 499) { /* below nghttp2's own limits */
            raw_feed(fixture, &raw);
        }
    }
    raw_feed(fixture, &raw);
    if (ends) {
        assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    } else {
        assert_alive(fixture);
    }
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

static void frame_ping(struct raw *raw) {
    raw_frame(raw, NGHTTP2_PING, 0, 0, "12345678", 8);
}

static void frame_settings(struct raw *raw) {
    raw_frame(raw, NGHTTP2_SETTINGS, 0, 0, "\0\3\0\0\0\x64", 6);
}

static void frame_empty(struct raw *raw) {
    raw_frame(raw, NGHTTP2_DATA, 0, raw->id, "", 0);
}

static void frame_padding(struct raw *raw) {
    raw_frame(raw, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, raw->id, "\2\0\0", 3);
}

/* PINGs between calls, as a client that measures the round trip sends them. */
static void frame_ping_and_call(struct raw *raw) {
    frame_ping(raw);
    raw_frame(raw, NGHTTP2_DATA, 0, raw->id, "\0\0\0\0\0", 5);
}

static void frame_priority(struct raw *raw) {
    raw_frame(raw, NGHTTP2_PRIORITY, 0, raw->id + 200, "\0\0\0\0\5", 5);
}

static void frame_window_update(struct raw *raw) {
    raw_u32(raw, NGHTTP2_WINDOW_UPDATE, 0, 1);
}

static void frame_window_update_of_stream(struct raw *raw) {
    raw_u32(raw, NGHTTP2_WINDOW_UPDATE, raw->id, 1);
}

static void frame_unknown(struct raw *raw) {
    raw_frame(raw, 0x77, 0, 0, "abc", 3);
}

static void frame_goaway(struct raw *raw) {
    raw_frame(raw, NGHTTP2_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8);
}

static void control_frame_floods_end_connection(void **state) {
    (void)state;
    flood(frame_ping, 3000, true);
    flood(frame_ping, 1000, false);
    flood(frame_settings, 3000, true);
    flood(frame_empty, 3000, true);
    flood(frame_padding, 3000, true);
    flood(frame_priority, 3000, true);
    flood(frame_window_update, 3000, true);
    flood(frame_window_update, 1000, false);
    flood(frame_window_update_of_stream, 3000, true);
    flood(frame_unknown, 3000, true);
    flood(frame_unknown, 1000, false);
    flood(frame_goaway, 3000, true);
}

static void pings_during_data_are_allowed(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    raw_call(&raw, "/t.T/Bidi", 0);
    for (int i = 0; i < 10000; i++) {
        frame_ping_and_call(&raw);
        raw_feed(fixture, &raw);
    }
    assert_alive(fixture);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* Readers return the windows of each DATA frame, in one piece or in several. */
static void window_updates_for_data_are_allowed(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    raw_call(&raw, "/t.T/Bidi", 0);
    char message[5 + 4096] = "\0\0\0\20\0";
    for (int i = 0; i < 10000; i++) {
        raw_frame(&raw, NGHTTP2_DATA, 0, raw.id, "\0\0\0\0\1a", 6);
        raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, 0, 6);
        raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, raw.id, 6);
        raw_feed(fixture, &raw);
        fixture->raw_len = 0;
    }
    for (int i = 0; i < 1000; i++) {
        raw_frame(&raw, NGHTTP2_DATA, 0, raw.id, message, sizeof(message));
        for (int j = 0; j < 6; j++) {
            raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, j % 2 ? 0 : raw.id, j < 4 ? 1024 : 2053);
        }
        raw_feed(fixture, &raw);
        fixture->raw_len = i + 1 < 1000 ? 0 : fixture->raw_len;
    }
    assert_alive(fixture);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* WINDOW_UPDATE counts on closed streams as well. */
static void window_update_flood_on_closed_stream_ends_connection(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    raw_call(&raw, "/t.T/Echo", 0);
    raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
    raw_feed(fixture, &raw);
    for (int i = 0; i < 3000; i++) {
        frame_window_update_of_stream(&raw);
    }
    raw_feed(fixture, &raw);
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* Calls, each with a head of `n` references to one entry of 4000 bytes. Returns: whether the
 * connection lives. */
static bool survives_calls_with_references(size_t max_header_size, size_t n, int n_calls) {
    enum { CALLS_AT_ONCE = 50 };
    struct grpc_limits limits = grpc_fixture_limits();
    limits.net.max_header_size = max_header_size;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    grpc_fixture_open_client(fixture, NULL, 0);
    struct raw raw;
    static char block[8000];
    raw_begin(&raw);
    for (int i = 0; i < n_calls; i++) {
        size_t len = raw_head(block, "/t.T/Nowhere");
        if (i == 0) { /* a: 4000 bytes, kept in the table */
            memcpy(block + len, "\x40\1a\x7f\xa1\x1e", 6);
            len += 6;
            memset(block + len, 'v', 4000);
            len += 4000;
        } else {
            memset(block + len, 0xbe, n);
            len += n;
        }
        raw.id += 2;
        raw_frame(&raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, raw.id,
                  block, len);
        if (i % CALLS_AT_ONCE == CALLS_AT_ONCE - 1) {
            raw_feed(fixture, &raw);
        }
    }
    raw_feed(fixture, &raw);
    bool lives = !fixture->session.terminating;
    if (lives) {
        assert_int_equal(fixture->n_alive, 0);
    } else {
        assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    }
    raw_end(&raw);
    grpc_fixture_free(fixture);
    return lives;
}

/* Each head costs the client a few bytes: refused for its size, or within it. One entry for each
 * call is what clients do. */
static void repeated_header_entries_end_connection(void **state) {
    (void)state;
    assert_false(survives_calls_with_references(8192, 3, 3000));
    assert_true(survives_calls_with_references(8192, 3, 1500));
    assert_false(survives_calls_with_references(65536, 14, 3000));
    assert_true(survives_calls_with_references(65536, 1, 10000));
}

/* A peer that sends control frames and reads nothing. */
static void unread_acks_end_connection(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    raw_feed(fixture, &raw);
    fixture->no_reading = true;
    for (int i = 0; i < 1500; i++) {
        frame_ping(&raw);
    }
    raw_feed(fixture, &raw);
    assert_true(fixture->session.terminating);
    fixture->no_reading = false;
    while (grpc_fixture_run_once(fixture)) {
    }
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* A peer that reads no responses: finally the server stops reading. */
static void unread_responses_stop_reading(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    grpc_fixture_feed(fixture, raw.bytes, raw.n);
    /* A write is in progress. */
    assert_true(grpc_session_collect_output(&fixture->session, fixture->output));
    assert_true(grpc_session_wants_input(&fixture->session));
    raw.n = 0;
    for (int i = 0; i < 2000; i++) {
        raw_call(&raw, "/t.T/Nothing", NGHTTP2_FLAG_END_STREAM);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
    }
    grpc_fixture_feed(fixture, raw.bytes, raw.n);
    assert_false(grpc_session_wants_input(&fixture->session));
    assert_int_equal(fixture->n_alive, 0);
    fixture->keep_raw = true;
    grpc_fixture_deliver(fixture);
    while (grpc_fixture_run_once(fixture)) {
    }
    assert_true(grpc_session_wants_input(&fixture->session));
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

static void continuation_flood_ends_connection(void **state) {
    (void)state;
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    raw_begin(&raw);
    raw_frame(&raw, NGHTTP2_HEADERS, 0, 1, "\x83\x86", 2);
    for (int i = 0; i < 100; i++) {
        raw_frame(&raw, NGHTTP2_CONTINUATION, 0, 1, "", 0);
    }
    raw_feed(fixture, &raw);
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* One entry of the dynamic table, indexed again and again: each byte expands to 4000. */
static void bomb(bool trailers) {
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    static char block[20000];
    raw_begin(&raw);
    if (trailers) {
        raw_call(&raw, "/t.T/Bidi", 0);
    } else {
        raw.id += 2;
    }
    size_t n = trailers ? 0 : raw_head(block, "/t.T/Bidi");
    memcpy(block + n, "\x40\1a\x7f\xa1\x1e", 6); /* a: 4000 bytes, kept in the table */
    n += 6;
    memset(block + n, 'v', 4000);
    n += 4000;
    memset(block + n, 0xbe, 10000);
    n += 10000;
    raw_frame(&raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, raw.id,
              block, n);
    raw_feed(fixture, &raw);
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_true(fixture->session.head_bytes < 9 * fixture->options.limits.net.max_header_size);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

static void header_bombs_end_connection(void **state) {
    (void)state;
    bomb(false);
    bomb(true);
}

/* Many empty fields. */
static void many_empty_fields_are_refused(void **state) {
    (void)state;
    struct grpc_limits limits = grpc_fixture_limits();
    limits.net.max_header_size = 65536;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    grpc_fixture_open_client(fixture, NULL, 0);
    struct raw raw;
    char block[1000];
    raw_begin(&raw);
    size_t n = raw_head(block, "/t.T/Echo");
    for (int i = 0; i < 300; i++) {
        memcpy(block + n, "\x90", 1); /* accept-encoding: gzip, deflate */
        n++;
    }
    raw_frame(&raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1, block,
              n);
    raw_feed(fixture, &raw);
    assert_alive(fixture);
    assert_true(raw_find(fixture, NGHTTP2_HEADERS, 1).ptr != NULL);
    assert_int_equal(fixture->n_alive, 0);
    assert_non_null(strstr(fixture->refused, "256 fields"));
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* Adds the head of a call of /t.T/Deaf with a field of 4000 bytes: new, and kept in the compression
 * table (`first`), or `n` references to it. */
static void call_with_large_fields(struct raw *raw, bool first, size_t n) {
    char block[8000];
    size_t len = raw_head(block, "/t.T/Deaf");
    if (first) {
        memcpy(block + len, "\x40\1a\x7f\xa1\x1e", 6);
        memset(block + len + 6, 'v', 4000);
        len += 6 + 4000;
    } else {
        memset(block + len, 0xbe, n);
        len += n;
    }
    raw->id += 2;
    raw_frame(raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, raw->id, block, len);
}

static struct grpc_fixture *fixture_of_large_heads(bool (*keeps_field)(struct str, void *)) {
    struct grpc_limits limits = grpc_fixture_limits();
    limits.net.max_header_size = 65536;
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    fixture->options.keeps_field = keeps_field;
    grpc_fixture_open_client(fixture, NULL, 0);
    return fixture;
}

/* A streaming call lives as long as its client wants, and its metadata with it. */
static void metadata_of_live_calls_counts_against_budget(void **state) {
    (void)state;
    enum { FIELD = 4000 + 1 + 32, N = 14 };
    struct grpc_fixture *fixture = fixture_of_large_heads(NULL);
    struct raw raw;
    raw_begin(&raw);
    call_with_large_fields(&raw, true, 0);
    raw_feed(fixture, &raw);
    uint64_t one = fixture->budget.n_body_bytes;
    assert_true(one > 0 && one < FIELD); /* a part of it is free */
    call_with_large_fields(&raw, false, N);
    raw_feed(fixture, &raw);
    assert_int_equal(fixture->budget.n_body_bytes, 2 * one + (N - 1) * FIELD);
    raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
    raw_feed(fixture, &raw);
    for (size_t i = 0; i < fixture->service.n; i++) {
        if (fixture->service.calls[i].n_cancelled) {
            recorded_call_finish(&fixture->service.calls[i], NULL);
        }
    }
    grpc_core_sweep(&fixture->core);
    assert_int_equal(fixture->budget.n_body_bytes, one);
    fixture->budget.body_memory = one + 1000;
    call_with_large_fields(&raw, false, N);
    raw_feed(fixture, &raw);
    assert_non_null(strstr(fixture->refused, "metadata of calls"));
    assert_non_null(strstr(fixture->refused, "--body-memory"));
    assert_int_equal(fixture->budget.n_body_bytes, one);
    assert_alive(fixture);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

static bool keeps_x(struct str name, void *context) {
    (void)context;
    return str_is(name, "x");
}

static void unused_metadata_is_not_kept(void **state) {
    (void)state;
    struct grpc_fixture *fixture = fixture_of_large_heads(keeps_x);
    struct raw raw;
    raw_begin(&raw);
    call_with_large_fields(&raw, true, 0);
    call_with_large_fields(&raw, false, 14);
    raw_feed(fixture, &raw);
    assert_int_equal(fixture->service.n, 2);
    assert_int_equal(fixture->budget.n_body_bytes, 0);
    assert_int_equal(fixture->service.calls[1].call->n_fields, 1); /* content-type */
    char block[200];
    size_t len = raw_head(block, "/t.T/Deaf");
    memcpy(block + len, "\0\1x\1y\0\1z\1y\0\5a-bin\3YQ=", 21);
    raw.id += 2;
    raw_frame(&raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, raw.id, block, len + 10);
    raw_feed(fixture, &raw);
    assert_int_equal(fixture->service.n, 3);
    assert_int_equal(fixture->service.calls[2].call->n_fields, 2);
    assert_true(str_is(grpc_find_field(fixture->service.calls[2].call, "x", NULL), "y"));
    raw.id += 2; /* an invalid field is an error, used or not */
    raw_frame(&raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, raw.id, block, len + 21);
    raw_feed(fixture, &raw);
    assert_int_equal(fixture->service.n, 3);
    assert_non_null(strstr(fixture->refused, "a-bin"));
    assert_alive(fixture);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* An answered and closed call, whose stream nghttp2 has forgotten. */
static struct grpc_fixture *grpc_fixture_with_call(struct raw *raw) {
    struct grpc_fixture *fixture = grpc_fixture_open();
    raw_begin(raw);
    raw_call(raw, "/t.T/Echo", 0);
    raw_frame(raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw->id, "\0\0\0\0\1a", 6);
    raw_feed(fixture, raw);
    assert_true(raw_find(fixture, NGHTTP2_DATA, raw->id).len == 6);
    assert_null(nghttp2_session_find_stream(fixture->session.h2, raw->id));
    return fixture;
}

/* RFC 9113, 5.1: frames after END_STREAM are a connection error. */
static void frames_after_end_stream_end_connection(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct raw raw;
        struct grpc_fixture *fixture = grpc_fixture_with_call(&raw);
        if (i == 0) {
            raw_frame(&raw, NGHTTP2_DATA, 0, raw.id, "a", 1);
        } else if (i == 1) {
            raw.id -= 2;
            raw_call(&raw, "/t.T/Echo", 0);
        } else {
            raw_call(&raw, "/t.T/Bidi", 0);
            raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
            if (i == 2) {
                raw_feed(fixture, &raw);
            }
            raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "a", 1);
        }
        raw_feed(fixture, &raw);
        assert_goaway(fixture, NGHTTP2_STREAM_CLOSED);
        raw_end(&raw);
        grpc_fixture_free(fixture);
    }
}

/* nghttp2 gets nothing from the refused frame on: a call after it does not begin. */
static void call_after_refused_frame_does_not_begin(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) { /* in one piece with the refused frame; after it */
        struct raw raw;
        struct grpc_fixture *fixture = grpc_fixture_with_call(&raw);
        size_t n = fixture->service.n;
        raw_frame(&raw, NGHTTP2_DATA, 0, raw.id, "a", 1);
        if (i == 1) {
            raw_feed(fixture, &raw);
        }
        raw_call(&raw, "/t.T/Echo", 0);
        raw_feed(fixture, &raw);
        assert_goaway(fixture, NGHTTP2_STREAM_CLOSED);
        assert_int_equal(fixture->service.n, n);
        raw_end(&raw);
        grpc_fixture_free(fixture);
    }
}

/* PRIORITY frames count on closed streams as well. */
static void priority_flood_on_closed_stream_ends_connection(void **state) {
    (void)state;
    struct raw raw;
    struct grpc_fixture *fixture = grpc_fixture_with_call(&raw);
    for (int i = 0; i < 3000; i++) {
        raw_frame(&raw, NGHTTP2_PRIORITY, 0, raw.id, "\0\0\0\0\5", 5);
    }
    raw_feed(fixture, &raw);
    assert_goaway(fixture, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* Frames that are allowed after END_STREAM, or were in flight when the server reset the stream. */
static void late_frames_after_reset_are_allowed(void **state) {
    (void)state;
    struct raw raw;
    struct grpc_fixture *fixture = grpc_fixture_with_call(&raw);
    raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, raw.id, 1);
    raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
    raw_frame(&raw, NGHTTP2_PRIORITY, 0, raw.id, "\0\0\0\0\5", 5);
    raw_call(&raw, "/t.T/Nowhere", 0); /* refused before END_STREAM */
    raw_feed(fixture, &raw);
    assert_int_equal(raw_find(fixture, NGHTTP2_RST_STREAM, raw.id).len, 4);
    raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
    raw_feed(fixture, &raw);
    assert_alive(fixture);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

/* A violation of HTTP/2 ends the connection with nghttp2's error code. */
static void protocol_errors_send_goaway_with_code(void **state) {
    (void)state;
    static const struct {
        int type, flags;
        int32_t id;
        struct str payload;
        uint32_t code;
    } ROWS[] = {
        {NGHTTP2_DATA, 0, 0, {"a", 1}, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 2, {"\x83", 1}, NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_HEADERS,
         NGHTTP2_FLAG_END_HEADERS,
         1,
         {"\xff\xff\xff\xff\xff", 5},
         NGHTTP2_COMPRESSION_ERROR},
        {NGHTTP2_WINDOW_UPDATE, 0, 0, {"\x7f\xff\xff\xff", 4}, NGHTTP2_FLOW_CONTROL_ERROR},
        {NGHTTP2_PING, 0, 0, {"1234", 4}, NGHTTP2_FRAME_SIZE_ERROR},
        {NGHTTP2_PUSH_PROMISE,
         NGHTTP2_FLAG_END_HEADERS,
         1,
         {"\0\0\0\2", 4},
         NGHTTP2_PROTOCOL_ERROR},
        {NGHTTP2_SETTINGS, 0, 0, {"\0\4\xff\xff\xff\xff", 6}, NGHTTP2_FLOW_CONTROL_ERROR},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct grpc_fixture *fixture = grpc_fixture_open();
        struct raw raw;
        raw_begin(&raw);
        raw_frame(&raw, ROWS[i].type, ROWS[i].flags, ROWS[i].id, ROWS[i].payload.ptr,
                  ROWS[i].payload.len);
        raw_feed(fixture, &raw);
        assert_goaway(fixture, ROWS[i].code);
        raw_end(&raw);
        grpc_fixture_free(fixture);
    }
}

/* Small messages of one frame are read in slices, between which other connections are served. The
 * order of what follows stays. */
static void many_messages_of_a_frame_are_read_in_slices(void **state) {
    (void)state;
    enum { N_MESSAGES = 1000 };
    struct grpc_fixture *fixture = grpc_fixture_open();
    struct raw raw;
    char frame[5 * N_MESSAGES] = "";
    raw_begin(&raw);
    raw_call(&raw, "/t.T/Bidi", 0);
    raw_frame(&raw, NGHTTP2_DATA, 0, raw.id, frame, sizeof(frame));
    raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
    grpc_session_receive(&fixture->session, str_make(raw.bytes, raw.n));
    struct recorded_call *recorded = &fixture->service.calls[0];
    int n_slices = 1, n_before = recorded->n_messages;
    assert_in_range(n_before, 1, N_MESSAGES / 4);
    while (!TAILQ_EMPTY(&fixture->core.inflating)) {
        grpc_core_inflate_more(&fixture->core);
        assert_in_range(recorded->n_messages - n_before, 1, N_MESSAGES / 4);
        n_before = recorded->n_messages;
        n_slices++;
    }
    assert_true(n_slices > 4);
    assert_int_equal(recorded->n_messages, N_MESSAGES + 1);
    assert_int_equal(recorded->n_bytes, 1);
    assert_int_equal(recorded->n_half_closed, 1);
    raw.n = 0;
    raw_feed(fixture, &raw);
    raw_end(&raw);
    grpc_fixture_free(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rapid_reset_bounds_live_calls_and_ends_connection),
        cmocka_unit_test(reset_flood_ends_connection),
        cmocka_unit_test(reset_flood_of_refused_calls_ends_connection),
        cmocka_unit_test(provoked_resets_end_connection),
        cmocka_unit_test(resets_after_responses_are_allowed),
        cmocka_unit_test(control_frame_floods_end_connection),
        cmocka_unit_test(pings_during_data_are_allowed),
        cmocka_unit_test(window_updates_for_data_are_allowed),
        cmocka_unit_test(window_update_flood_on_closed_stream_ends_connection),
        cmocka_unit_test(repeated_header_entries_end_connection),
        cmocka_unit_test(unread_acks_end_connection),
        cmocka_unit_test(unread_responses_stop_reading),
        cmocka_unit_test(continuation_flood_ends_connection),
        cmocka_unit_test(header_bombs_end_connection),
        cmocka_unit_test(many_empty_fields_are_refused),
        cmocka_unit_test(metadata_of_live_calls_counts_against_budget),
        cmocka_unit_test(unused_metadata_is_not_kept),
        cmocka_unit_test(frames_after_end_stream_end_connection),
        cmocka_unit_test(call_after_refused_frame_does_not_begin),
        cmocka_unit_test(priority_flood_on_closed_stream_ends_connection),
        cmocka_unit_test(late_frames_after_reset_are_allowed),
        cmocka_unit_test(protocol_errors_send_goaway_with_code),
        cmocka_unit_test(many_messages_of_a_frame_are_read_in_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
