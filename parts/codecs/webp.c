/* WebP by libwebp, whose demuxer refuses a file that ends early. The first frame of an animation is
 * decoded into a transparent picture of the file's size. */
#include <stdlib.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include "codecs/codecs.h"

/* Decodes the first frame into `pixels`, zeroed, of the file's size and n_channels bytes each. */
static enum picture_part_result read_frame(const WebPIterator *frame,
                                           const struct picture_part_file *file, size_t n_channels,
                                           uint8_t *pixels) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) {
        return PICTURE_PART_DAMAGED;
    }
    size_t n_row = file->width * n_channels;
    /* The demuxer refuses a frame that is not within the picture. */
    size_t at = (size_t)frame->y_offset * n_row + (size_t)frame->x_offset * n_channels;
    config.output.colorspace = n_channels == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = pixels + at;
    config.output.u.RGBA.stride = (int)n_row;
    config.output.u.RGBA.size = n_row * file->height - at;
    VP8StatusCode code = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    return code == VP8_STATUS_OK              ? PICTURE_PART_OK
           : code == VP8_STATUS_OUT_OF_MEMORY ? PICTURE_PART_NO_MEMORY
                                              : PICTURE_PART_DAMAGED;
}

static enum picture_part_result decode_frame(const WebPIterator *frame, bool has_alpha,
                                             const struct picture_part_file *file,
                                             const struct picture_part_sink *sink) {
    size_t n_channels = has_alpha ? 4 : 3;
    size_t n_row = file->width * n_channels;
    uint8_t *pixels = calloc(file->height, n_row);
    enum picture_part_result result =
        pixels ? read_frame(frame, file, n_channels, pixels) : PICTURE_PART_NO_MEMORY;
    if (result == PICTURE_PART_OK &&
        !sink->start(sink->user, has_alpha ? PICTURE_SAMPLES_RGBA : PICTURE_SAMPLES_RGB)) {
        result = PICTURE_PART_NO_MEMORY;
    }
    for (size_t y = 0; result == PICTURE_PART_OK && y < file->height; y++) {
        sink->row(sink->user, pixels + y * n_row);
    }
    free(pixels);
    return result;
}

enum picture_part_result codec_webp(const struct picture_part_file *file,
                                    const struct picture_part_sink *sink) {
    enum picture_part_result result = PICTURE_PART_DAMAGED;
    WebPData data = {.bytes = file->data, .size = file->n_bytes};
    WebPDemuxer *demuxer = WebPDemux(&data);
    WebPIterator frame;
    if (demuxer && WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH) == file->width &&
        WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT) == file->height &&
        WebPDemuxGetFrame(demuxer, 1, &frame)) {
        uint32_t flags = WebPDemuxGetI(demuxer, WEBP_FF_FORMAT_FLAGS);
        bool is_part =
            (uint32_t)frame.width != file->width || (uint32_t)frame.height != file->height;
        bool has_alpha = (flags & ALPHA_FLAG) != 0 ||
                         ((flags & ANIMATION_FLAG) != 0 && (frame.has_alpha || is_part));
        result = decode_frame(&frame, has_alpha, file, sink);
        WebPDemuxReleaseIterator(&frame);
    }
    WebPDemuxDelete(demuxer);
    return result;
}
