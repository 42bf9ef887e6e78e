/* SageMaker's multi-model endpoints: the platform downloads models while the server runs, registers
 * each by its directory, and unloads those that have not been asked for, to make room.
 *
 *     POST /models               {"model_name": NAME, "url": DIRECTORY}
 *     GET /models                a list, in pages
 *     GET /models/NAME, DELETE /models/NAME
 *     POST /models/NAME/invoke   an inference: platform.c
 *
 * The platform goes by the status: 409, the model is loaded already; 404, it is not; 507, there is
 * no memory for it, so that others are unloaded first. */
#include <string.h>

#include "codec/kserve/repository.h"
#include "core/base/compiler.h"
#include "core/base/json_writer.h"
#include "serve/frontend/http/coding.h"
#include "serve/frontend/http/routes.h"

/* ---- paths ----------------------------------------------------------------------------------- */

/* Returns: whether the path is /models, or below it; *rest: what follows "/models/". */
static bool is_below_root(const struct http_platform *platform, struct str path, struct str *rest) {
    struct str root = STR("/models");
    if (!platform->models || !str_starts_with(path, root)) {
        return false;
    }
    *rest = str_make(path.ptr + root.len, path.len - root.len);
    bool is = rest->len == 0 || rest->ptr[0] == '/';
    if (is && rest->len > 0) {
        *rest = str_make(rest->ptr + 1, rest->len - 1);
    }
    return is;
}

/* NAME of NAME/invoke. Returns: false for others. */
static bool cut_invoke(struct str rest, struct str *name) {
    struct str invoke = STR("/invoke");
    if (!str_ends_with(rest, invoke) || rest.len <= invoke.len) {
        return false;
    }
    *name = str_make(rest.ptr, rest.len - invoke.len);
    return !memchr(name->ptr, '/', name->len);
}

bool http_models_is_invoke(const struct http_platform *platform, struct str path) {
    struct str rest, name;
    return is_below_root(platform, path, &rest) && cut_invoke(rest, &name);
}

static enum status error_not_loaded(struct str name, struct error *err) {
    return error_set(err, ST_UNKNOWN_MODEL, "model \"%.*s\" is not loaded", STR_ARG(name));
}

enum status http_models_find(const struct http_api *api, const struct http_exchange *exchange,
                             struct str *out, struct error *err) {
    struct str rest, escaped = STR("");
    if (!is_below_root(api->platform, exchange->head.path, &rest) || !cut_invoke(rest, &escaped)) {
        return error_set(err, ST_NOT_FOUND, "no such path");
    }
    enum status st = v2_path_unescape(exchange->arena, escaped, out, err);
    if (st != ST_OK) {
        return st;
    }
    return repository_registered_url(api->services.repository, *out).ptr
               ? ST_OK
               : error_not_loaded(*out, err);
}

bool http_models_match(const struct http_api *api, const struct http_exchange *exchange,
                       struct http_models_call *out) {
    struct str rest, method = exchange->head.method;
    struct error ignored;
    if (!is_below_root(api->platform, exchange->head.path, &rest) ||
        memchr(rest.ptr, '/', rest.len) ||
        v2_path_unescape(exchange->arena, rest, &out->name, &ignored) != ST_OK) {
        return false;
    }
    bool reads = !str_is(method, "POST") && !str_is(method, "DELETE");
    out->group = reads ? KEYS_METADATA : KEYS_CONTROL;
    out->methods = rest.len == 0 ? HTTP_READ_OR_POST : HTTP_READ_OR_DELETE;
    return true;
}

/* ---- what is loaded -------------------------------------------------------------------------- */

/* Models of one answer; the next one begins after the last of them. */
enum { PAGE_ENTRIES = 500 };

struct page {
    struct json_writer json;
    struct str after; /* names up to this one were sent before */
    struct str last;  /* in this page; ptr NULL: none */
    size_t n;
    bool has_more;
};

static void write_model(struct json_writer *json, struct str name, struct str url) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "modelName", name);
    json_write_string(json, "modelUrl", url);
    json_write_close(json, '}');
}

/* Names come in their order, each with all of its versions. */
static void add_model(void *user, const struct repository_entry *entry) {
    struct page *page = user;
    if (!entry->registered_url || entry->phase != REPOSITORY_READY ||
        (page->last.ptr && str_eq(page->last, entry->model)) ||
        str_compare(entry->model, page->after) <= 0) {
        return;
    }
    if (page->n == PAGE_ENTRIES) {
        page->has_more = true;
        return;
    }
    page->n++;
    page->last = entry->model;
    write_model(&page->json, entry->model, str_of(entry->registered_url));
}

/* The value of next_page_token. */
static enum status find_token(struct http_exchange *exchange, struct str *out, struct error *err) {
    struct str rest = exchange->head.query;
    *out = STR("");
    while (rest.len > 0) {
        struct str pair = str_cut(&rest, '&');
        struct str name = str_cut(&pair, '=');
        if (str_is(name, "next_page_token") && pair.ptr) {
            return v2_path_unescape(exchange->arena, pair, out, err);
        }
    }
    return ST_OK;
}

static void answer_list(struct http_api *api, struct http_exchange *exchange) {
    struct buf body;
    struct error err;
    struct page page = {.json = {.out = &body}};
    if (find_token(exchange, &page.after, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    buf_init(&body, exchange->arena, 1024);
    json_write_open(&page.json, JSON_ELEMENT, '{');
    json_write_open(&page.json, "models", '[');
    repository_visit(api->services.repository, add_model, &page);
    json_write_close(&page.json, ']');
    if (page.has_more) {
        json_write_string(&page.json, "nextPageToken", page.last);
    }
    json_write_close(&page.json, '}');
    http_json_reply(exchange, 200, &body);
}

static void answer_model(struct http_api *api, struct http_exchange *exchange, struct str name) {
    struct str url = repository_registered_url(api->services.repository, name);
    struct buf body;
    struct json_writer json = {.out = &body};
    if (!url.ptr) {
        struct error err;
        error_not_loaded(name, &err);
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    buf_init(&body, exchange->arena, 256);
    write_model(&json, name, url);
    http_json_reply(exchange, 200, &body);
}

/* ---- load and unload ------------------------------------------------------------------------- */

/* Lives in the exchange's arena, which is freed after the response. A client that disconnects does
 * not cancel the change. */
struct models_change {
    struct repository_change change;
    struct http_exchange *exchange;
    struct http_api *api;
};

/* Libraries say it in words only. */
static bool is_lack_of_memory(const struct error *err) {
    static const char *const words[] = {
        "out of memory", "outofmemory", "failed to allocate memory", "cannot allocate memory",
        "bad_alloc",     "memoryerror", "no space left on device"};
    bool is = err->status == ST_NO_MEMORY;
    for (size_t i = 0; !is && i < sizeof(words) / sizeof(*words); i++) {
        is = strcasestr(err->text, words[i]) != NULL;
    }
    return is;
}

static void on_done(struct repository_change *change) {
    struct models_change *self = CONTAINER_OF(change, struct models_change, change);
    struct error *err = &change->error;
    if (err->status == ST_OK) {
        http_reply(self->exchange, &(struct http_reply){.status = 200});
        return;
    }
    if (change->action == REPOSITORY_LOAD && is_lack_of_memory(err)) {
        err->status = ST_NO_MODEL_MEMORY;
    }
    http_reply_error(self->exchange, err, NULL, 0);
}

/* The directory has to be below that of the setting, without the way back out of it. */
static enum status check_url(const char *models, struct str url, struct error *err) {
    struct str root = str_of(models), rest = url;
    bool is_below = url.len > root.len && str_starts_with(url, root) &&
                    (url.ptr[root.len] == '/' || root.ptr[root.len - 1] == '/');
    while (is_below && rest.ptr) {
        is_below = !str_is(str_cut(&rest, '/'), "..");
    }
    return is_below && !memchr(url.ptr, '\0', url.len)
               ? ST_OK
               : error_set(err, ST_BAD_FIELD, "url: expected a directory below %s, got \"%.*s\"",
                           models, (int)(url.len > 200 ? 200 : url.len), url.ptr);
}

static enum status decode_load(struct models_change *self, struct error *err) {
    struct http_exchange *exchange = self->exchange;
    struct str url = STR("");
    enum status st =
        multi_model_load_decode(exchange->arena, exchange->body, &self->api->services.limits,
                                &self->change.model, &url, err);
    if (st == ST_OK) {
        st = check_url(self->api->platform->models, url, err);
    }
    if (st != ST_OK) {
        return st;
    }
    while (url.len > 1 && url.ptr[url.len - 1] == '/') {
        url.len--;
    }
    self->change.directory = arena_dup(exchange->arena, url).ptr;
    return self->change.directory ? ST_OK : error_no_memory(err, "the request");
}

static void on_body(struct http_exchange *exchange, void *context) {
    struct http_api *api = context;
    struct models_change *self = exchange->user;
    struct error err;
    if (self->change.action == REPOSITORY_LOAD && decode_load(self, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    repository_change(api->services.repository, &self->change);
}

static const struct http_handler change_handler = {.on_body = on_body};

static void begin_change(struct http_api *api, struct http_exchange *exchange, struct str name) {
    struct error err;
    struct models_change *self = arena_calloc(exchange->arena, 1, sizeof(*self));
    if (!self) {
        error_no_memory(&err, "the request");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    if (http_coding_of_body(&exchange->head, &exchange->plan.coding, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    bool is_load = str_is(exchange->head.method, "POST");
    *self = (struct models_change){
        .change = {.action = is_load ? REPOSITORY_LOAD : REPOSITORY_UNLOAD,
                   .model = name,
                   .unregister = !is_load,
                   .worker = exchange->worker,
                   .done = on_done},
        .exchange = exchange,
        .api = api,
    };
    http_limit_body(exchange);
    exchange->user = self;
    exchange->handler = &change_handler;
}

void http_models_begin(struct http_api *api, struct http_exchange *exchange,
                       const struct http_models_call *call) {
    struct str method = exchange->head.method;
    if (str_is(method, "POST") || str_is(method, "DELETE")) {
        begin_change(api, exchange, call->name);
    } else if (call->name.len > 0) {
        answer_model(api, exchange, call->name);
    } else {
        answer_list(api, exchange);
    }
}
