/* JSON text of arguments and answers: checked, printed on one line, and the shape of an array. */
#ifndef SLUICE_PROGRAM_REQUESTS_JSON_TEXT_H
#define SLUICE_PROGRAM_REQUESTS_JSON_TEXT_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/shape.h"

/* JSON on one line: text that came from somewhere is checked, and laid out so that a person can
 * read it and a line is a value. Numbers and strings keep the text they have. */
/* Is it one JSON value? (NaN, Infinity and -Infinity are, as Python's writers have them.)
 * Returns: ST_BAD_JSON saying where it is not; ST_NO_MEMORY. */
enum status json_line_check(struct arena *arena, struct str text, struct error *err)
    __attribute__((warn_unused_result));
/* Appends the value: no line breaks, a space behind each comma and colon. `text` must be one. */
void json_line_print(struct buf *out, struct str text);

/* What shape does a JSON array have? [[1,2,3],[4,5,6]] is [2,3]. One pass over the text that counts
 * brackets and commas; whether the text is JSON is for the parser that reads it afterwards. */
/* A text that is no array has rank 0. Returns: ST_BAD_SHAPE when rows differ in length or depth, or
 * for more than SHAPE_MAX_RANK levels. Owns: in `arena`. */
enum status json_shape(struct arena *arena, struct str text, struct shape *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
