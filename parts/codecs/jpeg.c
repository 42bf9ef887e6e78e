/* JPEG by libjpeg-turbo. A file that ends early is an error, damage that the library can skip is
 * not, up to a number of warnings; libvips treats both alike. */
#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

#include "codecs/codecs.h"

enum { MAX_WARNINGS = 100 };

struct jpeg_reader {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr error;
    jmp_buf failed;
    enum picture_part_result result;
};

/* ---- calls of the library -------------------------------------------------------------------- */

static void on_error(j_common_ptr common) {
    struct jpeg_reader *reader = common->client_data;
    if (common->err->msg_code == JERR_OUT_OF_MEMORY) {
        reader->result = PICTURE_PART_NO_MEMORY;
    }
    longjmp(reader->failed, 1);
}

static void on_message(j_common_ptr common, int level) {
    if (level < 0 && ++common->err->num_warnings >= MAX_WARNINGS) {
        on_error(common);
    }
}

static boolean on_end_of_data(j_decompress_ptr cinfo) {
    on_error((j_common_ptr)cinfo);
    return FALSE;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns: false for a file that is neither grey, nor coloured, nor of four inks. */
static bool choose_samples(j_decompress_ptr cinfo, enum picture_samples *out) {
    if (cinfo->num_components == 1 || cinfo->num_components == 3) {
        cinfo->out_color_space = JCS_RGB;
        *out = PICTURE_SAMPLES_RGB;
        return true;
    }
    *out = PICTURE_SAMPLES_CMYK;
    return cinfo->out_color_space == JCS_CMYK;
}

static void read_picture(struct jpeg_reader *reader, const struct picture_part_file *file,
                         const struct picture_part_sink *sink) {
    j_decompress_ptr cinfo = &reader->cinfo;
    enum picture_samples samples;
    if (setjmp(reader->failed) != 0) {
        return;
    }
    jpeg_create_decompress(cinfo);
    jpeg_mem_src(cinfo, file->data, file->n_bytes);
    cinfo->src->fill_input_buffer = on_end_of_data;
    jpeg_read_header(cinfo, TRUE);
    if (cinfo->image_width != file->width || cinfo->image_height != file->height ||
        !choose_samples(cinfo, &samples)) {
        return;
    }
    jpeg_start_decompress(cinfo);
    JDIMENSION n = cinfo->output_width * (JDIMENSION)cinfo->output_components;
    JSAMPARRAY row = cinfo->mem->alloc_sarray((j_common_ptr)cinfo, JPOOL_IMAGE, n, 1);
    if (!sink->start(sink->user, samples)) {
        reader->result = PICTURE_PART_NO_MEMORY;
        return;
    }
    while (cinfo->output_scanline < cinfo->output_height) {
        jpeg_read_scanlines(cinfo, row, 1);
        if (samples == PICTURE_SAMPLES_CMYK) {
            /* Inks are stored inverted by all known writers, whether their Adobe segment is there
             * or not. */
            for (size_t i = 0; i < n; i++) {
                row[0][i] = (JSAMPLE)(255 - row[0][i]);
            }
        }
        sink->row(sink->user, row[0]);
    }
    reader->result = PICTURE_PART_OK;
}

enum picture_part_result codec_jpeg(const struct picture_part_file *file,
                                    const struct picture_part_sink *sink) {
    struct jpeg_reader reader = {.result = PICTURE_PART_DAMAGED};
    reader.cinfo.err = jpeg_std_error(&reader.error);
    reader.cinfo.client_data = &reader;
    reader.error.error_exit = on_error;
    reader.error.emit_message = on_message;
    read_picture(&reader, file, sink);
    jpeg_destroy_decompress(&reader.cinfo);
    return reader.result;
}
