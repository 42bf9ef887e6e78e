/* The settings of `sluice pick`: their table, the text around it in `--help`, and checks of
 * combinations. */
#include "program/picker/settings.h"

#include <stddef.h>
#include <string.h>

#include "core/base/log.h"
#include "core/os/cpus.h"
#include "pick/config/dns_plan.h"
#include "program/options/command.h"
#include "program/process/memory_share.h"
#include "program/process/web_settings.h"
#include "telemetry/admin/listener.h"

static const struct option rows[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct pick_settings, field)},
#include "program/picker/settings.def"
#undef OPTION
};

enum { MOST_NAME_BYTES = 253 };

_Static_assert(sizeof(rows) / sizeof(*rows) <= OPTIONS_MAX, "raise OPTIONS_MAX");

/* Flags of other endpoint pickers that are spelled differently here. */
static const struct option_hint hints[] = {
    {"endpoints", "write --endpoint IP:PORT or NAME:PORT, once for each"},
    {"http", "the picker answers a proxy over gRPC: write --grpc HOST:PORT"},
    {"port", "write --grpc HOST:PORT"},
    {NULL, NULL},
};

static const char about[] =
    "Picks a model server for each request of a proxy: Envoy, or a gateway, sends each request "
    "over "
    "ext-proc and forwards it to the endpoint in the response. The pool's profile picks the best "
    "of "
    "the ready endpoints in the proxy's subset: the one with the fewest requests in flight, unless "
    "loads are scraped or the profile is configured otherwise.";

static const char epilog[] =
    "Sizes are bytes or written 64KiB, 256MiB, 2GB; times are seconds or written 250ms, 30s, 2m.\n"
    "\n"
    "Flags of the upstream project's picker are accepted as in its manifests, with their\n"
    "defaults: docs/upstream-flags.md.\n"
    "\n"
    "Examples\n"
    "  sluice pick --endpoint 10.0.0.1:8000 --endpoint 10.0.0.2:8000\n"
    "  sluice pick --config pool.yaml --grpc 0.0.0.0:9002 --grpc-tls-self-signed\n"
    "  sluice pick --config pool.yaml --check\n"
    "  sluice pick --kube --pool-name llama --pool-namespace models\n"
    "  sluice pick --config pool.yaml --explain --path /v2/models/digits/infer\n"
    "\n"
    "Exit codes: 0 ended as asked, 1 failed, 2 settings that can't be understood.\n";

static const char *const most_used[] = {
    "config",  "endpoint", "kube",    "pool-name", "grpc",
    "metrics", "check",    "explain", "log-level", NULL,
};

static const struct option_set set = {
    .most_used = most_used,
    .command = "sluice pick",
    .usage = "[FLAGS]",
    .about = about,
    .epilog = epilog,
    .options = rows,
    .n_options = sizeof(rows) / sizeof(*rows),
    .hints = hints,
};

bool pick_has_tls(const struct pick_settings *settings) {
    return settings->grpc_tls_cert || settings->grpc_tls_self_signed;
}

struct listen_scheme pick_grpc_scheme(const struct pick_settings *settings) {
    return (struct listen_scheme){"grpc", "grpc", "grpcs", pick_has_tls(settings)};
}

struct pool_watch_options pick_pool_options(const struct pick_settings *settings) {
    return (struct pool_watch_options){.config = settings->config,
                                       .config_text = settings->config_text,
                                       .extra_config = settings->upstream.config,
                                       .extra_config_flag = settings->upstream.extra_config_flag,
                                       .name = settings->kube ? NULL : settings->pool_name,
                                       .fallback = (enum pool_watch_fallback)settings->fallback,
                                       .endpoints = settings->endpoints.items,
                                       .n_endpoints = settings->endpoints.n};
}

struct kube_source_options pick_cluster_options(const struct pick_settings *settings) {
    return (struct kube_source_options){.config = {.kubeconfig = settings->kubeconfig,
                                                   .kube_context = settings->kube_context,
                                                   .service_account = settings->service_account},
                                        .pool_namespace = settings->pool_namespace,
                                        .pool_name = settings->pool_name,
                                        .pool_group = settings->pool_group,
                                        .pod_selector = settings->pod_selector,
                                        .pod_ports = settings->pod_ports};
}

/* ---- combinations ---------------------------------------------------------------------------- */

static enum status check_endpoints(const struct pick_settings *settings, struct error *err) {
    struct endpoint_address address;
    struct str name;
    uint16_t port;
    if (!settings->config && !settings->config_text && settings->endpoints.n == 0 &&
        !settings->kube) {
        return error_set(err, ST_BAD_CONFIG,
                         "there is nothing to pick from: give --endpoint IP:PORT, once for each "
                         "model server, --config FILE, or --kube --pool-name NAME");
    }
    for (size_t i = 0; i < settings->endpoints.n; i++) {
        const char *text = settings->endpoints.items[i];
        if (!endpoint_address_parse(str_of(text), &address) &&
            !dns_target_parse(str_of(text), &name, &port)) {
            return error_set(err, ST_BAD_CONFIG,
                             "--endpoint %s: expected IP:PORT, as 10.0.0.1:8000 or [::1]:8000, or "
                             "NAME:PORT, as models.example:8000",
                             text);
        }
    }
    return ST_OK;
}

/* A name in the Kubernetes API, which becomes part of a path. */
static bool is_name(const char *text) {
    size_t n = strlen(text);
    return n > 0 && n <= MOST_NAME_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == n;
}

static enum status check_name(const char *flag, const char *text, struct error *err) {
    return !text || is_name(text)
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG,
                           "--%s \"%s\": expected up to %d of a to z, 0 to 9, - and .", flag, text,
                           MOST_NAME_BYTES);
}

static enum status check_group(const char *group, struct error *err) {
    if (!group || strcmp(group, KUBE_KINDS[KUBE_POOL].group) == 0 ||
        strcmp(group, KUBE_KINDS[KUBE_POOL_ALPHA].group) == 0) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG, "--pool-group %s: expected %s or %s", group,
                     KUBE_KINDS[KUBE_POOL].group, KUBE_KINDS[KUBE_POOL_ALPHA].group);
}

/* Checks the flags that select pods by labels, without an InferencePool. */
static enum status check_pods(const struct pick_settings *settings, struct error *err) {
    struct kube_ports ports;
    if (!settings->pod_selector != !settings->pod_ports) {
        return error_set(err, ST_BAD_CONFIG, "--pod-selector and --pod-ports need each other");
    }
    if (settings->pod_selector && settings->pool_group) {
        return error_set(err, ST_BAD_CONFIG,
                         "--pool-group is of an InferencePool: with --pod-selector there is none");
    }
    if (settings->leader_election && !settings->pool_name) {
        return error_set(err, ST_BAD_CONFIG,
                         "--leader-election needs --pool-name, which its Lease is named after");
    }
    return settings->pod_ports ? kube_ports_parse(settings->pod_ports, &ports, err) : ST_OK;
}

/* Which API server, and our credentials: --metrics-auth needs them, too. */
static bool is_of_api_server(const char *name) {
    return strcmp(name, "kubeconfig") == 0 || strcmp(name, "kube-context") == 0 ||
           strcmp(name, "service-account") == 0;
}

/* Rejects flags of a cluster without --kube. */
static enum status check_cluster(const struct options *given, const struct pick_settings *settings,
                                 struct error *err) {
    for (size_t i = 0; i < set.n_options && !settings->kube; i++) {
        bool is_used = settings->metrics_auth && is_of_api_server(rows[i].name);
        if (given->given[i] && strcmp(rows[i].group, "Cluster") == 0 && !is_used) {
            return error_set(err, ST_BAD_CONFIG, "--%s is of a cluster: it needs --kube",
                             rows[i].name);
        }
    }
    if (settings->kube && !settings->pool_name && !settings->pod_selector) {
        return error_set(err, ST_BAD_CONFIG,
                         "--kube needs --pool-name, the InferencePool's name, or --pod-selector");
    }
    if (settings->kubeconfig && settings->service_account) {
        return error_set(err, ST_BAD_CONFIG, "--kubeconfig and --service-account: one of them");
    }
    return check_pods(settings, err) == ST_OK &&
                   check_name("pool-name", settings->pool_name, err) == ST_OK &&
                   check_name("pool-namespace", settings->pool_namespace, err) == ST_OK
               ? check_group(settings->pool_group, err)
               : err->status;
}

static enum status check_tls(const struct pick_settings *settings, struct error *err) {
    const char *cert = settings->grpc_tls_cert, *key = settings->grpc_tls_key;
    enum status st = listen_address_check_tls_files("metrics", settings->metrics_tls_cert,
                                                    settings->metrics_tls_key,
                                                    settings->metrics_tls_client_ca, err);
    if (st != ST_OK) {
        return st;
    }
    if (!settings->grpc_tls_self_signed) {
        return listen_address_check_tls_files("grpc", cert, key, settings->grpc_tls_client_ca, err);
    }
    if (cert || key) {
        return error_set(err, ST_BAD_CONFIG,
                         "--grpc-tls-self-signed makes a certificate: no --grpc-tls-%s",
                         cert ? "cert" : "key");
    }
    return ST_OK;
}

/* Rejects invalid addresses, for --check; whether they can be bound is found out later. */
static enum status check_addresses(const struct pick_settings *settings, struct error *err) {
    struct listen_scheme scheme = pick_grpc_scheme(settings);
    struct listen_address listen_address;
    struct address address;
    enum status st = ST_OK;
    for (size_t i = 0; i < settings->grpc.n && st == ST_OK; i++) {
        st = listen_address_parse(&scheme, settings->grpc.items[i], &listen_address, err);
    }
    for (size_t i = 0; i < settings->health.n && st == ST_OK; i++) {
        st = address_parse(str_of(settings->health.items[i]), &address, err);
        st = st == ST_OK ? st : error_prefix(err, "--health");
    }
    if (st == ST_OK && admin_listener_is_enabled(settings->metrics)) {
        st = address_parse(str_of(settings->metrics), &address, err);
        st = st == ST_OK ? st : error_prefix(err, "--metrics");
    }
    return st;
}

/* Rejects flags that describe a request without --explain. */
static enum status check_question(const struct options *given, const struct pick_settings *settings,
                                  struct error *err) {
    if (settings->explain && settings->check) {
        return error_set(err, ST_BAD_CONFIG, "--check and --explain: one of them");
    }
    for (size_t i = 0; i < set.n_options && !settings->explain; i++) {
        if (given->given[i] && strcmp(rows[i].group, "Explaining a pick") == 0) {
            return error_set(err, ST_BAD_CONFIG, "--%s describes a request: it needs --explain",
                             rows[i].name);
        }
    }
    return ST_OK;
}

static enum status resolve_settings(const struct options *given, struct pick_settings *out,
                                    struct arena *arena, struct error *err) {
    if (check_question(given, out, err) != ST_OK || check_cluster(given, out, err) != ST_OK ||
        check_endpoints(out, err) != ST_OK || check_tls(out, err) != ST_OK ||
        check_addresses(out, err) != ST_OK ||
        web_settings_resolve(&out->allowed_hosts, &out->allowed_origins, arena, &out->web, err) !=
            ST_OK) {
        return err->status;
    }
    struct cpus cpus;
    cpus_read(&cpus);
    out->workers = out->workers > 0 ? out->workers : cpus.usable;
    memory_limit_read(&out->memory_limit);
    memory_share_resolve(&out->client_memory, &out->memory_limit);
    memory_share_resolve(&out->body_memory, &out->memory_limit);
    memory_share_cap(&out->body_memory, &out->client_memory);
    return ST_OK;
}

int pick_settings_read(int argc, char **argv, struct arena *arena, struct pick_settings *out) {
    struct options given;
    struct error err = {0};
    *out = (struct pick_settings){0};
    struct upstream_flags *upstream = &out->upstream;
    if (!options_wants_help(argc, argv)) {
        if (upstream_flags_read(argc, argv, arena, upstream, &err) != ST_OK) {
            return command_usage_error(&set, &err);
        }
        argc = upstream->argc;
        argv = upstream->argv;
    }
    int code = command_parse_args_with(&given, &set, argc, argv, out, arena);
    if (code != COMMAND_CONTINUE) {
        return code;
    }
    return resolve_settings(&given, out, arena, &err) == ST_OK ? COMMAND_CONTINUE
                                                               : command_usage_error(&set, &err);
}

enum status pick_settings_choose_discovery(struct pick_settings *settings, struct error *err) {
    struct pool_watch_options options = pick_pool_options(settings);
    bool named = false;
    if (!settings->kube || !settings->upstream.used || !(options.config || options.config_text)) {
        return ST_OK;
    }
    enum status st = pool_watch_names_endpoints_file(&options, &named, err);
    if (named) {
        settings->kube = settings->leader_election = false;
    }
    return st;
}
