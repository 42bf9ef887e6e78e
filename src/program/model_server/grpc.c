/* Start and end of the gRPC server. */
#include "program/model_server/grpc.h"

#include "net/server/shutdown.h"
#include "program/model_server/security.h"
#include "program/process/listen_address.h"
#include "serve/frontend/header_forward.h"

enum {
    /* The receive windows of one stream and of a connection: enough for the round-trip times within
     * a data center. */
    STREAM_WINDOW_BYTES = 4 * 1024 * 1024,
    CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024,
    /* Of a connection, less if their windows are more than the memory for bodies, but not less than
     * RFC 9113, 6.5.2 recommends: then their windows are smaller. */
    MAX_STREAMS = 1000,
    MIN_STREAMS = 100,
    STREAM_REQUESTS = 64, /* in flight, per ModelStreamInfer */
};

static uint32_t max_streams(uint64_t memory_bytes) {
    uint64_t n = memory_bytes / STREAM_WINDOW_BYTES;
    return n > MAX_STREAMS ? MAX_STREAMS : n < MIN_STREAMS ? MIN_STREAMS : (uint32_t)n;
}

static struct grpc_limits limits_of(const struct serve_settings *settings,
                                    const struct net_limits *net) {
    static const int levels[] = {0, 1, 5, 9}; /* none, low, medium, high */
    uint32_t n_streams = max_streams(settings->body_memory.n_bytes);
    struct net_limits limits = *net;
    limits.reuse_port = settings->reuse_grpc_port;
    limits.max_age_ns = settings->grpc_max_connection_age_ns;
    limits.age_grace_ns = settings->grpc_max_connection_age_grace_ns;
    limits.keepalive_timeout_ns = settings->grpc_keepalive_timeout_ns;
    if (settings->grpc_keepalive_time_ns > 0) {
        limits.keepalive_time_ns = settings->grpc_keepalive_time_ns;
    }
    return (struct grpc_limits){
        .net = limits,
        .stream_bytes = GRPC_STREAM_MEMORY_BYTES,
        .max_streams = n_streams,
        .stream_window_bytes =
            grpc_stream_window(settings->body_memory.n_bytes, n_streams, STREAM_WINDOW_BYTES),
        .connection_window_bytes = CONNECTION_WINDOW_BYTES,
        .compression_level = levels[settings->grpc_infer_response_compression_level],
    };
}

/* Without a method: for the requests of REST that come over HTTP/2. */
static enum status open_for_http(struct serve_grpc *self, const struct serve_settings *settings,
                                 const struct grpc_server_options *options, struct error *err) {
    struct grpc_server_options all = *options;
    all.limits = limits_of(settings, &options->limits.net);
    all.admit = NULL;
    return grpc_server_new(&all, &self->server, err);
}

enum status serve_grpc_open(struct serve_grpc *self, const struct serve_settings *settings,
                            const struct inference_services *services,
                            const struct grpc_server_options *options, const struct tls_server *tls,
                            struct listen_address *bound, struct error *err) {
    size_t n = settings->grpc.n;
    if (n == 0) {
        return settings->grpc_on_http && settings->http.n > 0
                   ? open_for_http(self, settings, options, err)
                   : ST_OK;
    }
    enum status st =
        settings->grpc_header_forward_pattern
            ? header_forward_new(settings->grpc_header_forward_pattern, &self->forward, err)
            : ST_OK;
    struct grpc_api_options api = {
        .services = *services,
        .server_name = settings->id,
        .server_version = SLUICE_VERSION,
        .forward = self->forward,
        .keys = options->admit_context,
        .restrictions =
            settings->grpc_restricted_protocol.n > 0 ? &settings->grpc_restrictions : NULL,
        .http_restrictions =
            settings->http_restricted_api.n > 0 ? &settings->http_restrictions : NULL,
        .output_contents =
            (enum v2_grpc_contents)(V2_GRPC_CONTENTS_RAW + settings->output_contents),
        .max_in_flight = STREAM_REQUESTS,
        .workers = options->workers,
        .n_workers = options->n_workers,
    };
    if (st == ST_OK) {
        st = grpc_api_new(&api, &self->api, err);
    }
    if (st == ST_OK) {
        struct grpc_server_options all = *options;
        all.limits = limits_of(settings, &options->limits.net);
        all.keeps_field = grpc_api_keeps_field;
        all.keeps_context = self->api;
        all.methods = grpc_api_methods(self->api, &all.n_methods);
        st = grpc_server_new(&all, &self->server, err);
    }
    struct listen_scheme scheme = serve_grpc_scheme(settings);
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = grpc_listen(self->server, &scheme, settings->grpc.items[i], tls,
                         serve_security_has_tls(settings), &bound[i], err);
    }
    return st;
}

void serve_grpc_drain(struct serve_grpc *self) {
    if (self->server) {
        net_server_drain(grpc_server_net(self->server));
    }
    if (self->api) {
        grpc_api_drain(self->api);
    }
}

void serve_grpc_on_models_changed(struct serve_grpc *self) {
    if (self->api) {
        grpc_api_notify_health_watchers(self->api);
    }
}

void serve_grpc_free(struct serve_grpc *self) {
    grpc_server_free(self->server);
    grpc_api_free(self->api);
    header_forward_free(self->forward);
}
