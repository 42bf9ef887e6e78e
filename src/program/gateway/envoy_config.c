/* Texts of YAML, with values of the settings between them. */
#include "program/gateway/envoy_config.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>

#include "core/base/json_writer.h"
#include "core/base/log.h"
#include "program/gateway/authorize.h"

enum { NS_PER_MS = 1000000 };

#define TYPE "\"@type\": type.googleapis.com/envoy."

/* ---- values ---------------------------------------------------------------------------------- */

/* A text in quotes, as JSON and YAML have it. */
static void add_text(struct buf *out, const char *text) {
    json_string_print(out, str_of(text));
}

/* Envoy's form of a time, "1.500s". */
static void add_time(struct buf *out, uint64_t ns) {
    uint64_t ms = ns / NS_PER_MS;
    buf_printf(out, "%" PRIu64, ms / 1000);
    if (ms % 1000 > 0) {
        buf_printf(out, ".%03u", (unsigned)(ms % 1000));
    }
    buf_add_char(out, 's');
}

static void add_address(struct buf *out, const struct address *address) {
    char text[INET6_ADDRSTRLEN] = "";
    const struct sockaddr *any = (const struct sockaddr *)&address->storage;
    if (address_is_unix(address)) {
        char path[ADDRESS_TEXT_BYTES];
        buf_add_str(out, STR("{pipe: {path: "));
        add_text(out, address_print(address, path) + sizeof("unix:") - 1);
        buf_add_str(out, STR("}}"));
        return;
    }
    bool is_every = false; /* every address of the machine, of IPv4 too */
    if (any->sa_family == AF_INET6) {
        const struct in6_addr *host = &((const struct sockaddr_in6 *)any)->sin6_addr;
        is_every = IN6_IS_ADDR_UNSPECIFIED(host);
        inet_ntop(AF_INET6, host, text, sizeof(text));
    } else {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)any)->sin_addr, text, sizeof(text));
    }
    buf_add_str(out, STR("{socket_address: {address: "));
    add_text(out, text);
    buf_printf(out, ", port_value: %u%s}}", address_port(address),
               is_every ? ", ipv4_compat: true" : "");
}

/* ---- the picker ------------------------------------------------------------------------------ */

static void write_size(struct json_writer *json, const char *name, uint64_t n_bytes) {
    json_write_u64_string(json, name, n_bytes);
}

static void write_text(struct json_writer *json, const char *name, const char *text) {
    if (text) {
        json_write_string(json, name, str_of(text));
    }
}

/* Settings of `sluice pick`, by the names of its flags. */
static void add_filter_config(const struct gateway_settings *settings, const char *picker_socket,
                              struct buf *out) {
    static const char *const LEVELS[] = {"error", "warning", "info", "debug"};
    char time[32];
    struct json_writer json = {.out = out, .layout = JSON_SPACED};
    json_write_open(&json, JSON_ELEMENT, '{');
    write_text(&json, "config", settings->config);
    write_text(&json, "config-text", settings->config_text);
    if (settings->endpoints.n > 0) {
        json_write_open(&json, "endpoint", '[');
        for (size_t i = 0; i < settings->endpoints.n; i++) {
            json_write_string(&json, JSON_ELEMENT, str_of(settings->endpoints.items[i]));
        }
        json_write_close(&json, ']');
    }
    snprintf(time, sizeof(time), "%" PRIu64 "ms", settings->reload_interval_ns / NS_PER_MS);
    write_text(&json, "reload-interval", time);
    if (settings->retry_on != GATEWAY_RETRY_NONE) {
        write_text(&json, "fallback", "key");
    }
    write_size(&json, "max-body-size", settings->max_body_size);
    write_size(&json, "prefix-memory", settings->prefix_memory);
    write_text(&json, "log-level", LEVELS[settings->log_level]);
    write_text(&json, "log-format", settings->log_format == LOG_JSON ? "json" : "text");
    write_text(&json, "metrics",
               picker_socket ? arena_printf(out->arena, "unix:%s", picker_socket).ptr
                             : settings->metrics);
    json_write_close(&json, '}');
}

/* ---- the listener ---------------------------------------------------------------------------- */

static void add_access_log(const struct gateway_settings *settings, struct buf *out) {
    const char *file = settings->access_log;
    if (str_is(str_of(file), "none")) {
        return;
    }
    buf_add_str(out, STR("                access_log:\n"
                         "                  - name: envoy.access_loggers.file\n"
                         "                    typed_config:\n"
                         "                      " TYPE
                         "extensions.access_loggers.file.v3.FileAccessLog\n"
                         "                      path: "));
    add_text(out, str_is(str_of(file), "-") ? "/dev/stdout" : file);
    buf_add_str(
        out, STR("\n"
                 "                      log_format:\n"
                 "                        json_format:\n"
                 "                          time: \"%START_TIME%\"\n"
                 "                          client: \"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%\"\n"
                 "                          method: \"%REQ(:METHOD)%\"\n"
                 "                          path: \"%REQ(:PATH)%\"\n"
                 "                          protocol: \"%PROTOCOL%\"\n"
                 "                          status: \"%RESPONSE_CODE%\"\n"
                 "                          details: \"%RESPONSE_CODE_DETAILS%\"\n"
                 "                          flags: \"%RESPONSE_FLAGS%\"\n"
                 "                          endpoint: \"%UPSTREAM_REMOTE_ADDRESS%\"\n"
                 "                          attempts: \"%UPSTREAM_REQUEST_ATTEMPT_COUNT%\"\n"
                 "                          request_bytes: \"%BYTES_RECEIVED%\"\n"
                 "                          response_bytes: \"%BYTES_SENT%\"\n"
                 "                          first_byte_ms: \"%RESPONSE_DURATION%\"\n"
                 "                          duration_ms: \"%DURATION%\"\n"
                 "                          request_id: \"%REQ(X-REQUEST-ID)%\"\n"));
}

static void add_route(struct buf *out, const char *match, const char *cluster,
                      const struct gateway_settings *settings) {
    buf_printf(out,
               "                        - match: {%s}\n"
               "                          route: {cluster: %s, timeout: ",
               match, cluster);
    add_time(out, settings->request_timeout_ns);
    buf_add_str(out, STR("}\n"));
}

/* Requests that the gateway answers for all endpoints together (pool_answers.h): no endpoint is
 * picked for them. */
static void add_answer_routes(struct buf *out) {
    static const char *const PATHS[] = {"/v2/health/live", "/v2/health/ready", "/health",
                                        "/v1/models"};
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); i++) {
        buf_printf(out,
                   "                        - match: {path: %s}\n"
                   "                          route: {cluster: answers, timeout: 30s}\n"
                   "                          request_headers_to_remove: [origin, sec-fetch-site]\n"
                   "                          typed_per_filter_config: {sluice: {" TYPE
                   "config.route.v3.FilterConfig, disabled: true}}\n",
                   PATHS[i]);
    }
}

static void add_retries(const struct gateway_settings *settings, struct buf *out) {
    if (settings->retry_on == GATEWAY_RETRY_NONE) {
        return;
    }
    buf_printf(
        out,
        "                      # The second attempt goes to the picker's fallback: the "
        "filter of the clusters below.\n"
        "                      retry_policy: {retry_on: \"connect-failure,refused-stream%s\", "
        "num_retries: 1, retry_back_off: {base_interval: 0.001s}}\n"
        "                      request_body_buffer_limit: %" PRIu64 "\n",
        settings->retry_on == GATEWAY_RETRY_RESET ? ",reset" : "", settings->retry_body_size);
}

/* The gateway has the keys: Envoy asks it for each request. */
static void add_authorization(struct buf *out) {
    buf_add_str(
        out,
        STR("                  - name: envoy.filters.http.ext_authz\n"
            "                    typed_config:\n"
            "                      " TYPE "extensions.filters.http.ext_authz.v3.ExtAuthz\n"
            "                      transport_api_version: V3\n"
            "                      status_on_error: {code: ServiceUnavailable}\n"
            "                      allowed_headers: {patterns: [{safe_regex: {regex: \".*\"}}]}\n"
            "                      http_service:\n"
            "                        server_uri: {uri: \"http://gateway\", cluster: answers, "
            "timeout: 10s}\n"
            "                        path_prefix: " AUTHORIZE_PREFIX "\n"
            "                        authorization_response:\n"
            "                          allowed_client_headers: {patterns: [{exact: "
            "www-authenticate}, {exact: content-type}]}\n"));
}

static void add_manager(const struct gateway_settings *settings,
                        const struct envoy_sockets *sockets, struct buf *out) {
    buf_add_str(out,
                STR("            - name: envoy.filters.network.http_connection_manager\n"
                    "              typed_config:\n"
                    "                " TYPE "extensions.filters.network.http_connection_manager.v3."
                    "HttpConnectionManager\n"
                    "                stat_prefix: inference\n"
                    "                codec_type: AUTO\n"
                    "                http_protocol_options: {enable_trailers: true}\n"
                    "                # Addresses of clients are appended to x-forwarded-for.\n"
                    "                use_remote_address: true\n"
                    "                server_header_transformation: PASS_THROUGH\n"
                    "                # A stream may be silent as long as its server is.\n"
                    "                stream_idle_timeout: 0s\n"
                    "                request_headers_timeout: 10s\n"
                    "                common_http_protocol_options: {idle_timeout: "));
    add_time(out, settings->idle_timeout_ns);
    buf_add_str(out, STR("}\n"));
    add_access_log(settings, out);
    buf_add_str(
        out,
        STR("                # Headers that are the picker's, or choose model, priority and share "
            "of the queue.\n"
            "                early_header_mutation_extensions:\n"
            "                  - name: envoy.http.early_header_mutation.header_mutation\n"
            "                    typed_config:\n"
            "                      " TYPE
            "extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation\n"
            "                      mutations:\n"
            "                        - {remove: x-gateway-destination-endpoint}\n"
            "                        - {remove: x-gateway-model-name}\n"
            "                        - {remove: x-gateway-model-name-rewrite}\n"
            "                        - {remove: x-llm-d-model-name-rewrite}\n"
            "                        - {remove: x-gateway-inference-objective}\n"
            "                        - {remove: x-llm-d-inference-objective}\n"
            "                        - {remove: x-gateway-inference-fairness-id}\n"
            "                        - {remove: x-llm-d-inference-fairness-id}\n"
            "                route_config:\n"
            "                  virtual_hosts:\n"
            "                    - name: models\n"
            "                      domains: [\"*\"]\n"
            "                      request_headers_to_remove: [x-envoy-external-address]\n"));
    add_retries(settings, out);
    buf_add_str(out, STR("                      routes:\n"));
    if (sockets->answers) {
        add_answer_routes(out);
    }
    add_route(out, "prefix: /, grpc: {}", "models-grpc", settings);
    add_route(out, "prefix: /", "models", settings);
    buf_add_str(out, STR("                http_filters:\n"));
    if (settings->keys) {
        add_authorization(out);
    }
    buf_add_str(
        out, STR("                  - name: sluice\n"
                 "                    typed_config:\n"
                 "                      " TYPE
                 "extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter\n"
                 "                      dynamic_module_config: {name: sluice_envoy, do_not_close: "
                 "true}\n"
                 "                      filter_name: pick\n"
                 "                      filter_config:\n"
                 "                        \"@type\": type.googleapis.com/google.protobuf.Struct\n"
                 "                        value: "));
    add_filter_config(settings, sockets->picker, out);
    buf_add_str(out, STR("\n"
                         "                  - name: envoy.filters.http.router\n"
                         "                    typed_config: {" TYPE
                         "extensions.filters.http.router.v3.Router, suppress_envoy_headers: "
                         "true}\n"));
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* "{filename: FILE}" */
static void add_file(struct buf *out, const char *path) {
    buf_add_str(out, STR("{filename: "));
    add_text(out, path);
    buf_add_char(out, '}');
}

static void begin_secret(struct buf *out, const char *name) {
    buf_printf(out,
               "resources:\n"
               "  - " TYPE "extensions.transport_sockets.tls.v3.Secret\n"
               "    name: %s\n",
               name);
}

static void add_watched(const struct envoy_sockets *sockets, struct buf *out) {
    buf_add_str(out, STR("      watched_directory: {path: "));
    add_text(out, sockets->folder);
    buf_add_str(out, STR("}\n"));
}

void envoy_config_print_cert(const struct gateway_settings *settings,
                             const struct envoy_sockets *sockets, struct buf *out) {
    begin_secret(out, "cert");
    buf_add_str(out, STR("    tls_certificate:\n      certificate_chain: "));
    add_file(out, settings->http_tls_cert);
    buf_add_str(out, STR("\n      private_key: "));
    add_file(out, settings->http_tls_key);
    buf_add_char(out, '\n');
    add_watched(sockets, out);
}

void envoy_config_print_client_ca(const struct gateway_settings *settings,
                                  const struct envoy_sockets *sockets, struct buf *out) {
    begin_secret(out, "client-ca");
    buf_add_str(out, STR("    validation_context:\n      trusted_ca: "));
    add_file(out, settings->http_tls_client_ca);
    buf_add_char(out, '\n');
    add_watched(sockets, out);
}

/* A secret that Envoy reads from a file of the gateway. */
static void add_secret(struct buf *out, const char *name, const char *path) {
    buf_printf(
        out, "{name: %s, sds_config: {resource_api_version: V3, path_config_source: {path: ", name);
    add_text(out, path);
    buf_add_str(out, STR("}}}"));
}

static void add_certificate(const struct gateway_settings *settings,
                            const struct envoy_sockets *sockets, struct buf *out) {
    if (sockets->tls_cert) {
        buf_add_str(out, STR("                tls_certificate_sds_secret_configs: ["));
        add_secret(out, "cert", sockets->tls_cert);
        buf_add_str(out, STR("]\n"));
        return;
    }
    buf_add_str(out, STR("                tls_certificates:\n"
                         "                  - certificate_chain: "));
    add_file(out, settings->http_tls_cert);
    buf_add_str(out, STR("\n                    private_key: "));
    add_file(out, settings->http_tls_key);
    buf_add_char(out, '\n');
}

static void add_client_ca(const struct gateway_settings *settings,
                          const struct envoy_sockets *sockets, struct buf *out) {
    if (sockets->tls_client_ca) {
        buf_add_str(out, STR("                validation_context_sds_secret_config: "));
        add_secret(out, "client-ca", sockets->tls_client_ca);
    } else {
        buf_add_str(out, STR("                validation_context: {trusted_ca: "));
        add_file(out, settings->http_tls_client_ca);
        buf_add_char(out, '}');
    }
    buf_add_char(out, '\n');
}

static void add_tls(const struct gateway_settings *settings, const struct envoy_sockets *sockets,
                    struct buf *out) {
    if (!gateway_has_tls(settings)) {
        return;
    }
    buf_printf(out,
               "          transport_socket:\n"
               "            name: envoy.transport_sockets.tls\n"
               "            typed_config:\n"
               "              " TYPE "extensions.transport_sockets.tls.v3.DownstreamTlsContext\n"
               "%s"
               "              common_tls_context:\n"
               "                alpn_protocols: [h2, http/1.1]\n"
               "                tls_params: {tls_minimum_protocol_version: TLSv1_2}\n",
               settings->http_tls_client_ca ? "              require_client_certificate: true\n"
                                            : "");
    add_certificate(settings, sockets, out);
    if (settings->http_tls_client_ca) {
        add_client_ca(settings, sockets, out);
    }
}

/* ---- clusters -------------------------------------------------------------------------------- */

/* A cluster whose destination is the header that the picker has set. With retries, each attempt
 * replaces it, once its own destination is known, by that of the next one. */
static void add_cluster(const struct gateway_settings *settings, const char *name, bool is_grpc,
                        struct buf *out) {
    buf_printf(out,
               "    - name: %s\n"
               "      type: ORIGINAL_DST\n"
               "      lb_policy: CLUSTER_PROVIDED\n"
               "      connect_timeout: ",
               name);
    add_time(out, settings->connect_timeout_ns);
    buf_add_str(out,
                STR("\n"
                    "      # Envoy's own limits are out of the way: flow_control and max_in_flight "
                    "of the pool limit the load.\n"
                    "      circuit_breakers:\n"
                    "        thresholds: [{max_connections: 100000, max_pending_requests: 100000, "
                    "max_requests: 100000, max_retries: 100000}]\n"
                    "      original_dst_lb_config:\n"
                    "        use_http_header: true\n"
                    "        http_header_name: x-gateway-destination-endpoint\n"));
    if (is_grpc && settings->grpc_port > 0) {
        buf_printf(out, "        upstream_port_override: %" PRIu64 "\n", settings->grpc_port);
    }
    buf_add_str(out, STR("      typed_extension_protocol_options:\n"
                         "        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n"
                         "          " TYPE "extensions.upstreams.http.v3.HttpProtocolOptions\n"));
    buf_add_str(out, is_grpc ? STR("          explicit_http_config: {http2_protocol_options: {}}\n")
                             : STR("          explicit_http_config: {http_protocol_options: "
                                   "{enable_trailers: true}}\n"
                                   "          # Less than the servers keep connections: vLLM 5 s.\n"
                                   "          common_http_protocol_options: {idle_timeout: 4s}\n"));
    if (settings->retry_on != GATEWAY_RETRY_NONE) {
        buf_add_str(
            out,
            STR("          http_filters:\n"
                "            - name: envoy.filters.http.header_mutation\n"
                "              typed_config:\n"
                "                " TYPE
                "extensions.filters.http.header_mutation.v3.HeaderMutation\n"
                "                mutations:\n"
                "                  request_mutations:\n"
                "                    - append: {header: {key: x-gateway-destination-endpoint, "
                "value: \"%DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint-fallback)%\"}, "
                "append_action: OVERWRITE_IF_EXISTS_OR_ADD}\n"
                "            - name: envoy.filters.http.upstream_codec\n"
                "              typed_config: {" TYPE
                "extensions.filters.http.upstream_codec.v3.UpstreamCodec}\n"));
    }
}

void envoy_config_print(const struct gateway_settings *settings, const struct address *address,
                        const struct envoy_sockets *sockets, struct buf *out) {
    if (sockets->admin) {
        buf_add_str(out, STR("admin: {address: {pipe: {path: "));
        add_text(out, sockets->admin);
        buf_add_str(out, STR("}}}\n"
                             "node: {id: gateway, cluster: sluice}\n"));
    }
    buf_printf(out,
               "overload_manager:\n"
               "  resource_monitors:\n"
               "    - name: envoy.resource_monitors.global_downstream_max_connections\n"
               "      typed_config:\n"
               "        " TYPE "extensions.resource_monitors.downstream_connections.v3."
               "DownstreamConnectionsConfig\n"
               "        max_active_downstream_connections: %" PRIu64 "\n",
               settings->max_connections);
    buf_add_str(out, STR("static_resources:\n"
                         "  listeners:\n"
                         "    - name: inference\n"
                         "      address: "));
    add_address(out, address);
    buf_add_str(out, STR("\n"
                         "      filter_chains:\n"
                         "        - filters:\n"));
    add_manager(settings, sockets, out);
    add_tls(settings, sockets, out);
    buf_add_str(out, STR("  clusters:\n"));
    add_cluster(settings, "models", false, out);
    add_cluster(settings, "models-grpc", true, out);
    if (sockets->answers) {
        buf_add_str(out, STR("    - name: answers\n"
                             "      type: STATIC\n"
                             "      connect_timeout: 5s\n"
                             "      # Further requests wait for a connection.\n"
                             "      circuit_breakers: {thresholds: [{max_connections: 128, "
                             "max_pending_requests: 100000, max_requests: 100000}]}\n"
                             "      load_assignment:\n"
                             "        cluster_name: answers\n"
                             "        endpoints:\n"
                             "          - lb_endpoints:\n"
                             "              - {endpoint: {address: {pipe: {path: "));
        add_text(out, sockets->answers);
        buf_add_str(out, STR("}}}}\n"));
    }
}
