/* Public functions of sluice/client.h: opening and closing a client, and the ping, which both
 * protocols have. */
#include <stdlib.h>

#include "client/call.h"
#include "client/loop.h"
#include "client/mip_convert.h"
#include "client/sized_struct.h"
#include "core/event/clock.h"

/* ---- a client -------------------------------------------------------------------------------- */

static uint64_t value_or_default(uint64_t value, uint64_t otherwise) {
    return value > 0 ? value : otherwise;
}

enum { DEFAULT_CONNECTIONS = 8 };

/* Fills in defaults; copies the URL and the transport that the options point to. */
static enum status resolve_options(sluice_client *client, const sluice_client_options *given,
                                   struct error *err) {
    enum status status = ST_OK;
    if (!given->url) {
        return error_set(err, ST_BAD_FIELD, "the options have no URL");
    }
    if (given->transport) {
        status = sized_struct_read(&client->transport, sizeof(client->transport), given->transport,
                                   "sluice_client_transport", err);
    }
    if (status == ST_OK && given->transport && given->max_connections > 1) {
        status = error_set(err, ST_BAD_FIELD,
                           "max_connections: a transport serves one connection at a time");
    }
    if (status == ST_OK) {
        status = client_url_parse(client->arena, str_of(given->url), &client->url, err);
    }
    client->max_lanes = given->max_connections > 0 ? given->max_connections
                        : given->transport         ? 1
                                                   : DEFAULT_CONNECTIONS;
    client->has_timeout = given->timeout_ns > 0;
    client->options = (struct client_options){
        .url = client->url.text,
        .connect_timeout_ns =
            value_or_default(given->connect_timeout_ns, CLIENT_CONNECT_TIMEOUT_NS),
        .timeout_ns = value_or_default(given->timeout_ns, CLIENT_TIMEOUT_NS),
        .idle_timeout_ns = given->idle_timeout_ns,
        .max_answer_bytes = value_or_default(given->max_answer_bytes, CLIENT_MAX_ANSWER_BYTES),
        .transport = given->transport ? &client->transport : NULL};
    return status;
}

static enum status import_headers(sluice_client *client, const sluice_client_options *given,
                                  struct error *err) {
    const struct client_headers_source source = {given->headers, given->n_headers,
                                                 given->bearer_token, NULL,
                                                 client->url.protocol == CLIENT_GRPC};
    enum status status = client_headers_import(client->arena, &source, &client->headers, err);
    if (status == ST_OK && client->headers.n > 0 && !source.is_grpc) {
        status = client_url_expect(&client->url, CLIENT_HTTP, "a client with headers", err);
    }
    return status;
}

/* TLS for an https or grpcs URL, unless the caller has a transport for it. Options without effect
 * are most likely a mistake in the URL. */
static enum status open_tls(sluice_client *client, const sluice_client_options *given,
                            struct error *err) {
    static const struct tls_peer_hints hints = {"sluice_tls_options.ca_file",
                                                "sluice_tls_options.cert_file",
                                                "sluice_tls_options.cert_file, key_file"};
    sluice_tls_options tls = {0};
    enum status status = ST_OK;
    if (given->tls) {
        status = sized_struct_read(&tls, offsetof(sluice_tls_options, reserved), given->tls,
                                   "sluice_tls_options", err);
    }
    if (status != ST_OK || (!given->tls && (!client->url.is_tls || given->transport))) {
        return status;
    }
    if (!client->url.is_tls || given->transport) {
        return error_set(err, ST_BAD_FIELD,
                         "\"%s\": the options for TLS are for https:// and grpcs:// without "
                         "a transport",
                         given->url);
    }
    if (tls.key_file && !tls.cert_file) {
        return error_set(err, ST_BAD_FIELD, "key_file needs cert_file");
    }
    const struct client_tls_options options = {.files = {.ca = {"ca_file", tls.ca_file},
                                                         .cert = {"cert_file", tls.cert_file},
                                                         .key = {"key_file", tls.key_file},
                                                         .insecure = tls.insecure != 0},
                                               .server_name = tls.server_name,
                                               .hints = &hints,
                                               .is_http2 = client->url.protocol == CLIENT_GRPC};
    return client_tls_new(&options, &client->tls, err);
}

static enum status create_client(const sluice_client_options *given, sluice_client **out,
                                 struct error *err) {
    sluice_client *client = calloc(1, sizeof(*client));
    *out = client;
    if (!client) {
        return error_no_memory(err, "a client");
    }
    client->epoll_fd = -1;
    LIST_INIT(&client->calls);
    LIST_INIT(&client->spare);
    TAILQ_INIT(&client->idle);
    TAILQ_INIT(&client->busy);
    TAILQ_INIT(&client->queue);
    TAILQ_INIT(&client->done);
    TAILQ_INIT(&client->arrived);
    client->cache = arena_cache_new(SIZE_MAX);
    client->arena = arena_new(NULL, 0);
    if (!client->cache || !client->arena) {
        return error_no_memory(err, "a client");
    }
    arena_cache_keep_large(client->cache);
    enum status status = resolve_options(client, given, err);
    if (status == ST_OK) {
        status = client_retry_import(client->arena, given->retry, &client->retry, err);
        client_retry_budget_init(&client->retry_budget, client->retry,
                                 clock_now_ns() ^ (uint64_t)(uintptr_t)client);
    }
    if (status == ST_OK) {
        status = open_tls(client, given, err);
    }
    if (status == ST_OK) {
        client->options.tls = client->tls;
        client->options.resolving = &client->resolving;
        status = client_loop_init(client, err);
    }
    return status == ST_OK ? import_headers(client, given, err) : status;
}

sluice_client_status sluice_client_open(const sluice_client_options *options,
                                        sluice_client **client, sluice_client_error *error) {
    struct error err = {0};
    sluice_client_options given;
    *client = NULL;
    if (error && sized_struct_check(error->size, "sluice_client_error", &err) != ST_OK) {
        return SLUICE_CLIENT_INVALID; /* `error` can't take the reason */
    }
    enum status status =
        sized_struct_read(&given, sizeof(given), options, "sluice_client_options", &err);
    if (status == ST_OK) {
        status = create_client(&given, client, &err);
    }
    if (status == ST_OK) {
        return SLUICE_CLIENT_OK;
    }
    sluice_client_close(*client);
    *client = NULL;
    return client_start_error(&err, error);
}

void sluice_client_close(sluice_client *client) {
    if (!client) {
        return;
    }
    client_call_free_all(client);
    client_loop_fini(client);
    client_tls_free(client->tls);
    arena_free(client->arena);
    arena_cache_free(client->cache);
    free(client);
}

/* ---- ping ------------------------------------------------------------------------------------ */

/* HTTP and gRPC: any answer shows that the server is up. */
static enum status finish_ping(sluice_call *call, struct error *err) {
    struct client *client = call->lane->client;
    return client_url(client)->protocol == CLIENT_HTTP
               ? ST_OK
               : client_mip_check(client_mip(client), 0, err);
}

static enum status finish_ping_grpc(sluice_call *call, struct str message, struct error *err) {
    (void)call, (void)message, (void)err;
    return ST_OK;
}

sluice_client_status sluice_client_start_ping(sluice_client *client,
                                              const sluice_call_options *options, sluice_call **out,
                                              sluice_client_error *error) {
    static const struct client_call_kind kind = {.result = CLIENT_RESULT_NONE,
                                                 .finish = finish_ping,
                                                 .finish_grpc = finish_ping_grpc,
                                                 .takes_errors = true};
    struct error err = {0};
    sluice_call *call;
    enum status status = client_call_new(client, &kind, options, &call, &err);
    if (status == ST_OK && client->url.protocol != CLIENT_MIP) { /* there a call without items */
        const struct client_query_args args = {.query = CLIENT_LIVE, .headers = call->headers};
        status = client_call_set_query(call, &args, &err);
    }
    return client_call_start(call, status, &err, out, error);
}

sluice_client_status sluice_client_ping(sluice_client *client, const sluice_call_options *options,
                                        sluice_client_error *error) {
    sluice_call *call;
    sluice_client_status status = sluice_client_start_ping(client, options, &call, error);
    status = client_call_run(call, status, error);
    sluice_call_free(call);
    return status;
}
