/* What shape does a JSON array have? [[1,2,3],[4,5,6]] is [2,3]. One pass over the text that counts
 * brackets and commas; whether the text is JSON is for the parser that reads it afterwards. */
#ifndef SLUICE_PROGRAM_REQUESTS_JSON_SHAPE_H
#define SLUICE_PROGRAM_REQUESTS_JSON_SHAPE_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/shape.h"

/* A text that is no array has rank 0. Returns: ST_BAD_SHAPE when rows differ in length or depth, or
 * for more than SHAPE_MAX_RANK levels. Owns: in `arena`. */
enum status json_shape(struct arena *arena, struct str text, struct shape *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
