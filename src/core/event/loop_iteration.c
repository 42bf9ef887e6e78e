/* Two lists of deferred tasks, run at two places of libuv's loop: after the events that the kernel
 * reported and, for tasks that timers and closed handles deferred, before the next poll. The queue
 * of turns runs before them. */
#include "core/event/loop_iteration.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"

static void add_task(struct loop_iteration *iteration, struct deferred_task *task) {
    task->queued = true;
    STAILQ_INSERT_TAIL(task->runs_last ? &iteration->last_tasks : &iteration->tasks, task, link);
}

/* Runs the tasks of one list, but not those that are added meanwhile. */
static void run_tasks(struct loop_iteration *iteration, struct deferred_tasks *list) {
    struct deferred_tasks queued = STAILQ_HEAD_INITIALIZER(queued);
    STAILQ_CONCAT(&queued, list);
    while (!STAILQ_EMPTY(&queued)) {
        struct deferred_task *task = STAILQ_FIRST(&queued);
        STAILQ_REMOVE_HEAD(&queued, link);
        task->queued = false;
        iteration->running = task;
        if (task->run(task)) {
            add_task(iteration, task);
        }
        iteration->running = NULL;
    }
}

static void run_all_tasks(struct loop_iteration *iteration) {
    iteration->full = false;
    run_tasks(iteration, &iteration->tasks);
    run_tasks(iteration, &iteration->last_tasks);
}

/* ---- turns ----------------------------------------------------------------------------------- */

bool loop_share_check(struct loop_share *share, uint64_t limit_ns) {
    if (!share->is_spent) {
        uint64_t now_ns = clock_now_ns();
        share->began_ns = share->began_ns > 0 ? share->began_ns : now_ns;
        share->now_ns = now_ns;
        share->is_spent = clock_between_ns(share->began_ns, now_ns) >= limit_ns;
    }
    return share->is_spent;
}

static uint64_t turn_limit_ns(size_t n_turns) {
    uint64_t limit_ns = n_turns > 0 ? LOOP_ROUND_NS / n_turns : LOOP_EVENTS_NS;
    return limit_ns > LOOP_TURN_MIN_NS ? limit_ns : LOOP_TURN_MIN_NS;
}

bool loop_iteration_turn_is_over(struct loop_iteration *iteration, uint64_t most_ns) {
    if (loop_share_check(&iteration->events, LOOP_EVENTS_NS)) {
        return true;
    }
    uint64_t now_ns = iteration->events.now_ns;
    if (iteration->turn_began_ns == 0) {
        iteration->turn_began_ns = now_ns;
    }
    uint64_t limit_ns = turn_limit_ns(loop_iteration_n_turns(iteration));
    return clock_between_ns(iteration->turn_began_ns, now_ns) >=
           (limit_ns < most_ns ? limit_ns : most_ns);
}

/* One writer needs no read-modify-write. */
static void count_turns(struct loop_iteration *iteration, size_t by) {
    atomic_store_explicit(&iteration->n_turns, loop_iteration_n_turns(iteration) + by,
                          memory_order_relaxed);
}

void loop_iteration_end_wait(struct loop_iteration *iteration, struct loop_turn *turn) {
    if (turn->queued) {
        TAILQ_REMOVE(&iteration->turns, turn, link);
        turn->queued = false;
        count_turns(iteration, SIZE_MAX);
    }
}

/* Before the poll, whose events get what is left of the time: they do not overtake what waits. One
 * that waits again meanwhile has had its turn: the loop polls first. */
static void run_turns(struct loop_iteration *iteration) {
    for (size_t n = loop_iteration_n_turns(iteration); n > 0; n--) {
        struct loop_turn *turn = TAILQ_FIRST(&iteration->turns);
        if (!turn || loop_share_check(&iteration->events, LOOP_EVENTS_NS)) {
            return;
        }
        loop_iteration_end_wait(iteration, turn);
        iteration->turn_began_ns = iteration->events.now_ns;
        turn->run(turn);
    }
}

static bool has_more(const struct loop_iteration *iteration) {
    return loop_iteration_n_turns(iteration) > 0 || !STAILQ_EMPTY(&iteration->tasks) ||
           !STAILQ_EMPTY(&iteration->last_tasks);
}

bool loop_iteration_run_deferred(struct loop_iteration *iteration) {
    run_turns(iteration);
    run_all_tasks(iteration);
    return has_more(iteration);
}

bool loop_iteration_run_if_full(struct loop_iteration *iteration) {
    bool full = iteration->full;
    if (full) {
        run_all_tasks(iteration);
        iteration->spent_ns = 0;
    }
    return full;
}

void loop_work_read(const struct loop_work *work, char name[LOOP_WORK_BYTES]) {
    uint64_t words[LOOP_WORK_WORDS];
    for (int i = 0; i < LOOP_WORK_WORDS; i++) {
        words[i] = atomic_load_explicit(&work->words[i], memory_order_relaxed);
    }
    memcpy(name, words, sizeof(words));
    name[LOOP_WORK_BYTES - 1] = '\0';
}

/* ---- how long an iteration takes ------------------------------------------------------------- */

/* The longest of all loops; the metric has the same value. */
static _Atomic uint64_t longest_hold_ms;

static void raise_longest_hold(uint64_t ms) {
    uint64_t before = atomic_load_explicit(&longest_hold_ms, memory_order_relaxed);
    while (ms > before) {
        if (atomic_compare_exchange_weak_explicit(&longest_hold_ms, &before, ms,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            metric_add(METRIC_EVENT_LOOP_LONGEST_HOLD_MS, (int64_t)(ms - before));
            return;
        }
    }
}

__attribute__((cold, noinline)) static void report_hold(const struct loop_iteration *iteration,
                                                        uint64_t ms) {
    char thread[16] = "";
    pthread_getname_np(pthread_self(), thread, sizeof(thread));
    metric_add(METRIC_EVENT_LOOP_HOLDS_TOTAL, 1);
    raise_longest_hold(ms);
    log_event(LOG_WARNING, "event loop held", LOG_CSTR("thread", thread), LOG_U64("ms", ms),
              LOG_CSTR("by", iteration->longest_work ? iteration->longest_work : "many events"));
}

/* Before the poll. libuv has read the clock after the poll returned, and again after the events: no
 * other reading is needed. The time of timers is not in it. */
static void on_prepare(uv_prepare_t *prepare) {
    struct loop_iteration *iteration = prepare->data;
    uint64_t ms = uv_now(prepare->loop) - iteration->began_ms;
    if (ms > LOOP_HELD_MS) {
        report_hold(iteration, ms);
    }
    iteration->watched = false;
    iteration->longest_work_ns = 0;
    iteration->longest_work = NULL;
    uv_prepare_stop(prepare);
}

void loop_iteration_watch(struct loop_iteration *iteration) {
    if (!iteration->watched) {
        iteration->watched = true;
        iteration->began_ms = uv_now(iteration->prepare.loop);
        uv_prepare_start(&iteration->prepare, on_prepare);
    }
}

/* Before each poll. The poll itself uses next to none. */
static void on_cpu_prepare(uv_prepare_t *prepare) {
    struct loop_iteration *iteration = prepare->data;
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* cannot fail */
    uint64_t now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    uint64_t used_ns = iteration->cpu_ns > 0 ? now_ns - iteration->cpu_ns : 0;
    iteration->cpu_ns = now_ns;
    if (used_ns > iteration->cpu_limit_ns) {
        iteration->n_over_limit++;
        log_event(LOG_ERROR, "an event-loop iteration used too much CPU time",
                  LOG_U64("ms", used_ns / 1000000),
                  LOG_U64("limit", iteration->cpu_limit_ns / 1000000));
    }
}

void loop_iteration_limit_cpu(struct loop_iteration *iteration, uint64_t limit_ns) {
    iteration->cpu_limit_ns = limit_ns;
    uv_prepare_start(&iteration->cpu_prepare, on_cpu_prepare);
}

/* ---- in the loop ----------------------------------------------------------------------------- */

static void go_idle(struct loop_iteration *iteration) {
    iteration->active = false;
    iteration->spent_ns = 0;
    uv_idle_stop(&iteration->idle);
}

/* After the events of the poll. What is left or deferred after it, by timers and closed handles,
 * runs in on_idle. */
static void on_check(uv_check_t *check) {
    struct loop_iteration *iteration = check->data;
    iteration->n_polls++;
    if (iteration->active) {
        run_all_tasks(iteration);
    }
    if (iteration->active && !has_more(iteration)) {
        go_idle(iteration);
    }
    iteration->events = iteration->messages = iteration->timers = (struct loop_share){0};
}

/* Before the next poll, which does not wait as long as the handle is active. */
static void on_idle(uv_idle_t *idle) {
    struct loop_iteration *iteration = idle->data;
    if (!loop_iteration_run_deferred(iteration)) {
        go_idle(iteration);
    }
    iteration->spent_ns = 0;
}

static void stay_awake(struct loop_iteration *iteration) {
    if (!iteration->active) {
        iteration->active = true;
        uv_idle_start(&iteration->idle, on_idle); /* cannot fail either */
    }
}

void loop_iteration_wait(struct loop_iteration *iteration, struct loop_turn *turn) {
    if (!turn->queued) {
        turn->queued = true;
        TAILQ_INSERT_TAIL(&iteration->turns, turn, link);
        count_turns(iteration, 1);
        stay_awake(iteration);
    }
}

void loop_iteration_defer(struct loop_iteration *iteration, struct deferred_task *task) {
    if (task->queued || task == iteration->running) {
        return;
    }
    add_task(iteration, task);
    stay_awake(iteration);
}

void loop_iteration_init(struct loop_iteration *iteration, uv_loop_t *loop) {
    *iteration = (struct loop_iteration){0};
    STAILQ_INIT(&iteration->tasks);
    STAILQ_INIT(&iteration->last_tasks);
    TAILQ_INIT(&iteration->turns);
    uv_check_init(loop, &iteration->check); /* these cannot fail */
    uv_idle_init(loop, &iteration->idle);
    uv_prepare_init(loop, &iteration->prepare);
    uv_prepare_init(loop, &iteration->cpu_prepare);
    iteration->check.data = iteration;
    iteration->prepare.data = iteration;
    iteration->cpu_prepare.data = iteration;
    iteration->idle.data = iteration;
    uv_check_start(&iteration->check, on_check);
}

void loop_iteration_close(struct loop_iteration *iteration) {
    uv_close((uv_handle_t *)&iteration->check, NULL);
    uv_close((uv_handle_t *)&iteration->prepare, NULL);
    uv_close((uv_handle_t *)&iteration->cpu_prepare, NULL);
    uv_close((uv_handle_t *)&iteration->idle, NULL);
}
