/* A refusal is read by three sorts of clients: those of OpenAI's and Anthropic's interfaces, whose
 * libraries look for an object "error"; those of KServe's, who have a string there; and gRPC's, who
 * get the sentence as grpc-message. */
#include "pick/session/metrics.h"
#include "pick/session/processing_response.h"

/* Clause: the header by which the model servers' neighbours tell why a request was dropped. */
static struct str drop_reason(enum status status) {
    switch ((int)status) {
    case ST_NO_POOL:
        return STR("rejected-no-pool");
    case ST_NO_ENDPOINT:
        return STR("rejected-no-endpoints");
    case ST_SATURATED:
        return STR("rejected-saturated");
    case ST_WAIT_EXPIRED:
        return STR("rejected-ttl-expired");
    case ST_UNKNOWN_MODEL:
        return STR("rejected-unknown-model");
    case ST_REQUEST_TIMEOUT:
        return STR("rejected-timed-out");
    default:
        return status_http(status) < 500 ? STR("rejected-bad-request") : STR("rejected-failed");
    }
}

/* What both interfaces call it. */
static const char *error_type(enum status status) {
    int http = status_http(status);
    if (http >= 500) {
        return "api_error";
    }
    return http == 404   ? "not_found_error"
           : http == 413 ? "request_too_large"
           : http == 429 ? "rate_limit_error"
                         : "invalid_request_error";
}

/* Has the request a path of OpenAI's or Anthropic's interface? */
static bool is_openai_path(struct arena *arena, const struct pick_request *request) {
    struct model_location where;
    enum status st = model_location_parse(arena, request->method, request->path, &where, NULL);
    return st == ST_OK && where.kind == MODEL_LOCATION_JSON_BODY;
}

static struct str print_error_body(struct arena *arena, const struct pick_request *request,
                                   const struct error *why) {
    struct buf out;
    if (pick_request_is_grpc(request)) {
        return str_of(why->text);
    }
    buf_init(&out, arena, 0);
    if (is_openai_path(arena, request)) {
        buf_add_str(&out, STR("{\"type\":\"error\",\"error\":{\"message\":"));
        buf_add_json_string(&out, str_of(why->text));
        buf_printf(&out, ",\"type\":\"%s\",\"code\":\"%s\"}}", error_type(why->status),
                   status_name(why->status));
    } else {
        buf_add_str(&out, STR("{\"error\":"));
        buf_add_json_string(&out, str_of(why->text));
        buf_add_char(&out, '}');
    }
    return buf_str(&out);
}

static size_t list_headers(struct arena *arena, const struct pool_spec *spec, bool is_grpc,
                           enum status status, struct ext_proc_header out[4]) {
    size_t n = 0;
    if (!is_grpc) {
        out[n++] = (struct ext_proc_header){STR("content-type"), STR("application/json")};
    }
    out[n++] = (struct ext_proc_header){spec->protocol.reason_header, drop_reason(status)};
    if (status == ST_SATURATED || status == ST_WAIT_EXPIRED) {
        struct str seconds = arena_printf(arena, "%llu", (unsigned long long)spec->retry_after_s);
        out[n++] = (struct ext_proc_header){STR("retry-after"), seconds};
    }
    if (status == ST_UNKNOWN_ENCODING && !is_grpc) {
        out[n++] = (struct ext_proc_header){STR("accept-encoding"), STR("identity")};
    }
    return n;
}

enum status pick_send_refusal(struct pick_send_queue *send_queue, struct arena *arena,
                              const struct pool_spec *spec, const struct pick_request *request,
                              const struct error *why, struct error *err) {
    bool is_grpc = pick_request_is_grpc(request);
    struct ext_proc_header headers[4];
    size_t n = list_headers(arena, spec, is_grpc, why->status, headers);
    struct ext_proc_immediate answer = {
        .http_status = (uint32_t)status_http(why->status),
        .grpc_status = is_grpc ? (uint32_t)status_grpc(why->status) : 0,
        .headers = {.set = headers, .n_set = n},
        .body = print_error_body(arena, request, why),
        .details = arena_printf(arena, "sluice{%s}", status_name(why->status)),
    };
    pick_count_refusal(why->status);
    return pick_send_queue_push_immediate(send_queue, &answer, err);
}
