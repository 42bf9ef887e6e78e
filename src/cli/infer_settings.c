/* The options of `sluice infer`: the table, the words around it in `--help`, and what does not go
 * together. */
#include "cli/infer_settings.h"

#include <stddef.h>

#include "cli/command.h"

static const struct option options[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct infer_settings, field)},
#include "cli/infer.def"
#undef OPTION
};
_Static_assert(sizeof(options) / sizeof(*options) <= OPTIONS_MAX, "raise OPTIONS_MAX");

static const char about[] =
    "Sends one inference request and prints the answer. Datatypes and shapes come from the model's "
    "metadata; data that lacks only the batch dimension gets one of 1, and flat data is laid out "
    "in "
    "the model's shape.";

static const char epilog[] =
    "Examples\n"
    "  sluice infer http://127.0.0.1:8000 sum --input 'a=[1,2,3]' --input 'b=[4,5,6]'\n"
    "  sluice infer http://127.0.0.1:8000 digits --input image=@seven.npy --binary\n"
    "  sluice infer http://127.0.0.1:8000 digits --input image=@seven.raw --raw\n"
    "  sluice infer http://127.0.0.1:8000 echo --input 'text=hello' --output text\n"
    "  make-image | sluice infer http+unix:/run/sluice.sock digits --input image=- \\\n"
    "      --format npy -o probabilities.npy\n"
    "  sluice infer http://127.0.0.1:8000 digits --input image=@seven.json --dry-run\n"
    "\n"
    "Exit codes: 0 answered, 1 refused or failed, 2 arguments that can't be understood.\n";

static const struct option_hint hints[] = {
    {"url", "the URL is the first argument"},
    {"model", "the model's name is the second argument"},
    {"version", "write --model-version V"},
    {"json",
     "JSON is how tensors travel without --binary; --format says how the answer is printed"},
    {NULL, NULL},
};

static const struct option_set set = {
    .command = "sluice infer",
    .usage = "[FLAGS] URL MODEL --input NAME=SOURCE …",
    .about = about,
    .epilog = epilog,
    .options = options,
    .n_options = sizeof(options) / sizeof(*options),
    .hints = hints,
};

static enum status check(const struct infer_settings *settings, struct error *err) {
    bool files = settings->format != INFER_FORMAT_JSON;
    if (settings->raw && settings->binary) {
        return error_set(err, ST_BAD_CONFIG,
                         "--raw and --binary are two forms of a request: choose one");
    }
    if (settings->raw && settings->inputs.n != 1) {
        return error_set(err, ST_BAD_CONFIG, "--raw sends exactly one --input, not %zu",
                         settings->inputs.n);
    }
    if (settings->raw && (settings->id || settings->parameters.n > 0 || settings->outputs.n > 0)) {
        return error_set(err, ST_BAD_CONFIG,
                         "--raw sends nothing but the input: no --id, --parameter or --output");
    }
    if (settings->output_dir && !files) {
        return error_set(err, ST_BAD_CONFIG, "--output-dir needs --format npy or --format raw");
    }
    if (settings->output_dir && settings->output_file) {
        return error_set(err, ST_BAD_CONFIG, "--output-dir and --output-file: choose one");
    }
    if (files && !settings->dry_run && !settings->output_dir && !settings->output_file) {
        return error_set(err, ST_BAD_CONFIG,
                         "--format npy and raw write files: say where with -o FILE (- for standard "
                         "output) or --output-dir DIR");
    }
    return ST_OK;
}

int infer_settings_read(int argc, char **argv, struct arena *arena, struct infer_settings *out) {
    struct error err = {0};
    *out = (struct infer_settings){0};
    int code = command_begin(&set, argc, argv, out, arena);
    if (code != COMMAND_GO_ON) {
        return code;
    }
    return check(out, &err) == ST_OK ? COMMAND_GO_ON : command_usage_error(&set, &err);
}
