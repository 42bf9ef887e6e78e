/* Which shape does data have that was given without one, or with one that lacks the batch
 * dimension? The answer must fit what the model says of its input; where several would, or none
 * does, the user is asked to say it. */
#ifndef SLUICE_PROGRAM_REQUESTS_INFER_SHAPE_H
#define SLUICE_PROGRAM_REQUESTS_INFER_SHAPE_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

/* What is known of the data. */
struct infer_extent {
    bool has_shape;
    struct shape shape;  /* as the data is nested, or its file says */
    uint64_t n_elements; /* in all */
};

/* In this order: the data's own shape where it fits `spec`; the same with a leading 1 where `spec`
 * begins with -1; for flat data (rank 1 or none) `spec` itself, its one -1 filled in, and a leading
 * -1 taken as 1 where there are two. Returns: ST_BAD_SHAPE with both shapes and the flag that
 * settles it. Owns: in `arena`. */
enum status infer_shape_resolve(struct arena *arena, const struct infer_extent *data,
                                const struct tensor_spec *spec, struct shape *out,
                                struct error *err) __attribute__((warn_unused_result));

/* "1,28,28" or "[1,28,28]". Returns: ST_BAD_CONFIG. Owns: in `arena`. */
enum status infer_shape_parse(struct arena *arena, struct str text, struct shape *out,
                              struct error *err) __attribute__((warn_unused_result));

#endif
