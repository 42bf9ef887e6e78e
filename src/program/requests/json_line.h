/* JSON on one line: text that came from somewhere is checked, and laid out so that a person can
 * read it and a line is a value. Numbers and strings keep the text they have. */
#ifndef SLUICE_PROGRAM_REQUESTS_JSON_LINE_H
#define SLUICE_PROGRAM_REQUESTS_JSON_LINE_H

#include "core/base/buf.h"
#include "core/base/status.h"

/* Is it one JSON value? (NaN, Infinity and -Infinity are, as Python's writers have them.)
 * Returns: ST_BAD_JSON saying where it is not; ST_NO_MEMORY. */
enum status json_line_check(struct arena *arena, struct str text, struct error *err)
    __attribute__((warn_unused_result));
/* Appends the value: no line breaks, a space behind each comma and colon. `text` must be one. */
void json_line_print(struct buf *out, struct str text);

#endif
