/* Batches of spans on their way to a collector: the oldest is being sent, the newest being
 * filled. */
#include "telemetry/trace/export.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/dice.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/base/random.h"
#include "core/event/clock.h"
#include "net/client/http_fetch.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

enum {
    TRIES = 5,
    TRY_S = 10, /* how long one may take */
    MOST_WAIT_S = 30,
    END_S = 3,
    FIRST_BYTES = 4096,
    ANSWER_BYTES = 4096, /* in which a collector says what it did not take */
};

/* Lives in its own arena. */
struct batch {
    struct arena *arena;
    struct buf text;
    size_t n_traces, n_spans;
    bool closed; /* takes no more; its text is whole */
    unsigned tries;
    struct batch *next;
};

struct trace_export {
    struct worker *worker;
    struct http_fetcher *fetcher;
    struct trace_export_options options;
    struct dice dice;
    struct batch *oldest, *newest;
    size_t n_spans;           /* in all of them */
    struct http_fetch *fetch; /* of the oldest; NULL: it is not being sent */
    char answer[ANSWER_BYTES];
    size_t n_answer;    /* bytes of it; over ANSWER_BYTES: it was longer, and is not there */
    struct alarm alarm; /* the next thing to do */
    uint64_t due_ns;    /* when the newest is sent at the latest */
    uint64_t again_ns;  /* the oldest is not sent before */
    bool failing;       /* the last batch got lost: it has been logged */
    bool refusing;      /* some spans of the last were refused: it has been logged */
    bool ending;
    bool stopping; /* the fetcher has been told */
    uint64_t end_ns;
    void (*ended)(void *cookie);
    void *cookie;
    struct worker_msg msg;
};

static void go_on(struct trace_export *self);

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
    otlp_trace_begin(&batch->text, self->options.resource, self->options.n_resource,
                     STR(SLUICE_VERSION));
    return batch;
}

/* The one that takes the next trace. Returns: NULL when there is no memory for it. */
static struct batch *open_batch(struct trace_export *self) {
    struct batch *newest = self->newest;
    if (newest && !newest->closed && newest->n_spans + OTLP_SPANS <= self->options.max_batch) {
        return newest;
    }
    struct batch *batch = batch_new(self);
    if (batch) {
        *(newest ? &newest->next : &self->oldest) = batch;
        self->newest = batch;
        self->due_ns = clock_now_ns() + self->options.delay_ms * NS_PER_MS;
    }
    return batch;
}

static void drop_oldest(struct trace_export *self) {
    struct batch *batch = self->oldest;
    self->oldest = batch->next;
    self->newest = self->oldest ? self->newest : NULL;
    self->n_spans -= batch->n_spans;
    arena_free(batch->arena);
}

/* It is there, or given up. */
static void end_oldest(struct trace_export *self, bool written, const char *why) {
    struct batch *batch = self->oldest;
    metric_add(written ? METRIC_TRACES_WRITTEN : METRIC_TRACES_FAILED, (int64_t)batch->n_traces);
    if (!written && !self->failing) {
        log_event(LOG_ERROR, "cannot send traces", LOG_TEXT_OF("reason", why),
                  LOG_U64("traces", batch->n_traces));
    }
    self->failing = !written;
    self->again_ns = 0;
    drop_oldest(self);
}

/* Clause: OTLP, partial success: what was refused is told, and not sent again. */
static void end_taken(struct trace_export *self) {
    struct arena *arena = arena_new(NULL, 0);
    struct str said = str_make(self->answer, self->n_answer), why = STR("");
    uint64_t n_refused = 0;
    if (arena && self->n_answer <= ANSWER_BYTES) {
        n_refused = otlp_trace_refused(arena, said, &why);
    }
    if (n_refused > 0 && !self->refusing) {
        log_event(LOG_WARNING, "the collector refused spans", LOG_U64("spans", n_refused),
                  LOG_U64("of", self->oldest->n_spans), LOG_STR("reason", why));
    }
    self->refusing = n_refused > 0;
    bool any = n_refused < self->oldest->n_spans;
    end_oldest(self, any, "the collector refused all spans");
    arena_free(arena);
}

/* ---- adding ---------------------------------------------------------------------------------- */

static void roll(struct dice *dice, unsigned char *out, size_t n) {
    for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
        uint64_t bits = dice_roll(dice) | 1; /* no id is 0 */
        memcpy(out + i, &bits, sizeof bits);
    }
}

/* The calendar's time at 0 of the monotonic clock. */
static uint64_t unix_of_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec - clock_now_ns();
}

void trace_export_add(struct trace_export *self, const struct trace_record *record,
                      const struct traceparent *parent, struct str state) {
    struct otlp_ids ids = {.parent = parent ? parent->span : NULL, .state = state};
    struct batch *batch =
        self->n_spans + OTLP_SPANS <= self->options.max_queue ? open_batch(self) : NULL;
    if (!batch) {
        metric_add(METRIC_TRACES_DROPPED, 1);
        return;
    }
    roll(&self->dice, ids.trace, sizeof ids.trace);
    roll(&self->dice, (unsigned char *)ids.spans, sizeof ids.spans);
    if (parent) {
        memcpy(ids.trace, parent->trace, sizeof ids.trace);
    }
    size_t before = batch->text.len;
    size_t n = otlp_trace_add(&batch->text, record, &ids, unix_of_clock(), batch->n_spans == 0);
    if (batch->text.failed) {
        batch->text.failed = false;
        batch->text.len = before;
        metric_add(METRIC_TRACES_DROPPED, 1);
        return;
    }
    batch->n_traces++;
    batch->n_spans += n;
    self->n_spans += n;
    go_on(self);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Clause: OTLP, retryable response codes. */
static bool may_be_sent_again(const struct http_fetched *fetched) {
    if (fetched->error.status != ST_OK) {
        return fetched->error.status == ST_IO || fetched->error.status == ST_DEADLINE_EXCEEDED;
    }
    return fetched->status == 429 || fetched->status == 502 || fetched->status == 503 ||
           fetched->status == 504;
}

static uint64_t wait_s(const struct trace_export *self, const struct http_fetched *fetched) {
    uint64_t wait = UINT64_C(1) << (self->oldest->tries - 1);
    wait = fetched->retry_after_s > wait ? fetched->retry_after_s : wait;
    return wait < MOST_WAIT_S ? wait : MOST_WAIT_S;
}

static void on_fetched(void *user, const struct http_fetched *fetched) {
    struct trace_export *self = user;
    bool answered = fetched->error.status == ST_OK;
    char why[64];
    snprintf(why, sizeof why, "the collector answered with %d", fetched->status);
    self->fetch = NULL;
    if (answered && fetched->status >= 200 && fetched->status < 300) {
        end_taken(self);
    } else if (may_be_sent_again(fetched) && self->oldest->tries < TRIES && !self->ending) {
        self->again_ns = clock_now_ns() + wait_s(self, fetched) * NS_PER_S;
    } else {
        end_oldest(self, false, answered ? why : fetched->error.text);
    }
    go_on(self);
}

static void on_piece(void *user, struct str bytes) {
    struct trace_export *self = user;
    if (bytes.len <= ANSWER_BYTES && self->n_answer <= ANSWER_BYTES - bytes.len) {
        memcpy(self->answer + self->n_answer, bytes.ptr, bytes.len);
        self->n_answer += bytes.len;
    } else {
        self->n_answer = ANSWER_BYTES + 1;
    }
}

static void send_oldest(struct trace_export *self) {
    struct batch *batch = self->oldest;
    struct error err;
    if (!batch->closed) {
        batch->closed = true;
        otlp_trace_end(&batch->text);
    }
    struct http_fetch_ask ask = {.url = self->options.url,
                                 .method = "POST",
                                 .timeout_ns = (self->ending ? END_S : TRY_S) * NS_PER_S,
                                 .body = buf_str(&batch->text),
                                 .content_type = "application/json",
                                 .max_body_bytes = SIZE_MAX,
                                 .piece = on_piece,
                                 .done = on_fetched,
                                 .user = self};
    batch->tries++;
    self->n_answer = 0;
    if (batch->text.failed) {
        end_oldest(self, false, "out of memory");
    } else if (http_fetch_begin(self->fetcher, &ask, &self->fetch, &err) != ST_OK) {
        self->fetch = NULL;
        end_oldest(self, false, err.text);
    }
}

/* When the oldest is to be sent. Returns: 0 for at once. */
static uint64_t time_of_oldest(const struct trace_export *self) {
    const struct batch *batch = self->oldest;
    bool full = batch->closed || batch->next ||
                batch->n_spans + OTLP_SPANS > self->options.max_batch || self->ending;
    uint64_t at = full ? 0 : self->due_ns;
    return at > self->again_ns || self->ending ? at : self->again_ns;
}

static void on_alarm(struct alarm *alarm) {
    go_on((struct trace_export *)(void *)((char *)alarm - offsetof(struct trace_export, alarm)));
}

static void finish_if_over(struct trace_export *self) {
    if (self->ending && !self->stopping && !self->oldest && !self->fetch) {
        self->stopping = true;
        worker_post(self->worker, &self->msg); /* not from within a callback of the fetcher */
    }
}

static void give_up(struct trace_export *self) {
    if (self->fetch) {
        http_fetch_cancel(self->fetch);
        self->fetch = NULL;
    }
    while (self->oldest) {
        end_oldest(self, false, "the server ends");
    }
}

static void go_on(struct trace_export *self) {
    uint64_t now = clock_now_ns();
    if (self->ending && now >= self->end_ns) {
        give_up(self);
    }
    while (self->oldest && !self->fetch && time_of_oldest(self) <= now) {
        send_oldest(self);
    }
    uint64_t next = self->oldest && !self->fetch ? time_of_oldest(self) : 0;
    next = self->ending ? self->end_ns : next;
    if (next > 0 && !self->stopping) {
        if (!alarm_set(worker_alarms(self->worker), &self->alarm, next)) {
            give_up(self); /* nobody would come back to it */
        }
    }
    finish_if_over(self);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void on_stopped(void *cookie) {
    struct trace_export *self = cookie;
    self->ended(self->cookie);
}

static void on_finish(struct worker_msg *msg) {
    struct trace_export *self =
        (struct trace_export *)(void *)((char *)msg - offsetof(struct trace_export, msg));
    alarm_clear(worker_alarms(self->worker), &self->alarm);
    http_fetcher_stop(self->fetcher, on_stopped, self);
}

enum status trace_export_new(struct worker *worker, const struct trace_export_options *options,
                             struct trace_export **out, struct error *err) {
    struct trace_export *self = calloc(1, sizeof(*self));
    if (!self) {
        return error_set(err, ST_NO_MEMORY, "no memory for traces");
    }
    self->worker = worker;
    self->options = *options;
    self->alarm.ring = on_alarm;
    self->msg.run = on_finish;
    random_fill(&self->dice.state, sizeof self->dice.state);
    enum status st = http_fetcher_new(worker, NULL, 1, &self->fetcher, err);
    if (st != ST_OK) {
        free(self);
        return st;
    }
    *out = self;
    return ST_OK;
}

void trace_export_free(struct trace_export *self) {
    if (self) {
        http_fetcher_free(self->fetcher);
        free(self);
    }
}

void trace_export_end(struct trace_export *self, void (*ended)(void *cookie), void *cookie) {
    if (self->ending) {
        return;
    }
    self->ended = ended;
    self->cookie = cookie;
    self->ending = true;
    self->end_ns = clock_now_ns() + END_S * NS_PER_S;
    go_on(self);
}
