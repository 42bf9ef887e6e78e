/* Resizes a picture of 8-bit samples row by row, top to bottom: each old row is resized to the new
 * width and added to the new rows that it contributes to. Memory is a few rows of the new width,
 * independent of the old height. */
#ifndef SLUICE_SERVE_PICTURE_RESAMPLE_H
#define SLUICE_SERVE_PICTURE_RESAMPLE_H

#include <stdint.h>

#include "core/base/status.h"
#include "serve/picture/weights.h"

struct resample;

struct resample_plan {
    struct weights_axis x, y;
    enum picture_filter filter; /* not AUTO */
    uint32_t n_channels;        /* samples per pixel: 3 or 4 */
    /* Called for each new row from the top: x.n_out pixels, borrowed for the call. */
    void (*row)(void *user, uint32_t y, const uint8_t *samples);
    void *user;
};

/* Returns: ST_NO_MEMORY. */
enum status resample_new(const struct resample_plan *plan, struct resample **out,
                         struct error *err) SLUICE_MUST_USE;
/* NULL is allowed. */
void resample_free(struct resample *resample);

/* Adds the next old row, x.n_in pixels; called y.n_in times. The last new row is delivered during
 * the last call or earlier. Thread: one at a time. */
void resample_row(struct resample *resample, const uint8_t *samples);

#endif
