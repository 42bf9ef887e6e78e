/* Paths are matched by their suffixes: a gateway's routes may have a prefix, which the proxy
 * removes after the pick. */
#include "codec/prompt/model_location.h"

#include "codec/kserve/path.h"
#include "core/base/hex.h"
#include "core/base/utf8.h"

/* Paths whose bodies must name a model. */
static const struct str default_paths[] = {
#define PATH(end, has_prompt, may_have_system, format, required) STR(end),
#include "codec/prompt/model_path.def"
#undef PATH
};

enum { N_DEFAULT_PATHS = sizeof(default_paths) / sizeof(default_paths[0]) };

/* What the bodies of a path have. */
struct body {
    bool has_prompt, may_have_system;
    enum prompt_format format;
    const char *required;
};

static const struct body default_bodies[N_DEFAULT_PATHS] = {
#define PATH(end, has_prompt, may_have_system, format, required)                                   \
    {has_prompt, may_have_system, PROMPT_OF_##format, required},
#include "codec/prompt/model_path.def"
#undef PATH
};

struct model_paths model_paths_default(void) {
    return (struct model_paths){.items = default_paths, .n = N_DEFAULT_PATHS};
}

static void set_body(const struct body *body, bool may_require, struct model_location *out) {
    out->has_prompt = body->has_prompt;
    out->may_have_system = body->may_have_system;
    out->format = body->format;
    out->is_model_optional = body->format == PROMPT_OF_VLLM_TOKENS;
    out->required = may_require ? str_of(body->required) : str_make(NULL, 0);
}

/* ---- parsers --------------------------------------------------------------------------------- */

static const struct parser_path {
    unsigned parser;
    struct str end;
    enum model_location_kind kind;
    struct body body;
} PARSER_PATHS[] = {
#define PARSER_PATH(parser, end, kind, format, has_prompt, may_have_system, required)              \
    {MODEL_PARSER_##parser,                                                                        \
     STR(end),                                                                                     \
     MODEL_LOCATION_##kind,                                                                        \
     {has_prompt, may_have_system, PROMPT_OF_##format, required}},
#include "codec/prompt/parser_path.def"
#undef PARSER_PATH
};

/* As upstream: one slash at the end makes no difference, and an end need not begin a segment. */
static const struct parser_path *find_parser(struct str path, unsigned parsers) {
    const struct parser_path *best = NULL;
    path.len -= path.len > 0 && path.ptr[path.len - 1] == '/';
    for (size_t i = 0; i < sizeof(PARSER_PATHS) / sizeof(PARSER_PATHS[0]); i++) {
        const struct parser_path *row = &PARSER_PATHS[i];
        if ((row->parser & parsers) && str_ends_with(path, row->end) &&
            (!best || row->end.len > best->end.len)) {
            best = row;
        }
    }
    bool is_sglang = best && best->body.format == PROMPT_OF_SGLANG_TOKENS;
    return is_sglang && !str_is(path, "/generate") && !str_is(path, "generate") ? NULL : best;
}

static void apply_parser(struct str path, unsigned parsers, struct model_location *out) {
    const struct parser_path *row = find_parser(path, parsers);
    if (!row) {
        out->is_unclaimed = !(parsers & MODEL_PARSER_PASSTHROUGH);
        return;
    }
    out->kind = row->kind;
    set_body(&row->body, true, out);
}

/* ---- the model in the path ------------------------------------------------------------------- */

static const struct str v2_verbs[] = {STR("infer"), STR("generate"), STR("generate_stream"),
                                      STR("explain")};
static const struct str v1_verbs[] = {STR("predict"), STR("explain"), STR("classify"),
                                      STR("regress")};

static bool is_one_of(struct str text, const struct str *words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (str_eq(text, words[i])) {
            return true;
        }
    }
    return false;
}

/* Cuts the segment after the last '/' off `rest`. */
static struct str cut_last_segment(struct str *rest) {
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

/* Names in a path of MODEL_LOCATION_PATH, still encoded. */
struct named {
    struct str model, version;
};

/* `rest` ends with MODEL or MODEL/versions/VERSION, of which `last` was cut off. */
static bool find_below(struct str rest, struct str last, struct str models, bool has_labels,
                       struct named *out) {
    out->model = last;
    out->version = str_make(NULL, 0);
    if (str_ends_with(rest, models)) {
        return true;
    }
    out->version = last;
    struct str word = cut_last_segment(&rest);
    out->model = cut_last_segment(&rest);
    return (str_is(word, "versions") || (has_labels && str_is(word, "labels"))) &&
           str_ends_with(rest, models);
}

/* …/v2/models/MODEL[/versions/VERSION]/VERB, …/v1/models/MODEL[/versions/VERSION]:VERB, parsed from
 * their ends. */
static bool find_names(struct str path, struct named *out) {
    struct str rest = path;
    if (path.len == 0) {
        return false;
    }
    struct str last = cut_last_segment(&rest);
    if (is_one_of(last, v2_verbs, sizeof(v2_verbs) / sizeof(v2_verbs[0]))) {
        last = cut_last_segment(&rest);
        return find_below(rest, last, STR("/v2/models"), false, out);
    }
    const char *colon = memrchr(last.ptr, ':', last.len), *end = last.ptr + last.len;
    if (!colon || !is_one_of(str_make(colon + 1, (size_t)(end - colon - 1)), v1_verbs,
                             sizeof(v1_verbs) / sizeof(v1_verbs[0]))) {
        return false;
    }
    last.len = (size_t)(colon - last.ptr);
    return find_below(rest, last, STR("/v1/models"), true, out);
}

/* ---- the model in the body ------------------------------------------------------------------- */

/* A path below a model is never one of the APIs with the name in the body. */
static bool is_below_models(struct str path) {
    static const char below[] = "/v2/models/";
    return memmem(path.ptr, path.len, below, sizeof below - 1) != NULL;
}

static void find_json(struct str path, const struct model_paths *paths,
                      struct model_location *out) {
    const struct model_paths ends = paths && paths->items ? *paths : model_paths_default();
    unsigned parsers = paths ? paths->parsers : 0;
    bool is_listed = parsers == 0 || (parsers & MODEL_PARSERS_OWN) || (paths && paths->items);
    size_t at = is_listed ? 0 : ends.n;
    while (at < ends.n && !str_ends_with(path, ends.items[at])) {
        at++;
    }
    if (at == ends.n || is_below_models(path)) {
        if (parsers != 0 && !is_below_models(path)) {
            apply_parser(path, parsers, out);
        }
        return;
    }
    out->kind = MODEL_LOCATION_JSON_BODY;
    for (size_t i = 0; i < N_DEFAULT_PATHS; i++) {
        if (str_ends_with(path, default_paths[i])) { /* at most one does */
            set_body(&default_bodies[i], parsers != 0, out);
        }
    }
}

static enum status parse_path(struct arena *arena, const struct model_paths *paths,
                              struct str method, struct str path, struct model_location *out,
                              struct error *err) {
    struct str query = path;
    struct str clean = str_cut(&query, '?');
    struct named named;
    *out = (struct model_location){.kind = MODEL_LOCATION_NONE};
    if (find_names(clean, &named)) {
        enum status status = read_name(arena, named.model, "model", &out->model, err);
        if (status == ST_OK && named.version.ptr) {
            status = read_name(arena, named.version, "version", &out->version, err);
        }
        out->kind = status == ST_OK ? MODEL_LOCATION_PATH : MODEL_LOCATION_NONE;
        out->model_at = (size_t)(named.model.ptr - path.ptr);
        out->model_bytes = named.model.len;
        return status;
    }
    if (!str_is(method, "POST")) {
        return ST_OK;
    }
    if (str_is(clean, "/inference.GRPCInferenceService/ModelInfer")) {
        out->kind = MODEL_LOCATION_GRPC_BODY;
    } else {
        find_json(clean, paths, out);
    }
    return ST_OK;
}

/* ---- as servers read paths ------------------------------------------------------------------- */

/* RFC 3986, 2.3: those that mean the same encoded and not. */
static bool is_unreserved(int c) {
    int folded = c | 0x20;
    return (folded >= 'a' && folded <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

/* Returns: the character that is encoded at `at`; -1: none, or, unless `all`, a reserved one. Those
 * that would be read as the start of an escape or of the query stay encoded. */
static int encoded_char(struct str text, size_t at, bool all) {
    if (text.len - at < 3 || text.ptr[at] != '%') {
        return -1;
    }
    int high = hex_value(text.ptr[at + 1]), low = hex_value(text.ptr[at + 2]);
    int c = high < 0 || low < 0 ? -1 : high * 16 + low;
    return (all && c != '%' && c != '?') || is_unreserved(c) ? c : -1;
}

static void print_decoded(struct str text, bool all, struct buf *out) {
    for (size_t at = 0; at < text.len;) {
        int c = encoded_char(text, at, all);
        buf_add_char(out, c >= 0 ? (char)(unsigned char)c : text.ptr[at]);
        at += c >= 0 ? 3 : 1;
    }
}

/* Cuts a dot off `*rest`, also an encoded one. */
static bool cut_dot(struct str *rest) {
    bool encoded = rest->len >= 3 && rest->ptr[0] == '%' && rest->ptr[1] == '2' &&
                   (rest->ptr[2] == 'e' || rest->ptr[2] == 'E');
    size_t n = encoded ? 3 : rest->len > 0 && rest->ptr[0] == '.';
    *rest = str_make(rest->ptr + n, rest->len - n);
    return n > 0;
}

/* Returns: 1 and 2: it is "." or ".."; 0: it is neither. */
static int count_dots(struct str segment) {
    int n = cut_dot(&segment);
    n += n > 0 && cut_dot(&segment);
    return segment.len == 0 ? n : 0;
}

/* A server may read the path otherwise than it is written. */
static bool is_unusual(struct str clean) {
    if (memchr(clean.ptr, '%', clean.len)) {
        return true;
    }
    struct str rest = clean;
    str_cut(&rest, '/');
    while (rest.ptr) {
        struct str segment = str_cut(&rest, '/');
        if ((segment.len == 0 && rest.ptr) || count_dots(segment) > 0) {
            return true;
        }
    }
    return false;
}

/* Appends the path without empty and dot segments. */
static void print_normalized(struct str clean, struct buf *out) {
    struct str rest = clean;
    buf_add_str(out, str_cut(&rest, '/'));
    while (rest.ptr) {
        struct str segment = str_cut(&rest, '/');
        int n_dots = count_dots(segment);
        const char *slash = n_dots == 2 ? memrchr(out->data, '/', out->len) : NULL;
        if (slash) {
            out->len = (size_t)(slash - (const char *)out->data);
        } else if (n_dots == 0 && segment.len > 0) {
            buf_add_char(out, '/');
            buf_add_str(out, segment);
        }
    }
}

/* Proxies decode unreserved characters only, Python's and Go's servers all: also slashes, in which
 * case a model's name with a slash leads to no model. */
static enum status check_decoded(struct arena *arena, const struct model_paths *paths,
                                 struct str method, struct str clean, bool all,
                                 const struct model_location *location, struct error *err) {
    struct model_location read = {.kind = MODEL_LOCATION_NONE};
    struct buf decoded, text;
    struct error ignored;
    buf_init(&decoded, arena, clean.len);
    buf_init(&text, arena, clean.len);
    print_decoded(clean, all, &decoded);
    print_normalized(buf_str(&decoded), &text);
    if (decoded.failed || text.failed) {
        return error_no_memory(err, "the path");
    }
    struct str path = text.len > 0 ? buf_str(&text) : STR("/");
    enum status status = parse_path(arena, paths, method, path, &read, &ignored);
    bool is_none = status == ST_OK && read.kind == MODEL_LOCATION_NONE;
    bool is_same = status == ST_OK && location->kind == read.kind &&
                   (location->kind != MODEL_LOCATION_PATH || str_eq(location->model, read.model));
    if ((all && is_none) || is_same) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_REQUEST,
                     "the path has empty or dot segments, or encoded characters, without which it "
                     "names another model");
}

enum status model_location_parse(struct arena *arena, const struct model_paths *paths,
                                 struct str method, struct str path, struct model_location *out,
                                 struct error *err) {
    struct str query = path, clean = str_cut(&query, '?');
    enum status status = parse_path(arena, paths, method, path, out, err);
    if (status == ST_OK && clean.len > 0 && is_unusual(clean)) {
        /* The names that the picker checks must be those that the server will see. */
        status = check_decoded(arena, paths, method, clean, false, out, err);
        if (status == ST_OK) {
            status = check_decoded(arena, paths, method, clean, true, out, err);
        }
        out->kind = status == ST_OK ? out->kind : MODEL_LOCATION_NONE;
    }
    return status;
}

void model_location_print_path(struct buf *out, const struct model_location *location,
                               struct str path, struct str model) {
    size_t after = location->model_at + location->model_bytes;
    buf_add(out, path.ptr, location->model_at);
    v2_path_escape(out, model);
    buf_add(out, path.ptr + after, path.len - after);
}
