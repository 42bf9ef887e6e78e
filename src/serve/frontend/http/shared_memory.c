/* The system shared memory extension over HTTP. Requests are answered at once, when the body is
 * complete. */
#include "serve/frontend/http/routes.h"

#include "serve/frontend/http/coding.h"
#include "serve/frontend/shm_registry.h"
#include "telemetry/admin/http_text.h"

/* Lives in the exchange's arena. */
struct http_memory {
    struct str name;
    bool registers;
};

/* ---- status ---------------------------------------------------------------------------------- */

static void add_region(void *user, const struct v2_shared_memory_region *region) {
    struct json_writer *json = user;
    v2_shared_memory_write(json, region);
}

void http_memory_answer_status(struct http_api *api, struct http_exchange *exchange,
                               const struct v2_path *path) {
    struct error err;
    struct buf body;
    struct json_writer json = {.out = &body};
    buf_init(&body, exchange->arena, 256);
    json_write_open(&json, JSON_ELEMENT, '[');
    if (shm_visit_regions(api->services.shared, path->region, add_region, &json, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    json_write_close(&json, ']');
    http_json_reply(exchange, 200, &body);
}

/* ---- register, unregister -------------------------------------------------------------------- */

static void on_body(struct http_exchange *exchange, void *context) {
    const struct http_api *api = context;
    const struct http_memory *self = exchange->user;
    struct v2_shared_memory_region region;
    struct error err;
    enum status st = ST_OK;
    if (self->registers) {
        st = v2_shared_memory_register_decode(exchange->arena, exchange->body,
                                              &api->services.limits, &region, &err);
        region.name = self->name;
        st = st == ST_OK ? shm_register_region(api->services.shared, &region, &err) : st;
    } else {
        st = shm_unregister_region(api->services.shared, self->name, &err);
    }
    if (st != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
    } else {
        http_reply(exchange, &(struct http_reply){.status = 200});
    }
}

static const struct http_handler change_handler = {.on_body = on_body};

void http_memory_begin(struct http_api *api, struct http_exchange *exchange,
                       const struct v2_path *path) {
    struct error err;
    (void)api;
    struct http_memory *self = arena_calloc(exchange->arena, 1, sizeof(*self));
    if (!self) {
        error_no_memory(&err, "the request");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    *self = (struct http_memory){.name = path->region,
                                 .registers = path->resource == V2_SHARED_MEMORY_REGISTER};
    if (http_coding_of_body(&exchange->head, &exchange->plan.coding, &err) != ST_OK) {
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    http_limit_body(exchange);
    exchange->user = self;
    exchange->handler = &change_handler;
}
