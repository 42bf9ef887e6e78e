/* The plan of a model: how the items of MIP become tensors and back. It is made of the model's
 * specification and settings (settings.h) when the model is opened, which reports invalid settings.
 * Immutable; all packets share it. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_PLAN_H
#define SLUICE_SERVE_FRONTEND_MIP_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/shape.h"
#include "core/tensor/tensor.h"
#include "serve/frontend/labels.h"
#include "serve/frontend/mip/settings.h"
#include "serve/picture/picture.h"
#include "serve/scheduler/model_version.h"

enum mip_pictures {
    MIP_PICTURES_REFUSED,
    MIP_PICTURES_DECODED, /* decoded to the numbers of a tensor */
    MIP_PICTURES_AS_FILE, /* the file is the one element of a BYTES tensor */
};

struct mip_input {
    const struct tensor_spec *spec;
    struct shape dims; /* of one batch element, without the batch dimension */
    uint64_t n_bytes;  /* of one batch element; 0: not fixed */
    enum mip_pictures pictures;
    struct shape picture_dims;   /* the shape of a picture; not for REFUSED */
    struct picture_plan picture; /* for DECODED */
    size_t picture_bytes;
    const char *why_refused; /* for REFUSED: the reason */
};

struct mip_output {
    const struct tensor_spec *spec;
    struct shape dims;
    bool softmax;
    size_t top_k;         /* 0: all values */
    struct labels labels; /* empty: the keys are indices */
};

struct mip_plan {
    const struct model_spec *spec;
    bool batches;               /* tensors have a batch dimension in front */
    uint64_t max_batch;         /* most elements of one call; 1 where the model does not batch */
    struct mip_input *inputs;   /* spec->n_inputs */
    size_t n_required;          /* leading inputs that an element must have */
    struct mip_output *outputs; /* spec->n_outputs */
};

/* Builds a plan. `directory`: the model's directory. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns:
 * *out in `arena`; it borrows from `spec` and `config`. */
enum status mip_plan_new(struct arena *arena, const struct model_spec *spec,
                         const struct model_config *config, struct str directory,
                         const struct mip_plan **out, struct error *err) SLUICE_MUST_USE;

/* Builds the plan of a version that is being opened and attaches it to the version. Returns: as
 * mip_plan_new. */
enum status mip_plan_add(struct model_version *version, struct error *err) SLUICE_MUST_USE;
/* The plan that mip_plan_add attached. Thread: any. */
const struct mip_plan *mip_plan_of(const struct model_version *version);

/* Is there an input whose pictures are decoded? */
bool mip_plan_decodes_pictures(const struct mip_plan *plan);
/* Appends the plan as text for --check: one line per input and output, in two columns. */
void mip_plan_print(const struct mip_plan *plan, struct buf *out);

/* Turns labels into keys of a JSON object, which must be unique and not empty: a label that occurs
 * more than once gets its line's index appended, "crane (134)" and "crane (517)". `path` is the
 * file's name in messages. Returns: ST_BAD_CONFIG with the line, ST_NO_MEMORY. Owns: in `arena`,
 * which the labels' text has to outlive. */
enum status mip_labels_make_keys(struct arena *arena, const char *path, struct labels *labels,
                                 struct error *err) SLUICE_MUST_USE;

/* picture.c: makes the plan of a picture for an input of `datatype` (any but BYTES) whose batch
 * elements have the shape `dims` (-1: any size): [H,W], [C,H,W] or [H,W,C] with C 1 or 3, after any
 * leading dimensions of 1 or -1. Settings decide what the shape leaves open, and must not
 * contradict it. `out_dims` (capacity dims.rank) gets the shape of a picture, without -1. Returns:
 * ST_UNSUPPORTED with the reason. */
enum status mip_picture_plan(enum datatype datatype, struct shape dims,
                             const struct mip_settings *settings, struct picture_plan *out,
                             int64_t *out_dims, struct error *err) SLUICE_MUST_USE;

#endif
