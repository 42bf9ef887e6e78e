/* Many calls from several workers at once, through instances that workers and threads compete for:
 * each is answered once, with its own bytes, and nothing is left behind. Meant for the thread
 * sanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

enum { WORKERS = 3, IN_FLIGHT = 8, PER_WORKER = 1500 };

/* A worker that keeps a few requests in flight. */
struct crowd {
    struct worker *worker;
    struct rig rig; /* its calls; shares the version */
    int n_sent;
    int n_ok;
    int n_full;
    int n_cancelled;
    int n_wrong;
    struct worker_msg again; /* sends in the slots that are free */
    bool again_posted;
    unsigned dice;
};

static void send_next(struct crowd *crowd, struct rig_call *slot);

static unsigned roll(struct crowd *crowd) {
    crowd->dice = crowd->dice * 1664525u + 1013904223u;
    return crowd->dice >> 16;
}

static void count(struct crowd *crowd, const struct call *done, const struct rig_call *call) {
    const struct infer_response *response = &done->response;
    switch ((int)response->error.status) {
    case ST_OK: {
        const float *y = response->outputs[0].pieces[0].data;
        crowd->n_ok += y[0] == call->x[0];
        crowd->n_wrong += y[0] != call->x[0];
        return;
    }
    case ST_QUEUE_FULL:
        crowd->n_full++;
        return;
    case ST_CANCELLED:
        crowd->n_cancelled++;
        return;
    default:
        crowd->n_wrong++;
    }
}

static void on_again(struct worker_msg *msg) {
    struct crowd *crowd = (struct crowd *)(void *)((char *)msg - offsetof(struct crowd, again));
    crowd->again_posted = false;
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        if (!crowd->rig.calls[i].request.arena && crowd->n_sent < PER_WORKER) {
            send_next(crowd, &crowd->rig.calls[i]);
        }
    }
}

static void crowd_done(struct call *done) {
    struct rig_call *call = (struct rig_call *)(void *)done;
    struct crowd *crowd = (struct crowd *)(void *)((char *)call->rig - offsetof(struct crowd, rig));
    count(crowd, done, call);
    infer_response_release(&done->response);
    arena_free(call->request.arena);
    call->request.arena = NULL;
    if (crowd->n_sent < PER_WORKER) {
        if (!crowd->again_posted) {
            crowd->again_posted = true;
            worker_post(crowd->worker, &crowd->again);
        }
    } else if (crowd->n_ok + crowd->n_full + crowd->n_cancelled + crowd->n_wrong == PER_WORKER) {
        worker_stop(crowd->worker);
    }
}

static void send_next(struct crowd *crowd, struct rig_call *slot) {
    size_t i = (size_t)(slot - crowd->rig.calls);
    struct rig_call *call = rig_make(&crowd->rig, i, 1, (float)crowd->n_sent);
    call->call.done = crowd_done;
    crowd->n_sent++;
    rig_submit(call);
    if (call->request.arena && roll(crowd) % 8 == 0) {
        call_cancel(&call->call);
    }
}

static void *run_crowd(void *arg) {
    struct crowd *crowd = arg;
    crowd->again.run = on_again;
    crowd->again_posted = true;
    worker_post(crowd->worker, &crowd->again);
    worker_run(crowd->worker);
    return NULL;
}

/* Some answers come late, from the thread that executes the next one. */
static void sometimes_slow(sluice_model *model, const sluice_request *request) {
    if (atomic_load(&model->n_started) % 16 == 0) {
        rig_pause();
    }
    rig_echo(model, request);
}

static void crowd_of(enum model_run_on run_on, uint64_t n_instances, uint64_t max_queue) {
    static struct crowd crowds[WORKERS];
    static struct rig rig;
    struct model_config config = {.run_on = run_on, .instance_count = n_instances};
    pthread_t threads[WORKERS];
    struct error err;
    int n_answered = 0;
    rig_open(&rig, &config, max_queue);
    rig.model->act = sometimes_slow;
    for (unsigned i = 0; i < WORKERS; i++) {
        memset(&crowds[i], 0, sizeof(crowds[i]));
        crowds[i].dice = i;
        assert_int_equal(worker_new("crowd", &crowds[i].worker, &err), ST_OK);
        crowds[i].rig.version = rig.version;
        crowds[i].rig.worker = crowds[i].worker;
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &crowds[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(crowds[i].n_wrong, 0);
        n_answered += crowds[i].n_ok;
        worker_free(crowds[i].worker);
    }
    assert_true(n_answered > 0);
    assert_true(atomic_load(&rig.model->n_released) >= n_answered);
    rig_await_unused(&rig);
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void on_instances(void **state) {
    (void)state;
    crowd_of(RUN_ON_INSTANCE, 2, 0);
}

static void on_workers_and_instances(void **state) {
    (void)state;
    crowd_of(RUN_ON_WORKER, 2, 0);
}

static void as_measured(void **state) {
    (void)state;
    crowd_of(RUN_AUTO, 1, 0);
}

static void with_a_short_queue(void **state) {
    (void)state;
    crowd_of(RUN_ON_INSTANCE, 1, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_instances),
        cmocka_unit_test(on_workers_and_instances),
        cmocka_unit_test(as_measured),
        cmocka_unit_test(with_a_short_queue),
    };
    return cmocka_run_group_tests_name("model/crowd", tests, NULL, NULL);
}
