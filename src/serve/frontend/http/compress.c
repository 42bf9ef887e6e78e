/* Compressing an answer, fast rather than small: it runs on a worker that has others to serve. */
#include "serve/frontend/http/compress.h"

#include "codec/http1/content_coding.h"
#include "core/base/checked.h"

enum { COMPRESSION_LEVEL_FASTEST = 1 };

static bool pieces_total_bytes(const struct piece *pieces, size_t n_pieces, size_t *out) {
    *out = 0;
    for (size_t i = 0; i < n_pieces; i++) {
        if (!checked_add(*out, pieces[i].n_bytes, out)) {
            return false;
        }
    }
    return true;
}

/* Feeds all pieces; `room` is deflate_bound of their sum, so that no step can run out of it. */
static bool compress_pieces(struct deflate *codec, const struct piece *pieces, size_t n_pieces,
                            char *out, size_t capacity, size_t *n_out) {
    bool done = false;
    *n_out = 0;
    for (size_t i = 0; i < n_pieces; i++) {
        struct str in = {pieces[i].data, pieces[i].n_bytes};
        size_t n = 0;
        done = deflate_step(codec, &in, i + 1 == n_pieces, out + *n_out, capacity - *n_out, &n);
        *n_out += n;
        if (!done) {
            return false;
        }
    }
    return done;
}

/* Returns: the room that the compressed bytes may need; 0 when that can't be had. */
static size_t compressed_capacity(struct deflate *codec, const struct piece *pieces,
                                  size_t n_pieces) {
    size_t total = 0;
    if (!codec || !pieces_total_bytes(pieces, n_pieces, &total)) {
        return 0;
    }
    size_t capacity = deflate_bound(codec, total);
    return capacity < SIZE_MAX ? capacity : 0;
}

bool http_compress(struct arena *arena, enum http_coding coding, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) {
    struct deflate *codec = deflate_new(coding, COMPRESSION_LEVEL_FASTEST);
    size_t capacity = compressed_capacity(codec, pieces, n_pieces);
    char *data = capacity > 0 ? arena_alloc(arena, capacity) : NULL;
    *out = (struct piece){data, 0};
    bool done = data && compress_pieces(codec, pieces, n_pieces, data, capacity, &out->n_bytes);
    deflate_free(codec);
    return done;
}
