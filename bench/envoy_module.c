/* A dynamic module of Envoy that is no picker: the floor of one (bench/envoy). By its configuration
 * it does nothing ("nothing"), or sets the destination header to the next of so many addresses with
 * one port ("1000 8000"): 127.0.0.1, 127.0.0.2 and so on. Everything else that Envoy calls returns
 * at once. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOOK __attribute__((visibility("default")))

struct text {
    const char *ptr;
    size_t n_bytes;
};

struct config {
    unsigned n, port; /* n 0: nothing is set */
    atomic_uint next;
};

extern bool envoy_dynamic_module_callback_http_set_header(void *filter, int map, struct text key,
                                                          struct text value);

HOOK const char *envoy_dynamic_module_on_program_init(void);
HOOK const char *envoy_dynamic_module_on_program_init(void) {
    return "v0.2.0";
}

HOOK void *envoy_dynamic_module_on_http_filter_config_new(void *envoy, struct text name,
                                                          struct text config);
HOOK void *envoy_dynamic_module_on_http_filter_config_new(void *envoy, struct text name,
                                                          struct text config) {
    struct config *self = calloc(1, sizeof(*self));
    char text[32], *end;
    (void)envoy;
    (void)name;
    snprintf(text, sizeof(text), "%.*s", (int)config.n_bytes, config.ptr);
    if (self && strcmp(text, "nothing") != 0) {
        self->n = (unsigned)strtoul(text, &end, 10);
        self->port = (unsigned)strtoul(end, &end, 10);
    }
    return self;
}

HOOK void *envoy_dynamic_module_on_http_filter_new(void *config, void *envoy);
HOOK void *envoy_dynamic_module_on_http_filter_new(void *config, void *envoy) {
    (void)envoy;
    return config;
}

HOOK int envoy_dynamic_module_on_http_filter_request_headers(void *envoy, void *filter,
                                                             bool is_end);
HOOK int envoy_dynamic_module_on_http_filter_request_headers(void *envoy, void *filter,
                                                             bool is_end) {
    static const char key[] = "x-gateway-destination-endpoint";
    struct config *config = filter;
    char value[32];
    (void)is_end;
    if (config->n > 0) {
        unsigned i =
            atomic_fetch_add_explicit(&config->next, 1, memory_order_relaxed) % config->n + 1;
        int n = snprintf(value, sizeof(value), "127.0.%u.%u:%u", i / 250, i % 250, config->port);
        (void)envoy_dynamic_module_callback_http_set_header(
            envoy, 0, (struct text){key, sizeof(key) - 1}, (struct text){value, (size_t)n});
    }
    return 0;
}

/* Goes on, wherever that has a meaning. */
#define RETURNS_0(name)                                                                            \
    HOOK int envoy_dynamic_module_on_http_filter_##name(void);                                     \
    HOOK int envoy_dynamic_module_on_http_filter_##name(void) {                                    \
        return 0;                                                                                  \
    }

RETURNS_0(config_destroy)
RETURNS_0(per_route_config_new)
RETURNS_0(per_route_config_destroy)
RETURNS_0(destroy)
RETURNS_0(stream_complete)
RETURNS_0(request_body)
RETURNS_0(request_trailers)
RETURNS_0(response_headers)
RETURNS_0(response_body)
RETURNS_0(response_trailers)
RETURNS_0(local_reply)
RETURNS_0(scheduled)
RETURNS_0(downstream_above_write_buffer_high_watermark)
RETURNS_0(downstream_below_write_buffer_low_watermark)
RETURNS_0(http_callout_done)
RETURNS_0(http_stream_headers)
RETURNS_0(http_stream_data)
RETURNS_0(http_stream_trailers)
RETURNS_0(http_stream_complete)
RETURNS_0(http_stream_reset)
RETURNS_0(config_scheduled)
RETURNS_0(config_http_callout_done)
RETURNS_0(config_http_stream_headers)
RETURNS_0(config_http_stream_data)
RETURNS_0(config_http_stream_trailers)
RETURNS_0(config_http_stream_complete)
RETURNS_0(config_http_stream_reset)
