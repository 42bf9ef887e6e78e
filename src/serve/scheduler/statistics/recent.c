/* Compares the counters of a version with those of an earlier reading. */
#include "serve/scheduler/statistics/recent.h"

#include "core/event/clock.h"
#include "serve/scheduler/statistics/statistics.h"
#include "serve/scheduler/version.h"

void statistics_recent_init(struct statistics_recent *recent) {
    lock_init(&recent->lock);
    statistics_recent_begin(recent);
}

void statistics_recent_begin(struct statistics_recent *recent) {
    recent->before = recent->last = (struct recent_sample){.at_ns = clock_now_ns()};
}

void statistics_recent_fini(struct statistics_recent *recent) {
    lock_fini(&recent->lock);
}

/* ---- reading --------------------------------------------------------------------------------- */

static struct recent_sample read_sample(struct model_version *version,
                                        const struct model_statistics *now, uint64_t now_ns) {
    struct recent_sample sample = {.at_ns = now_ns,
                                   .busy_ns = now->busy_ns,
                                   .n_waited = now->queue.count,
                                   .waited_ns = now->queue.ns};
    for (size_t i = 0; i < version->n_instances; i++) {
        struct statistics_instance instance;
        model_version_instance(version, i, &instance);
        sample.busy_ns += instance.since_ns > 0 ? clock_between_ns(instance.since_ns, now_ns) : 0;
    }
    return sample;
}

/* Keeps the sample, if it is time. Returns: what it is compared with. */
static struct recent_sample rotate(struct statistics_recent *recent,
                                   const struct recent_sample *sample) {
    lock_acquire(&recent->lock);
    struct recent_sample base = recent->before;
    if (clock_between_ns(recent->last.at_ns, sample->at_ns) >= RECENT_NS) {
        base = recent->before = recent->last;
        recent->last = *sample;
    }
    lock_release(&recent->lock);
    return base;
}

/* A counter that is read while it is written may seem to go back. */
static uint64_t growth(uint64_t before, uint64_t after) {
    return after > before ? after - before : 0;
}

static uint64_t waits_ns(struct scheduler *scheduler, uint64_t now_ns) {
    uint64_t ns = 0;
    if (!scheduler_is_empty(scheduler)) {
        lock_acquire(&scheduler->lock);
        ns = clock_between_ns(priority_queue_oldest_ns(&scheduler->queue, now_ns), now_ns);
        lock_release(&scheduler->lock);
    }
    return ns;
}

void model_version_recent(struct model_version *version, const struct model_statistics *now,
                          struct model_recent *out) {
    uint64_t now_ns = clock_now_ns();
    struct recent_sample sample = read_sample(version, now, now_ns);
    struct recent_sample base = rotate(&version->statistics.recent, &sample);
    uint64_t n_waited = growth(base.n_waited, sample.n_waited);
    uint64_t most_busy_ns = growth(base.at_ns, now_ns) * version->n_instances;
    uint64_t busy_ns = growth(base.busy_ns, sample.busy_ns);
    uint64_t mean_ns = n_waited > 0 ? growth(base.waited_ns, sample.waited_ns) / n_waited : 0;
    uint64_t oldest_ns = waits_ns(&version->scheduler, now_ns);
    *out = (struct model_recent){.queue_ns = mean_ns > oldest_ns ? mean_ns : oldest_ns};
    if (most_busy_ns > 0) {
        out->utilization = busy_ns < most_busy_ns ? (double)busy_ns / (double)most_busy_ns : 1;
    }
}
