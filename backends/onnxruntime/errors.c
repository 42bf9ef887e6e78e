/* The library's errors and log lines. Log lines go to the server's log; an error's text becomes one
 * clean line, and the reason of a load that fails one that says what to do. */
#include <stdio.h>
#include <string.h>

#include "common/model_file.h"
#include "onnxruntime/ort.h"

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

void ort_log(void *param, OrtLoggingLevel severity, const char *category, const char *logid,
             const char *code_location, const char *message) {
    const struct ort *ort = param;
    sluice_log_level level = severity >= ORT_LOGGING_LEVEL_ERROR     ? SLUICE_LOG_ERROR
                             : severity == ORT_LOGGING_LEVEL_WARNING ? SLUICE_LOG_WARNING
                             : severity == ORT_LOGGING_LEVEL_INFO    ? SLUICE_LOG_INFO
                                                                     : SLUICE_LOG_DEBUG;
    char text[1024];
    (void)category;
    (void)code_location;
    /* A shape whose size overflows is logged by the library's own logger, whatever the level of the
     * run's. A client can cause it at will, and gets the error in its answer. */
    if (strstr(message, "SafeIntOnOverflow")) {
        level = SLUICE_LOG_DEBUG;
    }
    ort_text(message, text, sizeof(text));
    ort->host->log(level, logid ? logid : "", text);
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
    /* the codes do not say so */
    int no_memory = strstr(text, "std::bad_alloc") || strstr(text, "Failed to allocate memory");
    /* an exception within an operator, such as that of a text that is no number, is a failure of
     * that operator, too */
    int operator_failed = (code == ORT_FAIL || code == ORT_RUNTIME_EXCEPTION) &&
                          strstr(text, "returned while running");
    sluice_status status = ort_check(ort, result, "the model could not be run", error);
    return no_memory ? SLUICE_NO_MEMORY : operator_failed ? SLUICE_INVALID_ARGUMENT : status;
}

/* ---- loading a model ------------------------------------------------------------------------- */

/* ONNX Runtime's reasons are written for its own engineers: some name a C++ function and a limit, a
 * file of any other kind is one that "protobuf" could not parse. Those that people meet with a
 * first model are rewritten here; the others keep the library's words. */

enum { NAME_BYTES = 64 };

/* Copies what is between `before` and one of the characters `until`. Returns: 0 when the text has
 * none. */
static int word_after(const char *text, const char *before, const char *until,
                      char out[NAME_BYTES]) {
    const char *at = strstr(text, before);
    if (!at) {
        return 0;
    }
    at += strlen(before);
    size_t n = strcspn(at, until);
    n = n < NAME_BYTES ? n : NAME_BYTES - 1;
    memcpy(out, at, n);
    out[n] = '\0';
    return n > 0;
}

/* The number after `before`. Returns: 0 when the text has none. */
static int number_after(const char *text, const char *before, int *number) {
    char word[NAME_BYTES];
    return word_after(text, before, " ,.;\n", word) && text_number(word, 9999, number);
}

static int explain_ir_version(const struct ort *ort, const char *message, const char *path,
                              char *out, size_t n_bytes) {
    int has, most;
    if (!number_after(message, "Unsupported model IR version: ", &has) ||
        !number_after(message, "max supported IR version: ", &most)) {
        return 0;
    }
    snprintf(out, n_bytes,
             "%s was written by a newer ONNX than this ONNX Runtime (%s) knows: its IR version is "
             "%d, at most %d is known; set model.ir_version = %d before onnx.save, or install a "
             "newer ONNX Runtime",
             path, ort->version, has, most, most);
    return 1;
}

static int explain_opset(const struct ort *ort, const char *message, const char *path, char *out,
                         size_t n_bytes) {
    int has, most;
    char domain[NAME_BYTES];
    if (!number_after(message, "Opset ", &has) || !number_after(message, "is till opset ", &most) ||
        !word_after(message, "support for domain ", " ", domain)) {
        return 0;
    }
    snprintf(out, n_bytes,
             "%s needs opset %d of %s; this ONNX Runtime (%s) knows up to %d: export it with "
             "opset_version=%d, or install a newer ONNX Runtime",
             path, has, domain, ort->version, most, most);
    return 1;
}

static int explain_operator(const struct ort *ort, const char *message, const char *path, char *out,
                            size_t n_bytes) {
    int opset;
    char name[NAME_BYTES], domain[NAME_BYTES], node[NAME_BYTES];
    if (word_after(message, "No Op registered for ", " ", name) &&
        number_after(message, "with domain_version of ", &opset)) {
        int has_node = word_after(message, "In Node, (\"", "\"", node);
        snprintf(out, n_bytes,
                 "%s needs the operator %s%s%s%s, which opset %d does not have (ONNX Runtime %s)",
                 path, name, has_node ? " (node \"" : "", has_node ? node : "",
                 has_node ? "\")" : "", opset, ort->version);
        return 1;
    }
    if (strstr(message, "is not a registered function/op") &&
        word_after(message, "Fatal error: ", ":", domain) &&
        word_after(strstr(message, domain) + strlen(domain), ":", "(", name)) {
        snprintf(out, n_bytes,
                 "%s needs the operator %s of the domain %s, which ONNX Runtime (%s) does not "
                 "have: name "
                 "its library in config.pbtxt (model_operations)",
                 path, name, domain, ort->version);
        return 1;
    }
    return 0;
}

static int explain_element_type(const char *message, const char *path, char *out, size_t n_bytes) {
    int type;
    if (!number_after(message, "Invalid tensor data type ", &type)) {
        return 0;
    }
    snprintf(out, n_bytes,
             "%s has a tensor of element type %d, which ONNX does not define: the file is damaged, "
             "or newer than this ONNX Runtime",
             path, type);
    return 1;
}

sluice_status ort_check_load(const struct ort *ort, OrtStatus *result, const char *path,
                             sluice_error *error) {
    if (!result) {
        return SLUICE_OK;
    }
    char text[sizeof(error->text)];
    const char *message = ort->api->GetErrorMessage(result);
    int unreadable = strstr(message, "Protobuf parsing failed") ||
                     strstr(message, "No graph was found in the protobuf");
    int explained = explain_ir_version(ort, message, path, text, sizeof(text)) ||
                    explain_opset(ort, message, path, text, sizeof(text)) ||
                    explain_operator(ort, message, path, text, sizeof(text)) ||
                    explain_element_type(message, path, text, sizeof(text)) ||
                    (unreadable && load_error_explain(path, 1, text, sizeof(text)));
    if (!explained) {
        return ort_check(ort, result, "ONNX Runtime can't load the model", error);
    }
    sluice_status status = ort_check(ort, result, "", error);
    return error_set(error, status, "%s", text);
}

/* ---- loading a library of operators ---------------------------------------------------------- */

/* "Failed to load library PATH with error: PATH: reason" */
static const char *reason_cut(const char *message, const char *path) {
    static const char with[] = "with error: ";
    size_t n = strlen(path);
    const char *reason = strstr(message, with);
    reason = reason ? reason + sizeof(with) - 1 : message;
    return strncmp(reason, path, n) == 0 && reason[n] == ':' ? reason + n + 1 : reason;
}

sluice_status ort_check_library(const struct ort *ort, OrtStatus *result, const char *path,
                                sluice_error *error) {
    char text[256];
    if (!result) {
        return SLUICE_OK;
    }
    ort_text(reason_cut(ort->api->GetErrorMessage(result), path), text, sizeof(text));
    ort->api->ReleaseStatus(result);
    /* The wheels of Python have libraries that expect to be loaded by it. */
    int needs_python =
        strstr(text, "undefined symbol: Py") || strstr(text, "undefined symbol: _Py");
    return error_set(error, SLUICE_INVALID_ARGUMENT,
                     "%s can't be used as a library of operators: %s%s", path, text,
                     needs_python ? " (it needs Python's library: start the server with LD_PRELOAD "
                                    "set to libpython3.N.so.1.0)"
                                  : "");
}
