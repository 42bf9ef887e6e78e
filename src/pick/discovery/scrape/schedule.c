/* A heap of due times, and the time before which the rate limit allows no further job. */
#include "pick/discovery/scrape/schedule.h"

#include "core/base/backoff.h"

static const uint64_t NS_PER_S = 1000000000;
/* How much may be done at once after a pause, as time at the limit's rate. */
static const uint64_t BURST_NS = 20000000;
/* A wake-up costs more than a few scrapes: jobs due within this time are taken together. */
static const uint64_t TOGETHER_NS = 20000000;
static const uint64_t LONGEST_WAIT_NS = UINT64_C(10000000000);
enum { JITTER_SHARE = 10, TOGETHER_SHARE = 10 };

void scrape_schedule_fini(struct scrape_schedule *schedule) {
    timer_heap_fini(&schedule->waiting);
}

/* A burst and the steady rate after it together stay within the limit in any second. */
void scrape_rate_set(struct scrape_rate *rate, uint64_t interval_ns, uint32_t most_per_second) {
    rate->interval_ns = interval_ns;
    rate->spacing_ns = (NS_PER_S + BURST_NS) / most_per_second + 1;
}

void scrape_schedule_set_rate(struct scrape_schedule *schedule, uint64_t interval_ns,
                              uint32_t most_per_second) {
    scrape_rate_set(&schedule->all, interval_ns, most_per_second);
}

/* How long one pass over all jobs takes at the limit. */
static uint64_t round_ns(const struct scrape_rate *rate) {
    return rate->n_jobs * rate->spacing_ns;
}

uint64_t scrape_schedule_interval_ns(const struct scrape_schedule *schedule,
                                     const struct scrape_rate *rate) {
    uint64_t all_ns = round_ns(&schedule->all), own_ns = round_ns(rate);
    uint64_t longest_ns = all_ns > own_ns ? all_ns : own_ns;
    return longest_ns > rate->interval_ns ? longest_ns : rate->interval_ns;
}

/* ---- due times ------------------------------------------------------------------------------- */

/* The wait doubles with each failure after the first, which may be accidental. */
static uint64_t wait_of(struct scrape_schedule *schedule, const struct scrape_job *job) {
    uint64_t wait_ns = scrape_schedule_interval_ns(schedule, job->rate);
    uint64_t longest_ns = wait_ns > LONGEST_WAIT_NS ? wait_ns : LONGEST_WAIT_NS;
    wait_ns = backoff_wait(wait_ns, longest_ns, job->n_failures);
    return wait_ns + prng_share(&schedule->prng, wait_ns / JITTER_SHARE);
}

bool scrape_schedule_add(struct scrape_schedule *schedule, struct scrape_job *job,
                         struct scrape_rate *rate, uint64_t now_ns) {
    schedule->all.n_jobs++;
    rate->n_jobs++;
    uint64_t wait_ns = prng_share(&schedule->prng, scrape_schedule_interval_ns(schedule, rate));
    job->rate = rate;
    job->n_failures = 0;
    return timer_heap_set(&schedule->waiting, &job->deadline, now_ns + wait_ns);
}

void scrape_schedule_remove(struct scrape_schedule *schedule, struct scrape_job *job) {
    timer_heap_remove(&schedule->waiting, &job->deadline);
    schedule->all.n_jobs--;
    job->rate->n_jobs--;
}

struct scrape_job *scrape_schedule_pop_due(struct scrape_schedule *schedule, uint64_t now_ns) {
    uint64_t earliest_ns = now_ns > BURST_NS ? now_ns - BURST_NS : 0;
    if (schedule->next_ns > now_ns) {
        return NULL;
    }
    struct timer_node *deadline = timer_heap_pop_due(&schedule->waiting, now_ns);
    if (deadline) {
        uint64_t base_ns = schedule->next_ns > earliest_ns ? schedule->next_ns : earliest_ns;
        schedule->next_ns = base_ns + schedule->all.spacing_ns;
    }
    return (struct scrape_job *)(void *)deadline;
}

bool scrape_schedule_put_back(struct scrape_schedule *schedule, struct scrape_job *job,
                              uint64_t taken_ns, uint64_t now_ns, bool answered) {
    job->n_failures = answered ? 0 : job->n_failures + 1;
    uint64_t due_ns = taken_ns + wait_of(schedule, job);
    return timer_heap_set(&schedule->waiting, &job->deadline, due_ns > now_ns ? due_ns : now_ns);
}

uint64_t scrape_schedule_next_ns(const struct scrape_schedule *schedule, uint64_t now_ns) {
    uint64_t due_ns = timer_heap_next_ns(&schedule->waiting);
    uint64_t together_ns = schedule->all.interval_ns / TOGETHER_SHARE;
    uint64_t soonest_ns = now_ns + (together_ns < TOGETHER_NS ? together_ns : TOGETHER_NS);
    if (due_ns == UINT64_MAX) {
        return UINT64_MAX;
    }
    due_ns = due_ns > schedule->next_ns ? due_ns : schedule->next_ns;
    return due_ns > soonest_ns ? due_ns : soonest_ns;
}
