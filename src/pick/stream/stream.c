/* The callbacks of a session that are for the log, statistics and traces, and the times between
 * them. */
#include "pick/stream/stream.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/event/clock.h"

/* Labels that clients choose: of models as many as upstream has. */
enum { MOST_MODELS = 1000, MOST_MODELS_ON_TRIAL = 100 };

struct pick_workers {
    struct pick_workers_options options;
    struct hash_key stats_key;
    struct pick_label_names *models, *fairness_ids;
    const struct pick_worker *_Atomic items[PICK_MAX_WORKERS]; /* in the order of
                                                                  pick_worker_init */
    atomic_size_t n;
};

/* ---- the log --------------------------------------------------------------------------------- */

enum { MOST_FIELDS = 12, OTHERS_BYTES = POOL_MAX_TRACED * (ENDPOINT_TEXT_BYTES + 24) };
enum { MOST_ID_BYTES = 128 };

struct log_line {
    struct log_field fields[MOST_FIELDS];
    unsigned n;
};

static void add_log_text(struct log_line *line, const char *name, struct str text) {
    if (text.len > 0) {
        line->fields[line->n++] = LOG_STR(name, text);
    }
}

static void add_log_request(struct log_line *line, const struct pick_outcome *outcome) {
    struct str id = outcome->id;
    id.len = id.len < MOST_ID_BYTES ? id.len : MOST_ID_BYTES;
    add_log_text(line, "request_id", id);
    line->fields[line->n++] = LOG_STR("request", outcome->request_line);
    add_log_text(line, "pool", outcome->counted.pool);
    add_log_text(line, "model", outcome->counted.model);
}

/* "10.0.0.2:8000=4.5 10.0.0.3:8000=2" */
static void print_others(const struct pool_trace *trace, struct buf *out) {
    for (size_t i = 1; i < trace->n; i++) {
        buf_printf(out, "%s%s=%.4g", i > 1 ? " " : "", trace->first[i].endpoint->text,
                   (double)trace->first[i].score);
    }
}

static struct str picked_by_text(const struct pool_pick *pick) {
    switch (pick->picked_by) {
    case POOL_BY_LEAST_REQUESTS:
        return STR("fewest in flight");
    case POOL_BY_PROFILE:
        return STR("profile");
    case POOL_BY_LAST_RESORT:
        break;
    }
    return STR("last choice");
}

static void log_pick(const struct pick_outcome *outcome) {
    struct log_line line = {.n = 0};
    char others[OTHERS_BYTES];
    struct buf text = {.data = others, .cap = sizeof(others)};
    add_log_request(&line, outcome);
    add_log_text(&line, "as", outcome->target);
    line.fields[line.n++] = LOG_STR("endpoint", endpoint_text(outcome->endpoint));
    line.fields[line.n++] = LOG_U64("in_flight", endpoint_in_flight(outcome->endpoint));
    line.fields[line.n++] = LOG_STR("by", picked_by_text(outcome->pick));
    if (outcome->stages.ptr) {
        add_log_text(&line, "stages", outcome->stages);
    }
    if (outcome->trace && outcome->trace->n > 0) {
        add_log_text(&line, "profile", outcome->trace->profile);
        line.fields[line.n++] = LOG_U64("candidates", outcome->trace->n_candidates);
        double score = (double)outcome->trace->first[0].score;
        /* Four decimals: float sums are no more precise. */
        line.fields[line.n++] = LOG_F64("score", round(score * 1e4) / 1e4);
        print_others(outcome->trace, &text);
        add_log_text(&line, "others", buf_str(&text));
    }
    log_write(LOG_DEBUG, "picked", line.fields, line.n);
}

/* Rate-limited, so that clients whose requests are all refused do not fill the log. */
static void log_refusal(const struct pick_outcome *outcome, struct log_limit *limit) {
    struct log_line line = {.n = 0};
    if (!log_enabled(LOG_DEBUG) && !log_limit_allow(limit)) {
        return;
    }
    add_log_request(&line, outcome);
    if (outcome->endpoint) {
        line.fields[line.n++] = LOG_STR("endpoint", endpoint_text(outcome->endpoint));
    }
    line.fields[line.n++] = LOG_U64("status", (uint64_t)status_http(outcome->why->status));
    line.fields[line.n++] = LOG_CSTR("code", status_name(outcome->why->status));
    line.fields[line.n++] = LOG_CSTR("reason", outcome->why->text);
    if (limit->n_suppressed > 0) {
        line.fields[line.n++] = LOG_U64("left_out", limit->n_suppressed);
        limit->n_suppressed = 0;
    }
    log_write(LOG_INFO, "refused", line.fields, line.n);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void on_outcome(void *user, const struct pick_outcome *outcome) {
    struct pick_stream *stream = user;
    bool was_picked = stream->stats.row != NULL;
    stream_stats_on_outcome(&stream->stats, &stream->worker->stats, stream->arena, outcome);
    if (stream->trace) {
        stream_trace_on_outcome(stream->trace, outcome);
    }
    if (!was_picked && stream->stats.row) {
        stream->phase = outcome->at_body ? PICK_TIME_BODY : PICK_TIME_HEADERS;
    }
    if (outcome->why && log_enabled(LOG_INFO)) {
        log_refusal(outcome, &stream->worker->log);
    } else if (!outcome->why && log_enabled(LOG_DEBUG)) {
        log_pick(outcome);
    }
}

static void on_queue(void *user, const struct pick_queue_event *event) {
    struct pick_stream *stream = user;
    stream_stats_on_queue(&stream->stats, &stream->worker->stats, event);
    if (stream->trace) {
        stream_trace_on_queue(stream->trace, event);
    }
}

static void on_response(void *user, const struct ext_proc_request *message) {
    struct pick_stream *stream = user;
    struct stream_times times = {stream->headers_ns, stream->came_ns};
    stream_stats_on_response(&stream->stats, &stream->worker->stats, stream->arena, message,
                             &times);
    if (stream->trace) {
        stream_trace_on_response(stream->trace, message, times.now_ns);
    }
    const struct usage_scan *usage = stream->stats.response.usage;
    if (usage) {
        struct pick_usage used = {.is_known = true,
                                  .n_prompt = usage->n_input,
                                  .n_output = usage->n_output,
                                  .n_cached = usage->n_cached,
                                  .has_cached = usage->has_cached};
        pick_session_note_usage(stream->session, &used);
    }
}

static struct pick_trace_choice on_request(void *user, const struct ext_proc_headers *fields) {
    struct pick_stream *stream = user;
    return stream_trace_begin(&stream->worker->traces, stream->arena, fields, &stream->trace);
}

static void on_stage(void *user, const struct pick_stage_event *event) {
    struct pick_stream *stream = user;
    stream_trace_on_stage(stream->trace, event);
}

/* The start of processing: when the part was received or the previous one was finished, whichever
 * is later. The time from then to the clock reading after the pick is the pick's time. */
static uint64_t processing_start_ns(const struct pick_stream *stream) {
    uint64_t came_ns = stream->came_ns, before_ns = stream->worker->now_ns;
    return came_ns > before_ns ? came_ns : before_ns;
}

void pick_stream_begin_step(struct pick_stream *stream, uint64_t came_ns) {
    stream->came_ns = came_ns;
    uint64_t now_ns = processing_start_ns(stream);
    if (!stream->stats.row) {
        stream->message_ns = now_ns;
        stream->headers_ns = stream->headers_ns ? stream->headers_ns : now_ns;
    }
    clock_freeze_ns(now_ns);
}

void pick_stream_end_step(struct pick_stream *stream) {
    struct pick_worker *worker = stream->worker;
    struct pick_stats *stats = &worker->stats.stats;
    clock_unfreeze();
    if (stream->stats.enqueued_row && stream->message_ns > 0) {
        worker->now_ns = clock_now_ns();
        pick_stats_row_add(stream->stats.enqueued_row, stream->stats.enqueued,
                           worker->now_ns - stream->message_ns);
    }
    stream->stats.enqueued_row = NULL;
    if (stream->stats.row && stream->message_ns > 0) {
        uint64_t now_ns = worker->now_ns = clock_now_ns();
        metric_histogram_add_ns(&stats->times[stream->phase], now_ns - stream->message_ns);
        metric_scale_add(&PICK_SHORT_TIMES, stats->scheduler_times, now_ns - stream->message_ns);
        if (stream->phase == PICK_TIME_BODY) {
            metric_histogram_add_ns(&stats->times[PICK_TIME_WAIT],
                                    stream->message_ns - stream->headers_ns);
        }
        stream->message_ns = 0;
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

bool pick_stream_open(struct pick_stream *stream, struct pick_worker *worker, struct arena *arena,
                      struct pick_callbacks *out) {
    stream->worker = worker;
    stream->arena = arena;
    out->on_outcome = on_outcome;
    out->on_queue = on_queue;
    out->on_response = on_response;
    if (worker->traces.sampler) {
        out->on_request = on_request;
        out->on_stage = on_stage;
    }
    out->user = stream;
    stream->session = pick_session_new(arena, &worker->context, out);
    return stream->session != NULL;
}

static void count_end(struct pick_stream *stream, int grpc_code) {
    struct pick_stats *stats = &stream->worker->stats.stats;
    uint64_t now_ns = processing_start_ns(stream);
    stream_stats_end(&stream->stats, clock_between_ns(stream->headers_ns, now_ns),
                     pick_session_body_bytes(stream->session));
    metric_cell_add(&stats->n_streams[grpc_code], 1);
    if (stream->headers_ns > 0) {
        metric_scale_add(&PICK_STREAM_TIMES, stats->stream_times,
                         clock_between_ns(stream->headers_ns, now_ns));
    }
}

void pick_stream_close(struct pick_stream *stream, int grpc_code, uint64_t came_ns) {
    stream->came_ns = came_ns;
    count_end(stream, grpc_code);
    pick_session_free(stream->session);
    if (stream->trace) {
        stream_trace_end(stream->trace, &stream->worker->traces, &stream->stats.response,
                         clock_read_ns());
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

enum status pick_workers_new(const struct pick_workers_options *options, struct pick_workers **out,
                             struct error *err) {
    struct pick_workers *workers = calloc(1, sizeof(*workers));
    if (!workers) {
        return error_no_memory(err, "the workers' state");
    }
    workers->options = *options;
    hash_key_init(&workers->stats_key);
    workers->models = pick_label_names_new(MOST_MODELS, MOST_MODELS_ON_TRIAL);
    workers->fairness_ids = pick_label_names_new(options->fairness_id_metric_label_limit,
                                                 options->fairness_id_metric_label_limit);
    if (!workers->models || !workers->fairness_ids) {
        pick_workers_free(workers);
        return error_no_memory(err, "the names of models in metrics");
    }
    *out = workers;
    return ST_OK;
}

void pick_workers_free(struct pick_workers *workers) {
    if (workers) {
        pick_label_names_free(workers->models);
        pick_label_names_free(workers->fairness_ids);
        free(workers);
    }
}

/* A reader of the statistics may see a place that is counted and not filled in yet. */
static bool add_worker(struct pick_workers *workers, const struct pick_worker *worker) {
    size_t at = atomic_fetch_add(&workers->n, 1);
    if (at >= PICK_MAX_WORKERS) {
        atomic_fetch_sub(&workers->n, 1);
        return false;
    }
    atomic_store(&workers->items[at], worker);
    return true;
}

enum status pick_worker_init(struct pick_worker *worker, struct pick_workers *workers,
                             void (*notify)(void *user), void *user, struct error *err) {
    const struct pick_workers_options *options = &workers->options;
    pool_wakeup_init(&worker->wakeup, notify, user);
    worker->stats.stats.key = &workers->stats_key;
    worker->stats.models = workers->models;
    worker->stats.fairness_ids = workers->fairness_ids;
    worker->context = (struct pick_context){.wakeup = &worker->wakeup,
                                            .waited = &worker->waited,
                                            .limits = options->limits,
                                            .emits_scores = options->emits_scores,
                                            .proxy_keeps_body = options->proxy_keeps_body};
    worker->traces.sampler = options->sampler;
    worker->traces.writer = options->span_writer;
    random_fill(&worker->traces.prng, sizeof worker->traces.prng);
    enum status st = pool_set_reader_new(options->pools, &worker->context.pools, err);
    if (st == ST_OK && !add_worker(workers, worker)) {
        return error_set(err, ST_BAD_CONFIG, "more than %d workers", (int)PICK_MAX_WORKERS);
    }
    return st;
}

void pick_worker_fini(struct pick_worker *worker) {
    pool_set_reader_free(worker->context.pools);
    pick_stats_fini(&worker->stats.stats);
    pool_wakeup_fini(&worker->wakeup);
}

void pick_worker_count_dispatch(struct pick_worker *worker, uint64_t begun_ns) {
    metric_scale_add(&PICK_SHORT_TIMES, worker->stats.stats.dispatch_times,
                     clock_between_ns(begun_ns, clock_now_ns()));
}

size_t pick_workers_stats(struct pick_workers *workers,
                          const struct pick_stats *out[PICK_MAX_WORKERS]) {
    size_t n = 0;
    for (size_t i = 0; i < PICK_MAX_WORKERS; i++) {
        const struct pick_worker *worker = atomic_load(&workers->items[i]);
        if (worker) {
            out[n++] = &worker->stats.stats;
        }
    }
    return n;
}
