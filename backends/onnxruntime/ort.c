/* The library's environment, log and errors. Its log lines go to the server's log; an error's text
 * becomes one clean line. */
#include "onnxruntime/ort.h"

#include <stdlib.h>
#include <string.h>

#include "onnxruntime/library.h"

/* Skips the signature of a C++ function, "void ns::f(const T &) const": to after the parenthesis
 * that closes its arguments. Returns: 0 when there is none. */
static size_t signature_length(const char *text) {
    size_t n = strcspn(text, "(\n");
    const char *scope = strstr(text, "::");
    if (text[n] != '(' || !scope || scope > text + n) {
        return 0;
    }
    for (int depth = 0; text[n]; n++) {
        depth += text[n] == '(' ? 1 : text[n] == ')' ? -1 : 0;
        if (depth == 0 && text[n + 1] != '(') { /* operator()(…) has two pairs */
            n++;
            return n + (strncmp(text + n, " const", 6) == 0 ? 6 : 0);
        }
    }
    return 0;
}

/* Returns: the length of the place in the library's source with which failed checks begin, file,
 * line and function; else 0. */
static size_t source_place(const char *text) {
    static const char root[] = "/onnxruntime_src/";
    if (strncmp(text, root, sizeof(root) - 1) != 0) {
        return 0;
    }
    size_t n = strcspn(text, " \n");
    return text[n] == ' ' ? n + signature_length(text + n) : n;
}

/* Makes one line of a text of the library, without the places in its source. */
static void ort_text(const char *text, char *out, size_t n_bytes) {
    text_one_line(text, source_place, out, n_bytes);
}

/* The library's sentence without the model's path, of a load that failed. */
static const char *message_cut(const char *message) {
    static const char load[] = "Load model from ";
    const char *failed =
        strncmp(message, load, sizeof(load) - 1) == 0 ? strstr(message, " failed:") : NULL;
    return failed ? failed + strlen(" failed:") : message;
}

/* Maps codes, which are about the library, to a status, which is about the cause of the error. */
static sluice_status status_of(OrtErrorCode code) {
    switch (code) {
    case ORT_OK:
        return SLUICE_OK;
    case ORT_INVALID_ARGUMENT:
    case ORT_INVALID_PROTOBUF:
    case ORT_INVALID_GRAPH:
        return SLUICE_INVALID_ARGUMENT;
    case ORT_NO_SUCHFILE:
    case ORT_NO_MODEL:
        return SLUICE_NOT_FOUND;
    case ORT_NOT_IMPLEMENTED:
        return SLUICE_UNSUPPORTED;
    case ORT_FAIL:
    case ORT_ENGINE_ERROR:
    case ORT_RUNTIME_EXCEPTION:
    case ORT_MODEL_LOADED:
    case ORT_EP_FAIL:
        break;
    }
    return SLUICE_INTERNAL; /* includes codes newer than the header */
}

sluice_status ort_check(const struct ort *ort, OrtStatus *result, const char *doing,
                        sluice_error *error) {
    if (!result) {
        return SLUICE_OK;
    }
    char text[384];
    const char *message = ort->api->GetErrorMessage(result);
    sluice_status status = status_of(ort->api->GetErrorCode(result));
    if (strstr(message, "pthread_create failed")) { /* with an error number of something else */
        message = "no more threads can be started (ulimit -u, pids.max of the control group)";
        status = SLUICE_UNAVAILABLE;
    }
    ort_text(message_cut(message), text, sizeof(text));
    ort->api->ReleaseStatus(result);
    return error_set(error, status, "%s: %s", doing, text);
}

/* A shape whose size overflows is logged by the library's own logger, whatever the level of the
 * run's. A client can cause it at will, and gets the error in its answer. */
static int is_size_overflow(const char *message) {
    return strstr(message, "SafeIntOnOverflow") != NULL;
}

static void log_forward(void *param, OrtLoggingLevel severity, const char *category,
                        const char *logid, const char *code_location, const char *message) {
    const struct ort *ort = param;
    sluice_log_level level = severity >= ORT_LOGGING_LEVEL_ERROR     ? SLUICE_LOG_ERROR
                             : severity == ORT_LOGGING_LEVEL_WARNING ? SLUICE_LOG_WARNING
                             : severity == ORT_LOGGING_LEVEL_INFO    ? SLUICE_LOG_INFO
                                                                     : SLUICE_LOG_DEBUG;
    char text[1024];
    (void)category;
    (void)code_location;
    if (is_size_overflow(message)) {
        level = SLUICE_LOG_DEBUG;
    }
    ort_text(message, text, sizeof(text));
    ort->host->log(level, logid ? logid : "", text);
}

/* Returns: whether the text of a failed run says that memory could not be allocated. The codes do
 * not. */
static int is_no_memory(const char *text) {
    return strstr(text, "std::bad_alloc") || strstr(text, "Failed to allocate memory");
}

static int is_operator_failure(const char *text) {
    return strstr(text, "returned while running") != NULL;
}

sluice_status ort_check_run(const struct ort *ort, OrtStatus *result, sluice_error *error) {
    if (!result) {
        return SLUICE_OK;
    }
    const char *text = ort->api->GetErrorMessage(result);
    size_t max_bytes = 0, refused_bytes = memory_refused_bytes(&max_bytes);
    if (refused_bytes > 0) {
        ort->api->ReleaseStatus(result);
        return error_set(error, SLUICE_TOO_LARGE,
                         "a result of the model needs %zu bytes; at most %zu are allowed "
                         "(--max-output-size)",
                         refused_bytes, max_bytes);
    }
    OrtErrorCode code = ort->api->GetErrorCode(result);
    int no_memory = is_no_memory(text);
    /* an exception within an operator, such as that of a text that is no number, is a failure of
     * that operator, too */
    int operator_failed =
        (code == ORT_FAIL || code == ORT_RUNTIME_EXCEPTION) && is_operator_failure(text);
    sluice_status status = ort_check(ort, result, "the model could not be run", error);
    return no_memory ? SLUICE_NO_MEMORY : operator_failed ? SLUICE_INVALID_ARGUMENT : status;
}

/* Since version 1.29 the library sends telemetry unless disabled: it stores an identifier in the
 * user's home and sends events about models over the network, which a server of other people's
 * models must not do. It can be disabled by an environment variable only, before the environment
 * reports for the first time; a value set by the operator is kept. It is the process's only change
 * of the environment, made before other threads could read it. */
static void telemetry_off(void) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
}

static sluice_status environment_make(struct ort *ort, sluice_error *error) {
    static const char doing[] = "ONNX Runtime could not be started";
    const OrtApi *api = ort->api;
    sluice_status status = ort_check(
        ort,
        api->CreateEnvWithCustomLogger(log_forward, ort, ORT_LOGGING_LEVEL_WARNING, "", &ort->env),
        doing, error);
    if (status == SLUICE_OK) {
        status = ort_check(
            ort, api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &ort->cpu), doing,
            error);
    }
    if (status == SLUICE_OK) {
        status = ort_check(ort, api->GetAllocatorWithDefaultOptions(&ort->allocator), doing, error);
    }
    if (status == SLUICE_OK) {
        memory_init(&ort->memory, ort->allocator, ort->cpu);
        status =
            ort_check(ort, api->RegisterAllocator(ort->env, &ort->memory.allocator), doing, error);
    }
    return status;
}

void ort_prepare(struct ort *ort, const sluice_host *host) {
    *ort = (struct ort){.host = host};
    telemetry_off();
}

sluice_status ort_init(struct ort *ort, sluice_error *error) {
    struct library library;
    sluice_status status = library_load(ort->host, &library, error);
    if (status != SLUICE_OK) {
        return status;
    }
    ort->api = library.api;
    ort->version = library.version;
    status = environment_make(ort, error);
    if (status != SLUICE_OK) {
        ort->api->ReleaseMemoryInfo(ort->cpu);
        if (ort->env) {
            ort->api->ReleaseEnv(ort->env);
        }
        *ort = (struct ort){.host = ort->host};
    }
    return status;
}
