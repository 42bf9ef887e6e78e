/* Ensembles under load: many inferences on two workers while a member is reloaded and unloaded and
 * inferences are cancelled. Each of them ends, with the values of its members or with an error that
 * says why, and nothing is held afterwards. */
#include "serve/ensemble/ensemble.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/base/random.h"
#include "serve/inference/inner.h"
#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"

/* Inferences of each worker at a time, and all of them: SLUICE_STRESS sets another number. */
enum { N_WORKERS = 2, WINDOW = 64, N_INFERENCES = 6000, TEXT_BYTES = 1024 };

/* One inference; it is started again and again. */
struct slot {
    struct client *client;
    struct inner_inference *inference;
    struct infer_input input;
    struct piece piece;
    int64_t dims[2];
    float x[RIG_WIDTH];
};

/* All of it on its worker. */
struct client {
    struct worker *worker;
    struct slot slots[WINDOW];
    struct prng prng;
    size_t n_started, n_ended;
    size_t n_good, n_cancelled, n_not_ready, n_others;
    size_t n_wrong;
    char other[ERROR_TEXT_BYTES]; /* an error that is not expected */
    atomic_bool done;
};

static struct test {
    struct test_dir dir;
    const sluice_backend *builtin[2];
    struct repository *repository;
    struct worker *workers[N_WORKERS];
    struct client clients[N_WORKERS];
    struct inner_services services;
    size_t n_inferences; /* of each client */
} test;

/* ---- the models ------------------------------------------------------------------------------ */

static const char MEMBER[] = "# %u\nbackend: \"fake\" max_batch_size: 8 parameters: { key: "
                             "\"sluice.run_on\" value: { string_value: \"%s\" } }";
/* m ─→ n and k ─→ m: both branches have the bytes of the request, which identities hand on. */
static const char DIAMOND[] = "platform: \"ensemble\" max_batch_size: 8\n"
                              "input { name: \"IN\" data_type: TYPE_FP32 dims: 4 }\n"
                              "output [ { name: \"LEFT\" data_type: TYPE_FP32 dims: 4 }, "
                              "{ name: \"RIGHT\" data_type: TYPE_FP32 dims: 4 } ]\n"
                              "ensemble_scheduling { %s\n"
                              "step { model_name: \"m\" input_map { key: \"x\" value: \"IN\" } "
                              "output_map { key: \"y\" value: \"mid\" } }\n"
                              "step { model_name: \"n\" input_map { key: \"x\" value: \"mid\" } "
                              "output_map { key: \"y\" value: \"LEFT\" } }\n"
                              "step { model_name: \"k\" input_map { key: \"x\" value: \"mid\" } "
                              "output_map { key: \"y\" value: \"b\" } }\n"
                              "step { model_name: \"m\" input_map { key: \"x\" value: \"b\" } "
                              "output_map { key: \"y\" value: \"RIGHT\" } } }\n";

static void add_file(const char *name, const char *file, const char *text) {
    char path[64];
    (void)snprintf(path, sizeof(path), "r/%s/%s", name, file);
    test_dir_add(&test.dir, path, text);
}

static const struct member {
    const char *name, *run_on;
} members[] = {{"m", "worker"}, {"n", "instance"}, {"k", "auto"}};

enum { N_MEMBERS = sizeof(members) / sizeof(members[0]) };

/* Another number makes another file, which is loaded again. */
static void write_config(const struct member *member, unsigned number) {
    char text[TEXT_BYTES];
    (void)snprintf(text, sizeof(text), MEMBER, number, member->run_on);
    add_file(member->name, "config.pbtxt", text);
}

static void note_loaded(void *user) {
    atomic_store((atomic_bool *)user, true);
}

static void open_server(const char *scheduling) {
    struct error err;
    char path[PATH_MAX], text[TEXT_BYTES];
    atomic_bool loaded = false;
    const char *number = getenv("SLUICE_STRESS");
    memset(&test, 0, sizeof(test));
    test.n_inferences = (number ? strtoul(number, NULL, 10) : N_INFERENCES) / N_WORKERS;
    test_dir_make(&test.dir);
    for (size_t i = 0; i < N_MEMBERS; i++) {
        add_file(members[i].name, "1/model.fake", "x");
        write_config(&members[i], 0);
    }
    (void)snprintf(text, sizeof(text), DIAMOND, scheduling);
    add_file("diamond", "1/empty", "");
    add_file("diamond", "config.pbtxt", text);
    test.builtin[0] = &rig_backend;
    test.builtin[1] = &ensemble_backend;
    for (size_t i = 0; i < N_WORKERS; i++) {
        assert_int_equal(worker_new("test", &test.workers[i], &err), ST_OK);
        assert_int_equal(worker_start(test.workers[i], &err), ST_OK);
    }
    const char *const directories[] = {test_dir_path(&test.dir, "r", path)};
    const char *all = "*";
    struct repository_options options = {.model_repositories = directories,
                                         .n_model_repositories = 1,
                                         .builtin = test.builtin,
                                         .n_builtin = 2,
                                         .ensemble_ops = &ensemble_ops,
                                         .default_max_batch_size = 8,
                                         .model_control_mode = REPOSITORY_EXPLICIT,
                                         .load_models = &all,
                                         .n_load_models = 1,
                                         .model_load_thread_count = 1,
                                         .workers = test.workers,
                                         .n_workers = N_WORKERS};
    assert_int_equal(helper_pool_new(2, &test.services.helpers, &err), ST_OK);
    if (repository_new(&options, &test.repository, &err) != ST_OK ||
        repository_scan(test.repository, &err) != ST_OK ||
        repository_load_start(test.repository, note_loaded, &loaded, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    while (!atomic_load(&loaded)) {
        rig_pause();
    }
    test.services.repository = test.repository;
}

static void close_server(void) {
    repository_drain(test.repository);
    for (size_t i = 0; i < N_WORKERS; i++) {
        worker_stop(test.workers[i]);
        worker_join(test.workers[i]);
    }
    repository_stop(test.repository);
    repository_free(test.repository);
    helper_pool_free(test.services.helpers);
    for (size_t i = 0; i < N_WORKERS; i++) {
        worker_free(test.workers[i]);
    }
    test_dir_remove(&test.dir);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

/* ---- inferences ------------------------------------------------------------------------------ */

static void start_next(struct slot *slot);

static bool is_right(const struct slot *slot, const struct infer_response *response) {
    bool right = response->n_outputs == 2;
    for (size_t i = 0; right && i < 2; i++) {
        right = response->outputs[i].n_bytes == sizeof(slot->x) &&
                memcmp(response->outputs[i].pieces[0].data, slot->x, sizeof(slot->x)) == 0;
    }
    return right;
}

static void count(struct slot *slot, const struct infer_response *response) {
    struct client *client = slot->client;
    const struct error *err = &response->error;
    client->n_good += err->status == ST_OK;
    client->n_cancelled += err->status == ST_CANCELLED;
    client->n_not_ready += err->status == ST_NOT_READY;
    client->n_wrong += err->status == ST_OK && !is_right(slot, response);
    if (err->status != ST_OK && err->status != ST_CANCELLED && err->status != ST_NOT_READY) {
        client->n_others++;
        memcpy(client->other, err->text, sizeof(client->other));
    }
}

/* The slot is used again by a message, as it is within the inference's own functions. */
struct next {
    struct worker_msg msg;
    struct slot *slot;
};

static void on_next(struct worker_msg *msg) {
    struct next *next = CONTAINER_OF(msg, struct next, msg);
    struct slot *slot = next->slot;
    free(next);
    start_next(slot);
}

static void respond(struct inner_response *response, void *user) {
    struct slot *slot = user;
    struct client *client = slot->client;
    struct next *next = malloc(sizeof(*next));
    assert_non_null(next);
    count(slot, response->response);
    client->n_ended++;
    if (response->response->error.status == ST_NOT_READY) { /* it does not count */
        client->n_started--;
        client->n_ended--;
        rig_pause();
    }
    inner_response_release(response);
    *next = (struct next){.msg = {.run = on_next}, .slot = slot};
    worker_post(client->worker, &next->msg);
}

static void start_next(struct slot *slot) {
    struct client *client = slot->client;
    struct error err;
    if (slot->inference) {
        inner_inference_unref(slot->inference);
        slot->inference = NULL;
    }
    if (client->n_started == test.n_inferences) {
        atomic_store(&client->done, client->n_ended == client->n_started);
        return;
    }
    slot->x[0] = (float)client->n_started++;
    struct inner_options options = {.services = &test.services,
                                    .worker = client->worker,
                                    .model = STR("diamond"),
                                    .inputs = &slot->input,
                                    .n_inputs = 1,
                                    .respond = respond,
                                    .user = slot};
    if (inner_inference_new(&options, &slot->inference, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    inner_inference_start(slot->inference);
    if (prng_next(&client->prng) % 4 == 0) {
        const struct slot *other = &client->slots[prng_next(&client->prng) % WINDOW];
        if (other->inference) {
            inner_inference_cancel(other->inference);
        }
    }
}

static void start_client(void *arg) {
    struct client *client = arg;
    for (size_t i = 0; i < WINDOW; i++) {
        struct slot *slot = &client->slots[i];
        slot->client = client;
        slot->dims[0] = 1;
        slot->dims[1] = RIG_WIDTH;
        slot->piece = (struct piece){slot->x, sizeof(slot->x)};
        slot->input.tensor = (struct tensor){.name = STR("IN"),
                                             .datatype = DT_FP32,
                                             .shape = {slot->dims, 2},
                                             .pieces = &slot->piece,
                                             .n_pieces = 1,
                                             .n_bytes = sizeof(slot->x)};
        start_next(slot);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

struct changing {
    struct repository_change change;
    atomic_bool done;
};

static void on_changed(struct repository_change *change) {
    atomic_store(&CONTAINER_OF(change, struct changing, change)->done, true);
}

static void change(enum repository_action action, const char *model) {
    struct changing changing = {.change = {.action = action,
                                           .model = str_of(model),
                                           .worker = test.workers[0],
                                           .done = on_changed}};
    repository_change(test.repository, &changing.change);
    while (!atomic_load(&changing.done)) {
        rig_pause();
    }
    assert_int_equal(changing.change.error.status, ST_OK);
}

static bool is_done(void) {
    bool done = true;
    for (size_t i = 0; i < N_WORKERS; i++) {
        done = done && atomic_load(&test.clients[i].done);
    }
    return done;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Members are reloaded, and now and then away for a moment. */
static void run_clients(void) {
    for (size_t i = 0; i < N_WORKERS; i++) {
        test.clients[i].worker = test.workers[i];
        test.clients[i].prng.state = i + 1;
        worker_call(test.workers[i], start_client, &test.clients[i]);
    }
    for (unsigned i = 1; !is_done(); i++) {
        const struct member *member = &members[i % N_MEMBERS];
        if (i % 7 == 0) {
            change(REPOSITORY_UNLOAD, member->name);
        }
        write_config(member, i);
        change(REPOSITORY_LOAD, member->name);
        for (int j = 0; j < 10 && !is_done(); j++) {
            rig_pause();
        }
    }
}

static void assert_results(void) {
    size_t n_good = 0;
    for (size_t i = 0; i < N_WORKERS; i++) {
        const struct client *client = &test.clients[i];
        assert_int_equal(client->n_wrong, 0);
        if (client->n_others > 0) {
            fail_msg("%zu: %s", client->n_others, client->other);
        }
        assert_int_equal(client->n_good + client->n_cancelled, test.n_inferences);
        n_good += client->n_good;
        print_message("worker %zu: %zu good, %zu cancelled, %zu while a member was away\n", i,
                      client->n_good, client->n_cancelled, client->n_not_ready);
    }
    assert_true(n_good > 0);
}

static void ensembles_under_load_with_cancels_and_reloads_end_right(void **state) {
    (void)state;
    open_server("");
    run_clients();
    close_server();
    assert_results();
}

static void ensembles_with_few_places_for_a_step_end_right(void **state) {
    (void)state;
    open_server("max_inflight_requests: 2");
    run_clients();
    close_server();
    assert_results();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ensembles_under_load_with_cancels_and_reloads_end_right),
        cmocka_unit_test(ensembles_with_few_places_for_a_step_end_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
