/* gzip and zlib's format made with zlib's deflate. */
#include "codec/http1/deflate.h"

#include <assert.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

enum { WINDOW_BITS = 15, GZIP_BITS = WINDOW_BITS + 16, MEMORY_LEVEL = 8 };

struct deflate {
    z_stream stream;
};

struct deflate *deflate_new(enum http_coding coding, int level) {
    struct deflate *codec = calloc(1, sizeof(*codec));
    int bits = coding == HTTP_GZIP ? GZIP_BITS : WINDOW_BITS;
    if (codec && deflateInit2(&codec->stream, level, Z_DEFLATED, bits, MEMORY_LEVEL,
                              Z_DEFAULT_STRATEGY) != Z_OK) {
        free(codec);
        return NULL;
    }
    return codec;
}

void deflate_free(struct deflate *codec) {
    if (codec) {
        deflateEnd(&codec->stream);
    }
    free(codec);
}

size_t deflate_bound(struct deflate *codec, size_t n_bytes) {
    /* zlib adds a few bytes for every 16 KiB and a constant; it does not check the sum. */
    if (n_bytes > SIZE_MAX / 2) {
        return SIZE_MAX;
    }
    return deflateBound(&codec->stream, n_bytes);
}

bool deflate_step(struct deflate *codec, struct str *in, bool last, void *out, size_t capacity,
                  size_t *n_out) {
    z_stream *stream = &codec->stream;
    int rc = Z_OK;
    *n_out = 0;
    do {
        uInt n_in = in->len < UINT_MAX ? (uInt)in->len : UINT_MAX;
        size_t left = capacity - *n_out;
        uInt n_room = left < UINT_MAX ? (uInt)left : UINT_MAX;
        bool finish = last && n_in == in->len;
        stream->next_in = (z_const Bytef *)in->ptr;
        stream->avail_in = n_in;
        stream->next_out = (Bytef *)out + *n_out;
        stream->avail_out = n_room;
        rc = deflate(stream, finish ? Z_FINISH : Z_NO_FLUSH);
        assert(rc == Z_OK || rc == Z_BUF_ERROR || rc == Z_STREAM_END);
        size_t used = n_in - stream->avail_in;
        *in = str_make(in->ptr + used, in->len - used);
        *n_out += n_room - stream->avail_out;
    } while (*n_out < capacity && (in->len > 0 || (last && rc != Z_STREAM_END)));
    return in->len == 0 && (!last || rc == Z_STREAM_END);
}
