/* The functions that Envoy calls: those of a library, of a filter's configuration, and of a filter,
 * which is one request (pick/envoy/abi.h). All of the interface's for HTTP filters are here. Those
 * at the end are for calls and streams of the module's own, which the picker does not make.
 *
 * Envoy hands every function a pointer to its own object and one to ours. */
#include "core/base/log.h"
#include "pick/envoy/stream.h"
#include "program/envoy/instance.h"

#define HOOK __attribute__((visibility("default")))

/* ---- the library ----------------------------------------------------------------------------- */

HOOK const char *envoy_dynamic_module_on_program_init(void);
HOOK const char *envoy_dynamic_module_on_program_init(void) {
    const char *missing = envoy_abi_missing();
    if (missing) {
        log_event(LOG_ERROR, "libsluice_envoy.so needs " ENVOY_ABI_OLDEST " or a later one",
                  LOG_CSTR("missing", missing), LOG_CSTR("interface", ENVOY_ABI_VERSION));
        return NULL;
    }
    return ENVOY_ABI_VERSION;
}

/* ---- a filter's configuration ---------------------------------------------------------------- */

HOOK void *envoy_dynamic_module_on_http_filter_config_new(void *envoy, struct envoy_text name,
                                                          struct envoy_text config);
HOOK void *envoy_dynamic_module_on_http_filter_config_new(void *envoy, struct envoy_text name,
                                                          struct envoy_text config) {
    struct envoy_instance *instance = NULL;
    struct error err;
    (void)envoy;
    (void)name;
    if (envoy_instance_get(str_make(config.ptr ? config.ptr : "", config.n_bytes), &instance,
                           &err) != ST_OK) {
        log_event(LOG_ERROR, "picker in Envoy: can't start", LOG_CSTR("reason", err.text));
        return NULL;
    }
    return instance;
}

HOOK void envoy_dynamic_module_on_http_filter_config_destroy(void *instance);
HOOK void envoy_dynamic_module_on_http_filter_config_destroy(void *instance) {
    envoy_instance_unref(instance);
}

/* There is nothing to set for a route: pools are chosen by `match` in their configuration. */
HOOK void *envoy_dynamic_module_on_http_filter_per_route_config_new(struct envoy_text name,
                                                                    struct envoy_text config);
HOOK void *envoy_dynamic_module_on_http_filter_per_route_config_new(struct envoy_text name,
                                                                    struct envoy_text config) {
    (void)name;
    (void)config;
    log_message(LOG_ERROR, "picker in Envoy: there is no configuration for single routes");
    return NULL;
}

HOOK void envoy_dynamic_module_on_http_filter_per_route_config_destroy(void *config);
HOOK void envoy_dynamic_module_on_http_filter_per_route_config_destroy(void *config) {
    (void)config;
}

/* ---- a filter -------------------------------------------------------------------------------- */

HOOK void *envoy_dynamic_module_on_http_filter_new(void *instance, void *envoy);
HOOK void *envoy_dynamic_module_on_http_filter_new(void *instance, void *envoy) {
    uint32_t index = envoy_dynamic_module_callback_http_filter_get_worker_index(envoy);
    struct envoy_worker *worker = envoy_workers_get(envoy_instance_workers(instance), index);
    return worker ? envoy_stream_new(worker, envoy) : NULL;
}

HOOK void envoy_dynamic_module_on_http_filter_destroy(void *stream);
HOOK void envoy_dynamic_module_on_http_filter_destroy(void *stream) {
    envoy_stream_destroy(stream);
}

HOOK void envoy_dynamic_module_on_http_filter_stream_complete(void *envoy, void *stream);
HOOK void envoy_dynamic_module_on_http_filter_stream_complete(void *envoy, void *stream) {
    (void)envoy;
    (void)stream; /* it is destroyed next */
}

HOOK int envoy_dynamic_module_on_http_filter_request_headers(void *envoy, void *stream,
                                                             bool is_end);
HOOK int envoy_dynamic_module_on_http_filter_request_headers(void *envoy, void *stream,
                                                             bool is_end) {
    (void)envoy;
    return (int)envoy_stream_on_request_headers(stream, is_end);
}

HOOK int envoy_dynamic_module_on_http_filter_request_body(void *envoy, void *stream, bool is_end);
HOOK int envoy_dynamic_module_on_http_filter_request_body(void *envoy, void *stream, bool is_end) {
    (void)envoy;
    return (int)envoy_stream_on_request_body(stream, is_end);
}

HOOK int envoy_dynamic_module_on_http_filter_request_trailers(void *envoy, void *stream);
HOOK int envoy_dynamic_module_on_http_filter_request_trailers(void *envoy, void *stream) {
    (void)envoy;
    return (int)envoy_stream_on_request_trailers(stream);
}

HOOK int envoy_dynamic_module_on_http_filter_response_headers(void *envoy, void *stream,
                                                              bool is_end);
HOOK int envoy_dynamic_module_on_http_filter_response_headers(void *envoy, void *stream,
                                                              bool is_end) {
    (void)envoy;
    envoy_stream_on_response_headers(stream, is_end);
    return ENVOY_HEADERS_CONTINUE;
}

HOOK int envoy_dynamic_module_on_http_filter_response_body(void *envoy, void *stream, bool is_end);
HOOK int envoy_dynamic_module_on_http_filter_response_body(void *envoy, void *stream, bool is_end) {
    (void)envoy;
    envoy_stream_on_response_body(stream, is_end);
    return ENVOY_BODY_CONTINUE;
}

HOOK int envoy_dynamic_module_on_http_filter_response_trailers(void *envoy, void *stream);
HOOK int envoy_dynamic_module_on_http_filter_response_trailers(void *envoy, void *stream) {
    (void)envoy;
    envoy_stream_on_response_trailers(stream);
    return ENVOY_TRAILERS_CONTINUE;
}

HOOK int envoy_dynamic_module_on_http_filter_local_reply(void *envoy, void *stream, uint32_t status,
                                                         struct envoy_text details, bool is_reset);
HOOK int envoy_dynamic_module_on_http_filter_local_reply(void *envoy, void *stream, uint32_t status,
                                                         struct envoy_text details, bool is_reset) {
    (void)envoy;
    (void)stream;
    (void)status;
    (void)details;
    (void)is_reset;
    return ENVOY_LOCAL_REPLY_CONTINUE;
}

HOOK void envoy_dynamic_module_on_http_filter_scheduled(void *envoy, void *stream, uint64_t event);
HOOK void envoy_dynamic_module_on_http_filter_scheduled(void *envoy, void *stream, uint64_t event) {
    (void)envoy;
    (void)event;
    envoy_stream_on_scheduled(stream);
}

HOOK void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    void *envoy, void *stream);
HOOK void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    void *envoy, void *stream) {
    (void)envoy;
    (void)stream;
}

HOOK void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    void *envoy, void *stream);
HOOK void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    void *envoy, void *stream) {
    (void)envoy;
    (void)stream;
}

/* ---- calls and streams of the module's own: never called ------------------------------------- */

#define UNUSED(name, ...)                                                                          \
    HOOK void envoy_dynamic_module_on_http_filter_##name(__VA_ARGS__);                             \
    HOOK void envoy_dynamic_module_on_http_filter_##name(__VA_ARGS__)

UNUSED(http_callout_done, void) {
}
UNUSED(http_stream_headers, void) {
}
UNUSED(http_stream_data, void) {
}
UNUSED(http_stream_trailers, void) {
}
UNUSED(http_stream_complete, void) {
}
UNUSED(http_stream_reset, void) {
}
UNUSED(config_scheduled, void) {
}
UNUSED(config_http_callout_done, void) {
}
UNUSED(config_http_stream_headers, void) {
}
UNUSED(config_http_stream_data, void) {
}
UNUSED(config_http_stream_trailers, void) {
}
UNUSED(config_http_stream_complete, void) {
}
UNUSED(config_http_stream_reset, void) {
}
