/* ModelStreamInfer: many requests in flight on one stream; each succeeds or fails on its own.
 * Responses are sent in the order of the requests: one that is ready early waits for those before
 * it. Responses of decoupled models are sent as they arrive. Back pressure: at most max_in_flight
 * requests are unanswered, and none is read while one that failed before it reserved memory for its
 * response waits to be answered: for such memory a request waits, and an error does not. */
#include <sys/queue.h>

#include "core/base/metric/metric.h"
#include "serve/frontend/grpc/infer.h"

/* One request of the stream; lives in its message's arena. */
struct stream_item {
    struct grpc_infer infer;
    TAILQ_ENTRY(stream_item) link;
    size_t n_partials;  /* partial responses being sent; they may refer to this request */
    bool is_unreserved; /* counted in the stream's n_unreserved */
    enum {
        ITEM_RUNS,
        ITEM_ANSWERED, /* its last response may wait for those before it */
        ITEM_FINISHED, /* its last response was sent, or is not needed */
    } state;
};

struct stream {
    struct grpc_call *call;
    TAILQ_HEAD(, stream_item) items; /* in the order of the requests */
    struct inference_order order;    /* the model gets them in this order, too */
    size_t n_free;                   /* requests that may be read before others are answered */
    bool reading;                    /* one was asked for */
    size_t n_unreserved;             /* errors that are not sent yet, see hold_error */
    bool half_closed;                /* the client sends no more */
    bool strict;          /* triton_grpc_error: the first failure of a model ends the stream */
    bool finished;        /* grpc_finish was called */
    bool flushing;        /* guards against recursion */
    struct error failure; /* ends the stream; ST_OK: none */
};

static bool has_failed(const struct stream *stream) {
    return stream->failure.status != ST_OK;
}

static void item_free_if_finished(struct stream_item *item) {
    if (item->state == ITEM_FINISHED && item->n_partials == 0) {
        infer_response_release(&item->infer.inference.base.call.response);
        client_inference_fini(&item->infer.inference, !item->infer.rpc->is_cancelled);
        grpc_message_free(item->infer.message); /* frees the item too */
    }
}

static void item_release(void *user) {
    struct stream_item *item = user;
    if (item->is_unreserved) {
        ((struct stream *)item->infer.rpc->user)->n_unreserved--;
    }
    item->state = ITEM_FINISHED;
    item_free_if_finished(item);
}

/* ---- responses ------------------------------------------------------------------------------- */

/* Encodes an error response; it has model, version and the final flag only when the request was
 * submitted. */
static void print_error(struct buf *out, const struct stream_item *item, const struct error *err,
                        bool final) {
    const struct v2_grpc_request *request = &item->infer.request;
    bool submitted = inference_was_submitted(&item->infer.inference.base);
    struct str id = request->infer.id.len <= INFER_MAX_ID_BYTES ? request->infer.id : STR("");
    metric_add_error(METRIC_GRPC, err->status);
    v2_grpc_stream_error_encode(out, err, id, submitted ? request->model : STR(""),
                                submitted ? request->version : STR(""), submitted ? final : -1);
}

static void note_failure(struct stream *stream, const struct stream_item *item,
                         const struct error *err) {
    if (stream->strict && inference_was_submitted(&item->infer.inference.base) &&
        !has_failed(stream)) {
        stream->failure = *err;
    }
}

static void send_error(struct stream *stream, struct stream_item *item, const struct error *err) {
    struct buf out;
    buf_init(&out, item->infer.message->arena, 128);
    print_error(&out, item, err, true);
    if (out.failed) {
        item_release(item);
        return;
    }
    struct piece piece = {out.data, out.len};
    grpc_send(stream->call, &piece, 1, item_release, item);
}

/* The end mark of a decoupled model: no outputs follow. It is sent only to a client that requested
 * it, with the version that the request has. */
static bool is_empty_final(const struct stream_item *item) {
    const struct infer_response *response = &item->infer.inference.base.call.response;
    return inference_is_decoupled(&item->infer.inference.base) && response->error.status == ST_OK &&
           response->n_outputs == 0;
}

static void send_empty_final(struct stream *stream, struct stream_item *item) {
    const struct v2_grpc_request *request = &item->infer.request;
    struct model_spec spec = *item->infer.inference.base.spec;
    struct v2_grpc_message out;
    struct error err;
    spec.version_text = request->version;
    inference_count_answer(ST_OK);
    if (!request->empty_final) {
        item_release(item);
    } else if (v2_grpc_response_encode(item->infer.message->arena, &spec, request->infer.id,
                                       &item->infer.inference.base.call.response,
                                       (struct v2_grpc_response_form){.stream = true, .final = 1},
                                       &out, &err) == ST_OK) {
        grpc_send(stream->call, out.pieces, out.n_pieces, item_release, item);
    } else {
        send_error(stream, item, &err);
    }
}

static void send_item(struct stream *stream, struct stream_item *item) {
    struct grpc_infer_response out;
    struct error err;
    if (is_empty_final(item)) {
        send_empty_final(stream, item);
        return;
    }
    if (grpc_infer_encode(&item->infer, &out, &err) == ST_OK) {
        grpc_infer_send(&item->infer, &out, item_release, item);
        return;
    }
    note_failure(stream, item, &err);
    send_error(stream, item, &err);
}

/* A cancelled call may call `respond` at once: `flushing` keeps all items in the list. The caller
 * must call flush_answers afterwards. */
static void cancel_all_requests(struct stream *stream) {
    bool inner = stream->flushing;
    stream->flushing = true;
    struct stream_item *item;
    TAILQ_FOREACH(item, &stream->items, link) {
        if (stream->call->is_cancelled) {
            inference_abandon(&item->infer.inference.base);
        } else {
            inference_cancel(&item->infer.inference.base);
        }
    }
    stream->flushing = inner;
}

static void finish_if_drained(struct stream *stream) {
    bool is_finished = TAILQ_EMPTY(&stream->items) &&
                       (stream->half_closed || has_failed(stream) || stream->call->is_cancelled);
    if (is_finished && !stream->finished) {
        stream->finished = true;
        grpc_finish(stream->call, stream->call->is_cancelled ? &stream->call->cancel_error
                                  : has_failed(stream)       ? &stream->failure
                                                             : NULL);
    }
}

/* Unlinks the first answered item that may be sent. Returns: NULL when there is none. */
static struct stream_item *pop_answered(struct stream *stream) {
    bool others_wait = false;
    struct stream_item *item;
    TAILQ_FOREACH(item, &stream->items, link) {
        bool free = inference_is_decoupled(&item->infer.inference.base);
        if (item->state == ITEM_ANSWERED && (free || !others_wait)) {
            TAILQ_REMOVE(&stream->items, item, link);
            return item;
        }
        others_wait = others_wait || !free;
    }
    return NULL;
}

/* Asks for the next request, or the half-close. Its event may come before this returns. */
static void read_more(struct stream *stream) {
    bool wanted = !stream->half_closed && !has_failed(stream) && !stream->finished;
    if (wanted && !stream->reading && stream->n_unreserved == 0 && stream->n_free > 0) {
        stream->reading = true;
        stream->n_free--;
        grpc_read(stream->call);
    }
}

/* Sends the answered items, as far as the order allows. */
static void flush_answers(struct stream *stream) {
    if (stream->flushing) {
        return;
    }
    stream->flushing = true;
    struct stream_item *item;
    while ((item = pop_answered(stream))) {
        if (has_failed(stream) || stream->call->is_cancelled) {
            item_release(item);
            continue;
        }
        send_item(stream, item);
        stream->n_free++;
        if (has_failed(stream)) {
            cancel_all_requests(stream);
        }
        read_more(stream);
    }
    stream->flushing = false;
    finish_if_drained(stream);
}

static struct stream_item *stream_item_of(struct client_inference *inference) {
    return CONTAINER_OF(grpc_infer_of(inference), struct stream_item, infer);
}

/* What a request takes that failed before it reserved memory counts as its response would. Without
 * a connection there is no account, and nothing waits to be sent. */
static void hold_error(struct stream *stream, struct stream_item *item) {
    struct inference *inference = &item->infer.inference.base;
    struct arena *arena = item->infer.message->arena;
    if (inference->call.response.error.status != ST_OK && inference->memory.state == MEMORY_NONE &&
        !stream->call->is_cancelled) {
        item->is_unreserved = true;
        stream->n_unreserved++;
        arena_stop_counting(arena);
        memory_hold(inference->account, &inference->memory, arena_bytes(arena));
    }
}

static void on_last_response(struct stream_item *item) {
    struct stream *stream = item->infer.rpc->user;
    item->state = ITEM_ANSWERED;
    hold_error(stream, item);
    if (item != TAILQ_FIRST(&stream->items) && item->infer.inference.base.served_version) {
        inference_keep_version(&item->infer.inference.base); /* it waits for those before it */
    }
    flush_answers(stream);
}

/* ---- partial responses of decoupled models ------------------------------------------- */

static void partial_response_free(void *user) {
    struct outgoing_response *outgoing = user;
    struct stream_item *item = stream_item_of(client_inference_of(outgoing->inference));
    outgoing_response_free(outgoing);
    item->n_partials--;
    item_free_if_finished(item);
}

/* Sends the response, or the error in it. Returns: false when out of memory. */
static bool send_partial_response(struct stream *stream, struct outgoing_response *outgoing) {
    struct stream_item *item = stream_item_of(client_inference_of(outgoing->inference));
    struct grpc_infer_response out;
    struct error err;
    if (!outgoing->arena) {
        return false;
    }
    if (client_inference_encode(outgoing, &out, &err) == ST_OK) {
        grpc_infer_send(&item->infer, &out, partial_response_free, outgoing);
        return true;
    }
    struct buf text;
    buf_init(&text, outgoing->arena, 128);
    print_error(&text, item, &err, false);
    note_failure(stream, item, &err);
    if (text.failed) {
        return false;
    }
    struct piece piece = {text.data, text.len};
    grpc_send(stream->call, &piece, 1, partial_response_free, outgoing);
    return true;
}

static void on_partial_response(struct stream *stream, struct outgoing_response *outgoing) {
    struct stream_item *item = stream_item_of(client_inference_of(outgoing->inference));
    if (has_failed(stream) || stream->call->is_cancelled) {
        outgoing_response_free(outgoing);
        return;
    }
    item->n_partials++;
    if (!send_partial_response(stream, outgoing)) {
        partial_response_free(outgoing);
        error_no_memory(&stream->failure, "an answer"); /* a response cannot be skipped */
    }
    if (has_failed(stream)) {
        cancel_all_requests(stream);
        flush_answers(stream);
    }
}

static void respond(struct client_inference *inference, struct outgoing_response *outgoing) {
    struct stream_item *item = stream_item_of(inference);
    if (outgoing->last) {
        on_last_response(item);
    } else {
        on_partial_response(item->infer.rpc->user, outgoing);
    }
}

static enum status encode_response(struct client_inference *inference,
                                   struct infer_response *response, struct arena *arena, bool last,
                                   void *out, struct error *err) {
    return grpc_infer_encode_response(inference, response, arena, true, last ? 1 : 0, out, err);
}

static const struct inference_protocol stream_protocol = {
    .send_start = TRACE_GRPC_SEND_START,
    .send_end = TRACE_GRPC_SEND_END,
    .begin_trace = grpc_infer_begin_trace,
    .decode = grpc_infer_decode,
    .decode_ns = grpc_infer_decode_ns,
    .forward_headers = grpc_infer_forward_metadata,
    .encode = encode_response,
    .encode_ns = grpc_infer_encode_ns,
    .encoded_bytes = sizeof(struct grpc_infer_response),
    .respond = respond,
};

/* ---- requests -------------------------------------------------------------------------------- */

static void begin_stream(struct grpc_call *call) {
    const struct grpc_api_options *options = &grpc_method_context_of(call)->api->options;
    struct stream *stream = arena_calloc(call->arena, 1, sizeof *stream);
    if (!stream) {
        struct error err;
        error_no_memory(&err, "the stream");
        grpc_finish(call, &err);
        return;
    }
    stream->call = call;
    TAILQ_INIT(&stream->items);
    inference_order_init(&stream->order);
    stream->strict = str_is(grpc_find_field(call, GRPC_STRICT_ERRORS_FIELD, NULL), "true");
    call->user = stream;
    grpc_infer_count_picked(call);
    stream->n_free = options->max_in_flight;
    read_more(stream);
}

static void add_request(struct stream *stream, struct grpc_message *message) {
    struct stream_item *item = arena_calloc(message->arena, 1, sizeof *item);
    if (!item) {
        grpc_message_free(message);
        error_no_memory(&stream->failure, "a request");
        cancel_all_requests(stream);
        flush_answers(stream);
        return;
    }
    grpc_infer_init(&item->infer, &stream_protocol, stream->call, message);
    item->infer.inference.base.order = &stream->order;
    item->infer.inference.base.call.request_stream = stream;
    TAILQ_INSERT_TAIL(&stream->items, item, link);
    if (has_failed(stream)) { /* answered in order, after the cancelled requests before it */
        error_set(&item->infer.inference.base.call.response.error, ST_CANCELLED,
                  "the stream has failed");
        on_last_response(item);
        return;
    }
    inference_run(&item->infer.inference.base);
}

void grpc_step_infer_stream(struct grpc_call *call, enum grpc_event event) {
    struct stream *stream = call->user;
    switch (event) {
    case GRPC_BEGIN:
        begin_stream(call);
        break;
    case GRPC_MESSAGE:
        stream->reading = false;
        add_request(stream, call->message);
        read_more(stream);
        break;
    case GRPC_HALF_CLOSE:
        stream->half_closed = true;
        finish_if_drained(stream);
        break;
    case GRPC_CANCELLED:
        cancel_all_requests(stream);
        flush_answers(stream);
        break;
    case GRPC_WRITABLE:
        read_more(stream);
        break;
    case GRPC_END:
        break;
    }
}
