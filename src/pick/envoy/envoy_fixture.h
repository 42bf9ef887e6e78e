/* A simulated Envoy for tests: the functions that the module calls, on filters whose bytes are in
 * memory of exactly their size. It moves a request's body on as Envoy does: what a filter stops is
 * buffered, and goes on with what it lets pass; what comes while a filter has stopped everything
 * reaches that filter when it continues. Include cmocka.h before, or define its assertions. */
#ifndef SLUICE_PICK_ENVOY_ENVOY_FIXTURE_H
#define SLUICE_PICK_ENVOY_ENVOY_FIXTURE_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/num.h"
#include "pick/envoy/stream.h"

enum { FAKE_HEADERS = 64, FAKE_SET = 32 };

struct fake_header {
    struct str key, value; /* value ptr NULL: removed */
};

struct fake_envoy {
    struct arena *arena;
    struct envoy_stream *stream;
    struct fake_header given[FAKE_HEADERS];
    size_t n_given;
    struct fake_header set[FAKE_SET]; /* by the module */
    size_t n_set;
    char *received; /* from malloc; of the present call */
    size_t n_received;
    bool is_received;
    size_t piece_bytes; /* 0: FAKE_PIECE */
    struct buf buffered, upstream;
    bool is_headers_sent, is_end_sent;
    bool is_end;                 /* the request has ended, and is buffered */
    bool is_stopped_all;         /* nothing reaches the filter until it continues */
    bool has_body, has_trailers; /* with it: what will */
    const char *subset;          /* metadata of the proxy's subset hint; NULL: none */
    const char *details;         /* response.code_details; NULL: unknown */
    const char *served;          /* upstream.address; NULL: unknown */
    uint64_t n_attempts;         /* upstream.request_attempt_count; 0: unknown */
    char destination[64];        /* of set_upstream_override_host */
    unsigned status;             /* of the module's reply; 0: none */
    uint64_t grpc_status;
    struct str body;
    bool destroys_on_reply;
    bool is_destroyed;
    unsigned n_continues;
    atomic_uint n_scheduled;
    unsigned n_schedulers;
};

static inline struct envoy_text fake_text(struct str text) {
    return (struct envoy_text){text.ptr, text.len};
}

static inline bool fake_is(struct envoy_text text, const char *what) {
    return str_is(str_make(text.ptr, text.n_bytes), what);
}

uint32_t envoy_dynamic_module_callback_http_filter_get_worker_index(void *filter) {
    (void)filter;
    return 0;
}

size_t envoy_dynamic_module_callback_http_get_headers_size(void *filter,
                                                           enum envoy_header_map map) {
    const struct fake_envoy *fake = filter;
    (void)map;
    return fake->n_given;
}

bool envoy_dynamic_module_callback_http_get_headers(void *filter, enum envoy_header_map map,
                                                    struct envoy_header *out) {
    const struct fake_envoy *fake = filter;
    (void)map;
    for (size_t i = 0; i < fake->n_given; i++) {
        out[i] = (struct envoy_header){fake->given[i].key.ptr, fake->given[i].key.len,
                                       fake->given[i].value.ptr, fake->given[i].value.len};
    }
    return true;
}

bool envoy_dynamic_module_callback_http_set_header(void *filter, enum envoy_header_map map,
                                                   struct envoy_text key, struct envoy_text value) {
    struct fake_envoy *fake = filter;
    (void)map;
    assert_false(fake->is_destroyed);
    assert_true(fake->n_set < FAKE_SET);
    fake->set[fake->n_set++] = (struct fake_header){
        arena_dup(fake->arena, str_make(key.ptr, key.n_bytes)),
        value.ptr ? arena_dup(fake->arena, str_make(value.ptr, value.n_bytes)) : str_make(NULL, 0)};
    return true;
}

size_t envoy_dynamic_module_callback_http_get_body_size(void *filter, enum envoy_body body) {
    struct fake_envoy *fake = filter;
    return body == ENVOY_BUFFERED_REQUEST_BODY ? fake->buffered.len
                                               : (fake->is_received ? fake->n_received : 0);
}

/* Pieces of at most 7 bytes, or of `piece_bytes`. */
enum { FAKE_PIECE = 7 };
static inline size_t fake_piece_bytes(const struct fake_envoy *fake) {
    return fake->piece_bytes > 0 ? fake->piece_bytes : FAKE_PIECE;
}

size_t envoy_dynamic_module_callback_http_get_body_chunks_size(void *filter, enum envoy_body body) {
    size_t n = envoy_dynamic_module_callback_http_get_body_size(filter, body);
    return (n + fake_piece_bytes(filter) - 1) / fake_piece_bytes(filter);
}

bool envoy_dynamic_module_callback_http_get_body_chunks(void *filter, enum envoy_body body,
                                                        struct envoy_text *out) {
    struct fake_envoy *fake = filter;
    size_t n = envoy_dynamic_module_callback_http_get_body_size(filter, body);
    const char *bytes = body == ENVOY_BUFFERED_REQUEST_BODY ? fake->buffered.data : fake->received;
    size_t most = fake_piece_bytes(fake);
    for (size_t at = 0; at < n; at += most) {
        *out++ = (struct envoy_text){bytes + at, n - at < most ? n - at : most};
    }
    return n > 0;
}

bool envoy_dynamic_module_callback_http_append_body(void *filter, enum envoy_body body,
                                                    struct envoy_text data) {
    struct fake_envoy *fake = filter;
    if (body == ENVOY_BUFFERED_REQUEST_BODY) {
        buf_add(&fake->buffered, data.ptr, data.n_bytes);
        return true;
    }
    assert_true(fake->is_received);
    fake->received = realloc(fake->received, fake->n_received + data.n_bytes);
    memcpy(fake->received + fake->n_received, data.ptr, data.n_bytes);
    fake->n_received += data.n_bytes;
    return true;
}

bool envoy_dynamic_module_callback_http_drain_body(void *filter, enum envoy_body body,
                                                   size_t n_bytes) {
    struct fake_envoy *fake = filter;
    size_t *n = body == ENVOY_BUFFERED_REQUEST_BODY ? &fake->buffered.len : &fake->n_received;
    assert_int_equal(n_bytes, *n); /* all of it, in this module */
    *n = 0;
    return true;
}

uint64_t envoy_dynamic_module_callback_http_get_buffer_limit(void *filter) {
    (void)filter;
    return UINT64_MAX;
}

void envoy_dynamic_module_callback_http_set_buffer_limit(void *filter, uint64_t n_bytes) {
    (void)filter;
    (void)n_bytes;
}

/* ---- metadata and attributes ----------------------------------------------------------------- */

size_t envoy_dynamic_module_callback_http_get_metadata_namespaces_count(
    void *filter, enum envoy_metadata_source source) {
    const struct fake_envoy *fake = filter;
    (void)source;
    return fake->subset != NULL;
}

bool envoy_dynamic_module_callback_http_get_metadata_namespaces(void *filter,
                                                                enum envoy_metadata_source source,
                                                                struct envoy_text *out) {
    (void)filter;
    (void)source;
    *out = fake_text(STR("envoy.lb.subset_hint"));
    return true;
}

size_t envoy_dynamic_module_callback_http_get_metadata_keys_count(void *filter,
                                                                  enum envoy_metadata_source source,
                                                                  struct envoy_text space) {
    (void)filter;
    (void)source;
    (void)space;
    return 2;
}

bool envoy_dynamic_module_callback_http_get_metadata_keys(void *filter,
                                                          enum envoy_metadata_source source,
                                                          struct envoy_text space,
                                                          struct envoy_text *out) {
    (void)filter;
    (void)source;
    (void)space;
    out[0] = fake_text(STR("a-struct"));
    out[1] = fake_text(STR("x-gateway-destination-endpoint-subset"));
    return true;
}

bool envoy_dynamic_module_callback_http_get_metadata_string(void *filter,
                                                            enum envoy_metadata_source source,
                                                            struct envoy_text space,
                                                            struct envoy_text key,
                                                            struct envoy_text *out) {
    (void)filter;
    (void)source;
    (void)space;
    (void)key;
    (void)out;
    return false;
}

bool envoy_dynamic_module_callback_http_get_metadata_number(void *filter,
                                                            enum envoy_metadata_source source,
                                                            struct envoy_text space,
                                                            struct envoy_text key, double *out) {
    (void)filter;
    (void)source;
    (void)space;
    (void)key;
    (void)out;
    return false;
}

bool envoy_dynamic_module_callback_http_get_metadata_list_size(void *filter,
                                                               enum envoy_metadata_source source,
                                                               struct envoy_text space,
                                                               struct envoy_text key, size_t *out) {
    (void)filter;
    (void)source;
    (void)space;
    *out = 2;
    return !fake_is(key, "a-struct");
}

/* The second item is no text. */
bool envoy_dynamic_module_callback_http_get_metadata_list_string(
    void *filter, enum envoy_metadata_source source, struct envoy_text space, struct envoy_text key,
    size_t index, struct envoy_text *out) {
    const struct fake_envoy *fake = filter;
    (void)source;
    (void)space;
    (void)key;
    *out = fake_text(str_of(fake->subset));
    return index == 0;
}

void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(void *filter,
                                                                    struct envoy_text space,
                                                                    struct envoy_text key,
                                                                    struct envoy_text value) {
    const struct fake_envoy *fake = filter;
    assert_false(fake->is_destroyed);
    assert_true(space.n_bytes > 0 && key.n_bytes > 0 && value.n_bytes > 0);
}

void envoy_dynamic_module_callback_http_set_dynamic_metadata_struct(void *filter,
                                                                    struct envoy_text space,
                                                                    struct envoy_text value) {
    const struct fake_envoy *fake = filter;
    assert_false(fake->is_destroyed);
    assert_true(space.n_bytes > 0 && value.n_bytes > 0);
}

bool envoy_dynamic_module_callback_http_filter_get_attribute_string(void *filter,
                                                                    enum envoy_attribute attribute,
                                                                    struct envoy_text *out) {
    const struct fake_envoy *fake = filter;
    const char *text = attribute == ENVOY_ATTRIBUTE_RESPONSE_DETAILS   ? fake->details
                       : attribute == ENVOY_ATTRIBUTE_UPSTREAM_ADDRESS ? fake->served
                                                                       : NULL;
    *out = fake_text(str_of(text ? text : ""));
    return text;
}

bool envoy_dynamic_module_callback_http_filter_get_attribute_int(void *filter,
                                                                 enum envoy_attribute attribute,
                                                                 uint64_t *out) {
    const struct fake_envoy *fake = filter;
    *out = fake->n_attempts;
    return attribute == ENVOY_ATTRIBUTE_UPSTREAM_ATTEMPTS && fake->n_attempts > 0;
}

bool envoy_dynamic_module_callback_http_set_upstream_override_host(void *filter,
                                                                   struct envoy_text host,
                                                                   bool strict) {
    struct fake_envoy *fake = filter;
    assert_false(strict);
    assert_true(host.n_bytes < sizeof(fake->destination));
    memcpy(fake->destination, host.ptr, host.n_bytes);
    fake->destination[host.n_bytes] = '\0';
    return true;
}

void envoy_dynamic_module_callback_http_clear_route_cache(void *filter) {
    (void)filter;
}

/* ---- replies, and going on ------------------------------------------------------------------- */

static inline void fake_destroy(struct fake_envoy *fake) {
    assert_false(fake->is_destroyed);
    fake->is_destroyed = true;
    envoy_stream_destroy(fake->stream);
}

/* The reply passes the filter, and may be the end of it. */
static inline void fake_pass_reply(struct fake_envoy *fake) {
    envoy_stream_on_response_headers(fake->stream, false);
    envoy_stream_on_response_body(fake->stream, true);
    if (fake->destroys_on_reply) {
        fake_destroy(fake);
    }
}

void envoy_dynamic_module_callback_http_send_response(void *filter, uint32_t status,
                                                      struct envoy_header *headers,
                                                      size_t n_headers, struct envoy_text body,
                                                      struct envoy_text details) {
    struct fake_envoy *fake = filter;
    assert_false(fake->is_destroyed);
    assert_int_equal(fake->status, 0);
    assert_true(n_headers == 0 || headers[0].n_key > 0);
    assert_true(details.n_bytes > 0);
    fake->status = status;
    fake->body = arena_dup(fake->arena, str_make(body.ptr, body.n_bytes));
    fake_pass_reply(fake);
}

void envoy_dynamic_module_callback_http_send_response_headers(void *filter,
                                                              struct envoy_header *headers,
                                                              size_t n_headers, bool is_end) {
    struct fake_envoy *fake = filter;
    assert_false(fake->is_destroyed);
    assert_true(is_end && n_headers >= 4);
    fake->status = 200;
    assert_true(num_parse_u64(str_make(headers[2].value, headers[2].n_value), &fake->grpc_status));
    fake_pass_reply(fake);
}

static inline void fake_pass_on(struct fake_envoy *fake) {
    fake->is_headers_sent = true;
    buf_add_str(&fake->upstream, buf_str(&fake->buffered));
    fake->buffered.len = 0;
    fake->is_end_sent = fake->is_end;
}

static inline enum envoy_body_status fake_send_body(struct fake_envoy *fake, struct str bytes,
                                                    bool is_end);
static inline enum envoy_trailers_status fake_send_trailers(struct fake_envoy *fake);

/* What came while everything was stopped. */
static inline void fake_release_all(struct fake_envoy *fake) {
    struct str bytes = arena_dup(fake->arena, buf_str(&fake->buffered));
    fake->is_stopped_all = false;
    fake->is_headers_sent = true;
    if (fake->has_body) {
        fake->buffered.len = 0;
        (void)fake_send_body(fake, bytes.ptr ? bytes : STR(""),
                             fake->is_end && !fake->has_trailers);
    } else {
        fake->is_end_sent = fake->is_end && !fake->has_trailers;
    }
    if (fake->has_trailers && !fake->is_destroyed && fake->status == 0) {
        (void)fake_send_trailers(fake);
    }
}

void envoy_dynamic_module_callback_http_filter_continue_decoding(void *filter) {
    struct fake_envoy *fake = filter;
    assert_false(fake->is_destroyed);
    fake->n_continues++;
    if (fake->is_stopped_all) {
        fake_release_all(fake);
    } else {
        fake_pass_on(fake);
    }
}

void *envoy_dynamic_module_callback_http_filter_scheduler_new(void *filter) {
    struct fake_envoy *fake = filter;
    fake->n_schedulers++;
    return fake;
}

void envoy_dynamic_module_callback_http_filter_scheduler_commit(void *scheduler, uint64_t event) {
    struct fake_envoy *fake = scheduler;
    (void)event;
    atomic_fetch_add(&fake->n_scheduled, 1);
}

void envoy_dynamic_module_callback_http_filter_scheduler_delete(void *scheduler) {
    struct fake_envoy *fake = scheduler;
    fake->n_schedulers--;
}

/* ---- a request ------------------------------------------------------------------------------- */

static inline void fake_open(struct fake_envoy *fake, struct envoy_worker *worker) {
    *fake = (struct fake_envoy){.arena = arena_new(NULL, 0)};
    buf_init(&fake->buffered, fake->arena, 0);
    buf_init(&fake->upstream, fake->arena, 0);
    fake->stream = envoy_stream_new(worker, fake);
    assert_non_null(fake->stream);
}

static inline void fake_close(struct fake_envoy *fake) {
    if (!fake->is_destroyed) {
        fake_destroy(fake);
    }
    assert_int_equal(fake->n_schedulers, 0);
    free(fake->received);
    arena_free(fake->arena);
}

static inline void fake_add_header(struct fake_envoy *fake, const char *key, const char *value) {
    fake->given[fake->n_given++] = (struct fake_header){str_of(key), str_of(value)};
}

static inline enum envoy_headers_status fake_send_headers(struct fake_envoy *fake,
                                                          const char *method, const char *path,
                                                          bool is_end) {
    fake_add_header(fake, ":method", method);
    fake_add_header(fake, ":path", path);
    fake_add_header(fake, ":authority", "here");
    fake->is_end = is_end;
    enum envoy_headers_status status = envoy_stream_on_request_headers(fake->stream, is_end);
    fake->is_stopped_all = status == ENVOY_HEADERS_STOP_ALL;
    if (status == ENVOY_HEADERS_CONTINUE) {
        fake_pass_on(fake);
    }
    fake->n_given = 0;
    return status;
}

static inline enum envoy_body_status fake_send_body(struct fake_envoy *fake, struct str bytes,
                                                    bool is_end) {
    if (fake->is_stopped_all) {
        buf_add_str(&fake->buffered, bytes);
        fake->has_body = true;
        fake->is_end = is_end;
        return ENVOY_BODY_STOP;
    }
    free(fake->received);
    fake->received = malloc(bytes.len > 0 ? bytes.len : 1);
    memcpy(fake->received, bytes.ptr, bytes.len);
    fake->n_received = bytes.len;
    fake->is_received = true;
    fake->is_end = is_end;
    enum envoy_body_status status = envoy_stream_on_request_body(fake->stream, is_end);
    fake->is_received = false;
    buf_add(&fake->buffered, fake->received, fake->n_received);
    if (status == ENVOY_BODY_CONTINUE) {
        fake_pass_on(fake);
    }
    return status;
}

/* They end the request. */
static inline enum envoy_trailers_status fake_send_trailers(struct fake_envoy *fake) {
    fake->is_end = true;
    if (fake->is_stopped_all) {
        fake->has_trailers = true;
        return ENVOY_TRAILERS_STOP;
    }
    enum envoy_trailers_status status = envoy_stream_on_request_trailers(fake->stream);
    if (status == ENVOY_TRAILERS_CONTINUE) {
        fake_pass_on(fake);
    }
    return status;
}

static inline void fake_send_response(struct fake_envoy *fake, const char *status, bool is_end) {
    fake_add_header(fake, ":status", status);
    envoy_stream_on_response_headers(fake->stream, is_end);
    fake->n_given = 0;
}

/* Runs the calls of its schedulers. */
static inline bool fake_run_scheduled(struct fake_envoy *fake) {
    bool any = false;
    while (!fake->is_destroyed && atomic_exchange(&fake->n_scheduled, 0) > 0) {
        any = true;
        envoy_stream_on_scheduled(fake->stream);
    }
    return any;
}

/* Returns: the value that the module set last; ptr NULL: none. */
static inline struct str fake_header_set(const struct fake_envoy *fake, const char *key) {
    struct str found = {NULL, 0};
    for (size_t i = 0; i < fake->n_set; i++) {
        found = str_is(fake->set[i].key, key) ? fake->set[i].value : found;
    }
    return found;
}

/* A body of about `n_bytes`: a prompt, and after it the model's name. */
static inline struct str fake_long_body(struct arena *arena, size_t n_bytes) {
    struct buf body;
    buf_init(&body, arena, n_bytes + 100);
    buf_add_str(&body, STR("{\"prompt\": \""));
    while (body.len < n_bytes) {
        buf_add_str(&body, STR("many words "));
    }
    buf_add_str(&body, STR("\", \"model\": \"digits\"}"));
    return buf_str(&body);
}

#endif
