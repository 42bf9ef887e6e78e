/* Short requests for FP32 models, and the tests of every backend that runs ONNX models. */
#ifndef SLUICE_TEST_ONNX_H
#define SLUICE_TEST_ONNX_H

#include <stddef.h>
#include <stdint.h>

#include "test_request.h"
#include "under_test.h"

enum { ONNX_REQUESTS_MAX = 16 };
/* Runs up to ONNX_REQUESTS_MAX requests as one batch. */
void onnx_execute(struct opened_model *opened, struct test_request *test_requests, size_t n);
/* A request with one input, "x". */
void onnx_request_init(struct test_request *test_request, uint64_t batch, const int64_t *dims,
                       size_t rank, const float *values, size_t n);
/* Requests of one row each, with the values 1, 2, 3. No output is wanted yet. */
void onnx_requests_init_rows(struct test_request *test_requests, size_t n);
void onnx_requests_fini(struct test_request *test_requests, size_t n);
void onnx_check_output(const sluice_output *output, const float *values, size_t n);

/* Returns: the number of failed tests. */
int onnx_run(struct backend_under_test *subject);

#endif
