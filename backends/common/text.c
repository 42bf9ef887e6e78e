/* Error and log texts of backends. */
#include "common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sluice_status error_set(sluice_error *error, sluice_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return status;
}

sluice_status error_no_memory(sluice_error *error, const char *what, ...) {
    char noun[sizeof(error->text)];
    va_list args;
    va_start(args, what);
    vsnprintf(noun, sizeof(noun), what, args);
    va_end(args);
    return error_set(error, SLUICE_NO_MEMORY, "out of memory for %s", noun);
}

void text_one_line(const char *text, size_t (*skip)(const char *text), char *out, size_t n_bytes) {
    size_t n = 0;
    int gap = 0;
    for (text += skip(text); *text && n + 2 < n_bytes; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte <= ' ' || byte == 0x7f) {
            gap = n > 0;
            text += skip(text + 1);
            continue;
        }
        if (gap) {
            out[n++] = ' ';
            gap = 0;
        }
        out[n++] = *text;
    }
    if (*text) { /* truncated: at the start of a character */
        while (n > 0 && ((unsigned char)*text & 0xc0) == 0x80) {
            text--;
            n--;
        }
    }
    out[n] = '\0';
}

int text_number(const char *text, int max, int *value) {
    int sum = 0;
    size_t n = strlen(text);
    for (size_t i = 0; i < n && i < 4; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return 0;
        }
        sum = sum * 10 + (text[i] - '0');
    }
    if (n == 0 || n > 4 || sum > max) {
        return 0;
    }
    *value = sum;
    return 1;
}

void text_warn_unknown(const sluice_host *host, const sluice_model_args *args, const char *backend,
                       const char *name) {
    char text[192];
    if (strncmp(name, "sluice.", 7) == 0) { /* parameters of the server */
        return;
    }
    snprintf(text, sizeof(text), "parameter %.100s is unknown to the %s backend and ignored", name,
             backend);
    host->log(SLUICE_LOG_WARNING, args->name, text);
}

int text_check_host_abi(const sluice_host *host, const char *backend) {
    sluice_error error;
    if (host->abi == SLUICE_BACKEND_ABI && host->size >= sizeof(*host)) {
        return 1;
    }
    snprintf(error.text, sizeof(error.text),
             "the %s backend needs ABI %u and a host of %zu bytes; the server offers %u and %zu",
             backend, (unsigned)SLUICE_BACKEND_ABI, sizeof(*host), (unsigned)host->abi, host->size);
    host->log(SLUICE_LOG_ERROR, "", error.text);
    return 0;
}
