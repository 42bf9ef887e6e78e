/* One picture, all the way. The part's rows are counted here: a decoder that gives fewer than the
 * head promised has failed, whatever it says. */
#include "serve/picture/decode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "serve/picture/fit.h"
#include "serve/picture/normalise.h"
#include "serve/picture/resample.h"
#include "serve/picture/samples.h"
#include "serve/picture/strip.h"

typedef void samples_change(const uint8_t *from, size_t n, uint8_t *to);

/* What is done with rows around resizing; NULL: nothing. In the end they are RGB. */
struct way {
    samples_change *before, *after;
    uint32_t n_channels; /* between the two */
};

/* What the rows pass through. */
struct passage {
    const struct head *head;
    const struct picture_plan *plan;
    const struct fit *fit;
    const struct normalise *normalise;
    void *out;
    /* from the start on */
    struct way way;
    uint8_t *old_row; /* of the file, changed */
    uint8_t *new_row; /* resized, changed */
    struct resample *resample;
    enum status status; /* of the start */
    struct error *err;
    uint32_t n_rows; /* that came from the part */
};

static enum status check_size(const struct head *head, uint64_t max_pixels, struct error *err) {
    uint64_t n_pixels = (uint64_t)head->width * head->height;
    if (n_pixels > max_pixels) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "the %s picture has %" PRIu32 " x %" PRIu32 " = %" PRIu64
                         " pixels, at most %" PRIu64 " are decoded (--max-picture-pixels)",
                         head_format_name(head->format), head->width, head->height, n_pixels,
                         max_pixels);
    }
    if (head->width > DECODE_MAX_SIDE || head->height > DECODE_MAX_SIDE) {
        return error_set(
            err, ST_BODY_TOO_LARGE,
            "the %s picture is %" PRIu32 " x %" PRIu32 " pixels, no side may be over %d",
            head_format_name(head->format), head->width, head->height, DECODE_MAX_SIDE);
    }
    return ST_OK;
}

/* ---- the way --------------------------------------------------------------------------------- */

static bool is_auto(const struct passage *passage) {
    return passage->plan->filter == PICTURE_AUTO;
}

static enum picture_filter filter_of(const struct passage *passage) {
    if (!is_auto(passage)) {
        return passage->plan->filter;
    }
    return passage->head->is_indexed ? PICTURE_NEAREST : PICTURE_BICUBIC;
}

/* Pillow's resize works on what the file has: transparent colours are multiplied, inks are resized
 * as inks. Not where the nearest pixel is taken, nor where the size stays. */
static struct way way_of(const struct passage *passage, enum picture_samples samples) {
    bool mixes = is_auto(passage) && !passage->head->is_indexed && !fit_is_same(passage->fit);
    switch (samples) {
    case PICTURE_SAMPLES_RGBA:
        return mixes ? (struct way){samples_multiply, samples_divide, 4}
                     : (struct way){samples_drop_alpha, NULL, 3};
    case PICTURE_SAMPLES_CMYK:
        return mixes ? (struct way){NULL, samples_from_cmyk, 4}
                     : (struct way){samples_from_cmyk, NULL, 3};
    case PICTURE_SAMPLES_RGB:
        break;
    }
    return (struct way){NULL, NULL, 3};
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void on_new_row(void *cookie, uint32_t y, const uint8_t *samples) {
    struct passage *passage = cookie;
    const struct fit *fit = passage->fit;
    if (passage->way.after) {
        passage->way.after(samples, fit->x.n_out, passage->new_row);
        samples = passage->new_row;
    }
    normalise_row(passage->normalise, passage->out, fit->left, fit->top + y, fit->x.n_out, samples);
}

/* Gives what the first frame of a GIF file does not cover of row `y` its fill colour. */
static void fill_uncovered(const struct head *head, uint32_t y, uint8_t *rgb) {
    const struct head_frame *frame = &head->frame;
    bool inside = y >= frame->top && y - frame->top < frame->height;
    for (uint32_t x = 0; x < head->width; x++) {
        if (!inside || x < frame->left || x - frame->left >= frame->width) {
            memcpy(rgb + (size_t)x * 3, frame->fill, 3);
        }
    }
}

/* Returns: the row as it is resized. */
static const uint8_t *changed(struct passage *passage, const uint8_t *samples) {
    const struct head *head = passage->head;
    bool is_gif = head->format == PICTURE_GIF;
    if (passage->way.before) {
        passage->way.before(samples, head->width, passage->old_row);
        samples = passage->old_row;
    } else if (is_gif) {
        memcpy(passage->old_row, samples, (size_t)head->width * 3);
    }
    if (is_gif) {
        fill_uncovered(head, passage->n_rows, passage->old_row);
        samples = passage->old_row;
    }
    return samples;
}

static void on_old_row(void *cookie, const uint8_t *samples) {
    struct passage *passage = cookie;
    assert(passage->resample); /* started */
    if (passage->n_rows < passage->head->height) {
        resample_row(passage->resample, changed(passage, samples));
    }
    passage->n_rows++;
}

static bool on_start(void *cookie, enum picture_samples samples) {
    struct passage *passage = cookie;
    const struct fit *fit = passage->fit;
    assert(!passage->resample);
    passage->way = way_of(passage, samples);
    passage->old_row = malloc((size_t)passage->head->width * 4);
    passage->new_row = malloc((size_t)fit->x.n_out * 3);
    struct resample_plan plan = {.x = fit->x,
                                 .y = fit->y,
                                 .filter = filter_of(passage),
                                 .n_channels = passage->way.n_channels,
                                 .row = on_new_row,
                                 .cookie = passage};
    passage->status = resample_new(&plan, &passage->resample, passage->err);
    return passage->status == ST_OK && passage->old_row && passage->new_row;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum status run_part(const struct picture_part *part, struct str file,
                            struct passage *passage, struct error *err) {
    const struct head *head = passage->head;
    struct picture_part_sink sink = {.cookie = passage, .start = on_start, .row = on_old_row};
    enum picture_part_result result = PICTURE_PART_NO_MEMORY;
    struct str copy = strip_copy(file, head);
    if (copy.ptr) {
        struct picture_part_file wanted = {.data = copy.ptr,
                                           .n_bytes = copy.len,
                                           .format = head->format,
                                           .width = head->width,
                                           .height = head->height};
        result = part->decode(&wanted, &sink);
    }
    free((char *)copy.ptr);
    if (passage->status != ST_OK) {
        return passage->status; /* with its sentence */
    }
    if (result == PICTURE_PART_NO_MEMORY) {
        return error_set(err, ST_NO_MEMORY,
                         "out of memory for a %s picture of %" PRIu32 " x %" PRIu32 " pixels",
                         head_format_name(head->format), head->width, head->height);
    }
    if (result != PICTURE_PART_OK || passage->n_rows != head->height) {
        return error_set(err, ST_BAD_PICTURE,
                         "the %s picture is cut off or damaged: %" PRIu32 " of its %" PRIu32
                         " rows could be decoded",
                         head_format_name(head->format), passage->n_rows, head->height);
    }
    return ST_OK;
}

enum status picture_decode(const struct picture_part *part, uint64_t max_pixels,
                           const struct picture_plan *plan, struct str file, void *out,
                           struct error *err) {
    struct head head;
    enum status st = head_read(file, &head, err);
    if (st == ST_OK) {
        st = check_size(&head, max_pixels, err);
    }
    if (st != ST_OK) {
        return st;
    }
    struct fit fit = fit_make(plan, head.width, head.height);
    struct normalise normalise;
    normalise_init(&normalise, plan);
    if (plan->fit == PICTURE_PAD) {
        normalise_pad(&normalise, out);
    }
    struct passage passage = {.head = &head,
                              .plan = plan,
                              .fit = &fit,
                              .normalise = &normalise,
                              .out = out,
                              .status = ST_OK,
                              .err = err};
    st = run_part(part, file, &passage, err);
    resample_free(passage.resample);
    free(passage.old_row);
    free(passage.new_row);
    return st;
}
