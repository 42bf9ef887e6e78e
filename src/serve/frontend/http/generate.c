/* generate and generate_stream: the JSON body becomes an infer_request by the model's inputs; each
 * response is printed as JSON, for generate_stream as a server-sent event. An error before the
 * first response has an HTTP status of its own; a later one is only in the body, because the head
 * is sent. */
#include "codec/json/error_body.h"
#include "core/base/compiler.h"

#include "codec/kserve/generate.h"
#include "codec/kserve/metadata.h"
#include "core/base/metric/metric.h"
#include "serve/frontend/http/coding.h"
#include "serve/frontend/http/infer.h"
#include "serve/frontend/load_report.h"
#include "telemetry/admin/http_text.h"

enum { FIRST_BYTES = 256 };

/* One request; lives in the exchange's arena. */
struct http_generate {
    struct http_inference base; /* first member: exchange->user points to it */
    struct infer_request request;
    enum v2_non_finite non_finite;
    bool streams;      /* generate_stream */
    bool stream_begun; /* the head of the response was sent */
    size_t n_answers;
    struct buf answer; /* the only response of generate */
    struct outgoing_response
        *kept;            /* one before the last, whose arena has it; NULL: the exchange's */
    struct error failure; /* of the first response, or the wrong number of responses */
};

static struct http_generate *http_generate_of(struct client_inference *inference) {
    return CONTAINER_OF(http_inference_of(inference), struct http_generate, base);
}

/* ---- the steps of the inference -------------------------------------------------------------- */

static enum status decode_body(struct client_inference *inference, struct error *err) {
    struct http_generate *generate = http_generate_of(inference);
    struct http_exchange *exchange = generate->base.exchange;
    inference->base.call.request = &generate->request;
    enum status st =
        v2_generate_decode(inference_arena(&inference->base), exchange->body, inference->base.spec,
                           &inference->services->limits, generate->base.api->max_body_size,
                           &generate->request, &generate->non_finite, err);
    if (generate->non_finite == V2_NON_FINITE_DEFAULT) {
        generate->non_finite = inference->services->non_finite;
    }
    return st;
}

static uint64_t decode_ns(const struct client_inference *inference) {
    const struct http_generate *generate =
        CONTAINER_OF(inference, struct http_generate, base.inference);
    return http_inference_parse_ns(generate->base.exchange->body.len);
}

/* Per byte of a tensor that is printed, on a slow core. */
enum { PRINT_NS = 8 };

static uint64_t encode_ns(const struct client_inference *inference,
                          const struct infer_response *response) {
    (void)inference;
    return infer_response_bytes(response) * PRINT_NS;
}

/* Prints the response, for generate_stream as an event, to `out`, an uninitialized buffer. */
static enum status encode_response(struct client_inference *inference,
                                   struct infer_response *response, struct arena *arena, bool last,
                                   void *out, struct error *err) {
    const struct http_generate *generate = http_generate_of(inference);
    struct buf *text = out;
    (void)last;
    buf_init(text, arena, FIRST_BYTES);
    buf_add_str(text, generate->streams ? STR("data: ") : STR(""));
    enum status st = v2_generate_print(text, inference->base.spec, inference->base.call.request->id,
                                       response, generate->non_finite, err);
    buf_add_str(text, generate->streams ? STR("\n\n") : STR(""));
    return st;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void reply_failure(struct http_exchange *exchange, const struct error *err) {
    inference_count_answer(err->status);
    http_reply_error(exchange, err, NULL, 0);
}

/* ---- generate: one response ------------------------------------------------------------------ */

static enum status set_count_error(struct http_generate *generate, const char *count) {
    return error_set(&generate->failure, ST_UNSUPPORTED,
                     "generate carries exactly one answer, and the model gave %s; generate_stream "
                     "carries any number",
                     count);
}

static void store_single_answer(struct http_generate *generate,
                                struct outgoing_response *outgoing) {
    if (generate->n_answers > 1 && outgoing->response->error.status == ST_OK) {
        set_count_error(generate, "more");
    } else if (!outgoing->arena) {
        error_no_memory(&generate->failure, "the response");
    } else if (client_inference_encode(outgoing, &generate->answer, &generate->failure) == ST_OK) {
        generate->failure.status = ST_OK;
        if (!outgoing->last) { /* the backend may continue; the text stays */
            infer_response_release(outgoing->response);
            outgoing->response = NULL;
            generate->kept = outgoing;
            return;
        }
    }
    if (!outgoing->last) {
        outgoing_response_free(outgoing);
    }
}

/* Clause: generate: the HTTP status is that of the first response; an error in the number of
 * responses is reported in the body. */
static void reply_single_answer(struct http_generate *generate) {
    struct http_exchange *exchange = generate->base.exchange;
    if (generate->n_answers == 0) {
        set_count_error(generate, "none");
    }
    if (generate->n_answers == 1 && generate->failure.status != ST_OK) {
        reply_failure(exchange, &generate->failure);
        return;
    }
    struct buf *body = &generate->answer;
    inference_count_answer(generate->failure.status);
    if (generate->failure.status != ST_OK) {
        buf_init(body, exchange->arena, FIRST_BYTES);
        json_error_body_print(body, &generate->failure);
    }
    http_json_reply(exchange, 200, body);
}

/* ---- generate_stream: events ----------------------------------------------------------------- */

static void free_event(void *user) {
    outgoing_response_free(user);
}

static void begin_stream(struct http_generate *generate) {
    struct http_exchange *exchange = generate->base.exchange;
    struct http_field fields[1];
    size_t n = load_report_add(fields, 0, &exchange->head, &generate->base.api->load_totals,
                               generate->base.api->services.repository,
                               generate->base.inference.base.served_version, exchange->arena);
    generate->stream_begun = true;
    http_stream_begin(exchange,
                      &(struct http_reply){.status = 200,
                                           .content_type = "text/event-stream; charset=utf-8",
                                           .fields = fields,
                                           .n_fields = n});
}

/* The response is released when the event was sent; the last one with the exchange. */
static void send_event(struct http_generate *generate, struct outgoing_response *outgoing) {
    struct http_exchange *exchange = generate->base.exchange;
    struct arena *arena = outgoing->arena;
    struct piece *piece = arena ? arena_alloc(arena, sizeof(*piece)) : NULL;
    struct buf out = {.failed = true};
    struct error err;
    if (piece && client_inference_encode(outgoing, &out, &err) != ST_OK) {
        buf_init(&out, arena, FIRST_BYTES);
        buf_add_str(&out, STR("data: "));
        json_error_body_print(&out, &err);
        buf_add_str(&out, STR("\n\n"));
        metric_add_error(METRIC_HTTP, err.status);
    }
    if (out.failed) {
        if (!outgoing->last) {
            outgoing_response_free(outgoing);
        }
        http_stream_send(exchange, NULL, 0, NULL, NULL); /* closes the connection */
        return;
    }
    *piece = (struct piece){out.data, out.len};
    http_stream_send(exchange, piece, 1, outgoing->last ? NULL : free_event, outgoing);
}

/* ---- responses of the model ------------------------------------------------------------------ */

static void emit_event(struct http_generate *generate, struct outgoing_response *outgoing) {
    if (generate->n_answers == 1 && outgoing->response->error.status != ST_OK) {
        /* It gets an HTTP status of its own, when the model has finished. */
        generate->failure = outgoing->response->error;
    } else if (generate->stream_begun || generate->failure.status == ST_OK) {
        if (!generate->stream_begun) {
            begin_stream(generate);
        }
        send_event(generate, outgoing);
        return;
    }
    if (!outgoing->last) {
        outgoing_response_free(outgoing);
    }
}

/* What the model answers after it was cancelled may lack a part, so none of it is sent. */
static bool is_cancelled(const struct http_generate *generate) {
    const struct http_exchange *exchange = generate->base.exchange;
    return exchange->client_disconnected || exchange->client_half_closed;
}

static void on_partial_response(struct http_generate *generate,
                                struct outgoing_response *outgoing) {
    if (is_cancelled(generate) ||
        (!generate->stream_begun && generate->failure.status != ST_OK)) { /* not sent */
        outgoing_response_free(outgoing);
        return;
    }
    generate->n_answers++;
    if (generate->streams) {
        emit_event(generate, outgoing);
    } else {
        store_single_answer(generate, outgoing);
    }
    if (!generate->stream_begun && generate->failure.status != ST_OK) {
        inference_cancel(&generate->base.inference.base); /* the request can only fail */
    }
}

/* Is the last response of the model one to send, or only its end mark? */
static bool last_is_answer(const struct http_generate *generate) {
    const struct infer_response *response = &generate->base.inference.base.call.response;
    bool says_only_end = generate->base.inference.base.spec->decoupled &&
                         response->error.status == ST_OK && response->n_outputs == 0;
    bool failed = !generate->stream_begun && generate->failure.status != ST_OK;
    return !says_only_end && !failed;
}

static void finish_stream(struct http_generate *generate) {
    if (!generate->stream_begun && generate->failure.status != ST_OK) {
        reply_failure(generate->base.exchange, &generate->failure);
        return;
    }
    inference_count_answer(ST_OK);
    if (!generate->stream_begun) { /* no response at all */
        begin_stream(generate);
    }
    http_stream_end(generate->base.exchange);
}

static void finish_cancelled(struct http_generate *generate) {
    struct error err;
    if (generate->stream_begun) {
        inference_count_answer(ST_CANCELLED);
        http_stream_end(generate->base.exchange);
        return;
    }
    error_set(&err, ST_CANCELLED, "the client closed the connection before the response");
    reply_failure(generate->base.exchange, &err);
}

static void finish_submitted(struct http_generate *generate, struct outgoing_response *outgoing) {
    if (!is_cancelled(generate) && last_is_answer(generate)) {
        generate->n_answers++;
        if (generate->streams) {
            emit_event(generate, outgoing);
        } else {
            store_single_answer(generate, outgoing);
        }
    }
    infer_response_release(outgoing->response);
    trace_timestamp_set(generate->base.inference.base.trace, TRACE_HTTP_SEND_START);
    if (is_cancelled(generate)) {
        finish_cancelled(generate);
    } else if (generate->streams) {
        finish_stream(generate);
    } else {
        reply_single_answer(generate);
    }
}

static void respond(struct client_inference *inference, struct outgoing_response *outgoing) {
    struct http_generate *generate = http_generate_of(inference);
    if (!outgoing->last) {
        on_partial_response(generate, outgoing);
    } else if (inference_was_submitted(&inference->base)) {
        finish_submitted(generate, outgoing);
    } else {
        reply_failure(generate->base.exchange, &inference->base.call.response.error);
    }
}

static const struct inference_protocol generate_protocol = {
    .send_start = TRACE_HTTP_SEND_START,
    .send_end = TRACE_HTTP_SEND_END,
    .begin_trace = http_inference_begin_trace,
    .decode = decode_body,
    .decode_ns = decode_ns,
    .forward_headers = http_inference_forward_headers,
    .encode = encode_response,
    .encode_ns = encode_ns,
    .encoded_bytes = sizeof(struct buf),
    .respond = respond,
};

/* ---- the exchange ---------------------------------------------------------------------------- */

static void on_body(struct http_exchange *exchange, void *context) {
    struct http_generate *generate = exchange->user;
    (void)context;
    trace_timestamp_set(generate->base.inference.base.trace, TRACE_HTTP_RECV_END);
    inference_run(&generate->base.inference.base);
}

static void on_end(struct http_exchange *exchange, void *context) {
    struct http_generate *generate = exchange->user;
    if (generate->kept) {
        outgoing_response_free(generate->kept);
    }
    http_inference_end(exchange, context);
}

static const struct http_handler generate_handler = {
    .on_body = on_body, .on_disconnect = http_inference_disconnect, .on_end = on_end};

void http_generate_begin(struct http_api *api, struct http_exchange *exchange,
                         const struct v2_path *path) {
    struct error err;
    struct http_generate *generate = arena_calloc(exchange->arena, 1, sizeof *generate);
    if (!generate) {
        error_no_memory(&err, "the request");
        reply_failure(exchange, &err);
        return;
    }
    generate->streams = path->resource == V2_GENERATE_STREAM;
    generate->failure.status = ST_OK;
    http_inference_init(&generate->base, &generate_protocol, api, exchange, &generate_handler);
    if (client_inference_find_model(&generate->base.inference, path->model, path->version, &err) !=
        ST_OK) {
        reply_failure(exchange, &err);
        return;
    }
    enum http_coding coding;
    exchange->plan.max_bytes = api->max_body_size;
    if (http_coding_of_body(&exchange->head, &coding, &err) != ST_OK ||
        coding != HTTP_IDENTITY) { /* clause: generate accepts no content codings */
        error_set(&err, ST_BAD_REQUEST, "generate takes bodies without a Content-Encoding only");
        reply_failure(exchange, &err);
    }
}
