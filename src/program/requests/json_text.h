/* JSON text of arguments and answers: checked, printed on one line, and the shape of an array. */
#ifndef SLUICE_PROGRAM_REQUESTS_JSON_TEXT_H
#define SLUICE_PROGRAM_REQUESTS_JSON_TEXT_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/shape.h"

/* Checks that `text` is one JSON value; NaN, Infinity and -Infinity are values, as Python writes
 * them. Returns: ST_BAD_JSON with the offset. */
enum status json_line_check(struct arena *arena, struct str text,
                            struct error *err) SLUICE_MUST_USE;
/* Appends a valid JSON value on one line, with a space after each comma and colon. Numbers and
 * strings keep their text. */
void json_line_print(struct buf *out, struct str text);

/* The shape of a JSON array: [[1,2,3],[4,5,6]] is [2,3]; a scalar has rank 0. Counts brackets and
 * commas only: the parser that reads the text afterwards validates it. Returns: ST_BAD_SHAPE when
 * rows differ in length or depth, or for more than SHAPE_MAX_RANK levels. Owns: in `arena`. */
enum status json_shape(struct arena *arena, struct str text, struct shape *out,
                       struct error *err) SLUICE_MUST_USE;

#endif
