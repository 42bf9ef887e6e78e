/* One inference over HTTP. The head decides the alignment of the body; the body becomes an
 * infer_request whose tensors are views of it; the model responds on the same worker; the outputs
 * are sent from the backend's memory. */
#include "core/base/compiler.h"
#include "serve/frontend/http/routes.h"

#include "codec/kserve/raw.h"
#include "codec/kserve/response.h"
#include "core/base/metric/metric.h"
#include "core/base/num.h"
#include "serve/frontend/classify.h"
#include "serve/frontend/http/coding.h"
#include "serve/frontend/labels.h"
#include "serve/frontend/load_report.h"
#include "serve/frontend/shm_registry.h"
#include "serve/scheduler/call.h"
#include "serve/trace/trace.h"

/* One inference; lives in the exchange's arena. */
struct http_infer {
    struct http_request_ops ops; /* first member: exchange->user points to it */
    struct call call;
    struct v2_request request;
    struct shm_request shm; /* shared memory of the client */
    struct http_exchange *exchange;
    struct repository *repository;
    struct model_version *version;        /* a reference, until call_submit takes it */
    struct model_version *served_version; /* same version, until `done` returns */
    const struct model_spec *spec;        /* of the version */
    enum v2_header_kind header;
    uint64_t json_bytes;
    bool submitted; /* the call is in flight */
    struct trace *trace;
};

enum {
    MAX_REPLY_FIELDS = 4,
    /* Compressing this much blocks a worker for about a second. */
    MAX_COMPRESSED_BYTES = 64 * 1024 * 1024,
};

static void reply_failure(struct http_exchange *exchange, const struct error *err) {
    const struct http_infer *infer = exchange->user;
    struct http_field fields[MAX_REPLY_FIELDS];
    size_t n = 0;
    metric_add(METRIC_INFERENCE_FAILURES_TOTAL, 1);
    if (err->status == ST_UNKNOWN_ENCODING) {
        fields[n++] = (struct http_field){STR("Accept-Encoding"), STR("gzip, deflate")};
    }
    if (infer) {
        n = load_report_add(fields, n, &exchange->head, infer->repository, infer->served_version,
                            exchange->arena);
    }
    http_reply_error(exchange, err, fields, n);
}

/* As reply_failure, for work in the request's arena: an out-of-memory error names the setting,
 * which the code that ran out does not know. */
static void reply_memory_failure(struct http_exchange *exchange, const struct error *err) {
    struct error named = *err;
    if (err->status == ST_NO_MEMORY) {
        error_set(&named, ST_NO_MEMORY,
                  "%s; the request holds %zu bytes besides its body (--request-memory)", err->text,
                  arena_bytes(exchange->arena));
    }
    reply_failure(exchange, &named);
}

/* Reads the headers that decide how the body is received, and where its first tensor begins. */
static enum status read_request_head(struct http_infer *infer, const struct http_api *api,
                                     struct error *err) {
    struct http_exchange *exchange = infer->exchange;
    struct str value = {NULL, 0};
    size_t n = http_head_find(&exchange->head, "Inference-Header-Content-Length", &value);
    enum status st = v2_header_length_parse(n, value, &infer->header, &infer->json_bytes, err);
    if (st != ST_OK) {
        return st;
    }
    st = http_coding_of_body(&exchange->head, &exchange->plan.coding, err);
    if (st != ST_OK) {
        return st;
    }
    exchange->plan.max_bytes = api->max_body_size;
    if (infer->header == V2_HEADER_JSON && infer->json_bytes <= api->limits.max_json_size) {
        exchange->plan.align_at = (size_t)infer->json_bytes;
    }
    return ST_OK;
}

/* Decodes the body in the form that the head announced. */
static enum status decode_request(struct http_infer *infer, const struct http_api *api,
                                  struct error *err) {
    struct http_exchange *exchange = infer->exchange;
    struct str body = exchange->body;
    if (infer->header == V2_HEADER_RAW) {
        return v2_raw_decode(exchange->arena, body, infer->spec, &api->limits, &infer->request,
                             err);
    }
    size_t json_bytes = infer->header == V2_HEADER_JSON ? (size_t)infer->json_bytes : body.len;
    return v2_request_decode(exchange->arena, body, json_bytes, &api->limits, &infer->request, err);
}

static void release_response(void *user) {
    infer_response_release(user);
}

static void add_field(struct http_reply *reply, struct http_field *fields, struct str name,
                      struct str value) {
    fields[reply->n_fields++] = (struct http_field){name, value};
}

/* Compresses the encoded response where the client accepts it. A response that is too large, or for
 * which there is no memory, is sent uncompressed, which RFC 9110, 12.5.3 allows. Returns: the
 * coding. */
static enum http_coding compress_answer(struct http_exchange *exchange,
                                        const struct v2_response *encoded, struct piece *out) {
    enum http_coding coding = http_coding_of_answer(&exchange->head);
    bool compresses =
        coding != HTTP_IDENTITY && encoded->n_bytes <= MAX_COMPRESSED_BYTES &&
        http_compress(exchange->arena, coding, encoded->pieces, encoded->n_pieces, out);
    return compresses ? coding : HTTP_IDENTITY;
}

static void send_answer(struct http_infer *infer, const struct v2_response *encoded) {
    struct http_exchange *exchange = infer->exchange;
    struct http_field fields[MAX_REPLY_FIELDS];
    struct http_reply reply = {.status = 200,
                               .content_type = encoded->binary ? "application/octet-stream"
                                                               : "application/json",
                               .fields = fields,
                               .pieces = encoded->pieces,
                               .n_pieces = encoded->n_pieces,
                               .release = release_response,
                               .user = &infer->call.response};
    char length[20];
    if (encoded->binary) {
        add_field(&reply, fields, STR("Inference-Header-Content-Length"),
                  str_make(length, num_print_u64(length, encoded->json.len)));
    }
    struct piece compressed;
    enum http_coding coding = compress_answer(exchange, encoded, &compressed);
    if (coding != HTTP_IDENTITY) {
        reply.pieces = &compressed;
        reply.n_pieces = 1;
        add_field(&reply, fields, STR("Content-Encoding"), str_of(http_coding_name(coding)));
        add_field(&reply, fields, STR("Vary"), STR("Accept-Encoding"));
    }
    reply.n_fields = load_report_add(fields, reply.n_fields, &exchange->head, infer->repository,
                                     infer->served_version, exchange->arena);
    metric_add(METRIC_INFERENCES_TOTAL, 1);
    trace_timestamp_set(infer->trace, TRACE_HTTP_SEND_START);
    http_reply(exchange, &reply);
}

/* The model has responded. Thread: the worker. */
static void on_done(struct call *call) {
    struct http_infer *infer = CONTAINER_OF(call, struct http_infer, call);
    struct http_exchange *exchange = infer->exchange;
    struct infer_response *response = &call->response;
    struct v2_response encoded;
    struct error err;
    infer->submitted = false;
    trace_add_response(infer->trace, call);
    shm_request_finish_outputs(&infer->shm, infer->call.request, response);
    if (response->error.status != ST_OK) {
        infer_response_release(response);
        reply_failure(exchange, &response->error);
    } else if (exchange->gone) { /* encoding the response would be wasted work */
        infer_response_release(response);
        error_set(&err, ST_CANCELLED, "the client closed the connection before the response");
        reply_failure(exchange, &err);
    } else if (classify_outputs(infer->call.request, infer->spec,
                                model_labels(infer->served_version), response, &err) != ST_OK ||
               v2_response_encode(exchange->arena, infer->spec, &infer->request, response, &encoded,
                                  &err) != ST_OK) {
        infer_response_release(response);
        reply_memory_failure(exchange, &err);
    } else {
        send_answer(infer, &encoded);
    }
}

static enum status prepare_request(struct http_infer *infer, struct http_api *api,
                                   struct error *err) {
    struct infer_request *request = &infer->request.infer;
    struct http_exchange *exchange = infer->exchange;
    enum status st = decode_request(infer, api, err);
    if (st == ST_OK) {
        st = header_forward_http(api->forward, exchange->arena, &exchange->head, &request->params,
                                 err);
    }
    if (st == ST_OK) {
        st = shm_request_read_inputs(api->shared, request, &infer->shm, err);
    }
    if (st == ST_OK) {
        st = infer_check(request, infer->spec, err);
    }
    if (st == ST_OK) {
        st = classify_check(request, infer->spec, err);
    }
    return st == ST_OK ? infer_align_copy(request, err) : st;
}

static void on_body(struct http_api *api, struct http_exchange *exchange) {
    struct http_infer *infer = exchange->user;
    struct infer_request *request = &infer->request.infer;
    struct error err;
    trace_timestamp_set(infer->trace, TRACE_HTTP_RECV_END);
    if (prepare_request(infer, api, &err) != ST_OK) {
        shm_request_finish_outputs(&infer->shm, request, &(struct infer_response){.error = err});
        reply_memory_failure(exchange, &err);
        return;
    }
    infer->call.request = request;
    infer->call.worker = exchange->worker;
    infer->call.done = on_done;
    infer->call.run_immediately = exchange->pipelined;
    infer->submitted = true;
    trace_add_request(infer->trace, request);
    struct model_version *version = infer->version;
    infer->version = NULL;
    call_submit(&infer->call, version);
}

static void on_disconnect(struct http_exchange *exchange) {
    struct http_infer *infer = exchange->user;
    if (infer && infer->submitted) {
        call_cancel(&infer->call);
    }
}

static void on_end(struct http_exchange *exchange) {
    struct http_infer *infer = exchange->user;
    if (infer && infer->version) {
        model_version_unref(infer->version);
    }
    if (infer) {
        shm_request_fini(&infer->shm);
        trace_timestamp_set(infer->trace, TRACE_HTTP_SEND_END);
        trace_end(&infer->trace);
    }
}

static void reply_decoupled(struct http_exchange *exchange, const struct model_spec *spec) {
    struct error err;
    char name[TENSOR_NAME_TEXT_BYTES];
    error_set(&err, ST_UNSUPPORTED,
              "model %s is decoupled: it gives any number of answers, and infer carries one; "
              "generate_stream carries all",
              tensor_name_print(spec->name, name));
    reply_failure(exchange, &err);
}

void http_infer_begin(struct http_api *api, struct http_exchange *exchange,
                      const struct v2_path *path) {
    struct error err;
    struct http_infer *infer = arena_calloc(exchange->arena, 1, sizeof *infer);
    if (!infer) {
        error_set(&err, ST_NO_MEMORY, "no memory for the request");
        reply_failure(exchange, &err);
        return;
    }
    infer->ops = (struct http_request_ops){
        .on_body = on_body, .on_disconnect = on_disconnect, .on_end = on_end};
    infer->exchange = exchange;
    infer->repository = api->repository;
    exchange->user = infer;
    if (repository_find(api->repository, path->model, path->version, &infer->version, &err) !=
            ST_OK ||
        read_request_head(infer, api, &err) != ST_OK) {
        reply_failure(exchange, &err);
        return;
    }
    infer->served_version = infer->version;
    infer->spec = model_version_spec(infer->version);
    if (infer->spec->decoupled) {
        reply_decoupled(exchange, infer->spec);
        return;
    }
    infer->trace = trace_begin_http(api->tracer, infer->spec, &exchange->head);
    trace_timestamp_set(infer->trace, TRACE_HTTP_RECV_START);
    if (!exchange->head.has_body) { /* no body: on_body is not called by the server */
        on_body(api, exchange);
    }
}
