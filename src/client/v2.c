/* The calls of KServe v2 over HTTP: request heads are written here, bodies by codec/kserve; an
 * answer is decoded, or becomes an error with the server's message. */
#include "client/v2.h"

#include <inttypes.h>

#include "codec/json/tree.h"
#include "codec/kserve/path.h"
#include "codec/kserve/raw.h"
#include "core/base/buf.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

/* ---- requests -------------------------------------------------------------------------------- */

enum { FIRST_HEAD_BYTES = 256 };

/* PREFIX MODEL[/versions/VERSION]SUFFIX */
static struct str model_path(struct arena *arena, struct str base, const char *prefix,
                             struct str model, struct str version, const char *suffix) {
    struct buf path;
    buf_init(&path, arena, 0);
    buf_add_str(&path, base);
    buf_add_str(&path, str_of(prefix));
    v2_path_escape(&path, model);
    if (version.ptr) {
        buf_add_str(&path, STR("/versions/"));
        v2_path_escape(&path, version);
    }
    buf_add_str(&path, str_of(suffix));
    return path.failed ? str_make(NULL, 0) : buf_str(&path);
}

static void add_head(struct buf *out, const struct client_url *url, struct str method,
                     struct str path, struct client_headers headers) {
    buf_printf(out, "%.*s %.*s HTTP/1.1\r\nHost: %.*s\r\n", STR_ARG(method), STR_ARG(path),
               STR_ARG(url->authority));
    if (!client_headers_have(headers, STR("User-Agent"))) {
        buf_add_str(out, STR("User-Agent: sluice/" SLUICE_VERSION "\r\n"));
    }
    client_headers_print(out, headers);
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

/* Puts the head before the body's pieces. */
static enum status gather_pieces(struct arena *arena, struct client_request *out,
                                 struct error *err) {
    struct piece *pieces = arena_calloc(arena, out->body.n_pieces + 1, sizeof(*pieces));
    if (!pieces) {
        return error_no_memory(err, "a request");
    }
    pieces[0] = (struct piece){out->head.ptr, out->head.len};
    if (out->body.n_pieces > 0) {
        memcpy(pieces + 1, out->body.pieces, out->body.n_pieces * sizeof(*pieces));
    }
    out->pieces = pieces;
    out->n_pieces = out->body.n_pieces + 1;
    return ST_OK;
}

static enum status check_model(struct str model, struct error *err) {
    return model.len > 0 ? ST_OK : error_set(err, ST_BAD_FIELD, "the model's name is empty");
}

enum status client_infer_encode(struct arena *arena, const struct client_url *url,
                                const struct client_infer *infer, struct client_request *out,
                                struct error *err) {
    struct buf head;
    *out = (struct client_request){.method = STR("POST")};
    enum status status =
        client_url_expect(url, CLIENT_HTTP, "an inference of a model by name", err);
    if (status == ST_OK) {
        status = check_model(infer->model, err);
    }
    if (status == ST_OK) {
        status = encode_body(arena, infer, &out->body, err);
    }
    if (status != ST_OK) {
        return status;
    }
    buf_init(&head, arena, FIRST_HEAD_BYTES);
    out->path = model_path(arena, url->base, "/v2/models/", infer->model, infer->version, "/infer");
    add_head(&head, url, out->method, out->path, infer->headers);
    buf_printf(&head, "Content-Type: application/%s\r\n",
               out->body.binary ? "octet-stream" : "json");
    if (out->body.binary) {
        buf_printf(&head, "Inference-Header-Content-Length: %zu\r\n",
                   infer->raw ? 0 : out->body.json.len);
    }
    buf_printf(&head, "Content-Length: %" PRIu64 "\r\n\r\n", out->body.n_bytes);
    if (!out->path.ptr || head.failed) {
        return error_no_memory(err, "a request");
    }
    out->head = buf_str(&head);
    return gather_pieces(arena, out, err);
}

/* ---- queries --------------------------------------------------------------------------------- */

static const struct query_row {
    const char *what;   /* for messages */
    const char *prefix; /* of the path, before the model; NULL: it has no model */
    const char *suffix; /* after it */
    bool posts;
} queries[] = {
    [CLIENT_LIVE] = {"health", NULL, "/v2/health/live", false},
    [CLIENT_READY] = {"health", NULL, "/v2/health/ready", false},
    [CLIENT_MODEL_READY] = {"a model's readiness", "/v2/models/", "/ready", false},
    [CLIENT_SERVER] = {"a server's metadata", NULL, "/v2", false},
    [CLIENT_MODEL] = {"a model's metadata", "/v2/models/", "", false},
    [CLIENT_CONFIG] = {"a model's configuration", "/v2/models/", "/config", false},
    [CLIENT_STATISTICS] = {"statistics of models", "/v2/models/", "/stats", false},
    [CLIENT_INDEX] = {"the index of a repository", NULL, "/v2/repository/index", true},
    [CLIENT_LOAD] = {"loading a model", "/v2/repository/models/", "/load", true},
    [CLIENT_UNLOAD] = {"unloading a model", "/v2/repository/models/", "/unload", true},
    [CLIENT_SHM_REGISTER] = {"shared memory", NULL, "/register", true},
    [CLIENT_SHM_UNREGISTER] = {"shared memory", NULL, "/unregister", true},
    [CLIENT_GENERATE] = {"generate", "/v2/models/", "/generate", true},
    [CLIENT_GENERATE_STREAM] = {"generate_stream", "/v2/models/", "/generate_stream", true},
};

/* Of one region, or of all. */
static struct str shm_path(struct arena *arena, struct str base, struct str name,
                           const char *suffix) {
    return name.ptr ? model_path(arena, base, "/v2/systemsharedmemory/region/", name,
                                 str_make(NULL, 0), suffix)
                    : arena_printf(arena, "%.*s/v2/systemsharedmemory%s", STR_ARG(base), suffix);
}

static struct str query_path(struct arena *arena, struct str base,
                             const struct client_query_args *args) {
    const struct query_row *row = &queries[args->query];
    if (args->query == CLIENT_SHM_REGISTER || args->query == CLIENT_SHM_UNREGISTER) {
        return shm_path(arena, base, args->region.name, row->suffix);
    }
    if (args->query == CLIENT_STATISTICS && !args->model.ptr) {
        return arena_printf(arena, "%.*s/v2/models/stats", STR_ARG(base));
    }
    return row->prefix
               ? model_path(arena, base, row->prefix, args->model, args->version, row->suffix)
               : arena_printf(arena, "%.*s%s", STR_ARG(base), row->suffix);
}

static void add_json_body(struct buf *head, struct str body) {
    buf_printf(head, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body.len);
    buf_add_str(head, body);
}

/* {}, {"parameters":{"config":CONFIG}} (model repository extension, "Load"), or the object of a
 * region (reference, shared memory, 4). */
static enum status add_query_body(struct arena *arena, struct buf *head,
                                  const struct client_query_args *args, struct error *err) {
    struct buf body;
    struct json_writer json = {.out = &body};
    buf_init(&body, arena, 0);
    json_write_open(&json, JSON_ELEMENT, '{');
    if (args->config.ptr) {
        json_write_open(&json, "parameters", '{');
        json_write_string(&json, "config", args->config);
        json_write_close(&json, '}');
    }
    if (args->query == CLIENT_SHM_REGISTER) {
        json_write_string(&json, "key", args->region.key);
        json_write_u64(&json, "offset", args->region.offset);
        json_write_u64(&json, "byte_size", args->region.n_bytes);
    }
    json_write_close(&json, '}');
    if (body.failed) {
        return error_no_memory(err, "a request");
    }
    add_json_body(head, buf_str(&body));
    return ST_OK;
}

enum status client_query_check(const struct client_query_args *args, struct error *err) {
    bool all = args->query == CLIENT_STATISTICS && !args->model.ptr;
    enum status status = ST_OK;
    if (queries[args->query].prefix && !all) {
        status = check_model(args->model, err);
    }
    struct str name = args->region.name, key = args->region.key;
    if (args->query == CLIENT_SHM_REGISTER &&
        (name.len == 0 || key.len == 0 || !utf8_is_valid(name.ptr, name.len) ||
         !utf8_is_valid(key.ptr, key.len))) {
        status = error_set(err, ST_BAD_FIELD, "a region needs a name and a key, in UTF-8");
    }
    if (status == ST_OK && args->config.ptr && !utf8_is_valid(args->config.ptr, args->config.len)) {
        status = error_set(err, ST_BAD_FIELD, "the model's configuration is not UTF-8");
    }
    return status;
}

enum status client_query_encode(struct arena *arena, const struct client_url *url,
                                const struct client_query_args *args, struct client_request *out,
                                struct error *err) {
    struct buf head;
    bool posts = queries[args->query].posts;
    *out = (struct client_request){.method = posts ? STR("POST") : STR("GET")};
    enum status status = client_url_expect(url, CLIENT_HTTP, queries[args->query].what, err);
    if (status == ST_OK) {
        status = client_query_check(args, err);
    }
    if (status != ST_OK) {
        return status;
    }
    buf_init(&head, arena, FIRST_HEAD_BYTES);
    out->path = query_path(arena, url->base, args);
    add_head(&head, url, out->method, out->path, args->headers);
    if (args->json.ptr) {
        add_json_body(&head, args->json);
    } else if (posts) {
        status = add_query_body(arena, &head, args, err);
    } else {
        buf_add_str(&head, STR("\r\n"));
    }
    if (status == ST_OK && (!out->path.ptr || head.failed)) {
        status = error_no_memory(err, "a request");
    }
    if (status != ST_OK) {
        return status;
    }
    out->head = buf_str(&head);
    return gather_pieces(arena, out, err);
}

/* ---- answers --------------------------------------------------------------------------------- */

enum { MAX_DEPTH = 100, MAX_ERROR_BODY = 65536 };

static struct json_limits limits_of(const struct http_session *answer) {
    return (struct json_limits){.max_json_size = http_session_body(answer).len,
                                .max_json_depth = MAX_DEPTH,
                                .max_tensor_elements = (uint64_t)1 << 40};
}

/* The error with the server's own text, if the body has one. */
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

/* Checks the HTTP status and the content coding. */
static enum status check_answer(const struct http_session *answer, struct arena *arena,
                                struct error *err) {
    struct str coding;
    if (http_session_status(answer) != 200) {
        return error_refused(answer, arena, err);
    }
    if (http_session_find(answer, "Content-Encoding", &coding) > 0 &&
        !str_eq_nocase(coding, STR("identity"))) {
        return error_set(err, ST_BAD_ANSWER,
                         "the answer has Content-Encoding %.*s, which was not requested",
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

/* Makes a decoding error one of the server's answer. */
static enum status error_malformed(enum status status, struct error *err) {
    if (status == ST_OK || status == ST_NO_MEMORY) {
        return status;
    }
    error_prefix(err, "the server's answer");
    err->status = ST_BAD_ANSWER;
    return ST_BAD_ANSWER;
}

enum status client_infer_decode(struct arena *arena, const struct http_session *answer,
                                bool may_lack_data, struct v2_client_response *out,
                                struct error *err) {
    size_t n_json = 0;
    enum status status = check_answer(answer, arena, err);
    if (status == ST_OK) {
        status = read_json_bytes(answer, &n_json, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct json_limits limits = limits_of(answer);
    return error_malformed(v2_response_decode(arena, http_session_body(answer), n_json,
                                              may_lack_data, &limits, out, err),
                           err);
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

enum status client_done_decode(struct arena *arena, const struct http_session *answer,
                               struct error *err) {
    return check_answer(answer, arena, err);
}

enum status client_text_decode(struct arena *arena, const struct http_session *answer,
                               struct str *out, struct error *err) {
    struct json_tree tree;
    struct str body = http_session_body(answer);
    struct json_limits limits = limits_of(answer);
    enum status status = check_answer(answer, arena, err);
    if (status == ST_OK) {
        status =
            error_malformed(json_tree_parse(&tree, "the document", arena, body, &limits, err), err);
    }
    *out = status == ST_OK ? arena_dup(arena, body) : str_make(NULL, 0);
    return status == ST_OK && !out->ptr ? error_no_memory(err, "an answer") : status;
}

/* ---- whole calls ----------------------------------------------------------------------------- */

static enum status run_exchange(struct client *client, const struct client_request *request,
                                uint64_t timeout_ns, struct error *err) {
    struct http_message message = {request->pieces, request->n_pieces};
    return client_exchange(client, message, timeout_ns, err);
}

enum status client_infer(struct client *client, struct arena *arena,
                         const struct client_infer *infer, struct v2_client_response *out,
                         struct error *err) {
    struct client_request request;
    enum status status = client_infer_encode(arena, client_url(client), infer, &request, err);
    if (status == ST_OK) {
        status = run_exchange(client, &request, infer->timeout_ns, err);
    }
    return status == ST_OK ? client_infer_decode(arena, client_http(client), false, out, err)
                           : status;
}

enum status client_model_metadata(struct client *client, struct arena *arena, struct str model,
                                  struct str version, struct model_spec *out, struct error *err) {
    struct client_request request;
    const struct client_query_args args = {
        .query = CLIENT_MODEL, .model = model, .version = version};
    enum status status = client_query_encode(arena, client_url(client), &args, &request, err);
    if (status == ST_OK) {
        status = run_exchange(client, &request, 0, err);
    }
    return status == ST_OK ? client_model_decode(arena, client_http(client), out, err) : status;
}
