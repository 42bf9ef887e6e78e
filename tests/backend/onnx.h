/* Asking models of FP32 in a line, and the tests of every backend that runs ONNX models. */
#ifndef SLUICE_TEST_ONNX_H
#define SLUICE_TEST_ONNX_H

#include <stddef.h>
#include <stdint.h>

#include "ask.h"
#include "subject.h"

/* Runs up to 8 requests as one batch. */
void onnx_execute(struct open *open, struct ask *asks, size_t n);
/* A request whose one input is "x". */
void onnx_ask(struct ask *ask, uint64_t batch, const int64_t *dims, size_t rank,
              const float *values, size_t n);
/* Requests of one row each: its number, 1, 2, 3. They want nothing yet. */
void onnx_ask_rows(struct ask *asks, size_t n);
void onnx_fini(struct ask *asks, size_t n);
void onnx_check(const sluice_output *output, const float *values, size_t n);

/* Returns: failed tests. */
int onnx_run(struct subject *subject);

#endif
