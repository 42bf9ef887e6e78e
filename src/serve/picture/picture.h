/* Pictures as tensors: an encoded JPEG, PNG, WebP or GIF file is decoded, resized and normalised
 * into a tensor's elements, on threads of its own, never on a loop. Decoding is done by a part that
 * is loaded when it is present (libvips pulls many packages, which nobody needs who serves no
 * pictures); without it every job fails with ST_UNSUPPORTED and says how to get it.
 *
 * Files come from peers: a picture that would be larger than the limits is refused by what its head
 * says, before it is decoded. Of an animation the first frame counts; transparency is dropped in
 * the end, an orientation tag is not acted on, as Pillow's plain open and convert do. */
#ifndef SLUICE_SERVE_PICTURE_PICTURE_H
#define SLUICE_SERVE_PICTURE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/worker.h"
#include "core/tensor/datatype.h"

enum picture_color { PICTURE_RGB, PICTURE_BGR, PICTURE_GREY }; /* grey: ITU-R 601 */
/* How a picture of another aspect becomes the wanted size: stretched; scaled until it covers and
 * cut around the centre; scaled until it fits and padded with `pad` around it. */
enum picture_fit { PICTURE_STRETCH, PICTURE_CROP, PICTURE_PAD };
/* AUTO is what Pillow's resize does when it is not told, to a picture as its file has it: the
 * nearest pixel of one with a palette or one bit a pixel; else bicubic, with colours weighted by
 * their opacity, and on inks before they become colours. The others are of RGB, whatever the file
 * has. */
enum picture_filter {
    PICTURE_AUTO,
    PICTURE_NEAREST,
    PICTURE_BILINEAR,
    PICTURE_BICUBIC,
    PICTURE_LANCZOS
};
/* Where the channels are: planes before rows, or within each pixel. */
enum picture_layout { PICTURE_NCHW, PICTURE_NHWC };

enum { PICTURE_MAX_CHANNELS = 3 };

/* What a picture becomes. value = (pixel * scale - mean[c]) / std[c], pixel being 0 to 255 and c
 * counting channels as they lie in the tensor; the result is rounded, halves away from zero, and
 * clamped for integer datatypes. */
struct picture_plan {
    uint32_t width, height;
    enum picture_color color; /* 1 channel for grey, else 3 */
    enum picture_fit fit;
    enum picture_filter filter; /* widened when shrinking, as Pillow's resize */
    enum picture_layout layout;
    enum datatype datatype; /* UINT8, INT8, INT32, FP16, BF16, FP32, FP64 … any number */
    double scale;
    double mean[PICTURE_MAX_CHANNELS], std[PICTURE_MAX_CHANNELS];
    uint8_t pad; /* of every channel */
};

/* Bytes of a picture as elements. Returns: false when they do not fit a size_t, or when there are
 * none: a side of 0, a datatype that is no number. No other plan may be submitted. */
bool picture_plan_bytes(const struct picture_plan *plan, size_t *n_bytes);

struct pictures;

struct pictures_options {
    const char *part; /* path of the .so; it need not exist */
    unsigned n_threads;
    size_t max_queued;   /* jobs that wait; more are refused with ST_OVERLOADED */
    uint64_t max_pixels; /* width x height of a file (--max-picture-pixels) */
};

/* Loads the part if it is there and starts the threads. Not finding it is no error:
 * pictures_missing says why. Returns: ST_NO_MEMORY, ST_IO. Thread: main. */
enum status pictures_new(const struct pictures_options *options, struct pictures **out,
                         struct error *err) __attribute__((warn_unused_result));
/* Waits for jobs that run; none may be submitted any more, and those that waited are done with
 * ST_CANCELLED. Call it while the workers' loops can still take messages. NULL is allowed. */
void pictures_free(struct pictures *pictures);
/* NULL: pictures can be decoded. Else one sentence: why not, and what would help. */
const char *pictures_missing(const struct pictures *pictures);

/* A picture on its way; embedded in what the caller keeps. */
struct picture_job {
    /* set by the caller */
    struct str file;                       /* stays until `done` */
    const struct picture_plan *plan;       /* the same */
    void *out;                             /* picture_plan_bytes(plan), aligned to the datatype */
    struct worker *worker;                 /* where `done` runs */
    void (*done)(struct picture_job *job); /* exactly once, never before picture_submit returned */
    /* filled for `done`: ST_OK, ST_BAD_PICTURE (not one, cut off, damaged), ST_BODY_TOO_LARGE
     * (over max_pixels), ST_OVERLOADED, ST_UNSUPPORTED (no part), ST_NO_MEMORY, ST_CANCELLED */
    struct error error;
    /* the room's own */
    struct picture_job *next, *prev;
    struct worker_msg msg;
    bool waiting; /* guarded by the pool's lock */
};

void picture_submit(struct pictures *pictures, struct picture_job *job);
/* Nobody wants it any more: one that waits is done with ST_CANCELLED, one that runs ends as
 * ever. */
void picture_cancel(struct pictures *pictures, struct picture_job *job);

#endif
