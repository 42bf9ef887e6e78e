/* Fair queue: the order in which jobs of several clients are taken. A job is written as its
 * connection and its number of milliseconds. */
#include "core/event/fair_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/compiler.h"
#include "core/base/random.h"

enum { MS = 1000 * 1000, MANY = 4000, TEXT_BYTES = 512 };

struct job {
    struct fair_entry entry;
    uint64_t host, conn;
    unsigned ms, index;
    bool queued;
};

static void push(struct fair_queue *queue, struct job *job, uint64_t host, uint64_t conn,
                 unsigned ms) {
    *job = (struct job){.host = host, .conn = conn, .ms = ms, .queued = true};
    fair_queue_push(queue, &job->entry, (struct fair_client){host, conn}, (uint64_t)ms * MS);
}

static struct job *pop(struct fair_queue *queue) {
    struct fair_entry *entry = fair_queue_pop(queue);
    struct job *job = entry ? CONTAINER_OF(entry, struct job, entry) : NULL;
    if (job) {
        assert_true(job->queued);
        job->queued = false;
    }
    return job;
}

/* Takes `n` jobs: "host.conn:ms ..." */
static const char *take(struct fair_queue *queue, size_t n, char *out) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        struct job *job = pop(queue);
        assert_non_null(job);
        len += (size_t)snprintf(out + len, TEXT_BYTES - len, "%s%u.%u:%u", len > 0 ? " " : "",
                                (unsigned)job->host, (unsigned)job->conn, job->ms);
    }
    return out;
}

static void equal_jobs_of_a_connection_keep_order(void **state) {
    (void)state;
    struct fair_queue queue;
    struct job jobs[9];
    fair_queue_init(&queue);
    for (unsigned i = 0; i < 9; i++) {
        push(&queue, &jobs[i], 1, 1, 5);
        jobs[i].index = i;
    }
    for (unsigned i = 0; i < 9; i++) {
        assert_int_equal(pop(&queue)->index, i);
    }
    assert_null(fair_queue_pop(&queue));
    fair_queue_fini(&queue);
}

static void connections_of_a_host_take_turns(void **state) {
    (void)state;
    struct fair_queue queue;
    struct job jobs[7];
    char text[TEXT_BYTES];
    fair_queue_init(&queue);
    for (size_t i = 0; i < 5; i++) {
        push(&queue, &jobs[i], 1, 1, 100);
    }
    push(&queue, &jobs[5], 1, 2, 100);
    push(&queue, &jobs[6], 1, 2, 100);
    assert_string_equal(take(&queue, 7, text), "1.1:100 1.2:100 1.1:100 1.2:100 1.1:100 1.1:100 "
                                               "1.1:100");
    fair_queue_fini(&queue);
}

/* Many connections of one host are one client for another host. */
static void hosts_take_turns(void **state) {
    (void)state;
    struct fair_queue queue;
    struct job jobs[8];
    char text[TEXT_BYTES];
    fair_queue_init(&queue);
    for (size_t i = 0; i < 6; i++) {
        push(&queue, &jobs[i], 1, i + 1, 100);
    }
    push(&queue, &jobs[6], 2, 1, 100);
    push(&queue, &jobs[7], 2, 1, 100);
    assert_string_equal(take(&queue, 8, text), "1.1:100 2.1:100 1.2:100 2.1:100 1.3:100 1.4:100 "
                                               "1.5:100 1.6:100");
    fair_queue_fini(&queue);
}

/* A short job passes long ones: of other hosts, of its host, and of its connection. */
static void short_job_passes_long_ones(void **state) {
    (void)state;
    struct fair_queue queue;
    struct job jobs[70];
    char text[TEXT_BYTES];
    fair_queue_init(&queue);
    for (size_t i = 0; i < 60; i++) {
        push(&queue, &jobs[i], 1, i % 20, 300);
    }
    push(&queue, &jobs[60], 1, 0, 5);
    push(&queue, &jobs[61], 1, 99, 5);
    push(&queue, &jobs[62], 2, 1, 5);
    assert_string_equal(take(&queue, 3, text), "1.0:5 2.1:5 1.99:5");
    for (size_t i = 0; i < 60; i++) {
        assert_int_equal(pop(&queue)->ms, 300);
    }
    fair_queue_fini(&queue);
}

/* Short jobs that always come from new connections and hosts don't keep a long one waiting for
 * longer than its own time. */
static void long_job_waits_for_its_own_time(void **state) {
    (void)state;
    for (int new_hosts = 0; new_hosts < 2; new_hosts++) {
        struct fair_queue queue;
        struct job waiting, quick;
        unsigned n = 0;
        fair_queue_init(&queue);
        push(&queue, &waiting, 1, 1, 300);
        for (struct job *job = NULL; job != &waiting; n++) {
            push(&queue, &quick, new_hosts ? n + 2 : 1, n + 2, 1);
            job = pop(&queue);
        }
        assert_in_range(n, 299, 302);
        fair_queue_remove(&queue, &quick.entry);
        fair_queue_fini(&queue);
    }
}

/* A client of many short jobs has as much as a client of few long ones. */
static void turns_are_by_time(void **state) {
    (void)state;
    struct fair_queue queue;
    struct job longs[4], shorts[400];
    unsigned ms[2] = {0};
    fair_queue_init(&queue);
    for (size_t i = 0; i < 4; i++) {
        push(&queue, &longs[i], 1, 1, 100);
    }
    for (size_t i = 0; i < 400; i++) {
        push(&queue, &shorts[i], 2, 1, 1);
    }
    for (size_t i = 0; i < 404; i++) {
        struct job *job = pop(&queue);
        ms[job->host - 1] += job->ms;
        assert_in_range(ms[0] + 100, ms[1], ms[1] + 200);
    }
    fair_queue_fini(&queue);
}

static void removed_job_is_not_taken(void **state) {
    (void)state;
    struct fair_queue queue;
    struct job jobs[6];
    char text[TEXT_BYTES];
    fair_queue_init(&queue);
    for (size_t i = 0; i < 6; i++) {
        push(&queue, &jobs[i], 1 + i / 3, i, 10);
    }
    fair_queue_remove(&queue, &jobs[0].entry); /* the next one */
    fair_queue_remove(&queue, &jobs[4].entry);
    assert_int_equal(queue.n, 4);
    assert_string_equal(take(&queue, 4, text), "1.1:10 2.3:10 1.2:10 2.5:10");
    fair_queue_fini(&queue);
}

/* The queue that is asked first does not get more. */
static void two_queues_share_a_clock(void **state) {
    (void)state;
    struct fair_queue queues[2];
    struct job jobs[12];
    unsigned n[2] = {0};
    fair_queue_init(&queues[0]);
    fair_queue_init(&queues[1]);
    for (size_t i = 0; i < 12; i++) {
        push(&queues[i % 2], &jobs[i], 1, i, 10);
    }
    for (size_t i = 0; i < 12; i++) {
        size_t at = fair_queue_next_end(&queues[1]) < fair_queue_next_end(&queues[0]);
        n[at]++;
        assert_non_null(fair_queue_pop(&queues[at]));
        fair_queue_set_clock(&queues[1 - at], fair_queue_clock(&queues[at]));
        assert_in_range(n[0] + 1, n[1], n[1] + 2);
    }
    assert_int_equal(fair_queue_next_end(&queues[0]), UINT64_MAX);
    fair_queue_fini(&queues[0]);
    fair_queue_fini(&queues[1]);
}

/* Random pushes, pops and removals: each job leaves once, and no host waits for long. */
static void random_jobs_leave_once(void **state) {
    (void)state;
    struct fair_queue queue;
    struct job *jobs = calloc(MANY, sizeof(*jobs));
    struct prng prng = {.state = 7};
    size_t n_pushed = 0, n_left = 0;
    assert_non_null(jobs);
    fair_queue_init(&queue);
    while (n_left < MANY) {
        uint32_t what = prng_below(&prng, 10);
        if (n_pushed < MANY && what < 5) {
            push(&queue, &jobs[n_pushed++], prng_below(&prng, 5), prng_below(&prng, 20),
                 1 + prng_below(&prng, 50));
            continue;
        }
        struct job *job = n_pushed > 0 ? &jobs[prng_below(&prng, (uint32_t)n_pushed)] : NULL;
        if (job && what == 9 && job->queued) {
            fair_queue_remove(&queue, &job->entry);
            job->queued = false;
            n_left++;
        } else if (what < 9) {
            n_left += pop(&queue) != NULL;
        }
        assert_int_equal(queue.n, n_pushed - n_left);
    }
    assert_null(fair_queue_first(&queue));
    fair_queue_fini(&queue);
    free(jobs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_jobs_of_a_connection_keep_order),
        cmocka_unit_test(connections_of_a_host_take_turns),
        cmocka_unit_test(hosts_take_turns),
        cmocka_unit_test(short_job_passes_long_ones),
        cmocka_unit_test(long_job_waits_for_its_own_time),
        cmocka_unit_test(turns_are_by_time),
        cmocka_unit_test(removed_job_is_not_taken),
        cmocka_unit_test(two_queues_share_a_clock),
        cmocka_unit_test(random_jobs_leave_once),
    };
    return cmocka_run_group_tests_name("core/event/fair_queue", tests, NULL, NULL);
}
