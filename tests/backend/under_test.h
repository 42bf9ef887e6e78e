/* A backend under test, and open models of it. */
#ifndef SLUICE_TEST_UNDER_TEST_H
#define SLUICE_TEST_UNDER_TEST_H

#include <stdbool.h>
#include <stddef.h>

#include "host.h"
#include "sluice/backend.h"

enum {
    OPEN_MAX_INSTANCES = 4,
    MAX_OUTPUT_BYTES = 1 << 26, /* the limit that the models are opened with */
};

struct backend_under_test {
    const char *name;
    const char *models; /* made by tests/models/make.py */
    const char *refused;
    host_entry entry;
    const sluice_backend *backend;
    bool in_place;   /* the identity model returns the request's own bytes */
    bool no_strings; /* models with BYTES are refused on load */
    bool narrow;     /* 64-bit integers outside INT32 are refused */
};

struct opened_model {
    const sluice_backend *backend;
    sluice_model *model;
    sluice_model_info info;
    sluice_instance *instances[OPEN_MAX_INSTANCES];
    size_t n_instances;
};

/* "models/NAME/1/model.onnx", or .xml for a model "ir_…"; the string is valid until the next
 * call. */
const char *test_model_path(const char *repository, const char *model);

/* Opens and describes a model, and opens its instances; fails the test on an error. `key` with
 * `value` is a parameter; NULL: none. */
void opened_model_init(struct opened_model *opened, const struct backend_under_test *subject,
                       const char *model, const char *key, const char *value, size_t n_instances);
void opened_model_fini(struct opened_model *opened);
/* Opens a model and expects an error text that contains `part`. */
void expect_model_refused(const struct backend_under_test *subject, const char *path,
                          const char *key, const char *value, const char *part);

/* The name of the backend's identity model: FP32 [batch, 4]. */
const char *test_identity_model(sluice_datatype datatype);

/* The suite, and the tests of one backend only. Returns: the number of failed tests. */
int suite_run(struct backend_under_test *subject);
int identity_run(struct backend_under_test *subject);
int onnxruntime_run(struct backend_under_test *subject);
int openvino_run(struct backend_under_test *subject);

#endif
