/* One inference over HTTP, and what infer and generate have in common. The head decides the
 * alignment of the body; the body becomes an infer_request whose tensors are views of it; the model
 * responds on the same worker; the outputs are sent from the backend's memory. */
#include "serve/frontend/http/infer.h"

#include "codec/kserve/raw.h"
#include "codec/kserve/response.h"
#include "core/base/compiler.h"
#include "core/base/num.h"
#include "serve/frontend/header_forward.h"
#include "serve/frontend/http/coding.h"
#include "serve/frontend/load_report.h"

/* ---- what infer and generate have in common -------------------------------------------------- */

void http_inference_disconnect(struct http_exchange *exchange, void *context) {
    struct http_inference *self = exchange->user;
    (void)context;
    if (exchange->client_disconnected) {
        inference_abandon(&self->inference.base);
    } else {
        inference_cancel(&self->inference.base);
    }
}

void http_inference_end(struct http_exchange *exchange, void *context) {
    struct http_inference *self = exchange->user;
    (void)context;
    client_inference_fini(&self->inference, !exchange->client_disconnected);
}

void http_inference_init(struct http_inference *self, const struct inference_protocol *protocol,
                         struct http_api *api, struct http_exchange *exchange,
                         const struct http_handler *handler) {
    self->exchange = exchange;
    self->api = api;
    client_inference_init(&self->inference, protocol, &api->services, exchange->worker,
                          exchange->account);
    self->inference.base.arena = exchange->arena;
    exchange->user = self;
    exchange->handler = handler;
    struct str destination;
    picked_count(http_head_find(&exchange->head, STR(PICKED_FIELD), &destination) > 0);
}

struct trace *http_inference_begin_trace(struct client_inference *inference,
                                         struct tracer *tracer) {
    struct trace *trace = trace_begin_http(tracer, inference->base.spec,
                                           &http_inference_of(inference)->exchange->head);
    trace_timestamp_set(trace, TRACE_HTTP_RECV_START);
    return trace;
}

enum status http_inference_forward_headers(struct client_inference *inference,
                                           struct params *params, struct error *err) {
    struct http_inference *self = http_inference_of(inference);
    return header_forward_http(self->api->forward, inference_arena(&inference->base),
                               &self->exchange->head, params, err);
}

/* ---- infer ----------------------------------------------------------------------------------- */

/* One inference; lives in the exchange's arena. */
struct http_infer {
    struct http_inference base; /* first member: exchange->user points to it */
    struct v2_request request;
    enum v2_header_kind header;
    uint64_t json_bytes;
};

/* An encoded response, as it is sent. */
struct http_infer_response {
    struct v2_response v2;
    enum http_coding coding; /* not HTTP_IDENTITY: `compressed` is sent */
    struct piece compressed;
};

enum {
    MAX_REPLY_FIELDS = 4,
    /* Compressing this much takes about a second. */
    MAX_COMPRESSED_BYTES = 64 * 1024 * 1024,
};

static void reply_failure(struct http_exchange *exchange, const struct error *err) {
    const struct http_infer *infer = exchange->user;
    struct http_field fields[MAX_REPLY_FIELDS];
    size_t n = 0;
    inference_count_answer(err->status);
    if (err->status == ST_UNKNOWN_ENCODING) {
        fields[n++] = (struct http_field){STR("Accept-Encoding"), STR("gzip, deflate")};
    }
    if (infer) {
        n = load_report_add(fields, n, &exchange->head, &infer->base.api->load_totals,
                            infer->base.api->services.repository,
                            infer->base.inference.base.served_version, exchange->arena);
    }
    http_reply_error(exchange, err, fields, n);
}

/* Reads the headers that decide how the body is received, and where its first tensor begins. */
static enum status read_request_head(struct http_infer *infer, struct error *err) {
    struct http_exchange *exchange = infer->base.exchange;
    const struct http_api *api = infer->base.api;
    struct str value = {NULL, 0};
    size_t n = http_head_find(&exchange->head, STR("Inference-Header-Content-Length"), &value);
    enum status st = v2_header_length_parse(n, value, &infer->header, &infer->json_bytes, err);
    if (st != ST_OK) {
        return st;
    }
    st = http_coding_of_body(&exchange->head, &exchange->plan.coding, err);
    if (st != ST_OK) {
        return st;
    }
    exchange->plan.max_bytes = api->max_body_size;
    if (infer->header == V2_HEADER_ABSENT && exchange->plan.coding != HTTP_IDENTITY &&
        api->services.limits.max_json_size < api->max_body_size) { /* all of it is JSON */
        exchange->plan.max_bytes = api->services.limits.max_json_size;
        exchange->plan.setting = "--max-json-size";
    }
    if (infer->header == V2_HEADER_JSON &&
        infer->json_bytes <= api->services.limits.max_json_size) {
        exchange->plan.align_at = (size_t)infer->json_bytes;
    }
    return ST_OK;
}

/* ---- the steps of the inference -------------------------------------------------------------- */

static struct http_infer *http_infer_of(struct client_inference *inference) {
    return CONTAINER_OF(http_inference_of(inference), struct http_infer, base);
}

/* Decodes the body in the form that the head announced. */
static enum status decode_body(struct client_inference *inference, struct error *err) {
    struct http_infer *infer = http_infer_of(inference);
    struct http_exchange *exchange = infer->base.exchange;
    const struct json_limits *limits = &inference->services->limits;
    struct str body = exchange->body;
    inference->base.call.request = &infer->request.infer;
    size_t json_bytes = infer->header == V2_HEADER_JSON ? (size_t)infer->json_bytes : body.len;
    enum status st = infer->header == V2_HEADER_RAW
                         ? v2_raw_decode(inference_arena(&inference->base), body,
                                         inference->base.spec, limits, &infer->request, err)
                         : v2_request_decode(inference_arena(&inference->base), body, json_bytes,
                                             limits, &infer->request, err);
    if (infer->request.non_finite == V2_NON_FINITE_DEFAULT) {
        infer->request.non_finite = inference->services->non_finite;
    }
    return st;
}

/* Estimates for a slow core, per byte of a tensor that is printed, and of what is compressed. */
enum { PRINT_NS = 8, COMPRESS_NS = 20, PRINT_GROWTH = 3 };

static uint64_t decode_ns(const struct client_inference *inference) {
    const struct http_infer *infer = CONTAINER_OF(inference, struct http_infer, base.inference);
    size_t n_bytes = infer->base.exchange->body.len;
    uint64_t json_bytes = infer->header == V2_HEADER_ABSENT ? n_bytes : infer->json_bytes;
    return http_inference_parse_ns(json_bytes < n_bytes ? json_bytes : n_bytes);
}

static uint64_t encode_ns(const struct client_inference *inference,
                          const struct infer_response *response) {
    const struct http_infer *infer = CONTAINER_OF(inference, struct http_infer, base.inference);
    uint64_t n_bytes = infer_response_bytes(response);
    uint64_t json_bytes = v2_response_json_bytes(&infer->request, response);
    uint64_t sent_bytes = n_bytes + json_bytes * (PRINT_GROWTH - 1);
    bool compresses = sent_bytes <= MAX_COMPRESSED_BYTES &&
                      http_coding_of_answer(&infer->base.exchange->head) != HTTP_IDENTITY;
    return json_bytes * PRINT_NS + (compresses ? sent_bytes * COMPRESS_NS : 0);
}

/* Compresses the encoded response where the client accepts it. A response that is too large, or for
 * which there is no memory, is sent uncompressed, which RFC 9110, 12.5.3 allows. Returns: the
 * coding. */
static enum http_coding compress_response(const struct http_exchange *exchange, struct arena *arena,
                                          const struct v2_response *encoded, struct piece *out) {
    enum http_coding coding = http_coding_of_answer(&exchange->head);
    bool compresses = coding != HTTP_IDENTITY && encoded->n_bytes <= MAX_COMPRESSED_BYTES &&
                      http_compress(arena, coding, encoded->pieces, encoded->n_pieces, out);
    return compresses ? coding : HTTP_IDENTITY;
}

static enum status encode_response(struct client_inference *inference,
                                   struct infer_response *response, struct arena *arena, bool last,
                                   void *out, struct error *err) {
    struct http_infer *infer = http_infer_of(inference);
    struct http_infer_response *encoded = out;
    (void)last;
    enum status st = v2_response_encode(arena, inference->base.spec, &infer->request, response,
                                        &encoded->v2, err);
    if (st == ST_OK) {
        encoded->coding =
            compress_response(infer->base.exchange, arena, &encoded->v2, &encoded->compressed);
    }
    return st;
}

/* ---- the reply ------------------------------------------------------------------------------- */

static void release_response(void *user) {
    infer_response_release(user);
}

static void add_field(struct http_reply *reply, struct http_field *fields, struct str name,
                      struct str value) {
    fields[reply->n_fields++] = (struct http_field){name, value};
}

static void send_response(struct http_infer *infer, const struct http_infer_response *encoded) {
    struct http_exchange *exchange = infer->base.exchange;
    struct http_field fields[MAX_REPLY_FIELDS];
    struct http_reply reply = {.status = 200,
                               .content_type = encoded->v2.binary ? "application/octet-stream"
                                                                  : "application/json",
                               .fields = fields,
                               .pieces = encoded->v2.pieces,
                               .n_pieces = encoded->v2.n_pieces,
                               .release = release_response,
                               .user = &infer->base.inference.base.call.response};
    char length[20];
    const char *platform_type =
        encoded->v2.binary
            ? http_platform_binary_type(infer->base.api, exchange, encoded->v2.json.len)
            : NULL;
    if (platform_type) {
        reply.content_type = platform_type;
    } else if (encoded->v2.binary) {
        add_field(&reply, fields, STR("Inference-Header-Content-Length"),
                  str_make(length, num_print_u64(length, encoded->v2.json.len)));
    }
    if (encoded->coding != HTTP_IDENTITY) {
        reply.pieces = &encoded->compressed;
        reply.n_pieces = 1;
        add_field(&reply, fields, STR("Content-Encoding"),
                  str_of(http_coding_name(encoded->coding)));
        add_field(&reply, fields, STR("Vary"), STR("Accept-Encoding"));
    }
    reply.n_fields =
        load_report_add(fields, reply.n_fields, &exchange->head, &infer->base.api->load_totals,
                        infer->base.api->services.repository,
                        infer->base.inference.base.served_version, exchange->arena);
    inference_count_answer(ST_OK);
    http_reply(exchange, &reply);
}

/* Thread: the worker. */
static void respond(struct client_inference *inference, struct outgoing_response *outgoing) {
    struct http_infer *infer = http_infer_of(inference);
    struct infer_response *response = &inference->base.call.response;
    struct http_infer_response encoded;
    struct error err;
    if (response->error.status == ST_OK && infer->base.exchange->client_disconnected) {
        /* Encoding the response would be wasted work. */
        infer_response_release(response);
        error_set(&err, ST_CANCELLED, "the client closed the connection before the response");
        reply_failure(infer->base.exchange, &err);
        return;
    }
    if (client_inference_encode(outgoing, &encoded, &err) == ST_OK) {
        send_response(infer, &encoded);
        return;
    }
    infer_response_release(response);
    reply_failure(infer->base.exchange, &err);
}

static const struct inference_protocol infer_protocol = {
    .carries_one = "infer carries one; generate_stream carries all",
    .send_start = TRACE_HTTP_SEND_START,
    .send_end = TRACE_HTTP_SEND_END,
    .begin_trace = http_inference_begin_trace,
    .decode = decode_body,
    .decode_ns = decode_ns,
    .forward_headers = http_inference_forward_headers,
    .encode = encode_response,
    .encode_ns = encode_ns,
    .encoded_bytes = sizeof(struct http_infer_response),
    .respond = respond,
};

/* ---- the exchange ---------------------------------------------------------------------------- */

static void on_body(struct http_exchange *exchange, void *context) {
    struct http_infer *infer = exchange->user;
    (void)context;
    trace_timestamp_set(infer->base.inference.base.trace, TRACE_HTTP_RECV_END);
    infer->base.inference.base.call.run_immediately = exchange->pipelined;
    inference_run(&infer->base.inference.base);
}

static const struct http_handler infer_handler = {
    .on_body = on_body, .on_disconnect = http_inference_disconnect, .on_end = http_inference_end};

void http_infer_begin(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path) {
    struct error err;
    struct http_infer *infer = arena_calloc(exchange->arena, 1, sizeof *infer);
    if (!infer) {
        error_no_memory(&err, "the request");
        reply_failure(exchange, &err);
        return;
    }
    http_inference_init(&infer->base, &infer_protocol, api, exchange, &infer_handler);
    if (client_inference_find_model(&infer->base.inference, path->model, path->version, &err) !=
            ST_OK ||
        read_request_head(infer, &err) != ST_OK) {
        reply_failure(exchange, &err);
        return;
    }
}
