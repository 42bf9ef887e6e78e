/* One picture from its file to a tensor's elements, on the calling thread: head, limits, the part,
 * resizing, normalising. */
#ifndef SLUICE_SERVE_PICTURE_DECODE_H
#define SLUICE_SERVE_PICTURE_DECODE_H

#include <stdint.h>

#include "serve/picture/head.h"
#include "serve/picture/picture.h"
#include "serve/picture/picture_part.h"

/* The longest side of a file that is decoded: what a JPEG or GIF file can say at most. */
enum { DECODE_MAX_SIDE = 65535 };

/* `out` is as struct picture_job has it. What it holds after a failure is not defined.
 * Returns: ST_BAD_PICTURE, ST_BODY_TOO_LARGE (over max_pixels or the longest side),
 * ST_NO_MEMORY. Thread: any; blocks. */
enum status picture_decode(const struct picture_part *part, uint64_t max_pixels,
                           const struct picture_plan *plan, struct str file, void *out,
                           struct error *err) __attribute__((warn_unused_result));

#endif
