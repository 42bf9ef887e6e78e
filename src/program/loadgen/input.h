/* The inputs of the request: given ones are read as by `sluice infer`, others are generated from
 * the model's metadata. */
#ifndef SLUICE_PROGRAM_LOADGEN_INPUT_H
#define SLUICE_PROGRAM_LOADGEN_INPUT_H

#include "core/base/arena.h"
#include "core/base/random.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"
#include "program/loadgen/settings.h"

/* Makes a tensor for each input of the model, in its order. Returns: ST_BAD_CONFIG, ST_BAD_SHAPE
 * and others, naming the input and the flag. Owns: in `arena`. */
enum status bench_inputs_read(struct arena *arena, const struct bench_options *options,
                              const struct model_spec *model, const struct tensor **out,
                              struct error *err) SLUICE_MUST_USE;

/* ---- generated data -------------------------------------------------------------------------- */

struct bench_data_options {
    bool zeros;
    uint64_t text_size; /* letters in a BYTES element */
    struct prng *random;
};

/* Generates the bytes of a tensor: floats from 0 to 1, integers from 0 to 100 (likely to be
 * valid as indices and token ids), BYTES of letters; or zeros, with empty BYTES. The same seed
 * gives the same data. Returns: ST_BAD_SHAPE for more than memory can hold. Owns: in `arena`. */
enum status bench_data_generate(struct arena *arena, const struct bench_data_options *fill,
                                enum datatype datatype, struct shape shape, struct str *out,
                                struct error *err) SLUICE_MUST_USE;

#endif
