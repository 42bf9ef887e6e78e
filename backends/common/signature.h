/* The inputs and outputs of a model as its library reports them, in the interface's structs. */
#ifndef SLUICE_COMMON_SIGNATURE_H
#define SLUICE_COMMON_SIGNATURE_H

#include <stddef.h>

#include "sluice/backend.h"

enum { MAX_RANK = 64 }; /* of a tensor */

/* Initialized with {0}. */
struct signature {
    sluice_tensor_info *inputs; /* the optional ones last */
    size_t n_inputs;
    sluice_tensor_info *outputs;
    size_t n_outputs;
    struct block *blocks; /* the memory of all that */
};

/* Allocates zeroed memory for `n` times `n_bytes`. Owns: the signature, until signature_fini.
 * Returns: NULL, with the error set. */
void *signature_alloc(struct signature *signature, size_t n, size_t n_bytes, sluice_error *error);
/* Allocates a copy of `text`. */
char *signature_strdup(struct signature *signature, const char *text, sluice_error *error);
void signature_fini(struct signature *signature);

/* The error for a tensor whose elements have no datatype here. `word`: "input" or "output"; `type`:
 * the library's name for it. Returns: SLUICE_UNSUPPORTED. */
sluice_status signature_refuse_type(sluice_error *error, const char *word, const char *name,
                                    const char *type);

/* Fills the description of a model that has the signature. `follows_shapes`: the time of an
 * execution follows from the shapes of its inputs. */
void signature_describe(const struct signature *signature, const char *platform, int follows_shapes,
                        sluice_model_info *info);

#endif
