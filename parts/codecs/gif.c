/* The first frame of a GIF file (GIF89a, 18 to 22 and appendix F). Data that end early, by their
 * code for it or without, leave the rest black. */
#include <stdlib.h>
#include <string.h>

#include "codecs/codecs.h"

enum {
    SCREEN_BYTES = 13, /* with the signature */
    FRAME = 0x2c,
    FRAME_BYTES = 10,
    EXTENSION = 0x21,
    HAS_COLORS = 0x80,
    IS_INTERLACED = 0x40,
    MAX_COLORS = 256,
    MAX_CODES = 4096,
    MAX_CODE_BITS = 12,
    END_OF_DATA = MAX_CODES,
    NO_CODE
};

struct gif_input {
    const uint8_t *at;
    size_t n_left;
};

struct gif_frame {
    uint32_t left, top, width, height;
    bool is_interlaced;
    uint8_t colors[MAX_COLORS][3];
    uint8_t *pixels; /* indices of colours, in the order of the file */
    size_t n_pixels; /* that the file has, at most width * height */
};

/* The strings of codes: that of the prefix, and a value. */
struct lzw {
    struct gif_input input;
    uint32_t bits; /* read, and not yet used */
    unsigned n_bits, n_block /* bytes left in the sub-block */;
    uint32_t n_codes, prefix[MAX_CODES];
    size_t length[MAX_CODES];
    uint8_t first[MAX_CODES], value[MAX_CODES];
};

/* ---- structure ------------------------------------------------------------------------------- */

/* Returns: the next n bytes; NULL at the end. */
static const uint8_t *take(struct gif_input *input, size_t n) {
    const uint8_t *taken = input->at;
    if (n > input->n_left) {
        return NULL;
    }
    input->at += n;
    input->n_left -= n;
    return taken;
}

static uint32_t le16(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8;
}

/* Reads the colour table that a packed byte announces. */
static bool read_colors(struct gif_input *input, uint32_t packed, struct gif_frame *frame) {
    size_t n = (size_t)3 * (2u << (packed & 7));
    if ((packed & HAS_COLORS) == 0) {
        return true;
    }
    const uint8_t *colors = take(input, n);
    if (!colors) {
        return false;
    }
    memset(frame->colors, 0, sizeof(frame->colors));
    memcpy(frame->colors, colors, n);
    return true;
}

/* Skips a sub-block of each size up to the empty one. */
static bool skip_blocks(struct gif_input *input) {
    const uint8_t *n = take(input, 1);
    while (n && *n > 0) {
        n = take(input, *n) ? take(input, 1) : NULL;
    }
    return n;
}

/* Reads up to the frame's data. */
static bool read_head(struct gif_input *input, struct gif_frame *frame) {
    const uint8_t *screen = take(input, SCREEN_BYTES);
    for (size_t i = 0; i < MAX_COLORS; i++) { /* without a table, as in Pillow */
        memset(frame->colors[i], (int)i, 3);
    }
    if (!screen || !read_colors(input, screen[10], frame)) {
        return false;
    }
    while (input->n_left > 0 && *input->at == EXTENSION) {
        if (!take(input, 2) || !skip_blocks(input)) {
            return false;
        }
    }
    const uint8_t *head = take(input, FRAME_BYTES);
    if (!head || head[0] != FRAME) {
        return false;
    }
    frame->left = le16(head + 1);
    frame->top = le16(head + 3);
    frame->width = le16(head + 5);
    frame->height = le16(head + 7);
    frame->is_interlaced = (head[9] & IS_INTERLACED) != 0;
    return read_colors(input, head[9], frame);
}

/* ---- LZW ------------------------------------------------------------------------------------- */

static uint32_t read_code(struct lzw *lzw, unsigned n_bits) {
    while (lzw->n_bits < n_bits) {
        if (lzw->n_block == 0) {
            const uint8_t *n = take(&lzw->input, 1);
            if (!n || *n == 0) {
                return END_OF_DATA;
            }
            lzw->n_block = *n;
        }
        const uint8_t *byte = take(&lzw->input, 1);
        if (!byte) {
            return END_OF_DATA;
        }
        lzw->bits |= (uint32_t)*byte << lzw->n_bits;
        lzw->n_bits += 8;
        lzw->n_block--;
    }
    uint32_t code = lzw->bits & ((UINT32_C(1) << n_bits) - 1);
    lzw->bits >>= n_bits;
    lzw->n_bits -= n_bits;
    return code;
}

/* Appends the string of a code, of which the last values come first. */
static void put_string(const struct lzw *lzw, uint32_t code, struct gif_frame *frame) {
    size_t n_all = (size_t)frame->width * frame->height, end = frame->n_pixels + lzw->length[code];
    for (size_t at = end; at-- > frame->n_pixels; code = lzw->prefix[code]) {
        if (at < n_all) {
            frame->pixels[at] = lzw->value[code];
        }
    }
    frame->n_pixels = end < n_all ? end : n_all;
}

/* Returns: false for a code that cannot be. */
static bool read_pixels(struct lzw *lzw, unsigned n_value_bits, struct gif_frame *frame) {
    const uint32_t clear = UINT32_C(1) << n_value_bits;
    unsigned n_bits = n_value_bits + 1;
    uint32_t before = NO_CODE;
    for (uint32_t i = 0; i < clear; i++) {
        lzw->length[i] = 1;
        lzw->first[i] = lzw->value[i] = (uint8_t)i;
    }
    lzw->n_codes = clear + 2;
    while (frame->n_pixels < (size_t)frame->width * frame->height) {
        uint32_t code = read_code(lzw, n_bits);
        if (code == END_OF_DATA || (code == clear + 1 && before != NO_CODE)) {
            break;
        }
        if (code == clear) {
            lzw->n_codes = clear + 2;
            n_bits = n_value_bits + 1;
            before = NO_CODE;
            continue;
        }
        if (before == NO_CODE ? code > clear : code > lzw->n_codes) {
            return false;
        }
        if (before != NO_CODE && lzw->n_codes < MAX_CODES) {
            uint32_t added = lzw->n_codes++;
            lzw->prefix[added] = before;
            lzw->length[added] = lzw->length[before] + 1;
            lzw->first[added] = lzw->first[before];
            lzw->value[added] = lzw->first[code < added ? code : before];
            n_bits += lzw->n_codes == UINT32_C(1) << n_bits && n_bits < MAX_CODE_BITS ? 1 : 0;
        }
        put_string(lzw, code, frame);
        before = code;
    }
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns: the place of row y in the order of the file: rows 0, 8, 16…, then 4, 12…, then 2, 6…,
 * then the odd ones. */
static uint32_t place_of(const struct gif_frame *frame, uint32_t y) {
    uint32_t n = frame->height;
    if (!frame->is_interlaced) {
        return y;
    }
    if (y % 8 == 0) {
        return y / 8;
    }
    if (y % 8 == 4) {
        return (n + 7) / 8 + y / 8;
    }
    if (y % 4 == 2) {
        return (n + 3) / 4 + y / 4;
    }
    return (n + 1) / 2 + y / 2;
}

static void emit_rows(const struct gif_frame *frame, const struct picture_part_file *file,
                      uint8_t *row, const struct picture_part_sink *sink) {
    for (uint32_t y = 0; y < file->height; y++) {
        memset(row, 0, (size_t)file->width * 3);
        if (y >= frame->top && y - frame->top < frame->height) {
            size_t at = (size_t)place_of(frame, y - frame->top) * frame->width;
            for (size_t x = 0; x < frame->width && at + x < frame->n_pixels; x++) {
                memcpy(row + (frame->left + x) * 3, frame->colors[frame->pixels[at + x]], 3);
            }
        }
        sink->row(sink->user, row);
    }
}

static enum picture_part_result decode_frame(struct lzw *lzw, struct gif_frame *frame,
                                             const struct picture_part_file *file,
                                             const struct picture_part_sink *sink) {
    const uint8_t *n_value_bits = take(&lzw->input, 1);
    uint8_t *row = malloc((size_t)file->width * 3);
    frame->pixels = calloc(frame->height, frame->width);
    enum picture_part_result result = PICTURE_PART_NO_MEMORY;
    if (row && frame->pixels) {
        bool is_good =
            n_value_bits && *n_value_bits < MAX_CODE_BITS && read_pixels(lzw, *n_value_bits, frame);
        result = !is_good                                        ? PICTURE_PART_DAMAGED
                 : !sink->start(sink->user, PICTURE_SAMPLES_RGB) ? PICTURE_PART_NO_MEMORY
                                                                 : PICTURE_PART_OK;
    }
    if (result == PICTURE_PART_OK) {
        emit_rows(frame, file, row, sink);
    }
    free(frame->pixels);
    free(row);
    return result;
}

enum picture_part_result codec_gif(const struct picture_part_file *file,
                                   const struct picture_part_sink *sink) {
    struct lzw *lzw = calloc(1, sizeof(*lzw));
    struct gif_frame frame = {.n_pixels = 0};
    if (!lzw) {
        return PICTURE_PART_NO_MEMORY;
    }
    lzw->input = (struct gif_input){file->data, file->n_bytes};
    enum picture_part_result result = PICTURE_PART_DAMAGED;
    if (read_head(&lzw->input, &frame) && frame.width > 0 && frame.height > 0 &&
        frame.left + frame.width <= file->width && frame.top + frame.height <= file->height) {
        result = decode_frame(lzw, &frame, file, sink);
    }
    free(lzw);
    return result;
}
