/* A backend under test, and models of it held open. */
#ifndef SLUICE_TEST_SUBJECT_H
#define SLUICE_TEST_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>

#include "host.h"
#include "sluice/backend.h"

enum { OPEN_MAX_INSTANCES = 4 };

struct backend_under_test {
    const char *name;
    const char *models; /* repositories that tests/models/make.py made */
    const char *refused;
    host_entry entry;
    const sluice_backend *backend;
    bool in_place;   /* its identity gives the request's own bytes back */
    bool no_strings; /* models of BYTES are refused when they are loaded */
    bool narrow;     /* 64-bit whole numbers outside INT32 are refused */
};

struct opened_model {
    const sluice_backend *backend;
    sluice_model *model;
    sluice_model_info info;
    sluice_instance *instances[OPEN_MAX_INSTANCES];
    size_t n_instances;
};

/* "models/NAME/1/model.onnx", or .xml of a model "ir_…"; the string lives until the next call. */
const char *test_model_path(const char *repository, const char *model);

/* Opens, describes, and opens the instances; fails the test when the backend does. `key` with
 * `value` is a parameter; NULL: none. */
void opened_model_init(struct opened_model *opened, const struct backend_under_test *subject,
                       const char *model, const char *key, const char *value, size_t n_instances);
void opened_model_fini(struct opened_model *opened);
/* Opens and expects a failure with a sentence that contains `part`. */
void expect_model_refused(const struct backend_under_test *subject, const char *path,
                          const char *key, const char *value, const char *part);

/* The name of the model of this backend that gives its one input back: FP32 [batch, 4]. */
const char *test_identity_model(sluice_datatype datatype);

/* The suite, and what is only true of one backend. Returns: failed tests. */
int suite_run(struct backend_under_test *subject);
int identity_run(struct backend_under_test *subject);
int onnxruntime_run(struct backend_under_test *subject);
int openvino_run(struct backend_under_test *subject);

#endif
