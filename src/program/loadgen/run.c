/* One step: threads are started, sampled ten times a second, and joined. Signals are read from a
 * signalfd, so that there is no signal handler. */
#include "program/loadgen/run.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/event/clock.h"
#include "core/os/fd_limit.h"
#include "program/loadgen/thread.h"

enum {
    TICK_MS = 100,
    SPARE_DESCRIPTORS = 64,
    CONNECTIONS_A_THREAD = 256,
};
static const uint64_t interrupt_grace_ns = 1000000000; /* for answers in flight after an
                                                          interrupt */

/* A thread of the step. */
struct runner {
    struct step_run *run;
    struct bench_thread *load;
    pthread_t thread;
    bool started;
};

/* The running step. */
struct step_run {
    struct bench_step_state state;
    struct bench_step_result *result;
    struct runner *runners;
    unsigned n_runners;
    int done_fd; /* an eventfd, written when the last thread has ended */
    _Atomic unsigned n_running;
    bool interrupted;
    struct bench_live_stats *live;
    struct bench_sample base; /* the counters when measuring began */
    uint64_t next_sample_ns, sample_every_ns;
};

unsigned bench_threads(uint64_t asked, unsigned n_connections, unsigned n_cpus) {
    unsigned n = (n_connections + CONNECTIONS_A_THREAD - 1) / CONNECTIONS_A_THREAD;
    unsigned most = n_cpus / 2 > 0 ? n_cpus / 2 : 1;
    n = n < most ? n : most;
    if (asked > 0) {
        n = asked < n_connections ? (unsigned)asked : n_connections;
    }
    return n;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *run_thread(void *user) {
    struct runner *runner = user;
    struct step_run *run = runner->run;
    bench_thread_run(runner->load);
    if (atomic_fetch_sub(&run->n_running, 1) == 1) {
        (void)eventfd_write(run->done_fd, 1);
    }
    return NULL;
}

/* The options of thread `i`: its share of connections and rate. */
static struct bench_thread_options share_of(const struct step_run *run,
                                            const struct bench_options *options, unsigned i,
                                            uint64_t start_ns) {
    const struct bench_step *step = &run->result->step;
    unsigned n = run->n_runners;
    struct bench_thread_options share = {.n_connections =
                                             step->concurrency / n + (i < step->concurrency % n),
                                         .rate = step->rate / n,
                                         .arrival = (enum bench_arrival)options->arrival,
                                         .seed = options->seed + i,
                                         .start_ns = start_ns};
    if (run->state.call->protocol->channel && !options->reconnect) {
        uint64_t shared = options->n_connections / n + (i < options->n_connections % n);
        share.n_shared = shared > 0 ? (unsigned)shared : 1;
    }
    if (step->rate > 0) { /* interleaves the threads' constant intervals */
        share.start_ns += (uint64_t)(1e9 / step->rate * i);
    }
    return share;
}

static enum status start_threads(struct step_run *run, const struct bench_options *options,
                                 uint64_t start_ns, struct error *err) {
    enum status status = ST_OK;
    for (unsigned i = 0; i < run->n_runners && status == ST_OK; i++) {
        struct bench_thread_options share = share_of(run, options, i, start_ns);
        run->runners[i].run = run;
        status = bench_thread_new(&run->state, &share, &run->runners[i].load, err);
    }
    atomic_store(&run->n_running, run->n_runners);
    for (unsigned i = 0; i < run->n_runners && status == ST_OK; i++) {
        struct runner *runner = &run->runners[i];
        if (pthread_create(&runner->thread, NULL, run_thread, runner) != 0) {
            status = error_set(err, ST_NO_MEMORY, "only %u of %u threads could be started", i,
                               run->n_runners);
        } else {
            runner->started = true;
        }
    }
    return status;
}

/* Joins the started threads and merges their counters. */
static void join_threads(struct step_run *run) {
    for (unsigned i = 0; i < run->n_runners; i++) {
        if (run->runners[i].started) {
            pthread_join(run->runners[i].thread, NULL);
            bench_stats_merge(&run->result->stats, bench_thread_stats(run->runners[i].load));
        }
        bench_thread_free(run->runners[i].load);
    }
}

/* ---- sampling -------------------------------------------------------------------------------- */

/* Starts no more requests; answers may come until `give_up_ns`. */
static void end_early(struct step_run *run, uint64_t now, uint64_t give_up_ns) {
    if (now < atomic_load(&run->state.until_ns)) {
        atomic_store(&run->state.until_ns, now);
    }
    atomic_store(&run->state.give_up_ns, give_up_ns);
}

/* Takes a sample. When the array is full, every second sample is dropped and the sampling
 * interval doubled. */
static void take_sample(struct step_run *run, const struct bench_live_stats *live) {
    struct bench_step_result *result = run->result;
    if (live->now_ns < live->from_ns || live->now_ns >= live->until_ns) {
        return;
    }
    if (run->base.at_ns == 0) {
        run->base = (struct bench_sample){live->now_ns, live->n_answered, live->n_failed};
        run->next_sample_ns = live->now_ns + run->sample_every_ns;
        return;
    }
    if (live->now_ns < run->next_sample_ns) {
        return;
    }
    if (result->n_samples == BENCH_MAX_SAMPLES) {
        for (size_t i = 0; i < BENCH_MAX_SAMPLES / 2; i++) {
            result->samples[i] = result->samples[2 * i + 1];
        }
        result->n_samples = BENCH_MAX_SAMPLES / 2;
        run->sample_every_ns *= 2;
    }
    result->samples[result->n_samples++] = (struct bench_sample){
        live->now_ns - run->base.at_ns, live->n_answered - run->base.n_answered,
        live->n_failed - run->base.n_refused};
    run->next_sample_ns += run->sample_every_ns;
}

static void read_live_stats(struct step_run *run, bool histograms) {
    struct bench_live_stats *live = run->live;
    live->now_ns = clock_now_ns();
    live->until_ns = atomic_load(&run->state.until_ns);
    live->n_left = atomic_load(&run->state.n_left);
    live->n_answered = live->n_failed = 0;
    if (histograms) {
        memset(&live->latency, 0, sizeof(live->latency));
    }
    for (unsigned i = 0; i < run->n_runners; i++) {
        const struct bench_stats *stats = bench_thread_stats(run->runners[i].load);
        live->n_answered += bench_counter_get(&stats->n_answered);
        live->n_failed += bench_counter_get(&stats->n_refused);
        if (histograms) {
            bench_histogram_merge_counts(&live->latency, &stats->latency);
        }
    }
}

static void watch_step(struct step_run *run, int signal_fd, struct bench_progress *progress) {
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
                           {.fd = run->done_fd, .events = POLLIN}};
    enum { TICKS_A_LINE = 3 };
    for (unsigned tick = 0; atomic_load(&run->n_running) > 0; tick++) {
        bool show = progress && tick % TICKS_A_LINE == 0;
        (void)poll(fds, 2, TICK_MS);
        struct signalfd_siginfo info;
        if (fds[0].revents & POLLIN &&
            read(signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            uint64_t now = clock_now_ns();
            end_early(run, now, run->interrupted ? now : now + interrupt_grace_ns);
            run->interrupted = true;
        }
        read_live_stats(run, show);
        take_sample(run, run->live);
        if (show) {
            bench_progress_show(progress, run->live);
        }
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The measured time: until the step's end, or until the last of a limited number of requests. */
static uint64_t window_of(const struct step_run *run) {
    uint64_t end = atomic_load(&run->state.until_ns);
    if (run->state.counted && run->result->stats.last_ns < end) {
        end = run->result->stats.last_ns;
    }
    return end > run->state.from_ns ? end - run->state.from_ns : 0;
}

static enum status run_step(struct step_run *run, const struct bench_options *options,
                            int signal_fd, struct bench_progress *progress, struct error *err) {
    uint64_t start = clock_now_ns();
    run->state.from_ns = run->live->from_ns = start + options->warm_up_ns;
    run->state.counted = options->n_requests > 0;
    run->state.reconnect = options->reconnect;
    atomic_store(&run->state.n_left, (int64_t)options->n_requests);
    atomic_store(&run->state.until_ns,
                 run->state.counted ? UINT64_MAX : run->state.from_ns + options->duration_ns);
    atomic_store(&run->state.give_up_ns, UINT64_MAX);
    run->sample_every_ns = (uint64_t)TICK_MS * 1000000;
    enum status status = start_threads(run, options, start, err);
    if (status == ST_OK) {
        watch_step(run, signal_fd, progress);
    } else {
        end_early(run, clock_now_ns(), 0);
    }
    join_threads(run);
    run->result->n_threads = run->n_runners;
    run->result->window_ns = window_of(run);
    return status;
}

/* Allocates step `index` and runs it. */
static enum status add_step(struct arena *arena, struct bench_result *result, size_t index,
                            int signal_fd, struct bench_progress *progress, struct error *err) {
    const struct bench_options *options = &result->settings->options;
    const struct bench_plan *plan = &result->settings->plan;
    const struct bench_step *step = &plan->steps[index];
    unsigned n = bench_threads(options->n_threads, step->concurrency, result->n_cpus);
    struct step_run run = {.state = {.call = result->call}, .n_runners = n};
    run.result = arena_calloc(arena, 1, sizeof(*run.result));
    run.runners = arena_calloc(arena, n, sizeof(*run.runners));
    run.live = arena_calloc(arena, 1, sizeof(*run.live));
    run.result->step = *step;
    run.live->step = step;
    run.live->index = index;
    run.live->n_steps = plan->n_steps;
    run.done_fd = eventfd(0, EFD_CLOEXEC);
    if (run.done_fd < 0) {
        return error_set(err, ST_IO, "cannot create an eventfd");
    }
    enum status status = run_step(&run, options, signal_fd, progress, err);
    close(run.done_fd);
    result->interrupted = result->interrupted || run.interrupted;
    result->steps[result->n_steps++] = run.result;
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

static enum status check_descriptors(const struct bench_plan *plan, struct error *err) {
    uint64_t limit = fd_limit_raise();
    for (size_t i = 0; i < plan->n_steps; i++) {
        uint64_t needed = (uint64_t)plan->steps[i].concurrency + SPARE_DESCRIPTORS;
        if (needed > limit) {
            return error_set(err, ST_BAD_CONFIG,
                             "--concurrency %u needs %llu open files, and this process may have "
                             "%llu; raise the limit (ulimit -n)",
                             plan->steps[i].concurrency, (unsigned long long)needed,
                             (unsigned long long)limit);
        }
    }
    return ST_OK;
}

/* Should the run end after the last step? */
static bool is_enough(const struct bench_result *result) {
    const struct bench_step_result *last = result->steps[result->n_steps - 1];
    uint64_t limit = result->settings->options.max_p99_ns;
    return result->interrupted || bench_histogram_total(&last->stats.latency) == 0 ||
           (limit > 0 && bench_p99_ns(last) > limit);
}

enum status bench_run(struct arena *arena, struct bench_result *result,
                      struct bench_progress *progress, struct error *err) {
    const struct bench_plan *plan = &result->settings->plan;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    enum status status = check_descriptors(plan, err);
    result->steps = arena_calloc(arena, plan->n_steps, sizeof(*result->steps));
    result->n_steps = 0;
    if (status != ST_OK) {
        return status;
    }
    if (pthread_sigmask(SIG_BLOCK, &signals, NULL) != 0) {
        return error_set(err, ST_IO, "cannot block signals");
    }
    int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0) {
        return error_set(err, ST_IO, "cannot create a signalfd");
    }
    for (size_t i = 0; i < plan->n_steps && status == ST_OK; i++) {
        status = add_step(arena, result, i, signal_fd, progress, err);
        if (status == ST_OK && is_enough(result)) {
            break;
        }
    }
    close(signal_fd);
    bench_progress_clear(progress);
    return status;
}
