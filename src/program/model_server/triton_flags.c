/* Reads Triton's flags into the last value of each, and the values of those that may be repeated;
 * then translates them, some together with others. */
#include "program/model_server/triton_flags.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"
#include "core/base/suggest.h"

enum triton_kind { KIND_NONE, KIND_BOOL, KIND_INT, KIND_LEVEL, KIND_FLOAT, KIND_TEXT };

enum triton_action {
    ACTION_SETTING,
    ACTION_SETTINGS,
    ACTION_SETTING_S,
    ACTION_SETTING_MS,
    ACTION_COMBINED,
    ACTION_NO_EFFECT,
    ACTION_NO_EFFECT_IF_TRUE,
    ACTION_NO_EFFECT_IF_FALSE,
    ACTION_REFUSED_IF_TRUE,
};

static const struct row {
    const char *name;
    enum triton_kind kind;
    enum triton_action action;
    const char *ours, *why;
} ROWS[] = {
#define TRITON(name, kind, action, ours, why) {(name), KIND_##kind, ACTION_##action, (ours), (why)},
#include "program/model_server/triton_flags.def"
#undef TRITON
};

enum { N_ROWS = sizeof(ROWS) / sizeof(*ROWS), MOST_DEFAULTS = 24 };
/* What getopt_long returns for the first row: beyond all characters, '?' among them. */
enum { FIRST_CODE = 1000 };

struct given {
    const char *last; /* NULL: not given */
    const char **all; /* n texts */
    size_t n;
};

struct translation {
    struct arena *arena;
    struct triton_flags *out;
    struct flag_note *notes; /* capacity: one for each row, and for each argument */
    struct given given[N_ROWS];
};

/* ---- reading --------------------------------------------------------------------------------- */

static size_t row_of(const char *name) {
    size_t i = 0;
    while (i < N_ROWS && strcmp(ROWS[i].name, name) != 0) {
        i++;
    }
    assert(i < N_ROWS);
    return i;
}

static const char *value_of(const struct translation *self, const char *name) {
    return self->given[row_of(name)].last;
}

static enum status bad_value(const char *what, const char *value, struct error *err) {
    return error_set(err, ST_BAD_CONFIG, "expected %s, got \"%s\"", what, value);
}

/* Checks the value, and writes a boolean one as true or false. */
static enum status check_value(const struct row *row, const char **value, struct error *err) {
    int64_t whole;
    double number;
    bool yes;
    switch (row->kind) {
    case KIND_NONE:
        *value = "true";
        return ST_OK;
    case KIND_BOOL:
        if (!num_parse_bool(str_of(*value), &yes)) {
            return bad_value("true or false", *value, err);
        }
        *value = yes ? "true" : "false";
        return ST_OK;
    case KIND_LEVEL:
        if (num_parse_bool(str_of(*value), &yes)) {
            return ST_OK;
        }
        /* fall through */
    case KIND_INT:
        return num_parse_i64(str_of(*value), &whole) ? ST_OK
                                                     : bad_value("a whole number", *value, err);
    case KIND_FLOAT:
        return num_parse_decimal(str_of(*value), &number) ? ST_OK
                                                          : bad_value("a number", *value, err);
    case KIND_TEXT:
        return ST_OK;
    }
    return ST_OK;
}

static enum status refuse_flag(char **argv, struct error *err) {
    const char *written = argv[optind - 1];
    if (optopt >= FIRST_CODE) {
        const struct row *row = &ROWS[optopt - FIRST_CODE];
        return error_set(err, ST_BAD_CONFIG,
                         row->kind == KIND_NONE ? "--%s takes no value" : "--%s needs a value",
                         row->name);
    }
    struct suggestion suggestion = {0};
    struct str rest = str_of(written + strspn(written, "-"));
    struct str name = str_cut(&rest, '=');
    for (size_t i = 0; i < N_ROWS; i++) {
        suggest_consider(&suggestion, name, str_of(ROWS[i].name));
    }
    return suggestion.best.ptr
               ? error_set(err, ST_BAD_CONFIG, "unknown flag %s; did you mean --%.*s?", written,
                           STR_ARG(suggestion.best))
               : error_set(err, ST_BAD_CONFIG, "unknown flag %s", written);
}

static void store(struct translation *self, size_t row, const char *value, int argc) {
    struct given *given = &self->given[row];
    if (!given->all) {
        given->all = arena_calloc(self->arena, (size_t)argc, sizeof(*given->all));
    }
    given->all[given->n++] = value;
    given->last = value;
}

static enum status read_flags(struct translation *self, int argc, char **argv, struct error *err) {
    struct option options[N_ROWS + 1];
    enum status st = ST_OK;
    for (int i = 0; i < N_ROWS; i++) {
        options[i] = (struct option){ROWS[i].name,
                                     ROWS[i].kind == KIND_NONE ? no_argument : required_argument,
                                     NULL, FIRST_CODE + i};
    }
    options[N_ROWS] = (struct option){0};
    optind = 0; /* anew */
    opterr = 0; /* errors are printed by the caller */
    for (int flag; st == ST_OK && (flag = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (flag == '?') {
            return refuse_flag(argv, err);
        }
        const struct row *row = &ROWS[flag - FIRST_CODE];
        const char *value = optarg;
        st = check_value(row, &value, err) == ST_OK ? ST_OK : error_prefix(err, "--%s", row->name);
        store(self, (size_t)(flag - FIRST_CODE), value, argc);
    }
    return st == ST_OK && optind < argc ? error_set(err, ST_BAD_CONFIG,
                                                    "one argument too many: \"%s\" (models are in "
                                                    "--model-repository)",
                                                    argv[optind])
                                        : st;
}

/* ---- writing arguments of `sluice serve` ----------------------------------------------------- */

static void add(struct translation *self, const char *flag, const char *value) {
    struct triton_flags *out = self->out;
    out->argv[out->argc++] = (char *)arena_printf(self->arena, "--%s=%s", flag, value).ptr;
}

static void add_switch(struct translation *self, const char *flag) {
    struct triton_flags *out = self->out;
    out->argv[out->argc++] = (char *)arena_printf(self->arena, "--%s", flag).ptr;
}

static void note(struct translation *self, size_t row, const char *value) {
    self->notes[self->out->n_notes++] = (struct flag_note){
        arena_printf(self->arena, "--%s=%s", ROWS[row].name, value).ptr, ROWS[row].why};
}

static bool is_true(const char *value) {
    return value && strcmp(value, "true") == 0;
}

static bool is_false(const char *value) {
    return value && strcmp(value, "false") == 0;
}

/* ---- platforms ------------------------------------------------------------------------------- */

/* On Vertex AI, which sets AIP_MODE, its routes are served in place of HTTP and gRPC. */
static bool is_on_vertex_ai(void) {
    const char *mode = getenv("AIP_MODE");
    return mode && strcmp(mode, "PREDICTION") == 0;
}

static bool allows_vertex_ai(const struct translation *self) {
    const char *value = value_of(self, "allow-vertex-ai");
    return value ? is_true(value) : is_on_vertex_ai();
}

/* The variable's value; empty ones count as none. */
static const char *environment(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* Where the platform's routes are served. */
static enum status add_platform_address(struct translation *self, const char *flag,
                                        const char *default_port, struct error *err) {
    const char *port = value_of(self, flag);
    int64_t number;
    port = port ? port : default_port;
    if (!num_parse_i64(str_of(port), &number) || number < 0 || number > UINT16_MAX) {
        bad_value("a port up to 65535", port, err);
        return error_prefix(err, "--%s", flag);
    }
    add(self, "http", arena_printf(self->arena, "0.0.0.0:%s", port).ptr);
    return ST_OK;
}

static enum status add_vertex_ai(struct translation *self, struct error *err) {
    const char *model = value_of(self, "vertex-ai-default-model");
    const char *health = environment("AIP_HEALTH_ROUTE", NULL),
               *predict = environment("AIP_PREDICT_ROUTE", NULL);
    if (!health || !predict) {
        return error_set(err, ST_BAD_CONFIG, "Vertex AI needs %s in the environment",
                         health ? "AIP_PREDICT_ROUTE" : "AIP_HEALTH_ROUTE");
    }
    add(self, "platform", "vertex-ai");
    add(self, "platform-health-route", health);
    add(self, "platform-predict-route", predict);
    if (model) {
        add(self, "platform-model", model);
    }
    return add_platform_address(self, "vertex-ai-port", environment("AIP_HTTP_PORT", "8080"), err);
}

/* A range is "FIRST-LAST". */
static enum status check_safe_ports(struct translation *self, struct error *err) {
    const char *range = value_of(self, "sagemaker-safe-port-range"),
               *port = value_of(self, "sagemaker-port");
    struct str rest = str_of(range ? range : "0-65535");
    struct str first = str_cut(&rest, '-');
    int64_t least, most, number;
    if (!rest.ptr || !num_parse_i64(first, &least) || !num_parse_i64(rest, &most)) {
        bad_value("FIRST-LAST", range, err);
        return error_prefix(err, "--sagemaker-safe-port-range");
    }
    if (num_parse_i64(str_of(port ? port : "8080"), &number) && (number < least || number > most)) {
        return error_set(err, ST_BAD_CONFIG,
                         "--sagemaker-port %s is outside of --sagemaker-safe-port-range %s",
                         port ? port : "8080", range);
    }
    return ST_OK;
}

static enum status add_sagemaker(struct translation *self, struct error *err) {
    const char *model = environment("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", NULL);
    if (check_safe_ports(self, err) != ST_OK) {
        return err->status;
    }
    bool has_many = strcmp(environment("SAGEMAKER_MULTI_MODEL", ""), "true") == 0;
    add(self, "platform", "sagemaker");
    add(self, "platform-health",
        environment("SAGEMAKER_TRITON_PING_MODE", has_many ? "live" : "ready"));
    if (has_many) {
        add(self, "platform-models", "/opt/ml/models");
    }
    add(self, "platform-inference", environment("SAGEMAKER_TRITON_INFERENCE_TYPE", "infer"));
    if (model) {
        add(self, "platform-model", model);
    }
    return add_platform_address(self, "sagemaker-port", "8080", err);
}

/* Flags of one that is off have no effect. */
static enum status add_platform(struct translation *self, struct error *err) {
    bool vertex_ai = allows_vertex_ai(self), sagemaker = is_true(value_of(self, "allow-sagemaker"));
    if (vertex_ai && sagemaker) {
        return error_set(err, ST_BAD_CONFIG,
                         "--allow-sagemaker and Vertex AI (--allow-vertex-ai, AIP_MODE) exclude "
                         "each other");
    }
    return vertex_ai ? add_vertex_ai(self, err) : sagemaker ? add_sagemaker(self, err) : ST_OK;
}

/* ---- flags that are taken together ----------------------------------------------------------- */

/* "--PROTOCOL-address" and "--PROTOCOL-port", or none. */
static enum status add_address(struct translation *self, const char *protocol, const char *host,
                               const char *default_port, struct error *err) {
    char name[32];
    int64_t number;
    snprintf(name, sizeof(name), "allow-%s", protocol);
    const char *allowed = value_of(self, name);
    bool has_platform = allows_vertex_ai(self) || is_true(value_of(self, "allow-sagemaker"));
    bool is_http = strcmp(protocol, "http") == 0;
    bool is_off = is_false(allowed) || (!allowed && is_on_vertex_ai() && allows_vertex_ai(self) &&
                                        strcmp(protocol, "metrics") != 0);
    if (is_off) {
        if (!is_http || !has_platform) { /* else it has the platform's address alone */
            add(self, protocol, "none");
        }
        return ST_OK;
    }
    snprintf(name, sizeof(name), "%s-port", protocol);
    const char *port = value_of(self, name);
    port = port ? port : default_port;
    if (!num_parse_i64(str_of(port), &number) || number < 0 || number > UINT16_MAX) {
        bad_value("a port up to 65535", port, err);
        return error_prefix(err, "--%s", name);
    }
    bool ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    add(self, protocol, arena_printf(self->arena, ipv6 ? "[%s]:%s" : "%s:%s", host, port).ptr);
    return ST_OK;
}

static enum status add_addresses(struct translation *self, struct error *err) {
    const char *http = value_of(self, "http-address"), *grpc = value_of(self, "grpc-address"),
               *metrics = value_of(self, "metrics-address");
    http = http ? http : "0.0.0.0";
    if (add_address(self, "http", http, "8000", err) != ST_OK ||
        add_address(self, "grpc", grpc ? grpc : "0.0.0.0", "8001", err) != ST_OK) {
        return err->status;
    }
    return add_address(self, "metrics", metrics && *metrics ? metrics : http, "8002", err);
}

/* The files alone turn nothing on; --grpc-use-ssl-mutual, whatever its value, turns TLS on. */
static enum status add_tls(struct translation *self, struct error *err) {
    const char *mutual = value_of(self, "grpc-use-ssl-mutual"),
               *cert = value_of(self, "grpc-server-cert"), *key = value_of(self, "grpc-server-key"),
               *root = value_of(self, "grpc-root-cert");
    if (!is_true(value_of(self, "grpc-use-ssl")) && !mutual) {
        return ST_OK;
    }
    if (!cert || !key) {
        return error_set(err, ST_BAD_CONFIG,
                         "--grpc-use-ssl needs --grpc-server-cert FILE and --grpc-server-key FILE");
    }
    add(self, "grpc-tls-cert", cert);
    add(self, "grpc-tls-key", key);
    if (is_true(mutual)) {
        if (!root) {
            return error_set(err, ST_BAD_CONFIG,
                             "--grpc-use-ssl-mutual needs --grpc-root-cert FILE");
        }
        add(self, "grpc-tls-client-ca", root);
    }
    return ST_OK;
}

/* --exit-on-error is on unless it is turned off; then the server runs on without any model. */
static enum status add_models(struct translation *self, struct error *err) {
    const struct given *load = &self->given[row_of("load-model")];
    const char *mode = value_of(self, "model-control-mode");
    const char *auto_complete = value_of(self, "disable-auto-complete-config");
    bool keep_going = is_false(value_of(self, "exit-on-error"));
    if (load->n > 0 && !(mode && str_eq_nocase(str_of(mode), STR("explicit")))) {
        return error_set(err, ST_BAD_CONFIG,
                         "--load-model needs --model-control-mode=explicit as well");
    }
    for (size_t i = 0; i < load->n; i++) {
        add(self, "load-model", load->all[i]);
    }
    add(self, "exit-on-error", keep_going ? "false" : "true");
    if (keep_going) {
        add_switch(self, "keep-going");
    }
    if (auto_complete || is_true(value_of(self, "strict-model-config"))) {
        add_switch(self, "disable-auto-complete-config");
    }
    return ST_OK;
}

/* Messages of gRPC may be as large as it allows. */
static enum status add_body_limits(struct translation *self, struct error *err) {
    const char *given = value_of(self, "http-max-input-size");
    int64_t number = 0;
    if (given && (!num_parse_i64(str_of(given), &number) || number <= 0)) {
        bad_value("a number of bytes above 0", given, err);
        return error_prefix(err, "--http-max-input-size");
    }
    add(self, "http-max-input-size", given ? given : "64MiB");
    add(self, "max-body-size", "2147483647");
    return ST_OK;
}

static enum status add_log(struct translation *self, struct error *err) {
    const char *verbose = value_of(self, "log-verbose");
    int64_t level = 0;
    bool yes = false;
    if (verbose && !num_parse_bool(str_of(verbose), &yes) &&
        !num_parse_i64(str_of(verbose), &level)) {
        return bad_value("a whole number", verbose, err);
    }
    add(self, "log-level", yes || level > 0 ? "debug" : "info");
    self->out->no_info = is_false(value_of(self, "log-info"));
    self->out->no_warning = is_false(value_of(self, "log-warning"));
    self->out->no_error = is_false(value_of(self, "log-error"));
    return ST_OK;
}

/* The older flags give way to --trace-config, so they come first, and each key is given once. */
static void add_trace(struct translation *self) {
    static const char *const older[][2] = {{"trace-file", "triton,file="},
                                           {"trace-level", "level="},
                                           {"trace-rate", "rate="},
                                           {"trace-count", "count="},
                                           {"trace-log-frequency", "triton,log-frequency="}};
    const struct given *config = &self->given[row_of("trace-config")];
    for (size_t i = 0; i < sizeof(older) / sizeof(*older); i++) {
        const char *value = value_of(self, older[i][0]);
        bool replaced = false;
        for (size_t j = 0; j < config->n; j++) {
            replaced = replaced || str_starts_with(str_of(config->all[j]), str_of(older[i][1]));
        }
        if (value && !replaced) {
            add(self, "trace-config", arena_printf(self->arena, "%s%s", older[i][1], value).ptr);
        }
    }
    for (size_t i = 0; i < config->n; i++) {
        add(self, "trace-config", config->all[i]);
    }
}

static enum status add_cache(struct translation *self, struct error *err) {
    const char *size = value_of(self, "response-cache-byte-size");
    const struct given *config = &self->given[row_of("cache-config")];
    if (size && config->n > 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "--response-cache-byte-size and --cache-config exclude each other");
    }
    if (size) {
        add(self, "cache-config", arena_printf(self->arena, "local,size=%s", size).ptr);
    }
    for (size_t i = 0; i < config->n; i++) {
        add(self, "cache-config", config->all[i]);
    }
    return ST_OK;
}

/* BACKEND,KEY=VALUE, or KEY=VALUE for all backends. default-max-batch-size has a setting of its
 * own, with Triton's default. */
static enum status add_backend_config(struct translation *self, struct error *err) {
    const struct given *config = &self->given[row_of("backend-config")];
    const char *batch = "4";
    for (size_t i = 0; i < config->n; i++) {
        struct str value = str_of(config->all[i]);
        struct str key = str_cut(&value, '=');
        struct str backend = str_cut(&key, ',');
        if (!key.ptr) {
            key = backend;
            backend = STR("");
        } else if (backend.len == 0) {
            key.len = 0;
        }
        if (key.len == 0 || !value.ptr || value.len == 0) {
            bad_value("BACKEND,KEY=VALUE or KEY=VALUE", config->all[i], err);
            return error_prefix(err, "--backend-config");
        }
        if (backend.len == 0 && str_is(key, "default-max-batch-size")) {
            batch = value.ptr;
        } else if (backend.len > 0) {
            add(self, "backend-config", config->all[i]);
        } else {
            note(self, row_of("backend-config"), config->all[i]);
        }
    }
    add(self, "default-max-batch-size", batch);
    return ST_OK;
}

/* KEY=VALUE; Triton takes any key, and NAME,KEY=VALUE for a name that nothing has. */
static void add_metrics_config(struct translation *self) {
    static const char *const known[] = {
        "counter_latencies=", "histogram_latencies=", "summary_latencies=", "summary_quantiles="};
    const struct given *config = &self->given[row_of("metrics-config")];
    for (size_t i = 0; i < config->n; i++) {
        bool is_known = false;
        for (size_t j = 0; j < sizeof(known) / sizeof(*known); j++) {
            is_known = is_known || str_starts_with(str_of(config->all[i]), str_of(known[j]));
        }
        if (is_known) {
            add(self, "metrics-config", config->all[i]);
        } else {
            note(self, row_of("metrics-config"), config->all[i]);
        }
    }
}

static enum status check_rate_limit(struct translation *self, struct error *err) {
    const char *value = value_of(self, "rate-limit");
    if (!value || str_eq_nocase(str_of(value), STR("off"))) {
        return ST_OK;
    }
    if (!str_eq_nocase(str_of(value), STR("execution_count"))) {
        bad_value("execution_count or off", value, err);
        return error_prefix(err, "--rate-limit");
    }
    note(self, row_of("rate-limit"), value);
    return ST_OK;
}

/* ---- all flags ------------------------------------------------------------------------------- */

static enum status translate_row(struct translation *self, size_t i, struct error *err) {
    const struct row *row = &ROWS[i];
    const struct given *given = &self->given[i];
    switch (row->action) {
    case ACTION_SETTING:
        add(self, row->ours, given->last);
        return ST_OK;
    case ACTION_SETTING_S:
        add(self, row->ours, arena_printf(self->arena, "%ss", given->last).ptr);
        return ST_OK;
    case ACTION_SETTING_MS:
        add(self, row->ours, arena_printf(self->arena, "%sms", given->last).ptr);
        return ST_OK;
    case ACTION_SETTINGS:
        for (size_t j = 0; j < given->n; j++) {
            add(self, row->ours, given->all[j]);
        }
        return ST_OK;
    case ACTION_NO_EFFECT_IF_TRUE:
    case ACTION_NO_EFFECT_IF_FALSE:
        if (is_true(given->last) != (row->action == ACTION_NO_EFFECT_IF_TRUE)) {
            return ST_OK;
        }
        note(self, i, given->last);
        return ST_OK;
    case ACTION_NO_EFFECT:
        note(self, i, given->last);
        return ST_OK;
    case ACTION_REFUSED_IF_TRUE:
        return is_true(given->last) ? error_set(err, ST_BAD_CONFIG, "not supported: %s", row->why)
                                    : ST_OK;
    case ACTION_COMBINED:
        break;
    }
    return ST_OK;
}

static enum status translate(struct translation *self, struct error *err) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (self->given[i].n > 0 && translate_row(self, i, err) != ST_OK) {
            return error_prefix(err, "--%s", ROWS[i].name);
        }
    }
    if (!value_of(self, "id")) {
        add(self, "id", "triton");
    }
    const char *storage = environment("AIP_STORAGE_URI", NULL);
    if (!value_of(self, "model-repository") && !value_of(self, "model-store") && storage) {
        add(self, "model-repository", storage);
    }
    if (add_platform(self, err) != ST_OK || add_addresses(self, err) != ST_OK ||
        add_tls(self, err) != ST_OK || add_models(self, err) != ST_OK ||
        add_body_limits(self, err) != ST_OK || add_log(self, err) != ST_OK ||
        add_cache(self, err) != ST_OK || add_backend_config(self, err) != ST_OK) {
        return err->status;
    }
    add_trace(self);
    add_metrics_config(self);
    return check_rate_limit(self, err);
}

enum status triton_flags_read(int argc, char **argv, struct arena *arena, struct triton_flags *out,
                              struct error *err) {
    struct translation *self = arena_calloc(arena, 1, sizeof(*self));
    *self = (struct translation){.arena = arena, .out = out};
    *out = (struct triton_flags){.argc = 1};
    if (read_flags(self, argc, argv, err) != ST_OK) {
        return err->status;
    }
    if (value_of(self, "help")) {
        out->help = true;
        return ST_OK;
    }
    size_t most = 2 * (size_t)argc + MOST_DEFAULTS + 1;
    out->argv = arena_calloc(arena, most, sizeof(*out->argv));
    out->argv[0] = argv[0];
    out->notes = self->notes = arena_calloc(arena, N_ROWS + (size_t)argc, sizeof(*self->notes));
    enum status st = translate(self, err);
    assert((size_t)out->argc < most);
    return st;
}

void triton_flags_log(const struct triton_flags *flags) {
    flag_notes_log("flag without effect", flags->notes, flags->n_notes);
}

/* ---- help ------------------------------------------------------------------------------------ */

static const char *kind_name(enum triton_kind kind) {
    static const char *const names[] = {
        [KIND_NONE] = "",    [KIND_BOOL] = " BOOL",    [KIND_INT] = " N",
        [KIND_LEVEL] = " N", [KIND_FLOAT] = " NUMBER", [KIND_TEXT] = " TEXT"};
    return names[kind];
}

/* A line, where there is something to say. */
static void print_effect(struct buf *out, const struct row *row) {
    switch (row->action) {
    case ACTION_SETTING:
    case ACTION_SETTINGS:
    case ACTION_SETTING_S:
    case ACTION_SETTING_MS:
    case ACTION_COMBINED:
        if (*row->ours) {
            buf_printf(out, "        --%s of sluice serve\n", row->ours);
        }
        break;
    case ACTION_NO_EFFECT:
    case ACTION_NO_EFFECT_IF_TRUE:
    case ACTION_NO_EFFECT_IF_FALSE:
        buf_printf(out, "        no effect: %s\n", row->why);
        break;
    case ACTION_REFUSED_IF_TRUE:
        buf_printf(out, "        refused: %s\n", row->why);
        break;
    }
}

void triton_flags_help(struct buf *out) {
    buf_add_str(out, STR("usage: sluice tritonserver FLAGS\n\n"
                         "Serves models as `sluice serve`, with the command line and the defaults "
                         "of Triton's\ntritonserver. `sluice serve --help` explains each setting "
                         "of ours.\n\n"));
    for (size_t i = 0; i < N_ROWS; i++) {
        buf_printf(out, "  --%s%s\n", ROWS[i].name, kind_name(ROWS[i].kind));
        print_effect(out, &ROWS[i]);
    }
}
