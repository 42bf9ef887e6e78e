/* Versions and statuses of sluice/client.h, as numbers, names and texts. */
#include <stddef.h>

#include "sluice/client.h"

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *sluice_version(void) {
    return VERSION_TEXT(SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR, SLUICE_VERSION_PATCH);
}

int32_t sluice_version_number(void) {
    return SLUICE_VERSION_NUMBER;
}

struct status_row {
    sluice_client_status status;
    const char *name, *text;
};

/* A row for each status; sluice_strerror and the table of docs/client.md have the same ones. */
#define ROW(name, text)                                                                            \
    { SLUICE_CLIENT_##name, "SLUICE_CLIENT_" #name, text }
static const struct status_row rows[] = {
    ROW(OK, "success"),
    ROW(PENDING, "the call is not done"),
    ROW(END, "the stream has no more answers"),
    ROW(INVALID, "the arguments can't be sent"),
    ROW(NO_MEMORY, "out of memory"),
    ROW(UNSUPPORTED, "not supported by the protocol of the URL or by this build"),
    ROW(CANCELLED, "the call was cancelled"),
    ROW(TIMEOUT, "a deadline passed"),
    ROW(RESOLVE, "the host's name has no address"),
    ROW(CONNECT, "no connection to the server"),
    ROW(TLS, "the TLS handshake failed"),
    ROW(CLOSED, "the connection ended before an answer"),
    ROW(PROTOCOL, "the answer is truncated or violates the protocol"),
    ROW(SERVER_ERROR, "the server answered with an error"),
    ROW(BUFFER_TOO_SMALL, "a buffer is too small for the answer"),
    ROW(TOO_LARGE, "the answer is over the limit"),
    ROW(NOT_FOUND, "the answer has no such output, parameter or index"),
};
#undef ROW

static const struct status_row *row_of(int32_t status) {
    static const struct status_row unknown = {SLUICE_CLIENT_OK, "unknown status", "unknown status"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if ((int32_t)rows[i].status == status) {
            return &rows[i];
        }
    }
    return &unknown;
}

const char *sluice_strerror(int32_t status) {
    return row_of(status)->text;
}

const char *sluice_status_name(int32_t status) {
    return row_of(status)->name;
}
