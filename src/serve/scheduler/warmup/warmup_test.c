/* Warm-up samples: their contents, that every instance runs them before any client's request, and
 * that a failed sample fails the load. */
#include "serve/scheduler/warmup/warmup.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/tensor/float16.h"
#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"

static const int64_t four[] = {RIG_WIDTH}, five[] = {RIG_WIDTH + 1};

static const struct model_warmup_input zeros[] = {
    {.name = STR("x"), .datatype = DT_FP32, .dims = {four, 1}, .data = WARMUP_ZERO}};
static const struct model_warmup_input noise[] = {
    {.name = STR("x"), .datatype = DT_FP32, .dims = {four, 1}, .data = WARMUP_RANDOM}};
static const struct model_warmup_input file[] = {{.name = STR("x"),
                                                  .datatype = DT_FP32,
                                                  .dims = {four, 1},
                                                  .data = WARMUP_FILE,
                                                  .filename = STR("x.bin")}};

/* ---- running --------------------------------------------------------------------------------- */

/* What the backend received: requests and their instances. */
struct seen {
    int n;
    uint64_t rows[16];
    float first[16], last[16];
    const sluice_instance *instances[16];
};

static struct seen seen;

static void see(const sluice_instance *instance, const sluice_request *request) {
    const sluice_input *x = &request->inputs[0];
    assert_true(seen.n < 16);
    assert_int_equal(x->n_bytes, request->batch * RIG_WIDTH * sizeof(float));
    seen.rows[seen.n] = request->batch;
    seen.first[seen.n] = *(const float *)x->pieces[0].data;
    const sluice_piece *last = &x->pieces[x->n_pieces - 1];
    seen.last[seen.n] = ((const float *)last->data)[last->n_bytes / sizeof(float) - 1];
    seen.instances[seen.n++] = instance;
}

static void see_and_echo(sluice_instance *instance, const sluice_request *const *requests,
                         size_t n) {
    assert_int_equal(n, 1);
    see(instance, requests[0]);
    rig_echo(instance->model, requests[0]);
}

static void *echo_later(void *arg) {
    const sluice_request *request = arg;
    rig_pause();
    rig_answer(seen.instances[0]->model, request, 1);
    return NULL;
}

static void see_and_echo_later(sluice_instance *instance, const sluice_request *const *requests,
                               size_t n) {
    pthread_t thread;
    assert_int_equal(n, 1);
    see(instance, requests[0]);
    assert_int_equal(pthread_create(&thread, NULL, echo_later, (void *)(uintptr_t)requests[0]), 0);
    pthread_detach(thread);
}

static void refuse_the_second(sluice_instance *instance, const sluice_request *const *requests,
                              size_t n) {
    assert_int_equal(n, 1);
    see(instance, requests[0]);
    if (seen.n == 2) {
        sluice_response response = {.size = sizeof(response),
                                    .status = SLUICE_INTERNAL,
                                    .error = "no kernel for this shape",
                                    .final = 1};
        backend_host()->respond(requests[0], &response);
        return;
    }
    rig_echo(instance->model, requests[0]);
}

typedef void (*execute_fn)(sluice_instance *, const sluice_request *const *, size_t);

static sluice_backend backend_with(execute_fn execute) {
    sluice_backend backend = rig_backend;
    backend.execute = execute;
    seen = (struct seen){0};
    return backend;
}

static const struct model_warmup two_samples[] = {
    {.name = STR("one"), .batch_size = 2, .count = 2, .inputs = zeros, .n_inputs = 1},
    {.name = STR("two"), .batch_size = 1, .count = 1, .inputs = noise, .n_inputs = 1},
};
static const struct model_config two_instances = {.latest_count = 1,
                                                  .instance_count = 2,
                                                  .preserve_ordering = true,
                                                  .warmups = two_samples,
                                                  .n_warmups = 2};

static void warmup_every_instance_runs_every_sample(void **state) {
    (void)state;
    static struct rig rig;
    static const execute_fn executes[] = {see_and_echo, see_and_echo_later};
    for (size_t k = 0; k < 2; k++) {
        sluice_backend backend = backend_with(executes[k]);
        struct error err;
        struct model_statistics counted;
        assert_int_equal(rig_open_with(&rig, &backend, &two_instances, 0, &err), ST_OK);
        assert_int_equal(seen.n, 6);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(seen.rows[i], i < 4 ? 2 : 1);
            assert_true(i < 4 ? seen.first[i] == 0 : seen.first[i] > 0 && seen.first[i] < 1);
            assert_ptr_equal(seen.instances[i], seen.instances[i % 2]);
        }
        assert_ptr_not_equal(seen.instances[0], seen.instances[1]);
        model_version_statistics(rig.version, &counted);
        assert_int_equal(counted.n_executions + counted.success.count + counted.fail.count, 0);
        rig_close(&rig);
        assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
        assert_int_equal(metric_read(METRIC_ARENAS), 0);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

struct failure {
    struct model_warmup sample;
    const char *says;
};

static const int64_t huge[] = {INT64_MAX / 2, 4}, large[] = {INT64_C(1) << 40};
static const struct model_warmup_input unknown[] = {
    {.name = STR("z"), .datatype = DT_FP32, .dims = {four, 1}}};
static const struct model_warmup_input wide[] = {
    {.name = STR("x"), .datatype = DT_FP32, .dims = {five, 1}}};
static const struct model_warmup_input whole_numbers[] = {
    {.name = STR("x"), .datatype = DT_INT32, .dims = {four, 1}}};
static const struct model_warmup_input too_many[] = {
    {.name = STR("x"), .datatype = DT_FP32, .dims = {huge, 2}}};
static const struct model_warmup_input too_large[] = {
    {.name = STR("x"), .datatype = DT_FP32, .dims = {large, 1}}};

static const struct failure failures[] = {
    {{.batch_size = 1, .inputs = unknown, .n_inputs = 1}, "'z'"},
    {{.batch_size = 1, .inputs = wide, .n_inputs = 1}, "[1,5]"},
    {{.batch_size = 1, .inputs = whole_numbers, .n_inputs = 1}, "INT32"},
    {{.batch_size = 1, .n_inputs = 0}, "['x']"},
    {{.batch_size = RIG_ROWS_MAX + 1, .inputs = zeros, .n_inputs = 1}, "the model takes 8"},
    {{.batch_size = 1, .inputs = too_many, .n_inputs = 1}, "too many elements"},
    {{.batch_size = 1, .inputs = too_large, .n_inputs = 1}, "1 GiB"},
    {{.batch_size = 1, .inputs = file, .n_inputs = 1}, "/warmup/x.bin"},
    {{.batch_size = 1, .inputs = zeros, .n_inputs = 1}, "on instance 1: no kernel for this shape"},
};

static void warmup_failing_sample_fails_load(void **state) {
    (void)state;
    static struct rig rig;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        sluice_backend backend = backend_with(refuse_the_second);
        struct model_warmup sample = failures[i].sample;
        struct model_config config = {
            .latest_count = 1, .instance_count = 2, .warmups = &sample, .n_warmups = 1};
        struct error err = {.text = ""};
        sample.name = STR("first");
        sample.count = 1;
        assert_int_not_equal(rig_open_with(&rig, &backend, &config, 0, &err), ST_OK);
        if (!strstr(err.text, failures[i].says) || !strstr(err.text, "model_warmup \"first\"")) {
            fail_msg("row %zu: %s", i, err.text);
        }
        assert_int_equal(metric_read(METRIC_OUTPUTS_HELD), 0);
        assert_int_equal(metric_read(METRIC_ARENAS), 0);
    }
}

/* ---- samples from files ---------------------------------------------------------------------- */

static const struct infer_input *make(struct arena *arena, const struct test_dir *dir,
                                      const struct model_warmup_input *input, uint64_t batch_size,
                                      uint64_t max_batch_size, struct error *err) {
    struct model_warmup sample = {
        .batch_size = batch_size, .count = 1, .inputs = input, .n_inputs = 1};
    struct warmup_target target = {.directory = str_of(dir->path),
                                   .max_batch_size = max_batch_size};
    struct infer_input *inputs = NULL;
    enum status st = warmup_sample_make(arena, &sample, &target, &inputs, err);
    return st == ST_OK ? inputs : NULL;
}

static void warmup_sample_file_is_one_row_or_all(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct test_dir dir;
    struct error err;
    test_dir_make(&dir);
    test_dir_add(&dir, "warmup/x.bin", "0123456789abcdef"); /* four floats */
    const struct infer_input *x = make(arena, &dir, file, 3, 8, &err);
    assert_non_null(x);
    assert_int_equal(x->tensor.shape.rank, 2);
    assert_int_equal(x->tensor.shape.dims[0], 3);
    assert_int_equal(x->tensor.n_bytes, 48);
    assert_int_equal(x->tensor.n_pieces, 3);
    assert_memory_equal(x->tensor.pieces[2].data, "0123456789abcdef", 16);
    x = make(arena, &dir, file, 1, 0, &err); /* a model that does not batch */
    assert_int_equal(x->tensor.shape.rank, 1);
    test_dir_add(&dir, "warmup/x.bin", "0123456789abcdefABCDEFGHIJKLMNOP");
    x = make(arena, &dir, file, 2, 8, &err);
    assert_non_null(x);
    assert_int_equal(x->tensor.n_pieces, 1);
    assert_int_equal(x->tensor.n_bytes, 32);
    assert_null(make(arena, &dir, file, 3, 8, &err));
    assert_non_null(strstr(err.text, "x.bin has 32 bytes; expected 16, for one row"));
    test_dir_remove(&dir);
    arena_free(arena);
}

static void warmup_sample_bytes_file_is_length_prefixed(void **state) {
    (void)state;
    static const int64_t two[] = {2};
    static const struct model_warmup_input text[] = {{.name = STR("x"),
                                                      .datatype = DT_BYTES,
                                                      .dims = {two, 1},
                                                      .data = WARMUP_FILE,
                                                      .filename = STR("t")}};
    struct arena *arena = arena_new(NULL, 0);
    struct test_dir dir;
    struct error err;
    char path[PATH_MAX];
    test_dir_make(&dir);
    test_dir_add(&dir, "warmup/t", "");
    FILE *out = fopen(test_dir_path(&dir, "warmup/t", path), "w");
    assert_non_null(out);
    assert_int_equal(fwrite("\2\0\0\0hi\0\0\0\0", 1, 10, out), 10);
    fclose(out);
    const struct infer_input *x = make(arena, &dir, text, 4, 8, &err);
    assert_non_null(x);
    assert_int_equal(x->tensor.n_pieces, 4);
    assert_int_equal(x->tensor.n_bytes, 40);
    test_dir_remove(&dir);
    arena_free(arena);
}

/* ---- generated samples ----------------------------------------------------------------------- */

static double value_of(enum datatype datatype, const void *at) {
    uint64_t bits = 0;
    double number;
    float single;
    memcpy(&bits, at, datatype_size(datatype));
    memcpy(&number, &bits, sizeof(number));
    memcpy(&single, &bits, sizeof(single));
    return datatype == DT_FP64   ? number
           : datatype == DT_FP32 ? (double)single
           : datatype == DT_FP16 ? (double)half_to_float((uint16_t)bits)
           : datatype == DT_BF16 ? (double)bfloat_to_float((uint16_t)bits)
                                 : (double)bits;
}

static void warmup_sample_random_values_are_in_range(void **state) {
    (void)state;
    static const int64_t dims[] = {1000};
    struct test_dir dir = {.path = ""};
    struct error err;
    for (int d = DT_INVALID + 1; d < DT_COUNT_; d++) {
        enum datatype datatype = (enum datatype)d;
        struct arena *arena = arena_new(NULL, 0);
        struct model_warmup_input input = {
            .name = STR("x"), .datatype = datatype, .dims = {dims, 1}, .data = WARMUP_RANDOM};
        const struct infer_input *x = make(arena, &dir, &input, 1, 0, &err);
        size_t size = datatype_size(datatype);
        double top = datatype == DT_BOOL || datatype_is_float(datatype) ? 1 : 127, most = 0;
        assert_non_null(x);
        assert_int_equal(x->tensor.n_bytes, 1000 * (size > 0 ? size : 4));
        for (size_t i = 0; size > 0 && i < 1000; i++) {
            double value = value_of(datatype, (const char *)x->tensor.pieces[0].data + i * size);
            assert_true(value >= 0 && value <= top);
            most = value > most ? value : most;
        }
        assert_true(size == 0 || most > top / 2);
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warmup_every_instance_runs_every_sample),
        cmocka_unit_test(warmup_failing_sample_fails_load),
        cmocka_unit_test(warmup_sample_file_is_one_row_or_all),
        cmocka_unit_test(warmup_sample_bytes_file_is_length_prefixed),
        cmocka_unit_test(warmup_sample_random_values_are_in_range),
    };
    return cmocka_run_group_tests_name("serve/scheduler/warmup/warmup", tests, NULL, NULL);
}
