/* A stream of ext-proc with valid and invalid messages in any order: the input is a script.
 * Every message is released once, no response is sent after the end, responses are valid for a
 * proxy, a picked endpoint is in the pool, a body in a duplex mode is passed on unchanged, and
 * at the end nothing is in flight. */
#include <stdlib.h>

#include "lib/ext_proc/client.h"
#include "pick/session/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DESTINATION "x-gateway-destination-endpoint"

enum { MAX_IN_FLIGHT = 64 };

struct in_flight {
    void (*release)(void *user);
    void *user;
};

struct stream {
    struct arena *arena; /* of the messages */
    struct pick_session *session;
    struct in_flight queue[MAX_IN_FLIGHT];
    size_t n_queue;
    size_t n_messages; /* not released */
    bool finished;
    uint64_t n_in[2], n_out[2]; /* body bytes: of the request, of the response */
};

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* ---- responses ------------------------------------------------------------------------------- */

static void free_in_flight(struct stream *stream) {
    for (size_t i = 0; i < stream->n_queue; i++) {
        stream->queue[i].release(stream->queue[i].user);
    }
    stream->n_queue = 0;
}

static void check_reply(struct stream *stream, const struct ext_proc_client_response *reply) {
    struct ext_proc_value told =
        ext_proc_client_response_metadata_find(reply, STR("envoy.lb"), STR(DESTINATION));
    struct ext_proc_header header;
    struct pb_reader reader = pb_read(reply->mutation);
    check(told.kind == EXT_PROC_ABSENT || str_is(told.text, "10.0.0.1:8000"));
    while (ext_proc_set_header_next(&reader, &header)) {
        check(!str_is(header.key, DESTINATION) || str_eq(header.value, told.text));
    }
    if (reply->body_mutation == EXT_PROC_BODY_STREAMED_RESPONSE) {
        stream->n_out[reply->kind == EXT_PROC_RESPONSE_BODY] += reply->body.len;
    }
}

static void on_send(void *user, const struct piece *pieces, size_t n_pieces,
                    void (*release)(void *user), void *release_user) {
    struct stream *stream = user;
    struct ext_proc_client_response reply;
    struct buf bytes;
    check(!stream->finished);
    buf_init(&bytes, stream->arena, 64);
    for (size_t i = 0; i < n_pieces; i++) {
        buf_add(&bytes, pieces[i].data, pieces[i].n_bytes);
    }
    check(ext_proc_client_response_decode(buf_str(&bytes), &reply, NULL) == ST_OK);
    check_reply(stream, &reply);
    if (stream->n_queue == MAX_IN_FLIGHT) {
        free_in_flight(stream);
    }
    if (release) {
        stream->queue[stream->n_queue++] = (struct in_flight){release, release_user};
    }
}

static void on_finish(void *user, const struct error *err) {
    struct stream *stream = user;
    (void)err;
    check(!stream->finished);
    stream->finished = true;
}

/* ---- messages -------------------------------------------------------------------------------- */

struct message {
    struct stream *stream;
    char bytes[];
};

static void release(void *user) {
    struct message *message = user;
    message->stream->n_messages--;
    free(message);
}

static void take(struct stream *stream, struct str bytes) {
    struct message *message = malloc(sizeof(*message) + bytes.len);
    message->stream = stream;
    if (bytes.len > 0) {
        memcpy(message->bytes, bytes.ptr, bytes.len);
    }
    stream->n_messages++;
    pick_session_on_message(
        stream->session,
        &(struct pick_message){str_make(message->bytes, bytes.len), release, message});
    while (pick_session_has_more(stream->session)) {
        pick_session_go_on(stream->session);
    }
}

static const char *const paths[] = {
    "/",
    "/v1/completions",
    "/v2/models/old/infer",
    "/inference.GRPCInferenceService/ModelInfer",
    "/v2/models/%41/versions/1/generate",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/v1/messages",
    "/v2/models//infer",
};

static size_t list_headers(uint8_t which, struct ext_proc_header out[8]) {
    size_t n = 0;
    out[n++] = (struct ext_proc_header){STR(":method"), which & 8 ? STR("GET") : STR("POST")};
    out[n++] = (struct ext_proc_header){STR(":path"), str_of(paths[which & 7])};
    if (which & 16) {
        out[n++] = (struct ext_proc_header){STR("content-length"), STR("40")};
    }
    if (which & 32) {
        out[n++] = (struct ext_proc_header){STR("x-gateway-model-name-rewrite"), STR("m")};
    }
    if (which & 64) {
        out[n++] = (struct ext_proc_header){STR("content-type"), STR("application/grpc")};
    }
    if (which & 128) {
        out[n++] = (struct ext_proc_header){STR("content-encoding"), STR("gzip")};
    }
    return n;
}

/* op: 0 to 5 a message of that kind, 6 the bytes as a message, 7 another event. */
static void act(struct stream *stream, uint8_t op, struct str bytes) {
    struct ext_proc_header headers[8];
    struct ext_proc_config config = {(enum ext_proc_body_mode)(op >> 3 & 7),
                                     (enum ext_proc_body_mode)((op >> 5) % 6), false};
    struct ext_proc_client_request question = {.kind = (enum ext_proc_kind)((op & 7) + 1),
                                               .headers = headers,
                                               .body = bytes,
                                               .end_of_stream = (op & 0x80) != 0,
                                               .has_metadata = true};
    struct buf out;
    if ((op & 7) == 7) {
        if (op & 8) {
            pick_session_on_timeout(stream->session);
        } else if (op & 16) {
            free_in_flight(stream);
        } else if (op & 32) {
            pick_session_cancel(stream->session, NULL);
        } else {
            pick_session_half_close(stream->session);
        }
        return;
    }
    if ((op & 7) == 6) {
        take(stream, bytes);
        return;
    }
    if (question.kind == EXT_PROC_REQUEST_HEADERS) {
        question.n_headers = list_headers(bytes.len > 0 ? (uint8_t)bytes.ptr[0] : 0, headers);
        question.end_of_stream = bytes.len > 1;
        question.config = op & 0x80 ? NULL : &config;
    } else if (question.kind == EXT_PROC_REQUEST_BODY || question.kind == EXT_PROC_RESPONSE_BODY) {
        question.is_compressed = (op & 0x08) != 0;
        question.end_without_message = (op & 0x10) != 0;
        stream->n_in[question.kind == EXT_PROC_RESPONSE_BODY] += bytes.len;
    }
    buf_init(&out, stream->arena, 64);
    ext_proc_client_request_encode(&out, &question);
    take(stream, out.len > 0 ? buf_str(&out) : STR(""));
}

/* ---- a stream -------------------------------------------------------------------------------- */

static struct pool *make_pool(uint8_t which) {
    static const struct pool_target target = {{"new-name", 8}, 1};
    struct pool_model plain = {.name = STR("m")},
                      old = {.name = STR("old"), .targets = {&target, 1}};
    struct pool_spec_endpoint wanted = {
        .address = {.family = 4, .port = 8000, .low = (10u << 24) + 1}};
    struct pool_spec *spec = pool_spec_new();
    struct pool *pool = NULL;
    check(pool_new(&pool, NULL) == ST_OK);
    spec->strict_models = which & 1;
    spec->protocol.conformance = which & 2;
    if (which & 4) {
        pool_spec_add_model(spec, &old);
    }
    pool_spec_add_model(spec, &plain);
    if (!(which & 8)) {
        pool_spec_add_endpoint(spec, &wanted);
    }
    check(pool_update(pool, &spec, NULL) == ST_OK);
    return pool;
}

static void run(struct stream *stream, const uint8_t *data, size_t size) {
    while (size >= 2) {
        size_t n = data[1] < size - 2 ? data[1] : size - 2;
        act(stream, data[0], str_make((const char *)data + 2, n));
        data += 2 + n;
        size -= 2 + n;
        /* The response's body is never buffered; the request's may grow by its new model name. */
        check(stream->n_out[0] <= stream->n_in[0] + 64 || stream->n_in[0] == 0);
        check(stream->n_out[1] <= stream->n_in[1] || stream->n_in[1] == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct stream stream = {.arena = arena_new(NULL, 0)};
    struct pool *pool = make_pool(size > 0 ? data[0] : 0);
    static const struct pick_stage_plan plans[] = {
        {.end = PICK_STAGE_LASTS_FOR_RESPONSE},
        {.header = STR("x-prefill"), .end = PICK_STAGE_LASTS_TO_RESPONSE}};
    struct pick_context means = {.pool = pool,
                                 .stages = plans,
                                 .n_stages = size > 0 && data[0] & 16 ? 2 : 0,
                                 .limits = {.max_body_size = 300}};
    struct pick_callbacks out = {.send = on_send, .finish = on_finish, .user = &stream};
    struct pool_stats numbers;
    struct arena *arena = arena_new(NULL, 0);
    check(pool_reader_new(pool, 1, &means.reader, NULL) == ST_OK);
    stream.session = pick_session_new(arena, &means, &out);
    if (size > 0) {
        run(&stream, data + 1, size - 1);
    }
    pick_session_free(stream.session);
    free_in_flight(&stream);
    check(stream.n_messages == 0);
    pool_get_stats(pool, &numbers);
    check(numbers.n_in_flight == 0);
    arena_free(arena);
    arena_free(stream.arena);
    pool_reader_unref(means.reader);
    pool_free(pool);
    return 0;
}
