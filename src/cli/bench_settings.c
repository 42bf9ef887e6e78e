/* The options of `sluice bench`: the table, the words around it in `--help`, and what does not go
 * together. */
#include "cli/bench_settings.h"

#include <stddef.h>
#include <string.h>

#include "cli/command.h"
#include "cli/shell.h"

static const struct option rows[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct bench_options, field)},
#include "cli/bench.def"
#undef OPTION
};
_Static_assert(sizeof(rows) / sizeof(*rows) <= OPTIONS_MAX, "raise OPTIONS_MAX");

static const char about[] =
    "Puts a model server under load and reports what it did: requests a second and percentiles of "
    "latency for each concurrency or rate, as a table, and if wanted as JSON and as a page with "
    "curves. Inputs are made up from the model's metadata unless they are given.";

static const char epilog[] =
    "Examples\n"
    "  sluice bench http://127.0.0.1:8000 digits\n"
    "  sluice bench http://127.0.0.1:8000 digits -c 1:64:x2 --html digits.html\n"
    "  sluice bench http://127.0.0.1:8000 digits --rate 500:4000:500 --arrival poisson --max-p99 "
    "20ms\n"
    "  sluice bench http://127.0.0.1:8000 digits --input image=@seven.npy --form json -n 1000\n"
    "  sluice bench http+unix:/run/sluice.sock bert --shape ids=128 --batch 8 --json result.json\n"
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
    {"connections", "write --concurrency N"},
    {"concurrency-range", "write --concurrency FROM:TO:STEP"},
    {"request-rate-range", "write --rate FROM:TO:STEP"},
    {"input-data", "write --data random, --data zeros, or --input NAME=SOURCE"},
    {"latency-threshold", "write --max-p99 TIME"},
    {"measurement-interval", "write --duration TIME"},
    {NULL, NULL},
};

static const struct option_set set = {
    .command = "sluice bench",
    .usage = "[FLAGS] URL [MODEL]",
    .about = about,
    .epilog = epilog,
    .options = rows,
    .n_options = sizeof(rows) / sizeof(*rows),
    .hints = hints,
};

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* A model is named where the protocol has names. */
static enum status check_model(const struct bench_options *options, struct error *err) {
    bool mip = starts(options->url, "tcp:") || starts(options->url, "unix:");
    if (options->model.n > 1) {
        return error_set(err, ST_BAD_CONFIG, "one argument too many: \"%s\"",
                         options->model.items[1]);
    }
    if (options->model.n == 1 && (mip || options->ping)) {
        return error_set(err, ST_BAD_CONFIG, "%s: %s names no model", options->model.items[0],
                         options->ping ? "a ping" : "MIP has one model to an address and");
    }
    if (options->model.n == 0 && !mip && !options->ping) {
        return error_set(err, ST_BAD_CONFIG, "MODEL is missing: sluice bench %s MODEL (or --ping)",
                         options->url);
    }
    return ST_OK;
}

static enum status check(const struct bench_options *options, struct error *err) {
    if (options->arrival != 0 && !options->rate) {
        return error_set(err, ST_BAD_CONFIG, "--arrival is for --rate");
    }
    if (options->ping && (options->inputs.n > 0 || options->shapes.n > 0 ||
                          options->outputs.n > 0 || options->batch != 1)) {
        return error_set(err, ST_BAD_CONFIG,
                         "--ping sends no inputs: no --input, --shape, --output or --batch");
    }
    if (options->form == BENCH_FORM_RAW && options->outputs.n > 0) {
        return error_set(err, ST_BAD_CONFIG, "--form raw sends nothing but the input: no --output");
    }
    if (options->json_file && options->html_file &&
        strcmp(options->json_file, options->html_file) == 0) {
        return error_set(err, ST_BAD_CONFIG, "--json and --html: the same file \"%s\"",
                         options->json_file);
    }
    return check_model(options, err);
}

static enum status print_command_line(struct arena *arena, int argc, char **argv, struct str *out,
                                      struct error *err) {
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
    *out = buf_str(&text);
    return text.failed ? error_set(err, ST_NO_MEMORY, "no memory for the arguments") : ST_OK;
}

int bench_settings_read(int argc, char **argv, struct arena *arena, struct bench_settings *out) {
    struct error err = {0};
    *out = (struct bench_settings){0};
    int code = command_begin(&set, argc, argv, &out->options, arena);
    if (code != COMMAND_GO_ON) {
        return code;
    }
    enum status status = check(&out->options, &err);
    if (status == ST_OK) {
        status = bench_plan_make(out->options.concurrency, out->options.rate, &out->plan, &err);
    }
    if (status == ST_OK) {
        status = print_command_line(arena, argc, argv, &out->command_line, &err);
    }
    out->model = out->options.model.n == 1 ? out->options.model.items[0] : NULL;
    return status == ST_OK ? COMMAND_GO_ON : command_usage_error(&set, &err);
}
