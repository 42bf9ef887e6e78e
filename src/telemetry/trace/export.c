/* Batches of spans in a queue: the oldest is being sent, the newest is being filled. */
#include "telemetry/trace/export.h"

#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

#include "core/base/backoff.h"
#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

enum {
    MAX_TRIES = 5,
    TRY_TIMEOUT_S = 10, /* of one try */
    MAX_BACKOFF_S = 30,
    STOP_TIMEOUT_S = 3,
    FIRST_BYTES = 4096,
    ANSWER_BYTES = 4096, /* of the collector's response, for its error text */
    GRPC_ANSWER_BYTES = 65536,
};

/* Lives in its own arena. */
struct batch {
    struct arena *arena;
    struct buf text;
    struct otlp_request request; /* written to `text` */
    size_t n_traces, n_spans;
    bool closed; /* complete: no more spans are added */
    unsigned tries;
    TAILQ_ENTRY(batch) link;
};

TAILQ_HEAD(batch_list, batch);

struct trace_export {
    struct worker *worker;
    struct http_fetcher *fetcher; /* NULL: over gRPC */
    struct http_fetch_tls tls;    /* of `fetcher` */
    struct grpc_client *client;   /* NULL: over HTTP */
    struct trace_export_options options;
    enum otlp_format format;
    const char *http_url;                      /* with its scheme */
    const char *http_fields[TRACE_MAX_FIELDS]; /* "name: value" */
    struct arena *arena;                       /* of these */
    struct batch_list batches;                 /* oldest first */
    size_t n_spans;                            /* in all batches */
    /* Of the oldest batch; both NULL: it is not being sent. */
    struct http_fetch *fetch;
    struct grpc_client_call *call;
    char answer[ANSWER_BYTES];
    size_t n_answer;    /* response bytes; over ANSWER_BYTES: it was too long, and is not stored */
    struct timer timer; /* for the next send, retry or stop */
    uint64_t due_ns;    /* the newest batch is sent at the latest */
    uint64_t retry_ns;  /* the oldest batch is not retried before */
    bool failing;       /* the last batch was dropped: logged already */
    bool refusing;      /* spans of the last batch were rejected: logged already */
    bool ending;
    bool stopping; /* the fetcher is stopping */
    uint64_t stop_deadline_ns;
    void (*stopped)(void *user);
    void *user;
    struct worker_msg msg;
};

static void advance_export(struct trace_export *self);

/* ---- batches --------------------------------------------------------------------------------- */

static struct batch *batch_new(const struct trace_export *self) {
    struct arena *arena = arena_new(NULL, 0);
    struct batch *batch = arena ? arena_calloc(arena, 1, sizeof(*batch)) : NULL;
    if (!batch) {
        arena_free(arena);
        return NULL;
    }
    batch->arena = arena;
    buf_init(&batch->text, arena, FIRST_BYTES);
    otlp_request_begin(&batch->request, &batch->text, self->format, self->options.resource,
                       self->options.n_resource, STR(SLUICE_VERSION));
    return batch;
}

/* Returns: the batch for the next trace, of `n` spans; NULL when out of memory. */
static struct batch *open_batch(struct trace_export *self, size_t n) {
    struct batch *newest = TAILQ_LAST(&self->batches, batch_list);
    if (newest && !newest->closed && newest->n_spans + n <= self->options.max_batch) {
        return newest;
    }
    struct batch *batch = batch_new(self);
    if (batch) {
        TAILQ_INSERT_TAIL(&self->batches, batch, link);
        self->due_ns = clock_now_ns() + self->options.delay_ms * NS_PER_MS;
    }
    return batch;
}

static void free_oldest_batch(struct trace_export *self) {
    struct batch *batch = TAILQ_FIRST(&self->batches);
    TAILQ_REMOVE(&self->batches, batch, link);
    self->n_spans -= batch->n_spans;
    arena_free(batch->arena);
}

/* The oldest batch was accepted or is dropped. */
static void finish_oldest_batch(struct trace_export *self, bool written, const char *why) {
    struct batch *batch = TAILQ_FIRST(&self->batches);
    metric_add(written ? METRIC_TRACES_WRITTEN : METRIC_TRACES_FAILED, (int64_t)batch->n_traces);
    if (!written && !self->failing) {
        log_event(LOG_ERROR, "trace export failed", LOG_CSTR("reason", why),
                  LOG_U64("traces", batch->n_traces));
    }
    self->failing = !written;
    self->retry_ns = 0;
    free_oldest_batch(self);
}

/* Clause: OTLP, partial success: rejected spans are logged and not sent again. */
static void finish_accepted_batch(struct trace_export *self) {
    struct arena *arena = arena_new(NULL, 0);
    struct str said = str_make(self->answer, self->n_answer), why = STR("");
    uint64_t n_refused = 0;
    if (arena && self->n_answer <= ANSWER_BYTES) {
        n_refused = otlp_rejected_spans(arena, self->format, said, &why);
    }
    if (n_refused > 0 && !self->refusing) {
        log_event(LOG_WARNING, "trace collector rejected spans", LOG_U64("spans", n_refused),
                  LOG_U64("of", TAILQ_FIRST(&self->batches)->n_spans), LOG_STR("reason", why));
    }
    self->refusing = n_refused > 0;
    bool any = n_refused < TAILQ_FIRST(&self->batches)->n_spans;
    finish_oldest_batch(self, any, "the collector refused all spans");
    arena_free(arena);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Returns: the Unix time at 0 of the monotonic clock. */
static uint64_t unix_time_at_clock_zero(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec - clock_now_ns();
}

void trace_export_add_spans(struct trace_export *self, const struct trace_spans *spans) {
    size_t n = spans->n;
    struct batch *batch = n <= self->options.max_batch && n <= self->options.max_queue &&
                                  self->n_spans <= self->options.max_queue - n
                              ? open_batch(self, n)
                              : NULL;
    if (!batch) {
        metric_add(METRIC_TRACES_DROPPED, 1);
        return;
    }
    size_t before = batch->text.len, n_before = batch->request.n_spans;
    uint64_t unix_ns = unix_time_at_clock_zero();
    for (size_t i = 0; i < n; i++) {
        otlp_request_add(&batch->request, &spans->items[i], unix_ns);
    }
    if (batch->text.failed) {
        batch->text.failed = false;
        batch->text.len = before;
        batch->request.n_spans = n_before;
        metric_add(METRIC_TRACES_DROPPED, 1);
        return;
    }
    batch->n_traces++;
    batch->n_spans += n;
    self->n_spans += n;
    advance_export(self);
}

void trace_export_add(struct trace_export *self, const struct trace_record *record,
                      const struct otlp_ids *ids) {
    struct otlp_trace trace;
    otlp_trace_fill(record, ids, &trace);
    trace_export_add_spans(self, &(struct trace_spans){trace.spans, trace.n_spans});
}

/* ---- sending --------------------------------------------------------------------------------- */

/* What became of a try. */
struct try_result {
    bool is_accepted;
    bool is_retryable;
    uint64_t retry_after_s; /* 0: the collector does not say */
    const char *why;        /* unless it is accepted */
};

static uint64_t backoff_s(const struct trace_export *self, uint64_t retry_after_s) {
    uint64_t wait = backoff_wait(1, MAX_BACKOFF_S, TAILQ_FIRST(&self->batches)->tries);
    wait = retry_after_s > wait ? retry_after_s : wait;
    return wait < MAX_BACKOFF_S ? wait : MAX_BACKOFF_S;
}

static void on_tried(struct trace_export *self, const struct try_result *result) {
    if (result->is_accepted) {
        finish_accepted_batch(self);
    } else if (result->is_retryable && TAILQ_FIRST(&self->batches)->tries < MAX_TRIES &&
               !self->ending) {
        self->retry_ns = clock_now_ns() + backoff_s(self, result->retry_after_s) * NS_PER_S;
    } else {
        finish_oldest_batch(self, false, result->why);
    }
    advance_export(self);
}

static void add_to_answer(struct trace_export *self, struct str bytes) {
    if (bytes.len <= ANSWER_BYTES && self->n_answer <= ANSWER_BYTES - bytes.len) {
        if (bytes.len > 0) {
            memcpy(self->answer + self->n_answer, bytes.ptr, bytes.len);
        }
        self->n_answer += bytes.len;
    } else {
        self->n_answer = ANSWER_BYTES + 1;
    }
}

static uint64_t try_timeout_ns(const struct trace_export *self) {
    uint64_t usual_ns =
        self->options.timeout_ns > 0 ? self->options.timeout_ns : TRY_TIMEOUT_S * NS_PER_S;
    return self->ending ? STOP_TIMEOUT_S * NS_PER_S : usual_ns;
}

/* ---- over HTTP ------------------------------------------------------------------------------- */

/* Clause: OTLP, retryable response codes. */
static bool is_retryable(const struct http_fetch_result *fetched) {
    if (fetched->error.status != ST_OK) {
        return fetched->error.status == ST_IO || fetched->error.status == ST_DEADLINE_EXCEEDED;
    }
    return fetched->status == 429 || fetched->status == 502 || fetched->status == 503 ||
           fetched->status == 504;
}

static void on_fetched(void *user, const struct http_fetch_result *fetched) {
    struct trace_export *self = user;
    bool answered = fetched->error.status == ST_OK;
    char why[64];
    snprintf(why, sizeof why, "the collector answered with %d", fetched->status);
    self->fetch = NULL;
    on_tried(self, &(struct try_result){.is_accepted = answered && fetched->status >= 200 &&
                                                       fetched->status < 300,
                                        .is_retryable = is_retryable(fetched),
                                        .retry_after_s = fetched->retry_after_s,
                                        .why = answered ? why : fetched->error.text});
}

static void on_piece(void *user, struct str bytes) {
    add_to_answer(user, bytes);
}

static enum status fetch_start(struct trace_export *self, struct str body, struct error *err) {
    struct http_fetch_request ask = {
        .url = self->http_url,
        .method = "POST",
        .timeout_ns = try_timeout_ns(self),
        .body = body,
        .content_type = self->format == OTLP_JSON ? "application/json" : "application/x-protobuf",
        .fields = self->http_fields,
        .n_fields = self->options.n_fields,
        .max_body_size = SIZE_MAX,
        .piece = on_piece,
        .done = on_fetched,
        .user = self};
    enum status st = http_fetch_start(self->fetcher, &ask, &self->fetch, err);
    self->fetch = st == ST_OK ? self->fetch : NULL;
    return st;
}

/* ---- over gRPC ------------------------------------------------------------------------------- */

/* Clause: OTLP/gRPC, retryable codes: CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE,
 * UNAVAILABLE, DATA_LOSS. */
static bool is_retryable_call(const struct grpc_client_call *call) {
    static const unsigned codes = 1U << 1 | 1U << 4 | 1U << 10 | 1U << 11 | 1U << 14 | 1U << 15;
    return call->error.status == ST_REFUSED
               ? call->code > 0 && call->code < 32 && (codes >> call->code & 1)
               : call->error.status == ST_IO || call->error.status == ST_DEADLINE_EXCEEDED;
}

/* A call that was cancelled is no longer self->call. */
static void on_call_event(struct grpc_client_call *call, enum grpc_client_event event) {
    struct trace_export *self = call->user;
    switch (event) {
    case GRPC_CLIENT_MESSAGE:
        if (self->call == call) {
            add_to_answer(self, call->message->data);
        }
        grpc_message_free(call->message);
        break;
    case GRPC_CLIENT_END:
        if (self->call == call) {
            self->call = NULL;
            on_tried(self, &(struct try_result){.is_accepted = call->error.status == ST_OK,
                                                .is_retryable = is_retryable_call(call),
                                                .why = call->error.text});
        }
        break;
    case GRPC_CLIENT_HEAD:
    case GRPC_CLIENT_WRITABLE:
        break;
    }
}

/* The message is copied, as the batch may be dropped before the socket has taken it. */
static enum status call_start(struct trace_export *self, struct str body, struct error *err) {
    struct grpc_client_call_options what = {
        .path = STR("/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        .fields = self->options.fields,
        .n_fields = self->options.n_fields,
        .timeout_ns = try_timeout_ns(self),
        .on_event = on_call_event,
        .user = self};
    enum status st = grpc_client_start_call(self->client, &what, &self->call, err);
    if (st != ST_OK) {
        self->call = NULL;
        return st;
    }
    struct str copy = arena_dup(self->call->arena, body);
    if (!copy.ptr) {
        struct grpc_client_call *call = self->call;
        self->call = NULL;
        grpc_client_cancel(call);
        return error_no_memory(err, "traces");
    }
    struct piece piece = {copy.ptr, copy.len};
    grpc_client_send(self->call, &piece, 1, NULL, NULL);
    return ST_OK;
}

/* ---- when ------------------------------------------------------------------------------------ */

static bool is_sending(const struct trace_export *self) {
    return self->fetch || self->call;
}

static void send_oldest_batch(struct trace_export *self) {
    struct batch *batch = TAILQ_FIRST(&self->batches);
    struct error err;
    if (!batch->closed) {
        batch->closed = true;
        otlp_request_end(&batch->request);
    }
    batch->tries++;
    self->n_answer = 0;
    if (batch->text.failed) {
        finish_oldest_batch(self, false, "out of memory");
        return;
    }
    struct str body = buf_str(&batch->text);
    enum status st = self->client ? call_start(self, body, &err) : fetch_start(self, body, &err);
    if (st != ST_OK) {
        finish_oldest_batch(self, false, err.text);
    }
}

/* Returns: when the oldest batch is due; 0: now. */
static uint64_t oldest_batch_send_ns(const struct trace_export *self) {
    const struct batch *batch = TAILQ_FIRST(&self->batches);
    bool full = batch->closed || TAILQ_NEXT(batch, link) ||
                batch->n_spans + OTLP_SPANS > self->options.max_batch || self->ending;
    uint64_t at = full ? 0 : self->due_ns;
    return at > self->retry_ns || self->ending ? at : self->retry_ns;
}

static void on_timer(struct timer *timer) {
    advance_export(CONTAINER_OF(timer, struct trace_export, timer));
}

static void fail_all_batches(struct trace_export *self) {
    if (self->fetch) {
        http_fetch_cancel(self->fetch);
        self->fetch = NULL;
    }
    if (self->call) {
        struct grpc_client_call *call = self->call;
        self->call = NULL;
        grpc_client_cancel(call);
    }
    while (!TAILQ_EMPTY(&self->batches)) {
        finish_oldest_batch(self, false, "the server ends");
    }
}

static void advance_export(struct trace_export *self) {
    uint64_t now = clock_now_ns();
    if (self->ending && now >= self->stop_deadline_ns) {
        fail_all_batches(self);
    }
    while (!TAILQ_EMPTY(&self->batches) && !is_sending(self) && oldest_batch_send_ns(self) <= now) {
        send_oldest_batch(self);
    }
    uint64_t next =
        !TAILQ_EMPTY(&self->batches) && !is_sending(self) ? oldest_batch_send_ns(self) : 0;
    next = self->ending ? self->stop_deadline_ns : next;
    if (next > 0 && !self->stopping) {
        timer_start(worker_timers(self->worker), &self->timer, next);
    }
    if (self->ending && !self->stopping && TAILQ_EMPTY(&self->batches) && !is_sending(self)) {
        self->stopping = true;
        worker_post(self->worker, &self->msg); /* not within a callback of the fetcher or the
                                                  client */
    }
}

/* ---- creating and freeing -------------------------------------------------------------------- */

static void on_stopped(void *user) {
    struct trace_export *self = user;
    self->stopped(self->user);
}

static void on_stop_message(struct worker_msg *msg) {
    struct trace_export *self = CONTAINER_OF(msg, struct trace_export, msg);
    timer_stop(worker_timers(self->worker), &self->timer);
    if (self->client) {
        grpc_client_stop(self->client, on_stopped, self);
    } else {
        http_fetcher_stop(self->fetcher, on_stopped, self);
    }
}

static enum status open_fetcher(struct trace_export *self, struct error *err) {
    const struct grpc_client_tls *tls = &self->options.tls;
    self->tls = (struct http_fetch_tls){.ca = tls->ca, .cert = tls->cert, .key = tls->key};
    self->arena = arena_new(NULL, 0);
    if (!self->arena) {
        return error_no_memory(err, "traces");
    }
    self->http_url = strstr(self->options.url, "://")
                         ? self->options.url
                         : arena_printf(self->arena, "http://%s", self->options.url).ptr;
    if (!self->http_url) {
        return error_no_memory(err, "traces");
    }
    for (size_t i = 0; i < self->options.n_fields; i++) {
        const struct grpc_field *field = &self->options.fields[i];
        self->http_fields[i] =
            arena_printf(self->arena, "%.*s: %.*s", STR_ARG(field->name), STR_ARG(field->value))
                .ptr;
        if (!self->http_fields[i]) {
            return error_no_memory(err, "traces");
        }
    }
    return http_fetcher_new(self->worker, &self->tls, 1, &self->fetcher, err);
}

static enum status open_client(struct trace_export *self, struct error *err) {
    struct grpc_client_options client = {.worker = self->worker,
                                         .target = str_of(self->options.url),
                                         .tls = self->options.is_tls ? &self->options.tls : NULL,
                                         .limits = {.max_message_bytes = GRPC_ANSWER_BYTES,
                                                    .setting = "a collector's answer",
                                                    .stream_window_bytes = GRPC_ANSWER_BYTES,
                                                    .connection_window_bytes = GRPC_ANSWER_BYTES}};
    return grpc_client_new(&client, &self->client, err);
}

enum status trace_export_new(struct worker *worker, const struct trace_export_options *options,
                             struct trace_export **out, struct error *err) {
    struct trace_export *self = calloc(1, sizeof(*self));
    if (!self) {
        return error_no_memory(err, "traces");
    }
    self->worker = worker;
    TAILQ_INIT(&self->batches);
    self->options = *options;
    self->timer.on_expire = on_timer;
    self->msg.run = on_stop_message;
    self->format = options->protocol == TRACE_HTTP_JSON ? OTLP_JSON : OTLP_PROTOBUF;
    enum status st = options->is_tls ? grpc_client_tls_check(&self->options.tls, err) : ST_OK;
    if (st == ST_OK) {
        st = options->protocol == TRACE_GRPC ? open_client(self, err) : open_fetcher(self, err);
    }
    if (st != ST_OK) {
        trace_export_free(self);
        return st;
    }
    *out = self;
    return ST_OK;
}

void trace_export_free(struct trace_export *self) {
    if (self) {
        http_fetcher_free(self->fetcher);
        grpc_client_free(self->client);
        arena_free(self->arena);
        free(self);
    }
}

void trace_export_stop(struct trace_export *self, void (*stopped)(void *user), void *user) {
    if (self->ending) {
        return;
    }
    self->stopped = stopped;
    self->user = user;
    self->ending = true;
    self->stop_deadline_ns = clock_now_ns() + STOP_TIMEOUT_S * NS_PER_S;
    advance_export(self);
}
