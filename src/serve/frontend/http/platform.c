/* Platforms: the request's path, and where tensors are binary the length of its JSON, which these
 * platforms pass on in Content-Type alone. */
#include "serve/frontend/http/platform.h"

#include <string.h>

#include "core/base/num.h"
#include "serve/frontend/http/routes.h"

/* Of entries that are looked at for the only model. */
enum { MAX_ENTRIES = 64 };

static struct str binary_type(const struct http_platform *platform) {
    return platform->kind == HTTP_PLATFORM_VERTEX_AI
               ? STR("application/vnd.vertex-ai-triton.binary+json;json-header-size=")
               : STR("application/vnd.sagemaker-triton.binary+json;json-header-size=");
}

/* ---- the model ------------------------------------------------------------------------------- */

struct only_model {
    struct str name; /* ptr NULL: none */
    bool is_one_of_several;
};

static void find_only(void *user, const struct repository_entry *entry) {
    struct only_model *only = user;
    if (entry->phase != REPOSITORY_READY) {
        return;
    }
    only->is_one_of_several =
        only->is_one_of_several || (only->name.ptr && !str_eq(only->name, entry->model));
    only->name = entry->model;
}

/* Returns: ST_NOT_READY, ST_BAD_REQUEST. */
static enum status find_model(const struct http_api *api, struct str *out, struct error *err) {
    struct repository *repository = api->services.repository;
    struct only_model only = {.is_one_of_several =
                                  repository_has_more_than(repository, MAX_ENTRIES)};
    if (api->platform->model) {
        *out = str_of(api->platform->model);
        return ST_OK;
    }
    if (!only.is_one_of_several) {
        repository_visit(repository, find_only, &only);
    }
    if (only.is_one_of_several) {
        return error_set(err, ST_BAD_REQUEST,
                         "several models are served here: --platform-model has to name the one of "
                         "%s",
                         api->platform->predict_route);
    }
    *out = only.name;
    return only.name.ptr ? ST_OK : error_set(err, ST_NOT_READY, "no model is ready");
}

/* ---- the head -------------------------------------------------------------------------------- */

/* Adds Inference-Header-Content-Length by the Content-Type, if it is the platform's. */
static enum status add_header_length(const struct http_platform *platform,
                                     struct http_exchange *exchange, struct error *err) {
    struct http_head *head = &exchange->head;
    struct str type = {NULL, 0}, prefix = binary_type(platform);
    uint64_t n_bytes;
    if (http_head_find(head, STR("Content-Type"), &type) == 0 || !str_starts_with(type, prefix)) {
        return ST_OK;
    }
    struct str length = str_make(type.ptr + prefix.len, type.len - prefix.len);
    if (!num_parse_u64(length, &n_bytes)) {
        return error_set(err, ST_BAD_REQUEST,
                         "Content-Type: expected the number of bytes of the JSON after "
                         "json-header-size=, got \"%.*s\"",
                         STR_ARG(length));
    }
    struct http_field *fields = arena_calloc(exchange->arena, head->n_fields + 1, sizeof(*fields));
    if (!fields) {
        return error_no_memory(err, "the head of the request");
    }
    memcpy(fields, head->fields, head->n_fields * sizeof(*fields));
    fields[head->n_fields++] = (struct http_field){STR("Inference-Header-Content-Length"), length};
    head->fields = fields;
    return ST_OK;
}

static enum status route_inference(const struct http_api *api, struct http_exchange *exchange,
                                   struct str model, const char *what, struct error *err) {
    struct buf path;
    buf_init(&path, exchange->arena, 64 + model.len);
    buf_add_str(&path, STR("/v2/models/"));
    v2_path_escape(&path, model);
    buf_printf(&path, "/%s", what);
    if (path.failed) {
        return error_no_memory(err, "the path of the request");
    }
    exchange->head.path = buf_str(&path);
    return strcmp(what, "infer") == 0 ? add_header_length(api->platform, exchange, err) : ST_OK;
}

/* ---- redirection ----------------------------------------------------------------------------- */

enum redirection { REDIRECT_READS, REDIRECT_POSTS, REDIRECT_IS_REFUSED };

/* What changes the server is refused: the callers of an endpoint are not its operators. */
static enum redirection redirection_of(enum v2_resource resource) {
    switch (resource) {
    case V2_SERVER:
    case V2_LIVE:
    case V2_READY:
    case V2_MODEL:
    case V2_MODEL_READY:
    case V2_STATISTICS:
    case V2_MODELS:
    case V2_LOAD:
    case V2_MODEL_CONFIG:
    case V2_SHARED_MEMORY_STATUS:
    case V2_CUDA_MEMORY_STATUS:
        return REDIRECT_READS;
    case V2_MODEL_INFER:
    case V2_GENERATE:
    case V2_GENERATE_STREAM:
    case V2_REPOSITORY_INDEX:
        return REDIRECT_POSTS;
    case V2_REPOSITORY_LOAD:
    case V2_REPOSITORY_UNLOAD:
    case V2_LOGGING:
    case V2_TRACE:
    case V2_SHARED_MEMORY_REGISTER:
    case V2_SHARED_MEMORY_UNREGISTER:
    case V2_CUDA_MEMORY_UNREGISTER:
    case V2_OTHER:
        break;
    }
    return REDIRECT_IS_REFUSED;
}

/* The platform passes on POST alone: what is read gets the method that its resource has. */
static enum status redirect(const struct http_api *api, struct http_exchange *exchange,
                            struct str where, struct error *err) {
    struct http_head *head = &exchange->head;
    struct v2_path path;
    if (!str_is(head->method, "POST")) {
        return error_set(err, ST_METHOD_NOT_ALLOWED, "expected POST, got %.*s",
                         STR_ARG(head->method));
    }
    struct str target = arena_printf(exchange->arena, "/%.*s", STR_ARG(where));
    if (!target.ptr) {
        return error_no_memory(err, "the path of the request");
    }
    head->path = target;
    head->query = (struct str){NULL, 0};
    if (str_is(target, "/metrics")) {
        head->method = STR("GET");
        return ST_OK;
    }
    enum status st = v2_path_parse(exchange->arena, target, &path, err);
    if (st != ST_OK) {
        return error_prefix(err, "X-Vertex-Ai-Triton-Redirect");
    }
    switch (redirection_of(path.resource)) {
    case REDIRECT_READS:
        head->method = STR("GET");
        return ST_OK;
    case REDIRECT_POSTS:
        return path.resource == V2_MODEL_INFER ? add_header_length(api->platform, exchange, err)
                                               : ST_OK;
    case REDIRECT_IS_REFUSED:
        break;
    }
    return error_set(err, ST_RESTRICTED,
                     "X-Vertex-Ai-Triton-Redirect: %.*s changes the server, and is served at its "
                     "own path alone",
                     STR_ARG(where));
}

/* ---- for routes.c and infer.c ---------------------------------------------------------------- */

bool http_platform_route(const struct http_api *api, struct http_exchange *exchange) {
    const struct http_platform *platform = api->platform;
    struct http_head *head = &exchange->head;
    struct str where;
    struct error err;
    enum status st = ST_OK;
    if (str_is(head->path, platform->health_route)) {
        head->path = strcmp(platform->health, "live") == 0 ? STR("/v2/health/live")
                                                           : STR("/v2/health/ready");
    } else if (str_is(head->path, platform->predict_route)) {
        bool redirects = platform->kind == HTTP_PLATFORM_VERTEX_AI &&
                         http_head_find(head, STR("X-Vertex-Ai-Triton-Redirect"), &where) > 0;
        struct str model = STR("");
        st = redirects ? redirect(api, exchange, where, &err) : find_model(api, &model, &err);
        if (st == ST_OK && !redirects) {
            st = route_inference(api, exchange, model, platform->inference, &err);
        }
    } else if (http_models_is_invoke(platform, head->path)) {
        struct str model = STR("");
        st = http_models_find(api, exchange, &model, &err);
        if (st == ST_OK) {
            st = route_inference(api, exchange, model, "infer", &err);
        }
    }
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    }
    return st == ST_OK;
}

const char *http_platform_binary_type(const struct http_api *api,
                                      const struct http_exchange *exchange, size_t json_bytes) {
    struct str target = exchange->head.target;
    struct str path = str_cut(&target, '?');
    if (!api->platform || (!str_is(path, api->platform->predict_route) &&
                           !http_models_is_invoke(api->platform, path))) {
        return NULL;
    }
    return arena_printf(exchange->arena, "%.*s%zu", STR_ARG(binary_type(api->platform)), json_bytes)
        .ptr;
}
