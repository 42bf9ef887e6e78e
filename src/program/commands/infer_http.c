/* `sluice infer` over HTTP: metadata where it is needed, the inference, and its response. */
#include "program/commands/infer.h"

#include "program/commands/dry_run.h"
#include "program/commands/infer_answer.h"
#include "program/commands/infer_call.h"
#include "program/commands/infer_config.h"
#include "program/requests/file.h"
#include "program/requests/model_names.h"
#include "program/requests/shell.h"
#include "program/requests/tls_client.h"

struct infer_run {
    struct arena *arena;
    const struct infer_settings *settings;
    struct client_tls *tls; /* NULL: no TLS */
    struct client *client;
    struct client_infer call;
};

static struct tls_client_options tls_of(const struct infer_settings *settings) {
    return (struct tls_client_options){settings->cacert, settings->cert, settings->key,
                                       settings->insecure};
}

static enum status open_client(struct infer_run *run, struct error *err) {
    struct client_options options = {.url = str_of(run->settings->url),
                                     .connect_timeout_ns = CLIENT_CONNECT_TIMEOUT_NS,
                                     .timeout_ns = run->settings->timeout_ns,
                                     .max_answer_bytes = run->settings->max_answer_size};
    struct tls_client_options tls = tls_of(run->settings);
    enum status status = tls_client_new(&tls, &run->settings->server, &run->tls, err);
    options.tls = run->tls;
    return status == ST_OK ? client_new(&options, &run->client, err) : status;
}

static void close_client(struct infer_run *run) {
    client_free(run->client);
    client_tls_free(run->tls);
}

/* Has the server no configuration, or not for this client? Where it is only busy, the model's own
 * settings are not known, and without them its tensor would be another one. */
static bool has_no_config(enum status status, int http_status) {
    bool busy = http_status == 429 || (http_status >= 502 && http_status <= 504);
    return status == ST_REFUSED && !busy;
}

/* Requests the model's configuration, which not every server has: *config stays NULL then. */
static enum status get_config(struct infer_run *run, const struct model_config **config,
                              struct error *err) {
    struct client_query_args args = {.query = CLIENT_CONFIG,
                                     .model = str_of(run->settings->model),
                                     .version = str_of(run->settings->model_version)};
    struct client_request request;
    struct str text;
    struct model_config *out = arena_calloc(run->arena, 1, sizeof(*out));
    enum status status =
        client_query_encode(run->arena, client_url(run->client), &args, &request, err);
    if (status == ST_OK) {
        struct http_message message = {request.pieces, request.n_pieces};
        status = client_exchange(run->client, message, run->settings->timeout_ns, err);
    }
    if (status == ST_OK) {
        status = client_text_decode(run->arena, client_http(run->client), &text, err);
        if (has_no_config(status, http_session_status(client_http(run->client)))) {
            return ST_OK;
        }
    }
    if (status == ST_OK) {
        status = infer_config_parse(run->arena, text, out, err);
    }
    *config = out;
    return status;
}

static enum status make_call(struct infer_run *run, struct error *err) {
    struct model_spec spec;
    struct infer_model model = {0};
    if (!infer_call_is_complete(run->settings)) {
        enum status status =
            client_model_metadata(run->client, run->arena, str_of(run->settings->model),
                                  str_of(run->settings->model_version), &spec, err);
        if (status != ST_OK) {
            model_names_explain(run->client, run->arena, str_of(run->settings->model), err);
            return status;
        }
        model.spec = &spec;
        if (infer_picture_may_be(run->settings, &spec)) {
            status = get_config(run, &model.config, err);
        }
        if (status != ST_OK) {
            return status;
        }
    }
    return infer_call_init(run->arena, run->settings, &model, &run->call, err);
}

/* Writes the body of the request. */
static enum status write_body(const struct infer_run *run, const struct client_request *request,
                              struct error *err) {
    size_t n = request->body.n_pieces;
    struct str *pieces = arena_calloc(run->arena, n, sizeof(*pieces));
    for (size_t i = 0; i < n; i++) {
        pieces[i] = str_make(request->body.pieces[i].data, request->body.pieces[i].n_bytes);
    }
    return file_write(run->settings->output_file, pieces, n, err);
}

static void print_request(struct buf *out, const struct infer_run *run,
                          const struct client_request *request) {
    struct buf all;
    const char *body_file = run->settings->output_file;
    buf_init(&all, run->arena, 0);
    for (size_t i = 0; i < request->n_pieces; i++) {
        buf_add(&all, request->pieces[i].data, request->pieces[i].n_bytes);
    }
    hexdump_print(out, buf_str(&all), 0);
    buf_add_char(out, '\n');
    if (!body_file && request->body.n_bytes > SHELL_MAX_INLINE) {
        buf_add_str(out, STR("The body is too long for a command line: with -o FILE it is written "
                             "to a file, and the curl command that sends it is shown.\n"));
        return;
    }
    struct tls_client_options tls = tls_of(run->settings);
    curl_command_print(out, client_url(run->client), &tls, request, body_file);
}

static enum status dry_run(struct infer_run *run, struct error *err) {
    struct client_request request;
    struct buf out;
    enum status status =
        client_infer_encode(run->arena, client_url(run->client), &run->call, &request, err);
    if (status == ST_OK && run->settings->output_file) {
        status = write_body(run, &request, err);
    }
    if (status != ST_OK) {
        return status;
    }
    buf_init(&out, run->arena, 0);
    print_request(&out, run, &request);
    struct str text = buf_str(&out);
    return file_write("-", &text, 1, err);
}

static enum status send_call(struct infer_run *run, struct error *err) {
    struct v2_client_response answer;
    enum status status = client_infer(run->client, run->arena, &run->call, &answer, err);
    if (status != ST_OK) {
        return status;
    }
    if (run->settings->format != INFER_FORMAT_JSON) {
        return infer_answer_save(run->arena, run->settings, &answer, err);
    }
    struct buf out;
    buf_init(&out, run->arena, 0);
    status = infer_top_or_all_print(run->settings, &answer, &out, err);
    struct str text = buf_str(&out);
    const char *path = run->settings->output_file ? run->settings->output_file : "-";
    return status == ST_OK ? file_write(path, &text, 1, err) : status;
}

enum status infer_http(struct arena *arena, const struct infer_settings *settings,
                       struct error *err) {
    struct infer_run run = {.arena = arena, .settings = settings};
    enum status status = open_client(&run, err);
    if (status == ST_OK && !settings->model) {
        const struct infer_server server = {.http = run.client, .url = settings->url};
        status = infer_list_models(&server, arena, err);
        close_client(&run);
        return status;
    }
    if (status == ST_OK) {
        status = make_call(&run, err);
    }
    if (status == ST_OK) {
        status = settings->dry_run ? dry_run(&run, err) : send_call(&run, err);
    }
    close_client(&run);
    return status;
}
