/* Clients of libsluice for the commands. Opening one and running its calls is the public interface;
 * a call with an encoded message is one of client/call.h. */
#include "program/requests/command_client.h"

#include "client/call.h"
#include "codec/grpc/status.h"
#include "core/must/must.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static enum status status_of(sluice_client_status status) {
    static const struct {
        sluice_client_status status;
        enum status is;
    } rows[] = {
        {SLUICE_CLIENT_INVALID, ST_BAD_CONFIG},        {SLUICE_CLIENT_NO_MEMORY, ST_NO_MEMORY},
        {SLUICE_CLIENT_UNSUPPORTED, ST_UNSUPPORTED},   {SLUICE_CLIENT_CANCELLED, ST_CANCELLED},
        {SLUICE_CLIENT_TIMEOUT, ST_DEADLINE_EXCEEDED}, {SLUICE_CLIENT_PROTOCOL, ST_BAD_ANSWER},
        {SLUICE_CLIENT_SERVER_ERROR, ST_REFUSED},      {SLUICE_CLIENT_TOO_LARGE, ST_BODY_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].status == status) {
            return rows[i].is;
        }
    }
    return ST_IO; /* RESOLVE, CONNECT, TLS, CLOSED */
}

enum status command_client_error(const sluice_client_error *error, struct error *err) {
    return error_set(err, status_of(error->status), "%s", error->text);
}

/* ---- open and close -------------------------------------------------------------------------- */

static bool has_upper_case(struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] >= 'A' && name.ptr[i] <= 'Z') {
            return true;
        }
    }
    return false;
}

static enum status read_metadata(struct arena *arena, const struct option_texts *texts,
                                 sluice_client_options *out, struct error *err) {
    size_t n = texts ? texts->n : 0;
    sluice_header *headers = arena_calloc(arena, n, sizeof(*headers));
    for (size_t i = 0; i < n; i++) {
        struct str value = str_of(texts->items[i]);
        struct str name = str_cut(&value, '=');
        if (!value.ptr || name.len == 0) {
            return error_set(err, ST_BAD_CONFIG, "--metadata %s: expected NAME=VALUE",
                             texts->items[i]);
        }
        if (has_upper_case(name)) {
            return error_set(err, ST_BAD_CONFIG, "--metadata %s: expected a lower-case name",
                             texts->items[i]);
        }
        headers[i] = (sluice_header){
            .size = sizeof(*headers), .name = arena_dup(arena, name).ptr, .value = value.ptr};
    }
    out->headers = headers;
    out->n_headers = n;
    return ST_OK;
}

static enum status open_with(struct arena *arena, const struct command_client_options *options,
                             struct command_client *self, struct error *err) {
    sluice_client_transport functions;
    sluice_client_error error = {.size = sizeof(error)};
    sluice_client_options made = {.size = sizeof(made),
                                  .url = options->server->text.ptr,
                                  .connect_timeout_ns = options->connect_timeout_ns,
                                  .timeout_ns = options->timeout_ns,
                                  .max_answer_bytes = options->max_answer_bytes};
    enum status status = read_metadata(arena, options->metadata, &made, err);
    if (status != ST_OK) {
        return status;
    }
    if (options->tls) {
        self->transport =
            must_have(client_tls_transport_new(options->tls, &functions), "the client");
        made.transport = &functions;
    }
    if (sluice_client_open(&made, &self->client, &error) == SLUICE_CLIENT_OK) {
        return ST_OK;
    }
    status = command_client_error(&error, err);
    return error.status == SLUICE_CLIENT_INVALID && made.n_headers > 0
               ? error_prefix(err, "--metadata")
               : status;
}

enum status command_client_open(const struct command_client_options *options,
                                struct command_client *out, struct error *err) {
    struct arena *arena = must_arena_new("the client");
    *out = (struct command_client){0};
    enum status status = open_with(arena, options, out, err);
    arena_free(arena);
    if (status != ST_OK) {
        command_client_close(out);
    }
    return status;
}

void command_client_close(struct command_client *self) {
    sluice_client_close(self->client);
    client_tls_transport_free(self->transport);
    *self = (struct command_client){0};
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The message stays as it is. An error answer (ptr NULL) has the name of its status in front. */
static enum status finish_message(sluice_call *call, struct str message, struct error *err) {
    return message.ptr ? ST_OK : error_prefix(err, "%s", grpc_code_name(call->grpc.stream->code));
}

static const struct client_call_kind message_call = {.result = CLIENT_RESULT_NONE,
                                                     .finish_grpc = finish_message,
                                                     .takes_errors = true,
                                                     .is_raw = true};

enum status command_call_start(const struct command_client *self,
                               const struct client_grpc_request *request,
                               const sluice_call_options *options, sluice_call **out,
                               struct error *err) {
    sluice_client_error error = {.size = sizeof(error)};
    struct error why = {0};
    sluice_call *call;
    enum status status = client_call_new(self->client, &message_call, options, &call, &why);
    if (status == ST_OK) {
        call->grpc.request = *request;
    }
    return client_call_start(call, status, &why, out, &error) == SLUICE_CLIENT_OK
               ? ST_OK
               : command_client_error(&error, err);
}

enum status command_call_result(const sluice_call *call, struct str *message, int *code,
                                struct error *err) {
    const struct grpc_message *answer = call->grpc.message;
    *message = answer ? answer->data : STR("");
    *code = 0;
    if (call->state == CLIENT_CALL_DONE) {
        return ST_OK;
    }
    *code = call->error.grpc_status > 0 ? call->error.grpc_status : -1;
    return command_client_error(&call->error, err);
}

enum status command_call_run(const struct command_client *self,
                             const struct client_grpc_request *request, sluice_call **out,
                             struct str *message, struct error *err) {
    int code;
    enum status status = command_call_start(self, request, NULL, out, err);
    if (status != ST_OK) {
        return status;
    }
    (void)sluice_call_wait(*out, NULL);
    return command_call_result(*out, message, &code, err);
}

enum status command_client_get_model(const struct command_client *self, struct arena *arena,
                                     struct str model, struct str version, struct model_spec *out,
                                     struct error *err) {
    const struct client_query_args args = {
        .query = CLIENT_MODEL, .model = model, .version = version};
    struct client_grpc_request request;
    struct str message;
    sluice_call *call = NULL;
    enum status status = client_grpc_query_encode(arena, &args, &request, err);
    if (status == ST_OK) {
        status = command_call_run(self, &request, &call, &message, err);
    }
    if (status == ST_OK) {
        message = arena_dup(arena, message); /* the specification has views of the copy */
        status = client_grpc_model_decode(arena, message, out, err);
    }
    sluice_call_free(call);
    return status;
}
