/* Properties of a compiled model. Values are text and parsed strictly: an unexpected one fails the
 * load. The table below lists the keys; README.md explains them. */
#include <stdio.h>
#include <string.h>

#include "common/text.h"
#include "openvino/model.h"

/* One key of config.pbtxt. */
struct key {
    const char *name;
    const char *expected;
    const char *property;          /* of OpenVINO; NULL: the value has no effect */
    int max;                       /* > 0: a number up to it; else one of `words` */
    const char *const (*words)[2]; /* {value, OpenVINO's value}; ends with {NULL, NULL} */
};

static const char *const yes_no[][2] = {{"YES", "YES"}, {"NO", "NO"}, {NULL, NULL}};
static const char *const no[][2] = {{"NO", "NO"}, {NULL, NULL}};
static const char *const one[][2] = {{"1", "1"}, {NULL, NULL}};
static const char *const cpu[][2] = {{"CPU", "CPU"}, {NULL, NULL}};
static const char *const none[][2] = {{NULL, NULL}};
static const char *const hints[][2] = {
    {"LATENCY", "LATENCY"}, {"THROUGHPUT", "THROUGHPUT"}, {NULL, NULL}};
static const char *const modes[][2] = {
    {"PERFORMANCE", "PERFORMANCE"}, {"ACCURACY", "ACCURACY"}, {NULL, NULL}};
static const char *const precisions[][2] = {
    {"f32", "f32"}, {"bf16", "bf16"}, {"f16", "f16"}, {NULL, NULL}};
static const char *const bf16[][2] = {{"YES", "bf16"}, {"NO", "f32"}, {NULL, NULL}};

/* Keys that would change a model's behaviour and are not supported accept only the value that turns
 * them off. */
static const struct key keys[] = {
    {"INFERENCE_NUM_THREADS", "a number from 0 to 1024", "INFERENCE_NUM_THREADS", 1024, NULL},
    {"PERFORMANCE_HINT", "LATENCY or THROUGHPUT", "PERFORMANCE_HINT", 0, hints},
    {"EXECUTION_MODE_HINT", "PERFORMANCE or ACCURACY", "EXECUTION_MODE_HINT", 0, modes},
    {"INFERENCE_PRECISION_HINT", "f32, bf16 or f16", "INFERENCE_PRECISION_HINT", 0, precisions},
    {"HINT_BF16", "YES or NO", "INFERENCE_PRECISION_HINT", 0, bf16},
    {"ENABLE_HYPER_THREADING", "YES or NO", "ENABLE_HYPER_THREADING", 0, yes_no},
    {"ENABLE_CPU_PINNING", "YES or NO", "ENABLE_CPU_PINNING", 0, yes_no},
    {"CPU_DENORMALS_OPTIMIZATION", "YES or NO", "CPU_DENORMALS_OPTIMIZATION", 0, yes_no},
    {"CPU_RUNTIME_CACHE_CAPACITY", "a number from 0 to 5000", "CPU_RUNTIME_CACHE_CAPACITY", 5000,
     NULL},
    {"NUM_STREAMS", "1, as each instance is one stream (instance_group says how many)", NULL, 0,
     one},
    {"TARGET_DEVICE", "CPU", NULL, 0, cpu},
    {"RESHAPE_IO_LAYOUTS", "NO, as tensors keep the model's layout", NULL, 0, no},
    {"CPU_EXTENSION_PATH", "nothing, as no code is loaded for a model", NULL, 0, none},
};

enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };

static const struct key *key_find(const char *name) {
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(name, keys[i].name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

/* Adds or replaces a property. `value` is short. */
static void set_property(struct options *options, const char *property, const char *value) {
    size_t at = 0;
    while (at < options->n && strcmp(options->properties[at].key, property) != 0) {
        at++;
    }
    if (at == options->n) {
        options->n++;
    }
    snprintf(options->values[at], sizeof(options->values[at]), "%s", value);
    options->properties[at] = (ov_property_t){property, options->values[at]};
}

/* OpenVINO's value for a configured one. Returns: NULL when the value is invalid. */
static const char *read_value(const struct key *key, const char *value) {
    int number = 0;
    if (key->max > 0) {
        return text_number(value, key->max, &number) ? value : NULL;
    }
    for (size_t i = 0; key->words[i][0]; i++) {
        if (strcmp(value, key->words[i][0]) == 0) {
            return key->words[i][1];
        }
    }
    return NULL;
}

/* One stream per instance, on the executing thread; threads are not bound to CPUs, which others may
 * use too. FP32 is computed as FP32 even where the machine has something faster, so answers do not
 * depend on the machine. The caches per shape are small, because clients choose the shapes. */
static void set_defaults(struct options *options, const sluice_model_args *args) {
    char n_threads[OPTION_BYTES];
    options->n = 0;
    snprintf(n_threads, sizeof(n_threads), "%u", args->n_threads);
    set_property(options, "PERFORMANCE_HINT", "LATENCY");
    set_property(options, "NUM_STREAMS", "1");
    set_property(options, "INFERENCE_NUM_THREADS", n_threads);
    set_property(options, "ENABLE_CPU_PINNING", "NO");
    set_property(options, "INFERENCE_PRECISION_HINT", "f32");
    set_property(options, "CPU_RUNTIME_CACHE_CAPACITY", "64");
}

sluice_status options_init(struct options *options, const sluice_host *host,
                           const sluice_model_args *args, sluice_error *error) {
    set_defaults(options, args);
    for (size_t i = 0; i < args->n_params; i++) {
        const sluice_param *param = &args->params[i];
        const struct key *key = key_find(param->name);
        if (!key) {
            text_warn_unknown(host, args, "openvino", param->name);
            continue;
        }
        const char *value = read_value(key, param->string);
        if (!value) {
            return error_set(error, SLUICE_INVALID_ARGUMENT,
                             "parameter %s: expected %s, got \"%.80s\"", key->name, key->expected,
                             param->string);
        }
        /* 0 threads keeps the server's default */
        int keeps = strstr(key->name, "_NUM_THREADS") && strspn(value, "0") == strlen(value);
        if (key->property && !keeps) {
            set_property(options, key->property, value);
        }
    }
    return SLUICE_OK;
}
