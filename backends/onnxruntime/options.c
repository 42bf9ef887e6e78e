/* Session and run options. Values are text and parsed strictly: an unexpected one fails the load.
 * The table after the parsers lists the keys; README.md explains them. */
#include <dlfcn.h>
#include <string.h>

#include "onnxruntime/model.h"

enum { NO_LEVEL = -1 };

/* The parsed parameters. */
struct settings {
    int intra_op_threads;
    int inter_op_threads;
    int parallel;
    int level;       /* a GraphOptimizationLevel; NO_LEVEL: graph_level's */
    int graph_level; /* the same, of optimization.graph.level */
    int arena;
    int exact; /* memory of the requested size, instead of an arena that doubles */
    int pattern;
    int shrink;
};

/* A key. `read` returns 0 when the value is not `expected`. */
struct key {
    const char *name;
    const char *expected;
    int (*read)(const struct key *key, const char *value, struct settings *settings);
    size_t member; /* the offset in struct settings of the value */
};

static int *member_of(const struct key *key, struct settings *settings) {
    return (int *)(void *)((char *)settings + key->member);
}

/* 0 keeps the server's default. */
static int threads_read(const struct key *key, const char *value, struct settings *settings) {
    int number = 0;
    if (!text_number(value, 1024, &number)) {
        return 0;
    }
    if (number > 0) {
        *member_of(key, settings) = number;
    }
    return 1;
}

static int flag_read(const struct key *key, const char *value, struct settings *settings) {
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
        return 0;
    }
    *member_of(key, settings) = value[0] == '1';
    return 1;
}

struct level {
    const char *word;
    int level;
};

static int level_find(const struct level *levels, size_t n, const char *value, int *level) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(value, levels[i].word) == 0) {
            *level = levels[i].level;
            return 1;
        }
    }
    return 0;
}

static int level_read(const struct key *key, const char *value, struct settings *settings) {
    static const struct level levels[] = {{"disabled", ORT_DISABLE_ALL},
                                          {"basic", ORT_ENABLE_BASIC},
                                          {"extended", ORT_ENABLE_EXTENDED},
                                          {"all", ORT_ENABLE_ALL}};
    return level_find(levels, sizeof(levels) / sizeof(levels[0]), value, member_of(key, settings));
}

/* optimization { graph { level } }, with the meaning of Triton's backend. A level by its word has
 * precedence. */
static int graph_level_read(const struct key *key, const char *value, struct settings *settings) {
    static const struct level levels[] = {{"-1", ORT_ENABLE_BASIC},
                                          {"0", ORT_ENABLE_ALL},
                                          {"1", ORT_ENABLE_EXTENDED},
                                          {"2", ORT_DISABLE_ALL}};
    return level_find(levels, sizeof(levels) / sizeof(levels[0]), value, member_of(key, settings));
}

/* There is one arena, for the CPU. */
static int shrink_read(const struct key *key, const char *value, struct settings *settings) {
    *member_of(key, settings) = 1;
    return strcmp(value, "cpu:0") == 0;
}

static const struct key keys[] = {
    {"intra_op_thread_count", "a number from 0 to 1024", threads_read,
     offsetof(struct settings, intra_op_threads)},
    {"inter_op_thread_count", "a number from 0 to 1024", threads_read,
     offsetof(struct settings, inter_op_threads)},
    {"execution_mode", "0 (sequential) or 1 (parallel)", flag_read,
     offsetof(struct settings, parallel)},
    {"graph_optimization_level", "disabled, basic, extended or all", level_read,
     offsetof(struct settings, level)},
    {"optimization.graph.level", "-1 (basic), 0 (all), 1 (extended) or 2 (none)", graph_level_read,
     offsetof(struct settings, graph_level)},
    {"enable_mem_arena", "0 or 1", flag_read, offsetof(struct settings, arena)},
    {"arena_extend_strategy", "0 (doubling) or 1 (what is asked)", flag_read,
     offsetof(struct settings, exact)},
    {"enable_mem_pattern", "0 or 1", flag_read, offsetof(struct settings, pattern)},
    {"memory.enable_memory_arena_shrinkage", "cpu:0", shrink_read,
     offsetof(struct settings, shrink)},
};

/* ONNX Runtime's own configuration entries, passed on unchanged. It ignores unknown keys silently,
 * so only these are allowed. */
static const char *const entries[] = {
    "session.disable_prepacking",
    "session.disable_quant_qdq",
    "session.dynamic_block_base",
    "session.enable_quant_qdq_cleanup",
    "session.force_spinning_stop",
    "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning",
    "session.intra_op_thread_affinities",
    "session.qdqisint8allowed",
    "session.set_denormal_as_zero",
    "session.use_device_allocator_for_initializers",
    "optimization.disable_specified_optimizers",
    "optimization.enable_gelu_approximation",
};

static int entry_known(const char *name) {
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strcmp(name, entries[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

static const struct key *key_find(const char *name) {
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(name, keys[i].name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

static sluice_status settings_read(struct settings *settings, const struct ort *ort,
                                   const sluice_model_args *args, sluice_error *error) {
    for (size_t i = 0; i < args->n_params; i++) {
        const sluice_param *param = &args->params[i];
        const struct key *key = key_find(param->name);
        if (key && !key->read(key, param->string, settings)) {
            return error_set(error, SLUICE_INVALID_ARGUMENT,
                             "parameter %s: expected %s, got \"%.80s\"", key->name, key->expected,
                             param->string);
        }
        if (!key && !entry_known(param->name)) {
            text_warn_unknown(ort->host, args, "onnxruntime", param->name);
        }
    }
    return SLUICE_OK;
}

/* Otherwise the session uses the memory of the environment (ort.c), where each tensor has the
 * requested size. */
static int has_arena(const struct settings *settings) {
    return settings->arena && !settings->exact;
}

/* The default of an entry that the model's parameters don't set. (Setting an entry twice logs a
 * warning.) */
static OrtStatus *entry_default(const OrtApi *api, OrtSessionOptions *session,
                                const sluice_model_args *args, const char *name,
                                const char *value) {
    for (size_t i = 0; i < args->n_params; i++) {
        if (strcmp(args->params[i].name, name) == 0) {
            return NULL;
        }
    }
    return api->AddSessionConfigEntry(session, name, value);
}

static OrtStatus *entries_add(const OrtApi *api, OrtSessionOptions *session,
                              const struct settings *settings, const sluice_model_args *args) {
    /* Weights outside the arena are freed when the model is closed. */
    const struct {
        const char *name;
        const char *value;
    } defaults[] = {
        {"session.intra_op.allow_spinning", args->may_spin ? "1" : "0"},
        {"session.inter_op.allow_spinning", args->may_spin ? "1" : "0"},
        {"session.use_device_allocator_for_initializers", "1"},
        {"session.use_env_allocators", has_arena(settings) ? "0" : "1"},
    };
    OrtStatus *result = NULL;
    for (size_t i = 0; !result && i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        result = entry_default(api, session, args, defaults[i].name, defaults[i].value);
    }
    for (size_t i = 0; !result && i < args->n_params; i++) {
        if (entry_known(args->params[i].name)) {
            result =
                api->AddSessionConfigEntry(session, args->params[i].name, args->params[i].string);
        }
    }
    return result;
}

static OrtStatus *session_fill(const OrtApi *api, OrtSessionOptions *session,
                               const struct settings *settings, const sluice_model_args *args) {
    OrtStatus *result = api->SetIntraOpNumThreads(session, settings->intra_op_threads);
    if (!result) {
        result = api->SetInterOpNumThreads(session, settings->inter_op_threads);
    }
    if (!result) {
        result = api->SetSessionExecutionMode(session,
                                              settings->parallel ? ORT_PARALLEL : ORT_SEQUENTIAL);
    }
    if (!result) {
        int level = settings->level == NO_LEVEL ? settings->graph_level : settings->level;
        result = api->SetSessionGraphOptimizationLevel(session, (GraphOptimizationLevel)level);
    }
    if (!result) {
        /* names the model in the library's log */
        result = api->SetSessionLogId(session, args->name);
    }
    if (!result && !has_arena(settings)) {
        result = api->DisableCpuMemArena(session);
    }
    if (!result && !settings->pattern) {
        result = api->DisableMemPattern(session);
    }
    return result ? result : entries_add(api, session, settings, args);
}

/* A library is never unloaded again. Two copies of one share the static objects that the compiler
 * has marked as unique in the process, so that sessions of the one use code of the other. */
static void library_pin(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle) { /* else ONNX Runtime says why */
        dlclose(handle);
    }
}

static sluice_status libraries_register(OrtSessionOptions *session, const struct ort *ort,
                                        const sluice_model_args *args, sluice_error *error) {
    sluice_status status = SLUICE_OK;
    if (args->size < offsetof(sluice_model_args, n_op_libraries) + sizeof(args->n_op_libraries)) {
        return SLUICE_OK; /* an older server has none */
    }
    for (size_t i = 0; status == SLUICE_OK && i < args->n_op_libraries; i++) {
        const char *path = args->op_libraries[i];
        library_pin(path);
        status = ort_check_library(ort, ort->api->RegisterCustomOpsLibrary_V2(session, path), path,
                                   error);
    }
    return status;
}

sluice_status options_init(struct options *options, const struct ort *ort,
                           const sluice_model_args *args, sluice_error *error) {
    const OrtApi *api = ort->api;
    /* Memory patterns are off because ONNX Runtime keeps one for each shape, so clients with ever
     * other shapes would fill the memory. */
    struct settings settings = {.intra_op_threads = (int)args->n_threads,
                                .inter_op_threads = 1,
                                .level = NO_LEVEL,
                                .graph_level = ORT_ENABLE_ALL};
    *options = (struct options){0};
    sluice_status status = settings_read(&settings, ort, args, error);
    if (status != SLUICE_OK) {
        return status;
    }
    OrtStatus *result = api->CreateSessionOptions(&options->session);
    if (!result) {
        result = api->CreateRunOptions(&options->run);
    }
    if (!result) {
        result = session_fill(api, options->session, &settings, args);
    }
    if (!result) { /* A run's errors are reported to the request; logging each bad request too would
                      hide more important lines. */
        result = api->RunOptionsSetRunLogSeverityLevel(options->run, ORT_LOGGING_LEVEL_FATAL);
    }
    if (!result && settings.shrink && has_arena(&settings)) {
        result =
            api->AddRunConfigEntry(options->run, "memory.enable_memory_arena_shrinkage", "cpu:0");
    }
    status = ort_check(ort, result, "the session's options could not be set", error);
    if (status == SLUICE_OK) {
        status = libraries_register(options->session, ort, args, error);
    }
    if (status != SLUICE_OK) {
        options_fini(options, ort);
    }
    return status;
}

void options_fini(struct options *options, const struct ort *ort) {
    ort->api->ReleaseSessionOptions(options->session);
    ort->api->ReleaseRunOptions(options->run);
    *options = (struct options){0};
}
