/* Workers: posted messages run once, in order, on the worker's thread, however many threads
 * post. */
#include "core/event/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { POSTERS = 4, POSTS = 20000 };

struct numbered {
    struct worker_msg msg;
    struct tally *tally;
    unsigned poster;
    unsigned number;
};

/* Used on the worker's thread only. */
struct tally {
    struct worker *worker;
    unsigned next[POSTERS];
    unsigned long wrong;
    unsigned long ran;
};

static void run_numbered(struct worker_msg *msg) {
    struct numbered *numbered = (struct numbered *)msg;
    struct tally *tally = numbered->tally;
    tally->wrong += !worker_is_current(tally->worker);
    tally->wrong += tally->next[numbered->poster] != numbered->number;
    tally->next[numbered->poster] = numbered->number + 1;
    tally->ran++;
    free(numbered);
}

struct poster {
    uv_thread_t thread;
    struct tally *tally;
    unsigned number;
};

static void poster_main(void *arg) {
    struct poster *poster = arg;
    for (unsigned i = 0; i < POSTS; i++) {
        struct numbered *numbered = calloc(1, sizeof(*numbered));
        assert_non_null(numbered);
        *numbered = (struct numbered){
            .msg.run = run_numbered, .tally = poster->tally, .poster = poster->number, .number = i};
        worker_post(poster->tally->worker, &numbered->msg);
    }
}

static void worker_post_from_threads_keeps_order(void **state) {
    (void)state;
    struct error err;
    struct worker *worker = NULL;
    assert_int_equal(worker_new("tally", &worker, &err), ST_OK);
    assert_string_equal(worker_name(worker), "tally");
    assert_int_equal(worker_start(worker, &err), ST_OK);
    assert_false(worker_is_current(worker));

    struct tally tally = {.worker = worker};
    struct poster posters[POSTERS];
    for (unsigned i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){.tally = &tally, .number = i};
        assert_int_equal(uv_thread_create(&posters[i].thread, poster_main, &posters[i]), 0);
    }
    for (unsigned i = 0; i < POSTERS; i++) {
        uv_thread_join(&posters[i].thread);
    }
    worker_stop(worker); /* all messages were posted before */
    worker_join(worker);
    assert_int_equal(tally.wrong, 0);
    assert_int_equal(tally.ran, POSTERS * POSTS);
    worker_free(worker);
}

struct again {
    struct worker_msg msg;
    struct worker *worker;
    unsigned left;
};

static void run_again(struct worker_msg *msg) {
    struct again *again = (struct again *)msg;
    if (--again->left > 0) {
        worker_post(again->worker, msg);
    } else {
        worker_stop(again->worker);
    }
}

static void worker_message_may_repost_itself(void **state) {
    (void)state;
    struct error err;
    struct again again = {.msg.run = run_again, .left = 1000};
    assert_int_equal(worker_new("a name longer than sixteen", &again.worker, &err), ST_OK);
    worker_post(again.worker, &again.msg);
    worker_run(again.worker);
    assert_int_equal(again.left, 0);
    worker_free(again.worker);
}

static void note_thread(void *arg) {
    *(uv_thread_t *)arg = uv_thread_self();
}

static void worker_call_runs_on_worker_and_returns(void **state) {
    (void)state;
    struct error err;
    struct worker *worker = NULL;
    uv_thread_t self = uv_thread_self(), ran_on = self;
    assert_int_equal(worker_new("test", &worker, &err), ST_OK);
    assert_int_equal(worker_start(worker, &err), ST_OK);
    worker_call(worker, note_thread, &ran_on);
    assert_false(uv_thread_equal(&ran_on, &self));
    worker_stop(worker);
    worker_join(worker);
    worker_free(worker);
}

static void worker_never_started_is_freed(void **state) {
    (void)state;
    struct error err;
    struct worker *worker = NULL;
    assert_int_equal(worker_new("idle", &worker, &err), ST_OK);
    worker_stop(worker);
    worker_stop(worker);
    worker_free(worker);
    worker_free(NULL);
}

static void worker_stopped_before_start_runs_posted_messages(void **state) {
    (void)state;
    struct error err;
    struct tally tally = {0};
    assert_int_equal(worker_new("early", &tally.worker, &err), ST_OK);
    struct numbered *numbered = calloc(1, sizeof(*numbered));
    assert_non_null(numbered);
    *numbered = (struct numbered){.msg.run = run_numbered, .tally = &tally};
    worker_post(tally.worker, &numbered->msg);
    worker_stop(tally.worker);
    assert_int_equal(worker_start(tally.worker, &err), ST_OK);
    worker_join(tally.worker);
    assert_int_equal(tally.ran, 1);
    assert_int_equal(tally.wrong, 0);
    worker_free(tally.worker);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worker_post_from_threads_keeps_order),
        cmocka_unit_test(worker_message_may_repost_itself),
        cmocka_unit_test(worker_call_runs_on_worker_and_returns),
        cmocka_unit_test(worker_never_started_is_freed),
        cmocka_unit_test(worker_stopped_before_start_runs_posted_messages),
    };
    return cmocka_run_group_tests_name("core/event/worker", tests, NULL, NULL);
}
