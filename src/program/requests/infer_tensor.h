/* An input's tensor from its source: datatype and shape from the flags, else from the model's
 * metadata, else from the data itself. Numbers are never converted to another datatype. */
#ifndef SLUICE_PROGRAM_REQUESTS_INFER_TENSOR_H
#define SLUICE_PROGRAM_REQUESTS_INFER_TENSOR_H

#include "core/tensor/tensor.h"
#include "program/requests/infer_source.h"

/* The known properties of the input; DT_INVALID, false and NULL: unknown. */
struct infer_known {
    enum datatype datatype; /* --datatype */
    bool has_shape;         /* --shape */
    struct shape shape;
    const struct tensor_spec *spec; /* the model's metadata */
    bool raw;                       /* sent as a raw request, which needs no datatype */
};

/* Returns: ST_BAD_DATATYPE, ST_BAD_SHAPE, ST_BAD_DATA, ST_BAD_JSON, with the input and the remedy.
 * Owns: in `arena`, or a view of the source's bytes. */
enum status infer_tensor_read(struct arena *arena, const struct infer_source *source,
                              const struct infer_known *known, struct tensor *out,
                              struct error *err) SLUICE_MUST_USE;

#endif
