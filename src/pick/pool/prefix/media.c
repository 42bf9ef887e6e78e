/* The formulas and the defaults are upstream's. */
#include "pick/pool/prefix/media.h"

enum { MOST_TOKENS = 1 << 20 };

#define SMALL_PICTURE                                                                              \
    { .width = 640, .height = 360, .factor = 1024 }

const struct media_estimate MEDIA_ESTIMATE_DEFAULT = {.image = SMALL_PICTURE,
                                                      .frame = SMALL_PICTURE,
                                                      .duration_s = 10,
                                                      .sampled_fps = 2,
                                                      .source_fps = 24};

static uint64_t within(uint64_t n, uint64_t least, uint64_t most) {
    n = n < least ? least : n;
    return most > 0 && n > most ? most : n;
}

static uint64_t count_picture(const struct picture_tokens *picture, uint64_t width,
                              uint64_t height) {
    uint64_t factor = picture->factor > 0 ? picture->factor : 1;
    return within(picture->is_constant ? picture->constant : width * height / factor, 1,
                  MOST_TOKENS);
}

uint64_t media_image_tokens(const struct media_estimate *estimate) {
    const struct picture_tokens *image = &estimate->image;
    return count_picture(image, image->width, image->height);
}

static uint64_t count_frames(const struct media_estimate *estimate, const struct video_size *size) {
    double duration_s = size->duration_s > 0 ? size->duration_s : estimate->duration_s;
    double source_fps = size->fps > 0 ? size->fps : estimate->source_fps;
    double n = duration_s * (estimate->is_strided ? source_fps : estimate->sampled_fps);
    uint64_t n_frames = n < MOST_TOKENS ? (uint64_t)n : MOST_TOKENS;
    if (estimate->is_strided && estimate->stride > 1) {
        n_frames /= estimate->stride;
    }
    n_frames = within(n_frames, estimate->min_frames, estimate->max_frames);
    return !estimate->is_strided && estimate->patch > 1 ? n_frames / estimate->patch : n_frames;
}

uint64_t media_video_tokens(const struct media_estimate *estimate, const struct video_size *size) {
    const struct picture_tokens *frame = &estimate->frame;
    bool is_said = size->width > 0 && size->height > 0;
    uint64_t n =
        count_frames(estimate, size) * count_picture(frame, is_said ? size->width : frame->width,
                                                     is_said ? size->height : frame->height);
    n = within(n, 1, MOST_TOKENS);
    return within(n, 1, estimate->max_video_tokens);
}

/* ---- counts ---------------------------------------------------------------------------------- */

const char *media_kind_name(enum media_kind kind) {
    static const char *const names[N_MEDIA_KINDS] = {"other", "image", "audio", "video"};
    return names[kind];
}
