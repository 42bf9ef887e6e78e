/* Loads the picture part once and starts the decoder threads, or records why pictures are not
 * available. A loaded part is never unloaded, which its library would not survive. */
#include "serve/picture/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "serve/picture/decode.h"
#include "serve/picture/picture_part.h"
#include "serve/picture/pool.h"

enum { MISSING_BYTES = 400 };

struct pictures {
    struct picture_pool *pool;   /* NULL: no part */
    char missing[MISSING_BYTES]; /* the reason */
};

/* ---- part ------------------------------------------------------------------------------------ */

static void set_missing(struct pictures *pictures, const char *path, const char *reason) {
    snprintf(pictures->missing, sizeof(pictures->missing),
             "pictures cannot be decoded without %s (%s); it is in the Debian package "
             "sluice-server-pictures, or in a clone: tools/bootstrap pictures, then make",
             path, reason);
}

static bool part_is_compatible(const struct picture_part *part) {
    return part->abi == PICTURE_PART_ABI && part->size >= sizeof(*part) && part->version &&
           part->decode && part->thread_end && part->held_bytes;
}

/* Returns: NULL, with the reason in pictures->missing. */
static const struct picture_part *load_part(struct pictures *pictures, const char *path) {
    uv_lib_t lib;
    void *symbol = NULL;
    const struct picture_part *(*entry)(void);
    if (uv_dlopen(path, &lib) != 0 || uv_dlsym(&lib, PICTURE_PART_ENTRY, &symbol) != 0) {
        set_missing(pictures, path, uv_dlerror(&lib));
        uv_dlclose(&lib);
        return NULL;
    }
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C forbids the cast from an object pointer to a
                                               function pointer */
    const struct picture_part *part = entry();
    if (!part || !part_is_compatible(part)) {
        set_missing(pictures, path,
                    part ? "it was built for another server" : "its library did not start");
        return NULL;
    }
    return part;
}

/* ---- creation -------------------------------------------------------------------------------- */

enum status pictures_new(const struct pictures_options *options, struct pictures **out,
                         struct error *err) {
    struct pictures *pictures = calloc(1, sizeof(*pictures));
    enum status st = ST_OK;
    if (!pictures) {
        return error_no_memory(err, "decoding pictures");
    }
    const struct picture_part *part = load_part(pictures, options->part);
    if (part) {
        st = picture_pool_new(part, options, &pictures->pool, err);
        log_event(LOG_INFO, "pictures can be decoded", LOG_CSTR("library", part->version),
                  LOG_CSTR("file", options->part));
    }
    if (st != ST_OK) {
        free(pictures);
        return st;
    }
    *out = pictures;
    return ST_OK;
}

void pictures_free(struct pictures *pictures) {
    if (!pictures) {
        return;
    }
    if (pictures->pool) {
        picture_pool_free(pictures->pool);
    }
    free(pictures);
}

const char *pictures_missing(const struct pictures *pictures) {
    return pictures->pool ? NULL : pictures->missing;
}

enum status picture_decode_now(const char *part, uint64_t max_picture_pixels,
                               const struct picture_plan *plan, struct str file, void *out,
                               struct error *err) {
    struct pictures pictures = {0};
    const struct picture_part *loaded = load_part(&pictures, part);
    if (!loaded) {
        return error_set(err, ST_UNSUPPORTED, "%s", pictures.missing);
    }
    enum status st = picture_decode(loaded, max_picture_pixels, plan, file, out, err);
    loaded->thread_end();
    return st;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

void picture_submit(struct pictures *pictures, struct picture_job *job) {
    job->error = (struct error){.status = ST_OK};
    if (pictures->pool) {
        picture_pool_submit(pictures->pool, job);
    } else {
        error_set(&job->error, ST_UNSUPPORTED, "%s", pictures->missing);
        picture_pool_post_done(job);
    }
}

void picture_cancel(struct pictures *pictures, struct picture_job *job) {
    if (pictures->pool) {
        picture_pool_cancel(pictures->pool, job);
    }
}
