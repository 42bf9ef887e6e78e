/* A gRPC client session and a server with arbitrary behaviour. The first byte selects the mode:
 * the rest as the server's bytes, for calls in flight; the same after its SETTINGS; or as
 * operations, which start calls, send, read, cancel, let the server send frames in any order,
 * write little or nothing, advance the time, and close the connection. Each call ends once, sent
 * messages are released once, and nothing leaks. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/event/clock.h"
#include "net/client/grpc_session/session.h"
#include "net/transport/h2_fuzz_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_CALLS = 64, SECOND = 1000000000 };

struct grpc_fixture;

struct ask {
    struct grpc_client_call *call; /* NULL: ended */
    struct grpc_fixture *fixture;
    bool streams, half_closed;
    bool reads;   /* reads messages at once */
    bool cancels; /* when the first message comes */
};

struct grpc_fixture {
    struct str input;
    struct grpc_client_core core;
    struct grpc_client_session session;
    struct grpc_output output;
    struct ask asks[MAX_CALLS];
    size_t n, n_ended, n_sent, n_released;
    uint64_t now_ns;
};

/* ---- calls ----------------------------------------------------------------------------------- */

static void release(void *user) {
    struct grpc_fixture *fixture = user;
    fixture->n_released++;
}

static void step(struct grpc_client_call *call, enum grpc_client_event event) {
    struct ask *ask = call->user;
    assert(ask->call == call || !ask->call);
    if (event == GRPC_CLIENT_MESSAGE) {
        grpc_message_free(call->message);
        if (ask->cancels) {
            grpc_client_cancel(call);
        } else if (ask->reads) {
            grpc_client_read(call);
        }
    } else if (event == GRPC_CLIENT_END) {
        assert(ask->call);
        assert((call->error.status == ST_OK) == (call->code == 0));
        assert(call->error.status == ST_OK || call->error.text[0] != '\0');
        ask->call = NULL;
        ask->fixture->n_ended++;
    }
}

static void send_one(struct ask *ask, size_t n_bytes) {
    static const char bytes[70000];
    struct piece pieces[] = {{bytes, n_bytes / 3}, {bytes, n_bytes - n_bytes / 3}};
    if (ask->call && !ask->half_closed) {
        ask->half_closed = !ask->streams;
        ask->fixture->n_sent++;
        grpc_client_send(ask->call, pieces, 2, release, ask->fixture);
    }
}

static size_t align_at(struct str beginning) {
    return beginning.len > 0 ? (unsigned char)beginning.ptr[0] : 0;
}

/* `how`: streams, reads, cancels, has a deadline, is aligned. */
static void begin(struct grpc_fixture *fixture, uint8_t how) {
    struct grpc_client_stream *stream;
    struct error err;
    if (fixture->n == MAX_CALLS) {
        return;
    }
    struct ask *ask = &fixture->asks[fixture->n++];
    *ask = (struct ask){
        .fixture = fixture, .streams = how & 1, .reads = (how & 3) == 3, .cancels = how & 4};
    struct grpc_client_call_options all = {.path = STR("/a.A/B"),
                                           .timeout_ns =
                                               how & 8 ? (how >> 4) * (uint64_t)SECOND : 0,
                                           .on_event = step,
                                           .user = ask,
                                           .streams = ask->streams,
                                           .align_at = how & 16 ? align_at : NULL};
    assert(grpc_client_stream_new(&fixture->core, &all, &stream, &err) == ST_OK);
    ask->call = &stream->call;
    if (ask->reads) {
        grpc_client_read(ask->call);
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

static void ask_turn(struct grpc_client_core *core) {
    (void)core;
}

static void open_world(struct grpc_fixture *fixture) {
    struct error err;
    fixture->now_ns = SECOND;
    clock_set_fake_ns(fixture->now_ns);
    fixture->core = (struct grpc_client_core){.limits = {.max_message_bytes = 1 << 18,
                                                         .max_header_size = 2048,
                                                         .stream_window_bytes = 40000,
                                                         .connection_window_bytes = 100000},
                                              .authority = STR("fuzz"),
                                              .schedule_deferred = ask_turn};
    assert(grpc_client_core_init(&fixture->core, &err) == ST_OK);
    assert(grpc_client_session_open(&fixture->core, &fixture->session, &err) == ST_OK);
}

static void settle(struct grpc_fixture *fixture) {
    grpc_client_core_dispatch(&fixture->core, &fixture->session);
    grpc_client_core_sweep(&fixture->core);
}

static void written(struct grpc_fixture *fixture) {
    if (fixture->session.write_batch.writing) {
        touch(&fixture->output);
        grpc_client_session_on_written(&fixture->session);
        settle(fixture);
    }
}

static void run_iterations(struct grpc_fixture *fixture, unsigned n) {
    settle(fixture);
    while (n-- > 0 && grpc_client_session_has_output(&fixture->session)) {
        if (grpc_client_session_collect_output(&fixture->session, &fixture->output)) {
            written(fixture);
        }
    }
    settle(fixture);
}

/* What is a message's is read to its place, as a client does. */
static void feed(struct grpc_fixture *fixture, const void *data, size_t n) {
    const char *at = data;
    char *place;
    for (size_t n_piece;
         n > 0 && (place = grpc_client_session_read_buffer(&fixture->session, &n_piece));
         at += n_piece, n -= n_piece) {
        n_piece = n_piece < n ? n_piece : n;
        memcpy(place, at, n_piece);
        grpc_client_session_receive(&fixture->session, str_make(place, n_piece));
        settle(fixture);
    }
    char *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, at, n);
    grpc_client_session_receive(&fixture->session, str_make(copy, n));
    free(copy);
    settle(fixture);
}

static void pass(struct grpc_fixture *fixture, uint64_t ns) {
    fixture->now_ns += ns;
    clock_set_fake_ns(fixture->now_ns);
    grpc_client_core_run_timers(&fixture->core, fixture->now_ns);
    settle(fixture);
}

static void lose(struct grpc_fixture *fixture) {
    struct error err;
    error_set(&err, ST_IO, "lost");
    grpc_client_session_close(&fixture->session, &err);
    settle(fixture);
}

static void close_world(struct grpc_fixture *fixture) {
    lose(fixture);
    written(fixture);
    for (size_t i = 0; i < fixture->n; i++) {
        if (fixture->asks[i].call) { /* in flight, or not completely read */
            grpc_client_cancel(fixture->asks[i].call);
        }
    }
    settle(fixture);
    assert(fixture->n_ended == fixture->n && fixture->n_sent == fixture->n_released);
    assert(fixture->core.n_alive == 0 && fixture->core.budget.n_body_bytes == 0);
    assert(grpc_client_core_next_timer_ns(&fixture->core) == UINT64_MAX);
    grpc_client_core_fini(&fixture->core);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void frame(struct grpc_fixture *fixture, uint8_t type, uint8_t flags, uint32_t id,
                  struct str body) {
    char bytes[FRAME_BYTES];
    struct str frame = frame_print(bytes, type, flags, id, body);
    feed(fixture, frame.ptr, frame.len);
}

/* Valid headers and trailers. */
static void say_head(struct grpc_fixture *fixture, uint32_t id, uint8_t how) {
    static const struct str BLOCKS[] = {
        {"\x88\x0f\x10\20application/grpc", 20},
        {"\x88\x0f\x10\20application/grpc\0\15grpc-encoding\4gzip", 40},
        {"\x88\x0f\x10\20application/grpc\0\13grpc-status\0015", 35},
        {"\0\13grpc-status\0010", 15},
        {"\0\13grpc-status\0013\0\14grpc-message\5a%20b", 35},
        {"\x8d", 1},        /* 404 */
        {"\x08\003100", 5}, /* 100 */
        {"\x88\x5f\11text/html", 12},
    };
    frame(fixture, NGHTTP2_HEADERS,
          (uint8_t)(NGHTTP2_FLAG_END_HEADERS | (how & 128 ? NGHTTP2_FLAG_END_STREAM : 0)), id,
          BLOCKS[how % 8]);
}

static void act(struct grpc_fixture *fixture, uint8_t op, struct ask *ask, uint8_t arg) {
    switch (op) {
    case 0:
        begin(fixture, arg);
        break;
    case 1:
        send_one(ask, arg & 128 ? 500u * arg : arg);
        break;
    case 2:
        if (ask->call && ask->streams) {
            ask->half_closed = true;
            grpc_client_half_close(ask->call);
        }
        break;
    case 3:
        if (ask->call && ask->streams) {
            grpc_client_read(ask->call);
        }
        break;
    default:
        if (ask->call) {
            grpc_client_cancel(ask->call);
        }
        break;
    }
    settle(fixture);
}

static void operate(struct grpc_fixture *fixture) {
    uint8_t op = take(&fixture->input) % 16, arg = take(&fixture->input),
            which = take(&fixture->input);
    uint32_t id = 1 + 2 * (uint32_t)(which % 32);
    switch (op) {
    case 5:
        say_head(fixture, id, arg);
        break;
    case 6:
        frame(fixture, NGHTTP2_DATA, arg & 128 ? NGHTTP2_FLAG_END_STREAM : 0, id, message_of(arg));
        break;
    case 7:
        frame(fixture, NGHTTP2_DATA, arg & NGHTTP2_FLAG_END_STREAM, id,
              take_bytes(&fixture->input, arg / 2));
        break;
    case 8:
        frame(fixture, NGHTTP2_RST_STREAM, 0, id, str_make((const char[]){0, 0, 0, (char)arg}, 4));
        break;
    case 9:
        frame(fixture, NGHTTP2_WINDOW_UPDATE, 0, arg & 1 ? id : 0,
              str_make((const char[]){0, 0, (char)(arg / 2), 1}, 4));
        break;
    case 10:
        frame(fixture, take(&fixture->input) % 12, arg, arg & 2 ? id : 0,
              take_bytes(&fixture->input, take(&fixture->input)));
        break;
    case 11:
        run_iterations(fixture, arg % 4);
        break;
    case 12: /* collects; the next operations happen during the write */
        if (grpc_client_session_has_output(&fixture->session)) {
            (void)grpc_client_session_collect_output(&fixture->session, &fixture->output);
        }
        break;
    case 13:
        written(fixture);
        break;
    case 14:
        pass(fixture, arg * (uint64_t)SECOND / 8);
        break;
    case 15:
        frame(fixture, arg & 1 ? NGHTTP2_GOAWAY : NGHTTP2_SETTINGS, 0, 0,
              arg & 1 ? str_make((const char[]){0, 0, 0, (char)id, 0, 0, 0, (char)(arg / 2)}, 8)
                      : str_make((const char[]){0, 3, 0, 0, 0, (char)(arg / 2)}, 6));
        break;
    default:
        act(fixture, op, &fixture->asks[fixture->n ? which % fixture->n : 0], arg);
        break;
    }
}

/* ---- the input ------------------------------------------------------------------------------- */

static void run_bytes(struct grpc_fixture *fixture, uint8_t how) {
    size_t piece = how & 8 ? 1 : how & 16 ? 100 : SIZE_MAX;
    static const uint8_t CALLS[] = {0, 3, 1, 16, 7, 8 + 32};
    for (size_t i = 0; i < sizeof(CALLS); i++) {
        begin(fixture, CALLS[i]);
        send_one(&fixture->asks[i], 10);
    }
    run_iterations(fixture, 10);
    while (fixture->input.len > 0) {
        struct str bytes = take_bytes(&fixture->input, piece);
        feed(fixture, bytes.ptr, bytes.len);
        run_iterations(fixture, how & 32 ? 0 : 4);
    }
    run_iterations(fixture, 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct grpc_fixture *fixture = calloc(1, sizeof(*fixture));
    if (size == 0 || !fixture) {
        free(fixture);
        return 0;
    }
    uint8_t how = data[0];
    fixture->input = str_make((const char *)data + 1, size - 1);
    open_world(fixture);
    if (how & 3) {
        feed(fixture, "\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0",
             18); /* SETTINGS, and the ACK of the client's */
        run_iterations(fixture, 4);
    }
    if (how & 2) {
        while (fixture->input.len > 0) {
            operate(fixture);
        }
    } else {
        run_bytes(fixture, how);
    }
    close_world(fixture);
    free(fixture);
    return 0;
}
