/* Looks for what is missing in the Envoy that has loaded the module. */
#include "pick/envoy/abi.h"

const char *envoy_abi_missing(void) {
#define FUNCTION(name)                                                                             \
    { #name, (void (*)(void))(name) }
    static const struct {
        const char *name;
        void (*function)(void);
    } functions[] = {
        FUNCTION(envoy_dynamic_module_callback_http_filter_get_worker_index),
        FUNCTION(envoy_dynamic_module_callback_http_get_headers_size),
        FUNCTION(envoy_dynamic_module_callback_http_get_headers),
        FUNCTION(envoy_dynamic_module_callback_http_set_header),
        FUNCTION(envoy_dynamic_module_callback_http_get_body_size),
        FUNCTION(envoy_dynamic_module_callback_http_get_body_chunks_size),
        FUNCTION(envoy_dynamic_module_callback_http_get_body_chunks),
        FUNCTION(envoy_dynamic_module_callback_http_append_body),
        FUNCTION(envoy_dynamic_module_callback_http_drain_body),
        FUNCTION(envoy_dynamic_module_callback_http_get_buffer_limit),
        FUNCTION(envoy_dynamic_module_callback_http_set_buffer_limit),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_namespaces_count),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_namespaces),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_keys_count),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_keys),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_string),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_number),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_list_size),
        FUNCTION(envoy_dynamic_module_callback_http_get_metadata_list_string),
        FUNCTION(envoy_dynamic_module_callback_http_set_dynamic_metadata_string),
        FUNCTION(envoy_dynamic_module_callback_http_set_dynamic_metadata_struct),
        FUNCTION(envoy_dynamic_module_callback_http_filter_get_attribute_string),
        FUNCTION(envoy_dynamic_module_callback_http_filter_get_attribute_int),
        FUNCTION(envoy_dynamic_module_callback_http_set_upstream_override_host),
        FUNCTION(envoy_dynamic_module_callback_http_clear_route_cache),
        FUNCTION(envoy_dynamic_module_callback_http_send_response),
        FUNCTION(envoy_dynamic_module_callback_http_send_response_headers),
        FUNCTION(envoy_dynamic_module_callback_http_filter_continue_decoding),
        FUNCTION(envoy_dynamic_module_callback_http_filter_scheduler_new),
        FUNCTION(envoy_dynamic_module_callback_http_filter_scheduler_commit),
        FUNCTION(envoy_dynamic_module_callback_http_filter_scheduler_delete),
    };
#undef FUNCTION
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (!functions[i].function) {
            return functions[i].name;
        }
    }
    return NULL;
}
