/* What every backend must do, whatever it runs: the rules of the interface that can be seen from
 * outside. It asks identity models only (tests/models/make.py), as every backend can have those. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include <cmocka.h>

#include "ask.h"
#include "subject.h"

enum { COLUMNS = 4 };

/* A request to the FP32 identity model, with rows that count up from `first`. */
static void ask_rows(struct ask *ask, uint64_t n_rows, float first) {
    float values[64 * COLUMNS];
    int64_t dims[] = {(int64_t)n_rows, COLUMNS};
    for (size_t i = 0; i < n_rows * COLUMNS; i++) {
        values[i] = first + (float)i;
    }
    ask_init(ask, n_rows);
    ask_input(ask, 0, "x", SLUICE_FP32, dims, 2, values, n_rows * COLUMNS * sizeof(float));
    ask_want(ask, 0);
}

static void check_rows(const struct answer *answer, uint64_t n_rows, float first) {
    assert_int_equal(answer->n_outputs, 1);
    assert_int_equal(answer->outputs[0].datatype, SLUICE_FP32);
    assert_int_equal(answer->outputs[0].rank, 2);
    assert_int_equal(answer->outputs[0].dims[0], n_rows);
    assert_int_equal(answer->outputs[0].dims[1], COLUMNS);
    const float *values = answer->outputs[0].data;
    for (size_t i = 0; i < n_rows * COLUMNS; i++) {
        assert_true(values[i] == first + (float)i);
    }
}

static void execute_one(struct open *open, struct ask *ask) {
    const sluice_request *requests[] = {&ask->request};
    open->backend->execute(open->instances[0], requests, 1);
}

static void the_table_is_whole(void **state) {
    const struct subject *subject = *state;
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

static void another_abi_is_refused(void **state) {
    const struct subject *subject = *state;
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

static void opens_and_closes_without_work(void **state) {
    struct open open;
    for (size_t n = 0; n <= OPEN_MAX_INSTANCES; n += 2) {
        open_init(&open, *state, subject_identity(SLUICE_FP32), NULL, NULL, n);
        open_fini(&open);
    }
}

static void an_unknown_parameter_is_a_warning(void **state) {
    struct open open;
    host_log_clear();
    open_init(&open, *state, subject_identity(SLUICE_FP32), "no_such_key", "1", 1);
    assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 1);
    assert_true(host_log_has("no_such_key"));
    open_fini(&open);
    host_log_clear();
    open_init(&open, *state, subject_identity(SLUICE_FP32), "sluice.run_on", "worker", 1);
    assert_int_equal(host_log_count(SLUICE_LOG_WARNING), 0); /* the server's own */
    open_fini(&open);
}

static void one_request(void **state) {
    const struct subject *subject = *state;
    struct open open;
    struct ask ask;
    open_init(&open, subject, subject_identity(SLUICE_FP32), NULL, NULL, 1);
    ask_rows(&ask, 3, 1);
    execute_one(&open, &ask);
    const struct answer *answer = ask_good(&ask);
    check_rows(answer, 3, 1);
    if (subject->in_place) {
        assert_ptr_equal(answer->outputs[0].data, ask.pieces[0][0].data);
    }
    ask_fini(&ask);
    open_fini(&open);
}

static void no_rows(void **state) {
    struct open open;
    struct ask ask;
    open_init(&open, *state, subject_identity(SLUICE_FP32), NULL, NULL, 1);
    ask_rows(&ask, 0, 1);
    execute_one(&open, &ask);
    check_rows(ask_good(&ask), 0, 1);
    ask_fini(&ask);
    open_fini(&open);
}

/* Every value of one byte, so that NaNs, denormals and signs are among them; for BOOL only 0 and 1;
 * of 64-bit whole numbers only the lower 31 bits where the backend has no more. */
static void fill(const struct subject *subject, sluice_datatype datatype, unsigned char *bytes,
                 size_t n) {
    bool cut = subject->narrow && (datatype == SLUICE_INT64 || datatype == SLUICE_UINT64);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (unsigned char)(datatype == SLUICE_BOOL ? i % 3 == 0 : i * 37 + i / 256);
        if (cut && i % 8 > 2) {
            bytes[i] = i % 8 == 3 ? bytes[i] & 0x7f : 0;
        }
    }
}

static void every_datatype_bit_for_bit(void **state) {
    for (int kind = SLUICE_BOOL; kind <= SLUICE_BF16; kind++) {
        sluice_datatype datatype = (sluice_datatype)kind;
        size_t size = datatype_bytes(datatype);
        if (size == 0) {
            continue;
        }
        unsigned char bytes[64 * COLUMNS * 8];
        int64_t dims[] = {64, COLUMNS};
        fill(*state, datatype, bytes, sizeof(bytes));
        struct open open;
        struct ask ask;
        open_init(&open, *state, subject_identity(datatype), NULL, NULL, 1);
        ask_init(&ask, 64);
        ask_input(&ask, 0, "x", datatype, dims, 2, bytes, 64 * COLUMNS * size);
        ask_want(&ask, 0);
        execute_one(&open, &ask);
        const struct answer *answer = ask_good(&ask);
        assert_int_equal(answer->outputs[0].datatype, datatype);
        assert_int_equal(answer->outputs[0].n_bytes, 64 * COLUMNS * size);
        assert_memory_equal(answer->outputs[0].data, bytes, 64 * COLUMNS * size);
        ask_fini(&ask);
        open_fini(&open);
    }
}

static const char four_strings[] = "\x03\0\0\0a\0b"
                                   "\0\0\0\0"
                                   "\x01\0\0\0\0"
                                   "\x04\0\0\0\xff\xfe\x80g";
enum { FOUR_STRINGS_BYTES = sizeof(four_strings) - 1 };

static void ask_strings(struct ask *ask, uint64_t n_rows) {
    char bytes[8 * FOUR_STRINGS_BYTES];
    int64_t dims[] = {(int64_t)n_rows, COLUMNS};
    for (size_t i = 0; i < n_rows; i++) {
        memcpy(bytes + i * FOUR_STRINGS_BYTES, four_strings, FOUR_STRINGS_BYTES);
    }
    ask_init(ask, n_rows);
    ask_input(ask, 0, "x", SLUICE_BYTES, dims, 2, bytes, n_rows * FOUR_STRINGS_BYTES);
    ask_want(ask, 0);
}

static void check_strings(const struct answer *answer, uint64_t n_rows) {
    assert_int_equal(answer->outputs[0].datatype, SLUICE_BYTES);
    assert_int_equal(answer->outputs[0].dims[0], n_rows);
    assert_int_equal(answer->outputs[0].n_bytes, n_rows * FOUR_STRINGS_BYTES);
    const char *bytes = answer->outputs[0].data;
    for (size_t i = 0; i < n_rows; i++) {
        assert_memory_equal(bytes + i * FOUR_STRINGS_BYTES, four_strings, FOUR_STRINGS_BYTES);
    }
}

/* Returns: true when the backend has no strings, and says so. */
static bool strings_are_refused(const struct subject *subject) {
    if (subject->no_strings) {
        open_refused(subject, subject_path(subject->models, subject_identity(SLUICE_BYTES)), NULL,
                     NULL, "strings");
    }
    return subject->no_strings;
}

/* Empty elements, NULs and what is no UTF-8, whole and cut at every byte. */
static void strings_in_pieces(void **state) {
    struct open open;
    if (strings_are_refused(*state)) {
        return;
    }
    open_init(&open, *state, subject_identity(SLUICE_BYTES), NULL, NULL, 1);
    for (size_t at = 0; at < FOUR_STRINGS_BYTES; at++) {
        struct ask ask;
        ask_strings(&ask, 1);
        if (at > 0) {
            ask_split(&ask, 0, at);
        }
        execute_one(&open, &ask);
        check_strings(ask_good(&ask), 1);
        ask_fini(&ask);
    }
    open_fini(&open);
}

static void numbers_in_pieces(void **state) {
    struct open open;
    open_init(&open, *state, subject_identity(SLUICE_FP32), NULL, NULL, 1);
    for (size_t each = 1; each < 3 * COLUMNS; each++) {
        struct ask ask;
        ask_rows(&ask, 3, 7);
        for (size_t at = each; at < 3 * COLUMNS; at += each) {
            ask_split(&ask, 0, each * sizeof(float));
        }
        execute_one(&open, &ask);
        check_rows(ask_good(&ask), 3, 7);
        ask_fini(&ask);
    }
    open_fini(&open);
}

enum { N_BATCH = 5 };

static void execute_all(struct open *open, struct ask *asks, size_t n) {
    const sluice_request **requests = malloc(n * sizeof(*requests));
    for (size_t i = 0; i < n; i++) {
        requests[i] = &asks[i].request;
    }
    open->backend->execute(open->instances[0], requests, n);
    memset(requests, 0x5a, n * sizeof(*requests)); /* the array is only there during the call */
    free(requests);
}

/* Requests of 2, 0, 1, 5 and 3 rows as one batch; one is in pieces. */
static void a_batch(void **state) {
    static const uint64_t rows[N_BATCH] = {2, 0, 1, 5, 3};
    struct open open;
    struct ask asks[N_BATCH];
    open_init(&open, *state, subject_identity(SLUICE_FP32), NULL, NULL, 1);
    for (size_t i = 0; i < N_BATCH; i++) {
        ask_rows(&asks[i], rows[i], (float)i * 100);
    }
    ask_split(&asks[3], 0, 12);
    execute_all(&open, asks, N_BATCH);
    for (size_t i = 0; i < N_BATCH; i++) {
        check_rows(ask_good(&asks[i]), rows[i], (float)i * 100);
    }
    /* in another order than they came */
    for (size_t i = N_BATCH; i-- > 0;) {
        ask_fini(&asks[i]);
    }
    open_fini(&open);
}

/* A batch without a single row, one of them in two pieces of no bytes. */
static void a_batch_of_nothing(void **state) {
    static const sluice_datatype datatypes[] = {SLUICE_FP32, SLUICE_BYTES};
    static const int64_t dims[] = {0, COLUMNS};
    for (size_t k = 0; k < (strings_are_refused(*state) ? 1 : 2); k++) {
        struct open open;
        struct ask asks[3];
        open_init(&open, *state, subject_identity(datatypes[k]), NULL, NULL, 1);
        for (size_t i = 0; i < 3; i++) {
            ask_init(&asks[i], 0);
            ask_input(&asks[i], 0, "x", datatypes[k], dims, 2, "", 0);
            ask_want(&asks[i], 0);
        }
        asks[1].inputs[0].n_pieces = 1;
        ask_split(&asks[1], 0, 0);
        execute_all(&open, asks, 3);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(ask_good(&asks[i])->outputs[0].dims[0], 0);
            assert_int_equal(ask_good(&asks[i])->outputs[0].n_bytes, 0);
            ask_fini(&asks[i]);
        }
        open_fini(&open);
    }
}

static void a_batch_of_strings(void **state) {
    struct open open;
    struct ask asks[3];
    if (strings_are_refused(*state)) {
        return;
    }
    open_init(&open, *state, subject_identity(SLUICE_BYTES), NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_strings(&asks[i], 3 - i);
    }
    ask_split(&asks[1], 0, 3);
    ask_split(&asks[1], 0, FOUR_STRINGS_BYTES);
    execute_all(&open, asks, 3);
    for (size_t i = 0; i < 3; i++) {
        check_strings(ask_good(&asks[i]), 3 - i);
        ask_fini(&asks[i]);
    }
    open_fini(&open);
}

static void outputs_stay_until_released(void **state) {
    struct open open;
    struct ask asks[12];
    open_init(&open, *state, subject_identity(SLUICE_FP32), NULL, NULL, 1);
    for (size_t i = 0; i < 12; i += 3) {
        for (size_t k = i; k < i + 3; k++) {
            ask_rows(&asks[k], 1 + k % 3, (float)k * 50);
            ask_split(&asks[k], 0, 8);
        }
        execute_all(&open, asks + i, 3);
    }
    for (size_t i = 0; i < 12; i++) {
        check_rows(ask_good(&asks[i]), 1 + i % 3, (float)i * 50);
    }
    for (size_t i = 0; i < 12; i++) {
        ask_fini(&asks[i]);
    }
    open_fini(&open);
}

static void the_cancelled_get_no_outputs(void **state) {
    struct open open;
    struct ask asks[3];
    open_init(&open, *state, subject_identity(SLUICE_FP32), NULL, NULL, 1);
    for (size_t i = 0; i < 3; i++) {
        ask_rows(&asks[i], 2, (float)i);
    }
    asks[1].cancelled = true;
    execute_all(&open, asks, 3);
    check_rows(ask_good(&asks[0]), 2, 0);
    ask_bad(&asks[1], SLUICE_CANCELLED, "cancelled");
    check_rows(ask_good(&asks[2]), 2, 2);
    for (size_t i = 0; i < 3; i++) {
        asks[i].cancelled = true;
        ask_fini(&asks[i]);
    }
    open_fini(&open);
}

struct runner {
    struct open *open;
    size_t index;
    struct ask asks[50];
};

static void *run(void *cookie) {
    struct runner *runner = cookie;
    for (size_t i = 0; i < 50; i++) {
        const sluice_request *requests[] = {&runner->asks[i].request};
        ask_rows(&runner->asks[i], 1 + i % 4, (float)(runner->index * 1000 + i));
        runner->open->backend->execute(runner->open->instances[runner->index], requests, 1);
    }
    return NULL;
}

/* Instances of one model execute at the same time; what they gave is released on yet another
 * thread. */
static void instances_side_by_side(void **state) {
    struct open open;
    struct runner *runners = calloc(OPEN_MAX_INSTANCES, sizeof(*runners));
    pthread_t threads[OPEN_MAX_INSTANCES];
    open_init(&open, *state, subject_identity(SLUICE_FP32), NULL, NULL, OPEN_MAX_INSTANCES);
    for (size_t i = 0; i < OPEN_MAX_INSTANCES; i++) {
        runners[i].open = &open;
        runners[i].index = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run, &runners[i]), 0);
    }
    for (size_t i = 0; i < OPEN_MAX_INSTANCES; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < OPEN_MAX_INSTANCES * 50; i++) {
        struct ask *ask = &runners[i / 50].asks[i % 50];
        check_rows(ask_good(ask), 1 + i % 50 % 4, (float)(i / 50 * 1000 + i % 50));
        ask_fini(ask);
    }
    open_fini(&open);
    free(runners);
}

int suite_run(struct subject *subject) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(another_abi_is_refused, subject),
        cmocka_unit_test_prestate(the_table_is_whole, subject),
        cmocka_unit_test_prestate(opens_and_closes_without_work, subject),
        cmocka_unit_test_prestate(an_unknown_parameter_is_a_warning, subject),
        cmocka_unit_test_prestate(one_request, subject),
        cmocka_unit_test_prestate(no_rows, subject),
        cmocka_unit_test_prestate(every_datatype_bit_for_bit, subject),
        cmocka_unit_test_prestate(strings_in_pieces, subject),
        cmocka_unit_test_prestate(numbers_in_pieces, subject),
        cmocka_unit_test_prestate(a_batch, subject),
        cmocka_unit_test_prestate(a_batch_of_nothing, subject),
        cmocka_unit_test_prestate(a_batch_of_strings, subject),
        cmocka_unit_test_prestate(outputs_stay_until_released, subject),
        cmocka_unit_test_prestate(the_cancelled_get_no_outputs, subject),
        cmocka_unit_test_prestate(instances_side_by_side, subject),
    };
    return cmocka_run_group_tests_name("every backend", tests, NULL, NULL);
}
