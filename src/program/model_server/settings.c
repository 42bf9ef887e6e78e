/* The settings of `sluice serve`: the option table, the texts of `--help`, and the computed
 * defaults. */
#include "program/model_server/settings.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/num.h"
#include "core/os/cpus.h"
#include "net/transport/address.h"
#include "program/model_server/grpc.h"
#include "program/model_server/security.h"
#include "program/options/command.h"
#include "program/process/memory_share.h"
#include "program/process/web_settings.h"
#include "serve/frontend/header_forward.h"
#include "serve/frontend/mip/target.h"
#include "serve/trace/tracer.h"
#include "telemetry/admin/listener.h"

/* The folders of backends and parts relative to the installed program; the build sets them from the
 * prefix. */
#ifndef SLUICE_BACKENDS_FROM_BIN
#define SLUICE_BACKENDS_FROM_BIN "../lib/sluice/backends"
#endif
#ifndef SLUICE_PARTS_FROM_BIN
#define SLUICE_PARTS_FROM_BIN "../lib/sluice/parts"
#endif

enum { EXE_BYTES = 4096 };

static const struct option options[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct serve_settings, field)},
#include "program/model_server/settings.def"
#undef OPTION
};

/* Flags of the reference server that have another form here. */
static const struct option_hint hints[] = {
    {"http-port", "write --http HOST:PORT"},
    {"http-address", "write --http HOST:PORT"},
    {"allow-http", "HTTP is served at the addresses of --http"},
    {"log-verbose", "write --log-level debug"},
    {"log-info", "write --log-level info, or a lower one"},
    {"log-warning", "write --log-level warning, or a lower one"},
    {"log-error", "write --log-level error"},
    {"allow-client-shared-memory", "write --allow-client-shm true"},
    {"allow-metrics",
     "metrics are served at the address of --metrics; --metrics none turns them off"},
    {"metrics-address", "write --metrics HOST:PORT"},
    {"metrics-port", "write --metrics HOST:PORT"},
    {"metrics-interval-ms",
     "write --metrics-interval 2s; metrics are read at each scrape at the address of --metrics"},
    {"allow-gpu-metrics", "models run on CPUs"},
    {"allow-grpc", "gRPC is served at the addresses of --grpc; --grpc none turns it off"},
    {"grpc-address", "write --grpc HOST:PORT"},
    {"grpc-port", "write --grpc HOST:PORT"},
    {"grpc-use-ssl", "a certificate turns it on: --grpc-tls-cert FILE --grpc-tls-key FILE"},
    {"grpc-use-ssl-mutual", "--grpc-tls-client-ca FILE turns it on"},
    {"strict-model-config", "what config.pbtxt leaves out is read from the model"},
    {"disable-auto-complete-config", "what config.pbtxt leaves out is read from the model"},
    {"trace-file", "write --trace-config triton,file=FILE"},
    {"trace-level", "write --trace-config level=TIMESTAMPS"},
    {"trace-rate", "write --trace-config rate=N"},
    {"trace-count", "write --trace-config count=N"},
    {"trace-log-frequency", "write --trace-config triton,log-frequency=N"},
    {"served-model-name", "write NAME=PATH as an argument"},
    {"host", "write --http HOST:PORT"},
    {"port", "write --http HOST:PORT"},
    {"p", "write --http HOST:PORT"},
    {NULL, NULL},
};

static const char about[] =
    "Serves models over KServe v2 (the Open Inference Protocol) on HTTP, with the binary tensor "
    "data extension, and on gRPC, and over MIP (the Model Invocation Protocol). It listens before "
    "the models are loaded; GET /v2/health/ready, or gRPC's health service, reports when they are "
    "ready.";

static const char epilog[] =
    "Sizes are bytes or written 64KiB, 256MiB, 2GB; times are seconds or written 250ms, 30s, 2m.\n"
    "\n"
    "Examples\n"
    "  sluice serve digits.onnx\n"
    "  sluice serve digits=models/v3.onnx --http 0.0.0.0:8000\n"
    "  sluice serve digits.onnx --mip tcp://127.0.0.1:9000=digits\n"
    "  sluice serve --model-repository /srv/models --config /etc/sluice.yaml --check\n"
    "\n"
    "Exit codes: 0 shut down, 1 failed, 2 invalid settings.\n";

static const char *const most_used[] = {
    "http", "grpc", "metrics", "model-repository", "config", "check", "log-level", NULL,
};

static const struct option_set set = {
    .most_used = most_used,
    .command = "sluice serve",
    .usage = "[FLAGS] PATH…",
    .about = about,
    .epilog = epilog,
    .options = options,
    .n_options = sizeof(options) / sizeof(*options),
    .hints = hints,
};

_Static_assert(sizeof(options) / sizeof(*options) <= OPTIONS_MAX, "raise OPTIONS_MAX");
_Static_assert(LOG_ERROR == 0 && LOG_WARNING == 1 && LOG_INFO == 2 && LOG_DEBUG == 3,
               "the words of --log-level are in this order");
_Static_assert(LOG_TEXT == 0 && LOG_JSON == 1, "the words of --log-format are in this order");

/* The folder `name` beside the program, else `installed`, relative to the program's folder. */
static const char *dir_of(const char *exe, const char *name, const char *installed,
                          struct arena *arena) {
    const char *slash = strrchr(exe, '/');
    int n = slash ? (int)(slash - exe) : 0;
    struct str beside = arena_printf(arena, "%.*s/%s", n, exe, name);
    struct stat st;
    if (stat(beside.ptr, &st) == 0 && S_ISDIR(st.st_mode)) {
        return beside.ptr;
    }
    return arena_printf(arena, "%.*s/%s", n, exe, installed).ptr;
}

const char *backend_dir_of(const char *exe, struct arena *arena) {
    return dir_of(exe, "backends", SLUICE_BACKENDS_FROM_BIN, arena);
}

const char *parts_dir_of(const char *exe, struct arena *arena) {
    return dir_of(exe, "parts", SLUICE_PARTS_FROM_BIN, arena);
}

/* Makes a path absolute, for the log. */
static const char *real_path(const char *path, struct arena *arena) {
    char real[PATH_MAX];
    return realpath(path, real) ? arena_dup(arena, str_of(real)).ptr : path;
}

/* The path of this program. Returns: false when it is unknown; `out` is empty then. */
static bool read_exe(char out[EXE_BYTES]) {
    ssize_t n = readlink("/proc/self/exe", out, EXE_BYTES - 1);
    out[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

static const char *picture_part_in(const char *parts_dir, struct arena *arena) {
    return arena_printf(arena, "%s/libsluice_pictures.so", parts_dir).ptr;
}

const char *picture_part_default(struct arena *arena) {
    char exe[EXE_BYTES];
    (void)read_exe(exe);
    return picture_part_in(parts_dir_of(exe, arena), arena);
}

/* Sets the default folders of backends and parts. */
static enum status resolve_dirs(struct serve_settings *out, struct arena *arena,
                                struct error *err) {
    char exe[EXE_BYTES];
    if (!read_exe(exe) && (!out->backend_dir || !out->parts_dir)) {
        return error_set(err, ST_BAD_CONFIG,
                         "/proc/self/exe can't be read, so backends and parts can't be found "
                         "beside the program: set --backend-dir DIR and --parts-dir DIR");
    }
    if (!out->backend_dir) {
        out->backend_dir = real_path(backend_dir_of(exe, arena), arena);
    }
    if (!out->parts_dir) {
        out->parts_dir = real_path(parts_dir_of(exe, arena), arena);
    }
    out->picture_part = picture_part_in(out->parts_dir, arena);
    return ST_OK;
}

/* Checks the syntax of the addresses, so that --check reports it; binding happens later. */
static enum status check_addresses(const struct serve_settings *settings, struct error *err) {
    struct listen_scheme http = serve_http_scheme(settings), grpc = serve_grpc_scheme(settings);
    struct listen_address listen_address;
    enum status st = serve_security_check(settings, err);
    for (size_t i = 0; i < settings->http.n && st == ST_OK; i++) {
        st = listen_address_parse(&http, settings->http.items[i], &listen_address, err);
    }
    for (size_t i = 0; i < settings->grpc.n && st == ST_OK; i++) {
        st = listen_address_parse(&grpc, settings->grpc.items[i], &listen_address, err);
    }
    if (st != ST_OK) {
        return st;
    }
    if (admin_listener_is_enabled(settings->metrics)) {
        struct address address;
        st = address_parse(str_of(settings->metrics), &address, err);
    }
    if (st != ST_OK) {
        return error_prefix(err, "--metrics");
    }
    struct mip_target target;
    for (size_t i = 0; i < settings->mip.n && st == ST_OK; i++) {
        st = mip_target_parse(str_of(settings->mip.items[i]), &target, err);
    }
    return st == ST_OK ? st : error_prefix(err, "--mip");
}

static enum status check_patterns(const struct serve_settings *settings, struct error *err) {
    if (header_forward_check(settings->http_header_forward_pattern, err) != ST_OK) {
        return error_prefix(err, "--http-header-forward-pattern");
    }
    return header_forward_check(settings->grpc_header_forward_pattern, err) != ST_OK
               ? error_prefix(err, "--grpc-header-forward-pattern")
               : ST_OK;
}

static enum status read_backend_configs(struct serve_settings *out, struct arena *arena,
                                        struct error *err) {
    size_t n = out->backend_configs.n;
    struct repository_backend_param *params = arena_calloc(arena, n + 1, sizeof(*params));
    for (size_t i = 0; i < n; i++) {
        struct str value = str_of(out->backend_configs.items[i]);
        struct str key = str_cut(&value, '=');
        struct str backend = str_cut(&key, ',');
        if (backend.len == 0 || !key.ptr || key.len == 0 || !value.ptr) {
            return error_set(err, ST_BAD_CONFIG,
                             "--backend-config: expected BACKEND,KEY=VALUE, got \"%s\"",
                             out->backend_configs.items[i]);
        }
        params[i] = (struct repository_backend_param){backend, {key, value}};
    }
    out->backend_params = params;
    out->n_backend_params = n;
    if (out->python && out->python[0]) {
        params[out->n_backend_params++] = (struct repository_backend_param){
            STR("python"), {STR("default-python"), str_of(out->python)}};
    }
    return ST_OK;
}

static enum status read_host_policies(struct serve_settings *out, struct arena *arena,
                                      struct error *err) {
    enum status st = host_policies_parse(out->host_policies.items, out->host_policies.n, arena,
                                         &out->policies, err);
    return st == ST_OK ? st : error_prefix(err, "--host-policy");
}

/* Metadata of gRPC has Triton's prefix. */
static enum status read_restrictions(struct serve_settings *out, struct arena *arena,
                                     struct error *err) {
    if (restrictions_parse(out->http_restricted_api.items, out->http_restricted_api.n, "API", "",
                           arena, &out->http_restrictions, err) != ST_OK) {
        return error_prefix(err, "--http-restricted-api");
    }
    if (restrictions_parse(out->grpc_restricted_protocol.items, out->grpc_restricted_protocol.n,
                           "protocol", "triton-grpc-protocol-", arena, &out->grpc_restrictions,
                           err) != ST_OK) {
        return error_prefix(err, "--grpc-restricted-protocol");
    }
    return ST_OK;
}

/* --cache-config is the reference server's form, NAME,KEY=VALUE, once for each key. There is one
 * cache, `local`, with one key, `size`. *out has the value of --cache-size (0: not given), which
 * must not contradict it. */
static enum status read_cache_item(struct str text, uint64_t *out, struct error *err) {
    uint64_t n_bytes;
    struct str value = text;
    struct str name = str_cut(&value, ',');
    struct str key = str_cut(&value, '=');
    if (!str_is(name, "local")) {
        return error_set(err, ST_BAD_CONFIG,
                         "--cache-config: there is one cache, local: write local,size=BYTES");
    }
    if (!str_is(key, "size") || !num_parse_bytes(value, &n_bytes)) {
        return error_set(err, ST_BAD_CONFIG,
                         "--cache-config: expected local,size=BYTES, got \"%.*s\"", STR_ARG(text));
    }
    if (*out > 0 && *out != n_bytes) {
        return error_set(
            err, ST_BAD_CONFIG,
            "--cache-config and --cache-size (or two values of the first) set different sizes");
    }
    *out = n_bytes;
    return ST_OK;
}

/* "QUANTILE:ERROR,…"; the error, which bounds Triton's memory, is not needed: all values of the
 * last minute are counted. */
static enum status read_quantiles(struct str text, struct latency_options *out, struct error *err) {
    out->n_quantiles = 0;
    while (text.ptr && text.len > 0) {
        struct str error = str_cut(&text, ',');
        struct str quantile = str_cut(&error, ':');
        double value, allowed;
        if (!num_parse_decimal(quantile, &value) || !(value >= 0 && value <= 1) || !error.ptr ||
            !num_parse_decimal(error, &allowed) || !(allowed >= 0 && allowed <= 1) ||
            out->n_quantiles == LATENCY_MAX_QUANTILES) {
            return error_set(err, ST_BAD_CONFIG,
                             "summary_quantiles: expected QUANTILE:ERROR, both from 0 to 1, and at "
                             "most %d of them separated by commas, got \"%.*s\"",
                             (int)LATENCY_MAX_QUANTILES, STR_ARG(quantile));
        }
        out->quantiles[out->n_quantiles++] = value;
    }
    return out->n_quantiles > 0
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG, "summary_quantiles: expected QUANTILE:ERROR,…");
}

static enum status read_metrics_item(struct str text, struct latency_options *out,
                                     struct error *err) {
    struct str value = text;
    struct str key = str_cut(&value, '=');
    bool yes = false;
    if (str_is(key, "summary_quantiles") && value.ptr) {
        return read_quantiles(value, out, err);
    }
    if (!value.ptr || !num_parse_bool(value, &yes)) {
        return error_set(err, ST_BAD_CONFIG,
                         "expected KEY=true, KEY=false or summary_quantiles=…, got \"%.*s\"",
                         STR_ARG(text));
    }
    if (str_is(key, "counter_latencies")) {
        out->hides_counters = !yes;
    } else if (str_is(key, "histogram_latencies")) {
        out->has_histograms = yes;
    } else if (str_is(key, "summary_latencies")) {
        out->has_summaries = yes;
    } else {
        return error_set(err, ST_BAD_CONFIG,
                         "expected counter_latencies, histogram_latencies, summary_latencies or "
                         "summary_quantiles, got \"%.*s\"",
                         STR_ARG(key));
    }
    return ST_OK;
}

static enum status read_metrics_config(struct serve_settings *out, struct error *err) {
    enum status st = ST_OK;
    out->latencies =
        (struct latency_options){.quantiles = {0.5, 0.9, 0.95, 0.99, 0.999}, .n_quantiles = 5};
    for (size_t i = 0; st == ST_OK && i < out->metrics_config.n; i++) {
        st = read_metrics_item(str_of(out->metrics_config.items[i]), &out->latencies, err);
    }
    return st == ST_OK ? st : error_prefix(err, "--metrics-config");
}

/* A query is no part of the path that a request is routed by. */
static enum status check_route(const char *flag, const char *route, struct error *err) {
    return route && route[0] == '/' && !strchr(route, '?')
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG, "--%s: expected a path, as /predict, got \"%s\"",
                           flag, route ? route : "");
}

static enum status check_routes(const struct http_platform *platform, struct error *err) {
    enum status st = check_route("platform-health-route", platform->health_route, err);
    if (st == ST_OK) {
        st = check_route("platform-predict-route", platform->predict_route, err);
    }
    return st == ST_OK && strcmp(platform->health_route, platform->predict_route) == 0
               ? error_set(err, ST_BAD_CONFIG,
                           "--platform-health-route and --platform-predict-route are both "
                           "\"%s\": a request could not be told from a check",
                           platform->health_route)
               : st;
}

static enum status check_platform_models(const struct serve_settings *settings, struct error *err) {
    const char *models = settings->platform_models;
    if (!models) {
        return ST_OK;
    }
    if (settings->platform != HTTP_PLATFORM_SAGEMAKER ||
        settings->model_control_mode != REPOSITORY_EXPLICIT) {
        return error_set(err, ST_BAD_CONFIG,
                         "--platform-models needs --platform sagemaker and --model-control-mode "
                         "explicit");
    }
    return models[0] == '/' ? ST_OK
                            : error_set(err, ST_BAD_CONFIG,
                                        "--platform-models: expected a directory's path from /, "
                                        "got \"%s\"",
                                        models);
}

/* What --platform and its kin say. */
static enum status read_platform(struct serve_settings *out, struct error *err) {
    static const char *const inferences[] = {"infer", "generate", "generate_stream"};
    bool is_sagemaker = out->platform == HTTP_PLATFORM_SAGEMAKER;
    const char *health = out->platform_health_route, *predict = out->platform_predict_route;
    if (check_platform_models(out, err) != ST_OK) {
        return err->status;
    }
    if (out->platform == HTTP_PLATFORM_NONE) {
        return health || predict || out->platform_model
                   ? error_set(err, ST_BAD_CONFIG,
                               "--platform-health-route, --platform-predict-route and "
                               "--platform-model need --platform")
                   : ST_OK;
    }
    out->platform_routes = (struct http_platform){
        .kind = (enum http_platform_kind)out->platform,
        .health_route = !health && is_sagemaker ? "/ping" : health,
        .predict_route = !predict && is_sagemaker ? "/invocations" : predict,
        .health = out->platform_health == 0 ? "ready" : "live",
        .model = out->platform_model,
        .inference = inferences[out->platform_inference],
        .models = out->platform_models,
    };
    return check_routes(&out->platform_routes, err);
}

/* `none` as the only address is no address. */
static void drop_none(struct option_texts *addresses) {
    if (addresses->n == 1 && strcmp(addresses->items[0], "none") == 0) {
        addresses->n = 0;
    }
}

static enum status resolve_settings(struct serve_settings *out, struct arena *arena,
                                    struct error *err) {
    if (out->paths.n + out->model_repositories.n == 0 && !out->platform_models) {
        return error_set(err, ST_BAD_CONFIG,
                         "there is nothing to serve: name a model file or a repository of models");
    }
    enum { ISO8601 = 3 }; /* its place in the words of --log-format */
    log_iso8601_set(out->log_format == ISO8601);
    out->log_format = out->log_format == LOG_JSON ? LOG_JSON : LOG_TEXT;
    drop_none(&out->http);
    drop_none(&out->grpc);
    drop_none(&out->mip);
    if (out->http.n + out->grpc.n + out->mip.n == 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "there is nowhere to listen: --http, --grpc or --mip needs an address");
    }
    if (check_addresses(out, err) != ST_OK ||
        web_settings_resolve(&out->allowed_hosts, &out->allowed_origins, arena, &out->web, err) !=
            ST_OK ||
        check_patterns(out, err) != ST_OK || read_platform(out, err) != ST_OK ||
        read_metrics_config(out, err) != ST_OK || read_restrictions(out, arena, err) != ST_OK ||
        read_backend_configs(out, arena, err) != ST_OK ||
        read_host_policies(out, arena, err) != ST_OK) {
        return err->status;
    }
    for (size_t i = 0; i < out->cache_config.n; i++) {
        if (read_cache_item(str_of(out->cache_config.items[i]), &out->cache_size, err) != ST_OK) {
            return err->status;
        }
    }
    if (trace_config_parse(out->trace_config.items, out->trace_config.n, &out->trace, err) !=
        ST_OK) {
        return error_prefix(err, "--trace-config");
    }
    out->trace.max_size = out->max_trace_size;
    struct cpus cpus;
    cpus_read(&cpus);
    out->workers = out->workers > 0 ? out->workers : cpus.usable;
    out->picture_threads = out->picture_threads > 0 ? out->picture_threads : cpus.usable;
    memory_limit_read(&out->memory_limit);
    memory_share_resolve(&out->client_memory, &out->memory_limit);
    memory_share_resolve(&out->body_memory, &out->memory_limit);
    memory_share_cap(&out->body_memory, &out->client_memory);
    memory_share_resolve(&out->max_output_size, &out->memory_limit);
    return resolve_dirs(out, arena, err);
}

int serve_settings_read(const char *command, int argc, char **argv, struct arena *arena,
                        struct serve_settings *out) {
    struct error err = {0};
    struct option_set named = set;
    named.command = command;
    *out = (struct serve_settings){0};
    int code = command_parse_args(&named, argc, argv, out, arena);
    if (code != COMMAND_CONTINUE) {
        return code;
    }
    return resolve_settings(out, arena, &err) == ST_OK ? COMMAND_CONTINUE
                                                       : command_usage_error(&named, &err);
}
