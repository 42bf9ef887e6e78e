/* Fixture for the client session tests: a client session in memory, calls that record their events,
 * and as peer either the server's session (net/server/grpc/session_fixture.h) or frames that the
 * test writes. The test drives the clock. */
#ifndef SLUICE_NET_CLIENT_GRPC_SESSION_SESSION_FIXTURE_H
#define SLUICE_NET_CLIENT_GRPC_SESSION_SESSION_FIXTURE_H

#include "net/client/grpc_session/calls_fixture.h"
#include "net/client/grpc_session/session.h"
#include "net/server/grpc/session_fixture.h"

/* ---- the client ------------------------------------------------------------------------------ */

struct session_pair {
    struct grpc_fixture *fixture; /* the server; NULL: frames written by the test */
    enum pace pace;               /* of bytes to the client */
    struct grpc_client_core core;
    struct grpc_client_session session;
    struct grpc_output output;
    struct call_record record[MAX_CALL_RECORDS];
    size_t n;
    bool no_reading; /* the client's output is not read */
    char *said;      /* the client's output, without `world` */
    size_t said_len;
    size_t n_heard;    /* bytes */
    size_t n_in_place; /* of them, those that the client had read to their place */
    uint64_t now_ns;
};

static inline void session_pair_schedule_deferred(struct grpc_client_core *core) {
    (void)core;
}

static inline struct session_pair *session_pair_new(const struct grpc_client_limits *limits) {
    struct session_pair *pair = calloc(1, sizeof(*pair));
    struct error err;
    pair->core.limits = *limits;
    pair->core.authority = STR("test:1");
    pair->core.schedule_deferred = session_pair_schedule_deferred;
    pair->now_ns = SECOND;
    clock_set_fake_ns(pair->now_ns);
    assert_int_equal(grpc_client_core_init(&pair->core, &err), ST_OK);
    assert_int_equal(grpc_client_session_open(&pair->core, &pair->session, &err), ST_OK);
    return pair;
}

/* A client connected to our own server session. */
static inline struct session_pair *session_pair_open_with(const struct grpc_limits *limits,
                                                          const struct grpc_client_limits *client) {
    struct error err;
    struct grpc_fixture *fixture = grpc_fixture_new(limits);
    assert_int_equal(grpc_core_init(&fixture->core, &fixture->options, fixture->worker, &err),
                     ST_OK);
    grpc_session_init(&fixture->session, &fixture->core);
    assert_int_equal(grpc_session_open(&fixture->session, &err), ST_OK);
    fixture->keep_raw = true;
    struct session_pair *pair = session_pair_new(client);
    pair->fixture = fixture;
    return pair;
}

static inline struct session_pair *session_pair_open(void) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_client_limits client = {0};
    return session_pair_open_with(&limits, &client);
}

static inline struct call_record *session_pair_call(struct session_pair *pair,
                                                    const struct grpc_client_call_options *ask) {
    struct error err;
    struct grpc_client_stream *stream;
    struct call_record *record = &pair->record[pair->n++];
    struct grpc_client_call_options all = *ask;
    assert_true(pair->n <= MAX_CALL_RECORDS);
    all.on_event = call_record_on_event;
    all.user = record;
    record->eager = ask->streams;
    assert_int_equal(grpc_client_stream_new(&pair->core, &all, &stream, &err), ST_OK);
    record->call = &stream->call;
    return record;
}

static inline struct call_record *session_pair_unary(struct session_pair *pair, const char *path,
                                                     struct str text) {
    struct call_record *record =
        session_pair_call(pair, &(struct grpc_client_call_options){.path = str_of(path)});
    call_record_send(record, text);
    return record;
}

/* A streaming call that reads every message. */
static inline struct call_record *session_pair_stream(struct session_pair *pair, const char *path) {
    struct call_record *record = session_pair_call(
        pair, &(struct grpc_client_call_options){.path = str_of(path), .streams = true});
    grpc_client_read(record->call);
    return record;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Feeds bytes to the client. */
static inline void session_pair_feed(struct session_pair *pair, const void *data, size_t n) {
    static const size_t PIECES[] = {
        [PACE_WHOLE] = SIZE_MAX, [PACE_BYTES] = 1, [PACE_SEVENS] = 7, [PACE_RANDOM] = 641};
    const char *at = data;
    pair->n_heard += n;
    while (n > 0) {
        size_t piece = n < PIECES[pair->pace] ? n : PIECES[pair->pace], n_place;
        char *place = grpc_client_session_read_buffer(&pair->session, &n_place);
        if (place && n_place < piece) {
            piece = n_place;
        }
        char *copy = place ? NULL : malloc(piece); /* the sanitizer finds a view that outlives it */
        memcpy(place ? place : copy, at, piece);
        pair->n_in_place += place && n_place > H2_FRAME_HEAD_BYTES ? piece : 0;
        grpc_client_session_receive(&pair->session, str_make(place ? place : copy, piece));
        free(copy);
        grpc_client_core_sweep(&pair->core);
        at += piece;
        n -= piece;
    }
}

static inline void session_pair_store(struct session_pair *pair, const void *data, size_t n) {
    pair->said = realloc(pair->said, pair->said_len + n + 1);
    memcpy(pair->said + pair->said_len, data, n);
    pair->said_len += n;
}

/* One iteration of the client. Returns: whether it produced output. */
static inline bool session_pair_run_once(struct session_pair *pair) {
    grpc_client_core_dispatch(&pair->core, &pair->session);
    grpc_client_core_sweep(&pair->core);
    if (pair->no_reading || !grpc_client_session_has_output(&pair->session) ||
        !grpc_client_session_collect_output(&pair->session, &pair->output)) {
        return false;
    }
    for (size_t i = 0; i < pair->output.n; i++) {
        const struct piece *piece = &pair->output.pieces[i];
        if (pair->fixture) {
            grpc_fixture_feed(pair->fixture, piece->data, piece->n_bytes);
        } else {
            session_pair_store(pair, piece->data, piece->n_bytes);
        }
    }
    grpc_client_session_on_written(&pair->session);
    grpc_client_core_sweep(&pair->core);
    return true;
}

/* Delivers the server's output to the client. Returns: whether there was any. */
static inline bool session_pair_deliver(struct session_pair *pair) {
    struct grpc_fixture *fixture = pair->fixture;
    bool any = fixture && grpc_fixture_run_once(fixture);
    if (any) {
        char *raw = fixture->raw;
        size_t n = fixture->raw_len;
        fixture->raw = NULL;
        fixture->raw_len = 0;
        session_pair_feed(pair, raw, n);
        free(raw);
    }
    return any;
}

/* Runs until neither side has output. */
static inline void session_pair_run(struct session_pair *pair) {
    bool busy = true;
    while (busy) {
        bool said = session_pair_run_once(pair);
        busy = session_pair_deliver(pair) || said;
    }
}

static inline void session_pair_advance_clock(struct session_pair *pair, uint64_t ns) {
    if (pair->fixture) {
        grpc_fixture_advance_clock(pair->fixture, ns);
    }
    pair->now_ns += ns;
    clock_set_fake_ns(pair->now_ns);
    grpc_client_core_run_timers(&pair->core, pair->now_ns);
    grpc_client_core_sweep(&pair->core);
}

/* The connection is closed. */
static inline void session_pair_close(struct session_pair *pair, const char *why) {
    struct error err;
    error_set(&err, ST_IO, "%s", why);
    grpc_client_session_close(&pair->session, &err);
    if (pair->session.write_batch.writing) {
        grpc_client_session_on_written(&pair->session);
    }
    grpc_client_core_sweep(&pair->core);
}

/* Frees everything; every call must have ended exactly once, and nothing may leak. */
static inline void session_pair_free(struct session_pair *pair) {
    struct error err;
    session_pair_close(pair, "the test ended");
    error_set(&err, ST_CANCELLED, "the test ended");
    grpc_client_core_fail_waiting(&pair->core, &err, true);
    grpc_client_core_sweep(&pair->core);
    for (size_t i = 0; i < pair->n; i++) {
        if (pair->record[i].call) { /* it has unread messages */
            grpc_client_cancel(pair->record[i].call);
        }
    }
    grpc_client_core_sweep(&pair->core);
    for (size_t i = 0; i < pair->n; i++) {
        assert_null(pair->record[i].call);
        assert_int_equal(pair->record[i].n_ended, 1);
        free(pair->record[i].in);
    }
    assert_int_equal(pair->core.n_alive, 0);
    assert_int_equal(pair->core.deadlines.n, 0);
    assert_int_equal(pair->core.budget.n_body_bytes, 0);
    grpc_client_core_fini(&pair->core);
    if (pair->fixture) {
        grpc_fixture_free(pair->fixture);
    }
    free(pair->said);
    free(pair);
    clock_set_fake_ns(0);
}

/* ---- frames written by the test -------------------------------------------------------------- */

/* Frames that the server sends, as bytes. Zeroed memory is empty. */
struct frames {
    char *data;
    size_t len;
};

static inline void frames_add(struct frames *frames, const void *data, size_t n) {
    frames->data = realloc(frames->data, frames->len + n + 1);
    memcpy(frames->data + frames->len, data, n);
    frames->len += n;
}

/* RFC 9113, 4.1 */
static inline void frames_frame(struct frames *frames, int type, int flags, int32_t id,
                                struct str payload) {
    const char head[9] = {(char)(payload.len >> 16),
                          (char)(payload.len >> 8),
                          (char)payload.len,
                          (char)type,
                          (char)flags,
                          (char)(id >> 24),
                          (char)(id >> 16),
                          (char)(id >> 8),
                          (char)id};
    frames_add(frames, head, sizeof(head));
    frames_add(frames, payload.ptr, payload.len);
}

static inline void frames_u32(struct frames *frames, int type, int32_t id, uint32_t value) {
    const char bytes[4] = {(char)(value >> 24), (char)(value >> 16), (char)(value >> 8),
                           (char)value};
    frames_frame(frames, type, 0, id, str_make(bytes, 4));
}

static inline void frames_settings(struct frames *frames) {
    frames_frame(frames, NGHTTP2_SETTINGS, 0, 0, STR(""));
}

/* A head or trailers from text "name: value\n…". RFC 7541, 6.2.2, without Huffman coding. */
static inline void frames_head(struct frames *frames, int32_t id, const char *text, bool last) {
    struct frames block = {0};
    struct str rest = str_of(text);
    while (rest.ptr && rest.len > 0) {
        struct str line = str_cut(&rest, '\n'), value = line;
        struct str name = str_cut(&value, ' ');
        char lens[2] = {(char)(name.len - 1), (char)value.len};
        assert_true(name.len < 128 && value.len < 127);
        frames_add(&block, "\0", 1);
        frames_add(&block, &lens[0], 1);
        frames_add(&block, name.ptr, name.len - 1); /* without its colon */
        frames_add(&block, &lens[1], 1);
        frames_add(&block, value.ptr, value.len);
    }
    frames_frame(frames, NGHTTP2_HEADERS,
                 NGHTTP2_FLAG_END_HEADERS | (last ? NGHTTP2_FLAG_END_STREAM : 0), id,
                 str_make(block.data, block.len));
    free(block.data);
}

#define FRAMES_OK_HEAD ":status: 200\ncontent-type: application/grpc\n"

/* A DATA frame with a message. */
static inline void frames_message(struct frames *frames, int32_t id, bool compressed,
                                  struct str text) {
    struct frames data = {0};
    char prefix[GRPC_PREFIX_BYTES];
    grpc_prefix_encode((struct grpc_prefix){compressed, (uint32_t)text.len}, prefix);
    frames_add(&data, prefix, sizeof(prefix));
    frames_add(&data, text.ptr, text.len);
    frames_frame(frames, NGHTTP2_DATA, 0, id, str_make(data.data, data.len));
    free(data.data);
}

/* Feeds the frames and clears them. */
static inline void session_pair_receive_frames(struct session_pair *pair, struct frames *frames) {
    session_pair_run_once(pair);
    session_pair_feed(pair, frames->data, frames->len);
    free(frames->data);
    *frames = (struct frames){0};
    while (session_pair_run_once(pair)) {
    }
}

/* A client that has received the server's SETTINGS. */
static inline struct session_pair *session_pair_open_raw(const struct grpc_client_limits *limits) {
    struct session_pair *pair = session_pair_new(limits);
    struct frames frames = {0};
    frames_settings(&frames);
    session_pair_receive_frames(pair, &frames);
    frames_frame(&frames, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, STR(""));
    session_pair_receive_frames(pair, &frames);
    return pair;
}

/* Returns: payload of the n-th frame of that type that the client sent on `id` (0: any); ptr NULL:
 * none. */
static inline struct str session_pair_find_sent(const struct session_pair *pair, int type,
                                                int32_t id, size_t n) {
    size_t at = 24; /* RFC 9113, 3.4: the preface */
    while (at + 9 <= pair->said_len) {
        const unsigned char *head = (const unsigned char *)pair->said + at;
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        int32_t of = (int32_t)((uint32_t)(head[5] & 127) << 24 | (uint32_t)head[6] << 16 |
                               (uint32_t)head[7] << 8 | head[8]);
        if (head[3] == type && (id == 0 || of == id) && n-- == 0) {
            return str_make(pair->said + at + 9, len);
        }
        at += 9 + len;
    }
    return str_make(NULL, 0);
}

#endif
