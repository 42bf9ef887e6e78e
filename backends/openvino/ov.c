/* The library's core, its log and its errors. An exception's text has a line for each function it
 * passed through and the failed check; it becomes one clean line. */
#include "openvino/ov.h"

#include <stdio.h>
#include <string.h>

#include <openvino/c/ov_util.h>

static int starts_with(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* Matches lines of a message that name a place in the library's source, or announce more lines.
 * Returns: the length of such lines at `text`, line ends included. */
static size_t source_place(const char *text) {
    static const char *const said[] = {
        "Exception from ",    "Check '",   "FrontEnd API failed with ",
        "Summary:",           "While val", "Model wasn't fully",
        "Loading input model"};
    size_t n = 0;
    for (;;) {
        size_t length = strcspn(text + n, "\n"), i = 0;
        while (i < sizeof(said) / sizeof(said[0]) && !starts_with(text + n, said[i])) {
            i++;
        }
        if (i == sizeof(said) / sizeof(said[0]) || text[n + length] == '\0') {
            return n + (starts_with(text + n, "-- ") ? 3 : 0); /* an entry of a list */
        }
        n += length + 1;
    }
}

static sluice_status status_of(ov_status_e code) {
    switch (code) {
    case OK:
        return SLUICE_OK;
    case PARAMETER_MISMATCH:
    case OUT_OF_BOUNDS:
        return SLUICE_INVALID_ARGUMENT;
    case NOT_FOUND:
    case NETWORK_NOT_READ:
        return SLUICE_NOT_FOUND;
    case NOT_IMPLEMENTED:
    case NOT_IMPLEMENT_C_METHOD:
        return SLUICE_UNSUPPORTED;
    case GENERAL_ERROR:
    case NETWORK_NOT_LOADED:
    case UNEXPECTED:
    case REQUEST_BUSY:
    case RESULT_NOT_READY:
    case NOT_ALLOCATED:
    case INFER_NOT_STARTED:
    case INFER_CANCELLED:
    case INVALID_C_PARAM:
    case UNKNOWN_C_ERROR:
    case UNKNOW_EXCEPTION:
        break;
    }
    return SLUICE_INTERNAL; /* includes codes newer than the header */
}

sluice_status ov_check(ov_status_e result, const char *doing, sluice_error *error) {
    char text[384];
    if (result == OK) {
        return SLUICE_OK;
    }
    const char *said = ov_get_last_err_msg();
    text_one_line(said && said[0] ? said : ov_get_error_info(result), source_place, text,
                  sizeof(text));
    ov_free(said);
    return error_set(error, status_of(result), "%s: %s", doing, text);
}

/* The library's log callback has no user argument, so the host is stored here, set once before the
 * first log line. */
static const sluice_host *log_host;

/* The library does not report a severity. */
static void log_forward(const char *message) {
    char text[1024];
    text_one_line(message, source_place, text, sizeof(text));
    log_host->log(SLUICE_LOG_INFO, "", text);
}

static sluice_status version_read(struct ov *ov, sluice_error *error) {
    ov_version_t version = {0};
    sluice_status status =
        ov_check(ov_get_openvino_version(&version), "OpenVINO's version could not be read", error);
    if (status == SLUICE_OK) { /* "2026.4.1-22982-e213a147257-releases/2026/4" */
        snprintf(ov->version, sizeof(ov->version), "%.*s", (int)strcspn(version.buildNumber, "-"),
                 version.buildNumber);
        ov_version_free(&version);
    }
    return status;
}

sluice_status ov_init(struct ov *ov, const sluice_host *host, sluice_error *error) {
    /* Weights are read, not mapped: truncating a mapped file while its model is served would crash
     * the process. */
    static const ov_property_t properties[] = {{"ENABLE_MMAP", "NO"}};
    static const char doing[] = "OpenVINO could not be started";
    *ov = (struct ov){.host = host};
    log_host = host;
    ov_util_set_log_callback(log_forward);
    sluice_status status = version_read(ov, error);
    if (status == SLUICE_OK) {
        status = ov_check(ov_core_create(&ov->core), doing, error);
    }
    if (status == SLUICE_OK) {
        status = ov_check(ov_core_set_properties(ov->core, NULL, 1, properties), doing, error);
    }
    return status;
}
