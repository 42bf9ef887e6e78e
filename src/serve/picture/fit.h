/* Computes which window of the picture is resized, to what size, and its position in the result.
 * Crop and pad round as Pillow's ImageOps.fit and ImageOps.pad do; a crop with a short side as
 * torchvision's Resize and CenterCrop. */
#ifndef SLUICE_SERVE_PICTURE_FIT_H
#define SLUICE_SERVE_PICTURE_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "serve/picture/picture.h"
#include "serve/picture/weights.h"

struct fit {
    struct weights_axis x, y;
    uint32_t left, top; /* position of the resized window in the result; 0 unless padded */
};

/* All sizes >= 1. Thread: any. */
struct fit fit_compute(const struct picture_plan *plan, uint32_t width, uint32_t height);

/* Returns: whether no resizing is needed. */
bool fit_is_identity(const struct fit *fit);

#endif
