/* The steps of an inference with a protocol of the test's own: their order, what each error leaves,
 * and that nothing is held afterwards. */
#include "serve/frontend/client_inference.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/buf.h"
#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "serve/frontend/labels.h"
#include "serve/repository/test_rig.h"

enum { X_BYTES = RIG_WIDTH * sizeof(float), STEPS_BYTES = 200, WIDE_ROWS = 4096 };

static const struct model_config on_instance = {.run_on = RUN_ON_INSTANCE};
static const struct model_config decoupled = {.decoupled = true};
static const struct model_config decoupled_unbatched = {.decoupled = true,
                                                        .has_max_batch_size = true};

/* ---- a protocol ------------------------------------------------------------------------------ */

/* A request of one row of x, with a log of the steps that ran. */
static struct test_request {
    struct rig rig; /* first member: a step of the rig gets it */
    struct client_inference inference;
    struct inference_protocol protocol;
    struct inference_services services;
    struct memory_account *account; /* NULL: memory is not counted */
    struct infer_request request;
    struct infer_input input;
    struct infer_requested_output output;
    struct piece piece;
    int64_t dims[2];
    float x[RIG_WIDTH];
    struct param header;
    char steps[STEPS_BYTES];
    enum status decode_status, forward_status;
    bool cancels; /* right after inference_run */
    size_t n_params;
    int n_done;
    struct error error;
    char encoded[STEPS_BYTES];
} request;

static void log_step(const char *step) {
    size_t len = strlen(request.steps);
    (void)snprintf(request.steps + len, sizeof(request.steps) - len, "%s%s", len ? " " : "", step);
}

static struct trace *begin_trace(struct client_inference *inference, struct tracer *tracer) {
    (void)inference;
    (void)tracer;
    return NULL;
}

static enum status decode(struct client_inference *inference, struct error *err) {
    log_step("decode");
    inference->base.call.request = &request.request;
    return request.decode_status == ST_OK ? ST_OK
                                          : error_set(err, request.decode_status, "not decoded");
}

static enum status forward_headers(struct client_inference *inference, struct params *params,
                                   struct error *err) {
    (void)inference;
    log_step("forward");
    *params = (struct params){&request.header, 1};
    return request.forward_status == ST_OK
               ? ST_OK
               : error_set(err, request.forward_status, "not forwarded");
}

/* The first output's datatype, shape and number of bytes. */
static enum status encode(struct client_inference *inference, struct infer_response *response,
                          struct arena *arena, bool last, void *out, struct error *err) {
    char *text = out, shape[SHAPE_TEXT_BYTES];
    (void)inference;
    (void)arena;
    (void)err;
    log_step(last ? "encode" : "encode-partial");
    (void)snprintf(text, STEPS_BYTES, "none");
    if (response->n_outputs > 0) {
        const struct tensor *output = &response->outputs[0];
        (void)snprintf(text, STEPS_BYTES, "%s %s %zu", datatype_name(output->datatype),
                       shape_print(output->shape, shape), output->n_bytes);
    }
    return ST_OK;
}

static void respond(struct client_inference *inference, struct outgoing_response *outgoing) {
    if (!outgoing->last) {
        char text[STEPS_BYTES];
        struct error err;
        log_step("partial");
        assert_int_equal(client_inference_encode(outgoing, text, &err), ST_OK);
        outgoing_response_free(outgoing);
        return;
    }
    log_step("done");
    request.n_done++;
    if (client_inference_encode(outgoing, request.encoded, &request.error) == ST_OK) {
        request.error.status = ST_OK;
    }
    infer_response_release(&inference->base.call.response);
    client_inference_fini(inference, true);
    worker_stop(request.rig.worker);
}

static const struct inference_protocol test_protocol = {
    .carries_one = "the test carries one",
    .send_start = TRACE_HTTP_SEND_START,
    .send_end = TRACE_HTTP_SEND_END,
    .begin_trace = begin_trace,
    .decode = decode,
    .forward_headers = forward_headers,
    .encode = encode,
    .respond = respond,
};

/* ---- a request ------------------------------------------------------------------------------- */

static void note_params(sluice_model *model, const sluice_request *backend_request) {
    request.n_params = backend_request->n_params;
    rig_echo(model, backend_request);
}

static void open_request(const struct model_config *config) {
    struct error err;
    memset(&request, 0, sizeof(request));
    rig_open(&request.rig, config, 1);
    assert_int_equal(model_labels_load(request.rig.version, &err), ST_OK);
    request.rig.model->handle_request = note_params;
    request.protocol = test_protocol;
    request.header =
        (struct param){.name = STR("tenant"), .kind = PARAM_STRING, .string = STR("a")};
    request.dims[0] = 1;
    request.dims[1] = RIG_WIDTH;
    for (int i = 0; i < RIG_WIDTH; i++) {
        request.x[i] = (float)i;
    }
    request.piece = (struct piece){request.x, X_BYTES};
    request.input.tensor = (struct tensor){.name = STR("x"),
                                           .datatype = DT_FP32,
                                           .shape = {request.dims, 2},
                                           .pieces = &request.piece,
                                           .n_pieces = 1,
                                           .n_bytes = X_BYTES};
    request.request = (struct infer_request){
        .arena = arena_new(NULL, 0), .inputs = &request.input, .n_inputs = 1};
}

static void want_output(const char *name, uint64_t n_classes) {
    request.output = (struct infer_requested_output){.name = str_of(name), .n_classes = n_classes};
    request.request.wanted = &request.output;
    request.request.n_wanted = 1;
}

static void run_step(struct rig *rig) {
    struct client_inference *inference = &request.inference;
    memset(&inference->base.call, 0xa5,
           sizeof(inference->base.call)); /* inference_init may not rely on it */
    client_inference_init(inference, &request.protocol, &request.services, rig->worker,
                          request.account);
    inference->base.arena = request.request.arena;
    if (inference_use_version(&inference->base, rig->version, &request.error) != ST_OK) {
        client_inference_fini(inference, true);
        worker_stop(rig->worker);
        return;
    }
    inference_run(&inference->base);
    if (request.cancels) {
        inference_cancel(&inference->base);
        atomic_store(&rig->model->gate_closed, false);
    }
}

static void run_request(void) {
    rig_run(&request.rig, run_step, 1);
}

static void close_request(void) {
    rig_await_unused(&request.rig);
    rig_close(&request.rig);
    arena_free(request.request.arena);
    assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The successors of each state, as bits. */
static void inference_states_follow_table(void **state) {
    enum { N = INFERENCE_ANSWERED + 1 };
    static const unsigned before_scheduler =
        1U << INFERENCE_WAITING | 1U << INFERENCE_REFUSED | 1U << INFERENCE_RUNNING;
    static const unsigned successors[N] = {
        [INFERENCE_NEW] = before_scheduler | 1U << INFERENCE_QUEUED | 1U << INFERENCE_PREPARING,
        [INFERENCE_QUEUED] = before_scheduler | 1U << INFERENCE_PREPARING,
        [INFERENCE_PREPARING] = before_scheduler,
        [INFERENCE_WAITING] = 1U << INFERENCE_REFUSED | 1U << INFERENCE_RUNNING,
        [INFERENCE_RUNNING] = 1U << INFERENCE_ENCODING,
        [INFERENCE_ENCODING] = 1U << INFERENCE_ANSWERED,
    };
    (void)state;
    for (int from = 0; from < N; from++) {
        for (int to = 0; to < N; to++) {
            bool follows =
                inference_state_follows((enum inference_state)from, (enum inference_state)to);
            assert_int_equal(follows, successors[from] >> to & 1);
        }
    }
}

/* "Submitted" is every state from RUNNING on, and no other. */
static void inference_submitted_states_are_those_from_running(void **state) {
    struct client_inference inference;
    (void)state;
    for (int at = 0; at <= INFERENCE_ANSWERED; at++) {
        inference.base.state = (enum inference_state)at;
        bool expected =
            at == INFERENCE_RUNNING || at == INFERENCE_ENCODING || at == INFERENCE_ANSWERED;
        assert_int_equal(inference_was_submitted(&inference.base), expected);
    }
}

/* ---- the order of the steps ------------------------------------------------------------------ */

static void inference_of_good_request_runs_all_steps(void **state) {
    (void)state;
    open_request(&on_instance);
    run_request();
    assert_int_equal(request.error.status, ST_OK);
    assert_string_equal(request.steps, "decode forward done encode");
    assert_string_equal(request.encoded, "FP32 [1,4] 16");
    assert_int_equal(request.n_params, 1); /* the forwarded header */
    assert_int_equal(request.inference.base.state, INFERENCE_ANSWERED);
    close_request();
}

static void inference_without_headers_skips_forwarding(void **state) {
    (void)state;
    open_request(&on_instance);
    request.protocol.forward_headers = NULL;
    run_request();
    assert_string_equal(request.steps, "decode done encode");
    assert_int_equal(request.n_params, 0);
    close_request();
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void assert_refused(enum status status, const char *steps) {
    run_request();
    assert_int_equal(request.error.status, status);
    assert_string_equal(request.steps, steps);
    assert_int_equal(request.n_done, 1);
    assert_int_equal(request.inference.base.state, INFERENCE_REFUSED);
    assert_int_equal(atomic_load(&request.rig.model->n_started), 0);
    close_request();
}

static void inference_decode_error_is_response(void **state) {
    (void)state;
    open_request(&on_instance);
    request.decode_status = ST_BAD_JSON;
    assert_refused(ST_BAD_JSON, "decode done");
}

static void inference_header_error_is_response(void **state) {
    (void)state;
    open_request(&on_instance);
    request.forward_status = ST_BAD_FIELD;
    assert_refused(ST_BAD_FIELD, "decode forward done");
}

static void inference_bad_shape_is_refused_before_model(void **state) {
    (void)state;
    open_request(&on_instance);
    request.dims[1] = 2;
    assert_refused(ST_BAD_SHAPE, "decode forward done");
}

static void inference_unknown_output_is_refused(void **state) {
    (void)state;
    open_request(&on_instance);
    want_output("z", 1);
    assert_refused(ST_BAD_INPUTS, "decode forward done");
}

static void inference_models_error_is_response(void **state) {
    (void)state;
    open_request(&on_instance);
    version_stop(request.rig.version);
    run_request();
    assert_int_equal(request.error.status, ST_NOT_READY);
    assert_int_equal(request.inference.base.state, INFERENCE_ANSWERED);
    assert_string_equal(request.steps, "decode forward done");
    version_close(request.rig.version);
    arena_free(request.request.arena);
}

static void inference_cancelled_reports_once(void **state) {
    (void)state;
    open_request(&on_instance);
    atomic_store(&request.rig.model->gate_closed, true);
    request.cancels = true;
    run_request();
    assert_int_equal(request.n_done, 1);
    assert_int_equal(request.inference.base.state, INFERENCE_ANSWERED);
    inference_cancel(&request.inference.base); /* no effect after `done` */
    close_request();
}

/* ---- decoupled models ------------------------------------------------------------------------ */

static void answer_twice(sluice_model *model, const sluice_request *backend_request) {
    rig_answer(model, backend_request, 0);
    rig_answer(model, backend_request, 1);
}

static void inference_decoupled_model_is_refused_where_one_is_carried(void **state) {
    (void)state;
    open_request(&decoupled);
    run_request();
    assert_int_equal(request.error.status, ST_UNSUPPORTED);
    assert_string_equal(request.error.text,
                        "model \"m\" is decoupled: it gives any number of answers, and the test "
                        "carries one");
    assert_string_equal(request.steps, "");
    close_request();
}

static void inference_decoupled_model_gives_each_response(void **state) {
    (void)state;
    open_request(&decoupled);
    request.rig.model->handle_request = answer_twice;
    request.protocol.carries_one = NULL;
    run_request();
    assert_int_equal(request.error.status, ST_OK);
    assert_string_equal(request.steps, "decode forward partial encode-partial done encode");
    close_request();
}

static void widen(sluice_response *response, sluice_output *outputs, int64_t *dims) {
    static const float wide[WIDE_ROWS * RIG_WIDTH];
    (void)response;
    dims[0] = WIDE_ROWS;
    outputs[0].data = wide;
    outputs[0].n_bytes = sizeof(wide);
}

/* A large response, a small one, and the last. */
static void answer_large_first(sluice_model *model, const sluice_request *backend_request) {
    model->corrupt_response = widen;
    rig_answer(model, backend_request, 0);
    model->corrupt_response = NULL;
    rig_answer(model, backend_request, 0);
    rig_answer(model, backend_request, 1);
}

static uint64_t encode_ns_of_large(const struct client_inference *inference,
                                   const struct infer_response *response) {
    (void)inference;
    (void)response;
    return HELPER_MIN_NS;
}

/* A helper thread encodes the large one meanwhile. */
static void inference_responses_after_large_one_wait_for_it(void **state) {
    struct error err;
    (void)state;
    open_request(&decoupled_unbatched);
    assert_int_equal(helper_pool_new(1, &request.services.helpers, &err), ST_OK);
    want_output("y", 0);
    request.rig.model->handle_request = answer_large_first;
    request.protocol.carries_one = NULL;
    request.protocol.encode_ns = encode_ns_of_large;
    request.protocol.encoded_bytes = STEPS_BYTES;
    run_request();
    assert_int_equal(request.error.status, ST_OK);
    assert_string_equal(request.steps,
                        "decode forward encode-partial partial partial encode-partial done encode");
    helper_pool_free(request.services.helpers);
    close_request();
}

/* ---- what the steps do ----------------------------------------------------------------------- */

static void inference_class_output_is_replaced(void **state) {
    (void)state;
    open_request(&on_instance);
    want_output("y", 2);
    run_request();
    assert_int_equal(request.error.status, ST_OK);
    assert_string_equal(request.encoded, "BYTES [1,2] 28"); /* "3.000000:3" and "2.000000:2" */
    close_request();
}

static void inference_misaligned_input_is_copied(void **state) {
    _Alignas(uint64_t) char bytes[X_BYTES + 1];
    (void)state;
    int64_t before = metric_read(METRIC_MISALIGNED_TOTAL);
    open_request(&on_instance);
    memcpy(bytes + 1, request.x, X_BYTES);
    request.piece = (struct piece){bytes + 1, X_BYTES};
    run_request();
    assert_int_equal(request.error.status, ST_OK);
    assert_int_equal(metric_read(METRIC_MISALIGNED_TOTAL), before + 1);
    close_request();
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* A region "r" of `n_bytes`, in an object of this process. */
static int open_region(struct shm_registry *registry, const char *key, size_t n_bytes) {
    struct error err;
    int fd = shm_open(key, O_CREAT | O_EXCL | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
    struct v2_shared_memory_region spec = {
        .name = STR("r"), .key = str_of(key), .n_bytes = n_bytes};
    assert_int_equal(shm_register_region(registry, &spec, &err), ST_OK);
    return fd;
}

static void inference_tensors_in_shared_memory_are_copied(void **state) {
    char key[64];
    float y[RIG_WIDTH] = {0};
    (void)state;
    struct net_budget budget = {.body_memory = 1 << 20};
    struct shm_registry_options options = {.allow_client_shm = true, .budget = &budget};
    (void)snprintf(key, sizeof(key), "/sluice-inference-test-%ld", (long)getpid());
    open_request(&on_instance);
    request.services.shared = shm_registry_new(&options);
    int fd = open_region(request.services.shared, key, (size_t)X_BYTES * 2);
    assert_int_equal(pwrite(fd, request.x, X_BYTES, 0), X_BYTES);
    request.input.region = (struct infer_region){STR("r"), 0, X_BYTES};
    request.input.tensor.n_pieces = 0;
    request.input.tensor.n_bytes = 0;
    want_output("y", 0);
    request.output.region = (struct infer_region){STR("r"), X_BYTES, X_BYTES};
    run_request();
    assert_int_equal(request.error.status, ST_OK);
    assert_string_equal(request.encoded, "FP32 [1,4] 0"); /* no bytes in the response */
    assert_int_equal(pread(fd, y, X_BYTES, X_BYTES), X_BYTES);
    assert_memory_equal(y, request.x, X_BYTES);
    shm_unlink(key);
    close(fd);
    shm_registry_free(request.services.shared);
    close_request();
}

static void inference_unknown_region_is_refused(void **state) {
    (void)state;
    struct net_budget budget = {.body_memory = 1 << 20};
    struct shm_registry_options options = {.allow_client_shm = true, .budget = &budget};
    open_request(&on_instance);
    request.services.shared = shm_registry_new(&options);
    request.input.region = (struct infer_region){STR("r"), 0, X_BYTES};
    assert_refused(ST_NOT_FOUND, "decode forward done");
    shm_registry_free(request.services.shared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_states_follow_table),
        cmocka_unit_test(inference_submitted_states_are_those_from_running),
        cmocka_unit_test(inference_of_good_request_runs_all_steps),
        cmocka_unit_test(inference_without_headers_skips_forwarding),
        cmocka_unit_test(inference_decode_error_is_response),
        cmocka_unit_test(inference_header_error_is_response),
        cmocka_unit_test(inference_bad_shape_is_refused_before_model),
        cmocka_unit_test(inference_unknown_output_is_refused),
        cmocka_unit_test(inference_models_error_is_response),
        cmocka_unit_test(inference_cancelled_reports_once),
        cmocka_unit_test(inference_decoupled_model_is_refused_where_one_is_carried),
        cmocka_unit_test(inference_decoupled_model_gives_each_response),
        cmocka_unit_test(inference_responses_after_large_one_wait_for_it),
        cmocka_unit_test(inference_class_output_is_replaced),
        cmocka_unit_test(inference_misaligned_input_is_copied),
        cmocka_unit_test(inference_tensors_in_shared_memory_are_copied),
        cmocka_unit_test(inference_unknown_region_is_refused),
    };
    return cmocka_run_group_tests_name("serve/frontend/client_inference", tests, NULL, NULL);
}
