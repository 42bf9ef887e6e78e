/* Data that is made up: random or zeros, for any datatype. The same seed makes the same data. */
#ifndef SLUICE_PROGRAM_LOADGEN_DATA_H
#define SLUICE_PROGRAM_LOADGEN_DATA_H

#include <stdbool.h>

#include "core/base/arena.h"
#include "core/base/prng.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

struct bench_data_options {
    bool zeros;
    uint64_t text_size; /* letters in a BYTES element */
    struct prng *random;
};

/* The bytes of a tensor: floats from 0 to 1, integers from 0 to 100 (so that indices and tokens are
 * likely to be known), BYTES of letters; or zeros, with empty BYTES. Returns: ST_BAD_SHAPE for more
 * than memory can hold. Owns: in `arena`. */
enum status bench_data_generate(struct arena *arena, const struct bench_data_options *fill,
                                enum datatype datatype, struct shape shape, struct str *out,
                                struct error *err) __attribute__((warn_unused_result));

#endif
