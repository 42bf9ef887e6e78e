/* ModelStreamInfer: many requests in flight on one stream, answered in the order asked, each
 * answered or failed on its own. What is answered early waits for those before it; the answers of
 * decoupled models leave as they come, between those of others. */
#include "core/base/metric/metric.h"
#include "serve/frontend/classify.h"
#include "serve/frontend/grpc/infer.h"

/* A request of the stream, in its message's arena. */
struct item {
    struct grpc_infer infer; /* first: one is the other */
    struct item *next;
    size_t n_parts; /* answers of a decoupled model on their way; they may lie in its request */
    bool answered;
    bool over; /* its end was sent, or nobody wants it */
};

struct stream {
    struct grpc_call *call;
    struct item *first; /* in the order asked */
    struct item **end;  /* where the next one is linked */
    bool ended;         /* the client sends no more */
    bool strict;        /* triton_grpc_error: the first failure of a model ends the stream */
    bool failed;        /* it has */
    bool finished;      /* grpc_finish was called */
    bool flushing;      /* answers are being sent, or calls cancelled: on the stack */
    struct error why;
};

static void free_if_over(struct item *item) {
    if (item->over && item->n_parts == 0) {
        infer_response_release(&item->infer.call.response);
        grpc_infer_end(&item->infer);
        grpc_message_free(item->infer.message); /* with the item itself */
    }
}

static void free_item(void *cookie) {
    struct item *item = cookie;
    item->over = true;
    free_if_over(item);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The words for a failure that the model had, or one before it: the facts name what each
 * carries. */
static void print_error(struct buf *out, const struct item *item, const struct error *err,
                        bool final) {
    const struct v2_grpc_request *request = &item->infer.request;
    bool queued = item->infer.queued;
    metric_add_error(METRIC_GRPC, err->status);
    v2_grpc_stream_error_print(out, err, request->infer.id, queued ? request->model : STR(""),
                               queued ? request->version : STR(""), queued ? final : -1);
}

static void note_failure(struct stream *stream, const struct item *item, const struct error *err) {
    if (stream->strict && item->infer.queued && !stream->failed) {
        stream->failed = true;
        stream->why = *err;
    }
}

static void send_error(struct stream *stream, struct item *item, const struct error *err) {
    struct buf out;
    buf_init(&out, item->infer.message->arena, 128);
    print_error(&out, item, err, true);
    if (out.failed) {
        free_item(item);
        return;
    }
    struct piece piece = {out.data, out.len};
    grpc_send(stream->call, &piece, 1, free_item, item);
}

/* A decoupled model has said that nothing more follows, and nothing else: only who asked for it is
 * told. The version is the one that was asked for. */
static bool ends_unsaid(const struct item *item) {
    const struct infer_response *response = &item->infer.call.response;
    return item->infer.spec && item->infer.spec->decoupled && response->error.status == ST_OK &&
           response->n_outputs == 0;
}

static void send_end(struct stream *stream, struct item *item) {
    const struct v2_grpc_request *request = &item->infer.request;
    struct model_spec spec = *item->infer.spec;
    struct v2_grpc_response out;
    struct error err;
    spec.version_text = request->version;
    metric_add(METRIC_INFERENCES_TOTAL, 1);
    if (!request->empty_final) {
        free_item(item);
    } else if (v2_grpc_response_encode(item->infer.message->arena, &spec, request->infer.id,
                                       &item->infer.call.response, true, 1, &out, &err) == ST_OK) {
        grpc_send(stream->call, out.pieces, out.n_pieces, free_item, item);
    } else {
        send_error(stream, item, &err);
    }
}

static void send_item(struct stream *stream, struct item *item) {
    struct v2_grpc_response out;
    struct error err;
    if (ends_unsaid(item)) {
        send_end(stream, item);
        return;
    }
    if (grpc_infer_encode(&item->infer, true, &out, &err) == ST_OK) {
        grpc_send(stream->call, out.pieces, out.n_pieces, free_item, item);
        return;
    }
    note_failure(stream, item, &err);
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

/* Of what is answered the first that may leave, unlinked; NULL: none may. */
static struct item *take_answered(struct stream *stream) {
    bool others_wait = false;
    for (struct item **at = &stream->first; *at; at = &(*at)->next) {
        struct item *item = *at;
        bool free = item->infer.spec && item->infer.spec->decoupled;
        if (item->answered && (free || !others_wait)) {
            *at = item->next;
            stream->end = stream->end == &item->next ? at : stream->end;
            return item;
        }
        others_wait = others_wait || !free;
    }
    return NULL;
}

/* Sends what is answered, as far as the order allows. */
static void flush(struct stream *stream) {
    if (stream->flushing) {
        return;
    }
    stream->flushing = true;
    struct item *item;
    while ((item = take_answered(stream))) {
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

/* ---- answers of decoupled models, but for the last ------------------------------------------- */

/* One on its way. The memory of its request would fill with the heads of many. */
struct part {
    struct item *item;
    struct infer_response *response;
    struct arena *arena; /* the part is in it */
};

static void free_part(void *cookie) {
    struct part *part = cookie;
    struct item *item = part->item;
    infer_response_release(part->response);
    arena_free(part->arena);
    item->n_parts--;
    free_if_over(item);
}

/* An answer that is left out would be a lie. */
static void fail(struct stream *stream) {
    stream->failed = true;
    error_set(&stream->why, ST_NO_MEMORY, "no memory for an answer");
}

/* The answer, or the failure that it is. Returns: false when out of memory. */
static bool send_part(struct stream *stream, struct part *part) {
    const struct item *item = part->item;
    struct infer_response *response = part->response;
    struct infer_request request = item->infer.request.infer;
    struct v2_grpc_response out;
    struct error err = response->error;
    request.arena = part->arena;
    if (err.status == ST_OK &&
        classify_outputs(&request, item->infer.spec, item->infer.labels, response, &err) == ST_OK &&
        v2_grpc_response_encode(part->arena, item->infer.spec, item->infer.request.infer.id,
                                response, true, 0, &out, &err) == ST_OK) {
        grpc_send(stream->call, out.pieces, out.n_pieces, free_part, part);
        return true;
    }
    struct buf text;
    buf_init(&text, part->arena, 128);
    print_error(&text, item, &err, false);
    note_failure(stream, item, &err);
    if (text.failed) {
        return false;
    }
    struct piece piece = {text.data, text.len};
    grpc_send(stream->call, &piece, 1, free_part, part);
    return true;
}

static struct part *part_new(struct item *item, struct infer_response *response) {
    struct arena *arena = arena_new(worker_arenas(item->infer.rpc->worker), 0);
    struct part *part = arena ? arena_alloc(arena, sizeof *part) : NULL;
    if (!part) {
        arena_free(arena);
        return NULL;
    }
    *part = (struct part){item, response, arena};
    item->n_parts++;
    return part;
}

static void on_part(struct grpc_infer *infer, struct infer_response *response) {
    struct item *item = (struct item *)infer;
    struct stream *stream = infer->rpc->user;
    if (stream->failed || stream->call->gone) {
        infer_response_release(response);
        return;
    }
    struct part *part = part_new(item, response);
    if (!part) {
        infer_response_release(response);
        fail(stream);
    } else if (!send_part(stream, part)) {
        free_part(part);
        fail(stream);
    }
    if (stream->failed) {
        cancel_all(stream);
        flush(stream);
    }
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
    stream->end = &stream->first;
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
    item->infer.part = on_part;
    *stream->end = item;
    stream->end = &item->next;
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
