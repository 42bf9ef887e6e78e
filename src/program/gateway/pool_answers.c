/* Requests that wait for the picker's status, and those that wait for lists of models. */
#include "program/gateway/pool_answers.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/base/doc/doc.h"
#include "core/base/json_writer.h"
#include "core/event/clock.h"
#include "core/must/must.h"
#include "telemetry/admin/http_text.h"

#define MS UINT64_C(1000000)
static const uint64_t STATUS_NS = 500 * MS;
static const uint64_t STATUS_TIMEOUT_NS = 5000 * MS;
static const uint64_t MODELS_TIMEOUT_NS = 5000 * MS;

enum {
    MOST_STATUS_BYTES = 64 << 20,
    MOST_MODELS_BYTES = 4 << 20, /* of one endpoint */
    MOST_FETCHES = 16,           /* of different clients at a time */
};

static void reply_error(struct http_exchange *exchange, enum status status, const char *why) {
    struct error err;
    error_set(&err, status, "%s", why);
    http_reply_error(exchange, &err, NULL, 0);
}

/* ---- the picker's status --------------------------------------------------------------------- */

struct status_waiter {
    STAILQ_ENTRY(status_waiter) link;
    void (*run)(struct status_waiter *waiter, struct pool_answers *self);
    struct http_exchange *exchange; /* of a health check */
};

static void forget_status(struct pool_answers *self) {
    arena_free(self->arena);
    self->arena = NULL;
    self->endpoints = NULL;
    self->n_endpoints = self->n_ready = 0;
}

static bool doc_text_is(const struct doc_node *node, const char *text) {
    return json_text_is(node->val, text);
}

static void add_endpoint(struct pool_answers *self, const struct doc_node *item) {
    struct doc_node address = doc_get(item, "address"), state = doc_get(item, "state");
    struct pool_answers_endpoint *endpoint = &self->endpoints[self->n_endpoints];
    endpoint->address = arena_dup(self->arena, json_text(address.val)).ptr;
    endpoint->is_ready = doc_text_is(&state, "ready") || doc_text_is(&state, "shedding");
    endpoint->is_checked = !doc_text_is(&state, "not_ready") && !doc_text_is(&state, "unchecked");
    if (endpoint->address) {
        self->n_ready += endpoint->is_ready;
        self->n_endpoints++;
    }
}

static int compare_endpoints(const void *a, const void *b) {
    const struct pool_answers_endpoint *left = a, *right = b;
    return strcmp(left->address, right->address);
}

/* Takes the endpoints of all pools, in an order that stays. */
static void read_status(struct pool_answers *self, struct str text) {
    struct doc_node pool = {.doc = NULL}, item;
    struct error err;
    struct doc *doc = NULL;
    size_t n = 0;
    forget_status(self);
    if (doc_parse_answer("the picker's status", text, &doc, &err) != ST_OK) {
        return;
    }
    struct doc_node root = doc_root(doc), pools = doc_get(&root, "pools");
    while (doc_next(&pools, &pool)) {
        struct doc_node endpoints = doc_get(&pool, "endpoints");
        n += doc_count(&endpoints);
    }
    self->arena = must_arena_new("the endpoints");
    self->endpoints = arena_calloc(self->arena, n + 1, sizeof(*self->endpoints));
    while (doc_next(&pools, &pool)) {
        struct doc_node endpoints = doc_get(&pool, "endpoints");
        item = (struct doc_node){.doc = NULL};
        while (doc_next(&endpoints, &item)) {
            add_endpoint(self, &item);
        }
    }
    qsort(self->endpoints, self->n_endpoints, sizeof(*self->endpoints), compare_endpoints);
    self->known_ns = clock_now_ns();
    doc_free(doc);
}

static void run_waiters(struct pool_answers *self) {
    struct status_waiter *waiter;
    while ((waiter = STAILQ_FIRST(&self->waiters)) != NULL) {
        STAILQ_REMOVE_HEAD(&self->waiters, link);
        waiter->run(waiter, self);
    }
}

static void on_status(void *user, const struct http_fetch_result *fetched) {
    struct pool_answers *self = user;
    self->fetching = false;
    if (fetched->error.status == ST_OK && fetched->status == 200) {
        read_status(self, fetched->body);
    } else { /* Envoy does not run, or not yet */
        forget_status(self);
    }
    run_waiters(self);
}

/* Runs the waiter once the status is known, or can't be. */
static void wait_for_status(struct pool_answers *self, struct status_waiter *waiter) {
    struct http_fetch_request request = {.url = "http://localhost/status.json",
                                         .unix_socket = self->picker_socket,
                                         .timeout_ns = STATUS_TIMEOUT_NS,
                                         .max_body_size = MOST_STATUS_BYTES,
                                         .done = on_status,
                                         .user = self};
    struct error err;
    if (self->arena && clock_between_ns(self->known_ns, clock_now_ns()) < STATUS_NS) {
        waiter->run(waiter, self);
        return;
    }
    STAILQ_INSERT_TAIL(&self->waiters, waiter, link);
    if (self->fetching) {
        return;
    }
    self->fetching =
        !self->stopping && http_fetch_start(self->fetcher, &request, NULL, &err) == ST_OK;
    if (!self->fetching) {
        forget_status(self);
        run_waiters(self);
    }
}

/* ---- health ---------------------------------------------------------------------------------- */

void pool_answers_live(struct pool_answers *self, struct http_exchange *exchange) {
    (void)self;
    http_reply(exchange, &(struct http_reply){.status = 200});
}

static void answer_ready(struct status_waiter *waiter, struct pool_answers *self) {
    if (self->n_ready > 0) {
        http_reply(waiter->exchange, &(struct http_reply){.status = 200});
    } else {
        reply_error(waiter->exchange, ST_NOT_READY, "no endpoint of the gateway is ready");
    }
}

void pool_answers_ready(struct pool_answers *self, struct http_exchange *exchange) {
    struct status_waiter *waiter = arena_calloc(exchange->arena, 1, sizeof(*waiter));
    if (!waiter) {
        reply_error(exchange, ST_NO_MEMORY, "out of memory for a health check");
        return;
    }
    waiter->run = answer_ready;
    waiter->exchange = exchange;
    wait_for_status(self, waiter);
}

/* ---- lists of models ------------------------------------------------------------------------- */

/* A client that waits; in its exchange's arena. */
struct models_waiter {
    STAILQ_ENTRY(models_waiter) link;
    struct http_exchange *exchange;
};

/* The answer of an endpoint. */
struct models_answer {
    struct models_fetch *fetch;
    struct doc *doc; /* NULL: no list */
};

struct models_fetch {
    LIST_ENTRY(models_fetch) link;
    struct status_waiter status;
    struct pool_answers *pool;
    struct arena *arena;
    const char *authorization; /* "Authorization: …"; NULL: without */
    STAILQ_HEAD(, models_waiter) waiters;
    struct models_answer *answers; /* of each endpoint, in their order */
    size_t n_answers, n_left;
    int refusal;             /* the status of an endpoint that has no list; 0: none */
    struct str refusal_text; /* and its body */
};

/* Is there a pool that takes requests for the model? */
static bool is_admitted(const struct pool_specs *specs, struct str id) {
    for (size_t i = 0; i < specs->n; i++) {
        const struct pool_spec *spec = specs->items[i];
        bool admitted = !spec->strict_models;
        for (size_t k = 0; k < spec->n_models && !admitted; k++) {
            admitted = str_eq(spec->models[k].name, id);
        }
        if (admitted) {
            return true;
        }
    }
    return specs->n == 0;
}

static bool has_model(const struct doc_node *const *models, size_t n, struct str id) {
    for (size_t i = 0; i < n; i++) {
        struct doc_node other = doc_get(models[i], "id");
        if (str_eq(json_text(other.val), id)) {
            return true;
        }
    }
    return false;
}

/* Appends the models of an answer that are not in the list yet. */
static void add_models(struct models_fetch *fetch, const struct doc *doc,
                       const struct pool_specs *specs, struct json_writer *json,
                       const struct doc_node **seen, size_t *n_seen) {
    struct doc_node *root = arena_calloc(fetch->arena, 2, sizeof(*root)), item = {.doc = NULL};
    root[0] = doc_root(doc);
    root[1] = doc_get(&root[0], "data");
    while (doc_next(&root[1], &item)) {
        struct doc_node id = doc_get(&item, "id");
        if (!doc_is_text(&id) || has_model(seen, *n_seen, json_text(id.val))) {
            continue;
        }
        struct doc_node *kept = arena_calloc(fetch->arena, 1, sizeof(*kept));
        *kept = item;
        seen[(*n_seen)++] = kept;
        if (is_admitted(specs, json_text(id.val))) {
            json_write_value(json, JSON_ELEMENT, item.val);
        }
    }
}

/* Appends the names that a pool replaces by that of a model which an endpoint has. */
static void add_replaced(const struct pool_spec *spec, struct json_writer *json,
                         const struct doc_node *const *seen, size_t n_seen) {
    for (size_t i = 0; i < spec->n_models; i++) {
        const struct pool_model *model = &spec->models[i];
        size_t k = 0;
        while (k < model->targets.n && !has_model(seen, n_seen, model->targets.items[k].model)) {
            k++;
        }
        if (k == model->targets.n || has_model(seen, n_seen, model->name)) {
            continue;
        }
        json_write_open(json, JSON_ELEMENT, '{');
        json_write_string(json, "id", model->name);
        json_write_string(json, "object", STR("model"));
        json_write_string(json, "owned_by", STR("sluice"));
        json_write_string(json, "root", model->targets.items[k].model);
        json_write_close(json, '}');
    }
}

static void print_models(struct models_fetch *fetch, struct buf *out) {
    struct json_writer json = {.out = out};
    struct pool_specs specs = {.n = 0};
    struct error err;
    size_t n = 0, n_seen = 0;
    if (gateway_settings_read_pools(fetch->pool->settings, &specs, &err) != ST_OK) {
        specs = (struct pool_specs){.n = 0}; /* the file is being changed, or invalid */
    }
    for (size_t i = 0; i < fetch->n_answers; i++) {
        struct doc_node root = {.doc = NULL};
        if (fetch->answers[i].doc) {
            root = doc_root(fetch->answers[i].doc);
            struct doc_node data = doc_get(&root, "data");
            n += doc_count(&data);
        }
    }
    const struct doc_node **seen = arena_calloc(fetch->arena, n + 1, sizeof(struct doc_node *));
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "object", STR("list"));
    json_write_open(&json, "data", '[');
    for (size_t i = 0; i < fetch->n_answers; i++) {
        if (fetch->answers[i].doc) {
            add_models(fetch, fetch->answers[i].doc, &specs, &json, seen, &n_seen);
        }
    }
    for (size_t i = 0; i < specs.n; i++) {
        add_replaced(specs.items[i], &json, seen, n_seen);
    }
    pool_specs_free(&specs);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
}

static bool has_list(const struct models_fetch *fetch) {
    for (size_t i = 0; i < fetch->n_answers; i++) {
        if (fetch->answers[i].doc) {
            return true;
        }
    }
    return false;
}

/* Replies to all clients that wait. */
static void finish_models(struct models_fetch *fetch) {
    struct models_waiter *waiter;
    struct buf list;
    bool found = has_list(fetch);
    buf_init(&list, fetch->arena, 0);
    if (found) {
        print_models(fetch, &list);
    } else {
        buf_add_str(&list, fetch->refusal_text);
    }
    while ((waiter = STAILQ_FIRST(&fetch->waiters)) != NULL) {
        STAILQ_REMOVE_HEAD(&fetch->waiters, link);
        if (!found && fetch->refusal == 0) {
            reply_error(waiter->exchange, ST_NO_ENDPOINT,
                        "no endpoint of the gateway has sent its list of models");
            continue;
        }
        struct buf body;
        buf_init(&body, waiter->exchange->arena, list.len + 1);
        buf_add_str(&body, buf_str(&list));
        http_json_reply(waiter->exchange, found ? 200 : fetch->refusal, &body);
    }
    for (size_t i = 0; i < fetch->n_answers; i++) {
        doc_free(fetch->answers[i].doc);
    }
    LIST_REMOVE(fetch, link);
    fetch->pool->n_fetches--;
    arena_free(fetch->arena);
}

/* Keeps a list; of other answers the first. */
static void take_models(struct models_answer *answer, const struct http_fetch_result *fetched) {
    struct models_fetch *fetch = answer->fetch;
    struct error err;
    if (fetched->error.status != ST_OK) {
        return;
    }
    if (fetched->status == 200) {
        if (doc_parse_answer("a list of models", fetched->body, &answer->doc, &err) != ST_OK) {
            answer->doc = NULL;
        }
    } else if (fetch->refusal == 0 && fetched->status >= 400) {
        fetch->refusal = fetched->status;
        fetch->refusal_text = arena_dup(fetch->arena, fetched->body);
    }
}

static void end_answer(struct models_fetch *fetch) {
    if (--fetch->n_left == 0) {
        finish_models(fetch);
    }
}

static void on_models(void *user, const struct http_fetch_result *fetched) {
    struct models_answer *answer = user;
    take_models(answer, fetched);
    end_answer(answer->fetch);
}

static void ask_endpoint(struct models_fetch *fetch, const char *address) {
    struct models_answer *answer = &fetch->answers[fetch->n_answers++];
    struct http_fetch_request request = {
        .url = arena_printf(fetch->arena, "http://%s/v1/models", address).ptr,
        .timeout_ns = MODELS_TIMEOUT_NS,
        .fields = &fetch->authorization,
        .n_fields = fetch->authorization != NULL,
        .max_body_size = MOST_MODELS_BYTES,
        .done = on_models,
        .user = answer};
    struct error err;
    answer->fetch = fetch;
    if (!fetch->pool->stopping &&
        http_fetch_start(fetch->pool->fetcher, &request, NULL, &err) == ST_OK) {
        fetch->n_left++;
    }
}

/* The status is known: every endpoint that does not fail its health check is asked. */
static void ask_endpoints(struct status_waiter *waiter, struct pool_answers *self) {
    struct models_fetch *fetch = CONTAINER_OF(waiter, struct models_fetch, status);
    fetch->answers = arena_calloc(fetch->arena, self->n_endpoints + 1, sizeof(*fetch->answers));
    fetch->n_left = 1; /* this function */
    for (size_t i = 0; i < self->n_endpoints; i++) {
        if (self->endpoints[i].is_checked) {
            ask_endpoint(fetch, self->endpoints[i].address);
        }
    }
    end_answer(fetch);
}

static bool is_same(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

void pool_answers_models(struct pool_answers *self, struct http_exchange *exchange) {
    struct models_waiter *waiter = arena_calloc(exchange->arena, 1, sizeof(*waiter));
    struct str key;
    const char *authorization = NULL;
    if (http_head_find(&exchange->head, STR("Authorization"), &key) == 1) {
        authorization = arena_printf(exchange->arena, "Authorization: %.*s", STR_ARG(key)).ptr;
    }
    if (!waiter) {
        reply_error(exchange, ST_NO_MEMORY, "out of memory for the list of models");
        return;
    }
    waiter->exchange = exchange;
    struct models_fetch *fetch;
    LIST_FOREACH(fetch, &self->fetches, link) {
        if (is_same(fetch->authorization, authorization)) {
            STAILQ_INSERT_TAIL(&fetch->waiters, waiter, link);
            return;
        }
    }
    if (self->n_fetches >= MOST_FETCHES) {
        reply_error(exchange, ST_OVERLOADED, "too many lists of models are being fetched");
        return;
    }
    struct arena *arena = must_arena_new("a list of models");
    fetch = arena_calloc(arena, 1, sizeof(*fetch));
    fetch->arena = arena;
    fetch->pool = self;
    fetch->status.run = ask_endpoints;
    fetch->authorization = authorization ? arena_dup(arena, str_of(authorization)).ptr : NULL;
    STAILQ_INIT(&fetch->waiters);
    STAILQ_INSERT_TAIL(&fetch->waiters, waiter, link);
    LIST_INSERT_HEAD(&self->fetches, fetch, link);
    self->n_fetches++;
    wait_for_status(self, &fetch->status);
}

/* ---- start and end --------------------------------------------------------------------------- */

void pool_answers_init(struct pool_answers *self, const struct gateway_settings *settings,
                       struct http_fetcher *fetcher, const char *picker_socket) {
    self->settings = settings;
    self->fetcher = fetcher;
    self->picker_socket = picker_socket;
    STAILQ_INIT(&self->waiters);
    LIST_INIT(&self->fetches);
}

void pool_answers_free(struct pool_answers *self) {
    forget_status(self);
}
