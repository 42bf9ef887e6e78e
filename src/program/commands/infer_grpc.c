/* `sluice infer` over gRPC: metadata where it is needed, the inference, and its response. */
#include "program/commands/infer.h"

#include "client/v2_grpc.h"
#include "codec/grpc/status.h"
#include "codec/grpc/text.h"
#include "core/base/base64.h"
#include "program/commands/dry_run.h"
#include "program/commands/infer_answer.h"
#include "program/commands/infer_call.h"
#include "program/commands/infer_config.h"
#include "program/requests/command_client.h"
#include "program/requests/file.h"
#include "program/requests/model_names.h"
#include "program/requests/shell.h"
#include "program/requests/tls_client.h"

struct infer_run {
    struct arena *arena;
    const struct infer_settings *settings;
    struct tls_client_options tls_options;
    struct client_tls *tls; /* NULL: no TLS */
    struct command_client client;
    struct client_infer infer;
    struct v2_grpc_message message; /* the request message */
};

static enum status open_client(struct infer_run *run, struct error *err) {
    const struct infer_settings *settings = run->settings;
    struct command_client_options options = {.server = &settings->server,
                                             .metadata = &settings->metadata,
                                             .timeout_ns = settings->timeout_ns,
                                             .max_answer_bytes = settings->max_answer_size};
    enum status status = tls_client_new(&run->tls_options, &settings->server, &run->tls, err);
    options.tls = run->tls;
    return status == ST_OK ? command_client_open(&options, &run->client, err) : status;
}

static void close_client(struct infer_run *run) {
    command_client_close(&run->client);
    client_tls_free(run->tls);
}

/* As in infer_http.c. */
static bool has_no_config(enum status status, const sluice_call *call) {
    sluice_client_error error = {.size = sizeof(error)};
    if (status != ST_REFUSED) {
        return false;
    }
    (void)sluice_call_status(call, &error);
    return error.grpc_status != GRPC_CODE_RESOURCE_EXHAUSTED &&
           error.grpc_status != GRPC_CODE_UNAVAILABLE;
}

/* Requests the model's configuration, which not every server has: *config stays NULL then. */
static enum status get_config(struct infer_run *run, const struct model_config **config,
                              struct error *err) {
    struct client_query_args args = {.query = CLIENT_CONFIG,
                                     .model = str_of(run->settings->model),
                                     .version = str_of(run->settings->model_version)};
    struct client_grpc_request request;
    struct str message, text;
    sluice_call *call = NULL;
    enum status status = client_grpc_query_encode(run->arena, &args, &request, err);
    if (status == ST_OK) {
        status = command_call_run(&run->client, &request, &call, &message, err);
    }
    if (status == ST_OK) {
        struct model_config *out = arena_calloc(run->arena, 1, sizeof(*out));
        *config = out;
        status = client_grpc_text_decode(run->arena, CLIENT_CONFIG, message,
                                         run->settings->max_answer_size, &text, err);
        status = status == ST_OK ? infer_config_parse(run->arena, text, out, err) : status;
    } else if (has_no_config(status, call)) {
        status = ST_OK;
    }
    sluice_call_free(call);
    return status;
}

static enum status make_message(struct infer_run *run, struct error *err) {
    const struct infer_settings *settings = run->settings;
    struct model_spec spec;
    struct infer_model model = {0};
    enum status status = ST_OK;
    if (!infer_call_is_complete(settings)) {
        status = command_client_get_model(&run->client, run->arena, str_of(settings->model),
                                          str_of(settings->model_version), &spec, err);
        model.spec = &spec;
        if (status != ST_OK) {
            model_names_explain_grpc(&run->client, run->arena, str_of(settings->model), err);
        }
    }
    if (status == ST_OK && model.spec && infer_picture_may_be(settings, &spec)) {
        status = get_config(run, &model.config, err);
    }
    if (status == ST_OK) {
        status = infer_call_init(run->arena, settings, &model, &run->infer, err);
    }
    return status == ST_OK ? client_grpc_infer_message(run->arena, &run->infer, &run->message, err)
                           : status;
}

/* ---- the dry run ----------------------------------------------------------------------------- */

static void print_metadata(struct buf *out, const struct option_texts *metadata) {
    for (size_t i = 0; i < metadata->n; i++) {
        struct str value = str_of(metadata->items[i]);
        struct str name = str_cut(&value, '=');
        struct buf field;
        buf_init(&field, out->arena, 0);
        buf_printf(&field, "%.*s: ", STR_ARG(name));
        if (str_ends_with(name, STR("-bin"))) {
            base64_print(&field, value);
        } else {
            buf_add_str(&field, value);
        }
        buf_add_str(out, STR(" \\\n  -H "));
        shell_word_print(out, buf_str(&field));
    }
}

/* Prints the curl command: HTTP/2 with prior knowledge, or ALPN. */
static void print_command(struct buf *out, const struct infer_run *run, struct str body) {
    const struct infer_settings *settings = run->settings;
    const struct client_url *server = &settings->server;
    if (!settings->output_file) {
        shell_printf_print(out, body);
        buf_add_str(out, STR(" |\n"));
    }
    buf_add_str(out, server->is_tls ? STR("curl -sS -i --http2")
                                    : STR("curl -sS -i --http2-prior-knowledge"));
    if (server->is_unix) {
        buf_add_str(out, STR(" --unix-socket "));
        shell_word_print(out, server->path);
    }
    curl_tls_print(out, &run->tls_options);
    buf_add_str(out,
                STR(" --output - \\\n  -H 'Content-Type: application/grpc' -H 'TE: trailers'"));
    print_metadata(out, &settings->metadata);
    buf_add_str(out, STR(" \\\n  --data-binary "));
    shell_word_print(out, settings->output_file
                              ? arena_printf(out->arena, "@%s", settings->output_file)
                              : STR("@-"));
    buf_add_str(out, STR(" \\\n  "));
    shell_word_print(out,
                     arena_printf(out->arena, "%s://%.*s%s", server->is_tls ? "https" : "http",
                                  STR_ARG(server->authority), CLIENT_GRPC_PATH("ModelInfer").ptr));
    buf_add_char(out, '\n');
}

/* The message after its prefix (gRPC over HTTP2, "Length-Prefixed-Message"). */
static void frame_message(const struct infer_run *run, struct buf *out) {
    char prefix[GRPC_PREFIX_BYTES];
    buf_init(out, run->arena, 0);
    grpc_prefix_encode((struct grpc_prefix){false, (uint32_t)run->message.n_bytes}, prefix);
    buf_add(out, prefix, sizeof(prefix));
    for (size_t i = 0; i < run->message.n_pieces; i++) {
        buf_add(out, run->message.pieces[i].data, run->message.pieces[i].n_bytes);
    }
}

static enum status dry_run(struct infer_run *run, struct error *err) {
    struct buf body, out;
    frame_message(run, &body);
    struct str text = buf_str(&body);
    if (run->settings->output_file &&
        file_write(run->settings->output_file, &text, 1, err) != ST_OK) {
        return err->status;
    }
    buf_init(&out, run->arena, 0);
    hexdump_print(&out, text, 0);
    buf_add_char(&out, '\n');
    if (!run->settings->output_file && text.len > SHELL_MAX_INLINE) {
        buf_add_str(&out, STR("The message is too long for a command line: with -o FILE it is "
                              "written to a file, and the curl command that sends it is shown.\n"));
    } else {
        print_command(&out, run, text);
    }
    text = buf_str(&out);
    return file_write("-", &text, 1, err);
}

/* ---- the call -------------------------------------------------------------------------------- */

static enum status write_answer(const struct infer_run *run, struct str message,
                                struct error *err) {
    struct v2_client_response answer;
    enum status status = client_grpc_infer_decode(run->arena, message, false, &answer, err);
    if (status == ST_OK && run->settings->format != INFER_FORMAT_JSON) {
        return infer_answer_save(run->arena, run->settings, &answer, err);
    }
    struct buf out;
    buf_init(&out, run->arena, 0);
    if (status == ST_OK) {
        status = infer_top_or_all_print(run->settings, &answer, &out, err);
    }
    struct str text = buf_str(&out);
    const char *path = run->settings->output_file ? run->settings->output_file : "-";
    return status == ST_OK ? file_write(path, &text, 1, err) : status;
}

static enum status send_call(const struct infer_run *run, struct error *err) {
    const struct client_grpc_request request = {CLIENT_GRPC_PATH("ModelInfer"), run->message.pieces,
                                                run->message.n_pieces};
    struct str message;
    sluice_call *call = NULL;
    enum status status = command_call_run(&run->client, &request, &call, &message, err);
    if (status == ST_OK) {
        status = write_answer(run, message, err);
    }
    sluice_call_free(call);
    return status;
}

enum status infer_grpc(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) {
    struct infer_run run = {
        .arena = arena,
        .settings = settings,
        .tls_options = {settings->cacert, settings->cert, settings->key, settings->insecure},
    };
    enum status status = open_client(&run, err);
    if (status == ST_OK && !settings->model) {
        const struct infer_server server = {.grpc = &run.client, .url = settings->url};
        status = infer_list_models(&server, arena, err);
        close_client(&run);
        return status;
    }
    if (status == ST_OK) {
        status = make_message(&run, err);
    }
    if (status == ST_OK) {
        status = settings->dry_run ? dry_run(&run, err) : send_call(&run, err);
    }
    close_client(&run);
    return status;
}
