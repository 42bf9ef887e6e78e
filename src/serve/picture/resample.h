/* Resizing a picture of 8-bit samples as its rows come, top to bottom: each is resized to the new
 * width and then adds its share to the new rows it bears upon. What is kept is a few rows of the
 * new width, however high the old picture is. */
#ifndef SLUICE_SERVE_PICTURE_RESAMPLE_H
#define SLUICE_SERVE_PICTURE_RESAMPLE_H

#include <stdint.h>

#include "core/base/status.h"
#include "serve/picture/weights.h"

struct resample;

struct resample_plan {
    struct weights_axis x, y;
    enum picture_filter filter; /* not AUTO */
    uint32_t n_channels;        /* samples of a pixel: 3 or 4 */
    /* The new rows, from the top, x.n_out pixels each; borrowed for the call. */
    void (*row)(void *user, uint32_t y, const uint8_t *samples);
    void *user;
};

/* Returns: ST_NO_MEMORY. */
enum status resample_new(const struct resample_plan *plan, struct resample **out, struct error *err)
    __attribute__((warn_unused_result));
/* NULL is allowed. */
void resample_free(struct resample *resample);

/* The next old row, x.n_in pixels; to be called y.n_in times. The last new row is given during the
 * last call, or earlier. Thread: one at a time. */
void resample_row(struct resample *resample, const uint8_t *samples);

#endif
