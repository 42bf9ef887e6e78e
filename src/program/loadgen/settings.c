/* The options of `sluice bench`: the table, the texts of `--help`, and combinations that are
 * invalid. */
#include "program/loadgen/settings.h"

#include <stddef.h>
#include <string.h>

#include "program/options/command.h"
#include "program/requests/infer_mip_items.h"
#include "program/requests/shell.h"

static const struct option rows[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct bench_options, field)},
#include "program/loadgen/bench.def"
#undef OPTION
};
_Static_assert(sizeof(rows) / sizeof(*rows) <= OPTIONS_MAX, "raise OPTIONS_MAX");

static const char about[] = "Puts a model server under load and reports requests per second and "
                            "latency percentiles for each "
                            "concurrency or rate, as a table, and optionally as JSON and as an "
                            "HTML page with charts. Inputs "
                            "are generated from the model's metadata unless they are given.";

static const char epilog[] =
    "Examples\n"
    "  sluice bench http://127.0.0.1:8000 digits\n"
    "  sluice bench http://127.0.0.1:8000 digits -c 1:64:x2 --html digits.html\n"
    "  sluice bench http://127.0.0.1:8000 digits --rate 500:4000:500 --arrival poisson --max-p99 "
    "20ms\n"
    "  sluice bench http://127.0.0.1:8000 digits --input image=@seven.npy --form json -n 1000\n"
    "  sluice bench http+unix:/run/sluice.sock bert --shape ids=128 --batch 8 --json result.json\n"
    "  sluice bench grpc://127.0.0.1:8001 digits -c 1:64:x2 --connections 4\n"
    "  sluice bench tcp://127.0.0.1:9000 --ping --reconnect\n"
    "\n"
    "Exit codes: 0 every request succeeded, 1 some failed or none was sent, 2 arguments that can't "
    "be\nunderstood. Ctrl-C ends the run early and reports what there is.\n";

static const struct option_hint hints[] = {
    {"url", "the URL is the first argument"},
    {"model", "the model's name is the second argument"},
    {"version", "write --model-version V"},
    {"binary", "write --form binary (which it is without the flag)"},
    {"raw", "write --form raw"},
    {"concurrency-range", "write --concurrency FROM:TO:STEP"},
    {"request-rate-range", "write --rate FROM:TO:STEP"},
    {"input-data", "write --data random, --data zeros, or --input NAME=SOURCE"},
    {"latency-threshold", "write --max-p99 TIME"},
    {"measurement-interval", "write --duration TIME"},
    {NULL, NULL},
};

static const char *const most_used[] = {
    "concurrency", "rate",  "duration", "requests", "max-p99", "batch",
    "input",       "shape", "metadata", "json",     "html",    NULL,
};

static const struct option_set set = {
    .most_used = most_used,
    .command = "sluice bench",
    .usage = "[FLAGS] URL [MODEL]",
    .about = about,
    .epilog = epilog,
    .options = rows,
    .n_options = sizeof(rows) / sizeof(*rows),
    .hints = hints,
};

/* Only KServe v2 inferences name a model. */
static enum status check_model(const struct bench_settings *settings, struct error *err) {
    const struct bench_options *options = &settings->options;
    if (options->model && (settings->mip || options->ping)) {
        return error_set(err, ST_BAD_CONFIG, "one argument too many: \"%s\"; %s", options->model,
                         options->ping ? "a ping is for no model"
                                       : "a MIP server serves one model at its address, which has "
                                         "no name");
    }
    if (!options->model && !settings->mip && !options->ping) {
        return error_set(err, ST_BAD_CONFIG, "MODEL is missing: sluice bench %s MODEL (or --ping)",
                         options->url);
    }
    return ST_OK;
}

static enum status check_items(const struct bench_settings *settings, struct error *err) {
    const struct bench_options *options = &settings->options;
    size_t n = options->images.n + options->texts.n + options->json_items.n;
    if (settings->mip && !options->ping && n == 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "there is nothing to send: give --image FILE, --text TEXT or --json-item "
                         "VALUE, or --ping");
    }
    return settings->mip ? infer_items_check_count(n, options->n_inputs, err) : ST_OK;
}

/* Rejects flags of another protocol, and flags of inferences with --ping. */
static enum status check_flags(const struct bench_settings *settings, const struct options *given,
                               struct error *err) {
    enum client_protocol protocol = settings->server.protocol;
    for (size_t i = 0; i < set.n_options; i++) {
        const char *group = rows[i].group;
        bool of_inference = str_starts_with(str_of(group), STR("Request over ")) &&
                            strcmp(rows[i].name, "metadata") != 0;
        if (!given->given[i]) {
            continue;
        }
        if (settings->options.ping && (of_inference || strcmp(rows[i].name, "batch") == 0)) {
            return error_set(err, ST_BAD_CONFIG, "--ping sends no inference: no --%s",
                             rows[i].name);
        }
        if (!command_group_is_for(group, protocol)) {
            return error_set(err, ST_BAD_CONFIG, "--%s is for %s, and %s speaks %s", rows[i].name,
                             command_group_protocols(group), settings->options.url,
                             command_protocol_name(protocol));
        }
    }
    if (settings->options.n_connections > 0 && settings->options.reconnect) {
        return error_set(err, ST_BAD_CONFIG,
                         "--reconnect makes a connection for each request: no --connections");
    }
    return ST_OK;
}

static enum status check_settings(struct bench_settings *settings, const struct options *given,
                                  struct error *err) {
    const struct bench_options *options = &settings->options;
    struct tls_client_options tls = bench_tls_options(options);
    struct client_url *server = &settings->server;
    if (client_url_parse(given->arena, str_of(options->url), server, err) != ST_OK ||
        tls_client_check(&tls, server, err) != ST_OK) {
        return err->status;
    }
    settings->mip = server->protocol == CLIENT_MIP;
    if (options->arrival != 0 && !options->rate) {
        return error_set(err, ST_BAD_CONFIG, "--arrival is for --rate");
    }
    if (options->form == BENCH_FORM_RAW && options->outputs.n > 0) {
        return error_set(err, ST_BAD_CONFIG, "--form raw sends nothing but the input: no --output");
    }
    if (options->json && options->html && strcmp(options->json, options->html) == 0) {
        return error_set(err, ST_BAD_CONFIG, "--json and --html: the same file \"%s\"",
                         options->json);
    }
    return check_model(settings, err) == ST_OK && check_flags(settings, given, err) == ST_OK
               ? check_items(settings, err)
               : err->status;
}

static struct str print_command_line(struct arena *arena, int argc, char **argv) {
    struct buf text;
    buf_init(&text, arena, 256);
    buf_add_str(&text, STR("sluice"));
    for (int i = 0; i < argc; i++) {
        buf_add_char(&text, ' ');
        size_t plain = strspn(argv[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789-_=./:,@+%");
        if (plain > 0 && argv[i][plain] == '\0') {
            buf_add_str(&text, str_of(argv[i]));
        } else {
            shell_word_print(&text, str_of(argv[i]));
        }
    }
    return buf_str(&text);
}

int bench_settings_read(int argc, char **argv, struct arena *arena, struct bench_settings *out) {
    struct options given;
    struct error err = {0};
    *out = (struct bench_settings){0};
    int code = command_parse_args_with(&given, &set, argc, argv, &out->options, arena);
    if (code != COMMAND_CONTINUE) {
        return code;
    }
    enum status status = check_settings(out, &given, &err);
    if (status == ST_OK) {
        status = bench_plan_make(out->options.concurrency, out->options.rate, &out->plan, &err);
    }
    out->command_line = print_command_line(arena, argc, argv);
    return status == ST_OK ? COMMAND_CONTINUE : command_usage_error(&set, &err);
}
