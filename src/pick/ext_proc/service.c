/* From calls to sessions. A call's messages go into its session one by one; the next is asked for
 * while its answers are taken, so that neither side can make the other hold more than a few of
 * them. When the proxy may be waiting a clock runs, since a proxy in full-duplex mode has none.
 *
 * A call ends with the proxy's reset as a matter of course: that is no error and no abuse
 * (net/transport/h2_abuse.h). */
#include "pick/ext_proc/service.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/os/log_limit.h"
#include "pick/session/pick_log.h"

/* Answers that the proxy has not taken, before the next of its messages is looked at. */
enum { QUEUED_BYTES = 1 << 20 };

/* How often a pool that requests wait for is looked at, when nothing else happens. */
static const uint64_t TICK_NS = 100000000;

/* What a worker has of the service. */
struct desk {
    struct worker *worker;
    struct pick_means means;
    struct pick_ledger ledger;
    struct log_limit log;
    uint64_t now_ns;       /* when the clock was last looked at for a pick */
    struct worker_msg msg; /* look at the pools, and who was called */
    atomic_bool posted;    /* msg is on its way */
    struct pool_bell bell;
    struct pick_path_last last_path;
    struct stream *waiting; /* those that wait for room, in any order */
    struct alarm tick;      /* set while there are any */
};

struct pick_service {
    struct desk *desks;
    size_t n_desks;
};

/* A call's own. What its end looks at stands in front. */
struct stream {
    struct grpc_call *call;
    struct pick_session *session;
    struct desk *desk;
    struct pick_row *row;       /* where it is counted; NULL: it has no endpoint yet */
    uint64_t began_ns;          /* its headers came */
    uint64_t turn_ns;           /* what is being taken came */
    enum pick_phase_time phase; /* with `row`: of its pick */
    bool asked;                 /* for a message that has not come yet */
    bool finished;              /* the session has ended the call */
    bool ticking;               /* the alarm is set */
    bool waiting;               /* for room: in the desk's list, and the alarm is its wait's */
    struct alarm alarm;
    struct stream *before, *after;
};

/* ---- what a session says --------------------------------------------------------------------- */

static void on_send(void *user, const struct piece *pieces, size_t n_pieces,
                    void (*release)(void *cookie), void *cookie) {
    struct stream *stream = user;
    assert(!stream->finished);
    grpc_send(stream->call, pieces, n_pieces, release, cookie);
}

static void on_finish(void *user, const struct error *err) {
    struct stream *stream = user;
    assert(!stream->finished);
    stream->finished = true;
    grpc_finish(stream->call, err);
}

/* ---- what became of it ----------------------------------------------------------------------- */

/* Names that clients make up are one. Without a name from the configuration it is sent on as what
 * it was. */
static struct pick_row *row_of(struct desk *desk, const struct pick_note *note) {
    struct str model = !note->model.ptr ? PICK_MODEL_NONE
                       : note->known    ? note->model
                                        : PICK_MODEL_OTHER;
    struct str target = note->pick && note->pick->target.ptr ? note->pick->target : model;
    return pick_ledger_row(&desk->ledger, note->pool, model, target);
}

static void count(struct stream *stream, const struct pick_note *note) {
    struct pick_row *row = row_of(stream->desk, note);
    if (row && note->why) {
        metric_cell_add(&row->n_refused[note->why->status], 1);
    } else if (row) {
        metric_cell_add(&row->n_picked, 1);
        stream->row = row;
        stream->phase = note->at_body ? PICK_TIME_BODY : PICK_TIME_HEADERS;
    }
}

static void on_note(void *user, const struct pick_note *note) {
    struct stream *stream = user;
    count(stream, note);
    if (note->why && log_enabled(LOG_INFO)) {
        pick_log_refusal(note, &stream->desk->log);
    } else if (!note->why && log_enabled(LOG_DEBUG)) {
        pick_log(note);
    }
}

/* When what is being looked at came, or when the one before it had been dealt with: the time from
 * there to a pick's end, which is when the clock is looked at, is what the pick took. */
static uint64_t now_of(const struct stream *stream) {
    uint64_t came_ns = grpc_now_ns(stream->call), before_ns = stream->desk->now_ns;
    return came_ns > before_ns ? came_ns : before_ns;
}

static void begin_turn(struct stream *stream) {
    uint64_t now_ns = now_of(stream);
    if (!stream->row) {
        stream->turn_ns = now_ns;
        stream->began_ns = stream->began_ns ? stream->began_ns : now_ns;
    }
    clock_hold_ns(now_ns);
}

static void end_turn(struct stream *stream) {
    struct metric_histogram *times = stream->desk->ledger.times;
    clock_let_go();
    if (stream->row && stream->turn_ns > 0) {
        uint64_t now_ns = stream->desk->now_ns = clock_now_ns();
        metric_histogram_add_ns(&times[stream->phase], now_ns - stream->turn_ns);
        if (stream->phase == PICK_TIME_BODY) {
            metric_histogram_add_ns(&times[PICK_TIME_WAIT], stream->turn_ns - stream->began_ns);
        }
        stream->turn_ns = 0;
    }
}

static void count_end(struct stream *stream) {
    if (stream->row) {
        metric_histogram_add_ns(&stream->row->times, now_of(stream) - stream->began_ns);
        metric_cell_add(&stream->row->n_ended, 1);
    }
}

/* ---- going on -------------------------------------------------------------------------------- */

static void stop_clock(struct stream *stream) {
    if (stream->ticking) {
        alarm_clear(worker_alarms(stream->call->worker), &stream->alarm);
        stream->ticking = false;
    }
}

static void go_on(struct stream *stream);

static void on_alarm(struct alarm *alarm) {
    struct stream *stream =
        (struct stream *)(void *)((char *)alarm - offsetof(struct stream, alarm));
    stream->ticking = false;
    pick_session_time_out(stream->session);
    go_on(stream);
}

/* ---- waiting for room ------------------------------------------------------------------------ */

/* Without memory for it they wait until something happens. */
static void tick_later(struct desk *desk) {
    if (!alarm_set(worker_alarms(desk->worker), &desk->tick, clock_now_ns() + TICK_NS)) {
        log_plain(LOG_WARNING,
                  "no memory for a timer: requests that wait are looked at less often");
    }
}

static void on_tick(struct alarm *alarm) {
    struct desk *desk = (struct desk *)(void *)((char *)alarm - offsetof(struct desk, tick));
    for (struct stream *stream = desk->waiting; stream; stream = stream->after) {
        pick_session_tick(stream->session, TICK_NS / 2);
    }
    if (desk->waiting) {
        tick_later(desk);
    }
}

static void begin_wait(struct stream *stream, uint64_t until_ns) {
    struct desk *desk = stream->desk;
    if (!desk->waiting) {
        tick_later(desk);
    }
    stream->before = NULL;
    stream->after = desk->waiting;
    if (desk->waiting) {
        desk->waiting->before = stream;
    }
    desk->waiting = stream;
    stream->waiting = true;
    stream->ticking = alarm_set(worker_alarms(desk->worker), &stream->alarm, until_ns);
}

static void end_wait(struct stream *stream) {
    struct desk *desk = stream->desk;
    if (!stream->waiting) {
        return;
    }
    *(stream->before ? &stream->before->after : &desk->waiting) = stream->after;
    if (stream->after) {
        stream->after->before = stream->before;
    }
    stream->waiting = false;
    stop_clock(stream);
    if (!desk->waiting) {
        alarm_clear(worker_alarms(desk->worker), &desk->tick);
    }
}

/* The time that is left counts from when the proxy began to wait; that of a wait for room is its
 * own. */
static void mind_clock(struct stream *stream) {
    bool owes = !stream->finished && pick_session_owes(stream->session);
    uint64_t until_ns = stream->finished ? 0 : pick_session_waits_until(stream->session);
    if (until_ns > 0 && !stream->waiting) {
        begin_wait(stream, until_ns);
    } else if (until_ns == 0) {
        end_wait(stream);
    }
    if (until_ns > 0) {
        return;
    }
    if (!owes) {
        stop_clock(stream);
    } else if (!stream->ticking) {
        uint64_t due_ns = clock_now_ns() + stream->desk->means.limits.answer_timeout_ns;
        stream->ticking = alarm_set(worker_alarms(stream->call->worker), &stream->alarm, due_ns);
    }
}

/* After each event that was not the last one. */
static void go_on(struct stream *stream) {
    mind_clock(stream);
    if (!stream->finished && !stream->asked && !stream->call->gone &&
        grpc_queued_bytes(stream->call) < QUEUED_BYTES &&
        !pick_session_is_stuffed(stream->session)) {
        stream->asked = true;
        grpc_read(stream->call);
    }
}

/* How long it waited is counted with the queue, and is no time of the pick. */
static void on_went_on(void *user) {
    struct stream *stream = user;
    stream->turn_ns = 0;
    go_on(stream);
}

/* ---- a call ---------------------------------------------------------------------------------- */

static struct desk *desk_of(const struct grpc_call *call) {
    struct pick_service *service = call->method->context;
    size_t i = 0;
    while (service->desks[i].worker != call->worker) {
        i++;
        assert(i < service->n_desks);
    }
    return &service->desks[i];
}

static void begin(struct grpc_call *call) {
    struct desk *desk = desk_of(call);
    struct stream *stream = arena_alloc(call->arena, sizeof *stream);
    if (stream) {
        *stream = (struct stream){.call = call, .desk = desk, .alarm = {.ring = on_alarm}};
        struct pick_out out = {.send = on_send,
                               .finish = on_finish,
                               .went_on = on_went_on,
                               .note = on_note,
                               .user = stream};
        stream->session = pick_session_new(call->arena, &desk->means, &out);
    }
    if (!stream || !stream->session) {
        struct error err;
        error_set(&err, ST_NO_MEMORY, "no memory for the call");
        grpc_finish(call, &err);
        return;
    }
    call->user = stream;
    go_on(stream);
}

static void free_message(void *cookie) {
    grpc_message_free(cookie);
}

static void take(struct stream *stream) {
    struct grpc_message *message = stream->call->message;
    stream->asked = false;
    if (stream->finished) { /* since it was asked for */
        grpc_message_free(message);
        return;
    }
    begin_turn(stream);
    pick_session_take(stream->session,
                      &(struct pick_message){message->data, free_message, message});
    end_turn(stream);
    go_on(stream);
}

/* Nobody waits any more. What the session has sent may still be on its way into the socket, so it
 * lives until the call's end. */
static void cancelled(struct stream *stream) {
    end_wait(stream);
    stop_clock(stream);
    if (!stream->finished) {
        pick_session_abandon(stream->session);
        stream->finished = true;
        grpc_finish(stream->call, &stream->call->cancelled);
    }
}

static void end(struct stream *stream) {
    end_wait(stream);
    stop_clock(stream);
    count_end(stream);
    pick_session_free(stream->session);
    stream->call->user = NULL;
}

static void step(struct grpc_call *call, enum grpc_event event) {
    struct stream *stream = call->user;
    if (event == GRPC_BEGIN) {
        begin(call);
        return;
    }
    if (!stream) { /* there was no memory for it */
        return;
    }
    switch (event) {
    case GRPC_BEGIN:
        break;
    case GRPC_MESSAGE:
        take(stream);
        break;
    case GRPC_HALF_CLOSE:
        if (!stream->finished) {
            pick_session_half_close(stream->session);
            mind_clock(stream);
        }
        break;
    case GRPC_WRITABLE:
        go_on(stream);
        break;
    case GRPC_CANCELLED:
        cancelled(stream);
        break;
    case GRPC_END:
        end(stream);
        break;
    }
}

/* Clause: "Constraints": the client is told by the proxy, which would otherwise take the end of the
 * stream for a failure of ours, and may let the request pass. */
static bool untaken(struct grpc_call *call, const struct error *why) {
    struct stream *stream = call->user;
    if (!stream || stream->finished) {
        return false;
    }
    pick_session_untaken(stream->session, why);
    end_wait(stream);
    stop_clock(stream);
    return true;
}

static void describe(const struct grpc_call *call, struct buf *out) {
    const struct stream *stream = call->user;
    if (stream) { /* else there was no memory for it */
        pick_session_describe(stream->session, out);
    }
}

/* ---- the service ----------------------------------------------------------------------------- */

static void on_look(struct worker_msg *msg) {
    struct desk *desk = (struct desk *)(void *)((char *)msg - offsetof(struct desk, msg));
    struct pool_waiter *waiter;
    atomic_store(&desk->posted, false);
    pool_set_look_all(desk->means.pools);
    while ((waiter = pool_bell_next(&desk->bell))) {
        pick_session_resume(waiter);
    }
}

static void post(void *user) {
    struct desk *desk = user;
    if (!atomic_exchange(&desk->posted, true)) {
        worker_post(desk->worker, &desk->msg);
    }
}

static enum status open_desk(struct desk *desk, const struct pick_service_options *options,
                             struct worker *worker, struct error *err) {
    desk->worker = worker;
    desk->msg.run = on_look;
    desk->tick.ring = on_tick;
    pool_bell_init(&desk->bell, post, desk);
    desk->means.bell = &desk->bell;
    desk->means.last_path = &desk->last_path;
    desk->means.limits = options->limits;
    return pool_set_reader_new(options->pools, &desk->means.pools, err);
}

enum status pick_service_new(const struct pick_service_options *options, struct pick_service **out,
                             struct error *err) {
    struct pick_service *service = calloc(1, sizeof *service);
    struct desk *desks = calloc(options->n_workers + 1, sizeof *desks);
    enum status st = ST_OK;
    if (!service || !desks) {
        free(service);
        free(desks);
        return error_set(err, ST_NO_MEMORY, "no memory for the ext-proc service");
    }
    service->desks = desks;
    for (size_t i = 0; i < options->n_workers && st == ST_OK; i++) {
        st = open_desk(&desks[i], options, options->workers[i], err);
        service->n_desks++;
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
        for (size_t i = 0; i < service->n_desks; i++) {
            pool_set_reader_free(service->desks[i].means.pools);
            pick_ledger_fini(&service->desks[i].ledger);
            pool_bell_fini(&service->desks[i].bell);
        }
        free(service->desks);
        free(service);
    }
}

struct grpc_method pick_service_method(struct pick_service *service) {
    return (struct grpc_method){.path = "/" PICK_SERVICE_NAME "/Process",
                                .step = step,
                                .streams = true,
                                .context = service,
                                .untaken = untaken,
                                .describe = describe};
}

size_t pick_service_ledgers(const struct pick_service *service,
                            const struct pick_ledger *out[PICK_MOST_LEDGERS]) {
    size_t n = 0;
    while (n < service->n_desks && n < PICK_MOST_LEDGERS) {
        out[n] = &service->desks[n].ledger;
        n++;
    }
    return n;
}

void pick_service_look(struct pick_service *service) {
    for (size_t i = 0; i < service->n_desks; i++) {
        post(&service->desks[i]);
    }
}
