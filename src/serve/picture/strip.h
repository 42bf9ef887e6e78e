/* Reduces a picture file to the data of its first picture. Decoders store or unpack everything else
 * in a file (a PNG file of 7 MB can contain gigabytes of compressed text; camera notes are parsed
 * by another library) and decode every frame of an animation, so the rest is not passed to them. */
#ifndef SLUICE_SERVE_PICTURE_STRIP_H
#define SLUICE_SERVE_PICTURE_STRIP_H

#include "core/base/str.h"
#include "serve/picture/head.h"

/* `head` is the result of head_read for `file`. A truncated file stays truncated; the decoder
 * reports it. Returns: the copy, at most one byte longer; ptr NULL when out of memory.
 * Owns: the caller frees it with free(). Thread: any. */
struct str strip_copy(struct str file, const struct picture_head *head) SLUICE_MUST_USE;

#endif
