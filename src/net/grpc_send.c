/* Messages out: queued by the method, asked for by nghttp2 as windows allow, collected from where
 * their bytes lie. */
#include <assert.h>
#include <stdlib.h>

#include "net/grpc_session.h"
#include "wire/deflate.h"

enum { COMPRESS_FROM_BYTES = 1024 }; /* smaller messages do not get smaller */

static struct grpc_outgoing *outgoing_new(struct grpc_stream *stream, size_t n_pieces) {
    size_t n_bytes = sizeof(struct grpc_outgoing) + (n_pieces + 1) * sizeof(struct piece);
    bool on_heap = stream->call.method->streams; /* which may send any number */
    struct grpc_outgoing *outgoing =
        on_heap ? malloc(n_bytes) : arena_alloc(stream->call.arena, n_bytes);
    if (outgoing) {
        *outgoing = (struct grpc_outgoing){.stream = stream, .on_heap = on_heap};
    }
    return outgoing;
}

static void outgoing_free(struct grpc_outgoing *outgoing) {
    if (outgoing->release) {
        outgoing->release(outgoing->cookie);
    }
    if (outgoing->on_heap) {
        free(outgoing);
    }
}

void grpc_outgoing_release(struct grpc_outgoing *list) {
    while (list) {
        struct grpc_outgoing *next = list->next;
        outgoing_free(list);
        list = next;
    }
}

/* ---- compression ----------------------------------------------------------------------------- */

/* Returns: false when it can't be done, and the message leaves as it is. */
static bool compress(const struct grpc_stream *stream, const struct piece *pieces, size_t n,
                     size_t n_bytes, struct piece *out) {
    int level = stream->core->options->limits.compression_level;
    struct deflate *codec = deflate_new(stream->answer_coding, level);
    size_t room = codec ? deflate_bound(codec, n_bytes) : SIZE_MAX;
    char *data = room < UINT32_MAX ? malloc(room) : NULL;
    size_t len = 0;
    for (size_t i = 0; data && i < n; i++) {
        struct str in = str_make(pieces[i].data, pieces[i].n_bytes);
        size_t n_out = 0;
        deflate_step(codec, &in, i + 1 == n, data + len, room - len, &n_out);
        len += n_out;
    }
    deflate_free(codec);
    *out = (struct piece){data, len};
    return data != NULL;
}

/* ---- queueing -------------------------------------------------------------------------------- */

static void enqueue(struct grpc_stream *stream, struct grpc_outgoing *outgoing, bool compressed,
                    size_t n_bytes) {
    grpc_prefix_encode((struct grpc_prefix){compressed, (uint32_t)n_bytes}, outgoing->prefix);
    outgoing->pieces[0] = (struct piece){outgoing->prefix, GRPC_PREFIX_BYTES};
    outgoing->next = NULL;
    if (stream->out) {
        stream->out_last->next = outgoing;
    } else {
        stream->out = outgoing;
    }
    stream->out_last = outgoing;
    stream->out_bytes += n_bytes + GRPC_PREFIX_BYTES;
}

static void get_going(struct grpc_stream *stream) {
    if (!stream->submitted) {
        grpc_head_submit(stream, false, 200);
    } else if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->session->h2, stream->id);
    }
    stream->core->ask_turn(stream->core, stream->session);
}

static size_t bytes_of(const struct piece *pieces, size_t n) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        n_bytes += pieces[i].n_bytes;
    }
    return n_bytes;
}

void grpc_send(struct grpc_call *call, const struct piece *pieces, size_t n_pieces,
               void (*release)(void *cookie), void *cookie) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    assert(!stream->finished);
    struct grpc_outgoing *outgoing =
        stream->ending || stream->closed ? NULL : outgoing_new(stream, n_pieces);
    if (!outgoing) {
        if (release) {
            release(cookie);
        }
        if (!stream->ending && !stream->closed) {
            grpc_stream_cancel(stream, ST_NO_MEMORY, "no memory for the answer");
        }
        return;
    }
    size_t n_bytes = bytes_of(pieces, n_pieces);
    struct piece small;
    bool compressed = stream->answer_coding != HTTP_IDENTITY && n_bytes >= COMPRESS_FROM_BYTES &&
                      compress(stream, pieces, n_pieces, n_bytes, &small);
    if (compressed) {
        if (release) {
            release(cookie);
        }
        release = free;
        cookie = (void *)(uintptr_t)small.data;
        pieces = &small;
        n_pieces = 1;
        n_bytes = small.n_bytes;
    }
    outgoing->n_pieces = 1;
    for (size_t i = 0; i < n_pieces; i++) {
        if (pieces[i].n_bytes > 0) {
            outgoing->pieces[outgoing->n_pieces++] = pieces[i];
        }
    }
    outgoing->release = release;
    outgoing->cookie = cookie;
    enqueue(stream, outgoing, compressed, n_bytes);
    get_going(stream);
}

size_t grpc_queued_bytes(const struct grpc_call *call) {
    return ((const struct grpc_stream *)call)->out_bytes;
}

void grpc_send_drop(struct grpc_stream *stream) {
    assert(stream->closed || (stream->out_piece == 0 && stream->out_at == 0));
    grpc_outgoing_release(stream->out);
    stream->out = stream->out_last = NULL;
    stream->out_piece = stream->out_at = stream->out_bytes = 0;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* nghttp2 asks how much there is for a frame; the bytes follow through on_send_data. */
static ssize_t on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    (void)h2, (void)id, (void)buf, (void)user;
    struct grpc_stream *stream = source->ptr;
    size_t n = stream->out_bytes < length ? stream->out_bytes : length;
    if (n == stream->out_bytes && stream->ending) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (grpc_head_submit_trailers(stream) != 0) {
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    } else if (n == 0) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    return (ssize_t)n;
}

nghttp2_data_provider grpc_send_provider(struct grpc_stream *stream) {
    return (nghttp2_data_provider){.source.ptr = stream, .read_callback = on_read};
}

struct piece grpc_send_next(const struct grpc_stream *stream) {
    const struct piece *piece = &stream->out->pieces[stream->out_piece];
    return (struct piece){(const char *)piece->data + stream->out_at,
                          piece->n_bytes - stream->out_at};
}

void grpc_send_advance(struct grpc_stream *stream, size_t n_bytes) {
    struct grpc_outgoing *outgoing = stream->out;
    stream->out_at += n_bytes;
    stream->out_bytes -= n_bytes;
    if (stream->out_at < outgoing->pieces[stream->out_piece].n_bytes) {
        return;
    }
    stream->out_at = 0;
    if (++stream->out_piece < outgoing->n_pieces) {
        return;
    }
    stream->out_piece = 0;
    stream->out = outgoing->next;
    if (!stream->out) {
        stream->out_last = NULL;
    }
    /* Its bytes may still be on their way: it is let go when the write at hand is done. */
    outgoing->next = stream->session->sent;
    stream->session->sent = outgoing;
}
