/* Keep-alives are sent while every loop runs, and stop while one of them hangs; then health
 * changes. */
#include "core/os/watchdog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"

enum { LOOPS = 3, MANAGER_NS = 60000000, TICK_MS = 10 };

/* A manager, a main loop that the test runs step by step, and the watched loops. The test ticks. */
struct rig {
    int ears;
    struct service_manager manager;
    struct worker *main;
    struct worker *loops[LOOPS];
    struct watchdog watchdog;
    int n_changes;
};

static void on_change(void *user) {
    struct rig *rig = user;
    rig->n_changes++;
}

static void rig_open(struct rig *rig, uint64_t manager_ns, uint64_t unready_ms, uint64_t dead_ms) {
    struct error err;
    char text[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *rig = (struct rig){.ears = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)};
    snprintf(text, sizeof(text), "@sluice-dog-%d", (int)getpid());
    memcpy(&address.sun_path[1], text + 1, strlen(text) - 1);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(text));
    assert_int_equal(bind(rig->ears, (const struct sockaddr *)&address, len), 0);
    assert_int_equal(service_manager_open(&rig->manager, text, NULL, NULL, &err), ST_OK);
    rig->manager.watchdog_ns = manager_ns;
    assert_int_equal(worker_new("main", &rig->main, &err), ST_OK);
    const struct watchdog_options options = {.manager = &rig->manager,
                                             .main = rig->main,
                                             .unready_after_ns = unready_ms * 1000000,
                                             .dead_after_ns = dead_ms * 1000000,
                                             .on_change = on_change,
                                             .user = rig};
    assert_int_equal(watchdog_open(&rig->watchdog, &options, LOOPS, &err), ST_OK);
    for (size_t i = 0; i < LOOPS; i++) {
        assert_int_equal(worker_new("loop", &rig->loops[i], &err), ST_OK);
        assert_int_equal(worker_start(rig->loops[i], &err), ST_OK);
        watchdog_add(&rig->watchdog, rig->loops[i]);
    }
}

/* The keep-alive messages that wait in the socket, once the main loop has sent what was posted. */
static size_t n_keep_alives(struct rig *rig) {
    size_t n = 0;
    char text[64];
    ssize_t got;
    uv_run(worker_loop(rig->main), UV_RUN_NOWAIT);
    while ((got = recv(rig->ears, text, sizeof(text), 0)) > 0) {
        assert_true(got == 10 && memcmp(text, "WATCHDOG=1", 10) == 0);
        n++;
    }
    return n;
}

/* Waits until the loops from `first` on have answered their pings. */
static void await_answers(struct rig *rig, size_t first) {
    for (size_t i = first; i < LOOPS; i++) {
        while (atomic_load(&rig->watchdog.loops[i].pending)) {
            usleep(1000);
        }
    }
}

static void assert_health(const struct rig *rig, bool ready, bool live, int n_changes) {
    assert_int_equal(loop_health_is_ready(&rig->watchdog.health), ready);
    assert_int_equal(loop_health_is_live(&rig->watchdog.health), live);
    assert_int_equal(rig->n_changes, n_changes);
}

static void rig_close(struct rig *rig) {
    watchdog_stop(&rig->watchdog);
    watchdog_stop(&rig->watchdog); /* idempotent */
    n_keep_alives(rig);
    for (size_t i = 0; i < LOOPS; i++) {
        worker_stop(rig->loops[i]); /* runs what was posted before */
        worker_join(rig->loops[i]);
        worker_free(rig->loops[i]);
    }
    worker_free(rig->main);
    watchdog_free(&rig->watchdog);
    service_manager_close(&rig->manager);
    close(rig->ears);
}

/* Posted to a loop, it blocks that loop until it is released. */
struct plug {
    struct worker_msg msg;
    uv_sem_t inside, go;
};

static void run_plug(struct worker_msg *msg) {
    struct plug *plug = (struct plug *)msg;
    uv_sem_post(&plug->inside);
    uv_sem_wait(&plug->go);
}

/* The first loop is blocked, and has not answered the ping of this tick. */
static void block_first_loop(struct rig *rig, struct plug *plug) {
    plug->msg.run = run_plug;
    uv_sem_init(&plug->inside, 0);
    uv_sem_init(&plug->go, 0);
    worker_post(rig->loops[0], &plug->msg);
    uv_sem_wait(&plug->inside);
    watchdog_tick(&rig->watchdog);
    await_answers(rig, 1);
    n_keep_alives(rig);
}

static void release_first_loop(struct rig *rig, struct plug *plug) {
    uv_sem_post(&plug->go);
    await_answers(rig, 0);
    uv_sem_destroy(&plug->go);
    uv_sem_destroy(&plug->inside);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void watchdog_loops_that_answer_keep_alive(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, MANAGER_NS, 0, 0);
    assert_int_equal(rig.watchdog.tick_ns, TICK_MS * 1000000);
    for (int i = 0; i < 5; i++) {
        watchdog_tick(&rig.watchdog);
        assert_int_equal(n_keep_alives(&rig), 1);
        await_answers(&rig, 0);
    }
    assert_health(&rig, true, true, 0);
    watchdog_tick(&rig.watchdog); /* posted, but not sent before the stop */
    watchdog_stop(&rig.watchdog);
    assert_int_equal(n_keep_alives(&rig), 0);
    rig_close(&rig);
}

static void watchdog_without_manager_sends_nothing(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, 0, 1000, 0);
    watchdog_tick(&rig.watchdog);
    assert_int_equal(n_keep_alives(&rig), 0);
    rig_close(&rig);
}

static void watchdog_held_loop_changes_health_by_ticks(void **state) {
    (void)state;
    struct rig rig;
    struct plug plug;
    log_configure(LOG_ERROR, LOG_TEXT);
    rig_open(&rig, MANAGER_NS, 2 * TICK_MS * 5, 4 * TICK_MS * 5);
    assert_int_equal(rig.watchdog.tick_ns, TICK_MS * 1000000);
    int64_t held = metric_read(METRIC_EVENT_LOOPS_HELD);
    block_first_loop(&rig, &plug);
    for (uint64_t n = 1; n <= 25; n++) {
        watchdog_tick(&rig.watchdog);
        await_answers(&rig, 1);
        assert_health(&rig, n < 10, n < 20, (n >= 10) + (n >= 20));
        assert_int_equal(n_keep_alives(&rig), 0);
        assert_int_equal(metric_read(METRIC_EVENT_LOOPS_HELD) - held, n >= 10);
    }
    release_first_loop(&rig, &plug);
    watchdog_tick(&rig.watchdog);
    assert_health(&rig, true, true, 3);
    assert_int_equal(n_keep_alives(&rig), 1);
    assert_int_equal(metric_read(METRIC_EVENT_LOOPS_HELD), held);
    rig_close(&rig);
}

/* A process that was stopped for long misses one tick, whatever its clock says. */
static void watchdog_short_holds_do_not_add_up(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, MANAGER_NS, 2 * TICK_MS * 5, 0);
    for (int i = 0; i < 5; i++) {
        struct plug plug;
        block_first_loop(&rig, &plug);
        for (int n = 0; n < 9; n++) {
            watchdog_tick(&rig.watchdog);
        }
        assert_health(&rig, true, true, 0);
        release_first_loop(&rig, &plug);
        watchdog_tick(&rig.watchdog);
        await_answers(&rig, 0);
    }
    assert_health(&rig, true, true, 0);
    rig_close(&rig);
}

static void watchdog_times_of_zero_are_never(void **state) {
    (void)state;
    struct rig rig;
    struct plug plug;
    rig_open(&rig, 0, 0, 0);
    assert_int_equal(rig.watchdog.tick_ns, 1000000000);
    block_first_loop(&rig, &plug);
    for (int n = 0; n < 100; n++) {
        watchdog_tick(&rig.watchdog);
    }
    assert_health(&rig, true, true, 0);
    release_first_loop(&rig, &plug);
    rig_close(&rig);
}

/* Not live is not ready, also where the times are in the other order. */
static void watchdog_dead_is_not_ready(void **state) {
    (void)state;
    struct rig rig;
    struct plug plug;
    log_configure(LOG_ERROR, LOG_TEXT);
    rig_open(&rig, MANAGER_NS, 0, TICK_MS * 5);
    block_first_loop(&rig, &plug);
    for (int n = 0; n < 5; n++) {
        watchdog_tick(&rig.watchdog);
    }
    assert_health(&rig, false, false, 1);
    watchdog_stop(&rig.watchdog);
    assert_health(&rig, true, true, 1);
    release_first_loop(&rig, &plug);
    rig_close(&rig);
}

static void watchdog_thread_ticks_until_stopped(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, MANAGER_NS, 0, 0);
    watchdog_start(&rig.watchdog);
    size_t n = 0;
    while (n < 5) {
        n += n_keep_alives(&rig);
        usleep(1000);
    }
    watchdog_stop(&rig.watchdog);
    assert_int_equal(n_keep_alives(&rig), 0);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watchdog_loops_that_answer_keep_alive),
        cmocka_unit_test(watchdog_without_manager_sends_nothing),
        cmocka_unit_test(watchdog_held_loop_changes_health_by_ticks),
        cmocka_unit_test(watchdog_short_holds_do_not_add_up),
        cmocka_unit_test(watchdog_times_of_zero_are_never),
        cmocka_unit_test(watchdog_dead_is_not_ready),
        cmocka_unit_test(watchdog_thread_ticks_until_stopped),
    };
    return cmocka_run_group_tests_name("core/os/watchdog", tests, NULL, NULL);
}
