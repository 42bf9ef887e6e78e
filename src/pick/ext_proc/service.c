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
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/server/grpc/reflect.h"
#include "net/transport/memory_account.h"
#include "pick/ext_proc/descriptors.h"

enum {
    MAX_UNSENT_BYTES = 1 << 20,
    FREE_UNSENT_BYTES = 2048, /* included in BASE_BYTES */
    MESSAGE_BYTES = 512,      /* an unsent message, besides its bytes */
    /* An open stream, besides the arena of its call: that of HTTP/2, and unsent responses. */
    BASE_BYTES = PICK_STREAM_BYTES - 4096,
    SMALL_BYTES = 32768, /* a stream that holds more may not use the memory kept for others */
};

/* The longest that one body is scanned before others are read. */
static const uint64_t BODY_TURN_NS = 200000;
/* The interval of pool_tick for pools that requests wait for. */
static const uint64_t TICK_NS = 100000000;
/* Where running requests are ended for those that wait: as long as it takes for the effect to
 * show. */
static const uint64_t EVICTION_TICK_NS = 10000000;

/* Per worker. */
struct worker_state {
    struct pick_worker shared;
    struct worker *worker;
    struct worker_msg msg; /* refreshes the readers and resumes notified waiters */
    atomic_bool posted;    /* msg is posted and has not run */
    struct timer tick;     /* set while requests are queued */
    bool is_ticking;
};

struct pick_service {
    struct worker_state *worker_states;
    size_t n_worker_states;
};

/* Per call. The fields that the end of a call reads come first. */
struct stream {
    struct pick_stream shared; /* the user of the session's callbacks */
    struct grpc_call *call;
    struct worker_state *worker_state;
    bool read_pending; /* grpc_read was called, and no message has arrived */
    int code;          /* the gRPC status of its end */
    bool over_budget;  /* there was no memory for it: its first message is refused */
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
    uint64_t held = BASE_BYTES + pick_session_held_bytes(stream->shared.session);
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
    pick_session_on_message_rejected(stream->shared.session, why);
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
    pick_session_on_timeout(stream->shared.session);
    continue_stream(stream);
}

/* ---- timers ---------------------------------------------------------------------------------- */

/* Ticks while requests are queued. */
static void update_tick(struct worker_state *worker_state) {
    struct loop_timers *timers = worker_timers(worker_state->worker);
    worker_state->is_ticking = !pool_waited_is_empty(&worker_state->shared.waited);
    if (!worker_state->is_ticking) {
        timer_stop(timers, &worker_state->tick);
    } else {
        bool evicts = pool_waited_evicts(&worker_state->shared.waited);
        timer_start(timers, &worker_state->tick,
                    clock_now_ns() + (evicts ? EVICTION_TICK_NS : TICK_NS));
    }
}

static void on_tick(struct timer *timer) {
    struct worker_state *worker_state = CONTAINER_OF(timer, struct worker_state, tick);
    uint64_t begun_ns = clock_now_ns();
    pool_waited_tick(&worker_state->shared.waited, TICK_NS / 2);
    pool_waited_evict(&worker_state->shared.waited);
    pick_worker_count_dispatch(&worker_state->shared, begun_ns);
    update_tick(worker_state);
}

/* The timer follows the session's deadline. A request that is queued may keep the deadline that it
 * had before. */
static void update_timer(struct stream *stream) {
    uint64_t due_ns = pick_session_deadline_ns(stream->shared.session);
    struct worker_state *worker_state = stream->worker_state;
    if (worker_state->is_ticking == pool_waited_is_empty(&worker_state->shared.waited)) {
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
    while (pick_session_has_more(stream->shared.session)) {
        if (loop_iteration_turn_is_over(iteration, BODY_TURN_NS)) {
            loop_iteration_wait(iteration, &stream->turn);
            return;
        }
        pick_session_go_on(stream->shared.session);
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
    if (!pick_session_has_ended(stream->shared.session) && !stream->read_pending &&
        has_unsent_space(stream, unsent) && !pick_session_is_buffer_full(stream->shared.session) &&
        !pick_session_has_more(stream->shared.session)) {
        stream->read_pending = true;
        grpc_read(stream->call);
    }
}

/* The time in the queue has a metric of its own and does not count as the pick's. */
static void on_resumed(void *user) {
    struct stream *stream = user;
    stream->shared.message_ns = 0;
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
    bool has_session = false;
    if (stream) {
        *stream = (struct stream){.call = call,
                                  .worker_state = worker_state,
                                  .timer = {.on_expire = on_timer},
                                  .turn = {.run = on_turn}};
        struct pick_callbacks out = {
            .send = on_send, .finish = on_finish, .on_resumed = on_resumed};
        has_session = pick_stream_open(&stream->shared, &worker_state->shared, call->arena, &out);
    }
    if (!has_session) {
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
        pick_session_cancel(stream->shared.session, &err);
    }
}

static void free_message(void *user) {
    grpc_message_free(user);
}

static void end_step(struct stream *stream) {
    pick_stream_end_step(&stream->shared);
    if (!count_held(stream) && !pick_session_has_ended(stream->shared.session) &&
        !stream->shared.stats.row) {
        reject_over_budget(stream);
    } else {
        continue_stream(stream);
    }
}

static void take_message(struct stream *stream, struct grpc_message *message) {
    stream->read_pending = false;
    if (pick_session_has_ended(stream->shared.session)) { /* since the message was requested */
        grpc_message_free(message);
        return;
    }
    if (stream->over_budget) {
        grpc_message_free(message);
        reject_over_budget(stream);
        return;
    }
    if (pick_session_has_more(stream->shared.session)) { /* likewise */
        stream->next = message;
        return;
    }
    pick_stream_begin_step(&stream->shared, grpc_now_ns(stream->call));
    pick_session_on_message(stream->shared.session,
                            &(struct pick_message){message->data, free_message, message});
    if (pick_session_has_more(stream->shared.session)) {
        clock_unfreeze();
        go_on(stream);
    }
    end_step(stream);
}

static void on_turn(struct loop_turn *turn) {
    struct stream *stream = CONTAINER_OF(turn, struct stream, turn);
    go_on(stream);
    struct grpc_message *next = stream->next;
    if (next && !pick_session_has_more(stream->shared.session)) {
        pick_stream_end_step(&stream->shared);
        stream->next = NULL;
        take_message(stream, next);
    } else {
        end_step(stream);
    }
}

static void on_cancelled(struct stream *stream) {
    pick_session_cancel(stream->shared.session, &stream->call->cancel_error);
    update_timer(stream);
    stop_turns(stream);
}

static void on_end(struct stream *stream) {
    assert(stream->due_ns == 0);
    stop_turns(stream);
    if (stream->unsent.state != MEMORY_NONE) {
        memory_release(&stream->unsent, !stream->call->is_cancelled);
    }
    memory_overhead_release(&stream->overhead);
    pick_stream_close(&stream->shared, stream->code, grpc_now_ns(stream->call));
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
        pick_session_half_close(stream->shared.session);
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
    if (!stream || pick_session_has_ended(stream->shared.session)) {
        return false;
    }
    reject_message(stream, why);
    return true;
}

static void describe_call(const struct grpc_call *call, struct buf *out) {
    const struct stream *stream = call->user;
    if (stream) { /* else out of memory at the start */
        pick_session_describe(stream->shared.session, out);
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
    pool_set_reader_refresh_all(worker_state->shared.context.pools);
    uint64_t begun_ns = pool_waited_is_empty(&worker_state->shared.waited) ? 0 : clock_now_ns();
    if (pick_session_resume_some(&worker_state->shared.wakeup, &iteration->messages)) {
        post_wakeup(worker_state);
    }
    if (begun_ns > 0) {
        pick_worker_count_dispatch(&worker_state->shared, begun_ns);
    }
}

static enum status worker_state_init(struct worker_state *worker_state,
                                     struct pick_workers *workers, struct worker *worker,
                                     struct error *err) {
    worker_state->worker = worker;
    worker_state->msg.run = on_wakeup;
    worker_state->tick.on_expire = on_tick;
    return pick_worker_init(&worker_state->shared, workers, post_wakeup, worker_state, err);
}

enum status pick_service_new(struct pick_workers *shared, struct worker *const *workers,
                             size_t n_workers, struct pick_service **out, struct error *err) {
    struct pick_service *service = calloc(1, sizeof *service);
    struct worker_state *worker_states = calloc(n_workers + 1, sizeof *worker_states);
    enum status st = ST_OK;
    if (!service || !worker_states) {
        free(service);
        free(worker_states);
        return error_no_memory(err, "the ext-proc service");
    }
    service->worker_states = worker_states;
    for (size_t i = 0; i < n_workers && st == ST_OK; i++) {
        st = worker_state_init(&worker_states[i], shared, workers[i], err);
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
            pick_worker_fini(&service->worker_states[i].shared);
        }
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
