/* The calls of KServe v2 over HTTP: the head is written here, the body comes from wire's encoder,
 * and what comes back is either what was asked for or the server's own words. */
#include "client/client_v2.h"

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/num.h"

enum { MAX_DEPTH = 100, MAX_ERROR_BODY = 65536 };

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a request");
}

/* RFC 3986 section 2.3: all but the unreserved characters are encoded, a slash too. */
static void add_encoded(struct buf *out, struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (c != '\0' && strchr("-._~", c));
        if (plain) {
            buf_add_char(out, (char)c);
        } else {
            buf_printf(out, "%%%02X", c);
        }
    }
}

/* /v2/models/MODEL[/versions/VERSION]SUFFIX */
static struct str model_path(struct arena *arena, struct str base, struct str model,
                             struct str version, const char *suffix) {
    struct buf path;
    buf_init(&path, arena, 0);
    buf_add_str(&path, base);
    buf_add_str(&path, STR("/v2/models/"));
    add_encoded(&path, model);
    if (version.ptr) {
        buf_add_str(&path, STR("/versions/"));
        add_encoded(&path, version);
    }
    buf_add_str(&path, str_of(suffix));
    return path.failed ? str_make(NULL, 0) : buf_str(&path);
}

static void add_head(struct buf *out, const struct client_url *url, struct str method,
                     struct str path) {
    buf_printf(out, "%.*s %.*s HTTP/1.1\r\nHost: %.*s\r\nUser-Agent: sluice/" SLUICE_VERSION "\r\n",
               STR_ARG(method), STR_ARG(path), STR_ARG(url->authority));
}

static void add_body_fields(struct buf *out, const struct client_infer *infer,
                            const struct v2_request_body *body) {
    buf_printf(out, "Content-Type: application/%s\r\n", body->binary ? "octet-stream" : "json");
    if (body->binary) {
        buf_printf(out, "Inference-Header-Content-Length: %zu\r\n",
                   infer->raw ? 0 : body->json.len);
    }
    buf_printf(out, "Content-Length: %" PRIu64 "\r\n\r\n", body->n_bytes);
}

static enum status encode_body(struct arena *arena, const struct client_infer *infer,
                               struct v2_request_body *out, struct error *err) {
    const struct infer_request *request = &infer->request->infer;
    if (!infer->raw) {
        return v2_request_encode(arena, infer->request, infer->forms, out, err);
    }
    if (request->n_inputs != 1) {
        return error_set(err, ST_BAD_INPUTS, "a raw request has exactly one input, not %zu",
                         request->n_inputs);
    }
    return v2_raw_encode(arena, &request->inputs[0].tensor, out, err);
}

/* The head in front of the body's pieces. */
static enum status gather(struct arena *arena, struct client_request *out, struct error *err) {
    struct piece *pieces = arena_calloc(arena, out->body.n_pieces + 1, sizeof(*pieces));
    if (!pieces) {
        return no_memory(err);
    }
    pieces[0] = (struct piece){out->head.ptr, out->head.len};
    if (out->body.n_pieces > 0) {
        memcpy(pieces + 1, out->body.pieces, out->body.n_pieces * sizeof(*pieces));
    }
    out->pieces = pieces;
    out->n_pieces = out->body.n_pieces + 1;
    return ST_OK;
}

enum status client_infer_encode(struct arena *arena, const struct client_url *url,
                                const struct client_infer *infer, struct client_request *out,
                                struct error *err) {
    *out = (struct client_request){.method = STR("POST")};
    if (infer->model.len == 0) {
        return error_set(err, ST_BAD_FIELD, "the model's name is empty");
    }
    enum status status = encode_body(arena, infer, &out->body, err);
    if (status != ST_OK) {
        return status;
    }
    struct buf head;
    buf_init(&head, arena, 256);
    out->path = model_path(arena, url->base, infer->model, infer->version, "/infer");
    add_head(&head, url, out->method, out->path);
    add_body_fields(&head, infer, &out->body);
    if (!out->path.ptr || head.failed) {
        return no_memory(err);
    }
    out->head = buf_str(&head);
    return gather(arena, out, err);
}

static struct v2_limits limits_of(const struct client_session *answer) {
    return (struct v2_limits){.max_json_bytes = client_session_body(answer).len,
                              .max_json_depth = MAX_DEPTH,
                              .max_elements = (uint64_t)1 << 40};
}

/* The server's own message, as far as it has one. */
static enum status refused(const struct client_session *answer, struct arena *arena,
                           struct error *err) {
    struct str body = client_session_body(answer);
    struct str text = body.len <= MAX_ERROR_BODY ? v2_error_decode(arena, body) : str_make(NULL, 0);
    if (text.ptr) {
        return error_set(err, ST_REFUSED, "%.*s (HTTP %d)", STR_ARG(text),
                         client_session_status(answer));
    }
    if (body.len == 0) {
        return error_set(err, ST_REFUSED, "the server answered HTTP %d without a reason",
                         client_session_status(answer));
    }
    return error_set(err, ST_REFUSED, "the server answered HTTP %d: %.*s",
                     client_session_status(answer), (int)(body.len < 200 ? body.len : 200),
                     body.ptr);
}

/* Did the server do what was asked, in a form that was asked for? */
static enum status check_answer(const struct client_session *answer, struct arena *arena,
                                struct error *err) {
    struct str coding;
    if (client_session_status(answer) != 200) {
        return refused(answer, arena, err);
    }
    if (client_session_find(answer, "Content-Encoding", &coding) > 0 &&
        !str_eq_nocase(coding, STR("identity"))) {
        return error_set(err, ST_BAD_ANSWER,
                         "the answer is compressed (%.*s), which was not asked for",
                         STR_ARG(coding));
    }
    return ST_OK;
}

static enum status json_bytes(const struct client_session *answer, size_t *out, struct error *err) {
    struct str value, body = client_session_body(answer);
    uint64_t n = 0;
    size_t n_fields = client_session_find(answer, "Inference-Header-Content-Length", &value);
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
static enum status malformed(enum status status, struct error *err) {
    if (status == ST_OK || status == ST_NO_MEMORY) {
        return status;
    }
    error_prefix(err, "the server's answer");
    err->status = ST_BAD_ANSWER;
    return ST_BAD_ANSWER;
}

enum status client_infer(struct client *client, struct arena *arena,
                         const struct client_infer *infer, struct v2_answer *out,
                         struct error *err) {
    struct client_request request;
    size_t n_json = 0;
    enum status status = client_infer_encode(arena, client_url(client), infer, &request, err);
    if (status != ST_OK) {
        return status;
    }
    struct client_message message = {request.pieces, request.n_pieces};
    status = client_exchange(client, message, infer->timeout_ns, err);
    const struct client_session *answer = client_answer(client);
    if (status == ST_OK) {
        status = check_answer(answer, arena, err);
    }
    if (status == ST_OK) {
        status = json_bytes(answer, &n_json, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct v2_limits limits = limits_of(answer);
    return malformed(
        v2_response_decode(arena, client_session_body(answer), n_json, &limits, out, err), err);
}

static enum status get(struct client *client, struct arena *arena, struct str path,
                       struct error *err) {
    struct buf head;
    buf_init(&head, arena, 256);
    add_head(&head, client_url(client), STR("GET"), path);
    buf_add_str(&head, STR("\r\n"));
    if (!path.ptr || head.failed) {
        return no_memory(err);
    }
    struct piece piece = {head.data, head.len};
    return client_exchange(client, (struct client_message){&piece, 1}, 0, err);
}

static struct str fixed_path(struct arena *arena, const struct client *client, const char *path) {
    return arena_printf(arena, "%.*s%s", STR_ARG(client_url(client)->base), path);
}

enum status client_model_metadata(struct client *client, struct arena *arena, struct str model,
                                  struct str version, struct model_spec *out, struct error *err) {
    if (model.len == 0) {
        return error_set(err, ST_BAD_FIELD, "the model's name is empty");
    }
    struct str path = model_path(arena, client_url(client)->base, model, version, "");
    enum status status = get(client, arena, path, err);
    const struct client_session *answer = client_answer(client);
    if (status == ST_OK) {
        status = check_answer(answer, arena, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct v2_limits limits = limits_of(answer);
    return malformed(
        v2_model_metadata_decode(arena, client_session_body(answer), &limits, out, err), err);
}

enum status client_server_metadata(struct client *client, struct arena *arena,
                                   struct v2_server *out, struct error *err) {
    enum status status = get(client, arena, fixed_path(arena, client, "/v2"), err);
    const struct client_session *answer = client_answer(client);
    if (status == ST_OK) {
        status = check_answer(answer, arena, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct v2_limits limits = limits_of(answer);
    return malformed(v2_server_decode(arena, client_session_body(answer), &limits, out, err), err);
}

enum status client_health(struct client *client, struct arena *arena, enum client_health what,
                          bool *yes, struct error *err) {
    const char *path = what == CLIENT_LIVE ? "/v2/health/live" : "/v2/health/ready";
    enum status status = get(client, arena, fixed_path(arena, client, path), err);
    *yes = status == ST_OK && client_session_status(client_answer(client)) == 200;
    return status;
}

enum status client_model_ready(struct client *client, struct arena *arena, struct str model,
                               struct str version, bool *yes, struct error *err) {
    *yes = false;
    if (model.len == 0) {
        return error_set(err, ST_BAD_FIELD, "the model's name is empty");
    }
    struct str path = model_path(arena, client_url(client)->base, model, version, "/ready");
    enum status status = get(client, arena, path, err);
    *yes = status == ST_OK && client_session_status(client_answer(client)) == 200;
    return status;
}
