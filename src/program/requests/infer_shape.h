/* The shape of input data that was given without one, or without the batch dimension. It must match
 * the model's input; when several shapes do, or none, the user has to set it. */
#ifndef SLUICE_PROGRAM_REQUESTS_INFER_SHAPE_H
#define SLUICE_PROGRAM_REQUESTS_INFER_SHAPE_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

/* The known extent of the data. */
struct infer_extent {
    bool has_shape;
    struct shape shape;  /* from the nesting of the data, or from its file */
    uint64_t n_elements; /* in total */
};

/* Tries in this order: the data's own shape if it matches `spec`; the same with a leading 1 where
 * `spec` begins with -1; for flat data (rank 1 or none) `spec` itself with its one -1 replaced, a
 * leading -1 being 1 where there are two. Returns: ST_BAD_SHAPE with both shapes and the flag that
 * sets it. Owns: in `arena`. */
enum status infer_shape_resolve(struct arena *arena, const struct infer_extent *data,
                                const struct tensor_spec *spec, struct shape *out,
                                struct error *err) SLUICE_MUST_USE;

/* "1,28,28" or "[1,28,28]". Returns: ST_BAD_CONFIG. Owns: in `arena`. */
enum status infer_shape_parse(struct arena *arena, struct str text, struct shape *out,
                              struct error *err) SLUICE_MUST_USE;

#endif
