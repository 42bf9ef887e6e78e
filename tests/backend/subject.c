/* Opening and closing models the way the server does it, in the order that the interface gives. */
#include "subject.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

const char *subject_path(const char *repository, const char *model) {
    static char path[4096];
    const char *extension = strstr(model, "ir_") ? "xml" : "onnx";
    snprintf(path, sizeof(path), "%s/%s/1/model.%s", repository, model, extension);
    return path;
}

const char *subject_identity(sluice_datatype datatype) {
    static const char *const names[] = {
        "",      "bool",  "uint8", "uint16", "uint32", "uint64", "int8", "int16",
        "int32", "int64", "fp16",  "fp32",   "fp64",   "bytes",  "bf16",
    };
    static char name[64];
    snprintf(name, sizeof(name), "onnx_identity_%s", names[datatype]);
    return name;
}

static sluice_status model_open(const struct subject *subject, const char *path, const char *key,
                                const char *value, sluice_model **model, sluice_error *error) {
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
                                    .n_params = key ? 1 : 0};
    memset(error, 0, sizeof(*error));
    return subject->backend->model_open(&args, model, error);
}

static void good(sluice_status status, const sluice_error *error) {
    if (status != SLUICE_OK) {
        fail_msg("status %d: %s", (int)status, error->text);
    }
}

void open_init(struct open *open, const struct subject *subject, const char *model, const char *key,
               const char *value, size_t n_instances) {
    sluice_error error;
    *open = (struct open){.backend = subject->backend, .n_instances = n_instances};
    open->info.size = sizeof(open->info);
    good(
        model_open(subject, subject_path(subject->models, model), key, value, &open->model, &error),
        &error);
    assert_non_null(open->model);
    good(open->backend->model_describe(open->model, &open->info, &error), &error);
    for (size_t i = 0; i < n_instances; i++) {
        good(open->backend->instance_open(open->model, (uint32_t)i, &open->instances[i], &error),
             &error);
        assert_non_null(open->instances[i]);
    }
}

void open_fini(struct open *open) {
    for (size_t i = 0; i < open->n_instances; i++) {
        open->backend->instance_close(open->instances[i]);
    }
    open->backend->model_close(open->model);
}

void open_refused(const struct subject *subject, const char *path, const char *key,
                  const char *value, const char *part) {
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
