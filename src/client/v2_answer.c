/* The answers of KServe v2 over HTTP: what comes back is either what was asked for or the server's
 * own words. */
#include "client/v2.h"
#include "core/base/num.h"

enum { MAX_DEPTH = 100, MAX_ERROR_BODY = 65536 };

static struct json_limits limits_of(const struct http_session *answer) {
    return (struct json_limits){.max_json_size = http_session_body(answer).len,
                                .max_json_depth = MAX_DEPTH,
                                .max_tensor_elements = (uint64_t)1 << 40};
}

/* The server's own message, as far as it has one. */
static enum status error_refused(const struct http_session *answer, struct arena *arena,
                                 struct error *err) {
    struct str body = http_session_body(answer);
    struct str text = body.len <= MAX_ERROR_BODY ? v2_error_decode(arena, body) : str_make(NULL, 0);
    if (text.ptr) {
        return error_set(err, ST_REFUSED, "%.*s (HTTP %d)", STR_ARG(text),
                         http_session_status(answer));
    }
    if (body.len == 0) {
        return error_set(err, ST_REFUSED, "the server answered HTTP %d without a reason",
                         http_session_status(answer));
    }
    return error_set(err, ST_REFUSED, "the server answered HTTP %d: %.*s",
                     http_session_status(answer), (int)(body.len < 200 ? body.len : 200), body.ptr);
}

/* Did the server do what was asked, in a form that was asked for? */
static enum status check_answer(const struct http_session *answer, struct arena *arena,
                                struct error *err) {
    struct str coding;
    if (http_session_status(answer) != 200) {
        return error_refused(answer, arena, err);
    }
    if (http_session_find(answer, "Content-Encoding", &coding) > 0 &&
        !str_eq_nocase(coding, STR("identity"))) {
        return error_set(err, ST_BAD_ANSWER,
                         "the answer is compressed (%.*s), which was not asked for",
                         STR_ARG(coding));
    }
    return ST_OK;
}

static enum status read_json_bytes(const struct http_session *answer, size_t *out,
                                   struct error *err) {
    struct str value, body = http_session_body(answer);
    uint64_t n = 0;
    size_t n_fields = http_session_find(answer, "Inference-Header-Content-Length", &value);
    *out = body.len;
    if (n_fields == 0) {
        return ST_OK;
    }
    if (n_fields > 1 || !num_parse_u64(value, &n) || n > body.len) {
        return error_set(err, ST_BAD_ANSWER,
                         "Inference-Header-Content-Length of the answer: expected one whole number "
                         "up to %zu, got \"%.*s\"",
                         body.len, STR_ARG(value));
    }
    *out = (size_t)n;
    return ST_OK;
}

/* What wire says of the answer is said of the server here. */
static enum status error_malformed(enum status status, struct error *err) {
    if (status == ST_OK || status == ST_NO_MEMORY) {
        return status;
    }
    error_prefix(err, "the server's answer");
    err->status = ST_BAD_ANSWER;
    return ST_BAD_ANSWER;
}

enum status client_infer_decode(struct arena *arena, const struct http_session *answer,
                                struct v2_client_response *out, struct error *err) {
    size_t n_json = 0;
    enum status status = check_answer(answer, arena, err);
    if (status == ST_OK) {
        status = read_json_bytes(answer, &n_json, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct json_limits limits = limits_of(answer);
    return error_malformed(
        v2_response_decode(arena, http_session_body(answer), n_json, &limits, out, err), err);
}

enum status client_model_decode(struct arena *arena, const struct http_session *answer,
                                struct model_spec *out, struct error *err) {
    enum status status = check_answer(answer, arena, err);
    struct json_limits limits = limits_of(answer);
    return status == ST_OK
               ? error_malformed(
                     v2_model_metadata_decode(arena, http_session_body(answer), &limits, out, err),
                     err)
               : status;
}

enum status client_server_decode(struct arena *arena, const struct http_session *answer,
                                 struct v2_server_metadata *out, struct error *err) {
    enum status status = check_answer(answer, arena, err);
    struct json_limits limits = limits_of(answer);
    return status == ST_OK
               ? error_malformed(
                     v2_server_metadata_decode(arena, http_session_body(answer), &limits, out, err),
                     err)
               : status;
}
