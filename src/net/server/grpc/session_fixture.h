/* Fixture for the session tests: a server session and an nghttp2 client in memory, bytes delivered
 * in pieces of any size, and a service with a method of each kind. The test drives the clock. */
#ifndef SLUICE_NET_SERVER_GRPC_SESSION_FIXTURE_H
#define SLUICE_NET_SERVER_GRPC_SESSION_FIXTURE_H

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "net/client/grpc/grpc_client_fixture.h"
#include "net/server/grpc/session.h"

enum { MOST_CALLS = 256, SECOND = 1000000000 };

/* A text of that length with varying bytes, valid until the next call. */
static inline struct str varied_text(size_t n) {
    static char text[1 << 20];
    assert_true(n <= sizeof(text));
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)('a' + i * 7 % 26 + i / 1000 % 3);
    }
    return str_make(text, n);
}

/* ---- the service ----------------------------------------------------------------------------- */

/* The events of a call as the method got them. */
struct recorded_call {
    struct grpc_call *call;
    const char *method;
    int n_messages, n_half_closed, n_writable, n_cancelled, n_ended;
    size_t n_bytes;
    enum status why; /* if cancelled */
    bool aligned;    /* whether the requested byte of the last message is aligned */
    bool finished;
};

struct service {
    struct recorded_call calls[MOST_CALLS];
    size_t n;
    size_t n_released; /* released responses */
};

/* The test's service, from the method's context. */
static inline struct service *service_of(const struct grpc_call *call) {
    return call->method->context;
}

static inline struct recorded_call *recorded_call_of(struct grpc_call *call,
                                                     enum grpc_event event) {
    struct service *service = service_of(call);
    if (event == GRPC_BEGIN) {
        assert_null(call->user);
        struct recorded_call *fresh = &service->calls[service->n++ % MOST_CALLS];
        *fresh = (struct recorded_call){.call = call, .method = call->method->path};
        call->user = fresh;
    }
    struct recorded_call *recorded = call->user;
    recorded->n_messages += event == GRPC_MESSAGE;
    recorded->n_half_closed += event == GRPC_HALF_CLOSE;
    recorded->n_writable += event == GRPC_WRITABLE;
    recorded->n_cancelled += event == GRPC_CANCELLED;
    recorded->n_ended += event == GRPC_END;
    if (event == GRPC_MESSAGE) {
        recorded->n_bytes += call->message->data.len;
    }
    if (event == GRPC_CANCELLED) {
        recorded->why = call->cancel_error.status;
        assert_true(call->is_cancelled);
    }
    if (event == GRPC_END) {
        assert_true(recorded->finished);
        recorded->call = NULL;
    }
    return recorded;
}

static inline void recorded_call_finish(struct recorded_call *recorded, const struct error *err) {
    recorded->finished = true;
    grpc_finish(recorded->call, err);
}

/* A message that is sent back. */
struct echo {
    struct grpc_message *message;
    struct service *service;
};

static inline void echo_release(void *user) {
    struct echo *echo = user;
    echo->service->n_released++;
    grpc_message_free(echo->message);
    free(echo);
}

/* Sends the message back without copying it. */
static inline void echo_send(struct grpc_call *call) {
    struct echo *echo = malloc(sizeof(*echo));
    *echo = (struct echo){call->message, service_of(call)};
    struct piece piece = {call->message->data.ptr, call->message->data.len};
    grpc_send(call, &piece, 1, echo_release, echo);
}

static inline void step_echo(struct grpc_call *call, enum grpc_event event) {
    struct recorded_call *recorded = recorded_call_of(call, event);
    if (event == GRPC_MESSAGE) {
        echo_send(call);
        recorded_call_finish(recorded, NULL);
    }
}

/* Responds when the test says so. */
static inline void step_later(struct grpc_call *call, enum grpc_event event) {
    recorded_call_of(call, event);
    if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
    }
}

static inline void step_fail(struct grpc_call *call, enum grpc_event event) {
    struct recorded_call *recorded = recorded_call_of(call, event);
    if (event == GRPC_MESSAGE) {
        struct error err;
        grpc_message_free(call->message);
        error_set(&err, ST_UNKNOWN_MODEL, "no model \"\xc3\xa4\" (100%% sure)");
        grpc_set_trailer(call, STR("reason-bin"), str_make("\0\1\2", 3));
        recorded_call_finish(recorded, &err);
    }
}

static inline void step_bidi(struct grpc_call *call, enum grpc_event event) {
    struct recorded_call *recorded = recorded_call_of(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        echo_send(call);
        grpc_read(call);
    } else if (event == GRPC_HALF_CLOSE || event == GRPC_CANCELLED) {
        recorded_call_finish(recorded, NULL);
    }
}

/* Receives any number of messages and replies with their total size. */
static inline void step_sum(struct grpc_call *call, enum grpc_event event) {
    struct recorded_call *recorded = recorded_call_of(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
        grpc_read(call);
    } else if (event == GRPC_HALF_CLOSE) {
        struct str text = arena_printf(call->arena, "%zu", recorded->n_bytes);
        struct piece piece = {text.ptr, text.len};
        grpc_send(call, &piece, 1, NULL, NULL);
        recorded_call_finish(recorded, NULL);
    } else if (event == GRPC_CANCELLED) {
        recorded_call_finish(recorded, NULL);
    }
}

/* Sends as many messages as the first byte says, each of 1,000 times that many bytes, and waits for
 * GRPC_WRITABLE after each. */
static inline void step_many(struct grpc_call *call, enum grpc_event event) {
    static const char zeros[256000];
    struct recorded_call *recorded = recorded_call_of(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        recorded->n_bytes = (unsigned char)call->message->data.ptr[0];
        grpc_message_free(call->message);
    }
    if (event == GRPC_MESSAGE || event == GRPC_WRITABLE) {
        struct piece piece = {zeros, recorded->n_bytes * 1000};
        grpc_send(call, &piece, 1, NULL, NULL);
        if ((size_t)recorded->n_writable + 1 == recorded->n_bytes) {
            recorded_call_finish(recorded, NULL);
        }
    } else if (event == GRPC_CANCELLED) {
        recorded_call_finish(recorded, NULL);
    }
}

/* Does nothing. */
static inline void step_deaf(struct grpc_call *call, enum grpc_event event) {
    recorded_call_of(call, event);
    if (event == GRPC_MESSAGE) {
        grpc_message_free(call->message);
    }
}

/* Requests that the byte after the first 'x' is aligned. */
static inline size_t align_behind_x(struct str beginning) {
    const char *x = memchr(beginning.ptr, 'x', beginning.len);
    return x ? (size_t)(x - beginning.ptr) + 1 : 0;
}

static inline void step_aligned(struct grpc_call *call, enum grpc_event event) {
    struct recorded_call *recorded = recorded_call_of(call, event);
    if (event == GRPC_MESSAGE) {
        struct str data = call->message->data;
        recorded->aligned = (uintptr_t)(data.ptr + align_behind_x(data)) % 64 == 0;
        echo_send(call);
        recorded_call_finish(recorded, NULL);
    }
}

enum { N_METHODS = 8 };

static inline void service_methods(struct service *service, struct grpc_method *methods) {
    const struct grpc_method all[N_METHODS] = {
        {.path = "/t.T/Echo", .on_event = step_echo},
        {.path = "/t.T/Later", .on_event = step_later},
        {.path = "/t.T/Fail", .on_event = step_fail},
        {.path = "/t.T/Bidi", .on_event = step_bidi, .streams = true},
        {.path = "/t.T/Sum", .on_event = step_sum, .streams = true},
        {.path = "/t.T/Many", .on_event = step_many, .streams = true},
        {.path = "/t.T/Deaf", .on_event = step_deaf, .streams = true},
        {.path = "/t.T/Aligned", .on_event = step_aligned, .align_at = align_behind_x},
    };
    for (size_t i = 0; i < N_METHODS; i++) {
        methods[i] = all[i];
        methods[i].context = service;
    }
}

/* ---- server and client in memory ------------------------------------------------------------- */

enum pace { PACE_WHOLE, PACE_BYTES, PACE_SEVENS, PACE_RANDOM, N_PACES };

struct grpc_fixture {
    enum pace pace; /* piece sizes of the bytes to the server */
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
    int64_t gauges[3]; /* before the test */
    bool no_reading;   /* the client does not read the server's output */
    size_t n_writes;   /* non-empty outputs */
    size_t n_in_place; /* bytes that the server had read to their place */
    char refused[ERROR_TEXT_BYTES];
    char *raw; /* all bytes of the server, with `keep_raw` */
    size_t raw_len;
    bool keep_raw;
};

static inline void grpc_fixture_schedule_deferred(struct grpc_core *core) {
    (void)core;
}

static inline void grpc_fixture_on_refused(struct grpc_session *session, const struct error *err,
                                           bool whole) {
    struct grpc_fixture *fixture = session->core->user;
    (void)whole;
    snprintf(fixture->refused, sizeof(fixture->refused), "%s", err->text);
}

static inline struct grpc_limits grpc_fixture_limits(void) {
    return (struct grpc_limits){.net = {.max_header_size = 8192,
                                        .max_body_size = 1 << 20,
                                        .request_memory = 1 << 20,
                                        .idle_timeout_ns = 60 * (uint64_t)SECOND,
                                        .header_timeout_ns = 10 * (uint64_t)SECOND,
                                        .body_timeout_ns = 20 * (uint64_t)SECOND,
                                        .write_timeout_ns = 30 * (uint64_t)SECOND},
                                .max_streams = 100,
                                .stream_window_bytes = 1 << 16,
                                .connection_window_bytes = 1 << 20};
}

static const enum metric WORLD_GAUGES[] = {METRIC_REQUESTS_IN_FLIGHT, METRIC_BODY_BYTES_IN_FLIGHT,
                                           METRIC_ARENAS};
enum { N_GAUGES = sizeof(WORLD_GAUGES) / sizeof(WORLD_GAUGES[0]) };

/* Sets up everything except the sessions. */
static inline struct grpc_fixture *grpc_fixture_new(const struct grpc_limits *limits) {
    struct grpc_fixture *fixture = calloc(1, sizeof(*fixture));
    struct error err;
    for (size_t i = 0; i < N_GAUGES; i++) {
        fixture->gauges[i] = metric_read(WORLD_GAUGES[i]);
    }
    fixture->now_ns = SECOND;
    fixture->seed = 1;
    clock_set_fake_ns(fixture->now_ns);
    fixture->budget = (struct net_budget){.body_memory = 8 << 20, .max_connections = 10};
    body_pool_init(&fixture->pool, 1 << 20);
    assert_int_equal(worker_new("test", &fixture->worker, &err), ST_OK);
    service_methods(&fixture->service, fixture->methods);
    fixture->options = (struct grpc_server_options){.limits = *limits,
                                                    .budget = &fixture->budget,
                                                    .methods = fixture->methods,
                                                    .n_methods = N_METHODS};
    fixture->output = malloc(sizeof(*fixture->output));
    fixture->core = (struct grpc_core){.pool = &fixture->pool,
                                       .n_alive = &fixture->n_alive,
                                       .n_calls = &fixture->n_calls,
                                       .schedule_deferred = grpc_fixture_schedule_deferred,
                                       .on_refused = grpc_fixture_on_refused,
                                       .user = fixture};
    return fixture;
}

/* Both sides, with these client settings. */
static inline void grpc_fixture_open_client(struct grpc_fixture *fixture,
                                            const nghttp2_settings_entry *settings,
                                            size_t n_settings) {
    struct error err;
    assert_int_equal(grpc_core_init(&fixture->core, &fixture->options, fixture->worker, &err),
                     ST_OK);
    grpc_session_init(&fixture->session, &fixture->core);
    assert_int_equal(grpc_session_open(&fixture->session, &err), ST_OK);
    client_open(&fixture->client, settings, n_settings);
}

static inline struct grpc_fixture *grpc_fixture_open(void) {
    struct grpc_limits limits = grpc_fixture_limits();
    struct grpc_fixture *fixture = grpc_fixture_new(&limits);
    grpc_fixture_open_client(fixture, NULL, 0);
    return fixture;
}

/* Returns: how many of `n` bytes to deliver next. */
static inline size_t grpc_fixture_piece_size(struct grpc_fixture *fixture, size_t n) {
    size_t piece = n;
    if (fixture->pace == PACE_BYTES) {
        piece = 1;
    } else if (fixture->pace == PACE_SEVENS) {
        piece = 7;
    } else if (fixture->pace == PACE_RANDOM) {
        fixture->seed = fixture->seed * 1103515245 + 12345;
        piece = fixture->seed / 65536 % 3000 + 1;
    }
    return piece < n ? piece : n;
}

/* Feeds bytes to the server. */
static inline void grpc_fixture_feed(struct grpc_fixture *fixture, const void *data, size_t n) {
    const char *at = data;
    while (n > 0) {
        size_t piece = grpc_fixture_piece_size(fixture, n), n_place;
        char *place = grpc_session_read_buffer(&fixture->session, &n_place);
        if (place && n_place < piece) {
            piece = n_place;
        }
        /* Else a copy, so that the sanitizer finds a view that outlives it. */
        char *copy = place ? NULL : malloc(piece);
        memcpy(place ? place : copy, at, piece);
        fixture->n_in_place += place && n_place > H2_FRAME_HEAD_BYTES ? piece : 0;
        grpc_session_receive(&fixture->session, str_make(place ? place : copy, piece));
        free(copy);
        do {
            grpc_core_inflate_more(&fixture->core);
        } while (!TAILQ_EMPTY(&fixture->core.inflating));
        grpc_core_sweep(&fixture->core);
        at += piece;
        n -= piece;
    }
}

static inline void grpc_fixture_store(struct grpc_fixture *fixture, const void *data, size_t n) {
    fixture->raw = realloc(fixture->raw, fixture->raw_len + n + 1);
    memcpy(fixture->raw + fixture->raw_len, data, n);
    fixture->raw_len += n;
}

/* Delivers the collected output. */
static inline void grpc_fixture_deliver(struct grpc_fixture *fixture) {
    for (size_t i = 0; i < fixture->output->n; i++) {
        const struct piece *piece = &fixture->output->pieces[i];
        if (fixture->keep_raw) {
            grpc_fixture_store(fixture, piece->data, piece->n_bytes);
        } else if (fixture->client.h2) {
            ssize_t n = nghttp2_session_mem_recv(fixture->client.h2, piece->data, piece->n_bytes);
            assert_int_equal(n, piece->n_bytes);
        }
    }
    grpc_session_on_written(&fixture->session);
    grpc_core_sweep(&fixture->core);
}

/* One iteration of the server. Returns: whether it produced output. */
static inline bool grpc_fixture_run_once(struct grpc_fixture *fixture) {
    grpc_core_sweep(&fixture->core);
    grpc_session_drain_some(&fixture->session);
    if (fixture->no_reading || fixture->session.write_batch.writing) {
        return false;
    }
    bool record = grpc_core_take_scheduled(&fixture->core) != NULL;
    fixture->session.scheduled = false;
    if (!grpc_session_has_output(&fixture->session)) {
        return false;
    }
    assert_true(record); /* a real server does not check */
    if (!grpc_session_collect_output(&fixture->session, fixture->output)) {
        return false;
    }
    fixture->n_writes++;
    grpc_fixture_deliver(fixture);
    return true;
}

/* Runs until neither side has output. */
static inline void grpc_fixture_run(struct grpc_fixture *fixture) {
    bool busy = true;
    while (busy) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(fixture->client.h2, &data);
        assert_true(n >= 0);
        if (n > 0) {
            grpc_fixture_feed(fixture, data, (size_t)n);
        }
        busy = n > 0 || grpc_fixture_run_once(fixture);
    }
}

static inline void grpc_fixture_advance_clock(struct grpc_fixture *fixture, uint64_t ns) {
    fixture->now_ns += ns;
    clock_set_fake_ns(fixture->now_ns);
    grpc_core_run_timers(&fixture->core, fixture->now_ns);
    grpc_core_sweep(&fixture->core);
}

/* Frees everything; nothing may leak. */
static inline void grpc_fixture_free(struct grpc_fixture *fixture) {
    grpc_session_close(&fixture->session);
    for (size_t i = 0; i < MOST_CALLS; i++) {
        if (fixture->service.calls[i].call && !fixture->service.calls[i].finished) {
            recorded_call_finish(&fixture->service.calls[i], NULL);
        }
    }
    if (fixture->session.write_batch.writing) {
        grpc_session_on_written(&fixture->session);
    }
    while (grpc_core_sweep(&fixture->core)) {
    }
    assert_int_equal(fixture->n_alive, 0);
    assert_int_equal(fixture->n_calls, 0);
    assert_int_equal(fixture->budget.n_body_bytes, 0);
    assert_int_equal(fixture->core.deadlines.n, 0);
    assert_true(timer_list_next_ns(&fixture->core.stream_timers) == UINT64_MAX);
    for (size_t i = 0; i < N_GAUGES; i++) {
        assert_int_equal(metric_read(WORLD_GAUGES[i]), fixture->gauges[i]);
    }
    grpc_core_fini(&fixture->core);
    body_pool_fini(&fixture->pool);
    worker_free(fixture->worker);
    client_close(&fixture->client);
    free(fixture->output);
    free(fixture->raw);
    free(fixture);
    clock_set_fake_ns(0);
}

#endif
