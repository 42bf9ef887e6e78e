/* NumPy's file format for arrays, versions 1 to 3: the magic, a Python literal that describes the
 * array, and its bytes. Accepted are arrays that are tensors without conversion: little-endian
 * numbers and booleans in C order. The error for others has the NumPy expression that converts
 * them.
 *
 * Clause: NumPy Enhancement Proposal 1, "A Simple File Format for NumPy Arrays". */
#ifndef SLUICE_PROGRAM_REQUESTS_NPY_H
#define SLUICE_PROGRAM_REQUESTS_NPY_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/shape.h"

struct npy {
    enum datatype datatype;
    struct shape shape;
    struct str data; /* a view of the file's bytes */
};

/* Does it begin with the magic of a .npy file? */
bool npy_has_magic(struct str bytes);
/* `name` is the file's name in messages. Returns: ST_BAD_DATA. Owns: the shape is in `arena`. */
enum status npy_decode(struct arena *arena, struct str bytes, const char *name, struct npy *out,
                       struct error *err) SLUICE_MUST_USE;
/* Appends the header of a tensor's file, padded to 64 bytes. Returns: ST_BAD_DATATYPE for BYTES and
 * BF16, which NumPy does not have. */
enum status npy_encode_head(struct buf *out, enum datatype datatype, struct shape shape,
                            struct error *err) SLUICE_MUST_USE;

#endif
