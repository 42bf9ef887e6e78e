/* One picture, all the way. The part's rows are counted here: a decoder that gives fewer than the
 * head promised has failed, whatever it says. */
#include "picture/decode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "picture/fit.h"
#include "picture/normalise.h"
#include "picture/resample.h"
#include "picture/strip.h"

/* What the rows pass through. */
struct passage {
    const struct head *head;
    uint32_t n_rows; /* that came from the part */
    uint8_t *row;    /* a row of a GIF file's first frame with what it does not cover; or NULL */
    struct resample *resample;
    uint32_t left, top;
    uint32_t width; /* resized */
    const struct normalise *normalise;
    void *out;
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

/* ---- rows ------------------------------------------------------------------------------------ */

static void on_new_row(void *cookie, uint32_t y, const uint8_t *rgb) {
    struct passage *passage = cookie;
    normalise_row(passage->normalise, passage->out, passage->left, passage->top + y, passage->width,
                  rgb);
}

/* Of a GIF file's row `y`, what the first frame covers, and its fill colour elsewhere. */
static const uint8_t *covered(struct passage *passage, uint32_t y, const uint8_t *rgb) {
    const struct head_frame *frame = &passage->head->frame;
    bool inside = y >= frame->top && y - frame->top < frame->height;
    for (uint32_t x = 0; x < passage->head->width; x++) {
        bool here = inside && x >= frame->left && x - frame->left < frame->width;
        memcpy(passage->row + (size_t)x * 3, here ? rgb + (size_t)x * 3 : frame->fill, 3);
    }
    return passage->row;
}

static void on_old_row(void *cookie, const uint8_t *rgb) {
    struct passage *passage = cookie;
    if (passage->n_rows < passage->head->height) {
        const uint8_t *row = passage->row ? covered(passage, passage->n_rows, rgb) : rgb;
        resample_row(passage->resample, row);
    }
    passage->n_rows++;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum status run_part(const struct picture_part *part, struct str file,
                            struct passage *passage, struct error *err) {
    const struct head *head = passage->head;
    struct picture_part_sink sink = {.cookie = passage, .row = on_old_row};
    bool is_gif = head->format == PICTURE_GIF;
    enum picture_part_result result = PICTURE_PART_NO_MEMORY;
    struct str copy = strip_copy(file, head);
    passage->row = is_gif ? malloc((size_t)head->width * 3) : NULL;
    if (copy.ptr && (!is_gif || passage->row)) {
        struct picture_part_file wanted = {.data = copy.ptr,
                                           .n_bytes = copy.len,
                                           .format = head->format,
                                           .width = head->width,
                                           .height = head->height};
        result = part->decode(&wanted, &sink);
    }
    free(passage->row);
    free((char *)copy.ptr);
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
                              .left = fit.left,
                              .top = fit.top,
                              .width = fit.x.n_out,
                              .normalise = &normalise,
                              .out = out};
    struct resample_plan resizing = {
        .x = fit.x, .y = fit.y, .filter = plan->filter, .row = on_new_row, .cookie = &passage};
    st = resample_new(&resizing, &passage.resample, err);
    if (st == ST_OK) {
        st = run_part(part, file, &passage, err);
    }
    resample_free(passage.resample);
    return st;
}
