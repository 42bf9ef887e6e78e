/* A picture file reduced to what its first picture is made of. Decoders keep or unpack whatever
 * else a file carries (a PNG file of 7 MB can hold gigabytes of compressed text; camera notes go to
 * a library of their own), and pass over every frame of an animation. None of that is wanted here,
 * so none of it reaches them. */
#ifndef SLUICE_SERVE_PICTURE_STRIP_H
#define SLUICE_SERVE_PICTURE_STRIP_H

#include "core/base/str.h"
#include "serve/picture/head.h"

/* `head` is what head_read said of `file`. What is cut off stays cut off: finding that out is the
 * decoder's. Returns: the copy, at most one byte longer; ptr NULL when memory is out.
 * Owns: the caller, to free(). Thread: any. */
struct str strip_copy(struct str file, const struct picture_head *head)
    __attribute__((warn_unused_result));

#endif
