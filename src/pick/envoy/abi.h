/* What the module and Envoy call of each other: the part of Envoy's interface for dynamic modules
 * that the picker needs, as of Envoy 1.40. Envoy finds the module's functions (…_on_…, which
 * program/envoy/module.c defines) by their names, and the module those of Envoy
 * (…_callback_…), which are in the program that loads it. All of the HTTP filter's functions must
 * be there, also those that the picker has no use for.
 *
 * A filter is one HTTP request in Envoy. Its functions run on the worker thread that has the
 * request, one at a time, unless a comment says otherwise; but one of them may be called within
 * another's call of Envoy (a response that the module sends passes its own filter).
 *
 * Views of Envoy's memory are valid until the function that was called returns, or changes what
 * they are views of. Those that the module passes are copied.
 *
 * Clause: Envoy 1.40, dynamic modules, HTTP filter (declared stable since 1.39). */
#ifndef SLUICE_PICK_ENVOY_ABI_H
#define SLUICE_PICK_ENVOY_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENVOY_ABI_VERSION "v0.2.0"
#define ENVOY_ABI_OLDEST "Envoy 1.40"

/* ---- values ---------------------------------------------------------------------------------- */

struct envoy_text {
    const char *ptr;
    size_t n_bytes;
};

struct envoy_header {
    const char *key;
    size_t n_key;
    const char *value;
    size_t n_value;
};

/* Numbers as in the interface. */
enum envoy_header_map {
    ENVOY_REQUEST_HEADERS,
    ENVOY_REQUEST_TRAILERS,
    ENVOY_RESPONSE_HEADERS,
    ENVOY_RESPONSE_TRAILERS,
};

/* `RECEIVED`: with the present call; `BUFFERED`: kept from earlier ones. */
enum envoy_body {
    ENVOY_RECEIVED_REQUEST_BODY,
    ENVOY_BUFFERED_REQUEST_BODY,
    ENVOY_RECEIVED_RESPONSE_BODY,
    ENVOY_BUFFERED_RESPONSE_BODY,
};

/* Returned by the functions for headers. */
enum envoy_headers_status {
    ENVOY_HEADERS_CONTINUE = 0,
    ENVOY_HEADERS_STOP = 1, /* the body still comes to this filter */
    /* Nothing comes until envoy_continue_request; the proxy reads as much as fits its buffer. */
    ENVOY_HEADERS_STOP_ALL = 4,
};
/* Returned by the functions for parts of a body. */
enum envoy_body_status {
    ENVOY_BODY_CONTINUE = 0, /* with what was buffered */
    ENVOY_BODY_STOP = 2,     /* it is buffered; from a full buffer on the proxy does not read */
};
enum envoy_trailers_status { ENVOY_TRAILERS_CONTINUE = 0, ENVOY_TRAILERS_STOP = 1 };
enum envoy_local_reply_status { ENVOY_LOCAL_REPLY_CONTINUE = 0 };

enum envoy_metadata_source { ENVOY_METADATA_DYNAMIC = 0 };

enum envoy_attribute {
    ENVOY_ATTRIBUTE_RESPONSE_DETAILS = 16,  /* response.code_details: a text */
    ENVOY_ATTRIBUTE_RESPONSE_FLAGS = 17,    /* response.flags: a number */
    ENVOY_ATTRIBUTE_UPSTREAM_ADDRESS = 41,  /* upstream.address: a text */
    ENVOY_ATTRIBUTE_UPSTREAM_ATTEMPTS = 53, /* upstream.request_attempt_count: a number */
};

/* ---- Envoy's functions ----------------------------------------------------------------------- */

/* Each is NULL where Envoy is too old to have it: envoy_abi_missing. `filter` is Envoy's. */
#define ENVOY_FUNCTION __attribute__((weak, visibility("default"))) extern

ENVOY_FUNCTION uint32_t envoy_dynamic_module_callback_http_filter_get_worker_index(void *filter);

ENVOY_FUNCTION size_t
envoy_dynamic_module_callback_http_get_headers_size(void *filter, enum envoy_header_map map);
/* `out` has as many items as that says. */
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_headers(void *filter,
                                                                   enum envoy_header_map map,
                                                                   struct envoy_header *out);
/* `value` with a NULL pointer removes the header. */
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_set_header(void *filter,
                                                                  enum envoy_header_map map,
                                                                  struct envoy_text key,
                                                                  struct envoy_text value);

ENVOY_FUNCTION size_t envoy_dynamic_module_callback_http_get_body_size(void *filter,
                                                                       enum envoy_body body);
ENVOY_FUNCTION size_t envoy_dynamic_module_callback_http_get_body_chunks_size(void *filter,
                                                                              enum envoy_body body);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_body_chunks(void *filter,
                                                                       enum envoy_body body,
                                                                       struct envoy_text *out);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_append_body(void *filter,
                                                                   enum envoy_body body,
                                                                   struct envoy_text data);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_drain_body(void *filter,
                                                                  enum envoy_body body,
                                                                  size_t n_bytes);
ENVOY_FUNCTION uint64_t envoy_dynamic_module_callback_http_get_buffer_limit(void *filter);
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_set_buffer_limit(void *filter,
                                                                        uint64_t n_bytes);

ENVOY_FUNCTION size_t envoy_dynamic_module_callback_http_get_metadata_namespaces_count(
    void *filter, enum envoy_metadata_source source);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_metadata_namespaces(
    void *filter, enum envoy_metadata_source source, struct envoy_text *out);
ENVOY_FUNCTION size_t envoy_dynamic_module_callback_http_get_metadata_keys_count(
    void *filter, enum envoy_metadata_source source, struct envoy_text space);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_metadata_keys(
    void *filter, enum envoy_metadata_source source, struct envoy_text space,
    struct envoy_text *out);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_metadata_string(
    void *filter, enum envoy_metadata_source source, struct envoy_text space, struct envoy_text key,
    struct envoy_text *out);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_metadata_number(
    void *filter, enum envoy_metadata_source source, struct envoy_text space, struct envoy_text key,
    double *out);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_metadata_list_size(
    void *filter, enum envoy_metadata_source source, struct envoy_text space, struct envoy_text key,
    size_t *out);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_get_metadata_list_string(
    void *filter, enum envoy_metadata_source source, struct envoy_text space, struct envoy_text key,
    size_t index, struct envoy_text *out);
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(
    void *filter, struct envoy_text space, struct envoy_text key, struct envoy_text value);
/* `value`: a google.protobuf.Struct, whose members are added to the namespace. */
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_set_dynamic_metadata_struct(
    void *filter, struct envoy_text space, struct envoy_text value);

ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_filter_get_attribute_string(
    void *filter, enum envoy_attribute attribute, struct envoy_text *out);
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_filter_get_attribute_int(
    void *filter, enum envoy_attribute attribute, uint64_t *out);

/* `host` is IP:PORT. `strict`: a host that is not in the cluster is an error; otherwise the
 * cluster's own policy chooses then. Returns: false for another form. */
ENVOY_FUNCTION bool envoy_dynamic_module_callback_http_set_upstream_override_host(
    void *filter, struct envoy_text host, bool strict);
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_clear_route_cache(void *filter);

/* Responds to the client in place of a server, which calls the functions for a response within. */
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_send_response(void *filter, uint32_t status,
                                                                     struct envoy_header *headers,
                                                                     size_t n_headers,
                                                                     struct envoy_text body,
                                                                     struct envoy_text details);
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_send_response_headers(
    void *filter, struct envoy_header *headers, size_t n_headers, bool is_end);
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_filter_continue_decoding(void *filter);

/* A scheduler calls the filter's …_scheduled on its own thread. Thread of `commit`: any; it has no
 * effect when the filter was destroyed. */
ENVOY_FUNCTION void *envoy_dynamic_module_callback_http_filter_scheduler_new(void *filter);
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_filter_scheduler_commit(void *scheduler,
                                                                               uint64_t event);
ENVOY_FUNCTION void envoy_dynamic_module_callback_http_filter_scheduler_delete(void *scheduler);

#undef ENVOY_FUNCTION

/* Returns: the name of a function that Envoy does not have; NULL: it has all of them. */
const char *envoy_abi_missing(void);

#endif
