/* Opens and closes models as the server does, in the interface's order. */
#include "under_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

const char *test_model_path(const char *repository, const char *model) {
    static char path[4096];
    const char *extension = strstr(model, "ir_") ? "xml" : "onnx";
    snprintf(path, sizeof(path), "%s/%s/1/model.%s", repository, model, extension);
    return path;
}

const char *test_identity_model(sluice_datatype datatype) {
    static const char *const names[] = {
        "",      "bool",  "uint8", "uint16", "uint32", "uint64", "int8", "int16",
        "int32", "int64", "fp16",  "fp32",   "fp64",   "bytes",  "bf16",
    };
    static char name[64];
    snprintf(name, sizeof(name), "onnx_identity_%s", names[datatype]);
    return name;
}

static sluice_status model_open(const struct backend_under_test *subject, const char *path,
                                const char *key, const char *value, sluice_model **model,
                                sluice_error *error) {
    sluice_param param = {.name = key, .kind = SLUICE_PARAM_STRING, .string = value};
    if (key) {
        param.name_bytes = strlen(key);
        param.string_bytes = strlen(value);
    }
    const sluice_model_args args = {.size = sizeof(args),
                                    .name = "subject",
                                    .version = 1,
                                    .path = path,
                                    .directory = "",
                                    .max_batch_size = UINT64_MAX,
                                    .n_threads = 1,
                                    .params = &param,
                                    .n_params = key ? 1 : 0,
                                    .max_output_bytes = MAX_OUTPUT_BYTES};
    memset(error, 0, sizeof(*error));
    return subject->backend->model_open(&args, model, error);
}

static void good(sluice_status status, const sluice_error *error) {
    if (status != SLUICE_OK) {
        fail_msg("status %d: %s", (int)status, error->text);
    }
}

void opened_model_init(struct opened_model *opened, const struct backend_under_test *subject,
                       const char *model, const char *key, const char *value, size_t n_instances) {
    sluice_error error;
    *opened = (struct opened_model){.backend = subject->backend, .n_instances = n_instances};
    opened->info.size = sizeof(opened->info);
    good(model_open(subject, test_model_path(subject->models, model), key, value, &opened->model,
                    &error),
         &error);
    assert_non_null(opened->model);
    good(opened->backend->model_describe(opened->model, &opened->info, &error), &error);
    for (size_t i = 0; i < n_instances; i++) {
        good(opened->backend->instance_open(opened->model, (uint32_t)i, &opened->instances[i],
                                            &error),
             &error);
        assert_non_null(opened->instances[i]);
    }
}

void opened_model_fini(struct opened_model *opened) {
    for (size_t i = 0; i < opened->n_instances; i++) {
        opened->backend->instance_close(opened->instances[i]);
    }
    opened->backend->model_close(opened->model);
}

void expect_model_refused(const struct backend_under_test *subject, const char *path,
                          const char *key, const char *value, const char *part) {
    sluice_error error;
    sluice_model *model = (sluice_model *)&error; /* anything but NULL */
    sluice_status status = model_open(subject, path, key, value, &model, &error);
    assert_int_not_equal(status, SLUICE_OK);
    assert_null(model);
    assert_non_null(memchr(error.text, '\0', sizeof(error.text)));
    if (!strstr(error.text, part)) {
        fail_msg("expected \"%s\" in \"%s\"", part, error.text);
    }
}
