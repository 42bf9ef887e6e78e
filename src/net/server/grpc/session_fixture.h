/* For the tests of sessions: a server session and a client of nghttp2's own in one memory, between
 * which bytes go in pieces of any size; and a service with a method of each kind. No socket, and no
 * clock but the one the test drives. */
#ifndef SLUICE_NET_SERVER_GRPC_SESSION_FIXTURE_H
#define SLUICE_NET_SERVER_GRPC_SESSION_FIXTURE_H

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/client/grpc/grpc_client_fixture.h"
#include "net/server/grpc/session.h"

enum { MOST_CALLS = 256, SECOND = 1000000000 };

/* ---- the service ----------------------------------------------------------------------------- */

/* What a method has seen of a call. */
struct seen {
    struct grpc_call *call;
    const char *method;
    int n_messages, n_half_closed, n_writable, n_cancelled, n_ended;
    size_t n_bytes;
    enum status why; /* cancelled */
    bool aligned;    /* the byte that was to be, in the last message */
    bool finished;
};

struct service {
    struct seen calls[MOST_CALLS];
    size_t n;
    size_t n_released; /* answers' bytes */
};

/* The test's; methods reach it by their context. */
static inline struct service *service_of(const struct grpc_call *call) {
    return call->method->context;
}

static inline struct seen *seen_of(struct grpc_call *call, enum grpc_event event) {
    struct service *service = service_of(call);
    if (event == GRPC_BEGIN) {
        assert_null(call->user);
        struct seen *fresh = &service->calls[service->n++ % MOST_CALLS];
        *fresh = (struct seen){.call = call, .method = call->method->path};
        call->user = fresh;
    }
    struct seen *seen = call->user;
    seen->n_messages += event == GRPC_MESSAGE;
    seen->n_half_closed += event == GRPC_HALF_CLOSE;
    seen->n_writable += event == GRPC_WRITABLE;
    seen->n_cancelled += event == GRPC_CANCELLED;
    seen->n_ended += event == GRPC_END;
    if (event == GRPC_MESSAGE) {
        seen->n_bytes += call->message->data.len;
    }
    if (event == GRPC_CANCELLED) {
        seen->why = call->cancelled.status;
        assert_true(call->gone);
    }
    if (event == GRPC_END) {
        assert_true(seen->finished);
        seen->call = NULL;
    }
    return seen;
}

static inline void seen_finish(struct seen *seen, const struct error *err) {
    seen->finished = true;
    grpc_finish(seen->call, err);
}

/* A message on its way back. */
struct echo {
    struct grpc_message *message;
    struct service *service;
};

static inline void echo_release(void *cookie) {
    struct echo *echo = cookie;
    echo->service->n_released++;
    grpc_message_free(echo->message);
    free(echo);
}

/* Sends the message at hand back, from where it lies. */
static inline void echo_send(struct grpc_call *call) {
    struct echo *echo = malloc(sizeof(*echo));
    *echo = (struct echo){call->message, service_of(call)};
    struct piece piece = {call->message->data.ptr, call->message->data.len};
    grpc_send(call, &piece, 1, echo_release, echo);
}

static inline void step_echo(struct grpc_call *call, enum grpc_event event) {
    struct seen *seen = seen_of(call, event);
    if (event == GRPC_MESSAGE) {
        echo_send(call);
        seen_finish(seen, NULL);
    }
}

/* Answers when the test says so. */
static inline void step_later(struct grpc_call *call, enum grpc_event event) {
    seen_of(call, event);
    if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
    }
}

static inline void step_fail(struct grpc_call *call, enum grpc_event event) {
    struct seen *seen = seen_of(call, event);
    if (event == GRPC_MESSAGE) {
        struct error err;
        grpc_message_free(call->message);
        error_set(&err, ST_UNKNOWN_MODEL, "no model \"\xc3\xa4\" (100%% sure)");
        grpc_set_trailer(call, STR("reason-bin"), str_make("\0\1\2", 3));
        seen_finish(seen, &err);
    }
}

static inline void step_bidi(struct grpc_call *call, enum grpc_event event) {
    struct seen *seen = seen_of(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        echo_send(call);
        grpc_read(call);
    } else if (event == GRPC_HALF_CLOSE || event == GRPC_CANCELLED) {
        seen_finish(seen, NULL);
    }
}

/* Takes any number of messages and says how many bytes they had. */
static inline void step_sum(struct grpc_call *call, enum grpc_event event) {
    struct seen *seen = seen_of(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
        grpc_read(call);
    } else if (event == GRPC_HALF_CLOSE) {
        struct str text = arena_printf(call->arena, "%zu", seen->n_bytes);
        struct piece piece = {text.ptr, text.len};
        grpc_send(call, &piece, 1, NULL, NULL);
        seen_finish(seen, NULL);
    } else if (event == GRPC_CANCELLED) {
        seen_finish(seen, NULL);
    }
}

/* Sends as many messages as the first byte says, each of 1,000 times that many bytes, and waits for
 * each to leave. */
static inline void step_many(struct grpc_call *call, enum grpc_event event) {
    static const char zeros[256000];
    struct seen *seen = seen_of(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        seen->n_bytes = (unsigned char)call->message->data.ptr[0];
        grpc_message_free(call->message);
    }
    if (event == GRPC_MESSAGE || event == GRPC_WRITABLE) {
        struct piece piece = {zeros, seen->n_bytes * 1000};
        grpc_send(call, &piece, 1, NULL, NULL);
        if ((size_t)seen->n_writable + 1 == seen->n_bytes) {
            seen_finish(seen, NULL);
        }
    } else if (event == GRPC_CANCELLED) {
        seen_finish(seen, NULL);
    }
}

/* Does nothing by itself. */
static inline void step_deaf(struct grpc_call *call, enum grpc_event event) {
    seen_of(call, event);
    if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
    }
}

/* Wants the byte behind the first 'x' aligned. */
static inline size_t align_behind_x(struct str beginning) {
    const char *x = memchr(beginning.ptr, 'x', beginning.len);
    return x ? (size_t)(x - beginning.ptr) + 1 : 0;
}

static inline void step_aligned(struct grpc_call *call, enum grpc_event event) {
    struct seen *seen = seen_of(call, event);
    if (event == GRPC_MESSAGE) {
        struct str data = call->message->data;
        seen->aligned = (uintptr_t)(data.ptr + align_behind_x(data)) % 64 == 0;
        echo_send(call);
        seen_finish(seen, NULL);
    }
}

enum { N_METHODS = 8 };

static inline void service_methods(struct service *service, struct grpc_method *methods) {
    const struct grpc_method all[N_METHODS] = {
        {.path = "/t.T/Echo", .step = step_echo},
        {.path = "/t.T/Later", .step = step_later},
        {.path = "/t.T/Fail", .step = step_fail},
        {.path = "/t.T/Bidi", .step = step_bidi, .streams = true},
        {.path = "/t.T/Sum", .step = step_sum, .streams = true},
        {.path = "/t.T/Many", .step = step_many, .streams = true},
        {.path = "/t.T/Deaf", .step = step_deaf, .streams = true},
        {.path = "/t.T/Aligned", .step = step_aligned, .align_at = align_behind_x},
    };
    for (size_t i = 0; i < N_METHODS; i++) {
        methods[i] = all[i];
        methods[i].context = service;
    }
}

/* ---- both in one memory ---------------------------------------------------------------------- */

enum pace { PACE_WHOLE, PACE_BYTES, PACE_SEVENS, PACE_RANDOM, N_PACES };

struct world {
    enum pace pace; /* how bytes go to the server */
    unsigned seed;
    struct worker *worker;
    struct net_budget budget;
    struct body_pool pool;
    struct grpc_method methods[N_METHODS];
    struct grpc_server_options options;
    struct grpc_core core;
    struct grpc_session session;
    struct grpc_output *output;
    struct service service;
    struct client client;
    size_t n_alive;
    _Atomic uint64_t n_calls;
    uint64_t now_ns;
    int64_t gauges[3]; /* before */
    bool no_reading;   /* the client does not take what the server says */
    size_t n_writes;   /* outputs with something in them */
    char refused[ERROR_TEXT_BYTES];
    char *raw; /* all that the server said, when `keep_raw` */
    size_t raw_len;
    bool keep_raw;
};

static inline void world_ask_turn(struct grpc_core *core) {
    (void)core;
}

static inline void world_refused(struct grpc_session *session, const struct error *err,
                                 bool whole) {
    struct world *world = session->core->cookie;
    (void)whole;
    snprintf(world->refused, sizeof(world->refused), "%s", err->text);
}

static inline struct grpc_limits world_limits(void) {
    return (struct grpc_limits){.max_header_bytes = 8192,
                                .max_message_bytes = 1 << 20,
                                .request_memory_bytes = 1 << 20,
                                .max_streams = 100,
                                .stream_window_bytes = 1 << 16,
                                .connection_window_bytes = 1 << 20,
                                .idle_timeout_ns = 60 * (uint64_t)SECOND,
                                .header_timeout_ns = 10 * (uint64_t)SECOND,
                                .body_timeout_ns = 20 * (uint64_t)SECOND,
                                .write_timeout_ns = 30 * (uint64_t)SECOND};
}

static const enum metric WORLD_GAUGES[] = {METRIC_REQUESTS_IN_FLIGHT, METRIC_BODY_BYTES_IN_FLIGHT,
                                           METRIC_ARENAS};
enum { N_GAUGES = sizeof(WORLD_GAUGES) / sizeof(WORLD_GAUGES[0]) };

/* Fills in everything but the sessions. */
static inline struct world *world_new(const struct grpc_limits *limits) {
    struct world *world = calloc(1, sizeof(*world));
    struct error err;
    for (size_t i = 0; i < N_GAUGES; i++) {
        world->gauges[i] = metric_read(WORLD_GAUGES[i]);
    }
    world->now_ns = SECOND;
    world->seed = 1;
    clock_drive_ns(world->now_ns);
    world->budget = (struct net_budget){.body_memory_bytes = 8 << 20, .max_connections = 10};
    body_pool_init(&world->pool, 1 << 20);
    assert_int_equal(worker_new("test", &world->worker, &err), ST_OK);
    service_methods(&world->service, world->methods);
    world->options = (struct grpc_server_options){.limits = *limits,
                                                  .budget = &world->budget,
                                                  .methods = world->methods,
                                                  .n_methods = N_METHODS};
    world->output = malloc(sizeof(*world->output));
    world->core = (struct grpc_core){.pool = &world->pool,
                                     .n_alive = &world->n_alive,
                                     .n_calls = &world->n_calls,
                                     .ask_turn = world_ask_turn,
                                     .on_refused = world_refused,
                                     .cookie = world};
    return world;
}

/* Both sides, with the client's settings. */
static inline void world_open(struct world *world, const nghttp2_settings_entry *settings,
                              size_t n_settings) {
    struct error err;
    assert_int_equal(grpc_core_init(&world->core, &world->options, world->worker, &err), ST_OK);
    assert_int_equal(grpc_session_open(&world->core, &world->session, &err), ST_OK);
    client_open(&world->client, settings, n_settings);
}

static inline struct world *world_begin(void) {
    struct grpc_limits limits = world_limits();
    struct world *world = world_new(&limits);
    world_open(world, NULL, 0);
    return world;
}

/* How many of `n` bytes go next. */
static inline size_t world_piece(struct world *world, size_t n) {
    size_t piece = n;
    if (world->pace == PACE_BYTES) {
        piece = 1;
    } else if (world->pace == PACE_SEVENS) {
        piece = 7;
    } else if (world->pace == PACE_RANDOM) {
        world->seed = world->seed * 1103515245 + 12345;
        piece = world->seed / 65536 % 3000 + 1;
    }
    return piece < n ? piece : n;
}

/* Bytes to the server. */
static inline void world_feed(struct world *world, const void *data, size_t n) {
    const char *at = data;
    while (n > 0) {
        size_t piece = world_piece(world, n);
        /* A copy of its own, so that a view that outlives it is seen. */
        char *copy = malloc(piece);
        memcpy(copy, at, piece);
        grpc_session_receive(&world->session, str_make(copy, piece));
        free(copy);
        grpc_core_sweep(&world->core);
        at += piece;
        n -= piece;
    }
}

static inline void world_keep(struct world *world, const void *data, size_t n) {
    world->raw = realloc(world->raw, world->raw_len + n + 1);
    memcpy(world->raw + world->raw_len, data, n);
    world->raw_len += n;
}

/* What was collected arrives. */
static inline void world_arrive(struct world *world) {
    for (size_t i = 0; i < world->output->n; i++) {
        const struct piece *piece = &world->output->pieces[i];
        if (world->keep_raw) {
            world_keep(world, piece->data, piece->n_bytes);
        } else if (world->client.h2) {
            ssize_t n = nghttp2_session_mem_recv(world->client.h2, piece->data, piece->n_bytes);
            assert_int_equal(n, piece->n_bytes);
        }
    }
    grpc_session_written(&world->session);
    grpc_core_sweep(&world->core);
}

/* One turn of the server. Returns: whether it said something. */
static inline bool world_turn(struct world *world) {
    grpc_core_sweep(&world->core);
    if (world->no_reading || world->session.flight.writing) {
        return false;
    }
    bool asked = grpc_core_take_dirty(&world->core) != NULL;
    world->session.dirty = false;
    if (!grpc_session_has_output(&world->session)) {
        return false;
    }
    assert_true(asked); /* a real server would not look */
    if (!grpc_session_output(&world->session, world->output)) {
        return false;
    }
    world->n_writes++;
    world_arrive(world);
    return true;
}

/* Until nobody has anything to say. */
static inline void world_run(struct world *world) {
    bool busy = true;
    while (busy) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(world->client.h2, &data);
        assert_true(n >= 0);
        if (n > 0) {
            world_feed(world, data, (size_t)n);
        }
        busy = n > 0 || world_turn(world);
    }
}

static inline void world_pass(struct world *world, uint64_t ns) {
    world->now_ns += ns;
    clock_drive_ns(world->now_ns);
    grpc_core_tick(&world->core, world->now_ns);
    grpc_core_sweep(&world->core);
}

/* Ends all of it; nothing may be left over. */
static inline void world_end(struct world *world) {
    grpc_session_close(&world->session);
    for (size_t i = 0; i < MOST_CALLS; i++) {
        if (world->service.calls[i].call && !world->service.calls[i].finished) {
            seen_finish(&world->service.calls[i], NULL);
        }
    }
    if (world->session.flight.writing) {
        grpc_session_written(&world->session);
    }
    grpc_core_sweep(&world->core);
    assert_int_equal(world->n_alive, 0);
    assert_int_equal(world->n_calls, 0);
    assert_int_equal(world->budget.n_body_bytes, 0);
    assert_int_equal(world->core.deadlines.n, 0);
    assert_true(timeouts_next_ns(&world->core.timeouts) == UINT64_MAX);
    for (size_t i = 0; i < N_GAUGES; i++) {
        assert_int_equal(metric_read(WORLD_GAUGES[i]), world->gauges[i]);
    }
    grpc_core_fini(&world->core);
    body_pool_fini(&world->pool);
    worker_free(world->worker);
    client_close(&world->client);
    free(world->output);
    free(world->raw);
    free(world);
    clock_drive_ns(0);
}

#endif
