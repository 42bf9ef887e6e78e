/* gzip, zlib and raw deflate with zlib. The first byte tells the two forms of "deflate" apart: a
 * raw text that begins like zlib's would begin with a stored block whose padding is not zero, which
 * no compressor writes. */
#include "codec/http1/content_coding.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

enum {
    WINDOW_BITS = 15,
    GZIP_BITS = WINDOW_BITS + 16,
    RAW_BITS = -WINDOW_BITS,
    MEMORY_LEVEL = 8,
};

/* ---- decompression --------------------------------------------------------------------------- */

struct inflate {
    z_stream stream;
    enum http_coding coding;
    bool open;  /* zlib's stream is initialised */
    bool ended; /* a text is complete; with gzip another may follow */
};

struct inflate *inflate_new(enum http_coding coding) {
    struct inflate *codec = calloc(1, sizeof(*codec));
    if (codec) {
        codec->coding = coding;
    }
    return codec;
}

void inflate_free(struct inflate *codec) {
    if (codec && codec->open) {
        inflateEnd(&codec->stream);
    }
    free(codec);
}

static const char *coding_name(const struct inflate *codec) {
    return codec->coding == HTTP_GZIP ? "gzip" : "deflate";
}

/* Calls zlib once. */
static enum status run_inflate(struct inflate *codec, struct str *in, char *out, size_t capacity,
                               size_t *n_out, struct error *err) {
    z_stream *stream = &codec->stream;
    uInt n_in = in->len < UINT_MAX ? (uInt)in->len : UINT_MAX;
    uInt n_capacity = capacity < UINT_MAX ? (uInt)capacity : UINT_MAX;
    stream->next_in = (z_const Bytef *)in->ptr;
    stream->avail_in = n_in;
    stream->next_out = (Bytef *)out;
    stream->avail_out = n_capacity;
    int rc = inflate(stream, Z_NO_FLUSH);
    size_t used = n_in - stream->avail_in;
    *in = str_make(in->ptr + used, in->len - used);
    *n_out += n_capacity - stream->avail_out;
    codec->ended = rc == Z_STREAM_END;
    bool stuck = rc == Z_BUF_ERROR && in->len > 0 && stream->avail_out > 0;
    if (rc == Z_MEM_ERROR) {
        return error_no_memory(err, "decompressing the body");
    }
    if (stuck || (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)) {
        return error_set(err, ST_BAD_ENCODING, "the body is not valid %s: %s", coding_name(codec),
                         stream->msg ? stream->msg : "it needs a dictionary");
    }
    return ST_OK;
}

enum status inflate_step(struct inflate *codec, struct str *in, void *out, size_t capacity,
                         size_t *n_out, struct error *err) {
    enum status st = ST_OK;
    *n_out = 0;
    if (!codec->open && in->len > 0) {
        /* zlib's header (RFC 1950, 2.2): method 8, a window of at most 32 KiB */
        unsigned char first = (unsigned char)in->ptr[0];
        bool has_header = (first & 0x0f) == 8 && (first >> 4) <= 7;
        int bits = codec->coding == HTTP_GZIP ? GZIP_BITS : has_header ? WINDOW_BITS : RAW_BITS;
        codec->open = inflateInit2(&codec->stream, bits) == Z_OK;
        st = codec->open ? ST_OK : error_no_memory(err, "decompressing the body");
    }
    /* With no input left there may still be output that did not fit before. */
    bool more = codec->open;
    while (st == ST_OK && more && *n_out < capacity) {
        if (codec->ended) {
            if (in->len == 0) {
                return ST_OK;
            }
            if (codec->coding != HTTP_GZIP) {
                return error_set(err, ST_BAD_ENCODING, "bytes after the end of the deflate body");
            }
            inflateReset(&codec->stream); /* the next member of gzip */
            codec->ended = false;
        }
        st = run_inflate(codec, in, (char *)out + *n_out, capacity - *n_out, n_out, err);
        more = in->len > 0;
    }
    return st;
}

enum status inflate_finish(struct inflate *codec, struct error *err) {
    if (codec->ended) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_ENCODING,
                     codec->open ? "the %s body is cut off" : "the %s body is empty",
                     coding_name(codec));
}

/* ---- slices ---------------------------------------------------------------------------------- */

enum { MAX_DEFLATE_RATIO = 1032, MAX_SLICE_INPUT = 512 };

struct inflate_slice inflate_slice_start(uint64_t n_bytes) {
    return (struct inflate_slice){.left = n_bytes, .ratio = MAX_DEFLATE_RATIO};
}

size_t inflate_slice_input(const struct inflate_slice *slice) {
    uint64_t n = slice->left / (slice->ratio + 1) + 1;
    return n < MAX_SLICE_INPUT ? (size_t)n : MAX_SLICE_INPUT;
}

void inflate_slice_count(struct inflate_slice *slice, size_t n_in, uint64_t n_out) {
    size_t seen = n_in > 0 ? (size_t)(n_out / n_in) : 0;
    slice->ratio = seen > slice->ratio / 2 ? seen : slice->ratio / 2;
    slice->left -= n_out < slice->left ? n_out : slice->left;
}

/* ---- compression ----------------------------------------------------------------------------- */

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
        uInt n_capacity = left < UINT_MAX ? (uInt)left : UINT_MAX;
        bool finish = last && n_in == in->len;
        stream->next_in = (z_const Bytef *)in->ptr;
        stream->avail_in = n_in;
        stream->next_out = (Bytef *)out + *n_out;
        stream->avail_out = n_capacity;
        rc = deflate(stream, finish ? Z_FINISH : Z_NO_FLUSH);
        assert(rc == Z_OK || rc == Z_BUF_ERROR || rc == Z_STREAM_END);
        size_t used = n_in - stream->avail_in;
        *in = str_make(in->ptr + used, in->len - used);
        *n_out += n_capacity - stream->avail_out;
    } while (*n_out < capacity && (in->len > 0 || (last && rc != Z_STREAM_END)));
    return in->len == 0 && (!last || rc == Z_STREAM_END);
}

bool deflate_piece(struct deflate *codec, const struct arena *arena, struct str in, bool last,
                   void *out, size_t capacity, size_t *n_out) {
    enum { SLICE_BYTES = 1 << 20 }; /* some 20 ms on a slow core */
    bool done = true, at_end = false;
    *n_out = 0;
    while (done && !at_end) {
        struct str slice = str_make(in.ptr, in.len < SLICE_BYTES ? in.len : SLICE_BYTES);
        size_t n = 0;
        in = str_make(in.ptr + slice.len, in.len - slice.len);
        at_end = in.len == 0;
        done =
            !arena_is_cancelled(arena) && deflate_step(codec, &slice, last && at_end,
                                                       (char *)out + *n_out, capacity - *n_out, &n);
        *n_out += n;
    }
    return done;
}
