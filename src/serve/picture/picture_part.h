/* The interface of the loadable part that decodes pictures: a table of functions with plain C
 * types. The part is libsluice_pictures.so (parts/pictures or parts/codecs) and exports
 * sluice_pictures_entry. It converts the bytes of a file, whose format and size the server has read
 * from its head, into rows of 8-bit samples; limits and tensors are the server's.
 *
 * `abi` counts incompatible changes; server and part are built together. */
#ifndef SLUICE_SERVE_PICTURE_PICTURE_PART_H
#define SLUICE_SERVE_PICTURE_PICTURE_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURE_PART_ABI 2u
#define PICTURE_PART_ENTRY "sluice_pictures_entry"

enum picture_format { PICTURE_JPEG = 1, PICTURE_PNG, PICTURE_WEBP, PICTURE_GIF };

struct picture_part_file {
    const void *data; /* valid until decode returns */
    size_t n_bytes;
    enum picture_format format;
    uint32_t width, height; /* >= 1, from the head; a decoder that finds another size must refuse
                               the file */
};

/* The samples of a pixel. */
enum picture_samples {
    PICTURE_SAMPLES_RGB = 1, /* three bytes: red, green, blue */
    PICTURE_SAMPLES_RGBA,    /* unassociated alpha, 255 is opaque */
    PICTURE_SAMPLES_CMYK     /* cyan, magenta, yellow, black; 255 is full ink */
};

/* Receives the rows. */
struct picture_part_sink {
    void *user;
    /* Called once before the first row with the samples of all rows. Returns: false when out of
     * memory; the part then stops with PICTURE_PART_NO_MEMORY. */
    bool (*start)(void *user, enum picture_samples samples);
    /* The next row from the top, `width` pixels; borrowed for the call. */
    void (*row)(void *user, const uint8_t *samples);
};

enum picture_part_result {
    PICTURE_PART_OK = 0,  /* every row was delivered */
    PICTURE_PART_DAMAGED, /* differs from the head, truncated, or damaged */
    PICTURE_PART_NO_MEMORY
};

struct picture_part {
    size_t size; /* of this struct when the part was built */
    uint32_t abi;
    const char *version; /* of the part's library, "libvips 8.14.1" */
    /* Decodes the first frame of a file. Grey and palettes become RGB; alpha and inks are kept;
     * 16-bit samples lose their low byte; no profile or orientation is applied. May block. Thread:
     * any, several at a time. */
    enum picture_part_result (*decode)(const struct picture_part_file *file,
                                       const struct picture_part_sink *sink);
    /* Called on a thread that has decoded, before it ends. */
    void (*thread_end)(void);
    /* Bytes of pixels that the library holds. Threads keep a few for their next picture: it becomes
     * 0 soon after every decoding thread called thread_end. Thread: any. */
    size_t (*held_bytes)(void);
};

/* Called once per process on the main thread; the part is never unloaded. Returns: NULL when the
 * library cannot be initialized. */
const struct picture_part *sluice_pictures_entry(void);

#endif
