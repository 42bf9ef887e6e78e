/* The system shared memory extension over HTTP. */
#include "serve/frontend/http/routes.h"

#include "serve/frontend/shm_registry.h"

static void add_region(void *user, const struct v2_shared_memory_region *region) {
    struct json_writer *json = user;
    v2_shared_memory_write(json, region);
}

enum status http_answer_memory_status(struct http_api *api, struct http_exchange *exchange,
                                      const struct v2_path *path, struct buf *out,
                                      struct error *err) {
    struct json_writer json = {.out = out};
    (void)exchange;
    json_write_open(&json, JSON_ELEMENT, '[');
    enum status st = shm_visit_regions(api->services.shared, path->region, add_region, &json, err);
    json_write_close(&json, ']');
    return st;
}

enum status http_answer_memory_register(struct http_api *api, struct http_exchange *exchange,
                                        const struct v2_path *path, struct buf *out,
                                        struct error *err) {
    struct v2_shared_memory_region region;
    (void)out;
    enum status st = v2_shared_memory_register_decode(exchange->arena, exchange->body,
                                                      &api->services.limits, &region, err);
    region.name = path->region;
    return st == ST_OK ? shm_register_region(api->services.shared, &region, err) : st;
}

enum status http_answer_memory_unregister(struct http_api *api, struct http_exchange *exchange,
                                          const struct v2_path *path, struct buf *out,
                                          struct error *err) {
    (void)exchange, (void)out;
    return shm_unregister_region(api->services.shared, path->region, err);
}
