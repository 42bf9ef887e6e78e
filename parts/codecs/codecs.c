/* The part that decodes pictures with the formats' own libraries, which can be linked statically:
 * libjpeg-turbo, libpng, libwebp, and an LZW decoder for GIF. Its rows are those of parts/pictures,
 * which has libvips (docs/decisions/043-two-picture-parts.md). */
#include "codecs/codecs.h"

#include <png.h>
#include <stdio.h>
#include <webp/decode.h>

#include <jpeglib.h>

static enum picture_part_result decode(const struct picture_part_file *file,
                                       const struct picture_part_sink *sink) {
    static codec_decode *const codecs[] = {[PICTURE_JPEG] = codec_jpeg,
                                           [PICTURE_PNG] = codec_png,
                                           [PICTURE_WEBP] = codec_webp,
                                           [PICTURE_GIF] = codec_gif};
    return codecs[file->format](file, sink);
}

/* Each decode frees what it allocated. */
static void thread_end(void) {
}

static size_t held_bytes(void) {
    return 0;
}

__attribute__((visibility("default"))) const struct picture_part *sluice_pictures_entry(void) {
    static struct picture_part part = {.size = sizeof(part),
                                       .abi = PICTURE_PART_ABI,
                                       .decode = decode,
                                       .thread_end = thread_end,
                                       .held_bytes = held_bytes};
    static char version[96];
    unsigned jpeg = LIBJPEG_TURBO_VERSION_NUMBER, webp = (unsigned)WebPGetDecoderVersion();
    snprintf(version, sizeof(version), "libjpeg-turbo %u.%u.%u, libpng %s, libwebp %u.%u.%u",
             jpeg / 1000000, jpeg / 1000 % 1000, jpeg % 1000, png_get_libpng_ver(NULL), webp >> 16,
             webp >> 8 & 0xff, webp & 0xff);
    part.version = version;
    return &part;
}
