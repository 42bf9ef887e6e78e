/* Many calls from several workers, on instances that workers and threads compete for: each is
 * answered once, with its own bytes. For the thread sanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "serve/repository/test_rig.h"

enum { WORKERS = 3, IN_FLIGHT = 8, PER_WORKER = 1500 };

/* A worker that keeps a few requests in flight. */
struct client_worker {
    struct worker *worker;
    struct rig rig; /* its calls; shares the version */
    int n_sent;
    int n_ok;
    int n_full;
    int n_cancelled;
    int n_wrong;
    struct worker_msg refill_msg; /* sends requests in free slots */
    bool refill_posted;
    unsigned prng;
};

static void send_next(struct client_worker *client, struct rig_call *slot);

static unsigned next_random(struct client_worker *client) {
    client->prng = client->prng * 1664525u + 1013904223u;
    return client->prng >> 16;
}

static void count(struct client_worker *client, const struct call *done,
                  const struct rig_call *call) {
    const struct infer_response *response = &done->response;
    switch ((int)response->error.status) {
    case ST_OK: {
        const float *y = response->outputs[0].pieces[0].data;
        client->n_ok += y[0] == call->x[0];
        client->n_wrong += y[0] != call->x[0];
        return;
    }
    case ST_QUEUE_FULL:
        client->n_full++;
        return;
    case ST_CANCELLED:
        client->n_cancelled++;
        return;
    default:
        client->n_wrong++;
    }
}

static void on_refill(struct worker_msg *msg) {
    struct client_worker *client = CONTAINER_OF(msg, struct client_worker, refill_msg);
    client->refill_posted = false;
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        if (!client->rig.calls[i].request.arena && client->n_sent < PER_WORKER) {
            send_next(client, &client->rig.calls[i]);
        }
    }
}

static void client_done(struct call *done) {
    struct rig_call *call = (struct rig_call *)(void *)done;
    struct client_worker *client = CONTAINER_OF(call->rig, struct client_worker, rig);
    count(client, done, call);
    infer_response_release(&done->response);
    arena_free(call->request.arena);
    call->request.arena = NULL;
    if (client->n_sent < PER_WORKER) {
        if (!client->refill_posted) {
            client->refill_posted = true;
            worker_post(client->worker, &client->refill_msg);
        }
    } else if (client->n_ok + client->n_full + client->n_cancelled + client->n_wrong ==
               PER_WORKER) {
        worker_stop(client->worker);
    }
}

static void send_next(struct client_worker *client, struct rig_call *slot) {
    size_t i = (size_t)(slot - client->rig.calls);
    struct rig_call *call = rig_make(&client->rig, i, 1, (float)client->n_sent);
    call->call.done = client_done;
    client->n_sent++;
    rig_submit(call);
    if (call->request.arena && next_random(client) % 8 == 0) {
        call_cancel(&call->call);
    }
}

static void *run_client(void *arg) {
    struct client_worker *client = arg;
    client->refill_msg.run = on_refill;
    client->refill_posted = true;
    worker_post(client->worker, &client->refill_msg);
    worker_run(client->worker);
    return NULL;
}

/* Some answers are sent later, from the thread that executes the next request. */
static void sometimes_slow(sluice_model *model, const sluice_request *request) {
    if (atomic_load(&model->n_started) % 16 == 0) {
        rig_pause();
    }
    rig_echo(model, request);
}

static void run_burst(enum model_run_on run_on, uint64_t n_instances, uint64_t max_queue) {
    static struct client_worker clients[WORKERS];
    static struct rig rig;
    struct model_config config = {.run_on = run_on, .instance_count = n_instances};
    pthread_t threads[WORKERS];
    struct error err;
    int n_answered = 0;
    rig_open(&rig, &config, max_queue);
    rig.model->handle_request = sometimes_slow;
    for (unsigned i = 0; i < WORKERS; i++) {
        memset(&clients[i], 0, sizeof(clients[i]));
        clients[i].prng = i;
        assert_int_equal(worker_new("crowd", &clients[i].worker, &err), ST_OK);
        clients[i].rig.version = rig.version;
        clients[i].rig.worker = clients[i].worker;
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(clients[i].n_wrong, 0);
        n_answered += clients[i].n_ok;
        worker_free(clients[i].worker);
    }
    assert_true(n_answered > 0);
    assert_true(atomic_load(&rig.model->n_released) >= n_answered);
    rig_await_unused(&rig);
    rig_close(&rig);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void burst_on_instances_completes_all_calls(void **state) {
    (void)state;
    run_burst(RUN_ON_INSTANCE, 2, 0);
}

static void burst_on_workers_and_instances_completes_all_calls(void **state) {
    (void)state;
    run_burst(RUN_ON_WORKER, 2, 0);
}

static void burst_auto_placement_completes_all_calls(void **state) {
    (void)state;
    run_burst(RUN_AUTO, 1, 0);
}

static void burst_short_queue_rejects_or_completes_all_calls(void **state) {
    (void)state;
    run_burst(RUN_ON_INSTANCE, 1, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_on_instances_completes_all_calls),
        cmocka_unit_test(burst_on_workers_and_instances_completes_all_calls),
        cmocka_unit_test(burst_auto_placement_completes_all_calls),
        cmocka_unit_test(burst_short_queue_rejects_or_completes_all_calls),
    };
    return cmocka_run_group_tests_name("serve/scheduler/queue_burst", tests, NULL, NULL);
}
