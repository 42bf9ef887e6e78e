/* The results of functions that can fail: they return an `enum status` and fill the caller's
 * `struct error` once, where the failure happened, with a text that contains what was expected, the
 * actual value, and the setting that changes a limit. Rows are in status.def; no other file maps
 * reasons to the codes of a protocol. */
#ifndef SLUICE_CORE_BASE_STATUS_H
#define SLUICE_CORE_BASE_STATUS_H

#include <stdarg.h>

#include "core/base/compiler.h"

#define STATUS(name, text, http, grpc, mip) ST_##name,
enum status {
#include "core/base/status.def"
    ST_COUNT_
};
#undef STATUS

/* Bytes of an error's text, the final NUL included; longer text is cut at a character. */
enum { ERROR_TEXT_BYTES = 480 };

struct error {
    enum status status;
    char text[ERROR_TEXT_BYTES];
};

/* Fills `err` (NULL is allowed) with `status` and the formatted text. Bytes from a peer may be
 * formatted with %.*s: control characters and invalid UTF-8 are replaced by '?', so that the text
 * is safe in any protocol and log. Returns: `status`, so that a caller can `return
 * error_set(…)`. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum status error_setv(struct error *err, enum status status, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Fills `err` (NULL is allowed) with "out of memory for " and the formatted text, a noun phrase
 * such as "the request" or "%zu items". Returns: ST_NO_MEMORY. */
enum status error_no_memory(struct error *err, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

/* `why`: an errno. Returns: ST_NOT_READY where it says that the process or the machine lacks
 * descriptors, threads or memory, which may pass and is no mistake of the caller's; else
 * `otherwise`. */
enum status status_of_errno(int why, enum status otherwise);

/* Puts the formatted text and ": " in front of err->text (a path, a model's name). Returns:
 * err->status. */
enum status error_prefix(struct error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *status_name(enum status status); /* "BAD_SHAPE" */
const char *status_text(enum status status); /* "wrong shape" */
int status_http(enum status status);
int status_grpc(enum status status);
int status_mip(enum status status);

#endif
