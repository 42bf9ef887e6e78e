/* The options of `sluice infer`: the option table, the texts of its `--help`, and the combinations
 * that are invalid. */
#include "program/requests/infer_settings.h"

#include <stddef.h>
#include <string.h>

#include "program/options/command.h"
#include "program/requests/infer_mip_items.h"
#include "program/requests/tls_client.h"

static const struct option options[] = {
#define OPTION(field, name, alias, type, value, unit, min, max, group, help)                       \
    {(name), (alias), OPTION_##type, (value), (unit),                                              \
     (min),  (max),   (group),       (help),  offsetof(struct infer_settings, field)},
#include "program/requests/infer.def"
#undef OPTION
};
_Static_assert(sizeof(options) / sizeof(*options) <= OPTIONS_MAX, "raise OPTIONS_MAX");

static const char about[] =
    "Sends one inference request and prints the answer. With a URL of HTTP or gRPC alone, lists "
    "the server's models, their inputs and outputs, and an example for each.\n"
    "Over HTTP and gRPC, datatypes and shapes come from the model's metadata; data that lacks only "
    "the "
    "batch "
    "dimension gets one of 1, and flat data is laid out in the model's shape.\n"
    "Over MIP, items are sent as they are, in the order given, and the model makes tensors of "
    "them. "
    "The answer is a line of JSON for each element of the batch: the model's output, or an array "
    "of its outputs where it has several.";

static const char epilog[] =
    "Examples\n"
    "  sluice infer http://127.0.0.1:8000\n"
    "  sluice infer http://127.0.0.1:8000 sum --input a=1,2,3 --input b=4,5,6\n"
    "  sluice infer http://127.0.0.1:8000 digits --input image=@seven.npy --binary\n"
    "  sluice infer http://127.0.0.1:8000 resnet --input image=@cat.jpg --preset imagenet --top 5\n"
    "  sluice infer http://127.0.0.1:8000 digits --input image=@seven.raw --raw\n"
    "  sluice infer http://127.0.0.1:8000 echo --input 'text=hello' --output text\n"
    "  make-image | sluice infer http+unix:/run/sluice.sock digits --input image=- \\\n"
    "      --format npy -o probabilities.npy\n"
    "  sluice infer http://127.0.0.1:8000 digits --input image=@seven.json --dry-run\n"
    "  sluice infer https://models:8443 digits --cacert ca.pem --input image=@seven.npy\n"
    "  sluice infer grpc://127.0.0.1:8001 sum --input 'a=[1,2,3]' --input 'b=[4,5,6]'\n"
    "\n"
    "  sluice infer tcp://127.0.0.1:9000 --image seven.jpg --image two.png\n"
    "  sluice infer tcp://127.0.0.1:9000 --json '[1,2]' --json '[3,4]' --inputs 2\n"
    "  make-text | sluice infer unix:///run/upper.sock --text - --format raw -o -\n"
    "\n"
    "Exit codes: 0 answered, 1 refused or failed, 2 arguments that can't be understood.\n";

static const struct option_hint hints[] = {
    {"url", "the URL is the first argument"},
    {"model", "the model's name is the second argument"},
    {"version", "write --model-version V"},
    {"file", "write --image FILE, --text @FILE or --json @FILE; over HTTP --input NAME=@FILE"},
    {NULL, NULL},
};

static const char *const most_used[] = {
    "input",  "shape",  "preset",      "top",     "labels",  "binary", "metadata",
    "cacert", "format", "output-file", "timeout", "dry-run", NULL,
};

static const struct option_set set = {
    .most_used = most_used,
    .command = "sluice infer",
    .usage = "[FLAGS] URL MODEL --input NAME=SOURCE … | URL --image FILE …",
    .about = about,
    .epilog = epilog,
    .options = options,
    .n_options = sizeof(options) / sizeof(*options),
    .hints = hints,
};

/* ---- invalid combinations --------------------------------------------------------------- */

/* Rejects flags of another protocol. */
static enum status check_flags(const struct options *given, const struct client_url *server,
                               struct error *err) {
    static const char *const WHAT_THEN[] = {
        [CLIENT_HTTP] = "HTTP: there an input is written --input NAME=SOURCE (MIP is at "
                        "tcp://HOST:PORT, unix:///PATH)",
        [CLIENT_GRPC] = "gRPC: there an input is written --input NAME=SOURCE and travels in binary",
        [CLIENT_MIP] = "MIP: there a request is its items, --image FILE, --text TEXT and --json "
                       "VALUE",
    };
    for (size_t i = 0; i < set.n_options; i++) {
        const char *group = options[i].group;
        if (given->given[i] && !command_group_is_for(group, server->protocol)) {
            return error_set(err, ST_BAD_CONFIG, "--%s is for %s, and %s speaks %s",
                             options[i].name, command_group_protocols(group), server->text.ptr,
                             WHAT_THEN[server->protocol]);
        }
    }
    return ST_OK;
}

static enum status check_http(const struct infer_settings *settings, struct error *err) {
    bool is_list = !settings->model && settings->inputs.n == 0 && !settings->dry_run;
    if (is_list) {
        return ST_OK;
    }
    if (!settings->model) {
        return error_set(err, ST_BAD_CONFIG, "MODEL is missing: sluice infer %s MODEL …",
                         settings->url);
    }
    if (settings->labels && settings->top == 0) {
        return error_set(err, ST_BAD_CONFIG, "--labels needs --top N");
    }
    if (settings->top > 0 && settings->format != INFER_FORMAT_JSON) {
        return error_set(err, ST_BAD_CONFIG, "--top prints text: no --format");
    }
    if (settings->raw && settings->top > 0) {
        return error_set(err, ST_BAD_CONFIG, "--raw sends nothing but the input: no --top");
    }
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
    return ST_OK;
}

static enum status check_mip(const struct infer_settings *settings, struct error *err) {
    size_t n_items = settings->images.n + settings->texts.n + settings->jsons.n;
    if (settings->model) {
        return error_set(err, ST_BAD_CONFIG,
                         "one argument too many: \"%s\"; a MIP server serves one model at its "
                         "address, which has no name",
                         settings->model);
    }
    if (n_items == 0) {
        return error_set(
            err, ST_BAD_CONFIG,
            "there is nothing to send: give --image FILE, --text TEXT or --json VALUE");
    }
    enum status status = infer_items_check_count(n_items, settings->n_inputs, err);
    if (status == ST_OK && settings->format == INFER_FORMAT_NPY) {
        return error_set(
            err, ST_BAD_CONFIG,
            "--format npy is for HTTP: the outputs of MIP are not tensors; use json or raw");
    }
    return status;
}

static enum status check_files(const struct infer_settings *settings, struct error *err) {
    bool files = settings->format != INFER_FORMAT_JSON;
    if (settings->output_dir && !files) {
        return error_set(err, ST_BAD_CONFIG, "--output-dir needs --format npy or --format raw");
    }
    if (settings->output_dir && settings->output_file) {
        return error_set(err, ST_BAD_CONFIG, "--output-dir and --output-file: choose one");
    }
    if (files && !settings->dry_run && !settings->output_dir && !settings->output_file) {
        return error_set(err, ST_BAD_CONFIG,
                         "--format npy and raw write files: set -o FILE (- for standard output) or "
                         "--output-dir DIR");
    }
    return ST_OK;
}

static enum status check_settings(struct infer_settings *settings, const struct options *given,
                                  struct error *err) {
    struct client_url *server = &settings->server;
    struct tls_client_options tls = {settings->cacert, settings->cert, settings->key,
                                     settings->insecure};
    if (client_url_parse(given->arena, str_of(settings->url), server, err) != ST_OK ||
        tls_client_check(&tls, server, err) != ST_OK || check_flags(given, server, err) != ST_OK ||
        (server->protocol == CLIENT_MIP ? check_mip : check_http)(settings, err) != ST_OK) {
        return err->status;
    }
    return check_files(settings, err);
}

int infer_settings_read(int argc, char **argv, struct arena *arena, struct infer_settings *out) {
    struct options given;
    struct error err = {0};
    *out = (struct infer_settings){0};
    int code = command_parse_args_with(&given, &set, argc, argv, out, arena);
    if (code != COMMAND_CONTINUE) {
        return code;
    }
    return check_settings(out, &given, &err) == ST_OK ? COMMAND_CONTINUE
                                                      : command_usage_error(&set, &err);
}
