/* Paths are matched by their ends: a gateway's routes may put a prefix before them, which the proxy
 * takes off again behind us. */
#include "wire/pick_path.h"

#include "base/utf8.h"
#include "wire/v2_path.h"

static const struct str MODELS = {"/v2/models/", 11};

/* Bodies that must name a model. */
static const char *const of_json[] = {
    "/v1/chat/completions",   "/v1/completions",
    "/v1/embeddings",         "/v1/responses",
    "/v1/messages",           "/v1/messages/count_tokens",
    "/v1/completions/render", "/v1/chat/completions/render",
};

static const char *const verbs[] = {"infer", "generate", "generate_stream"};

static bool is_one_of(struct str text, const char *const *list, size_t n, bool ends) {
    for (size_t i = 0; i < n; i++) {
        if (ends ? str_ends(text, str_of(list[i])) : str_is(text, list[i])) {
            return true;
        }
    }
    return false;
}

/* What is behind the last "/v2/models/". Returns: ptr NULL where there is none. */
static struct str behind_models(struct str path) {
    const char *at = path.len < MODELS.len ? path.ptr : path.ptr + path.len - MODELS.len + 1;
    for (; at > path.ptr; at--) {
        if (*at == 'v' && memcmp(at - 1, MODELS.ptr, MODELS.len) == 0) {
            size_t n = (size_t)(at - path.ptr) - 1 + MODELS.len;
            return str_make(path.ptr + n, path.len - n);
        }
    }
    return (struct str){NULL, 0};
}

/* As str_cut, of parts so short that a search that is made for long ones costs more. */
static inline struct str cut_part(struct str *rest) {
    size_t n = 0;
    while (n < rest->len && rest->ptr[n] != '/') {
        n++;
    }
    struct str part = str_make(rest->ptr, n);
    *rest = n < rest->len ? str_make(rest->ptr + n + 1, rest->len - n - 1) : str_make(NULL, 0);
    return part;
}

static enum status read_name(struct arena *arena, struct str part, const char *kind,
                             struct str *out, struct error *err) {
    enum status status = v2_path_unescape(arena, part, out, err);
    if (status != ST_OK) {
        return status;
    }
    if (out->len == 0) {
        return error_set(err, ST_NOT_FOUND, "no %s can have an empty name", kind);
    }
    return utf8_is_valid(out->ptr, out->len)
               ? ST_OK
               : error_set(err, ST_NOT_FOUND, "no %s can have a name that is not UTF-8", kind);
}

/* MODEL [/versions/VERSION] /VERB */
static enum status read_v2(struct arena *arena, struct str path, struct str rest,
                           struct pick_path *out, struct error *err) {
    struct str model = cut_part(&rest), version = {NULL, 0};
    struct str verb = cut_part(&rest);
    if (str_is(verb, "versions")) {
        version = cut_part(&rest);
        verb = cut_part(&rest);
    }
    if (rest.ptr || !is_one_of(verb, verbs, sizeof(verbs) / sizeof(verbs[0]), false)) {
        return ST_OK;
    }
    enum status status = read_name(arena, model, "model", &out->model, err);
    if (status == ST_OK && version.ptr) {
        status = read_name(arena, version, "version", &out->version, err);
    }
    out->kind = status == ST_OK ? PICK_PATH_V2 : PICK_PATH_OTHER;
    out->model_at = (size_t)(model.ptr - path.ptr);
    out->model_bytes = model.len;
    return status;
}

enum status pick_path_parse(struct arena *arena, struct str method, struct str path,
                            struct pick_path *out, struct error *err) {
    struct str query = path;
    struct str clean = str_cut(&query, '?');
    struct str models = behind_models(clean);
    *out = (struct pick_path){.kind = PICK_PATH_OTHER};
    if (models.ptr) {
        return read_v2(arena, path, models, out, err);
    }
    if (str_is(method, "POST")) {
        if (str_is(clean, "/inference.GRPCInferenceService/ModelInfer")) {
            out->kind = PICK_PATH_GRPC;
        } else if (is_one_of(clean, of_json, sizeof(of_json) / sizeof(of_json[0]), true)) {
            out->kind = PICK_PATH_JSON;
        }
    }
    return ST_OK;
}

void pick_path_print(struct buf *out, const struct pick_path *of, struct str path,
                     struct str model) {
    size_t behind = of->model_at + of->model_bytes;
    buf_add(out, path.ptr, of->model_at);
    v2_path_escape(out, model);
    buf_add(out, path.ptr + behind, path.len - behind);
}
