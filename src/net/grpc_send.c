/* Messages out: queued by the method, asked for by nghttp2 as windows allow, collected from where
 * their bytes lie. */
#include <assert.h>
#include <stdlib.h>

#include "net/grpc_session.h"
#include "wire/deflate.h"

enum { COMPRESS_FROM_BYTES = 1024 }; /* smaller messages do not get smaller */

/* A unary call's one message lives with the call; of others there may be any number. */
static struct grpc_outgoing *outgoing_new(struct grpc_stream *stream, size_t n_pieces) {
    size_t n_bytes = sizeof(struct grpc_outgoing) + (n_pieces + 1) * sizeof(struct piece);
    struct grpc_outgoing *outgoing =
        stream->call.method->streams ? NULL : arena_alloc(stream->call.arena, n_bytes);
    bool on_heap = !outgoing;
    if (on_heap) {
        outgoing = malloc(n_bytes);
    }
    if (outgoing) {
        *outgoing = (struct grpc_outgoing){.stream = stream, .on_heap = on_heap};
    }
    return outgoing;
}

/* It is not needed any more. */
static void outgoing_free(struct grpc_outgoing *outgoing) {
    if (outgoing->release) {
        outgoing->release(outgoing->cookie);
    }
    if (outgoing->on_heap) {
        free(outgoing);
    }
}

/* ---- compression ----------------------------------------------------------------------------- */

/* Makes one piece of them, on the heap. Returns: false when it can't be done, and the message leaves
 * as it is. */
static bool compress_copy(const struct grpc_stream *stream, const struct piece *pieces, size_t n,
                          size_t n_bytes, struct piece *out) {
    struct deflate *codec =
        deflate_new(stream->answer_coding, stream->core->options->limits.compression_level);
    size_t room = codec ? deflate_bound(codec, n_bytes) : SIZE_MAX;
    char *data = room <= UINT32_MAX ? malloc(room) : NULL;
    size_t len = 0;
    bool done = data != NULL;
    for (size_t i = 0; done && i < n; i++) {
        struct str in = str_make(pieces[i].data, pieces[i].n_bytes);
        size_t n_out = 0;
        done = deflate_step(codec, &in, i + 1 == n, data + len, room - len, &n_out);
        len += n_out;
    }
    deflate_free(codec);
    if (!done) {
        free(data);
        return false;
    }
    *out = (struct piece){data, len};
    return true;
}

/* ---- queueing -------------------------------------------------------------------------------- */

static size_t bytes_of(const struct piece *pieces, size_t n) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        n_bytes += pieces[i].n_bytes;
    }
    return n_bytes;
}

static void fill(struct grpc_outgoing *outgoing, const struct piece *pieces, size_t n,
                 bool compressed) {
    struct grpc_prefix prefix = {compressed, (uint32_t)bytes_of(pieces, n)};
    grpc_prefix_encode(prefix, outgoing->prefix);
    outgoing->pieces[0] = (struct piece){outgoing->prefix, GRPC_PREFIX_BYTES};
    outgoing->n_pieces = 1;
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].n_bytes > 0) {
            outgoing->pieces[outgoing->n_pieces++] = pieces[i];
        }
    }
}

static void resume(struct grpc_stream *stream) {
    if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->session->h2, stream->id);
    }
}

/* The status needs no window: where nothing is queued in front of it, nghttp2's data source, which is
 * asked only while there is one, is not waited for. */
void grpc_send_end(struct grpc_stream *stream) {
    if (stream->out_bytes > 0) {
        resume(stream);
    } else if (grpc_head_submit_trailers(stream) != 0) {
        grpc_session_fail(stream->session, NGHTTP2_INTERNAL_ERROR, "no memory for an answer");
    }
}

static void enqueue(struct grpc_stream *stream, struct grpc_outgoing *outgoing) {
    *(stream->out ? &stream->out_last->next : &stream->out) = outgoing;
    stream->out_last = outgoing;
    stream->out_bytes += bytes_of(outgoing->pieces, outgoing->n_pieces);
    stream->served = true;
    if (stream->answer == GRPC_ANSWER_NONE) {
        grpc_stream_set_answer(stream, GRPC_ANSWER_OPEN);
        grpc_head_submit(stream, false, 200);
    } else {
        resume(stream);
    }
    grpc_stream_await(stream);
    grpc_core_ask(stream->core, stream->session);
}

/* Returns: NULL when it can't be sent. */
static struct grpc_outgoing *prepare(struct grpc_stream *stream, const struct piece *pieces,
                                     size_t n_pieces) {
    size_t n_bytes = bytes_of(pieces, n_pieces);
    if (n_bytes > UINT32_MAX) {
        return NULL;
    }
    struct piece small;
    bool compressed = stream->answer_coding != HTTP_IDENTITY && n_bytes >= COMPRESS_FROM_BYTES &&
                      compress_copy(stream, pieces, n_pieces, n_bytes, &small);
    struct grpc_outgoing *outgoing = outgoing_new(stream, compressed ? 1 : n_pieces);
    if (!outgoing) {
        free(compressed ? (void *)(uintptr_t)small.data : NULL);
        return NULL;
    }
    if (compressed) {
        outgoing->release = free;
        outgoing->cookie = (void *)(uintptr_t)small.data;
    }
    fill(outgoing, compressed ? &small : pieces, compressed ? 1 : n_pieces, compressed);
    return outgoing;
}

void grpc_send(struct grpc_call *call, const struct piece *pieces, size_t n_pieces,
               void (*release)(void *cookie), void *cookie) {
    struct grpc_stream *stream = (struct grpc_stream *)call;
    assert(stream->hold == GRPC_HELD);
    struct grpc_outgoing *outgoing =
        call->gone || stream->broken ? NULL : prepare(stream, pieces, n_pieces);
    if (outgoing && !outgoing->release) {
        outgoing->release = release;
        outgoing->cookie = cookie;
    } else if (release) {
        release(cookie); /* nobody waits, or a compressed copy leaves */
    }
    if (outgoing) {
        enqueue(stream, outgoing);
    } else if (!call->gone && !stream->broken) {
        /* The client would miss a message: it is told, and the method hears of it when the stream
         * is closed. */
        stream->broken = true;
        nghttp2_submit_rst_stream(stream->session->h2, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_INTERNAL_ERROR);
        grpc_core_ask(stream->core, stream->session);
    }
}

size_t grpc_queued_bytes(const struct grpc_call *call) {
    return ((const struct grpc_stream *)call)->out_bytes;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* nghttp2 asks how much there is for a frame; the bytes follow through its send_data callback. */
static ssize_t on_read(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user) {
    struct grpc_stream *stream = source->ptr;
    (void)h2, (void)id, (void)buf, (void)user;
    size_t n = stream->out_bytes < length ? stream->out_bytes : length;
    bool ends = n == stream->out_bytes && stream->answer == GRPC_ANSWER_ENDING;
    if (n == 0) { /* for now; or the trailers are on their way */
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (ends) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (grpc_head_submit_trailers(stream) != 0) {
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    stream->promised = n;
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

/* The first message leaves the queue, but may be on its way to the socket. */
static void take_off(struct grpc_stream *stream) {
    struct grpc_session *session = stream->session;
    struct grpc_outgoing *outgoing = stream->out;
    stream->out = outgoing->next;
    stream->out_piece = stream->out_at = 0;
    if (!stream->out) {
        stream->out_last = NULL;
    }
    stream->n_flying++;
    outgoing->next = session->sent;
    session->sent = outgoing;
}

void grpc_send_advance(struct grpc_stream *stream, size_t n_bytes) {
    const struct grpc_outgoing *outgoing = stream->out;
    stream->out_at += n_bytes;
    stream->out_bytes -= n_bytes;
    stream->promised -= n_bytes;
    if (stream->out_at == outgoing->pieces[stream->out_piece].n_bytes) {
        stream->out_at = 0;
        if (++stream->out_piece == outgoing->n_pieces) {
            take_off(stream);
        }
    }
}

bool grpc_send_is_in_message(const struct grpc_stream *stream) {
    return stream->promised > 0 || stream->out_piece > 0 || stream->out_at > 0;
}

/* ---- letting go ------------------------------------------------------------------------------ */

void grpc_send_drop(struct grpc_stream *stream) {
    const struct grpc_session *session = stream->session;
    bool begun = stream->out_piece > 0 || stream->out_at > 0;
    if (begun && (session->output || session->writing)) {
        take_off(stream);
    }
    while (stream->out) {
        struct grpc_outgoing *outgoing = stream->out;
        stream->out = outgoing->next;
        outgoing_free(outgoing);
    }
    stream->out_last = NULL;
    stream->out_piece = stream->out_at = stream->out_bytes = stream->promised = 0;
}

void grpc_send_left(struct grpc_outgoing *list) {
    while (list) {
        struct grpc_stream *stream = list->stream;
        struct grpc_outgoing *next = list->next;
        outgoing_free(list);
        list = next;
        if (--stream->n_flying > 0) {
            continue;
        }
        if (grpc_stream_is_over(stream)) {
            grpc_stream_ask_sweep(stream);
        } else if (!stream->out && stream->hold == GRPC_HELD && !stream->call.gone &&
                   stream->call.method->streams) {
            grpc_stream_step(stream, GRPC_WRITABLE);
        }
    }
}
