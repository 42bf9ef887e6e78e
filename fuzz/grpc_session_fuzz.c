/* A gRPC server session with an arbitrary peer and methods of each kind, and (one bit of the first
 * byte) handlers of HTTP for requests that are not gRPC. The first byte selects the mode: the input
 * from the preface on; the same after preface and SETTINGS; or as operations, which make calls and
 * requests, their frames in any order, loop iterations with partial writes, passing time, delayed
 * responses, and the end. Each started call and exchange ends, responses are released once, and
 * nothing leaks. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/event/clock.h"
#include "net/server/grpc/session.h"
#include "net/server/http/conn.h"
#include "net/transport/h2_fuzz_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_DEFERRED_CALLS = 64, SECOND = 1000000000 };

/* ---- the service ----------------------------------------------------------------------------- */

struct service {
    struct grpc_call *later[MAX_DEFERRED_CALLS]; /* waiting for an operation */
    size_t n_later;
    size_t n_begun, n_ended, n_messages, n_freed, n_sent, n_released;
    struct http_exchange *exchanges[MAX_DEFERRED_CALLS]; /* likewise, of HTTP */
    size_t n_exchanges;
    size_t n_heads, n_ends, n_replies, n_reply_releases;
    uint64_t sum; /* of bodies */
};

struct answer {
    struct grpc_message *message;
    struct service *service;
};

static struct service *service_of(const struct grpc_call *call) {
    return call->method->context;
}

static void release(void *user) {
    struct answer *answer = user;
    answer->service->n_released++;
    answer->service->n_freed++;
    grpc_message_free(answer->message);
    free(answer);
}

static void send_back(struct grpc_call *call) {
    struct answer *answer = malloc(sizeof(*answer));
    struct str data = call->message->data;
    *answer = (struct answer){call->message, service_of(call)};
    struct piece pieces[] = {{data.ptr, data.len / 2},
                             {data.ptr + data.len / 2, data.len - data.len / 2}};
    answer->service->n_sent++;
    grpc_send(call, pieces, 2, release, answer);
}

static void drop_message(struct grpc_call *call) {
    service_of(call)->n_freed++;
    grpc_message_free(call->message);
}

static void count(struct grpc_call *call, enum grpc_event event) {
    struct service *service = service_of(call);
    service->n_begun += event == GRPC_BEGIN;
    service->n_ended += event == GRPC_END;
    service->n_messages += event == GRPC_MESSAGE;
}

static void step_echo(struct grpc_call *call, enum grpc_event event) {
    count(call, event);
    if (event == GRPC_MESSAGE) {
        send_back(call);
        grpc_finish(call, NULL);
    }
}

/* Ends by an operation; rejects a call when too many are waiting. */
static void step_deferred(struct grpc_call *call, enum grpc_event event) {
    struct service *service = service_of(call);
    struct error err;
    count(call, event);
    if (event == GRPC_MESSAGE) {
        drop_message(call);
        if (service->n_later < MAX_DEFERRED_CALLS) {
            service->later[service->n_later++] = call;
        } else {
            error_set(&err, ST_OVERLOADED, "too many");
            grpc_finish(call, &err);
        }
    }
}

static void step_bidi(struct grpc_call *call, enum grpc_event event) {
    count(call, event);
    if (event == GRPC_BEGIN) {
        grpc_read(call);
    } else if (event == GRPC_MESSAGE) {
        send_back(call);
        grpc_read(call);
    } else if (event == GRPC_HALF_CLOSE || event == GRPC_CANCELLED) {
        grpc_finish(call, NULL);
    }
}

/* Sends as much as the queue takes. */
static void step_stream_out(struct grpc_call *call, enum grpc_event event) {
    static const char zeros[30000];
    count(call, event);
    if (event == GRPC_BEGIN || event == GRPC_WRITABLE) {
        struct piece piece = {zeros, sizeof(zeros)};
        grpc_send(call, &piece, 1, NULL, NULL);
        if (event == GRPC_WRITABLE) {
            grpc_read(call);
        }
    } else if (event == GRPC_MESSAGE) {
        drop_message(call);
        grpc_finish(call, NULL);
    } else if (event == GRPC_HALF_CLOSE || event == GRPC_CANCELLED) {
        struct error err;
        error_set(&err, ST_INTERNAL, "enough");
        grpc_finish(call, &err);
    }
}

/* Reads only by an operation. */
static void step_never_read(struct grpc_call *call, enum grpc_event event) {
    struct service *service = service_of(call);
    count(call, event);
    if (event == GRPC_BEGIN) {
        if (service->n_later < MAX_DEFERRED_CALLS) {
            service->later[service->n_later++] = call;
        } else {
            grpc_finish(call, NULL);
        }
    } else if (event == GRPC_MESSAGE) {
        drop_message(call);
    }
}

static size_t align_at(struct str beginning) {
    return beginning.len > 0 ? (unsigned char)beginning.ptr[0] : 0;
}

/* ---- handlers of HTTP ------------------------------------------------------------------------ */

static void release_reply(void *user) {
    ((struct service *)user)->n_reply_releases++;
}

static void reply(struct service *service, struct http_exchange *exchange, struct str text) {
    struct piece pieces[] = {{text.ptr, text.len / 2},
                             {text.ptr + text.len / 2, text.len - text.len / 2}};
    struct http_field field = {STR("X-Fuzz"), STR("yes")};
    service->n_replies++;
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = "text/plain",
                                              .fields = &field,
                                              .n_fields = 1,
                                              .pieces = pieces,
                                              .n_pieces = 2,
                                              .release = release_reply,
                                              .user = service});
}

/* Each operation sends an event, and ends the stream sometimes. */
static void send_event(struct service *service, struct http_exchange *exchange) {
    static const struct piece EVENT = {"data: event\n\n", 13};
    service->n_replies++;
    http_stream_send(exchange, &EVENT, 1, release_reply, service);
}

static void defer(struct service *service, struct http_exchange *exchange) {
    struct error err;
    if (service->n_exchanges < MAX_DEFERRED_CALLS) {
        service->exchanges[service->n_exchanges++] = exchange;
        if (str_is(exchange->head.path, "/s")) {
            http_stream_begin(exchange, &(struct http_reply){.status = 200});
        }
    } else {
        error_set(&err, ST_OVERLOADED, "too many");
        http_reply_error(exchange, &err, NULL, 0);
    }
}

static void on_http_body(struct http_exchange *exchange, void *context) {
    struct service *service = context;
    service->sum += hash_text(exchange->body, 0); /* all of it is readable */
    if (str_is(exchange->head.path, "/e")) {
        reply(service, exchange, exchange->body);
    } else {
        defer(service, exchange);
    }
}

static void on_http_end(struct http_exchange *exchange, void *context) {
    (void)exchange;
    ((struct service *)context)->n_ends++;
}

static const struct http_handler HTTP_HANDLER = {.on_body = on_http_body, .on_end = on_http_end};

static void on_http_head(struct http_exchange *exchange, void *context) {
    struct service *service = context;
    struct str value;
    struct error err;
    service->n_heads++;
    exchange->handler = &HTTP_HANDLER;
    if (http_head_find(&exchange->head, STR("Content-Encoding"), &value) > 0) {
        exchange->plan.coding = HTTP_GZIP;
    }
    exchange->plan.align_at = exchange->head.n_fields;
    if (str_is(exchange->head.path, "/r")) {
        error_set(&err, ST_NOT_FOUND, "no such path");
        http_reply_error(exchange, &err, NULL, 0);
    }
}

static const char *http_error_body(struct buf *out, const struct error *error, void *context) {
    (void)context;
    buf_add_str(out, str_of(error->text));
    return "text/plain";
}

/* ---- the session and its peer ---------------------------------------------------------------- */

enum { N_METHODS = 5 };

struct grpc_fixture {
    struct str input;
    struct worker *worker;
    struct net_budget budget;
    struct body_pool pool;
    struct grpc_method methods[N_METHODS];
    struct grpc_server_options options;
    struct grpc_core core;
    struct grpc_session session;
    struct grpc_output output;
    struct service service;
    struct http_server http;
    struct server_worker http_worker;
    struct http_common_fields http_common_fields;
    size_t n_alive;
    _Atomic uint64_t n_calls;
    uint64_t now_ns;
    bool record; /* a record since the last loop iteration without output */
};

static void ask_turn(struct grpc_core *core) {
    (void)core;
}

/* One for all inputs: creating a loop is slow. */
static struct worker *the_worker(void) {
    static struct worker *worker;
    struct error err;
    if (!worker && worker_new("fuzz", &worker, &err) != ST_OK) {
        abort();
    }
    return worker;
}

static void open_http(struct grpc_fixture *fixture) {
    struct http_server *http = &fixture->http;
    fixture->http_worker.server = &http->net;
    http->net.workers = &fixture->http_worker;
    http->net.n_workers = 1;
    http->net.limits.max_body_size = 1 << 18;
    http->net.limits.discard_size = 10000;
    http->router = (struct http_router){&fixture->service, on_http_head, http_error_body};
    http->server_name = "fuzz";
    http->common_fields = &fixture->http_common_fields;
    http_h2_init(http);
    fixture->core.user = &fixture->http_worker;
    fixture->session.http_requests = &http->h2_requests;
}

static void open_world(struct grpc_fixture *fixture, bool compress, bool serves_http) {
    struct error err;
    struct grpc_method methods[N_METHODS] = {
        {.path = "/e", .on_event = step_echo, .align_at = align_at},
        {.path = "/l", .on_event = step_deferred},
        {.path = "/b", .on_event = step_bidi, .streams = true, .align_at = align_at},
        {.path = "/p", .on_event = step_stream_out, .streams = true},
        {.path = "/d", .on_event = step_never_read, .streams = true},
    };
    for (size_t i = 0; i < N_METHODS; i++) {
        methods[i].context = &fixture->service;
    }
    memcpy(fixture->methods, methods, sizeof(methods));
    fixture->now_ns = SECOND;
    clock_set_fake_ns(fixture->now_ns);
    fixture->budget = (struct net_budget){.body_memory = 1 << 20, .max_connections = 1};
    body_pool_init(&fixture->pool, 1 << 16);
    fixture->worker = the_worker();
    fixture->options = (struct grpc_server_options){
        .limits = {.net = {.max_header_size = 2048,
                           .max_body_size = 1 << 18,
                           .request_memory = 1 << 18,
                           .body_timeout_ns = 10 * (uint64_t)SECOND,
                           .write_timeout_ns = 20 * (uint64_t)SECOND},
                   .max_streams = 20,
                   .stream_window_bytes = 40000,
                   .connection_window_bytes = 100000,
                   .compression_level = compress},
        .budget = &fixture->budget,
        .methods = fixture->methods,
        .n_methods = N_METHODS,
    };
    fixture->core = (struct grpc_core){.pool = &fixture->pool,
                                       .n_alive = &fixture->n_alive,
                                       .n_calls = &fixture->n_calls,
                                       .schedule_deferred = ask_turn};
    assert(grpc_core_init(&fixture->core, &fixture->options, fixture->worker, &err) == ST_OK);
    grpc_session_init(&fixture->session, &fixture->core);
    if (serves_http) {
        open_http(fixture);
    }
    assert(grpc_session_open(&fixture->session, &err) == ST_OK);
}

static void settle(struct grpc_fixture *fixture) {
    while (grpc_core_take_scheduled(&fixture->core)) {
        fixture->record = true;
    }
    (void)grpc_session_drain_some(&fixture->session);
    while (grpc_core_sweep(&fixture->core)) {
    }
}

static void written(struct grpc_fixture *fixture) {
    if (fixture->session.write_batch.writing) {
        touch(&fixture->output);
        grpc_session_on_written(&fixture->session);
        settle(fixture);
    }
}

/* A real server checks for output only after a request for it. */
static void run_iterations(struct grpc_fixture *fixture, unsigned n) {
    while (n-- > 0 && grpc_session_has_output(&fixture->session)) {
        assert(fixture->record || fixture->session.scheduled);
        if (grpc_session_collect_output(&fixture->session, &fixture->output)) {
            written(fixture);
        }
    }
    settle(fixture);
    fixture->record = fixture->record && grpc_session_has_output(&fixture->session);
}

static void feed_piece(struct grpc_fixture *fixture, char *place, struct str data) {
    memcpy(place, data.ptr, data.len);
    grpc_session_receive(&fixture->session, str_make(place, data.len));
    do {
        grpc_core_inflate_more(&fixture->core);
    } while (!TAILQ_EMPTY(&fixture->core.inflating));
    settle(fixture);
}

/* What is a message's is read to its place, as a server does. */
static void feed(struct grpc_fixture *fixture, const void *data, size_t n) {
    const char *at = data;
    char *place;
    for (size_t n_piece; n > 0 && (place = grpc_session_read_buffer(&fixture->session, &n_piece));
         at += n_piece, n -= n_piece) {
        n_piece = n_piece < n ? n_piece : n;
        feed_piece(fixture, place, str_make(at, n_piece));
    }
    char *copy = malloc(n > 0 ? n : 1);
    feed_piece(fixture, copy, str_make(at, n));
    free(copy);
}

static void pass(struct grpc_fixture *fixture, uint64_t ns) {
    fixture->now_ns += ns;
    clock_set_fake_ns(fixture->now_ns);
    grpc_core_run_timers(&fixture->core, fixture->now_ns);
    settle(fixture);
}

static void finish_one(struct grpc_fixture *fixture, size_t n) {
    struct service *service = &fixture->service;
    if (service->n_later > 0) {
        struct grpc_call **at = &service->later[n % service->n_later];
        struct grpc_call *call = *at;
        *at = service->later[--service->n_later];
        if (n & 64) {
            struct piece piece = {"a late answer", 13};
            grpc_send(call, &piece, 1, NULL, NULL);
        }
        grpc_finish(call, NULL);
        settle(fixture);
    }
}

/* Returns: whether there is one. */
static bool finish_exchange(struct grpc_fixture *fixture, size_t n) {
    struct service *service = &fixture->service;
    if (service->n_exchanges == 0) {
        return false;
    }
    struct http_exchange **at = &service->exchanges[n % service->n_exchanges];
    struct http_exchange *exchange = *at;
    bool streams = str_is(exchange->head.path, "/s");
    if (streams) {
        send_event(service, exchange);
    }
    if (!streams || n & 64) {
        *at = service->exchanges[--service->n_exchanges];
    }
    if (!streams) {
        reply(service, exchange, exchange->body.len > 0 ? exchange->body : STR("later"));
    } else if (n & 64) {
        http_stream_end(exchange);
    }
    settle(fixture);
    return true;
}

static void close_world(struct grpc_fixture *fixture) {
    const struct service *service = &fixture->service;
    grpc_session_close(&fixture->session);
    while (finish_exchange(fixture, 64)) {
    }
    while (service->n_later > 0) {
        finish_one(fixture, 64);
    }
    written(fixture);
    settle(fixture);
    assert(fixture->n_alive == 0 && fixture->n_calls == 0 && fixture->budget.n_body_bytes == 0);
    assert(service->n_begun == service->n_ended);
    assert(service->n_messages == service->n_freed && service->n_sent == service->n_released);
    assert(service->n_heads == service->n_ends && service->n_replies == service->n_reply_releases);
    assert(grpc_core_next_timer_ns(&fixture->core) == UINT64_MAX);
    grpc_core_fini(&fixture->core);
    body_pool_fini(&fixture->pool);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void frame(struct grpc_fixture *fixture, uint8_t type, uint8_t flags, uint32_t id,
                  struct str body) {
    char bytes[FRAME_BYTES];
    struct str frame = frame_print(bytes, type, flags, id, body);
    feed(fixture, frame.ptr, frame.len);
}

/* A call's headers, with fields from the input. */
static void begin_call(struct grpc_fixture *fixture, uint32_t id, uint8_t how) {
    static const struct str FIELDS[] = {{"", 0},
                                        {"\0\14grpc-timeout\0025S", 17},
                                        {"\0\15grpc-encoding\4gzip", 20},
                                        {"\0\24grpc-accept-encoding\4gzip", 27}};
    char block[256] = "\x83\x86\x04\2/e\x01\1a\x0f\x10\20application/grpc";
    size_t n = strlen(block);
    block[5] = "elbpdx"[how % 6];
    size_t which = how / 8 % 4;
    memcpy(block + n, FIELDS[which].ptr, FIELDS[which].len);
    n += FIELDS[which].len;
    frame(fixture, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | (how & 128 ? 1 : 0), id,
          str_make(block, n));
}

/* The head of a request that is not gRPC. */
static void begin_request(struct grpc_fixture *fixture, uint32_t id, uint8_t how) {
    static const struct str FIELDS[] = {{"", 0},
                                        {"\x0f\x0d\00220", 5}, /* content-length */
                                        {"\x0f\x0b\4gzip", 7}, /* content-encoding */
                                        {"\0\6expect\14100-continue", 21},
                                        {"\0\6cookie\1a\0\6cookie\1b", 20}};
    char block[64] = "\x83\x86\x04\2/e\x01\1a";
    size_t n = 8;
    block[0] = how & 64 ? '\x82' : '\x83';
    block[5] = "elsr"[how % 4];
    struct str more = FIELDS[how / 4 % 5];
    memcpy(block + n, more.ptr, more.len);
    frame(fixture, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | (how & 128 ? 1 : 0), id,
          str_make(block, n + more.len));
}

static void operate(struct grpc_fixture *fixture) {
    uint8_t op = take(&fixture->input), arg = take(&fixture->input);
    uint32_t id = 1 + 2 * (uint32_t)(take(&fixture->input) % 32);
    switch (op % 13) {
    case 0:
        if (fixture->session.http_requests && op >= 128) {
            begin_request(fixture, id, arg);
        } else {
            begin_call(fixture, id, arg);
        }
        break;
    case 1:
        frame(fixture, NGHTTP2_DATA, arg & 128 ? NGHTTP2_FLAG_END_STREAM : 0, id, message_of(arg));
        break;
    case 2:
        frame(fixture, NGHTTP2_DATA, arg & NGHTTP2_FLAG_END_STREAM, id,
              take_bytes(&fixture->input, arg / 2));
        break;
    case 3:
        frame(fixture, NGHTTP2_RST_STREAM, 0, id, STR("\0\0\0\x8"));
        break;
    case 4:
        frame(fixture, NGHTTP2_WINDOW_UPDATE, 0, arg & 1 ? id : 0,
              str_make((const char[]){0, 0, (char)(arg / 2), 1}, 4));
        break;
    case 5:
        frame(fixture, take(&fixture->input) % 12, arg, arg & 2 ? id : 0,
              take_bytes(&fixture->input, take(&fixture->input)));
        break;
    case 6:
        run_iterations(fixture, arg % 4);
        break;
    case 7: /* collects; the next operations happen during the write */
        if (grpc_session_has_output(&fixture->session)) {
            (void)grpc_session_collect_output(&fixture->session, &fixture->output);
        }
        break;
    case 8:
        written(fixture);
        break;
    case 9:
        pass(fixture, arg * (uint64_t)SECOND / 8);
        break;
    case 10:
        if (op < 128 || !finish_exchange(fixture, arg)) {
            finish_one(fixture, arg);
        }
        break;
    case 11:
        if (arg == 1) {
            grpc_session_drain(&fixture->session);
        } else if (fixture->service.n_later > 0) {
            struct grpc_call *call = fixture->service.later[arg % fixture->service.n_later];
            if (call->method->streams) {
                grpc_read(call);
            }
        }
        break;
    default: /* SETTINGS of the client: its windows */
        frame(fixture, NGHTTP2_SETTINGS, 0, 0,
              str_make((const char[]){0, 4, 0, 0, (char)arg, (char)id}, 6));
        break;
    }
}

/* ---- the input ------------------------------------------------------------------------------- */

static void run_bytes(struct grpc_fixture *fixture, uint8_t how) {
    size_t piece = how & 8 ? 1 : how & 16 ? 100 : SIZE_MAX;
    while (fixture->input.len > 0) {
        struct str bytes = take_bytes(&fixture->input, piece);
        feed(fixture, bytes.ptr, bytes.len);
        run_iterations(fixture, how & 32 ? 0 : 4);
    }
    run_iterations(fixture, 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char START[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    struct grpc_fixture *fixture = calloc(1, sizeof(*fixture));
    if (size == 0 || !fixture) {
        free(fixture);
        return 0;
    }
    uint8_t how = data[0];
    fixture->input = str_make((const char *)data + 1, size - 1);
    open_world(fixture, how & 4, how & 64);
    if (how & 3) {
        feed(fixture, START, sizeof(START) - 1);
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
