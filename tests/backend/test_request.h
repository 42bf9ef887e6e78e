/* A request in a test, and its answers. Tensors are copied into memory of the exact size, so that
 * the address sanitizer detects a backend's read past the end. */
#ifndef SLUICE_TEST_REQUEST_H
#define SLUICE_TEST_REQUEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/backend.h"

enum { TEST_MAX_TENSORS = 4, TEST_MAX_PIECES = 64, TEST_MAX_RANK = 8, TEST_MAX_RESPONSES = 8 };

struct test_response {
    sluice_status status;
    char error[512];
    int32_t final;
    sluice_output outputs[TEST_MAX_TENSORS]; /* dims point into `dims` */
    int64_t dims[TEST_MAX_TENSORS][TEST_MAX_RANK];
    size_t n_outputs;
    void (*release)(void *cookie);
    void *cookie;
};

struct test_request {
    sluice_request request;
    sluice_input inputs[TEST_MAX_TENSORS];
    sluice_piece pieces[TEST_MAX_TENSORS][TEST_MAX_PIECES];
    int64_t dims[TEST_MAX_TENSORS][TEST_MAX_RANK];
    uint32_t wanted[TEST_MAX_TENSORS];
    bool cancelled;

    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t answered;
    struct test_response responses[TEST_MAX_RESPONSES];
    size_t n_responses;
    bool is_final;
    const char *violation; /* the first rule of the interface that an answer broke; NULL: none */
};

/* Must not move afterwards: the request points into it. */
void test_request_init(struct test_request *test_request, uint64_t batch);
/* Appends an input of one piece. */
void test_request_add_input(struct test_request *test_request, uint32_t index, const char *name,
                            sluice_datatype datatype, const int64_t *dims, size_t rank,
                            const void *data, size_t n_bytes);
/* Splits the last piece of the input at `position`; `at` is an offset in that piece. */
void test_request_split_input(struct test_request *test_request, size_t position, size_t at);
void test_request_want_output(struct test_request *test_request, uint32_t index);

/* Called by the host. */
void test_request_on_response(struct test_request *test_request, const sluice_response *response);
void test_request_on_computed(struct test_request *test_request, bool possible);

/* Waits for the final answer; fails the test when an answer broke a rule. Returns: the final
 * answer. */
const struct test_response *test_request_wait(struct test_request *test_request);
/* The same, and it must be SLUICE_OK. */
const struct test_response *test_request_expect_ok(struct test_request *test_request);
/* The same, and it must be `status` with a text that contains `part`. */
void test_request_expect_error(struct test_request *test_request, sluice_status status,
                               const char *part);
/* Releases the remaining outputs and frees the tensors. */
void test_request_fini(struct test_request *test_request);

/* Bytes of one element; 0 for BYTES. */
size_t datatype_bytes(sluice_datatype datatype);

#endif
