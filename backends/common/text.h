/* Sentences: our own, and those of a library, made fit for an answer or a line of the log. */
#ifndef SLUICE_COMMON_TEXT_H
#define SLUICE_COMMON_TEXT_H

#include <stddef.h>

#include "sluice/backend.h"

/* Writes one sentence, printf-like. Returns: `status`. */
sluice_status error_set(sluice_error *error, sluice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies `text` with every run of blanks, line ends and control characters made one blank; cuts at
 * a character's start when it does not fit. `skip` is asked at the beginning and behind each of
 * those characters how many bytes from there on say nothing to a reader (a place in the library's
 * source). */
void text_one_line(const char *text, size_t (*skip)(const char *text), char *out, size_t n_bytes);

/* Decimal digits and nothing else, at most `max`, which is at most 9999. Returns: 0 when it is not
 * that. */
int text_number(const char *text, int max, int *value);

/* A parameter that no table has: a line in the log, but for those that are the server's own. */
void text_warn_unknown(const sluice_host *host, const sluice_model_args *args, const char *backend,
                       const char *name);

/* The host's ABI is not ours: says so in its log. Returns: 1 when it is. */
int text_check_host_abi(const sluice_host *host, const char *backend);

#endif
