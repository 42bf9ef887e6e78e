/* Rules of the backend interface that every backend must keep, observed from outside. Uses identity
 * models only (tests/models/make.py), which every backend can have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include <cmocka.h>

#include "test_request.h"
#include "under_test.h"

enum { COLUMNS = 4 };

/* A request to the FP32 identity model, with rows that count up from `first`. */
static void ask_rows(struct test_request *test_request, uint64_t n_rows, float first) {
    float values[64 * COLUMNS];
    int64_t dims[] = {(int64_t)n_rows, COLUMNS};
    for (size_t i = 0; i < n_rows * COLUMNS; i++) {
        values[i] = first + (float)i;
    }
    test_request_init(test_request, n_rows);
    test_request_add_input(test_request, 0, "x", SLUICE_FP32, dims, 2, values,
                           n_rows * COLUMNS * sizeof(float));
    test_request_want_output(test_request, 0);
}

static void check_rows(const struct test_response *response_kept, uint64_t n_rows, float first) {
    assert_int_equal(response_kept->n_outputs, 1);
    assert_int_equal(response_kept->outputs[0].datatype, SLUICE_FP32);
    assert_int_equal(response_kept->outputs[0].rank, 2);
    assert_int_equal(response_kept->outputs[0].dims[0], n_rows);
    assert_int_equal(response_kept->outputs[0].dims[1], COLUMNS);
    const float *values = response_kept->outputs[0].data;
    for (size_t i = 0; i < n_rows * COLUMNS; i++) {
        assert_true(values[i] == first + (float)i);
    }
}

static void execute_one(struct opened_model *opened, struct test_request *test_request) {
    const sluice_request *requests[] = {&test_request->request};
    opened->backend->execute(opened->instances[0], requests, 1);
}

static void backend_table_is_complete(void **state) {
    const struct backend_under_test *subject = *state;
    const sluice_backend *backend = subject->backend;
    assert_true(backend->size >= sizeof(*backend));
    assert_int_equal(backend->abi, SLUICE_BACKEND_ABI);
    assert_string_equal(backend->name, subject->name);
    assert_true(backend->version && backend->version[0]);
    assert_non_null(backend->extensions);
    for (size_t i = 0; backend->extensions[i]; i++) {
        assert_int_equal(backend->extensions[i][0], '.');
    }
    assert_true(backend->model_open && backend->model_describe && backend->model_close);
    assert_true(backend->instance_open && backend->instance_close && backend->execute);
}

static void backend_entry_other_abi_is_refused(void **state) {
    const struct backend_under_test *subject = *state;
    sluice_host newer = *host_get(), smaller = *host_get();
    newer.abi = SLUICE_BACKEND_ABI + 1;
    smaller.size = offsetof(sluice_host, now_ns);
    host_log_clear();
    assert_null(subject->entry(&newer));
    assert_int_equal(host_log_count(SLUICE_LOG_ERROR), 1);
    assert_null(subject->entry(&smaller));
    assert_int_equal(host_log_count(SLUICE_LOG_ERROR), 2);
    assert_true(host_log_has("ABI"));
}

static void backend_open_close_without_requests(void **state) {
    struct opened_model opened;
    for (size_t n = 0; n <= OPEN_MAX_INSTANCES; n += 2) {
        opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), NULL, NULL, n);
        opened_model_fini(&opened);
    }
}

static void backend_unknown_parameter_logs_warning(void **state) {
    struct opened_model opened;
    host_log_clear();
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), "no_such_key", "1", 1);
    assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 1);
    assert_true(host_log_has("no_such_key"));
    opened_model_fini(&opened);
    host_log_clear();
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), "sluice.run_on", "worker",
                      1);
    assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 0); /* a parameter of the server */
    opened_model_fini(&opened);
}

static void backend_one_request_echoes(void **state) {
    const struct backend_under_test *subject = *state;
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, subject, test_identity_model(SLUICE_FP32), NULL, NULL, 1);
    ask_rows(&test_request, 3, 1);
    execute_one(&opened, &test_request);
    const struct test_response *response_kept = test_request_expect_ok(&test_request);
    check_rows(response_kept, 3, 1);
    if (subject->in_place) {
        assert_ptr_equal(response_kept->outputs[0].data, test_request.pieces[0][0].data);
    }
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

static void backend_zero_rows_echoes(void **state) {
    struct opened_model opened;
    struct test_request test_request;
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), NULL, NULL, 1);
    ask_rows(&test_request, 0, 1);
    execute_one(&opened, &test_request);
    check_rows(test_request_expect_ok(&test_request), 0, 1);
    test_request_fini(&test_request);
    opened_model_fini(&opened);
}

/* All byte values, so that NaNs, denormals and signs are covered; for BOOL 0 and 1; for 64-bit
 * integers the lower 31 bits where the backend supports no more. */
static void fill(const struct backend_under_test *subject, sluice_datatype datatype,
                 unsigned char *bytes, size_t n) {
    bool cut = subject->narrow && (datatype == SLUICE_INT64 || datatype == SLUICE_UINT64);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (unsigned char)(datatype == SLUICE_BOOL ? i % 3 == 0 : i * 37 + i / 256);
        if (cut && i % 8 > 2) {
            bytes[i] = i % 8 == 3 ? bytes[i] & 0x7f : 0;
        }
    }
}

static void backend_every_datatype_is_bit_exact(void **state) {
    for (int kind = SLUICE_BOOL; kind <= SLUICE_BF16; kind++) {
        sluice_datatype datatype = (sluice_datatype)kind;
        size_t size = datatype_bytes(datatype);
        if (size == 0) {
            continue;
        }
        unsigned char bytes[64 * COLUMNS * 8];
        int64_t dims[] = {64, COLUMNS};
        fill(*state, datatype, bytes, sizeof(bytes));
        struct opened_model opened;
        struct test_request test_request;
        opened_model_init(&opened, *state, test_identity_model(datatype), NULL, NULL, 1);
        test_request_init(&test_request, 64);
        test_request_add_input(&test_request, 0, "x", datatype, dims, 2, bytes,
                               64 * COLUMNS * size);
        test_request_want_output(&test_request, 0);
        execute_one(&opened, &test_request);
        const struct test_response *response_kept = test_request_expect_ok(&test_request);
        assert_int_equal(response_kept->outputs[0].datatype, datatype);
        assert_int_equal(response_kept->outputs[0].n_bytes, 64 * COLUMNS * size);
        assert_memory_equal(response_kept->outputs[0].data, bytes, 64 * COLUMNS * size);
        test_request_fini(&test_request);
        opened_model_fini(&opened);
    }
}

static const char four_strings[] = "\x03\0\0\0a\0b"
                                   "\0\0\0\0"
                                   "\x01\0\0\0\0"
                                   "\x04\0\0\0\xff\xfe\x80g";
enum { FOUR_STRINGS_BYTES = sizeof(four_strings) - 1 };

static void ask_strings(struct test_request *test_request, uint64_t n_rows) {
    char bytes[8 * FOUR_STRINGS_BYTES];
    int64_t dims[] = {(int64_t)n_rows, COLUMNS};
    for (size_t i = 0; i < n_rows; i++) {
        memcpy(bytes + i * FOUR_STRINGS_BYTES, four_strings, FOUR_STRINGS_BYTES);
    }
    test_request_init(test_request, n_rows);
    test_request_add_input(test_request, 0, "x", SLUICE_BYTES, dims, 2, bytes,
                           n_rows * FOUR_STRINGS_BYTES);
    test_request_want_output(test_request, 0);
}

static void check_strings(const struct test_response *response_kept, uint64_t n_rows) {
    assert_int_equal(response_kept->outputs[0].datatype, SLUICE_BYTES);
    assert_int_equal(response_kept->outputs[0].dims[0], n_rows);
    assert_int_equal(response_kept->outputs[0].n_bytes, n_rows * FOUR_STRINGS_BYTES);
    const char *bytes = response_kept->outputs[0].data;
    for (size_t i = 0; i < n_rows; i++) {
        assert_memory_equal(bytes + i * FOUR_STRINGS_BYTES, four_strings, FOUR_STRINGS_BYTES);
    }
}

/* Returns: true when the backend does not support strings, and reports it. */
static bool strings_are_refused(const struct backend_under_test *subject) {
    if (subject->no_strings) {
        expect_model_refused(subject,
                             test_model_path(subject->models, test_identity_model(SLUICE_BYTES)),
                             NULL, NULL, "strings");
    }
    return subject->no_strings;
}

/* Empty elements, NULs and invalid UTF-8, whole and split at every byte. */
static void backend_strings_at_every_split(void **state) {
    struct opened_model opened;
    if (strings_are_refused(*state)) {
        return;
    }
    opened_model_init(&opened, *state, test_identity_model(SLUICE_BYTES), NULL, NULL, 1);
    for (size_t at = 0; at < FOUR_STRINGS_BYTES; at++) {
        struct test_request test_request;
        ask_strings(&test_request, 1);
        if (at > 0) {
            test_request_split_input(&test_request, 0, at);
        }
        execute_one(&opened, &test_request);
        check_strings(test_request_expect_ok(&test_request), 1);
        test_request_fini(&test_request);
    }
    opened_model_fini(&opened);
}

static void backend_numbers_at_every_split(void **state) {
    struct opened_model opened;
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), NULL, NULL, 1);
    for (size_t each = 1; each < 3 * COLUMNS; each++) {
        struct test_request test_request;
        ask_rows(&test_request, 3, 7);
        for (size_t at = each; at < 3 * COLUMNS; at += each) {
            test_request_split_input(&test_request, 0, each * sizeof(float));
        }
        execute_one(&opened, &test_request);
        check_rows(test_request_expect_ok(&test_request), 3, 7);
        test_request_fini(&test_request);
    }
    opened_model_fini(&opened);
}

enum { N_BATCH = 5 };

static void execute_all(struct opened_model *opened, struct test_request *test_requests, size_t n) {
    const sluice_request **requests = malloc(n * sizeof(*requests));
    for (size_t i = 0; i < n; i++) {
        requests[i] = &test_requests[i].request;
    }
    opened->backend->execute(opened->instances[0], requests, n);
    memset(requests, 0x5a, n * sizeof(*requests)); /* the array is valid during the call only */
    free(requests);
}

/* Requests of 2, 0, 1, 5 and 3 rows as one batch; one is in pieces. */
static void backend_batch_of_mixed_rows(void **state) {
    static const uint64_t rows[N_BATCH] = {2, 0, 1, 5, 3};
    struct opened_model opened;
    struct test_request test_requests[N_BATCH];
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), NULL, NULL, 1);
    for (size_t i = 0; i < N_BATCH; i++) {
        ask_rows(&test_requests[i], rows[i], (float)i * 100);
    }
    test_request_split_input(&test_requests[3], 0, 12);
    execute_all(&opened, test_requests, N_BATCH);
    for (size_t i = 0; i < N_BATCH; i++) {
        check_rows(test_request_expect_ok(&test_requests[i]), rows[i], (float)i * 100);
    }
    /* in reverse order */
    for (size_t i = N_BATCH; i-- > 0;) {
        test_request_fini(&test_requests[i]);
    }
    opened_model_fini(&opened);
}

/* A batch without rows; one request has two empty pieces. */
static void backend_batch_of_zero_rows(void **state) {
    static const sluice_datatype datatypes[] = {SLUICE_FP32, SLUICE_BYTES};
    static const int64_t dims[] = {0, COLUMNS};
    for (size_t k = 0; k < (strings_are_refused(*state) ? 1 : 2); k++) {
        struct opened_model opened;
        struct test_request test_requests[3];
        opened_model_init(&opened, *state, test_identity_model(datatypes[k]), NULL, NULL, 1);
        for (size_t i = 0; i < 3; i++) {
            test_request_init(&test_requests[i], 0);
            test_request_add_input(&test_requests[i], 0, "x", datatypes[k], dims, 2, "", 0);
            test_request_want_output(&test_requests[i], 0);
        }
        test_requests[1].inputs[0].n_pieces = 1;
        test_request_split_input(&test_requests[1], 0, 0);
        execute_all(&opened, test_requests, 3);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(test_request_expect_ok(&test_requests[i])->outputs[0].dims[0], 0);
            assert_int_equal(test_request_expect_ok(&test_requests[i])->outputs[0].n_bytes, 0);
            test_request_fini(&test_requests[i]);
        }
        opened_model_fini(&opened);
    }
}

static void backend_batch_of_strings(void **state) {
    struct opened_model opened;
    struct test_request test_requests[3];
    if (strings_are_refused(*state)) {
        return;
    }
    opened_model_init(&opened, *state, test_identity_model(SLUICE_BYTES), NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_strings(&test_requests[i], 3 - i);
    }
    test_request_split_input(&test_requests[1], 0, 3);
    test_request_split_input(&test_requests[1], 0, FOUR_STRINGS_BYTES);
    execute_all(&opened, test_requests, 3);
    for (size_t i = 0; i < 3; i++) {
        check_strings(test_request_expect_ok(&test_requests[i]), 3 - i);
        test_request_fini(&test_requests[i]);
    }
    opened_model_fini(&opened);
}

static void backend_outputs_stay_valid_until_released(void **state) {
    struct opened_model opened;
    struct test_request test_requests[12];
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), NULL, NULL, 1);
    for (size_t i = 0; i < 12; i += 3) {
        for (size_t k = i; k < i + 3; k++) {
            ask_rows(&test_requests[k], 1 + k % 3, (float)k * 50);
            test_request_split_input(&test_requests[k], 0, 8);
        }
        execute_all(&opened, test_requests + i, 3);
    }
    for (size_t i = 0; i < 12; i++) {
        check_rows(test_request_expect_ok(&test_requests[i]), 1 + i % 3, (float)i * 50);
    }
    for (size_t i = 0; i < 12; i++) {
        test_request_fini(&test_requests[i]);
    }
    opened_model_fini(&opened);
}

static void backend_cancelled_request_gets_no_outputs(void **state) {
    struct opened_model opened;
    struct test_request test_requests[3];
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_rows(&test_requests[i], 2, (float)i);
    }
    test_requests[1].cancelled = true;
    execute_all(&opened, test_requests, 3);
    check_rows(test_request_expect_ok(&test_requests[0]), 2, 0);
    test_request_expect_error(&test_requests[1], SLUICE_CANCELLED, "cancelled");
    check_rows(test_request_expect_ok(&test_requests[2]), 2, 2);
    for (size_t i = 0; i < 3; i++) {
        test_requests[i].cancelled = true;
        test_request_fini(&test_requests[i]);
    }
    opened_model_fini(&opened);
}

struct runner {
    struct opened_model *opened;
    size_t index;
    struct test_request test_requests[50];
};

static void *run(void *cookie) {
    struct runner *runner = cookie;
    for (size_t i = 0; i < 50; i++) {
        const sluice_request *requests[] = {&runner->test_requests[i].request};
        ask_rows(&runner->test_requests[i], 1 + i % 4, (float)(runner->index * 1000 + i));
        runner->opened->backend->execute(runner->opened->instances[runner->index], requests, 1);
    }
    return NULL;
}

/* Instances of one model execute concurrently; their outputs are released on another thread. */
static void backend_instances_run_concurrently(void **state) {
    struct opened_model opened;
    struct runner *runners = calloc(OPEN_MAX_INSTANCES, sizeof(*runners));
    pthread_t threads[OPEN_MAX_INSTANCES];
    opened_model_init(&opened, *state, test_identity_model(SLUICE_FP32), NULL, NULL,
                      OPEN_MAX_INSTANCES);
    for (size_t i = 0; i < OPEN_MAX_INSTANCES; i++) {
        runners[i].opened = &opened;
        runners[i].index = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run, &runners[i]), 0);
    }
    for (size_t i = 0; i < OPEN_MAX_INSTANCES; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < OPEN_MAX_INSTANCES * 50; i++) {
        struct test_request *test_request = &runners[i / 50].test_requests[i % 50];
        check_rows(test_request_expect_ok(test_request), 1 + i % 50 % 4,
                   (float)(i / 50 * 1000 + i % 50));
        test_request_fini(test_request);
    }
    opened_model_fini(&opened);
    free(runners);
}

int suite_run(struct backend_under_test *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(backend_entry_other_abi_is_refused, subject),
        cmocka_unit_test_prestate(backend_table_is_complete, subject),
        cmocka_unit_test_prestate(backend_open_close_without_requests, subject),
        cmocka_unit_test_prestate(backend_unknown_parameter_logs_warning, subject),
        cmocka_unit_test_prestate(backend_one_request_echoes, subject),
        cmocka_unit_test_prestate(backend_zero_rows_echoes, subject),
        cmocka_unit_test_prestate(backend_every_datatype_is_bit_exact, subject),
        cmocka_unit_test_prestate(backend_strings_at_every_split, subject),
        cmocka_unit_test_prestate(backend_numbers_at_every_split, subject),
        cmocka_unit_test_prestate(backend_batch_of_mixed_rows, subject),
        cmocka_unit_test_prestate(backend_batch_of_zero_rows, subject),
        cmocka_unit_test_prestate(backend_batch_of_strings, subject),
        cmocka_unit_test_prestate(backend_outputs_stay_valid_until_released, subject),
        cmocka_unit_test_prestate(backend_cancelled_request_gets_no_outputs, subject),
        cmocka_unit_test_prestate(backend_instances_run_concurrently, subject),
    };
    return cmocka_run_group_tests_name("every backend", tests, NULL, NULL);
}
