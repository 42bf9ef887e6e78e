/* For the tests of the client's sessions: a client session in memory, calls that keep what they are
 * told, and opposite either our own server's session (net/server/grpc/session_fixture.h) or frames
 * that the test writes itself. No socket, and no clock but the one the test drives. */
#ifndef SLUICE_NET_CLIENT_GRPC_SESSION_FIXTURE_H
#define SLUICE_NET_CLIENT_GRPC_SESSION_FIXTURE_H

#include "net/client/grpc/asked_fixture.h"
#include "net/client/grpc/session.h"
#include "net/server/grpc/session_fixture.h"

/* ---- the client ------------------------------------------------------------------------------ */

struct duo {
    struct world *world; /* the server; NULL: the test's own frames */
    enum pace pace;      /* of bytes to the client */
    struct grpc_client_core core;
    struct grpc_client_session session;
    struct grpc_output output;
    struct asked asked[MOST_ASKED];
    size_t n;
    bool no_reading; /* nobody takes what the client says */
    char *said;      /* by the client, without `world` */
    size_t said_len;
    size_t n_heard; /* bytes */
    uint64_t now_ns;
};

static inline void duo_ask_turn(struct grpc_client_core *core) {
    (void)core;
}

static inline struct duo *duo_new(const struct grpc_client_limits *limits) {
    struct duo *duo = calloc(1, sizeof(*duo));
    struct error err;
    duo->core.limits = *limits;
    duo->core.authority = STR("test:1");
    duo->core.ask_turn = duo_ask_turn;
    duo->now_ns = SECOND;
    clock_drive_ns(duo->now_ns);
    assert_int_equal(grpc_client_core_init(&duo->core, &err), ST_OK);
    assert_int_equal(grpc_client_session_open(&duo->core, &duo->session, &err), ST_OK);
    return duo;
}

/* A client of our own server. */
static inline struct duo *duo_begin_with(const struct grpc_limits *limits,
                                         const struct grpc_client_limits *client) {
    struct error err;
    struct world *world = world_new(limits);
    assert_int_equal(grpc_core_init(&world->core, &world->options, world->worker, &err), ST_OK);
    assert_int_equal(grpc_session_open(&world->core, &world->session, &err), ST_OK);
    world->keep_raw = true;
    struct duo *duo = duo_new(client);
    duo->world = world;
    return duo;
}

static inline struct duo *duo_begin(void) {
    struct grpc_limits limits = world_limits();
    struct grpc_client_limits client = {0};
    return duo_begin_with(&limits, &client);
}

static inline struct asked *duo_ask(struct duo *duo, const struct grpc_client_ask *ask) {
    struct error err;
    struct grpc_client_stream *stream;
    struct asked *asked = &duo->asked[duo->n++];
    struct grpc_client_ask all = *ask;
    assert_true(duo->n <= MOST_ASKED);
    all.step = asked_step;
    all.user = asked;
    asked->eager = ask->streams;
    assert_int_equal(grpc_client_stream_new(&duo->core, &all, &stream, &err), ST_OK);
    asked->call = &stream->call;
    return asked;
}

static inline struct asked *duo_unary(struct duo *duo, const char *path, struct str text) {
    struct asked *asked = duo_ask(duo, &(struct grpc_client_ask){.path = str_of(path)});
    asked_send(asked, text);
    return asked;
}

/* A streaming call that wants what comes. */
static inline struct asked *duo_stream(struct duo *duo, const char *path) {
    struct asked *asked =
        duo_ask(duo, &(struct grpc_client_ask){.path = str_of(path), .streams = true});
    grpc_client_read(asked->call);
    return asked;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Bytes to the client. */
static inline void duo_feed(struct duo *duo, const void *data, size_t n) {
    static const size_t PIECES[] = {
        [PACE_WHOLE] = SIZE_MAX, [PACE_BYTES] = 1, [PACE_SEVENS] = 7, [PACE_RANDOM] = 641};
    const char *at = data;
    duo->n_heard += n;
    while (n > 0) {
        size_t piece = n < PIECES[duo->pace] ? n : PIECES[duo->pace];
        char *copy = malloc(piece); /* so that a view that outlives it is seen */
        memcpy(copy, at, piece);
        grpc_client_session_receive(&duo->session, str_make(copy, piece));
        free(copy);
        grpc_client_core_sweep(&duo->core);
        at += piece;
        n -= piece;
    }
}

static inline void duo_keep(struct duo *duo, const void *data, size_t n) {
    duo->said = realloc(duo->said, duo->said_len + n + 1);
    memcpy(duo->said + duo->said_len, data, n);
    duo->said_len += n;
}

/* One turn of the client. Returns: whether it said something. */
static inline bool duo_turn(struct duo *duo) {
    grpc_client_core_dispatch(&duo->core, &duo->session);
    grpc_client_core_sweep(&duo->core);
    if (duo->no_reading || !grpc_client_session_has_output(&duo->session) ||
        !grpc_client_session_output(&duo->session, &duo->output)) {
        return false;
    }
    for (size_t i = 0; i < duo->output.n; i++) {
        const struct piece *piece = &duo->output.pieces[i];
        if (duo->world) {
            world_feed(duo->world, piece->data, piece->n_bytes);
        } else {
            duo_keep(duo, piece->data, piece->n_bytes);
        }
    }
    grpc_client_session_written(&duo->session);
    grpc_client_core_sweep(&duo->core);
    return true;
}

/* What the server has said arrives. Returns: whether it was anything. */
static inline bool duo_arrive(struct duo *duo) {
    struct world *world = duo->world;
    bool any = world && world_turn(world);
    if (any) {
        char *raw = world->raw;
        size_t n = world->raw_len;
        world->raw = NULL;
        world->raw_len = 0;
        duo_feed(duo, raw, n);
        free(raw);
    }
    return any;
}

/* Until nobody has anything to say. */
static inline void duo_run(struct duo *duo) {
    bool busy = true;
    while (busy) {
        bool said = duo_turn(duo);
        busy = duo_arrive(duo) || said;
    }
}

static inline void duo_pass(struct duo *duo, uint64_t ns) {
    if (duo->world) {
        world_pass(duo->world, ns);
    }
    duo->now_ns += ns;
    clock_drive_ns(duo->now_ns);
    grpc_client_core_tick(&duo->core, duo->now_ns);
    grpc_client_core_sweep(&duo->core);
}

/* The connection is gone. */
static inline void duo_close(struct duo *duo, const char *why) {
    struct error err;
    error_set(&err, ST_IO, "%s", why);
    grpc_client_session_close(&duo->session, &err);
    if (duo->session.flight.writing) {
        grpc_client_session_written(&duo->session);
    }
    grpc_client_core_sweep(&duo->core);
}

/* Ends all of it; every call must have come to its end once, and nothing may be left over. */
static inline void duo_end(struct duo *duo) {
    struct error err;
    duo_close(duo, "the test ended");
    error_set(&err, ST_CANCELLED, "the test ended");
    grpc_client_core_give_up(&duo->core, &err, true);
    grpc_client_core_sweep(&duo->core);
    for (size_t i = 0; i < duo->n; i++) {
        if (duo->asked[i].call) { /* it has not read what came */
            grpc_client_cancel(duo->asked[i].call);
        }
    }
    grpc_client_core_sweep(&duo->core);
    for (size_t i = 0; i < duo->n; i++) {
        assert_null(duo->asked[i].call);
        assert_int_equal(duo->asked[i].n_ended, 1);
        free(duo->asked[i].in);
    }
    assert_int_equal(duo->core.n_alive, 0);
    assert_int_equal(duo->core.deadlines.n, 0);
    assert_int_equal(duo->core.budget.n_body_bytes, 0);
    grpc_client_core_fini(&duo->core);
    if (duo->world) {
        world_end(duo->world);
    }
    free(duo->said);
    free(duo);
    clock_drive_ns(0);
}

/* ---- frames of the test's own ---------------------------------------------------------------- */

/* What the server says, as bytes. Zeroed memory is nothing. */
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

/* A head or trailers: names and values as text, "name: value\n…". RFC 7541, 6.2.2, without
 * Huffman's code. */
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

/* They arrive, and are used up. */
static inline void duo_hear(struct duo *duo, struct frames *frames) {
    duo_turn(duo);
    duo_feed(duo, frames->data, frames->len);
    free(frames->data);
    *frames = (struct frames){0};
    while (duo_turn(duo)) {
    }
}

/* A client that has heard the server's settings. */
static inline struct duo *duo_begin_raw(const struct grpc_client_limits *limits) {
    struct duo *duo = duo_new(limits);
    struct frames frames = {0};
    frames_settings(&frames);
    duo_hear(duo, &frames);
    frames_frame(&frames, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, STR(""));
    duo_hear(duo, &frames);
    return duo;
}

/* The n-th frame of that type that the client said, on `id` (0: any). Returns: its payload; ptr
 * NULL: none. */
static inline struct str duo_said(const struct duo *duo, int type, int32_t id, size_t n) {
    size_t at = 24; /* RFC 9113, 3.4: the preface */
    while (at + 9 <= duo->said_len) {
        const unsigned char *head = (const unsigned char *)duo->said + at;
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        int32_t of = (int32_t)((uint32_t)(head[5] & 127) << 24 | (uint32_t)head[6] << 16 |
                               (uint32_t)head[7] << 8 | head[8]);
        if (head[3] == type && (id == 0 || of == id) && n-- == 0) {
            return str_make(duo->said + at + 9, len);
        }
        at += 9 + len;
    }
    return str_make(NULL, 0);
}

#endif
