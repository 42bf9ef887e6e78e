/* The requests of KServe v2 over HTTP: the head is written here, the body comes from wire's
 * encoder. */
#include "client/v2.h"

#include <inttypes.h>

#include "codec/kserve/path.h"
#include "codec/kserve/raw.h"
#include "core/base/buf.h"
#include "core/base/num.h"

enum { FIRST_HEAD_BYTES = 256 };

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a request");
}

/* /v2/models/MODEL[/versions/VERSION]SUFFIX */
static struct str model_path(struct arena *arena, struct str base, struct str model,
                             struct str version, const char *suffix) {
    struct buf path;
    buf_init(&path, arena, 0);
    buf_add_str(&path, base);
    buf_add_str(&path, STR("/v2/models/"));
    v2_path_escape(&path, model);
    if (version.ptr) {
        buf_add_str(&path, STR("/versions/"));
        v2_path_escape(&path, version);
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
static enum status gather_pieces(struct arena *arena, struct client_request *out,
                                 struct error *err) {
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
    out->path = model_path(arena, url->base, infer->model, infer->version, "/infer");
    add_head(&head, url, out->method, out->path);
    add_body_fields(&head, infer, &out->body);
    if (!out->path.ptr || head.failed) {
        return no_memory(err);
    }
    out->head = buf_str(&head);
    return gather_pieces(arena, out, err);
}

/* ---- questions ------------------------------------------------------------------------------- */

static struct str query_path(struct arena *arena, struct str base, enum client_query query,
                             struct str model, struct str version) {
    static const char *const paths[] = {[CLIENT_LIVE] = "/v2/health/live",
                                        [CLIENT_READY] = "/v2/health/ready",
                                        [CLIENT_SERVER] = "/v2"};
    if (query == CLIENT_MODEL) {
        return model_path(arena, base, model, version, "");
    }
    if (query == CLIENT_MODEL_READY) {
        return model_path(arena, base, model, version, "/ready");
    }
    return arena_printf(arena, "%.*s%s", STR_ARG(base), paths[query]);
}

enum status client_query_encode(struct arena *arena, const struct client_url *url,
                                enum client_query query, struct str model, struct str version,
                                struct client_request *out, struct error *err) {
    static const char *const what[] = {[CLIENT_LIVE] = "health",
                                       [CLIENT_READY] = "health",
                                       [CLIENT_MODEL_READY] = "a model's readiness",
                                       [CLIENT_SERVER] = "a server's metadata",
                                       [CLIENT_MODEL] = "a model's metadata"};
    struct buf head;
    *out = (struct client_request){.method = STR("GET")};
    enum status status = client_url_expect(url, CLIENT_HTTP, what[query], err);
    if (status == ST_OK && (query == CLIENT_MODEL || query == CLIENT_MODEL_READY)) {
        status = check_model(model, err);
    }
    if (status != ST_OK) {
        return status;
    }
    buf_init(&head, arena, FIRST_HEAD_BYTES);
    out->path = query_path(arena, url->base, query, model, version);
    add_head(&head, url, out->method, out->path);
    buf_add_str(&head, STR("\r\n"));
    if (!out->path.ptr || head.failed) {
        return no_memory(err);
    }
    out->head = buf_str(&head);
    return gather_pieces(arena, out, err);
}
