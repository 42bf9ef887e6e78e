/* What a session does about clients that are slow, go away, take or send too much, or attack: each
 * rule by a test that shows the bound, and that a well-behaved client is not met by it. */
#include "net/grpc_session_fixture.h"

static struct str text_of(size_t n) {
    static char text[1 << 20];
    memset(text, 'm', sizeof(text));
    return str_make(text, n);
}

static void assert_grpc(const struct client_call *call, const char *status) {
    assert_string_equal(call->status, "200");
    assert_string_equal(call->grpc_status, status);
    assert_true(call->closed);
}

/* The connection still serves. */
static void assert_serves(struct world *world) {
    struct client_call *call = client_unary(&world->client, "/t.T/Echo", STR("still"));
    world_run(world);
    assert_grpc(call, "0");
}

static struct seen *seen_first(struct world *world, const char *path) {
    for (size_t i = 0; i < world->service.n; i++) {
        if (strcmp(world->service.calls[i].method, path) == 0) {
            return &world->service.calls[i];
        }
    }
    fail_msg("%s was not called", path);
    return NULL;
}

/* A client whose windows have so many bytes, and that does not open them. */
static struct world *world_stingy(uint32_t window) {
    struct grpc_limits limits = world_limits();
    struct world *world = world_new(&limits);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};
    world->client.stingy = true;
    world_open(world, settings, 1);
    world_run(world);
    return world;
}

/* ---- methods that do not read ---------------------------------------------------------------- */

/* No more than the stream's window is held for a method that does not read; others go on. */
static void test_deaf(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    for (int i = 0; i < 10; i++) {
        client_message(&world->client, call, false, text_of(100000).ptr, 100000);
    }
    client_end(&world->client, call);
    world_run(world);
    uint64_t window = world->options.limits.stream_window_bytes;
    assert_true(call->out_at <= window && call->out_at > window / 2);
    assert_true(world->budget.n_body_bytes <= 2 * window);
    assert_serves(world);
    const struct seen *seen = &world->service.calls[0];
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen->n_messages, i);
        grpc_read(seen->call);
        world_run(world);
    }
    assert_int_equal(seen->n_messages, 10);
    assert_int_equal(seen->n_bytes, 1000000);
    assert_int_equal(seen->n_half_closed, 0);
    grpc_read(seen->call);
    assert_int_equal(seen->n_half_closed, 1);
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_grpc(call, "0");
    world_end(world);
}

/* One that reads a message now and then: what is kept does not grow, whatever was sent. */
static void test_slow_reading(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    for (int i = 0; i < 2000; i++) {
        client_message(&world->client, call, false, text_of(700).ptr, 700);
    }
    world_run(world);
    for (int i = 0; i < 1900; i++) {
        assert_int_equal(world->service.calls[0].n_messages, i);
        grpc_read(world->service.calls[0].call);
        world_run(world);
        assert_true(world->budget.n_body_bytes <= 2 * world->options.limits.stream_window_bytes);
    }
    world_end(world);
}

/* A method that asks for many at once gets them as they come, and each once. */
static void test_reading_ahead(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    world_run(world);
    struct seen *seen = &world->service.calls[0];
    for (int i = 0; i < 5; i++) {
        grpc_read(seen->call);
    }
    for (int i = 0; i < 7; i++) {
        client_message(&world->client, call, false, "abc", 3);
    }
    client_end(&world->client, call);
    world_run(world);
    assert_int_equal(seen->n_messages, 5);
    grpc_read(seen->call);
    grpc_read(seen->call);
    assert_int_equal(seen->n_messages, 7);
    assert_int_equal(seen->n_half_closed, 0);
    grpc_read(seen->call);
    assert_int_equal(seen->n_half_closed, 1);
    seen_finish(seen, NULL);
    world_end(world);
}

/* All streams together are bounded by the budget. */
static void test_budget(void **state) {
    (void)state;
    struct world *world = world_begin();
    world->budget.body_memory_bytes = 200000;
    struct client_call *calls[20];
    for (int i = 0; i < 20; i++) {
        calls[i] = client_begin(&world->client, "/t.T/Deaf", NULL);
        client_message(&world->client, calls[i], false, text_of(30000).ptr, 30000);
        client_message(&world->client, calls[i], false, text_of(30000).ptr, 30000);
        world_run(world);
        assert_true(world->budget.n_body_bytes <= 200000);
    }
    assert_false(calls[0]->closed);
    for (int i = 0; i < 20; i++) { /* who failed holds nothing */
        if (world->service.calls[i].n_cancelled > 0) {
            assert_int_equal(world->service.calls[i].why, ST_OVERLOADED);
            seen_finish(&world->service.calls[i], NULL);
        }
    }
    client_end(&world->client, calls[19]);
    world_run(world);
    assert_string_equal(calls[19]->grpc_status, "8");
    assert_non_null(strstr(calls[19]->message, "--body-memory"));
    assert_serves(world);
    world_end(world);
}

/* ---- time ------------------------------------------------------------------------------------ */

static struct client_call *begin_with_deadline(struct world *world, const char *path) {
    const char *const fields[] = {"grpc-timeout", "5S", NULL};
    struct client_call *call = client_begin(&world->client, path, fields);
    client_message(&world->client, call, false, "\xc8", 1);
    client_end(&world->client, call);
    return call;
}

static void test_deadline(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = begin_with_deadline(world, "/t.T/Later");
    world_run(world);
    struct seen *seen = &world->service.calls[0];
    assert_true(grpc_core_next_ns(&world->core) == world->now_ns + 5 * (uint64_t)SECOND);
    world_pass(world, 5 * (uint64_t)SECOND - 1);
    assert_int_equal(seen->n_cancelled, 0);
    world_pass(world, 1);
    assert_int_equal(seen->n_cancelled, 1);
    assert_int_equal(seen->why, ST_DEADLINE_EXCEEDED);
    world_run(world);
    assert_grpc(call, "4");
    assert_int_equal(world->n_alive, 1); /* the method still has it */
    struct piece piece = {"late", 4};
    grpc_send(seen->call, &piece, 1, NULL, NULL);
    seen_finish(seen, NULL);
    world_run(world);
    assert_int_equal(seen->n_ended, 1);
    assert_int_equal(call->in_len, 0);
    assert_int_equal(world->n_alive, 0);
    world_end(world);
}

/* Before the message has come; the method never hears of it. */
static void test_deadline_unseen(void **state) {
    (void)state;
    struct world *world = world_begin();
    const char *const fields[] = {"grpc-timeout", "1S", NULL};
    struct client_call *call = client_begin(&world->client, "/t.T/Echo", fields);
    world_run(world);
    world_pass(world, SECOND);
    world_run(world);
    assert_grpc(call, "4");
    assert_int_equal(world->service.n, 0);
    world_end(world);
}

/* Within a message of the answer, a part of which has left: only a reset can follow. */
static void test_deadline_in_message(void **state) {
    (void)state;
    struct world *world = world_stingy(50000);
    struct client_call *call = begin_with_deadline(world, "/t.T/Many");
    world_run(world);
    assert_int_equal(call->in_len, 50000);
    world_pass(world, 5 * (uint64_t)SECOND);
    world_run(world);
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_CANCEL);
    assert_string_equal(call->grpc_status, "");
    assert_int_equal(world->service.calls[0].why, ST_DEADLINE_EXCEEDED);
    assert_int_equal(world->service.calls[0].n_ended, 1);
    world_end(world);
}

/* The same, where nghttp2 has made the frame already and the output had no room for it. */
static void test_deadline_promised(void **state) {
    (void)state;
    struct grpc_limits limits = world_limits();
    struct world *world = world_new(&limits);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 30}};
    world_open(world, settings, 1);
    nghttp2_session_set_local_window_size(world->client.h2, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    world_run(world);
    world->no_reading = true;
    struct client_call *calls[60];
    for (int i = 0; i < 60; i++) {
        calls[i] = begin_with_deadline(world, "/t.T/Many");
    }
    world_run(world);
    world->no_reading = false;
    world_turn(world); /* one output, and it is full */
    size_t n_promised = 0;
    for (const struct grpc_stream *at = world->session.streams; at; at = at->next) {
        n_promised += at->out.promised > 0;
    }
    assert_int_equal(n_promised, 1);
    world_pass(world, 5 * (uint64_t)SECOND);
    world_run(world);
    for (int i = 0; i < 60; i++) {
        assert_true(calls[i]->closed);
        assert_true(strcmp(calls[i]->grpc_status, "4") == 0 || calls[i]->code == NGHTTP2_CANCEL);
    }
    world_end(world);
}

/* The client's window is shut: the status needs none. */
static void test_deadline_without_window(void **state) {
    (void)state;
    struct world *world = world_stingy(0);
    struct client_call *call = begin_with_deadline(world, "/t.T/Many");
    world_run(world);
    assert_string_equal(call->status, "200");
    assert_false(call->closed);
    world_pass(world, 5 * (uint64_t)SECOND);
    world_run(world);
    assert_grpc(call, "4");
    assert_int_equal(call->in_len, 0);
    world_end(world);
}

/* A message that pauses ends its call; one that goes on slowly, and a stream between messages, do
 * not. */
static void test_message_pauses(void **state) {
    (void)state;
    struct world *world = world_begin();
    static const char *const PATHS[] = {"/t.T/Echo", "/t.T/Bidi"};
    struct client_call *quiet = client_begin(&world->client, "/t.T/Bidi", NULL);
    client_message(&world->client, quiet, false, "whole", 5);
    for (size_t i = 0; i < 2; i++) {
        struct client_call *call = client_begin(&world->client, PATHS[i], NULL);
        client_add(&world->client, call, "\0\0\0\0\x64", 5);
        for (int j = 0; j < 10; j++) {
            client_add(&world->client, call, "a", 1);
            world_run(world);
            world_pass(world, 19 * (uint64_t)SECOND);
        }
        assert_false(call->closed);
        world_pass(world, 1 * (uint64_t)SECOND);
        client_end(&world->client, call);
        world_run(world);
        assert_grpc(call, "4");
        assert_non_null(strstr(call->message, "--body-timeout"));
    }
    assert_false(quiet->closed);
    assert_int_equal(quiet->in_len, 10);
    world_end(world);
}

/* A client that takes nothing of an answer. */
static void test_answer_pauses(void **state) {
    (void)state;
    struct world *world = world_stingy(1000);
    struct client_call *calls[] = {client_unary(&world->client, "/t.T/Echo", text_of(5000)),
                                   client_unary(&world->client, "/t.T/Many", STR("\x09"))};
    world_run(world);
    assert_int_equal(calls[0]->in_len, 1000);
    world_pass(world, 29 * (uint64_t)SECOND);
    world_run(world);
    assert_false(calls[0]->closed || calls[1]->closed);
    world_pass(world, 1 * (uint64_t)SECOND);
    world_run(world);
    for (int i = 0; i < 2; i++) {
        assert_true(calls[i]->closed);
        assert_int_equal(calls[i]->code, NGHTTP2_CANCEL);
    }
    assert_int_equal(world->service.n_released, 1);
    const struct seen *many = seen_first(world, "/t.T/Many");
    assert_int_equal(many->n_cancelled, 1);
    assert_int_equal(many->why, ST_CANCELLED);
    world_end(world);
}

/* ---- clients that go away -------------------------------------------------------------------- */

static void reset(struct world *world, const struct client_call *call) {
    nghttp2_submit_rst_stream(world->client.h2, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
}

/* A reset in each state of a call leaves nothing behind. */
static void test_reset_anywhere(void **state) {
    (void)state;
    static const char *const PATHS[] = {"/t.T/Echo", "/t.T/Later", "/t.T/Bidi",   "/t.T/Deaf",
                                        "/t.T/Many", "/t.T/Sum",   "/t.T/Nothing"};
    static const char BYTES[] = "\0\0\0\0\11abcdefghi\0\0\0\0\3abc\0\0\0";
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); i++) {
        for (size_t n = 0; n < sizeof(BYTES); n++) {
            struct world *world = world_stingy(20);
            struct client_call *call = client_begin(&world->client, PATHS[i], NULL);
            client_add(&world->client, call, BYTES, n);
            world_run(world);
            reset(world, call);
            world_run(world);
            assert_int_equal(world->session.n_open, 0);
            struct seen *seen = &world->service.calls[0];
            if (seen->call && !seen->finished) {
                assert_int_equal(seen->n_cancelled, 1);
                assert_int_equal(seen->why, ST_CANCELLED);
                seen_finish(seen, NULL);
            }
            world_run(world);
            assert_int_equal(world->n_alive, 0);
            world_end(world);
        }
    }
}

/* The same while bytes of the answer are on their way to the socket: they stay until they left. */
static void test_reset_while_writing(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct world *world = world_begin();
        struct client_call *calls[] = {client_unary(&world->client, "/t.T/Echo", text_of(30000)),
                                       client_begin(&world->client, "/t.T/Bidi", NULL)};
        client_message(&world->client, calls[1], false, text_of(30000).ptr, 30000);
        world->no_reading = true;
        world_run(world);
        assert_int_equal(world->service.n_released, 0);
        assert_true(grpc_session_output(&world->session, world->output));
        if (lost) {
            grpc_session_close(&world->session);
        } else {
            reset(world, calls[0]);
            reset(world, calls[1]);
            world_run(world);
        }
        grpc_core_sweep(&world->core);
        size_t sum = 0; /* the sanitizer sees whether they are still there */
        for (size_t i = 0; i < world->output->n; i++) {
            const unsigned char *bytes = world->output->pieces[i].data;
            for (size_t j = 0; j < world->output->pieces[i].n_bytes; j++) {
                sum += bytes[j];
            }
        }
        assert_true(sum > 0);
        assert_int_equal(world->service.n_released, 0);
        grpc_session_written(&world->session);
        grpc_core_sweep(&world->core);
        assert_int_equal(world->service.n_released, 2);
        world_end(world);
    }
}

/* The connection is lost with calls in each state. */
static void test_lost(void **state) {
    (void)state;
    struct world *world = world_stingy(100);
    client_unary(&world->client, "/t.T/Later", STR("a"));
    client_unary(&world->client, "/t.T/Echo", text_of(1000));
    client_unary(&world->client, "/t.T/Many", STR("\x09"));
    client_begin(&world->client, "/t.T/Bidi", NULL);
    struct client_call *half = client_begin(&world->client, "/t.T/Bidi", NULL);
    client_add(&world->client, half, "\0\0\0\0\5ab", 7);
    world_run(world);
    grpc_session_close(&world->session);
    grpc_core_sweep(&world->core);
    assert_int_equal(seen_first(world, "/t.T/Later")->n_cancelled, 1);
    assert_int_equal(world->n_alive, 1);
    world_end(world);
}

/* A server that answers before the request was read asks for no more of it, with a reset that is no
 * error. */
static void test_answered_early(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_begin(&world->client, "/t.T/Deaf", NULL);
    client_message(&world->client, call, false, text_of(500000).ptr, 500000);
    world_run(world);
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_grpc(call, "0");
    assert_int_equal(call->code, NGHTTP2_NO_ERROR);
    assert_serves(world);
    world_end(world);
}

/* Trailers that nghttp2 will not send: the call ends all the same. */
static void test_answer_too_large(void **state) {
    (void)state;
    struct grpc_limits limits = world_limits();
    limits.request_memory_bytes = 8 << 20;
    struct world *world = world_new(&limits);
    world_open(world, NULL, 0);
    struct client_call *call = client_unary(&world->client, "/t.T/Later", STR("a"));
    world_run(world);
    for (int i = 0; i < 3; i++) {
        grpc_set_trailer(world->service.calls[0].call, STR("large"), text_of(500000));
    }
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_true(call->closed);
    assert_int_equal(call->code, NGHTTP2_INTERNAL_ERROR);
    assert_serves(world);
    world_end(world);
}

/* ---- attacks: frames by hand ----------------------------------------------------------------- */

struct raw {
    char *bytes;
    size_t n, cap;
    int32_t id; /* of the last call */
};

static void raw_bytes(struct raw *raw, const void *bytes, size_t n) {
    if (raw->n + n > raw->cap) {
        raw->cap = 2 * (raw->n + n);
        raw->bytes = realloc(raw->bytes, raw->cap);
    }
    memcpy(raw->bytes + raw->n, bytes, n);
    raw->n += n;
}

static void raw_frame(struct raw *raw, int type, int flags, int32_t id, const void *payload,
                      size_t n) {
    const unsigned char head[9] = {
        (unsigned char)(n >> 16),  (unsigned char)(n >> 8),  (unsigned char)n,
        (unsigned char)type,       (unsigned char)flags,     (unsigned char)(id >> 24),
        (unsigned char)(id >> 16), (unsigned char)(id >> 8), (unsigned char)id};
    raw_bytes(raw, head, sizeof(head));
    raw_bytes(raw, payload, n);
}

static void raw_u32(struct raw *raw, int type, int32_t id, uint32_t value) {
    const unsigned char bytes[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                    (unsigned char)(value >> 8), (unsigned char)value};
    raw_frame(raw, type, 0, id, bytes, 4);
}

static void raw_begin(struct raw *raw) {
    *raw = (struct raw){.id = -1};
    raw_bytes(raw, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    raw_frame(raw, NGHTTP2_SETTINGS, 0, 0, "", 0);
}

/* The block of a call's head, without Huffman and without the table. Returns: its length. */
static size_t raw_head(char *out, const char *path) {
    size_t n = 0;
    const char *type = "application/grpc";
    out[n++] = (char)0x83; /* POST */
    out[n++] = (char)0x86; /* http */
    out[n++] = 0x04;       /* :path */
    out[n++] = (char)strlen(path);
    memcpy(out + n, path, strlen(path));
    n += strlen(path);
    memcpy(out + n, "\x01\1a\x0f\x10\x10", 6); /* :authority a, content-type */
    n += 6;
    memcpy(out + n, type, strlen(type));
    return n + strlen(type);
}

static void raw_call(struct raw *raw, const char *path, int flags) {
    char head[256];
    raw->id += 2;
    raw_frame(raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | flags, raw->id, head,
              raw_head(head, path));
}

/* Sends all of it and drops what the server says, as a client that does not care. */
static void raw_feed(struct world *world, struct raw *raw) {
    enum { PIECE = 65536 };
    world->keep_raw = true;
    for (size_t at = 0; at < raw->n; at += PIECE) {
        size_t n = raw->n - at < PIECE ? raw->n - at : PIECE;
        world_feed(world, raw->bytes + at, n);
        while (world_turn(world)) {
        }
    }
    raw->n = 0;
}

static void raw_end(struct raw *raw) {
    free(raw->bytes);
}

/* Looks for a frame among what the server said. Returns: its payload, ptr NULL when there is none. */
static struct str raw_find(const struct world *world, int type, int32_t id) {
    for (size_t at = 0; at + 9 <= world->raw_len;) {
        const unsigned char *head = (const unsigned char *)world->raw + at;
        size_t n = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        int32_t of = (int32_t)((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 |
                               (uint32_t)head[7] << 8 | head[8]);
        assert_true(at + 9 + n <= world->raw_len);
        if (head[3] == type && (of == id || id < 0)) {
            return str_make(world->raw + at + 9, n);
        }
        at += 9 + n;
    }
    return str_make(NULL, 0);
}

static void assert_goaway(const struct world *world, uint32_t code) {
    struct str payload = raw_find(world, NGHTTP2_GOAWAY, 0);
    assert_true(payload.len >= 8);
    assert_int_equal((unsigned char)payload.ptr[7], code);
    assert_true(grpc_session_is_over(&world->session));
    assert_true(world->refused[0] != '\0');
}

static void assert_alive(const struct world *world) {
    assert_null(raw_find(world, NGHTTP2_GOAWAY, 0).ptr);
    assert_false(grpc_session_is_over(&world->session));
}

/* Calls that are reset before they are answered: no more are alive than a multiple of what may be,
 * and at last the connection ends. */
static void test_rapid_reset(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    size_t most = 0;
    for (int i = 0; i < 1000; i++) {
        raw_call(&raw, "/t.T/Later", 0);
        raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
        raw_feed(world, &raw);
        most = world->n_alive > most ? world->n_alive : most;
    }
    assert_int_equal(most, 4 * world->options.limits.max_streams);
    struct str refused = raw_find(world, NGHTTP2_RST_STREAM, raw.id);
    assert_true(refused.len == 4 && refused.ptr[3] == NGHTTP2_REFUSED_STREAM);
    for (size_t i = 0; i < MOST_CALLS; i++) { /* those that the service remembers */
        if (world->service.calls[i].call) {
            seen_finish(&world->service.calls[i], NULL);
        }
    }
    grpc_core_sweep(&world->core);
    raw_end(&raw);
    /* The others are not known any more: let the world end with them. */
    while (world->session.streams) {
        struct grpc_stream *stream = world->session.streams;
        static struct seen forgotten;
        forgotten = (struct seen){.call = &stream->call};
        stream->call.user = &forgotten;
        seen_finish(&forgotten, NULL);
        grpc_core_sweep(&world->core);
    }
    world_end(world);
}

static void test_reset_flood(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    for (int i = 0; i < 40000; i++) {
        raw_call(&raw, "/t.T/Echo", 0);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_CANCEL);
    }
    raw_feed(world, &raw);
    assert_goaway(world, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    world_end(world);
}

/* Resets that the server sends because a frame was wrong for its stream count as well. */
static void test_provoked_resets(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    for (int i = 0; i < 40000; i++) {
        raw_call(&raw, "/t.T/Echo", 0);
        raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, raw.id, INT32_MAX); /* overflows */
    }
    raw_feed(world, &raw);
    assert_goaway(world, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    world_end(world);
}

/* Proxies end each call so: after its answer, with or without an end of their own. */
static void test_resets_after_answers(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    for (int i = 0; i < 50000; i++) {
        raw_call(&raw, "/t.T/Bidi", 0);
        raw_frame(&raw, NGHTTP2_DATA, 0, raw.id, "\0\0\0\0\1a", 6);
        raw_feed(world, &raw);
        assert_true(world->raw_len > 0);
        raw_u32(&raw, NGHTTP2_RST_STREAM, raw.id, NGHTTP2_INTERNAL_ERROR);
        world->raw_len = i + 1 < 50000 ? 0 : world->raw_len;
        if (i % 1000 == 999) { /* the client's acknowledgement of windows */
            raw_u32(&raw, NGHTTP2_WINDOW_UPDATE, 0, 6000);
        }
    }
    raw_feed(world, &raw);
    assert_alive(world);
    assert_int_equal(world->n_alive, 0);
    raw_end(&raw);
    world_end(world);
}

static void flood(void (*frame)(struct raw *raw), int n, bool ends) {
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    raw_call(&raw, "/t.T/Bidi", 0);
    for (int i = 0; i < n; i++) {
        frame(&raw);
        if (i % 500 == 499) { /* slowly enough for nghttp2's own limits */
            raw_feed(world, &raw);
        }
    }
    raw_feed(world, &raw);
    if (ends) {
        assert_goaway(world, NGHTTP2_ENHANCE_YOUR_CALM);
    } else {
        assert_alive(world);
    }
    raw_end(&raw);
    world_end(world);
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

/* Pings between calls, as who measures the connection sends them. */
static void frame_ping_and_call(struct raw *raw) {
    frame_ping(raw);
    raw_frame(raw, NGHTTP2_DATA, 0, raw->id, "\0\0\0\0\0", 5);
}

static void frame_priority(struct raw *raw) {
    raw_frame(raw, NGHTTP2_PRIORITY, 0, raw->id + 200, "\0\0\0\0\5", 5);
}

static void frame_unknown(struct raw *raw) {
    raw_frame(raw, 0x77, 0, 0, "abc", 3);
}

static void test_floods(void **state) {
    (void)state;
    flood(frame_ping, 3000, true);
    flood(frame_ping, 1000, false);
    flood(frame_settings, 3000, true);
    flood(frame_empty, 3000, true);
    flood(frame_padding, 3000, true);
    flood(frame_priority, 3000, true);
    flood(frame_unknown, 3000, false);
}

static void test_pings_while_data_flows(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    raw_call(&raw, "/t.T/Bidi", 0);
    for (int i = 0; i < 10000; i++) {
        frame_ping_and_call(&raw);
        raw_feed(world, &raw);
    }
    assert_alive(world);
    raw_end(&raw);
    world_end(world);
}

/* A peer who sends control frames and reads nothing. */
static void test_unread_acks(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    raw_feed(world, &raw);
    world->no_reading = true;
    for (int i = 0; i < 1500; i++) {
        frame_ping(&raw);
    }
    raw_feed(world, &raw);
    assert_true(world->session.failing);
    world->no_reading = false;
    while (world_turn(world)) {
    }
    assert_goaway(world, NGHTTP2_ENHANCE_YOUR_CALM);
    raw_end(&raw);
    world_end(world);
}

static void test_continuation_flood(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct raw raw;
    raw_begin(&raw);
    raw_frame(&raw, NGHTTP2_HEADERS, 0, 1, "\x83\x86", 2);
    for (int i = 0; i < 100; i++) {
        raw_frame(&raw, NGHTTP2_CONTINUATION, 0, 1, "", 0);
    }
    raw_feed(world, &raw);
    assert_true(world->session.failing);
    assert_true(raw_find(world, NGHTTP2_GOAWAY, 0).ptr != NULL);
    raw_end(&raw);
    world_end(world);
}

/* A head over the limit is refused and the connection goes on; far over it, it does not. */
static void test_header_limit(void **state) {
    (void)state;
    static char value[4001];
    memset(value, 'v', 4000);
    const char *const two[] = {"a", value, "b", value, NULL};
    const char *const many[] = {"a", value, "b", value, "c", value, NULL};
    struct world *world = world_begin();
    struct client_call *ok = client_begin(&world->client, "/t.T/Deaf", two + 2);
    struct client_call *over = client_begin(&world->client, "/t.T/Echo", many);
    client_message(&world->client, over, false, "a", 1);
    client_end(&world->client, over);
    world_run(world);
    assert_grpc(over, "8");
    assert_non_null(strstr(over->message, "--max-header-size"));
    assert_false(ok->closed);
    assert_serves(world);
    world_end(world);
}

/* An entry of the table, indexed again and again: a byte that means 4000. */
static void bomb(bool trailers) {
    struct world *world = world_begin();
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
    raw_feed(world, &raw);
    assert_goaway(world, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_true(world->session.head_bytes < 9 * world->options.limits.max_header_bytes);
    raw_end(&raw);
    world_end(world);
}

static void test_header_bombs(void **state) {
    (void)state;
    bomb(false);
    bomb(true);
}

/* Many fields without a byte in them. */
static void test_many_fields(void **state) {
    (void)state;
    struct grpc_limits limits = world_limits();
    limits.max_header_bytes = 65536;
    struct world *world = world_new(&limits);
    world_open(world, NULL, 0);
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
    raw_feed(world, &raw);
    assert_alive(world);
    assert_true(raw_find(world, NGHTTP2_HEADERS, 1).ptr != NULL);
    assert_int_equal(world->n_alive, 0);
    assert_non_null(strstr(world->refused, "256 fields"));
    raw_end(&raw);
    world_end(world);
}

/* What breaks the rules of HTTP/2 ends the connection with nghttp2's word for it. */
static void test_protocol_errors(void **state) {
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
        struct world *world = world_begin();
        struct raw raw;
        raw_begin(&raw);
        raw_frame(&raw, ROWS[i].type, ROWS[i].flags, ROWS[i].id, ROWS[i].payload.ptr,
                  ROWS[i].payload.len);
        raw_feed(world, &raw);
        assert_goaway(world, ROWS[i].code);
        raw_end(&raw);
        world_end(world);
    }
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void test_drain(void **state) {
    (void)state;
    struct world *world = world_begin();
    struct client_call *call = client_unary(&world->client, "/t.T/Later", STR("a"));
    world_run(world);
    grpc_session_drain(&world->session);
    grpc_session_drain(&world->session);
    assert_true(world_turn(world));
    assert_true(world->client.goaway);
    assert_int_equal(world->client.goaway_last, INT32_MAX);
    assert_false(grpc_session_is_over(&world->session));
    /* Begun before the client read the notice: its call crosses it, and is served. */
    struct raw raw = {.id = call->id};
    raw_call(&raw, "/t.T/Later", 0);
    raw_frame(&raw, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, raw.id, "\0\0\0\0\1a", 6);
    world_feed(world, raw.bytes, raw.n);
    assert_int_equal(world->service.n, 2);
    world_run(world); /* the client's answer to the ping */
    assert_int_equal(world->client.goaway_last, raw.id);
    /* Begun afterwards: not seen. */
    raw.n = 0;
    raw_call(&raw, "/t.T/Later", NGHTTP2_FLAG_END_STREAM);
    world_feed(world, raw.bytes, raw.n);
    assert_int_equal(world->session.n_alive, 2);
    seen_finish(&world->service.calls[0], NULL);
    world_run(world);
    assert_grpc(call, "0");
    assert_false(grpc_session_is_over(&world->session));
    world->keep_raw = true; /* the client does not know of that call */
    seen_finish(&world->service.calls[1], NULL);
    while (world_turn(world)) {
    }
    assert_true(grpc_session_is_over(&world->session));
    raw_end(&raw);
    world_end(world);
}

static void test_first_bytes(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *answer;
    } ROWS[] = {{"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 505 "}, {"\x16\x03\x01", ""}};
    for (size_t i = 0; i < 2; i++) {
        struct world *world = world_begin();
        world->keep_raw = true;
        assert_false(grpc_session_has_output(&world->session)); /* the client speaks first */
        world_feed(world, ROWS[i].bytes, strlen(ROWS[i].bytes));
        while (world_turn(world)) {
        }
        assert_true(grpc_session_is_over(&world->session));
        size_t n = strlen(ROWS[i].answer);
        assert_true(n > 0 ? world->raw_len > n : world->raw_len == 0);
        assert_memory_equal(n > 0 ? world->raw : "", ROWS[i].answer, n);
        world_end(world);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deaf),
        cmocka_unit_test(test_slow_reading),
        cmocka_unit_test(test_reading_ahead),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_deadline_unseen),
        cmocka_unit_test(test_deadline_in_message),
        cmocka_unit_test(test_deadline_promised),
        cmocka_unit_test(test_deadline_without_window),
        cmocka_unit_test(test_message_pauses),
        cmocka_unit_test(test_answer_pauses),
        cmocka_unit_test(test_reset_anywhere),
        cmocka_unit_test(test_reset_while_writing),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_answered_early),
        cmocka_unit_test(test_answer_too_large),
        cmocka_unit_test(test_rapid_reset),
        cmocka_unit_test(test_reset_flood),
        cmocka_unit_test(test_provoked_resets),
        cmocka_unit_test(test_resets_after_answers),
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_pings_while_data_flows),
        cmocka_unit_test(test_unread_acks),
        cmocka_unit_test(test_continuation_flood),
        cmocka_unit_test(test_header_limit),
        cmocka_unit_test(test_header_bombs),
        cmocka_unit_test(test_many_fields),
        cmocka_unit_test(test_protocol_errors),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_first_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
