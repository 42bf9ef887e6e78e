/* Runs a pick session for each ext-proc call. Back pressure: the next message is read only while
 * the session's buffer has capacity and its unsent responses take less than MAX_UNSENT_BYTES; where
 * those of the connection reach --max-unsent-size, less than FREE_UNSENT_BYTES. So a client that
 * reads slowly stops its own request, and not the others of its proxy.
 *
 * Memory: what a stream takes, except for received messages, which --body-memory counts, counts
 * against --client-memory. A request for which there is none is refused with 503. Large ones leave
 * an eighth to small ones (net_budget.kept_memory). While the proxy may wait for a response a timer
 * runs: a proxy in full-duplex mode has none.
 *
 * Proxies regularly reset calls when the request ends; net/transport/h2_rate_limit.h does not count
 * these as abuse. */
#include "pick/ext_proc/service.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/os/log_limit.h"
#include "net/server/grpc/reflect.h"
#include "net/transport/memory_account.h"
#include "pick/ext_proc/descriptors.h"
#include "pick/ext_proc/stream_stats.h"
#include "pick/ext_proc/stream_trace.h"

enum {
    MAX_UNSENT_BYTES = 1 << 20,
    FREE_UNSENT_BYTES = 2048, /* included in BASE_BYTES */
    MESSAGE_BYTES = 512,      /* an unsent message, besides its bytes */
    /* An open stream, besides the arena of its call: that of HTTP/2, and unsent responses. */
    BASE_BYTES = PICK_STREAM_BYTES - 4096,
    SMALL_BYTES = 32768, /* a stream that holds more may not use the memory kept for others */
};

/* The interval of pool_tick for pools that requests wait for. */
static const uint64_t TICK_NS = 100000000;
/* Where running requests are ended for those that wait: as long as it takes for the effect to
 * show. */
static const uint64_t EVICTION_TICK_NS = 10000000;

/* Per worker. */
struct worker_state {
    struct worker *worker;
    struct pick_context context;
    struct stats_context stats;
    struct trace_context traces; /* sampler NULL: no --tracing */
    struct log_limit log;
    uint64_t now_ns;       /* the last time that the clock was read for a pick */
    struct worker_msg msg; /* refreshes the readers and resumes notified waiters */
    atomic_bool posted;    /* msg is posted and has not run */
    struct pool_wakeup wakeup;
    struct pool_waited waited; /* the pools that requests are queued for */
    struct timer tick;         /* set while there are any */
    bool is_ticking;
};

/* Labels that clients choose: of models as many as upstream has. */
enum { MOST_MODELS = 1000, MOST_MODELS_ON_TRIAL = 100 };

struct pick_service {
    struct hash_key stats_key;
    struct pick_label_names *models, *fairness_ids;
    struct worker_state *worker_states;
    size_t n_worker_states;
};

/* Per call. The fields that the end of a call reads come first. */
struct stream {
    struct grpc_call *call;
    struct pick_session *session;
    struct worker_state *worker_state;
    struct stream_stats stats;
    struct stream_trace *trace; /* NULL: none is recorded */
    uint64_t headers_ns;        /* when the request's headers were received */
    uint64_t message_ns;        /* when the message being processed was received */
    enum pick_phase_time phase; /* once picked: of the pick */
    bool read_pending;          /* grpc_read was called, and no message has arrived */
    int code;                   /* the gRPC status of its end */
    bool over_budget;           /* there was no memory for it: its first message is refused */
    struct memory_overhead overhead;
    struct memory_reservation unsent; /* with more than FREE_UNSENT_BYTES */
    struct timer timer;
    uint64_t due_ns;           /* of the timer: the session's deadline; 0: it is stopped */
    struct loop_turn turn;     /* waits while a large body is scanned, or a replay goes on */
    struct grpc_message *next; /* a message that was received meanwhile; NULL: none */
};

/* ---- callbacks of the session ---------------------------------------------------------------- */

static void on_send(void *user, const struct piece *pieces, size_t n_pieces,
                    void (*release)(void *release_user), void *release_user) {
    struct stream *stream = user;
    grpc_send(stream->call, pieces, n_pieces, release, release_user);
}

static void on_finish(void *user, const struct error *err) {
    struct stream *stream = user;
    stream->code = err ? status_grpc(err->status) : 0;
    grpc_finish(stream->call, err);
}

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
    struct stream *stream = user;
    bool was_picked = stream->stats.row != NULL;
    stream_stats_on_outcome(&stream->stats, &stream->worker_state->stats, stream->call->arena,
                            outcome);
    if (stream->trace) {
        stream_trace_on_outcome(stream->trace, outcome);
    }
    if (!was_picked && stream->stats.row) {
        stream->phase = outcome->at_body ? PICK_TIME_BODY : PICK_TIME_HEADERS;
    }
    if (outcome->why && log_enabled(LOG_INFO)) {
        log_refusal(outcome, &stream->worker_state->log);
    } else if (!outcome->why && log_enabled(LOG_DEBUG)) {
        log_pick(outcome);
    }
}

static void on_queue(void *user, const struct pick_queue_event *event) {
    struct stream *stream = user;
    stream_stats_on_queue(&stream->stats, &stream->worker_state->stats, event);
    if (stream->trace) {
        stream_trace_on_queue(stream->trace, event);
    }
}

static void on_response(void *user, const struct ext_proc_request *message) {
    struct stream *stream = user;
    struct stream_times times = {stream->headers_ns, grpc_now_ns(stream->call)};
    stream_stats_on_response(&stream->stats, &stream->worker_state->stats, stream->call->arena,
                             message, &times);
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
    struct stream *stream = user;
    return stream_trace_begin(&stream->worker_state->traces, stream->call->arena, fields,
                              &stream->trace);
}

static void on_stage(void *user, const struct pick_stage_event *event) {
    struct stream *stream = user;
    stream_trace_on_stage(stream->trace, event);
}

/* The start of processing: when the message was received or the previous one was finished,
 * whichever is later. The time from then to the clock reading after the pick is the pick's time. */
static uint64_t processing_start_ns(const struct stream *stream) {
    uint64_t came_ns = grpc_now_ns(stream->call), before_ns = stream->worker_state->now_ns;
    return came_ns > before_ns ? came_ns : before_ns;
}

static void begin_timing(struct stream *stream) {
    uint64_t now_ns = processing_start_ns(stream);
    if (!stream->stats.row) {
        stream->message_ns = now_ns;
        stream->headers_ns = stream->headers_ns ? stream->headers_ns : now_ns;
    }
    clock_freeze_ns(now_ns);
}

static void end_timing(struct stream *stream) {
    struct pick_stats *stats = &stream->worker_state->stats.stats;
    clock_unfreeze();
    if (stream->stats.enqueued_row && stream->message_ns > 0) {
        stream->worker_state->now_ns = clock_now_ns();
        pick_stats_row_add(stream->stats.enqueued_row, stream->stats.enqueued,
                           stream->worker_state->now_ns - stream->message_ns);
    }
    stream->stats.enqueued_row = NULL;
    if (stream->stats.row && stream->message_ns > 0) {
        uint64_t now_ns = stream->worker_state->now_ns = clock_now_ns();
        metric_histogram_add_ns(&stats->times[stream->phase], now_ns - stream->message_ns);
        metric_scale_add(&PICK_SHORT_TIMES, stats->scheduler_times, now_ns - stream->message_ns);
        if (stream->phase == PICK_TIME_BODY) {
            metric_histogram_add_ns(&stats->times[PICK_TIME_WAIT],
                                    stream->message_ns - stream->headers_ns);
        }
        stream->message_ns = 0;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t unsent_bytes(const struct stream *stream) {
    size_t n_bytes = grpc_queued_bytes(stream->call);
    return n_bytes > 0 ? n_bytes + grpc_queued_messages(stream->call) * MESSAGE_BYTES : 0;
}

/* Counts them for the connection (--max-unsent-size). They are in memory already. */
static void count_unsent(struct stream *stream, uint64_t n_bytes) {
    struct memory_reservation *unsent = &stream->unsent;
    if (n_bytes <= FREE_UNSENT_BYTES) {
        memory_release(unsent, true);
    } else if (unsent->state == MEMORY_NONE) {
        memory_hold(stream->call->account, unsent, n_bytes);
    } else if (n_bytes > unsent->n_bytes) {
        memory_add(unsent, n_bytes - unsent->n_bytes);
    } else {
        memory_subtract(unsent, unsent->n_bytes - n_bytes);
    }
}

/* A proxy with few requests is served while others use up the memory. */
static enum memory_level memory_level_of(const struct grpc_call *call, uint64_t n_bytes) {
    return n_bytes > SMALL_BYTES                        ? MEMORY_LEVEL_LARGE
           : memory_account_holds_little(call->account) ? MEMORY_LEVEL_FIRST
                                                        : MEMORY_LEVEL_USUAL;
}

/* Returns: false when --client-memory is used up. */
static bool count_held(struct stream *stream) {
    uint64_t held = BASE_BYTES + pick_session_held_bytes(stream->session);
    uint64_t counted = stream->overhead.n_bytes;
    if (held == counted) {
        return true;
    }
    if (held > counted) {
        return memory_overhead_add(stream->call->account, &stream->overhead, held - counted,
                                   memory_level_of(stream->call, held));
    }
    memory_overhead_subtract(&stream->overhead, counted - held);
    return true;
}

static void update_timer(struct stream *stream);
static void stop_turns(struct stream *stream);

/* Clause: "Constraints": the proxy must be given a response for the client. A stream that just
 * ended would look like a failure of the picker, and the proxy might let the request pass. */
static void reject_message(struct stream *stream, const struct error *why) {
    if (why->status == ST_OVERLOADED) {
        memory_relieve(stream->call->account, PICK_STREAM_BYTES);
    }
    pick_session_on_message_rejected(stream->session, why);
    update_timer(stream);
    stop_turns(stream);
}

static void over_budget_error(struct error *err) {
    metric_add(METRIC_DROPPED_MEMORY, 1);
    error_set(err, ST_OVERLOADED,
              "no memory for the request: other requests and their responses use up "
              "--client-memory");
}

static void reject_over_budget(struct stream *stream) {
    struct error err;
    over_budget_error(&err);
    reject_message(stream, &err);
}

/* ---- continuing ------------------------------------------------------------------------------ */

static void continue_stream(struct stream *stream);

static void on_timer(struct timer *timer) {
    struct stream *stream = CONTAINER_OF(timer, struct stream, timer);
    stream->due_ns = 0;
    pick_session_on_timeout(stream->session);
    continue_stream(stream);
}

/* ---- timers ---------------------------------------------------------------------------------- */

/* Ticks while requests are queued. */
static void update_tick(struct worker_state *worker_state) {
    struct loop_timers *timers = worker_timers(worker_state->worker);
    worker_state->is_ticking = !pool_waited_is_empty(&worker_state->waited);
    if (!worker_state->is_ticking) {
        timer_stop(timers, &worker_state->tick);
    } else {
        bool evicts = pool_waited_evicts(&worker_state->waited);
        timer_start(timers, &worker_state->tick,
                    clock_now_ns() + (evicts ? EVICTION_TICK_NS : TICK_NS));
    }
}

static void count_dispatch(struct worker_state *worker_state, uint64_t begun_ns) {
    metric_scale_add(&PICK_SHORT_TIMES, worker_state->stats.stats.dispatch_times,
                     clock_between_ns(begun_ns, clock_now_ns()));
}

static void on_tick(struct timer *timer) {
    struct worker_state *worker_state = CONTAINER_OF(timer, struct worker_state, tick);
    uint64_t begun_ns = clock_now_ns();
    pool_waited_tick(&worker_state->waited, TICK_NS / 2);
    pool_waited_evict(&worker_state->waited);
    count_dispatch(worker_state, begun_ns);
    update_tick(worker_state);
}

/* The timer follows the session's deadline. A request that is queued may keep the deadline that it
 * had before. */
static void update_timer(struct stream *stream) {
    uint64_t due_ns = pick_session_deadline_ns(stream->session);
    struct worker_state *worker_state = stream->worker_state;
    if (worker_state->is_ticking == pool_waited_is_empty(&worker_state->waited)) {
        update_tick(worker_state);
    }
    if (due_ns != stream->due_ns) {
        struct loop_timers *timers = worker_timers(stream->call->worker);
        stream->due_ns = due_ns;
        if (due_ns == 0) {
            timer_stop(timers, &stream->timer);
        } else {
            timer_start(timers, &stream->timer, due_ns);
        }
    }
}

/* Whether the unsent responses leave space for that to the next message. */
static bool has_unsent_space(const struct stream *stream, uint64_t unsent) {
    return unsent <= FREE_UNSENT_BYTES ||
           (unsent < MAX_UNSENT_BYTES && !memory_account_is_full(stream->call->account));
}

/* Large bodies and long replays go on in slices, as long as this turn lasts; the rest waits for
 * another one. */
static void go_on(struct stream *stream) {
    struct loop_iteration *iteration = worker_loop_iteration(stream->call->worker);
    while (pick_session_has_more(stream->session)) {
        if (loop_iteration_turn_is_over(iteration)) {
            loop_iteration_wait(iteration, &stream->turn);
            return;
        }
        pick_session_go_on(stream->session);
    }
}

static void stop_turns(struct stream *stream) {
    loop_iteration_end_wait(worker_loop_iteration(stream->call->worker), &stream->turn);
    if (stream->next) {
        grpc_message_free(stream->next);
        stream->next = NULL;
    }
}

/* After each event except the last. */
static void continue_stream(struct stream *stream) {
    uint64_t unsent = unsent_bytes(stream);
    if (unsent > FREE_UNSENT_BYTES || stream->unsent.state != MEMORY_NONE) {
        count_unsent(stream, unsent);
    }
    update_timer(stream);
    if (!pick_session_has_ended(stream->session) && !stream->read_pending &&
        has_unsent_space(stream, unsent) && !pick_session_is_buffer_full(stream->session) &&
        !pick_session_has_more(stream->session)) {
        stream->read_pending = true;
        grpc_read(stream->call);
    }
}

/* The time in the queue has a metric of its own and does not count as the pick's. */
static void on_resumed(void *user) {
    struct stream *stream = user;
    stream->message_ns = 0;
    (void)count_held(stream); /* it holds less than before */
    go_on(stream);
    continue_stream(stream);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct worker_state *find_worker_state(const struct grpc_call *call) {
    struct pick_service *service = call->method->context;
    size_t i = 0;
    while (service->worker_states[i].worker != call->worker) {
        i++;
        assert(i < service->n_worker_states);
    }
    return &service->worker_states[i];
}

/* A stream for which there is no memory gets a response to its first message. Returns: false when
 * there is none for that either: the stream ends with a status, which needs no window of the
 * proxy. */
static bool begin_memory(struct stream *stream) {
    struct memory_account *account = stream->call->account;
    struct memory_overhead *overhead = &stream->overhead;
    stream->over_budget = !memory_overhead_add(account, overhead, PICK_STREAM_BYTES,
                                               memory_level_of(stream->call, PICK_STREAM_BYTES));
    return !stream->over_budget ||
           memory_overhead_add(account, overhead, PICK_STREAM_BYTES, MEMORY_LEVEL_REFUSAL);
}

static void on_turn(struct loop_turn *turn);

static void open_stream(struct grpc_call *call) {
    struct worker_state *worker_state = find_worker_state(call);
    struct stream *stream = arena_alloc(call->arena, sizeof *stream);
    if (stream) {
        *stream = (struct stream){.call = call,
                                  .worker_state = worker_state,
                                  .timer = {.on_expire = on_timer},
                                  .turn = {.run = on_turn}};
        struct pick_callbacks out = {.send = on_send,
                                     .finish = on_finish,
                                     .on_resumed = on_resumed,
                                     .on_outcome = on_outcome,
                                     .on_queue = on_queue,
                                     .on_response = on_response,
                                     .user = stream};
        if (worker_state->traces.sampler) {
            out.on_request = on_request;
            out.on_stage = on_stage;
        }
        stream->session = pick_session_new(call->arena, &worker_state->context, &out);
    }
    if (!stream || !stream->session) {
        struct error err;
        error_no_memory(&err, "the call");
        grpc_finish(call, &err);
        return;
    }
    call->user = stream;
    if (begin_memory(stream)) {
        stream->read_pending = true;
        grpc_read(call);
    } else {
        struct error err;
        over_budget_error(&err);
        pick_session_cancel(stream->session, &err);
    }
}

static void free_message(void *user) {
    grpc_message_free(user);
}

static void end_step(struct stream *stream) {
    end_timing(stream);
    if (!count_held(stream) && !pick_session_has_ended(stream->session) && !stream->stats.row) {
        reject_over_budget(stream);
    } else {
        continue_stream(stream);
    }
}

static void take_message(struct stream *stream, struct grpc_message *message) {
    stream->read_pending = false;
    if (pick_session_has_ended(stream->session)) { /* since the message was requested */
        grpc_message_free(message);
        return;
    }
    if (stream->over_budget) {
        grpc_message_free(message);
        reject_over_budget(stream);
        return;
    }
    if (pick_session_has_more(stream->session)) { /* likewise */
        stream->next = message;
        return;
    }
    begin_timing(stream);
    pick_session_on_message(stream->session,
                            &(struct pick_message){message->data, free_message, message});
    if (pick_session_has_more(stream->session)) {
        clock_unfreeze();
        go_on(stream);
    }
    end_step(stream);
}

static void on_turn(struct loop_turn *turn) {
    struct stream *stream = CONTAINER_OF(turn, struct stream, turn);
    go_on(stream);
    struct grpc_message *next = stream->next;
    if (next && !pick_session_has_more(stream->session)) {
        end_timing(stream);
        stream->next = NULL;
        take_message(stream, next);
    } else {
        end_step(stream);
    }
}

static void on_cancelled(struct stream *stream) {
    pick_session_cancel(stream->session, &stream->call->cancel_error);
    update_timer(stream);
    stop_turns(stream);
}

static void count_end(struct stream *stream) {
    struct pick_stats *stats = &stream->worker_state->stats.stats;
    uint64_t now_ns = processing_start_ns(stream);
    stream_stats_end(&stream->stats, clock_between_ns(stream->headers_ns, now_ns),
                     pick_session_body_bytes(stream->session));
    metric_cell_add(&stats->n_streams[stream->code], 1);
    if (stream->headers_ns > 0) {
        metric_scale_add(&PICK_STREAM_TIMES, stats->stream_times,
                         clock_between_ns(stream->headers_ns, now_ns));
    }
}

static void on_end(struct stream *stream) {
    assert(stream->due_ns == 0);
    stop_turns(stream);
    count_end(stream);
    if (stream->unsent.state != MEMORY_NONE) {
        memory_release(&stream->unsent, !stream->call->is_cancelled);
    }
    memory_overhead_release(&stream->overhead);
    pick_session_free(stream->session);
    if (stream->trace) {
        stream_trace_end(stream->trace, &stream->worker_state->traces, &stream->stats.response,
                         clock_read_ns());
    }
    stream->call->user = NULL;
}

static void on_event(struct grpc_call *call, enum grpc_event event) {
    struct stream *stream = call->user;
    if (event == GRPC_BEGIN) {
        open_stream(call);
        return;
    }
    if (!stream) { /* out of memory at the start */
        return;
    }
    switch (event) {
    case GRPC_BEGIN:
        break;
    case GRPC_MESSAGE:
        take_message(stream, stream->call->message);
        break;
    case GRPC_HALF_CLOSE:
        pick_session_half_close(stream->session);
        update_timer(stream);
        break;
    case GRPC_WRITABLE:
        continue_stream(stream);
        break;
    case GRPC_CANCELLED:
        on_cancelled(stream);
        break;
    case GRPC_END:
        on_end(stream);
        break;
    }
}

static bool on_message_rejected(struct grpc_call *call, const struct error *why) {
    struct stream *stream = call->user;
    if (!stream || pick_session_has_ended(stream->session)) {
        return false;
    }
    reject_message(stream, why);
    return true;
}

static void describe_call(const struct grpc_call *call, struct buf *out) {
    const struct stream *stream = call->user;
    if (stream) { /* else out of memory at the start */
        pick_session_describe(stream->session, out);
    }
}

/* ---- the service ----------------------------------------------------------------------------- */

static void post_wakeup(void *user) {
    struct worker_state *worker_state = user;
    if (!atomic_exchange(&worker_state->posted, true)) {
        worker_post(worker_state->worker, &worker_state->msg);
    }
}

/* An update of a pool, or an endpoint that becomes ready, may notify thousands of requests at once:
 * other events have their turn in between. */
static void on_wakeup(struct worker_msg *msg) {
    struct worker_state *worker_state = CONTAINER_OF(msg, struct worker_state, msg);
    struct loop_iteration *iteration = worker_loop_iteration(worker_state->worker);
    atomic_store(&worker_state->posted, false);
    pool_set_reader_refresh_all(worker_state->context.pools);
    uint64_t begun_ns = pool_waited_is_empty(&worker_state->waited) ? 0 : clock_now_ns();
    if (pick_session_resume_some(&worker_state->wakeup, &iteration->messages)) {
        post_wakeup(worker_state);
    }
    if (begun_ns > 0) {
        count_dispatch(worker_state, begun_ns);
    }
}

static enum status worker_state_init(struct worker_state *worker_state,
                                     const struct pick_service_options *options,
                                     struct worker *worker, struct error *err) {
    worker_state->worker = worker;
    worker_state->msg.run = on_wakeup;
    worker_state->tick.on_expire = on_tick;
    pool_wakeup_init(&worker_state->wakeup, post_wakeup, worker_state);
    worker_state->context.wakeup = &worker_state->wakeup;
    worker_state->context.waited = &worker_state->waited;
    worker_state->context.limits = options->limits;
    worker_state->context.emits_scores = options->emits_scores;
    worker_state->traces.sampler = options->sampler;
    worker_state->traces.writer = options->span_writer;
    random_fill(&worker_state->traces.prng, sizeof worker_state->traces.prng);
    return pool_set_reader_new(options->pools, &worker_state->context.pools, err);
}

enum status pick_service_new(const struct pick_service_options *options, struct pick_service **out,
                             struct error *err) {
    struct pick_service *service = calloc(1, sizeof *service);
    struct worker_state *worker_states = calloc(options->n_workers + 1, sizeof *worker_states);
    enum status st = ST_OK;
    if (!service || !worker_states) {
        free(service);
        free(worker_states);
        return error_no_memory(err, "the ext-proc service");
    }
    service->worker_states = worker_states;
    hash_key_init(&service->stats_key);
    service->models = pick_label_names_new(MOST_MODELS, MOST_MODELS_ON_TRIAL);
    service->fairness_ids = pick_label_names_new(options->fairness_id_metric_label_limit,
                                                 options->fairness_id_metric_label_limit);
    if (!service->models || !service->fairness_ids) {
        st = error_no_memory(err, "the names of models in metrics");
    }
    for (size_t i = 0; i < options->n_workers && st == ST_OK; i++) {
        worker_states[i].stats.stats.key = &service->stats_key;
        worker_states[i].stats.models = service->models;
        worker_states[i].stats.fairness_ids = service->fairness_ids;
        st = worker_state_init(&worker_states[i], options, options->workers[i], err);
        service->n_worker_states++;
    }
    if (st != ST_OK) {
        pick_service_free(service);
        return st;
    }
    *out = service;
    return ST_OK;
}

void pick_service_free(struct pick_service *service) {
    if (service) {
        for (size_t i = 0; i < service->n_worker_states; i++) {
            pool_set_reader_free(service->worker_states[i].context.pools);
            pick_stats_fini(&service->worker_states[i].stats.stats);
            pool_wakeup_fini(&service->worker_states[i].wakeup);
        }
        pick_label_names_free(service->models);
        pick_label_names_free(service->fairness_ids);
        free(service->worker_states);
        free(service);
    }
}

struct grpc_method pick_service_method(struct pick_service *service) {
    return (struct grpc_method){.path = "/" PICK_SERVICE_NAME "/Process",
                                .on_event = on_event,
                                .streams = true,
                                .counts_memory = true,
                                .context = service,
                                .on_message_rejected = on_message_rejected,
                                .describe = describe_call};
}

size_t pick_service_stats(const struct pick_service *service,
                          const struct pick_stats *out[PICK_MAX_STATS]) {
    size_t n = 0;
    while (n < service->n_worker_states && n < PICK_MAX_STATS) {
        out[n] = &service->worker_states[n].stats.stats;
        n++;
    }
    return n;
}

void pick_service_refresh(struct pick_service *service) {
    for (size_t i = 0; i < service->n_worker_states; i++) {
        post_wakeup(&service->worker_states[i]);
    }
}

/* ---- reflection ------------------------------------------------------------------------------ */

static void on_reflection_event(struct grpc_call *call, enum grpc_event event) {
    grpc_reflect(pick_descriptors(), call, event);
}

void pick_reflection_methods(struct grpc_method methods[PICK_REFLECTION_METHODS]) {
    methods[0] = (struct grpc_method){
        .path = GRPC_REFLECT_V1, .on_event = on_reflection_event, .streams = true};
    methods[1] = (struct grpc_method){
        .path = GRPC_REFLECT_V1ALPHA, .on_event = on_reflection_event, .streams = true};
}
