/* PNG by libpng. An interlaced picture is kept whole, of others one row. */
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "codecs/codecs.h"

struct png_reader {
    png_structp png;
    png_infop info;
    const uint8_t *at; /* the rest of the file */
    size_t n_left;
    uint8_t *rows;
    enum picture_part_result result;
};

/* ---- calls of the library -------------------------------------------------------------------- */

static void on_error(png_structp png, png_const_charp text) {
    (void)text;
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void on_read(png_structp png, png_bytep out, size_t n) {
    struct png_reader *reader = png_get_io_ptr(png);
    if (n > reader->n_left) {
        png_error(png, "cut off");
    }
    memcpy(out, reader->at, n);
    reader->at += n;
    reader->n_left -= n;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Reads the head and has samples converted to RGB or RGBA of 8 bits. Returns: false when the size
 * differs. */
static bool read_head(struct png_reader *reader, const struct picture_part_file *file) {
    png_structp png = reader->png;
    png_set_option(png, PNG_IGNORE_ADLER32, PNG_OPTION_ON); /* chunks have a checksum, too */
    png_set_read_fn(png, reader, on_read);
    png_read_info(png, reader->info);
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    return png_get_image_width(png, reader->info) == file->width &&
           png_get_image_height(png, reader->info) == file->height;
}

static void read_picture(struct png_reader *reader, const struct picture_part_file *file,
                         const struct picture_part_sink *sink) {
    png_structp png = reader->png;
    if (setjmp(png_jmpbuf(png)) != 0 || !read_head(reader, file)) {
        return;
    }
    size_t n_row = png_get_rowbytes(png, reader->info);
    bool is_interlaced = png_get_interlace_type(png, reader->info) != PNG_INTERLACE_NONE;
    bool has_alpha = png_get_channels(png, reader->info) == 4;
    reader->rows = calloc(is_interlaced ? file->height : 1, n_row);
    if (!reader->rows ||
        !sink->start(sink->user, has_alpha ? PICTURE_SAMPLES_RGBA : PICTURE_SAMPLES_RGB)) {
        reader->result = PICTURE_PART_NO_MEMORY;
        return;
    }
    for (int pass = 0; is_interlaced && pass < PNG_INTERLACE_ADAM7_PASSES; pass++) {
        for (size_t y = 0; y < file->height; y++) {
            png_read_row(png, reader->rows + y * n_row, NULL);
        }
    }
    for (size_t y = 0; y < file->height; y++) {
        uint8_t *row = reader->rows + (is_interlaced ? y * n_row : 0);
        if (!is_interlaced) {
            png_read_row(png, row, NULL);
        }
        sink->row(sink->user, row);
    }
    reader->result = PICTURE_PART_OK;
}

enum picture_part_result codec_png(const struct picture_part_file *file,
                                   const struct picture_part_sink *sink) {
    struct png_reader reader = {
        .at = file->data, .n_left = file->n_bytes, .result = PICTURE_PART_DAMAGED};
    reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning);
    reader.info = reader.png ? png_create_info_struct(reader.png) : NULL;
    if (reader.info) {
        read_picture(&reader, file, sink);
    } else {
        reader.result = PICTURE_PART_NO_MEMORY;
    }
    free(reader.rows);
    png_destroy_read_struct(&reader.png, &reader.info, NULL);
    return reader.result;
}
