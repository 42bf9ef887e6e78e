/* Pictures as tensors: an encoded JPEG, PNG, WebP or GIF file is decoded, resized and normalised
 * into tensor elements on separate threads, never on an event loop. Decoding is done by an optional
 * part (a plugin with libvips, which has many dependencies); without it every job fails with
 * ST_UNSUPPORTED and a text that tells how to install it.
 *
 * Files come from clients: a picture larger than the limits is refused by its head, before it is
 * decoded. Of an animation only the first frame is used; transparency is dropped and an orientation
 * tag is ignored, as Pillow's open and convert do.
 *
 * Clients take turns (core/event/fair_queue.h). Where there is more than one thread, pictures that
 * take long leave one free.
 *
 * Back pressure: at most `max_queued` jobs wait; more are refused with ST_OVERLOADED. A job whose
 * decoder does not get its memory waits, and is refused likewise after PICTURE_MEMORY_WAIT_NS. */
#ifndef SLUICE_SERVE_PICTURE_PICTURE_H
#define SLUICE_SERVE_PICTURE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/event/fair_queue.h"
#include "core/event/worker.h"
#include "core/tensor/datatype.h"

enum picture_color { PICTURE_RGB, PICTURE_BGR, PICTURE_GREY }; /* grey: ITU-R 601 */
/* How a picture of another aspect ratio gets the wanted size: stretched; scaled to cover it and
 * cropped around the centre; scaled to fit and padded with `pad`. */
enum picture_fit { PICTURE_STRETCH, PICTURE_CROP, PICTURE_PAD };
/* AUTO is Pillow's default for the file's own mode: the nearest pixel for a palette or one bit per
 * pixel; else bicubic, on premultiplied colours or on inks. The other filters work on RGB for any
 * file. */
enum picture_filter {
    PICTURE_AUTO,
    PICTURE_NEAREST,
    PICTURE_BILINEAR,
    PICTURE_BICUBIC,
    PICTURE_LANCZOS
};
/* Order of the channels: planes, or within each pixel. */
enum picture_layout { PICTURE_NCHW, PICTURE_NHWC };

enum { PICTURE_MAX_CHANNELS = 3 };

/* The conversion to elements: value = (pixel * scale - mean[c]) / std[c], where pixel is 0 to 255
 * and c is the channel of the tensor; rounded half away from zero and clamped for integer
 * datatypes. */
struct picture_plan {
    uint32_t width, height;
    enum picture_color color; /* 1 channel for grey, else 3 */
    enum picture_fit fit;
    enum picture_filter filter; /* widened when shrinking, as in Pillow's resize */
    enum picture_layout layout;
    enum datatype datatype; /* UINT8, INT8, INT32, FP16, BF16, FP32, FP64 ...: any numeric
                               datatype */
    double scale;
    double mean[PICTURE_MAX_CHANNELS], std[PICTURE_MAX_CHANNELS];
    uint8_t pad; /* of every channel */
    /* Of PICTURE_CROP: the picture's shorter side is resized to it first, and the middle is cut out
     * of the result, as torchvision's Resize and CenterCrop do. At least width and height, at most
     * 65535; 0: the picture is scaled to cover them. */
    uint32_t short_side;
};

/* The size of a picture's elements. Returns: false on overflow, for a side of 0 and for a datatype
 * that is not numeric; such a plan must not be submitted. */
bool picture_plan_bytes(const struct picture_plan *plan, size_t *n_bytes);

struct pictures;

/* The memory that decoders may use, which is shared with others. Zeroed: it is not counted. */
struct picture_memory {
    /* Returns: false when `n_bytes` don't fit now. Thread: any. */
    bool (*take)(void *user, uint64_t n_bytes);
    void (*give)(void *user, uint64_t n_bytes);
    uint64_t limit; /* of one picture (--client-memory) */
    void *user;
};

struct pictures_options {
    const char *part;            /* path of the .so; it need not exist */
    unsigned picture_threads;    /* --picture-threads: pool.c:picture_pool_new */
    size_t max_queued;           /* waiting jobs; more are refused with ST_OVERLOADED */
    uint64_t max_picture_pixels; /* width x height of a file (--max-picture-pixels):
                                    decode.c:check_size */
    struct picture_memory memory;
};

/* Loads the part if it exists and starts the threads. A missing part is not an error:
 * pictures_missing reports it. Returns: ST_NO_MEMORY, ST_IO. Thread: main. */
enum status pictures_new(const struct pictures_options *options, struct pictures **out,
                         struct error *err) SLUICE_MUST_USE;
/* Waits for running jobs; waiting ones complete with ST_CANCELLED, and no more may be submitted.
 * Called while the workers' loops still run. NULL is allowed. */
void pictures_free(struct pictures *pictures);
/* Returns: NULL when pictures can be decoded; otherwise the reason and the remedy. */
const char *pictures_missing(const struct pictures *pictures);

/* Decodes one file on the calling thread, which may block; for a command. `part` as in
 * pictures_options; `out` and the errors are those of a job. */
enum status picture_decode_now(const char *part, uint64_t max_picture_pixels,
                               const struct picture_plan *plan, struct str file, void *out,
                               struct error *err) SLUICE_MUST_USE;

enum { PICTURE_IN_NO_LINE = 3 };

/* What decoding a file takes, by its head. */
struct picture_need {
    uint64_t n_bytes; /* memory of the decoder at most */
    uint64_t ns;      /* estimated time, for a slow core */
};

/* A picture to decode; embedded in the caller's object. */
struct picture_job {
    /* set by the caller */
    struct str file;                       /* valid until `done` */
    const struct picture_plan *plan;       /* valid until `done` */
    void *out;                             /* picture_plan_bytes(plan), aligned to the datatype */
    struct worker *worker;                 /* where `done` runs */
    struct fair_client client;             /* whose turn it is */
    void (*done)(struct picture_job *job); /* runs exactly once, never before picture_submit
                                              returned */
    /* filled for `done`: ST_OK, ST_BAD_PICTURE (not a picture, truncated, damaged),
     * ST_BODY_TOO_LARGE (max_picture_pixels exceeded), ST_OVERLOADED, ST_UNSUPPORTED (no part),
     * ST_NO_MEMORY, ST_CANCELLED */
    struct error error;
    /* private to serve/picture */
    struct worker_msg msg;
    struct picture_need need;
    /* protected by the pool's lock */
    struct fair_entry entry;
    size_t line; /* where it waits; PICTURE_IN_NO_LINE: nowhere */
    bool cancelled;
};

void picture_submit(struct pictures *pictures, struct picture_job *job);
/* Cancels the job: a waiting one completes with ST_CANCELLED, a running one completes normally. */
void picture_cancel(struct pictures *pictures, struct picture_job *job);

#endif
