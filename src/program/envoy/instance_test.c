/* Pickers in a simulated Envoy: which filters share one, why one does not start, and requests on
 * several worker threads that wait for endpoints and for turns, which its own thread calls for. */
#include "program/envoy/instance.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "pick/envoy/envoy_fixture.h"

enum { THREADS = 2, ROUNDS = 20, LONG_BYTES = 400 << 10 };

static struct envoy_instance *get(const char *config) {
    struct envoy_instance *instance = NULL;
    struct error err;
    assert_int_equal(envoy_instance_get(str_of(config), &instance, &err), ST_OK);
    return instance;
}

static void envoy_instance_is_shared_by_same_settings(void **state) {
    (void)state;
    struct envoy_instance *one = get("{endpoint: [\"127.0.0.1:1\"], metrics: none}");
    struct envoy_instance *same = get("{metrics: none, endpoint: [\"127.0.0.1:1\"]}");
    struct envoy_instance *other = get("{endpoint: [\"127.0.0.1:2\"], metrics: none}");
    assert_ptr_equal(one, same);
    assert_ptr_not_equal(one, other);
    envoy_instance_unref(one);
    envoy_instance_unref(other);
    assert_non_null(envoy_workers_get(envoy_instance_workers(same), 0));
    envoy_instance_unref(same);
}

static void envoy_instance_bad_settings_are_explained(void **state) {
    static const char *const rows[][2] = {
        {"{}", "expected the settings"},
        {"{config: /nowhere/pool.yaml}", "/nowhere/pool.yaml"},
        {"{endpoint: [\"127.0.0.1:1\"], metrics: \"192.0.2.1:1\"}", "192.0.2.1:1"},
        {"{grpc: \"127.0.0.1:1\"}", "has no effect in Envoy"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct envoy_instance *instance = NULL;
        struct error err = {.text = ""};
        assert_int_not_equal(envoy_instance_get(str_of(rows[i][0]), &instance, &err), ST_OK);
        assert_non_null(strstr(err.text, rows[i][1]));
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

struct thread {
    struct envoy_worker *worker;
    struct str long_body;
    unsigned n_sent;
};

/* The endpoint takes one request at a time, so those of all threads wait for each other; a long
 * body waits for turns before that. Only calls of its scheduler let a request go on. */
static void *run_requests(void *arg) {
    struct thread *self = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct fake_envoy fake;
        fake_open(&fake, self->worker);
        fake.piece_bytes = 16 << 10;
        bool is_long = i % 2 == 0;
        (void)fake_send_headers(&fake, "POST", is_long ? "/v1/completions" : "/", !is_long);
        if (is_long) {
            (void)fake_send_body(&fake, self->long_body, true);
        }
        while (!fake.is_end_sent) {
            if (!fake_run_scheduled(&fake)) {
                sched_yield();
            }
        }
        assert_int_equal(fake.status, 0);
        assert_true(!is_long || str_eq(buf_str(&fake.upstream), self->long_body));
        fake_send_response(&fake, "200", true);
        fake_close(&fake);
        self->n_sent++;
    }
    return NULL;
}

static void envoy_instance_calls_requests_that_wait_on_threads(void **state) {
    static const char pool[] = "endpoints: [\"127.0.0.1:1\"]\nmodels: [digits]\n"
                               "saturation: {max_in_flight: 1}\nflow_control: {max_wait: 10m}\n";
    struct thread threads[THREADS];
    pthread_t ids[THREADS];
    struct arena *arena = arena_new(NULL, 0);
    char path[] = "/tmp/sluice-pool-XXXXXX", config[100];
    (void)state;
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, pool, sizeof(pool) - 1), sizeof(pool) - 1);
    close(file);
    (void)snprintf(config, sizeof(config), "{config: %s, metrics: none, log-level: warning}", path);
    struct envoy_instance *instance = get(config);
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i] =
            (struct thread){.worker = envoy_workers_get(envoy_instance_workers(instance), i),
                            .long_body = fake_long_body(arena, LONG_BYTES)};
        assert_int_equal(pthread_create(&ids[i], NULL, run_requests, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(threads[i].n_sent, ROUNDS);
    }
    envoy_instance_unref(instance);
    unlink(path);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(envoy_instance_is_shared_by_same_settings),
        cmocka_unit_test(envoy_instance_bad_settings_are_explained),
        cmocka_unit_test(envoy_instance_calls_requests_that_wait_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
