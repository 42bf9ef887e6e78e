/* The interface between the room and the loadable part that decodes: a table of functions, plain C
 * types, no other header of ours. The part is a file libsluice_pictures.so that exports
 * sluice_pictures_entry; it knows no tensor, no limit and no protocol. It turns the bytes of a
 * file, whose kind and size the room has read from its head, into rows of 8-bit samples.
 *
 * `abi` counts changes that break compatibility; room and part are built together. */
#ifndef SLUICE_SERVE_PICTURE_PICTURE_PART_H
#define SLUICE_SERVE_PICTURE_PICTURE_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURE_PART_ABI 2u
#define PICTURE_PART_ENTRY "sluice_pictures_entry"

enum picture_format { PICTURE_JPEG = 1, PICTURE_PNG, PICTURE_WEBP, PICTURE_GIF };

struct picture_part_file {
    const void *data; /* stays until decode returns */
    size_t n_bytes;
    enum picture_format format;
    uint32_t width, height; /* >= 1, what the head says; a decoder that sees others must refuse */
};

/* What a pixel of the rows is. */
enum picture_samples {
    PICTURE_SAMPLES_RGB = 1, /* three bytes: red, green, blue */
    PICTURE_SAMPLES_RGBA,    /* the same, not multiplied by the fourth: alpha, 255 is opaque */
    PICTURE_SAMPLES_CMYK     /* four inks: cyan, magenta, yellow, black; 255 is all of it */
};

/* Where the rows go. */
struct picture_part_sink {
    void *user;
    /* Once, before the first row: what every row is. Returns: false when the room has no memory;
     * the part then gives none and says PICTURE_PART_NO_MEMORY. */
    bool (*start)(void *user, enum picture_samples samples);
    /* The next row from the top, width pixels; borrowed for the call. */
    void (*row)(void *user, const uint8_t *samples);
};

enum picture_part_result {
    PICTURE_PART_OK = 0,  /* every row was given */
    PICTURE_PART_DAMAGED, /* not what the head says, cut off, or damaged */
    PICTURE_PART_NO_MEMORY
};

struct picture_part {
    size_t size; /* of this struct, as the part knew it */
    uint32_t abi;
    const char *version; /* of the library behind it, "libvips 8.14.1" */
    /* Decodes the first frame of a file. Grey and palettes become RGB; alpha and inks stay as they
     * are; 16-bit samples lose their low byte; no profile and no orientation is applied. May block.
     * Thread: any, several at a time. */
    enum picture_part_result (*decode)(const struct picture_part_file *file,
                                       const struct picture_part_sink *sink);
    /* The calling thread, which has decoded, will end. */
    void (*thread_end)(void);
    /* Bytes of pixels the library holds. Threads keep a few for their next picture: it is 0 soon
     * after every thread that has decoded has said that it ends. Thread: any. */
    size_t (*held_bytes)(void);
};

/* The entry. Called once per process, on the main thread; the part is never unloaded.
 * Returns: NULL when its library does not start. */
const struct picture_part *sluice_pictures_entry(void);

#endif
