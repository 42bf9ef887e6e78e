/* A gRPC client's session and a server that says anything. The first byte says how: the rest as the
 * server's bytes, to calls that are under way; the same behind its SETTINGS; or as operations,
 * which begin calls, send, read, cancel, have the server say frames in any order, write little or
 * nothing, let time pass, and lose the connection. Whatever comes: each call ends once, what was
 * sent is released once, and nothing is left over. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/event/clock.h"
#include "net/client/grpc/session.h"
#include "net/transport/h2_fuzz_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_CALLS = 64, SECOND = 1000000000 };

struct world;

struct ask {
    struct grpc_client_call *call; /* NULL: over */
    struct world *world;
    bool streams, half_closed;
    bool reads;   /* what comes, at once */
    bool cancels; /* with the first message */
};

struct world {
    struct str input;
    struct grpc_client_core core;
    struct grpc_client_session session;
    struct grpc_output output;
    struct ask asks[MOST_CALLS];
    size_t n, n_ended, n_sent, n_released;
    uint64_t now_ns;
};

/* ---- calls ----------------------------------------------------------------------------------- */

static void release(void *cookie) {
    struct world *world = cookie;
    world->n_released++;
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
        ask->world->n_ended++;
    }
}

static void send_one(struct ask *ask, size_t n_bytes) {
    static const char bytes[70000];
    struct piece pieces[] = {{bytes, n_bytes / 3}, {bytes, n_bytes - n_bytes / 3}};
    if (ask->call && !ask->half_closed) {
        ask->half_closed = !ask->streams;
        ask->world->n_sent++;
        grpc_client_send(ask->call, pieces, 2, release, ask->world);
    }
}

static size_t align_at(struct str beginning) {
    return beginning.len > 0 ? (unsigned char)beginning.ptr[0] : 0;
}

/* `how`: streams, reads, cancels, has a deadline, is aligned. */
static void begin(struct world *world, uint8_t how) {
    struct grpc_client_stream *stream;
    struct error err;
    if (world->n == MOST_CALLS) {
        return;
    }
    struct ask *ask = &world->asks[world->n++];
    *ask = (struct ask){
        .world = world, .streams = how & 1, .reads = (how & 3) == 3, .cancels = how & 4};
    struct grpc_client_ask all = {.path = STR("/a.A/B"),
                                  .timeout_ns = how & 8 ? (how >> 4) * (uint64_t)SECOND : 0,
                                  .step = step,
                                  .user = ask,
                                  .streams = ask->streams,
                                  .align_at = how & 16 ? align_at : NULL};
    assert(grpc_client_stream_new(&world->core, &all, &stream, &err) == ST_OK);
    ask->call = &stream->call;
    if (ask->reads) {
        grpc_client_read(ask->call);
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

static void ask_turn(struct grpc_client_core *core) {
    (void)core;
}

static void open_world(struct world *world) {
    struct error err;
    world->now_ns = SECOND;
    clock_drive_ns(world->now_ns);
    world->core = (struct grpc_client_core){.limits = {.max_message_bytes = 1 << 18,
                                                       .max_header_bytes = 2048,
                                                       .stream_window_bytes = 40000,
                                                       .connection_window_bytes = 100000},
                                            .authority = STR("fuzz"),
                                            .ask_turn = ask_turn};
    assert(grpc_client_core_init(&world->core, &err) == ST_OK);
    assert(grpc_client_session_open(&world->core, &world->session, &err) == ST_OK);
}

static void settle(struct world *world) {
    grpc_client_core_dispatch(&world->core, &world->session);
    grpc_client_core_sweep(&world->core);
}

static void written(struct world *world) {
    if (world->session.flight.writing) {
        touch(&world->output);
        grpc_client_session_written(&world->session);
        settle(world);
    }
}

static void turn(struct world *world, unsigned n) {
    settle(world);
    while (n-- > 0 && grpc_client_session_has_output(&world->session)) {
        if (grpc_client_session_output(&world->session, &world->output)) {
            written(world);
        }
    }
    settle(world);
}

static void feed(struct world *world, const void *data, size_t n) {
    char *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, data, n);
    grpc_client_session_receive(&world->session, str_make(copy, n));
    free(copy);
    settle(world);
}

static void pass(struct world *world, uint64_t ns) {
    world->now_ns += ns;
    clock_drive_ns(world->now_ns);
    grpc_client_core_tick(&world->core, world->now_ns);
    settle(world);
}

static void lose(struct world *world) {
    struct error err;
    error_set(&err, ST_IO, "lost");
    grpc_client_session_close(&world->session, &err);
    settle(world);
}

static void close_world(struct world *world) {
    lose(world);
    written(world);
    for (size_t i = 0; i < world->n; i++) {
        if (world->asks[i].call) { /* it waits, or has not read all */
            grpc_client_cancel(world->asks[i].call);
        }
    }
    settle(world);
    assert(world->n_ended == world->n && world->n_sent == world->n_released);
    assert(world->core.n_alive == 0 && world->core.budget.n_body_bytes == 0);
    assert(grpc_client_core_next_ns(&world->core) == UINT64_MAX);
    grpc_client_core_fini(&world->core);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void frame(struct world *world, uint8_t type, uint8_t flags, uint32_t id, struct str body) {
    char bytes[FRAME_BYTES];
    struct str frame = frame_print(bytes, type, flags, id, body);
    feed(world, frame.ptr, frame.len);
}

/* Heads and trailers that mean something. */
static void say_head(struct world *world, uint32_t id, uint8_t how) {
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
    frame(world, NGHTTP2_HEADERS,
          (uint8_t)(NGHTTP2_FLAG_END_HEADERS | (how & 128 ? NGHTTP2_FLAG_END_STREAM : 0)), id,
          BLOCKS[how % 8]);
}

static void act(struct world *world, uint8_t op, struct ask *ask, uint8_t arg) {
    switch (op) {
    case 0:
        begin(world, arg);
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
    settle(world);
}

static void operate(struct world *world) {
    uint8_t op = take(&world->input) % 16, arg = take(&world->input), which = take(&world->input);
    uint32_t id = 1 + 2 * (uint32_t)(which % 32);
    switch (op) {
    case 5:
        say_head(world, id, arg);
        break;
    case 6:
        frame(world, NGHTTP2_DATA, arg & 128 ? NGHTTP2_FLAG_END_STREAM : 0, id, message_of(arg));
        break;
    case 7:
        frame(world, NGHTTP2_DATA, arg & NGHTTP2_FLAG_END_STREAM, id,
              take_bytes(&world->input, arg / 2));
        break;
    case 8:
        frame(world, NGHTTP2_RST_STREAM, 0, id, str_make((const char[]){0, 0, 0, (char)arg}, 4));
        break;
    case 9:
        frame(world, NGHTTP2_WINDOW_UPDATE, 0, arg & 1 ? id : 0,
              str_make((const char[]){0, 0, (char)(arg / 2), 1}, 4));
        break;
    case 10:
        frame(world, take(&world->input) % 12, arg, arg & 2 ? id : 0,
              take_bytes(&world->input, take(&world->input)));
        break;
    case 11:
        turn(world, arg % 4);
        break;
    case 12: /* collects, and what follows happens while it is being written */
        if (grpc_client_session_has_output(&world->session)) {
            (void)grpc_client_session_output(&world->session, &world->output);
        }
        break;
    case 13:
        written(world);
        break;
    case 14:
        pass(world, arg * (uint64_t)SECOND / 8);
        break;
    case 15:
        frame(world, arg & 1 ? NGHTTP2_GOAWAY : NGHTTP2_SETTINGS, 0, 0,
              arg & 1 ? str_make((const char[]){0, 0, 0, (char)id, 0, 0, 0, (char)(arg / 2)}, 8)
                      : str_make((const char[]){0, 3, 0, 0, 0, (char)(arg / 2)}, 6));
        break;
    default:
        act(world, op, &world->asks[world->n ? which % world->n : 0], arg);
        break;
    }
}

/* ---- the input ------------------------------------------------------------------------------- */

static void run_bytes(struct world *world, uint8_t how) {
    size_t piece = how & 8 ? 1 : how & 16 ? 100 : SIZE_MAX;
    static const uint8_t CALLS[] = {0, 3, 1, 16, 7, 8 + 32};
    for (size_t i = 0; i < sizeof(CALLS); i++) {
        begin(world, CALLS[i]);
        send_one(&world->asks[i], 10);
    }
    turn(world, 10);
    while (world->input.len > 0) {
        struct str bytes = take_bytes(&world->input, piece);
        feed(world, bytes.ptr, bytes.len);
        turn(world, how & 32 ? 0 : 4);
    }
    turn(world, 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct world *world = calloc(1, sizeof(*world));
    if (size == 0 || !world) {
        free(world);
        return 0;
    }
    uint8_t how = data[0];
    world->input = str_make((const char *)data + 1, size - 1);
    open_world(world);
    if (how & 3) {
        feed(world, "\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0", 18); /* SETTINGS, and the ACK of ours */
        turn(world, 4);
    }
    if (how & 2) {
        while (world->input.len > 0) {
            operate(world);
        }
    } else {
        run_bytes(world, how);
    }
    close_world(world);
    free(world);
    return 0;
}
