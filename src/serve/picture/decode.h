/* Decodes one picture from its file to tensor elements on the calling thread: head, limits, the
 * part (decoder plugin), resizing, normalising. */
#ifndef SLUICE_SERVE_PICTURE_DECODE_H
#define SLUICE_SERVE_PICTURE_DECODE_H

#include <stdint.h>

#include "serve/picture/head.h"
#include "serve/picture/picture.h"
#include "serve/picture/picture_part.h"

/* The longest side of a decodable file: the maximum of JPEG and GIF. */
enum { DECODE_MAX_SIDE = 65535 };

/* What decoding the file takes at most. Returns: as picture_decode, of the head. Thread: any. */
enum status picture_need_of(uint64_t max_picture_pixels, struct str file, struct picture_need *out,
                            struct error *err) SLUICE_MUST_USE;

/* `out` is as in struct picture_job; undefined after a failure. Returns: ST_BAD_PICTURE,
 * ST_BODY_TOO_LARGE (max_picture_pixels or the longest side exceeded), ST_NO_MEMORY. Thread: any;
 * blocks. */
enum status picture_decode(const struct picture_part *part, uint64_t max_picture_pixels,
                           const struct picture_plan *plan, struct str file, void *out,
                           struct error *err) SLUICE_MUST_USE;

#endif
