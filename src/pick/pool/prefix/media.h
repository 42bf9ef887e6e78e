/* How many tokens pictures and videos take, estimated from their sizes: nothing is decoded; and
 * counts of what endpoints were sent.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PREFIX_MEDIA_H
#define SLUICE_PICK_POOL_PREFIX_MEDIA_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/metric/histogram.h"

/* A picture, or each picture of a video: pixels divided by `factor`, or a constant. */
struct picture_tokens {
    bool is_constant;
    uint64_t width, height, factor;
    uint64_t constant;
};

struct media_estimate {
    struct picture_tokens image, frame;
    bool is_strided; /* each n-th picture of a video; else so many for each second */
    double duration_s, sampled_fps, source_fps;
    uint64_t patch;                  /* sampled pictures that count as one */
    uint64_t stride;                 /* n */
    uint64_t min_frames, max_frames; /* 0: no limit */
    uint64_t max_video_tokens;       /* 0: no limit */
};

extern const struct media_estimate MEDIA_ESTIMATE_DEFAULT;

/* What the request says of its videos; 0: nothing. */
struct video_size {
    uint64_t width, height;
    double duration_s, fps;
};

/* Tokens, 1 or more. */
uint64_t media_image_tokens(const struct media_estimate *estimate);
uint64_t media_video_tokens(const struct media_estimate *estimate, const struct video_size *size);

/* ---- counts ---------------------------------------------------------------------------------- */

/* A file, or something else; a picture, a sound, a video. */
enum media_kind { MEDIA_OTHER, MEDIA_IMAGE, MEDIA_AUDIO, MEDIA_VIDEO, N_MEDIA_KINDS };
/* As upstream calls them: "image". */
const char *media_kind_name(enum media_kind kind);

/* Items: that requests looked up in an index, or of these, that an endpoint was sent before. */
struct media_counts {
    metric_cell n_items[N_MEDIA_KINDS];
};

#endif
