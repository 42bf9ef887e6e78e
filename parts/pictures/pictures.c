/* The part that decodes pictures with libvips. Each file goes to the loader of its format, whose
 * rows are passed on. Other loaders are blocked, the cache is off, and at most one thread of
 * libvips helps the calling thread (some loaders decode on it while the caller waits).
 *
 * libvips collects error texts for the whole process, so they are not used: a caller could get the
 * text of another caller's file. */
#include <vips/vips.h>

#include "pictures/row_converter.h"
#include "serve/picture/picture_part.h"

enum { STRIP_ROWS = 16 }; /* prepared at a time */

/* ---- loading --------------------------------------------------------------------------------- */

/* Opens a file, which reads its head and decodes as much as the format requires. Rows are requested
 * from the top, once. */
static int open_file(const struct picture_part_file *file, VipsImage **out) {
    static int (*const loaders[])(void *data, size_t n_bytes, VipsImage **image, ...) = {
        [PICTURE_JPEG] = vips_jpegload_buffer,
        [PICTURE_PNG] = vips_pngload_buffer,
        [PICTURE_WEBP] = vips_webpload_buffer,
        [PICTURE_GIF] = vips_gifload_buffer,
    };
    void *data = (void *)file->data; /* only read */
    return loaders[file->format](data, file->n_bytes, out, "access", VIPS_ACCESS_SEQUENTIAL,
                                 "fail_on", VIPS_FAIL_ON_ERROR, NULL);
}

static bool size_matches_head(const VipsImage *image, const struct picture_part_file *file) {
    return image->Xsize > 0 && (uint32_t)image->Xsize == file->width && image->Ysize > 0 &&
           (uint32_t)image->Ysize == file->height;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Row `y` of a region as wide as its image (libvips' own macro mixes signs). */
static const VipsPel *row_at(const VipsRegion *region, int y) {
    return region->data + (ptrdiff_t)(y - region->valid.top) * region->bpl;
}

static enum picture_part_result emit_rows(VipsImage *image, const struct rows_converter *converter,
                                          const struct picture_part_sink *sink) {
    VipsRegion *region = vips_region_new(image);
    uint8_t *row = malloc((size_t)image->Xsize * converter->n_out);
    bool started = region && row && sink->start(sink->user, converter->samples);
    enum picture_part_result result = started ? PICTURE_PART_OK : PICTURE_PART_NO_MEMORY;
    for (int top = 0; result == PICTURE_PART_OK && top < image->Ysize; top += STRIP_ROWS) {
        VipsRect strip = {0, top, image->Xsize, MIN(STRIP_ROWS, image->Ysize - top)};
        if (vips_region_prepare(region, &strip) != 0) {
            result = PICTURE_PART_DAMAGED;
            break;
        }
        for (int y = top; y < top + strip.height; y++) {
            converter->convert(converter, row_at(region, y), (size_t)image->Xsize, row);
            sink->row(sink->user, row);
        }
    }
    free(row);
    if (region) {
        g_object_unref(region);
    }
    return result;
}

static enum picture_part_result decode(const struct picture_part_file *file,
                                       const struct picture_part_sink *sink) {
    VipsImage *image = NULL;
    struct rows_converter converter;
    enum picture_part_result result = PICTURE_PART_DAMAGED;
    if (open_file(file, &image) == 0 && size_matches_head(image, file) &&
        rows_converter_of(image, &converter)) {
        result = emit_rows(image, &converter, sink);
    }
    if (image) {
        g_object_unref(image);
    }
    if (result != PICTURE_PART_OK) {
        vips_error_clear();
    }
    return result;
}

/* ---- entry ----------------------------------------------------------------------------------- */

static size_t held_bytes(void) {
    return vips_tracked_get_mem();
}

/* Warnings about damaged files concern the client, and are kept out of the server's stderr. */
static void drop_log(const char *domain, GLogLevelFlags level, const char *text, void *user) {
    (void)domain;
    (void)level;
    (void)text;
    (void)user;
}

__attribute__((visibility("default"))) const struct picture_part *sluice_pictures_entry(void) {
    static struct picture_part part = {.size = sizeof(part),
                                       .abi = PICTURE_PART_ABI,
                                       .decode = decode,
                                       .thread_end = vips_thread_shutdown,
                                       .held_bytes = held_bytes};
    static char version[64];
    if (VIPS_INIT("sluice") != 0) {
        return NULL;
    }
    g_snprintf(version, sizeof(version), "libvips %s", vips_version_string());
    part.version = version;
    vips_concurrency_set(1);
    vips_cache_set_max(0);
    vips_operation_block_set("VipsForeignLoad", TRUE);
    vips_operation_block_set("VipsForeignLoadJpeg", FALSE);
    vips_operation_block_set("VipsForeignLoadPng", FALSE);
    vips_operation_block_set("VipsForeignLoadWebp", FALSE);
    vips_operation_block_set("VipsForeignLoadNsgif", FALSE);
    vips_block_untrusted_set(TRUE);
    g_log_set_handler("VIPS", G_LOG_LEVEL_MASK, drop_log, NULL);
    return &part;
}
