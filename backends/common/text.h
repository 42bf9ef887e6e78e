/* Error and log texts of backends: formatting, and cleaning up the texts of libraries. */
#ifndef SLUICE_COMMON_TEXT_H
#define SLUICE_COMMON_TEXT_H

#include <stddef.h>

#include "sluice/backend.h"

/* Formats an error text. Returns: `status`. */
sluice_status error_set(sluice_error *error, sluice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Formats "out of memory for " and a noun phrase, such as "the outputs". Returns:
 * SLUICE_NO_MEMORY. */
sluice_status error_no_memory(sluice_error *error, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies `text`, replacing each run of blanks, line ends and control characters by one blank, and
 * truncates at a character boundary. `skip` is called at the start and after each of those
 * characters, and returns the number of bytes to leave out there (such as a place in the library's
 * source). */
void text_one_line(const char *text, size_t (*skip)(const char *text), char *out, size_t n_bytes);

/* Parses decimal digits up to `max`, which is at most 9999. Returns: 0 when the text is anything
 * else. */
int text_number(const char *text, int max, int *value);

/* Logs a warning for an unknown parameter, except the server's own (sluice.*). */
void text_warn_unknown(const sluice_host *host, const sluice_model_args *args, const char *backend,
                       const char *name);

/* Logs an error when the host's ABI version differs from ours. Returns: 1 when it is the same. */
int text_check_host_abi(const sluice_host *host, const char *backend);

#endif
