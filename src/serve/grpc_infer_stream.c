/* ModelStreamInfer: many requests in flight on one stream, answered in the order asked, each
 * answered or failed on its own. What is answered early waits for those before it. */
#include "base/metric.h"
#include "serve/grpc_infer.h"

/* A request of the stream, in its message's arena. */
struct item {
    struct grpc_infer infer; /* first: one is the other */
    struct item *next;
    bool answered;
};

struct stream {
    struct grpc_call *call;
    struct item *first, *last; /* in the order asked */
    size_t n;
    bool ended;    /* the client sends no more */
    bool strict;   /* triton_grpc_error: the first failure of a model ends the stream */
    bool failed;   /* it has */
    bool finished; /* grpc_finish was called */
    bool flushing; /* answers are being sent, or calls cancelled: on the stack */
    struct error why;
};

static void free_item(void *cookie) {
    struct item *item = cookie;
    infer_response_release(&item->infer.call.response);
    grpc_message_free(item->infer.message); /* with the item itself */
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A failure that the model had, or one before it: the facts name what each carries. */
static void send_error(struct stream *stream, struct item *item, const struct error *err) {
    const struct v2_grpc_request *request = &item->infer.request;
    bool queued = item->infer.queued;
    struct buf out;
    metric_add_error(METRIC_GRPC, err->status);
    buf_init(&out, item->infer.message->arena, 128);
    v2_grpc_stream_error_print(&out, err, request->infer.id, queued ? request->model : STR(""),
                               queued ? request->version : STR(""), queued ? 1 : -1);
    if (out.failed) {
        free_item(item);
        return;
    }
    struct piece piece = {out.data, out.len};
    grpc_send(stream->call, &piece, 1, free_item, item);
}

static void send_item(struct stream *stream, struct item *item) {
    struct v2_grpc_response out;
    struct error err;
    if (grpc_infer_encode(&item->infer, true, &out, &err) == ST_OK) {
        grpc_send(stream->call, out.pieces, out.n_pieces, free_item, item);
        return;
    }
    if (stream->strict && item->infer.queued && !stream->failed) {
        stream->failed = true;
        stream->why = err;
    }
    send_error(stream, item, &err);
}

/* Those that are cancelled may answer at once: all stay in the list until flush, which has to
 * follow. */
static void cancel_all(struct stream *stream) {
    bool inner = stream->flushing;
    stream->flushing = true;
    for (struct item *item = stream->first; item; item = item->next) {
        grpc_infer_cancel(&item->infer);
    }
    stream->flushing = inner;
}

static void finish_if_over(struct stream *stream) {
    bool over = stream->first == NULL && (stream->ended || stream->failed || stream->call->gone);
    if (over && !stream->finished) {
        stream->finished = true;
        grpc_finish(stream->call, stream->call->gone ? &stream->call->cancelled
                                  : stream->failed   ? &stream->why
                                                     : NULL);
    }
}

/* Sends what is answered, as far as the order allows. */
static void flush(struct stream *stream) {
    if (stream->flushing) {
        return;
    }
    stream->flushing = true;
    while (stream->first && stream->first->answered) {
        struct item *item = stream->first;
        stream->first = item->next;
        stream->n--;
        if (stream->failed || stream->call->gone) {
            free_item(item);
            continue;
        }
        send_item(stream, item);
        if (stream->failed) {
            cancel_all(stream);
        } else if (!stream->ended) {
            grpc_read(stream->call);
        }
    }
    stream->flushing = false;
    finish_if_over(stream);
}

static void on_done(struct grpc_infer *infer) {
    struct item *item = (struct item *)infer;
    item->answered = true;
    flush(infer->rpc->user);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void begin(struct grpc_call *call) {
    const struct grpc_api_options *options = &grpc_context_of(call)->api->options;
    struct stream *stream = arena_calloc(call->arena, 1, sizeof *stream);
    if (!stream) {
        struct error err;
        error_set(&err, ST_NO_MEMORY, "no memory for the stream");
        grpc_finish(call, &err);
        return;
    }
    stream->call = call;
    stream->strict = str_is(grpc_find(call, "triton_grpc_error", NULL), "true");
    call->user = stream;
    for (size_t i = 0; i < options->max_in_flight; i++) {
        grpc_read(call);
    }
}

static void take(struct stream *stream, struct grpc_message *message) {
    struct item *item = arena_calloc(message->arena, 1, sizeof *item);
    if (!item) {
        grpc_message_free(message);
        stream->failed = true;
        error_set(&stream->why, ST_NO_MEMORY, "no memory for a request");
        cancel_all(stream);
        flush(stream);
        return;
    }
    item->infer.rpc = stream->call;
    item->infer.message = message;
    item->infer.done = on_done;
    if (stream->first) {
        stream->last->next = item;
    } else {
        stream->first = item;
    }
    stream->last = item;
    stream->n++;
    if (stream->failed) { /* it waits for those before it, which are being given up */
        error_set(&item->infer.call.response.error, ST_CANCELLED, "the stream has failed");
        on_done(&item->infer);
        return;
    }
    grpc_infer_start(&item->infer);
}

void grpc_infer_stream_step(struct grpc_call *call, enum grpc_event event) {
    struct stream *stream = call->user;
    switch (event) {
    case GRPC_BEGIN:
        begin(call);
        break;
    case GRPC_MESSAGE:
        take(stream, call->message);
        break;
    case GRPC_HALF_CLOSE:
        stream->ended = true;
        finish_if_over(stream);
        break;
    case GRPC_CANCELLED:
        cancel_all(stream);
        flush(stream);
        break;
    case GRPC_WRITABLE:
    case GRPC_END:
        break;
    }
}
