/* Public calls: their memory, their state, their errors. */
#include "client/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/loop.h"
#include "client/sized_struct.h"
#include "client/stream.h"
#include "codec/grpc/status.h"
#include "core/event/clock.h"
#include "net/transport/grpc/message.h"

enum { MAX_SPARE_CALLS = 8 };

/* ---- errors ---------------------------------------------------------------------------------- */

/* What a failed connection or a lost one is called, by how far it came. */
static sluice_client_status connection_status(enum client_phase phase) {
    switch (phase) {
    case CLIENT_RESOLVING:
        return SLUICE_CLIENT_RESOLVE;
    case CLIENT_DIALING:
        return SLUICE_CLIENT_CONNECT;
    case CLIENT_AGREEING:
        return SLUICE_CLIENT_TLS;
    case CLIENT_CONNECTED:
        break;
    }
    return SLUICE_CLIENT_CLOSED;
}

/* The only place that maps internal statuses to public ones. `call`: one that has started; before
 * that, NULL, the reasons that no row has mean that the request can't be sent. */
static sluice_client_status public_status(const sluice_call *call, enum status status) {
    static const struct {
        enum status status;
        sluice_client_status is;
    } rows[] = {
        {ST_OK, SLUICE_CLIENT_OK},
        {ST_DEADLINE_EXCEEDED, SLUICE_CLIENT_TIMEOUT},
        {ST_BAD_ANSWER, SLUICE_CLIENT_PROTOCOL},
        {ST_REFUSED, SLUICE_CLIENT_SERVER_ERROR},
        {ST_NO_MEMORY, SLUICE_CLIENT_NO_MEMORY},
        {ST_NO_ROOM, SLUICE_CLIENT_BUFFER_TOO_SMALL},
        {ST_UNSUPPORTED, SLUICE_CLIENT_UNSUPPORTED},
    };
    if (call && status == ST_IO) {
        return connection_status(call->phase);
    }
    if (call && status == ST_BODY_TOO_LARGE) {
        return SLUICE_CLIENT_TOO_LARGE; /* before, it is the request that is too large */
    }
    if (call && status == ST_HEADER_TOO_LARGE) {
        return SLUICE_CLIENT_PROTOCOL;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].status == status) {
            return rows[i].is;
        }
    }
    return SLUICE_CLIENT_INVALID;
}

static void fill_error(sluice_client_error *made, sluice_client_status status, const char *text) {
    *made = (sluice_client_error){.size = sizeof(*made), .status = status, .mip_error = -1};
    snprintf(made->text, sizeof(made->text), "%s", text);
}

static sluice_client_status report(const sluice_client_error *made, sluice_client_error *error) {
    if (error) {
        sized_struct_write(error, made, sizeof(*made));
    }
    return made->status;
}

sluice_client_status client_start_error(const struct error *err, sluice_client_error *error) {
    sluice_client_error made;
    fill_error(&made, public_status(NULL, err->status), err->text);
    return report(&made, error);
}

void client_call_describe(const sluice_call *call, const struct error *err,
                          sluice_client_error *out) {
    fill_error(out, public_status(call, err->status), err->text);
    out->may_have_run = call->sent || call->was_sent || call->kind->next != NULL;
}

sluice_client_status client_call_report(const sluice_call *call, sluice_client_error *error) {
    return report(&call->error, error);
}

/* The running call fails, for the reason in `err`. */
static void fail_running(sluice_call *call, const struct error *err) {
    sluice_client_error *made = &call->error;
    int grpc_code = call->grpc.stream ? call->grpc.stream->code : -1;
    client_call_describe(call, err, made);
    made->may_have_run = call->sent || call->was_sent;
    if (call->grpc.stream) {
        made->http_status = call->grpc.stream->http_status;
        made->grpc_status = grpc_code > 0 ? grpc_code : 0;
    } else if (call->answered && call->client->url.protocol == CLIENT_HTTP) {
        made->http_status = http_session_status(client_http(call->lane->client));
    } else if (call->answered && made->status == SLUICE_CLIENT_SERVER_ERROR) {
        made->mip_error = (int32_t)mip_session_error(client_mip(call->lane->client));
    }
    call->state = CLIENT_CALL_FAILED;
}

void client_call_fail(sluice_call *call, const struct error *err) {
    fill_error(&call->error, public_status(NULL, err->status), err->text);
    call->error.may_have_run = call->sent || call->was_sent; /* in an attempt before */
    call->state = CLIENT_CALL_FAILED;
}

void client_call_set_cancelled(sluice_call *call) {
    fill_error(&call->error, SLUICE_CLIENT_CANCELLED, "the call was cancelled");
    call->error.may_have_run = call->sent || call->was_sent;
    call->state = CLIENT_CALL_FAILED;
}

void client_call_reset(sluice_call *call) {
    call->was_sent |= call->sent;
    call->sent = call->answered = false;
    call->answer_headers = NULL;
    call->n_answer_headers = 0;
    grpc_message_free(call->grpc.message);
    call->grpc.message = NULL;
    call->grpc.has_several = call->grpc.was_refused = false;
}

uint64_t client_call_deadline_ns(const sluice_call *call) {
    return clock_after_ns(call->started_ns, call->timeout_ns);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static sluice_call *take_spare(sluice_client *client) {
    sluice_call *call = LIST_FIRST(&client->spare);
    if (!call) {
        return calloc(1, sizeof(*call));
    }
    LIST_REMOVE(call, link);
    client->n_spare--;
    struct answer_block block = call->block;
    memset(call, 0, sizeof(*call));
    call->block = block;
    return call;
}

static void free_memory(sluice_call *call) {
    LIST_REMOVE(call, link);
    free(call->block.data);
    free(call);
}

/* Gives the call back to its client, which keeps some for their memory. */
static void recycle(sluice_call *call) {
    sluice_client *client = call->client;
    client_stream_free(call);
    arena_free(call->arena);
    call->arena = NULL;
    if (client->n_spare == MAX_SPARE_CALLS) {
        free_memory(call);
        return;
    }
    LIST_REMOVE(call, link);
    LIST_INSERT_HEAD(&client->spare, call, link);
    client->n_spare++;
}

void client_call_free_all(sluice_client *client) {
    while (!LIST_EMPTY(&client->calls)) {
        sluice_call_free(LIST_FIRST(&client->calls));
    }
    while (!LIST_EMPTY(&client->spare)) {
        free_memory(LIST_FIRST(&client->spare));
    }
}

/* ---- starting -------------------------------------------------------------------------------- */

static enum status read_options(sluice_call *call, const sluice_call_options *options,
                                struct error *err) {
    sluice_call_options given = {0};
    struct client_headers of_call;
    enum status status = ST_OK;
    if (options) {
        status = sized_struct_read(&given, sizeof(given), options, "sluice_call_options", err);
    }
    if (status != ST_OK) {
        return status;
    }
    bool is_grpc = call->client->url.protocol == CLIENT_GRPC;
    const struct client_headers_source source = {given.headers, given.n_headers, given.bearer_token,
                                                 given.traceparent, is_grpc};
    call->timeout_ns = given.timeout_ns > 0 ? given.timeout_ns : call->client->options.timeout_ns;
    call->has_timeout = given.timeout_ns > 0 || call->client->has_timeout;
    call->retry = call->client->retry;
    call->on_done = given.on_done;
    call->stream.on_answer = given.on_answer;
    call->user = given.user;
    if (given.retry) {
        status = client_retry_import(call->arena, given.retry, &call->retry, err);
    }
    if (status == ST_OK) {
        status = client_headers_import(call->arena, &source, &of_call, err);
    }
    if (status == ST_OK && of_call.n > 0 && !is_grpc) {
        status = client_url_expect(&call->client->url, CLIENT_HTTP, "a call with headers", err);
    }
    if (call->kind->next) {
        call->timeout_ns = call->has_timeout ? call->timeout_ns : UINT64_MAX;
        call->retry = NULL;
    }
    return status == ST_OK ? client_headers_merge(call->arena, call->client->headers, of_call,
                                                  is_grpc, &call->headers, err)
                           : status;
}

enum status client_call_new(sluice_client *client, const struct client_call_kind *kind,
                            const sluice_call_options *options, sluice_call **out,
                            struct error *err) {
    *out = NULL;
    sluice_call *call = take_spare(client);
    if (!call) {
        return error_no_memory(err, "a call");
    }
    call->client = client;
    call->kind = kind;
    LIST_INSERT_HEAD(&client->calls, call, link);
    call->arena = arena_new(client->cache, 0);
    enum status status =
        call->arena ? read_options(call, options, err) : error_no_memory(err, "a call");
    if (status == ST_OK) {
        *out = call;
    } else {
        recycle(call);
    }
    return status;
}

sluice_client_status client_call_start(sluice_call *call, enum status status,
                                       const struct error *err, sluice_call **out,
                                       sluice_client_error *error) {
    struct error failed = *err;
    *out = NULL;
    if (status == ST_OK) {
        call->started_ns = clock_now_ns();
        status = client_loop_start(call, &failed);
    }
    if (status != ST_OK) {
        if (call) {
            recycle(call);
        }
        return client_start_error(&failed, error);
    }
    *out = call;
    return SLUICE_CLIENT_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The answer's header fields, and over gRPC its trailers after them: valid until the next exchange
 * of the session, or the end of the stream. */
static size_t n_fields(const sluice_call *call) {
    const struct grpc_client_call *stream = call->grpc.stream;
    return stream ? stream->n_fields + stream->n_trailers
                  : http_session_n_fields(client_http(call->lane->client));
}

static void get_field(const sluice_call *call, size_t index, struct str *name, struct str *value) {
    const struct grpc_client_call *stream = call->grpc.stream;
    if (!stream) {
        http_session_field(client_http(call->lane->client), index, name, value);
        return;
    }
    const struct grpc_field *field = index < stream->n_fields
                                         ? &stream->fields[index]
                                         : &stream->trailers[index - stream->n_fields];
    *name = field->name;
    *value = field->value;
}

static enum status keep_headers(sluice_call *call, struct error *err) {
    if (call->client->url.protocol == CLIENT_MIP) {
        return ST_OK;
    }
    size_t n = n_fields(call);
    sluice_header *items = arena_calloc(call->arena, n, sizeof(*items));
    if (!items) {
        return error_no_memory(err, "an answer");
    }
    for (size_t i = 0; i < n; i++) {
        struct str name, value;
        get_field(call, i, &name, &value);
        items[i] = (sluice_header){.size = sizeof(*items),
                                   .name = arena_dup(call->arena, name).ptr,
                                   .value = arena_dup(call->arena, value).ptr,
                                   .value_bytes = value.len};
        if (!items[i].name || !items[i].value) {
            return error_no_memory(err, "an answer");
        }
    }
    call->answer_headers = items;
    call->n_answer_headers = n;
    return ST_OK;
}

static enum status finish_grpc(sluice_call *call, enum status status, struct error *err) {
    const struct grpc_message *message = call->grpc.message;
    bool has_answer = call->grpc.stream->http_status > 0; /* else the stream was reset */
    if (status == ST_REFUSED && call->kind->takes_errors && has_answer) {
        return call->kind->finish_grpc(call, str_make(NULL, 0), err);
    }
    if (status == ST_REFUSED) {
        struct error server = *err;
        return error_set(err, ST_REFUSED, "%s (gRPC %s)", server.text,
                         grpc_code_name(call->grpc.stream->code));
    }
    if (status != ST_OK || call->kind->next) {
        return status;
    }
    return message ? call->kind->finish_grpc(call, message->data, err)
                   : error_set(err, ST_BAD_ANSWER, "the server said OK without a message");
}

void client_call_finish(sluice_call *call, enum status status, struct error *err) {
    bool is_grpc = call->grpc.stream != NULL;
    call->answered = status == ST_OK ||
                     (is_grpc && call->grpc.stream->n_fields + call->grpc.stream->n_trailers > 0);
    if (call->answered && !call->kind->is_raw) {
        enum status kept = keep_headers(call, err);
        status = kept == ST_OK ? status : kept;
    }
    if (is_grpc) {
        status = finish_grpc(call, status, err);
    } else if (status == ST_OK) {
        status = call->kind->finish(call, err);
    }
    if (status == ST_OK) {
        call->state = CLIENT_CALL_DONE;
    } else {
        fail_running(call, err);
    }
}

static bool is_under_way(const sluice_call *call) {
    return call->state == CLIENT_CALL_QUEUED || call->state == CLIENT_CALL_RUNNING ||
           call->state == CLIENT_CALL_PAUSED;
}

void sluice_client_step(sluice_client *client) {
    client_loop_run(client, 0);
}

sluice_client_status sluice_client_wait(sluice_client *client, uint64_t timeout_ns) {
    uint64_t n_finished = client->n_finished, began = clock_now_ns(), passed = 0;
    do {
        if (client->n_under_way == 0) {
            return client->n_finished == n_finished ? SLUICE_CLIENT_NOT_FOUND : SLUICE_CLIENT_OK;
        }
        client_loop_run(client, timeout_ns - passed);
        passed = clock_now_ns() - began;
    } while (client->n_finished == n_finished && passed < timeout_ns);
    return client->n_finished == n_finished ? SLUICE_CLIENT_PENDING : SLUICE_CLIENT_OK;
}

/* The caller knows that the call is done. */
static void forget_done(sluice_call *call) {
    if (call->in_done) {
        TAILQ_REMOVE(&call->client->done, call, order);
        call->in_done = false;
    }
}

sluice_call *sluice_client_next_done(sluice_client *client) {
    sluice_call *call = TAILQ_FIRST(&client->done);
    if (call) {
        forget_done(call);
    }
    return call;
}

void *sluice_call_user(const sluice_call *call) {
    return call->user;
}

sluice_client_status sluice_call_status(const sluice_call *call, sluice_client_error *error) {
    sluice_client_error made;
    switch (client_stream_has_next(call) ? CLIENT_CALL_RUNNING : call->state) {
    case CLIENT_CALL_DONE:
        return SLUICE_CLIENT_OK;
    case CLIENT_CALL_FAILED:
        return report(&call->error, error);
    case CLIENT_CALL_PREPARED:
    case CLIENT_CALL_QUEUED:
    case CLIENT_CALL_RUNNING:
    case CLIENT_CALL_PAUSED:
        break;
    }
    fill_error(&made, SLUICE_CLIENT_PENDING, "the call is not done yet");
    return report(&made, error);
}

sluice_client_status sluice_call_wait(sluice_call *call, sluice_client_error *error) {
    if (call->kind->next) {
        client_stream_drain(call);
    }
    while (is_under_way(call)) {
        client_loop_run(call->client, UINT64_MAX);
    }
    forget_done(call);
    return sluice_call_status(call, error);
}

sluice_client_status client_call_run(sluice_call *call, sluice_client_status started,
                                     sluice_client_error *error) {
    return started == SLUICE_CLIENT_OK ? sluice_call_wait(call, error) : started;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void sluice_call_cancel(sluice_call *call) {
    if (is_under_way(call)) {
        client_loop_cancel(call);
        client_stream_drop(call);
        client_call_set_cancelled(call);
    }
}

void sluice_call_free(sluice_call *call) {
    if (call) {
        sluice_call_cancel(call);
        forget_done(call);
        recycle(call);
    }
}
