/* Can an input be a picture? Its shape says where height, width and channels are; where it leaves
 * that open, or the settings say something else, they decide or are refused. */
#ifndef SLUICE_SERVE_FRONTEND_MIP_PICTURE_H
#define SLUICE_SERVE_FRONTEND_MIP_PICTURE_H

#include "core/tensor/shape.h"
#include "serve/frontend/mip/settings.h"

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
