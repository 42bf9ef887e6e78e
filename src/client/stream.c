/* Public functions of sluice/client.h for calls with several answers. */
#include "client/stream.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/channel.h"
#include "client/convert.h"
#include "client/loop.h"
#include "client/sized_struct.h"
#include "codec/http1/event_stream.h"
#include "codec/kserve/metadata.h"

/* HTTP: while a whole event waits, no more than about as much is received. */
enum { PAUSE_BYTES = 65536 };

static bool is_under_way(const sluice_call *call) {
    return call->state == CLIENT_CALL_QUEUED || call->state == CLIENT_CALL_RUNNING;
}

/* ---- answers arrive -------------------------------------------------------------------------- */

static void arrived(sluice_call *call) {
    sluice_client *client = call->client;
    client->n_finished++; /* for sluice_client_wait */
    if (call->stream.on_answer && !call->stream.has_arrived) {
        call->stream.has_arrived = true;
        TAILQ_INSERT_TAIL(&client->arrived, call, stream.link);
    }
}

void client_stream_on_message(sluice_call *call) {
    arrived(call);
}

/* HTTP: what has arrived of the body and was not taken. */
static struct str body_of(const sluice_call *call) {
    return call->lane ? http_session_body(client_http(call->lane->client)) : call->stream.rest;
}

static void take_bytes(sluice_call *call, size_t n) {
    if (call->lane) {
        http_session_take(client_http(call->lane->client), n);
    } else {
        call->stream.rest = str_make(call->stream.rest.ptr + n, call->stream.rest.len - n);
    }
}

/* Makes n_next the bytes of the next block that has data, and drops those without. Returns:
 * ST_BODY_TOO_LARGE, ST_NO_MEMORY. */
static enum status find_event(sluice_call *call, struct error *err) {
    struct client_stream *stream = &call->stream;
    while (stream->n_next == 0) {
        struct str data, body = body_of(call);
        size_t n = event_stream_find(body, &stream->n_searched);
        size_t n_bytes = n > 0 ? n : body.len;
        uint64_t limit = call->client->options.max_answer_bytes;
        if (n_bytes > limit) {
            return error_set(err, ST_BODY_TOO_LARGE,
                             "an event has %zu bytes or more, and %" PRIu64
                             " is the limit (max_answer_bytes)",
                             n_bytes, limit);
        }
        if (n == 0) {
            return ST_OK;
        }
        struct arena *arena = arena_new(call->client->cache, 0);
        bool good = arena && event_stream_data(arena, str_make(body.ptr, n), &data);
        bool has_data = good && data.ptr;
        arena_free(arena);
        if (has_data) {
            stream->n_next = n;
        } else if (good) {
            take_bytes(call, n);
        } else {
            return error_no_memory(err, "an answer");
        }
    }
    return ST_OK;
}

static enum status check_type(const struct http_session *http, struct error *err) {
    static const struct str EVENTS = {"text/event-stream", 17};
    struct str type = STR("");
    size_t n = http_session_find(http, "Content-Type", &type);
    if (n == 1 && type.len >= EVENTS.len && str_eq_nocase_n(type.ptr, EVENTS.ptr, EVENTS.len)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_ANSWER,
                     "the answer has Content-Type \"%.*s\", expected text/event-stream",
                     STR_ARG(type));
}

static void update_pause(sluice_call *call) {
    bool paused = call->stream.n_next > 0 && body_of(call).len >= PAUSE_BYTES;
    client_set_paused(call->lane->client, paused);
}

enum status client_stream_on_body(sluice_call *call, struct error *err) {
    struct client_stream *stream = &call->stream;
    const struct http_session *http = client_http(call->lane->client);
    bool had_next = stream->n_next > 0;
    if (!http_session_is_streaming(http)) {
        return ST_OK;
    }
    if (check_type(http, err) != ST_OK) {
        return ST_BAD_ANSWER;
    }
    enum status status = find_event(call, err);
    if (status != ST_OK) {
        return status;
    }
    if (!had_next && stream->n_next > 0) {
        arrived(call);
    }
    update_pause(call);
    return ST_OK;
}

enum status client_stream_on_end(sluice_call *call, struct error *err) {
    struct client_stream *stream = &call->stream;
    const struct http_session *http = client_http(call->lane->client);
    bool had_next = stream->n_next > 0;
    enum status status = ST_OK;
    if (http_session_is_streaming(http) && check_type(http, NULL) == ST_OK) {
        status = find_event(call, err);
        stream->rest = http_session_body(http);
    }
    if (!had_next && stream->n_next > 0) {
        arrived(call);
    }
    return status;
}

bool client_stream_has_next(const sluice_call *call) {
    return call->kind->next && (call->grpc.message || call->stream.n_next > 0);
}

/* ---- answers are taken ----------------------------------------------------------------------- */

static void drop_current(sluice_call *call) {
    struct client_stream *stream = &call->stream;
    arena_free(stream->arena);
    grpc_message_free(stream->message);
    stream->arena = NULL;
    stream->message = NULL;
    stream->has_answer = false;
}

void client_stream_drop(sluice_call *call) {
    grpc_message_free(call->grpc.message);
    call->grpc.message = NULL;
    call->stream.n_next = 0;
    if (call->stream.has_arrived) {
        TAILQ_REMOVE(&call->client->arrived, call, stream.link);
        call->stream.has_arrived = false;
    }
}

void client_stream_free(sluice_call *call) {
    drop_current(call);
    client_stream_drop(call);
}

static enum status take_event(sluice_call *call, struct error *err) {
    struct client_stream *stream = &call->stream;
    struct str data;
    if (!event_stream_data(stream->arena, str_make(body_of(call).ptr, stream->n_next), &data)) {
        return error_no_memory(err, "an answer");
    }
    take_bytes(call, stream->n_next);
    stream->n_next = 0;
    enum status status = call->kind->next(call, data, err);
    if (status == ST_OK || status == ST_REFUSED) {
        enum status found = find_event(call, status == ST_OK ? err : NULL);
        status = status == ST_OK ? found : status;
    }
    if (call->lane) {
        update_pause(call);
    }
    return status;
}

/* An answer that can't be read ends the call. */
static sluice_client_status fail_next(sluice_call *call, const struct error *err,
                                      sluice_client_error *error) {
    sluice_client_error made;
    client_call_describe(call, err, &made);
    drop_current(call);
    if (made.status != SLUICE_CLIENT_SERVER_ERROR) {
        sluice_call_cancel(call);
        client_stream_drop(call);
        call->error = made;
        call->state = CLIENT_CALL_FAILED;
    }
    if (error) {
        sized_struct_write(error, &made, sizeof(made));
    }
    return made.status;
}

static sluice_client_status take_next(sluice_call *call, sluice_client_error *error) {
    struct error err = {0};
    call->stream.arena = arena_new(call->client->cache, 0);
    enum status status = call->stream.arena ? ST_OK : error_no_memory(&err, "an answer");
    if (status == ST_OK && call->grpc.message) {
        call->stream.message = call->grpc.message;
        call->grpc.message = NULL;
        status = call->kind->next(call, call->stream.message->data, &err);
        if (call->grpc.stream) {
            client_channel_read(call);
        }
    } else if (status == ST_OK) {
        status = take_event(call, &err);
    }
    if (status != ST_OK) {
        return fail_next(call, &err, error);
    }
    call->stream.has_answer = true;
    return SLUICE_CLIENT_OK;
}

sluice_client_status sluice_call_next(sluice_call *call, sluice_client_error *error) {
    if (!call || !call->kind->next) {
        struct error err;
        (void)error_set(&err, ST_BAD_FIELD, "the call has no stream of answers");
        return client_start_error(&err, error);
    }
    drop_current(call);
    if (client_stream_has_next(call)) {
        return take_next(call, error);
    }
    sluice_client_status status = sluice_call_status(call, error);
    return status == SLUICE_CLIENT_OK ? SLUICE_CLIENT_END : status;
}

sluice_client_status sluice_call_wait_next(sluice_call *call, sluice_client_error *error) {
    sluice_client_status status;
    while ((status = sluice_call_next(call, error)) == SLUICE_CLIENT_PENDING) {
        client_loop_run(call->client, UINT64_MAX);
    }
    return status;
}

void client_stream_drain(sluice_call *call) {
    while (is_under_way(call) || client_stream_has_next(call)) {
        (void)sluice_call_wait_next(call, NULL);
    }
    drop_current(call);
}

void client_stream_run_callbacks(sluice_client *client) {
    sluice_call *call;
    while ((call = TAILQ_FIRST(&client->arrived))) {
        TAILQ_REMOVE(&client->arrived, call, stream.link);
        call->stream.has_arrived = false;
        call->stream.on_answer(call, call->user);
    }
}

/* ---- generate -------------------------------------------------------------------------------- */

/* An event is a JSON document, or the server's error for a request that had answers before. */
static enum status next_event(sluice_call *call, struct str data, struct error *err) {
    struct str text = v2_error_decode(call->stream.arena, data);
    if (text.ptr) {
        return error_set(err, ST_REFUSED, "%.*s", STR_ARG(text));
    }
    call->stream.text = data;
    return ST_OK;
}

static enum status finish_events(sluice_call *call, struct error *err) {
    const struct http_session *http = client_http(call->lane->client);
    enum status status = client_done_decode(call->arena, http, err);
    return status == ST_OK ? check_type(http, err) : status;
}

static enum status finish_generate(sluice_call *call, struct error *err) {
    return client_text_decode(call->arena, client_http(call->lane->client), &call->result.text,
                              err);
}

static const struct client_call_kind generate = {.result = CLIENT_RESULT_TEXT,
                                                 .finish = finish_generate};
static const struct client_call_kind generate_stream = {
    .result = CLIENT_RESULT_TEXT, .finish = finish_events, .next = next_event};

static enum status prepare_generate(sluice_call *call, const sluice_generate_request *request,
                                    struct error *err) {
    sluice_generate_request given;
    enum status status =
        sized_struct_read(&given, sizeof(given), request, "sluice_generate_request", err);
    if (status == ST_OK && !given.json) {
        status = error_set(err, ST_BAD_FIELD, "the request has no json");
    }
    if (status != ST_OK) {
        return status;
    }
    struct str json =
        given.json_bytes > 0 ? str_make(given.json, given.json_bytes) : str_of(given.json);
    const struct client_query_args args = {.query = call->kind->next ? CLIENT_GENERATE_STREAM
                                                                     : CLIENT_GENERATE,
                                           .model = str_of(given.model),
                                           .version = str_of(given.version),
                                           .json = json,
                                           .headers = call->headers};
    return client_call_set_query(call, &args, err);
}

static sluice_client_status start_generate(sluice_client *client,
                                           const struct client_call_kind *kind,
                                           const sluice_generate_request *request,
                                           const sluice_call_options *options, sluice_call **out,
                                           sluice_client_error *error) {
    struct error err = {0};
    sluice_call *call;
    enum status status = client_call_new(client, kind, options, &call, &err);
    if (status == ST_OK) {
        status = prepare_generate(call, request, &err);
    }
    return client_call_start(call, status, &err, out, error);
}

sluice_client_status sluice_client_start_generate(sluice_client *client,
                                                  const sluice_generate_request *request,
                                                  const sluice_call_options *options,
                                                  sluice_call **call, sluice_client_error *error) {
    return start_generate(client, &generate, request, options, call, error);
}

sluice_client_status sluice_client_generate(sluice_client *client,
                                            const sluice_generate_request *request,
                                            const sluice_call_options *options, sluice_call **call,
                                            sluice_client_error *error) {
    sluice_client_status status =
        sluice_client_start_generate(client, request, options, call, error);
    return client_call_run(*call, status, error);
}

sluice_client_status sluice_client_start_generate_stream(sluice_client *client,
                                                         const sluice_generate_request *request,
                                                         const sluice_call_options *options,
                                                         sluice_call **call,
                                                         sluice_client_error *error) {
    return start_generate(client, &generate_stream, request, options, call, error);
}

/* ---- ModelStreamInfer ------------------------------------------------------------------------ */

static enum status next_answer(sluice_call *call, struct str message, struct error *err) {
    struct client_stream *stream = &call->stream;
    struct v2_client_response answer;
    enum status status =
        client_grpc_stream_decode(stream->arena, message, call->buffers.has_shm, &answer, err);
    return status == ST_OK ? client_answer_export(stream->arena, &answer,
                                                  (struct client_buffers){0}, &stream->answer, err)
                           : status;
}

static const struct client_call_kind infer_stream = {
    .result = CLIENT_RESULT_ANSWER, .next = next_answer, .sends = true};

sluice_client_status sluice_client_start_stream(sluice_client *client,
                                                const sluice_call_options *options,
                                                sluice_call **out, sluice_client_error *error) {
    struct error err = {0};
    sluice_call *call;
    enum status status = client_call_new(client, &infer_stream, options, &call, &err);
    if (status == ST_OK) {
        status = client_url_expect(&client->url, CLIENT_GRPC, "a stream of inferences", &err);
    }
    if (status == ST_OK) {
        call->grpc.request.path = CLIENT_GRPC_PATH("ModelStreamInfer");
    }
    sluice_client_status started = client_call_start(call, status, &err, out, error);
    if (started == SLUICE_CLIENT_OK) {
        client_channel_start_queued(client->channel);
    }
    return started;
}

/* Encodes a request, as one block of bytes. Owns: *out, by free. */
static enum status encode_request(sluice_call *call, struct arena *arena,
                                  const sluice_infer_request *request, struct piece *out,
                                  struct error *err) {
    struct client_infer infer;
    struct client_buffers buffers = {0};
    struct client_grpc_request encoded;
    sluice_infer_request given;
    enum status status = sized_struct_read(&given, offsetof(sluice_infer_request, reserved),
                                           request, "sluice_infer_request", err);
    if (status == ST_OK) {
        status = client_infer_import(arena, &given, 0, &infer, &buffers, err);
    }
    for (size_t i = 0; status == ST_OK && i < buffers.n; i++) {
        if (buffers.items[i].data) {
            status = error_set(err, ST_UNSUPPORTED,
                               "output %zu: the answers of a stream have no buffers", i);
        }
    }
    if (status == ST_OK) {
        status = client_grpc_infer_encode(arena, &infer, &encoded, err);
    }
    if (status == ST_OK) {
        call->buffers.has_shm |= buffers.has_shm;
        status = client_grpc_request_join(&encoded, out, err);
    }
    return status;
}

sluice_client_status sluice_call_send(sluice_call *call, const sluice_infer_request *request,
                                      sluice_client_error *error) {
    struct error err = {0};
    struct piece message = {0};
    if (!call || !call->kind->sends || call->stream.half_closed) {
        (void)error_set(&err, ST_BAD_FIELD, "the call sends no requests%s",
                        call && call->kind->sends ? " after sluice_call_half_close" : "");
        return client_start_error(&err, error);
    }
    if (!is_under_way(call)) {
        return call->state == CLIENT_CALL_FAILED ? client_call_report(call, error)
                                                 : SLUICE_CLIENT_END;
    }
    struct arena *arena = arena_new(call->client->cache, 0);
    enum status status = arena ? encode_request(call, arena, request, &message, &err)
                               : error_no_memory(&err, "a request");
    arena_free(arena);
    if (status != ST_OK) {
        return client_start_error(&err, error);
    }
    client_channel_send(call, message);
    return SLUICE_CLIENT_OK;
}

void sluice_call_half_close(sluice_call *call) {
    if (call && call->kind->sends && !call->stream.half_closed) {
        call->stream.half_closed = true;
        if (call->grpc.stream) {
            client_channel_half_close(call);
        }
    }
}

size_t sluice_call_unsent_bytes(const sluice_call *call) {
    return call && call->grpc.stream ? grpc_client_queued_bytes(call->grpc.stream) : 0;
}
