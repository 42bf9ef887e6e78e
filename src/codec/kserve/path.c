/* Paths to resources. A path is split at its slashes before its segments are decoded, so that an
 * encoded slash is never a separator. Names with a meaning for a file system are rejected. */
#include "codec/kserve/path.h"

#include "codec/kserve/shared_memory.h"
#include "core/base/hex.h"
#include "core/base/utf8.h"
#include "core/tensor/tensor.h"

/* ---- names ----------------------------------------------------------------------------------- */

enum status v2_path_unescape(struct arena *arena, struct str text, struct str *out,
                             struct error *err) {
    *out = text;
    if (text.len == 0 || !memchr(text.ptr, '%', text.len)) {
        return ST_OK;
    }
    char *data = arena_alloc(arena, text.len);
    size_t n = 0;
    if (!data) {
        return error_no_memory(err, "the path");
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] != '%') {
            data[n++] = text.ptr[i];
            continue;
        }
        int high = i + 2 < text.len ? hex_value(text.ptr[i + 1]) : -1;
        int low = i + 2 < text.len ? hex_value(text.ptr[i + 2]) : -1;
        if (high < 0 || low < 0) {
            size_t left = text.len - i;
            return error_set(err, ST_BAD_REQUEST,
                             "path: expected two hexadecimal digits after '%%', got \"%.*s\"",
                             (int)(left < 3 ? left : 3), text.ptr + i);
        }
        data[n++] = (char)(high * 16 + low);
        i += 2;
    }
    *out = str_make(data, n);
    return ST_OK;
}

static bool is_unreserved(char c) {
    char folded = (char)(c | 0x20);
    return (folded >= 'a' && folded <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

void v2_path_escape(struct buf *out, struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        if (is_unreserved(text.ptr[i])) {
            buf_add_char(out, text.ptr[i]);
        } else {
            buf_printf(out, "%%%02X", (unsigned char)text.ptr[i]);
        }
    }
}

/* Returns: the reason why no model or version can have this name, or NULL. */
static const char *why_refused(struct str name) {
    if (name.len == 0) {
        return "is empty";
    }
    if (str_is(name, ".") || str_is(name, "..")) {
        return "is a step in a file system";
    }
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        if (c == '/' || c < 0x20 || c == 0x7f) {
            return c == '/' ? "has a slash in it" : "has a control character in it";
        }
    }
    return utf8_is_valid(name.ptr, name.len) ? NULL : "is not UTF-8";
}

static enum status read_name(struct arena *arena, struct str part, const char *kind,
                             struct str *out, struct error *err) {
    char text[QUOTED_NAME_BYTES];
    enum status status = v2_path_unescape(arena, part, out, err);
    if (status != ST_OK) {
        return status;
    }
    const char *why = why_refused(*out);
    if (why) {
        return error_set(err, ST_NOT_FOUND, "no %s can have the name %s: it %s", kind,
                         quote_name(*out, text), why);
    }
    return ST_OK;
}

/* ---- routes ---------------------------------------------------------------------------------- */

static enum status not_found(struct str path, struct error *err) {
    char text[QUOTED_NAME_BYTES];
    if (str_starts_with(path,
                        STR("/v1/models"))) { /* KServe's older protocol, TensorFlow Serving's */
        return error_set(
            err, ST_NOT_FOUND,
            "no resource %s: this server speaks V2, the Open Inference Protocol, not V1: "
            "POST /v2/models/MODEL/infer (protocolVersion: v2 of an InferenceService)",
            quote_name(path, text));
    }
    return error_set(err, ST_NOT_FOUND,
                     "no resource %s; there are /v2, /v2/health/live, /v2/health/ready, /v2/load, "
                     "/v2/logging, /v2/trace/setting, /v2/models, /v2/models/stats, "
                     "/v2/models/MODEL[/versions/VERSION][/ready|/config|/infer|/generate|/"
                     "generate_stream|/stats], /v2/models/MODEL/trace/setting, "
                     "/v2/repository/index, /v2/repository/models/MODEL/load|unload and "
                     "/v2/systemsharedmemory[/region/NAME]/status|register|unregister",
                     quote_name(path, text));
}

/* Paths without a model. A model with the same name is reached by an escaped name ("%73tats"),
 * or with a version or verb after it. */
static const struct fixed {
    struct str path;
    enum v2_resource resource;
} fixed_paths[] = {
    {{"/v2", 3}, V2_SERVER},
    {{"/v2/", 4}, V2_SERVER},
    {{"/v2/health/live", 15}, V2_LIVE},
    {{"/v2/health/ready", 16}, V2_READY},
    {{"/v2/models/stats", 16}, V2_STATISTICS},
    {{"/v2/models", 10}, V2_MODELS},
    {{"/v2/models/", 11}, V2_MODELS},
    {{"/v2/load", 8}, V2_LOAD},
    {{"/v2/logging", 11}, V2_LOGGING},
    {{"/v2/trace/setting", 17}, V2_TRACE},
};

/* `verb`: the last segment of a model's path; ptr NULL: none. */
static enum v2_resource verb_resource(struct str verb) {
    if (!verb.ptr) {
        return V2_MODEL;
    }
    if (str_is(verb, "infer")) {
        return V2_MODEL_INFER;
    }
    if (str_is(verb, "generate")) {
        return V2_GENERATE;
    }
    if (str_is(verb, "generate_stream")) {
        return V2_GENERATE_STREAM;
    }
    if (str_is(verb, "stats")) {
        return V2_STATISTICS;
    }
    if (str_is(verb, "config")) {
        return V2_MODEL_CONFIG;
    }
    return str_is(verb, "ready") ? V2_MODEL_READY : V2_OTHER;
}

/* `rest`: index, models/MODEL/load or models/MODEL/unload. */
static enum status repository_parse(struct arena *arena, struct str rest, struct v2_path *out,
                                    struct error *err) {
    if (str_is(rest, "index")) {
        out->resource = V2_REPOSITORY_INDEX;
        return ST_OK;
    }
    struct str models = str_cut(&rest, '/'), model = str_cut(&rest, '/');
    struct str verb = str_cut(&rest, '/');
    bool load = str_is(verb, "load"), unload = str_is(verb, "unload");
    if (!str_is(models, "models") || rest.ptr || (!load && !unload)) {
        return ST_OK;
    }
    enum status status = read_name(arena, model, "model", &out->model, err);
    if (status == ST_OK) {
        out->resource = load ? V2_REPOSITORY_LOAD : V2_REPOSITORY_UNLOAD;
    }
    return status == ST_NOT_FOUND ? (err->status = ST_BAD_REQUEST) : status;
}

/* The rest of /v2/repository/, with or without the name of a repository. */
static enum status repository_path(struct arena *arena, struct str path, struct str rest,
                                   struct v2_path *out, struct error *err) {
    struct str named = rest;
    enum status status = repository_parse(arena, rest, out, err);
    if (status == ST_OK && out->resource == V2_OTHER) {
        out->repository = str_cut(&named, '/');
        status = named.ptr ? repository_parse(arena, named, out, err) : ST_OK;
    }
    return status == ST_OK && out->resource == V2_OTHER ? not_found(path, err) : status;
}

/* The resources with a prefix: of memory that the server shares with its clients, or of GPUs. */
struct memory_paths {
    const char *prefix;
    enum v2_resource status, registration, unregistration;
};
static const struct memory_paths SYSTEM_MEMORY = {"/v2/systemsharedmemory", V2_SHARED_MEMORY_STATUS,
                                                  V2_SHARED_MEMORY_REGISTER,
                                                  V2_SHARED_MEMORY_UNREGISTER};
static const struct memory_paths CUDA_MEMORY = {"/v2/cudasharedmemory", V2_CUDA_MEMORY_STATUS,
                                                V2_OTHER, V2_CUDA_MEMORY_UNREGISTER};

/* [/region/NAME]/status, register, unregister. Error texts do not repeat the name. */
static enum status shared_memory_path(struct arena *arena, const struct memory_paths *paths,
                                      struct str rest, struct v2_path *out, struct error *err) {
    struct str verb = str_cut(&rest, '/'), name = {NULL, 0};
    if (str_is(verb, "region")) {
        name = str_cut(&rest, '/');
        verb = str_cut(&rest, '/');
    }
    bool registers = str_is(verb, "register");
    enum v2_resource resource = str_is(verb, "status")       ? paths->status
                                : registers                  ? paths->registration
                                : str_is(verb, "unregister") ? paths->unregistration
                                                             : V2_OTHER;
    if (registers && resource == V2_OTHER && !rest.ptr) {
        return error_set(err, ST_UNSUPPORTED, V2_CUDA_MEMORY_UNSUPPORTED);
    }
    if (resource == V2_OTHER || rest.ptr) {
        return error_set(err, ST_NOT_FOUND,
                         "no such resource; there are %s[/region/NAME]/status|register|unregister",
                         paths->prefix);
    }
    enum status status = name.ptr ? v2_path_unescape(arena, name, &out->region, err) : ST_OK;
    if (status == ST_OK && !utf8_is_valid(out->region.ptr, out->region.len)) {
        status = error_set(err, ST_BAD_REQUEST, "the name of a region: expected UTF-8");
    }
    if (status == ST_OK) {
        out->resource = resource;
    }
    return status;
}

enum status v2_path_parse(struct arena *arena, struct str path, struct v2_path *out,
                          struct error *err) {
    *out = (struct v2_path){.resource = V2_OTHER, .region = STR("")};
    for (size_t i = 0; i < sizeof(fixed_paths) / sizeof(fixed_paths[0]); i++) {
        if (str_eq(path, fixed_paths[i].path)) {
            out->resource = fixed_paths[i].resource;
            return ST_OK;
        }
    }
    struct str models = STR("/v2/models/"), repository = STR("/v2/repository/");
    if (str_starts_with(path, repository)) {
        struct str after = str_make(path.ptr + repository.len, path.len - repository.len);
        return repository_path(arena, path, after, out, err);
    }
    struct str memory = STR("/v2/systemsharedmemory/"), cuda = STR("/v2/cudasharedmemory/");
    if (str_starts_with(path, memory)) {
        struct str after = str_make(path.ptr + memory.len, path.len - memory.len);
        return shared_memory_path(arena, &SYSTEM_MEMORY, after, out, err);
    }
    if (str_starts_with(path, cuda)) {
        struct str after = str_make(path.ptr + cuda.len, path.len - cuda.len);
        return shared_memory_path(arena, &CUDA_MEMORY, after, out, err);
    }
    if (!str_starts_with(path, models)) {
        return not_found(path, err);
    }
    /* MODEL [/versions/VERSION] [/VERB]; a missing segment has ptr NULL. */
    struct str rest = str_make(path.ptr + models.len, path.len - models.len);
    struct str model = str_cut(&rest, '/'), version = {NULL, 0};
    struct str verb = str_cut(&rest, '/');
    if (str_is(verb, "versions")) {
        version = str_cut(&rest, '/');
        verb = str_cut(&rest, '/');
        if (!version.ptr) {
            return not_found(path, err);
        }
    }
    bool traces = !version.ptr && str_is(verb, "trace") && str_is(rest, "setting");
    enum v2_resource resource = traces ? V2_TRACE : verb_resource(verb);
    if (resource == V2_OTHER || (rest.ptr && !traces)) {
        return not_found(path, err);
    }
    enum status status = read_name(arena, model, "model", &out->model, err);
    if (status == ST_OK && version.ptr) {
        status = read_name(arena, version, "version", &out->version, err);
    }
    if (status == ST_OK) {
        out->resource = resource;
    }
    return status;
}
