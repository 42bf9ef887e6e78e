/* Keep-alives are sent while every loop runs, and stop while one of them hangs. */
#include "core/os/watchdog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"

enum { LOOPS = 3, SPAN_NS = 3000000 /* a ping every millisecond */, LONG_TICKS = 50 };

/* A manager, a main loop that the test runs step by step, and the watched loops. */
struct rig {
    int ears;
    struct service_manager manager;
    struct worker *main;
    struct worker *loops[LOOPS];
    struct watchdog watchdog;
};

static void rig_open(struct rig *rig, uint64_t watchdog_ns) {
    struct error err;
    char text[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *rig = (struct rig){.ears = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)};
    snprintf(text, sizeof(text), "@sluice-dog-%d", (int)getpid());
    memcpy(&address.sun_path[1], text + 1, strlen(text) - 1);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(text));
    assert_int_equal(bind(rig->ears, (const struct sockaddr *)&address, len), 0);
    assert_int_equal(service_manager_open(&rig->manager, text, NULL, NULL, &err), ST_OK);
    rig->manager.watchdog_ns = watchdog_ns;
    assert_int_equal(worker_new("main", &rig->main, &err), ST_OK);
    assert_int_equal(watchdog_open(&rig->watchdog, &rig->manager, rig->main, LOOPS, &err), ST_OK);
    for (size_t i = 0; i < LOOPS; i++) {
        assert_int_equal(worker_new("loop", &rig->loops[i], &err), ST_OK);
        assert_int_equal(worker_start(rig->loops[i], &err), ST_OK);
        watchdog_add(&rig->watchdog, rig->loops[i]);
    }
    watchdog_start(&rig->watchdog);
}

/* Runs `n_turns` iterations of the main loop. Returns: the number of keep-alives received since the
 * last call. */
static size_t signs_in(struct rig *rig, size_t n_turns) {
    size_t n = 0;
    char text[64];
    for (size_t i = 0; i < n_turns; i++) {
        uv_run(worker_loop(rig->main), UV_RUN_ONCE);
        ssize_t got = recv(rig->ears, text, sizeof(text), 0);
        assert_true(got < 0 || (got == 10 && memcmp(text, "WATCHDOG=1", 10) == 0));
        n += got > 0;
    }
    return n;
}

static void on_closed(uv_handle_t *handle) {
    worker_stop(handle->data);
}

/* Reads the keep-alive messages that wait in the socket. */
static size_t read_keep_alives(struct rig *rig) {
    size_t n = 0;
    char text[64];
    ssize_t got;
    while ((got = recv(rig->ears, text, sizeof(text), 0)) > 0) {
        assert_true(got == 10 && memcmp(text, "WATCHDOG=1", 10) == 0);
        n++;
    }
    return n;
}

/* After the close every ping has run, and no keep-alive message is sent. */
static void rig_close(struct rig *rig) {
    read_keep_alives(rig);
    watchdog_close(&rig->watchdog, on_closed, rig->main);
    worker_run(rig->main);
    for (size_t i = 0; i < LOOPS; i++) {
        worker_stop(rig->loops[i]); /* runs what was posted before */
        worker_join(rig->loops[i]);
    }
    assert_false(rig->watchdog.running);
    assert_int_equal(atomic_load(&rig->watchdog.n_pending), 0);
    assert_int_equal(read_keep_alives(rig), 0);
    for (size_t i = 0; i < LOOPS; i++) {
        worker_free(rig->loops[i]);
    }
    worker_free(rig->main);
    watchdog_free(&rig->watchdog);
    service_manager_close(&rig->manager);
    close(rig->ears);
}

static void watchdog_all_loops_running_sends_keep_alive(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, SPAN_NS);
    size_t n = 0;
    while (n < 20) {
        n += signs_in(&rig, 1);
    }
    assert_int_equal(rig.watchdog.n_loops, LOOPS);
    watchdog_stop(&rig.watchdog);
    watchdog_stop(&rig.watchdog); /* idempotent */
    assert_false(rig.watchdog.running);
    assert_false(uv_is_active((const uv_handle_t *)&rig.watchdog.timer));
    while (atomic_load(&rig.watchdog.n_pending) > 0) { /* the check that was open is answered */
        usleep(1000);
    }
    for (size_t i = 0; i < LOOPS; i++) {
        assert_false(atomic_load(&rig.watchdog.loops[i].pending));
    }
    read_keep_alives(&rig); /* sent before the stop */
    for (int i = 0; i < LONG_TICKS; i++) {
        uv_run(worker_loop(rig.main), UV_RUN_NOWAIT); /* without a timer ONCE would not return */
    }
    assert_int_equal(read_keep_alives(&rig), 0);
    rig_close(&rig);
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

static void watchdog_hanging_loop_stops_keep_alive(void **state) {
    (void)state;
    log_configure(LOG_ERROR, LOG_TEXT);
    for (size_t i = 0; i < LOOPS; i++) {
        struct rig rig;
        struct plug plug = {.msg.run = run_plug};
        uv_sem_init(&plug.inside, 0);
        uv_sem_init(&plug.go, 0);
        rig_open(&rig, SPAN_NS);
        while (signs_in(&rig, 1) == 0) {
        }
        worker_post(rig.loops[i], &plug.msg);
        uv_sem_wait(&plug.inside);
        /* A slow check from before may have warned too; this loop's ping is not answered now. */
        while (!rig.watchdog.warned || !atomic_load(&rig.watchdog.loops[i].pending)) {
            signs_in(&rig, 1);
        }
        assert_int_equal(signs_in(&rig, LONG_TICKS), 0);
        assert_true(atomic_load(&rig.watchdog.loops[i].pending));
        for (size_t j = 0; j < LOOPS; j++) { /* the others may have been slow */
            while (j != i && atomic_load(&rig.watchdog.loops[j].pending)) {
                signs_in(&rig, 1);
            }
        }
        uv_sem_post(&plug.go);
        while (signs_in(&rig, 1) == 0) { /* the manager would end the process before */
        }
        assert_false(rig.watchdog.warned);
        rig_close(&rig);
        uv_sem_destroy(&plug.inside);
        uv_sem_destroy(&plug.go);
    }
}

static void watchdog_without_manager_does_nothing(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig, 0);
    assert_false(uv_is_active((const uv_handle_t *)&rig.watchdog.timer));
    rig_close(&rig);
}

/* Closed while a check is open: its pings and its result still run, and change nothing. */
static void watchdog_stop_during_check_is_clean(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct rig rig;
        rig_open(&rig, SPAN_NS);
        while (!rig.watchdog.check_running) {
            uv_run(worker_loop(rig.main), UV_RUN_ONCE);
        }
        assert_true(rig.watchdog.running);
        rig_close(&rig);
        assert_true(rig.watchdog.check_running); /* its result came after the close */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watchdog_all_loops_running_sends_keep_alive),
        cmocka_unit_test(watchdog_hanging_loop_stops_keep_alive),
        cmocka_unit_test(watchdog_without_manager_does_nothing),
        cmocka_unit_test(watchdog_stop_during_check_is_clean),
    };
    return cmocka_run_group_tests_name("core/os/watchdog", tests, NULL, NULL);
}
