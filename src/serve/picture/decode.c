/* Decodes one picture. Rows from the part are counted: a decoder that returns fewer rows than the
 * file's head announced has failed, whatever its result is. */
#include "serve/picture/decode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "serve/picture/pixels.h"
#include "serve/picture/resize.h"
#include "serve/picture/strip.h"

typedef void samples_convert(const uint8_t *from, size_t n, uint8_t *to);

/* Conversions of rows before and after resizing; NULL: none. The result is RGB. */
struct row_conversion {
    samples_convert *before, *after;
    uint32_t n_channels; /* while resizing */
};

/* State while one picture is decoded. */
struct decode_state {
    const struct picture_head *head;
    const struct picture_plan *plan;
    const struct fit *fit;
    const struct normalise *normalise;
    void *out;
    /* set at the start */
    struct row_conversion conversion;
    uint8_t *old_row; /* a row of the file, converted */
    uint8_t *new_row; /* a resized row, converted */
    struct resample *resample;
    enum status status; /* of on_start */
    struct error *err;
    uint32_t n_rows; /* received from the part */
};

static enum status check_size(const struct picture_head *head, uint64_t max_picture_pixels,
                              struct error *err) {
    uint64_t n_pixels = (uint64_t)head->width * head->height;
    if (n_pixels > max_picture_pixels) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "the %s picture has %" PRIu32 " x %" PRIu32 " = %" PRIu64
                         " pixels, at most %" PRIu64 " are decoded (--max-picture-pixels)",
                         head_format_name(head->format), head->width, head->height, n_pixels,
                         max_picture_pixels);
    }
    if (head->width > DECODE_MAX_SIDE || head->height > DECODE_MAX_SIDE) {
        return error_set(
            err, ST_BODY_TOO_LARGE,
            "the %s picture is %" PRIu32 " x %" PRIu32 " pixels, no side may be over %d",
            head_format_name(head->format), head->width, head->height, DECODE_MAX_SIDE);
    }
    return ST_OK;
}

/* ---- conversions ----------------------------------------------------------------------------- */

static bool is_auto(const struct decode_state *state) {
    return state->plan->filter == PICTURE_AUTO;
}

/* Pillow's resize works on the file's own mode: transparent colours are premultiplied, inks are
 * resized as inks. With the filter NEAREST, and without resizing, there is no conversion. */
static struct row_conversion choose_conversion(const struct decode_state *state,
                                               enum picture_samples samples) {
    bool mixes = is_auto(state) && !state->head->is_indexed && !fit_is_identity(state->fit);
    switch (samples) {
    case PICTURE_SAMPLES_RGBA:
        return mixes ? (struct row_conversion){samples_multiply, samples_divide, 4}
                     : (struct row_conversion){samples_drop_alpha, NULL, 3};
    case PICTURE_SAMPLES_CMYK:
        return mixes ? (struct row_conversion){NULL, samples_from_cmyk, 4}
                     : (struct row_conversion){samples_from_cmyk, NULL, 3};
    case PICTURE_SAMPLES_RGB:
        break;
    }
    return (struct row_conversion){NULL, NULL, 3};
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void on_new_row(void *user, uint32_t y, const uint8_t *samples) {
    struct decode_state *state = user;
    const struct fit *fit = state->fit;
    if (state->conversion.after) {
        state->conversion.after(samples, fit->x.n_out, state->new_row);
        samples = state->new_row;
    }
    normalise_row(state->normalise, state->out, fit->left, fit->top + y, fit->x.n_out, samples);
}

/* Fills the pixels of row `y` that the first frame of a GIF file does not cover. */
static void fill_uncovered(const struct picture_head *head, uint32_t y, uint8_t *rgb) {
    const struct head_frame *frame = &head->frame;
    bool inside = y >= frame->top && y - frame->top < frame->height;
    for (uint32_t x = 0; x < head->width; x++) {
        if (!inside || x < frame->left || x - frame->left >= frame->width) {
            memcpy(rgb + (size_t)x * 3, frame->fill, 3);
        }
    }
}

/* Returns: the row to be resized. */
static const uint8_t *convert_row(struct decode_state *state, const uint8_t *samples) {
    const struct picture_head *head = state->head;
    bool is_gif = head->format == PICTURE_GIF;
    if (state->conversion.before) {
        state->conversion.before(samples, head->width, state->old_row);
        samples = state->old_row;
    } else if (is_gif) {
        memcpy(state->old_row, samples, (size_t)head->width * 3);
    }
    if (is_gif) {
        fill_uncovered(head, state->n_rows, state->old_row);
        samples = state->old_row;
    }
    return samples;
}

static void on_old_row(void *user, const uint8_t *samples) {
    struct decode_state *state = user;
    assert(state->resample); /* set by on_start */
    if (state->n_rows < state->head->height) {
        resample_row(state->resample, convert_row(state, samples));
    }
    state->n_rows++;
}

static bool on_start(void *user, enum picture_samples samples) {
    struct decode_state *state = user;
    const struct fit *fit = state->fit;
    assert(!state->resample);
    state->conversion = choose_conversion(state, samples);
    state->old_row = malloc((size_t)state->head->width * 4);
    state->new_row = malloc((size_t)fit->x.n_out * 3);
    struct resample_plan plan = {.x = fit->x,
                                 .y = fit->y,
                                 .filter = !is_auto(state)           ? state->plan->filter
                                           : state->head->is_indexed ? PICTURE_NEAREST
                                                                     : PICTURE_BICUBIC,
                                 .n_channels = state->conversion.n_channels,
                                 .row = on_new_row,
                                 .user = state};
    state->status = resample_new(&plan, &state->resample, state->err);
    return state->status == ST_OK && state->old_row && state->new_row;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static enum status run_part(const struct picture_part *part, struct str file,
                            struct decode_state *state, struct error *err) {
    const struct picture_head *head = state->head;
    struct picture_part_sink sink = {.user = state, .start = on_start, .row = on_old_row};
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
    if (state->status != ST_OK) {
        return state->status; /* with its error text */
    }
    if (result == PICTURE_PART_NO_MEMORY) {
        return error_no_memory(err, "a %s picture of %" PRIu32 " x %" PRIu32 " pixels",
                               head_format_name(head->format), head->width, head->height);
    }
    if (result != PICTURE_PART_OK || state->n_rows != head->height) {
        return error_set(err, ST_BAD_PICTURE,
                         "the %s picture is cut off or damaged: %" PRIu32 " of its %" PRIu32
                         " rows could be decoded",
                         head_format_name(head->format), state->n_rows, head->height);
    }
    return ST_OK;
}

enum {
    /* Of a decoder that has the whole picture in memory: 16 bits of each of four channels, and a
     * fraction. */
    PIXEL_BYTES = 9,
    WEBP_PIXEL_BYTES = 17, /* libvips has the picture twice, beside libwebp; parts/codecs needs 8 */
    ROWS = 64,             /* of one that passes rows on */
    FIXED_BYTES = 1 << 20,
    PIXEL_NS = 35, /* interlaced PNG with 16 bits takes twice as long, JPEG a third */
};

enum status picture_need_of(uint64_t max_picture_pixels, struct str file, struct picture_need *out,
                            struct error *err) {
    struct picture_head head;
    enum status st = head_read(file, &head, err);
    if (st == ST_OK) {
        st = check_size(&head, max_picture_pixels, err);
    }
    if (st == ST_OK) {
        uint64_t rows = head.is_sequential && head.height > ROWS ? ROWS : head.height;
        uint64_t each = head.format == PICTURE_WEBP ? WEBP_PIXEL_BYTES : PIXEL_BYTES;
        *out = (struct picture_need){.n_bytes = FIXED_BYTES + file.len + head.width * rows * each,
                                     .ns = (uint64_t)head.width * head.height * PIXEL_NS};
    }
    return st;
}

enum status picture_decode(const struct picture_part *part, uint64_t max_picture_pixels,
                           const struct picture_plan *plan, struct str file, void *out,
                           struct error *err) {
    struct picture_head head;
    enum status st = head_read(file, &head, err);
    if (st == ST_OK) {
        st = check_size(&head, max_picture_pixels, err);
    }
    if (st != ST_OK) {
        return st;
    }
    struct fit fit = fit_compute(plan, head.width, head.height);
    struct normalise normalise;
    normalise_init(&normalise, plan);
    if (plan->fit == PICTURE_PAD) {
        normalise_pad(&normalise, out);
    }
    struct decode_state state = {.head = &head,
                                 .plan = plan,
                                 .fit = &fit,
                                 .normalise = &normalise,
                                 .out = out,
                                 .status = ST_OK,
                                 .err = err};
    st = run_part(part, file, &state, err);
    resample_free(state.resample);
    free(state.old_row);
    free(state.new_row);
    return st;
}
