/* The decoders, one for each format; each is decode of struct picture_part. */
#ifndef SLUICE_PARTS_CODECS_CODECS_H
#define SLUICE_PARTS_CODECS_CODECS_H

#include "serve/picture/picture_part.h"

typedef enum picture_part_result codec_decode(const struct picture_part_file *file,
                                              const struct picture_part_sink *sink);

codec_decode codec_jpeg, codec_png, codec_webp, codec_gif;

#endif
