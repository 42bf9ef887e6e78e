/* What happens between the items of MIP and the tensors of a model: made of the model's
 * specification and its settings (settings.h) when the model is opened, so that what can't be
 * is said then. It never changes afterwards, and all packets share it. */
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
    MIP_PICTURES_DECODED, /* become the elements of a tensor of numbers */
    MIP_PICTURES_AS_FILE, /* the file's bytes are the one element of a BYTES tensor */
};

struct mip_input {
    const struct tensor_spec *spec;
    struct shape dims; /* of one element of the batch: without the batch dimension */
    uint64_t n_bytes;  /* of one element; 0: it is not known before it comes */
    enum mip_pictures pictures;
    struct shape picture_dims;   /* what `dims` are then; not for REFUSED */
    struct picture_plan picture; /* for DECODED */
    size_t picture_bytes;
    const char *why_refused; /* for REFUSED: a sentence */
};

struct mip_output {
    const struct tensor_spec *spec;
    struct shape dims;
    bool softmax;
    size_t top_k;         /* 0: the values as they are */
    struct labels labels; /* none: the keys are indices */
};

struct mip_plan {
    const struct model_spec *spec;
    bool batches;               /* the tensors have a batch dimension in front */
    uint64_t max_batch;         /* elements of one call; 1 where the model does not batch */
    struct mip_input *inputs;   /* spec->n_inputs */
    size_t n_required;          /* inputs that every element has; behind them are optional ones */
    struct mip_output *outputs; /* spec->n_outputs */
};

/* `directory` is where the model's files lie. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out in
 * `arena`; it borrows from `spec` and `config`. */
enum status mip_plan_new(struct arena *arena, const struct model_spec *spec,
                         const struct model_config *config, struct str directory,
                         const struct mip_plan **out, struct error *err)
    __attribute__((warn_unused_result));

/* Makes the plan of a version that is being opened and adds it to the version. Returns: as
 * mip_plan_new. */
enum status mip_plan_add(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));
/* What mip_plan_add made. Thread: any. */
const struct mip_plan *mip_plan_of(const struct model_version *version);

/* Can some input be a picture that has to be decoded? */
bool mip_plan_decodes_pictures(const struct mip_plan *plan);
/* What becomes of each input and output, for people (--check): lines of two columns. */
void mip_plan_print(const struct mip_plan *plan, struct buf *out);

/* Labels as the keys of a JSON object, so that none may be empty and no two may be equal: labels
 * that are in the file more than once get their line's index behind them, "crane (134)" and
 * "crane (517)". */
/* Makes keys of labels, whose file `path` names in messages. Returns: ST_BAD_CONFIG with the line,
 * ST_NO_MEMORY. Owns: in `arena`, which the labels' text has to outlive. */
enum status mip_labels_make_keys(struct arena *arena, const char *path, struct labels *labels,
                                 struct error *err) __attribute__((warn_unused_result));

/* Can an input be a picture? Its shape says where height, width and channels are; where it leaves
 * that open, or the settings say something else, they decide or are refused. */
/* Makes a picture's plan for an input of `datatype` (any but BYTES) whose elements of the batch
 * have the shape `dims` (-1: any size). `out_dims` (room for dims.rank) gets the shape that a
 * picture has then, without -1. What is taken: [H,W]; [C,H,W] and [H,W,C], C being 1 or 3; all of
 * them with dimensions of 1 or -1 in front.
 * Returns: ST_UNSUPPORTED with one sentence that says why not. */
enum status mip_picture_plan(enum datatype datatype, struct shape dims,
                             const struct mip_settings *settings, struct picture_plan *out,
                             int64_t *out_dims, struct error *err)
    __attribute__((warn_unused_result));

#endif
