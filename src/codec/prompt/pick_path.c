/* Paths are matched by their ends: a gateway's routes may put a prefix before them, which the proxy
 * takes off again behind us. */
#include "codec/prompt/pick_path.h"

#include "codec/kserve/path.h"
#include "core/base/utf8.h"

/* Bodies that must name a model. */
static const struct str of_json[] = {
    STR("/v1/chat/completions"),   STR("/v1/completions"),
    STR("/v1/embeddings"),         STR("/v1/responses"),
    STR("/v1/messages"),           STR("/v1/messages/count_tokens"),
    STR("/v1/completions/render"), STR("/v1/chat/completions/render"),
};

static const struct str verbs[] = {STR("infer"), STR("generate"), STR("generate_stream")};

static bool is_verb(struct str text) {
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (str_eq(text, verbs[i])) {
            return true;
        }
    }
    return false;
}

static bool is_of_json(struct str path) {
    for (size_t i = 0; i < sizeof(of_json) / sizeof(of_json[0]); i++) {
        if (str_ends(path, of_json[i])) {
            return true;
        }
    }
    return false;
}

/* What is behind the last '/'; `rest` becomes what is before it. */
static struct str cut_last(struct str *rest) {
    const char *end = rest->ptr + rest->len, *slash = memrchr(rest->ptr, '/', rest->len);
    rest->len = slash ? (size_t)(slash - rest->ptr) : 0;
    const char *part = slash ? slash + 1 : rest->ptr;
    return str_make(part, (size_t)(end - part));
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

/* What a path of PICK_PATH_V2 names, encoded. */
struct named {
    struct str model, version;
};

/* …/v2/models/MODEL[/versions/VERSION]/VERB, from its end. */
static bool find_names(struct str path, struct named *out) {
    static const struct str before = STR("/v2/models");
    struct str rest = path;
    if (path.len == 0 || !is_verb(cut_last(&rest))) {
        return false;
    }
    out->model = cut_last(&rest);
    out->version = str_make(NULL, 0);
    if (str_ends(rest, before)) {
        return true;
    }
    out->version = out->model;
    struct str word = cut_last(&rest);
    out->model = cut_last(&rest);
    return str_is(word, "versions") && str_ends(rest, before);
}

static enum status read_v2(struct arena *arena, struct str path, const struct named *named,
                           struct pick_path *out, struct error *err) {
    enum status status = read_name(arena, named->model, "model", &out->model, err);
    if (status == ST_OK && named->version.ptr) {
        status = read_name(arena, named->version, "version", &out->version, err);
    }
    out->kind = status == ST_OK ? PICK_PATH_V2 : PICK_PATH_OTHER;
    out->model_at = (size_t)(named->model.ptr - path.ptr);
    out->model_bytes = named->model.len;
    return status;
}

/* What is below a model is none of the interfaces that have its name in the body. */
static bool is_below_models(struct str path) {
    static const char below[] = "/v2/models/";
    return memmem(path.ptr, path.len, below, sizeof below - 1) != NULL;
}

enum status pick_path_parse(struct arena *arena, struct str method, struct str path,
                            struct pick_path *out, struct error *err) {
    struct str query = path;
    struct str clean = str_cut(&query, '?');
    struct named named;
    *out = (struct pick_path){.kind = PICK_PATH_OTHER};
    if (find_names(clean, &named)) {
        return read_v2(arena, path, &named, out, err);
    }
    if (str_is(method, "POST")) {
        if (str_is(clean, "/inference.GRPCInferenceService/ModelInfer")) {
            out->kind = PICK_PATH_GRPC;
        } else if (is_of_json(clean) && !is_below_models(clean)) {
            out->kind = PICK_PATH_JSON;
        }
    }
    return ST_OK;
}

/* ---- the last one ---------------------------------------------------------------------------- */

static bool is_last(const struct pick_path_last *last, bool is_post, struct str path) {
    return path.len > 0 && path.len == last->n_bytes && is_post == last->is_post &&
           memcmp(path.ptr, last->path, path.len) == 0;
}

static void take_last(const struct pick_path_last *last, struct str path, struct pick_path *out) {
    *out = last->where;
    if (out->kind == PICK_PATH_V2) {
        out->model.ptr = path.ptr + out->model_at;
        out->version.ptr = out->version.ptr ? path.ptr + last->version_at : NULL;
    }
}

static bool is_within(struct str part, struct str whole) {
    return (uintptr_t)part.ptr - (uintptr_t)whole.ptr < whole.len;
}

/* Names that were decoded are elsewhere, and are decoded again. */
static void keep_last(struct pick_path_last *last, bool is_post, struct str path,
                      const struct pick_path *where) {
    bool is_plain =
        where->kind != PICK_PATH_V2 ||
        (is_within(where->model, path) && (!where->version.ptr || is_within(where->version, path)));
    if (!is_plain || path.len == 0 || path.len > sizeof last->path) {
        return;
    }
    last->where = *where;
    last->version_at = where->version.ptr ? (size_t)(where->version.ptr - path.ptr) : 0;
    last->n_bytes = path.len;
    last->is_post = is_post;
    memcpy(last->path, path.ptr, path.len);
}

enum status pick_path_parse_like(struct pick_path_last *last, struct arena *arena,
                                 struct str method, struct str path, struct pick_path *out,
                                 struct error *err) {
    bool is_post = str_is(method, "POST");
    if (last && is_last(last, is_post, path)) {
        take_last(last, path, out);
        return ST_OK;
    }
    enum status status = pick_path_parse(arena, method, path, out, err);
    if (last && status == ST_OK) {
        keep_last(last, is_post, path, out);
    }
    return status;
}

void pick_path_print(struct buf *out, const struct pick_path *of, struct str path,
                     struct str model) {
    size_t behind = of->model_at + of->model_bytes;
    buf_add(out, path.ptr, of->model_at);
    v2_path_escape(out, model);
    buf_add(out, path.ptr + behind, path.len - behind);
}
