/* A client of the library over HTTP, gRPC or MIP, and a server with arbitrary behaviour on a Unix
 * socket. The first byte selects protocol and options; the rest are operations, which start calls
 * of any kind, step, read, cancel and free them, let the server send bytes, frames and whole
 * answers with arbitrary content, advance the time, and close connections. Each failure has a text,
 * every byte of a result is readable, all calls end, and the client works afterwards. TLS is left
 * out: OpenSSL authenticates each record, so that changed bytes only ever end the connection;
 * client/connection/tls_test.c cuts them off and changes them, one after the other. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/test_peer.h"
#include "codec/mip/packet.h"
#include "core/event/clock.h"
#include "net/transport/h2_fuzz_fixture.h"
#include "sluice/client_mip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *n_arguments, char ***arguments);

#define SECOND UINT64_C(1000000000)

enum { MAX_CALLS = 24, MAX_CONNS = 8, MAX_ROUNDS = 10000, BIG_BYTES = 300000 };
enum protocol { HTTP, GRPC, MIP, PROTOCOLS };

static struct peer peer; /* the listener */
static char urls[PROTOCOLS][160];
static float big[BIG_BYTES / sizeof(float)];

struct client_fixture;

struct ask {
    struct client_fixture *fixture;
    sluice_call *call; /* NULL: freed, or never started */
    unsigned n_done;   /* on_done */
    bool frees;        /* in a callback; on_done starts another */
    sluice_tensor input;
    sluice_parameter param;
    sluice_wanted wanted;
    float out[16];
};

/* A transport that moves a few bytes at a time, and asks at times to be called again. */
struct layer {
    int fd; /* -1: not started */
    unsigned n_calls;
    const void *repeats; /* the bytes of a write that must come again; NULL: none */
    bool failed;
};

struct client_fixture {
    struct str input;
    enum protocol protocol;
    bool is_polite; /* gRPC: the server sends SETTINGS first */
    sluice_client *client;
    struct layer layer;
    int conns[MAX_CONNS]; /* the server's; -1: none */
    struct ask asks[MAX_CALLS];
    size_t n;
    uint64_t now_ns;
};

/* ---- results --------------------------------------------------------------------------------- */

static volatile unsigned sink;

static void touch_bytes(const void *data, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sink += ((const unsigned char *)data)[i];
    }
}

static void touch_text(const char *text) {
    touch_bytes(text, strlen(text));
}

static void read_tensor(const sluice_tensor *tensor) {
    const char *text;
    size_t at = 0, n_bytes;
    sluice_class class = {.size = sizeof(class)};
    touch_text(tensor->name);
    touch_bytes(tensor->dims, tensor->rank * sizeof(*tensor->dims));
    if (tensor->data) {
        touch_bytes(tensor->data, tensor->n_bytes);
    }
    while (sluice_strings_next(tensor, &at, &text, &n_bytes) == SLUICE_CLIENT_OK) {
        touch_bytes(text, n_bytes);
    }
    at = 0;
    while (sluice_classes_next(tensor, &at, &class) == SLUICE_CLIENT_OK) {
        touch_bytes(class.label, class.label ? class.label_bytes : 0);
    }
}

static void read_answer(const sluice_call *call) {
    sluice_answer_info info = {.size = sizeof(info)};
    sluice_tensor tensor = {.size = sizeof(tensor)};
    sluice_parameter param = {.size = sizeof(param)};
    if (sluice_call_answer(call, &info) == SLUICE_CLIENT_OK) {
        touch_text(info.id);
        touch_text(info.model);
        touch_text(info.version);
    }
    for (size_t i = 0; sluice_call_output(call, i, &tensor) == SLUICE_CLIENT_OK; i++) {
        assert(i < info.n_outputs);
        read_tensor(&tensor);
    }
    for (size_t i = 0; sluice_call_param(call, i, &param) == SLUICE_CLIENT_OK; i++) {
        assert(i < info.n_params);
        touch_text(param.name);
        touch_bytes(param.string, param.kind == SLUICE_PARAM_STRING ? param.string_bytes : 0);
    }
    assert(sluice_call_find_output(call, "no such", &tensor) != SLUICE_CLIENT_OK);
}

static void read_spec(const sluice_tensor_spec *spec) {
    touch_text(spec->name);
    touch_bytes(spec->dims, spec->rank * sizeof(*spec->dims));
}

static void read_metadata(const sluice_call *call) {
    sluice_server_metadata server = {.size = sizeof(server)};
    sluice_model_metadata model = {.size = sizeof(model)};
    sluice_tensor_spec spec = {.size = sizeof(spec)};
    if (sluice_call_server(call, &server) == SLUICE_CLIENT_OK) {
        touch_text(server.name);
        touch_text(server.version);
        for (size_t i = 0; i < server.n_extensions; i++) {
            touch_text(server.extensions[i]);
        }
    }
    if (sluice_call_model(call, &model) == SLUICE_CLIENT_OK) {
        touch_text(model.name);
        touch_text(model.version);
        touch_text(model.platform);
    }
    for (size_t i = 0; sluice_call_model_input(call, i, &spec) == SLUICE_CLIENT_OK; i++) {
        read_spec(&spec);
    }
    for (size_t i = 0; sluice_call_model_output(call, i, &spec) == SLUICE_CLIENT_OK; i++) {
        read_spec(&spec);
    }
}

static void read_results(const sluice_call *call) {
    sluice_header header = {.size = sizeof(header)};
    sluice_mip_answer mip = {.size = sizeof(mip)};
    sluice_mip_item item = {.size = sizeof(item)};
    const char *text;
    size_t n_bytes;
    int32_t yes;
    for (size_t i = 0; sluice_call_header(call, i, &header) == SLUICE_CLIENT_OK; i++) {
        touch_text(header.name);
        touch_bytes(header.value, header.value_bytes + 1);
    }
    if (sluice_call_text(call, &text, &n_bytes) == SLUICE_CLIENT_OK) {
        touch_bytes(text, n_bytes + 1);
    }
    if (sluice_call_yes(call, &yes) == SLUICE_CLIENT_OK) {
        assert(yes == 0 || yes == 1);
    }
    read_answer(call);
    read_metadata(call);
    if (sluice_call_mip_answer(call, &mip) == SLUICE_CLIENT_OK) {
        assert(mip.batch == 2);
    }
    for (size_t i = 0; sluice_call_mip_item(call, i, &item) == SLUICE_CLIENT_OK; i++) {
        touch_bytes(item.data, item.n_bytes);
    }
}

static void check_error(sluice_client_status status, const sluice_client_error *error) {
    if (status < SLUICE_CLIENT_OK) {
        assert(error->status == status && error->text[0] != '\0');
        assert(strcmp(sluice_status_name(status), "unknown status") != 0);
    }
}

static void read_call(struct ask *ask) {
    sluice_client_error error = {.size = sizeof(error)};
    if (ask->call) {
        check_error(sluice_call_status(ask->call, &error), &error);
        read_results(ask->call);
    }
}

static void take_next(struct ask *ask) {
    sluice_client_error error = {.size = sizeof(error)};
    if (ask->call) {
        check_error(sluice_call_next(ask->call, &error), &error);
        read_results(ask->call);
    }
}

/* The call is done, but for answers of a stream that were not taken. */
static void check_done(struct ask *ask) {
    read_call(ask);
    while (ask->call && sluice_call_status(ask->call, NULL) == SLUICE_CLIENT_PENDING) {
        sluice_client_status status = sluice_call_next(ask->call, NULL);
        assert(status == SLUICE_CLIENT_OK || status < SLUICE_CLIENT_OK);
        read_results(ask->call);
    }
}

static void free_call(struct ask *ask) {
    sluice_call_free(ask->call);
    ask->call = NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void begin(struct client_fixture *fixture, uint8_t kind, uint8_t how);

static void on_done(sluice_call *call, void *user) {
    struct ask *ask = user;
    assert(ask->call == call && ask->n_done++ == 0);
    check_done(ask);
    if (ask->frees) {
        free_call(ask);
        begin(ask->fixture, 0, 0);
    }
}

static void on_answer(sluice_call *call, void *user) {
    struct ask *ask = user;
    assert(ask->call == call);
    take_next(ask);
    if (ask->frees) {
        free_call(ask);
    }
}

static const int64_t DIMS[] = {2, 4};
static const int64_t BIG_DIMS[] = {BIG_BYTES / sizeof(float)};

/* An inference: `how` has its form, outputs and size. What is borrowed is in `ask`. */
static sluice_client_status start_infer(struct ask *ask, uint8_t how,
                                        const sluice_call_options *options,
                                        sluice_client_error *error) {
    bool is_raw = how % 8 == 3;
    sluice_wanted *wanted = &ask->wanted;
    ask->input =
        how & 8 ? sluice_tensor_f32("IN", big, BIG_DIMS, 1) : sluice_tensor_f32("IN", big, DIMS, 2);
    ask->param = sluice_parameter_string("p", "x");
    *wanted = (sluice_wanted){.size = sizeof(*wanted), .name = how & 16 ? "OUT" : NULL};
    if (how & 32) {
        wanted->data = ask->out;
        wanted->n_bytes = sizeof(ask->out);
    } else if (how % 8 == 4) {
        wanted->name = "OUT";
        wanted->n_classes = 2;
    } else if (how % 8 == 5) {
        wanted->name = "OUT";
        wanted->shm_region = "region";
        wanted->shm_bytes = 64;
    }
    const sluice_infer_request request = {.size = sizeof(request),
                                          .model = "m",
                                          .inputs = &ask->input,
                                          .n_inputs = 1,
                                          .wanted = wanted,
                                          .n_wanted = !is_raw && (wanted->name || wanted->data),
                                          .params = &ask->param,
                                          .n_params = is_raw ? 0 : 1,
                                          .form = is_raw         ? SLUICE_FORM_RAW
                                                  : how % 8 == 2 ? SLUICE_FORM_JSON
                                                                 : SLUICE_FORM_BINARY};
    return sluice_client_start_infer(ask->fixture->client, &request, options, &ask->call, error);
}

static sluice_client_status start_mip(struct ask *ask, uint8_t how,
                                      const sluice_call_options *options,
                                      sluice_client_error *error) {
    static const sluice_mip_item items[] = {{sizeof(*items), SLUICE_MIP_TEXT, "hello", 5},
                                            {sizeof(*items), SLUICE_MIP_JSON, "[1]", 3},
                                            {sizeof(*items), SLUICE_MIP_IMAGE, big, BIG_BYTES},
                                            {sizeof(*items), SLUICE_MIP_TEXT, "", 0}};
    const sluice_mip_request request = {.size = sizeof(request),
                                        .items = items + (how & 1 ? 1 : 0),
                                        .n_inputs = 1,
                                        .batch = 2,
                                        .buffer = how & 2 ? ask->out : NULL,
                                        .buffer_bytes = how & 2 ? sizeof(ask->out) : 0};
    return sluice_client_start_mip_infer(ask->fixture->client, &request, options, &ask->call,
                                         error);
}

static sluice_client_status start_generate(struct ask *ask, bool streams,
                                           const sluice_call_options *options,
                                           sluice_client_error *error) {
    const sluice_generate_request request = {
        .size = sizeof(request), .model = "m", .json = "{\"a\": 1}"};
    return streams ? sluice_client_start_generate_stream(ask->fixture->client, &request, options,
                                                         &ask->call, error)
                   : sluice_client_start_generate(ask->fixture->client, &request, options,
                                                  &ask->call, error);
}

static sluice_client_status start_stream(struct ask *ask, const sluice_call_options *options,
                                         sluice_client_error *error) {
    return sluice_client_start_stream(ask->fixture->client, options, &ask->call, error);
}

static sluice_client_status start_admin(struct ask *ask, uint8_t kind,
                                        const sluice_call_options *options,
                                        sluice_client_error *error) {
    sluice_client *client = ask->fixture->client;
    sluice_call **call = &ask->call;
    switch (kind) {
    case 0:
        return sluice_client_start_load(client, "m", "{}", options, call, error);
    case 1:
        return sluice_client_start_unload(client, "m", options, call, error);
    case 2:
        return sluice_client_start_register_shm(client, "r", "/k", 0, 64, options, call, error);
    case 3:
        return sluice_client_start_unregister_shm(client, NULL, options, call, error);
    default:
        return sluice_client_start_repository_index(client, options, call, error);
    }
}

static sluice_client_status start_query(struct ask *ask, uint8_t kind,
                                        const sluice_call_options *options,
                                        sluice_client_error *error) {
    sluice_client *client = ask->fixture->client;
    sluice_call **call = &ask->call;
    switch (kind) {
    case 0:
        return sluice_client_start_is_live(client, options, call, error);
    case 1:
        return sluice_client_start_is_ready(client, options, call, error);
    case 2:
        return sluice_client_start_model_is_ready(client, "m", "1", options, call, error);
    case 3:
        return sluice_client_start_server_metadata(client, options, call, error);
    case 4:
        return sluice_client_start_model_metadata(client, "m", NULL, options, call, error);
    case 5:
        return sluice_client_start_model_config(client, "m", "1", options, call, error);
    case 6:
        return sluice_client_start_statistics(client, NULL, NULL, options, call, error);
    default:
        return start_admin(ask, kind - 7, options, error);
    }
}

static sluice_client_status start(struct ask *ask, uint8_t kind, uint8_t how,
                                  const sluice_call_options *options, sluice_client_error *error) {
    enum protocol protocol = ask->fixture->protocol;
    if (kind >= 31 || (protocol == MIP && kind % 8 == 7)) {
        return sluice_client_start_ping(ask->fixture->client, options, &ask->call, error);
    }
    if (protocol == MIP) {
        return start_mip(ask, how, options, error);
    }
    if (kind < 12) {
        return start_query(ask, kind, options, error);
    }
    if (kind < 20) {
        return start_infer(ask, how, options, error);
    }
    return protocol == GRPC ? start_stream(ask, options, error)
                            : start_generate(ask, kind & 1, options, error);
}

/* `kind`: of the call, and callbacks; `how`: of an inference, and the deadline. */
static void begin(struct client_fixture *fixture, uint8_t kind, uint8_t how) {
    static const char traceparent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    sluice_client_error error = {.size = sizeof(error)};
    if (fixture->n == MAX_CALLS) {
        return;
    }
    struct ask *ask = &fixture->asks[fixture->n++];
    *ask = (struct ask){.fixture = fixture, .frees = kind & 64};
    const sluice_call_options options = {.size = sizeof(options),
                                         .timeout_ns = (1 + how / 64) * SECOND,
                                         .traceparent =
                                             fixture->protocol != MIP ? traceparent : NULL,
                                         .on_done = kind & 96 ? on_done : NULL,
                                         .on_answer = kind & 128 ? on_answer : NULL,
                                         .user = ask};
    sluice_client_status status = start(ask, kind % 32, how, &options, &error);
    check_error(status, &error);
    assert((ask->call != NULL) == (status == SLUICE_CLIENT_OK || status == SLUICE_CLIENT_PENDING));
}

/* Sends a request on a stream. */
static void send_more(struct ask *ask, uint8_t how) {
    sluice_client_error error = {.size = sizeof(error)};
    const sluice_tensor input =
        how & 1 ? sluice_tensor_f32("IN", big, BIG_DIMS, 1) : sluice_tensor_f32("IN", big, DIMS, 2);
    const sluice_infer_request request = {
        .size = sizeof(request), .model = "m", .inputs = &input, .n_inputs = 1};
    if (ask->call) {
        check_error(sluice_call_send(ask->call, &request, &error), &error);
        (void)sluice_call_unsent_bytes(ask->call);
    }
}

/* ---- the server ------------------------------------------------------------------------------ */

static void close_conn(struct client_fixture *fixture, size_t which) {
    if (fixture->conns[which] >= 0) {
        close(fixture->conns[which]);
        fixture->conns[which] = -1;
    }
}

static void send_bytes(int conn, struct str bytes) {
    if (conn >= 0 && bytes.len > 0) { /* what the socket does not take is lost */
        (void)!send(conn, bytes.ptr, bytes.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void send_frame(int conn, uint8_t type, uint8_t flags, uint32_t id, struct str body) {
    static char bytes[FRAME_BYTES];
    send_bytes(conn, frame_print(bytes, type, flags, id, body));
}

static void accept_conns(struct client_fixture *fixture) {
    struct pollfd fd = {.fd = peer.listener, .events = POLLIN};
    while (poll(&fd, 1, 0) > 0) {
        size_t which = 0;
        while (which < MAX_CONNS - 1 && fixture->conns[which] >= 0) {
            which++;
        }
        close_conn(fixture, which);
        fixture->conns[which] = accept(peer.listener, NULL, NULL);
        assert(fixture->conns[which] >= 0);
        if (fixture->is_polite && fixture->protocol == GRPC) {
            send_frame(fixture->conns[which], 4, 0, 0, STR("")); /* SETTINGS, ACK */
            send_frame(fixture->conns[which], 4, 1, 0, STR(""));
        }
    }
}

/* Accepts what connected; drops what was sent. */
static void serve(struct client_fixture *fixture) {
    static char drop[1 << 16];
    accept_conns(fixture);
    for (size_t i = 0; i < MAX_CONNS; i++) {
        ssize_t n = 1;
        while (n > 0 && fixture->conns[i] >= 0) {
            n = recv(fixture->conns[i], drop, sizeof(drop), MSG_DONTWAIT);
        }
        if (n == 0) {
            close_conn(fixture, i);
        }
    }
}

/* Steps client and server until neither has anything to do. */
static void settle(struct client_fixture *fixture) {
    for (unsigned round = 0; round == 0 || client_is_ready(fixture->client, 0); round++) {
        assert(round < MAX_ROUNDS);
        sluice_client_step(fixture->client);
        serve(fixture);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Up to 1023 bytes, after their number. */
static struct str take_body(struct str *input) {
    size_t high = take(input) % 4;
    return take_bytes(input, high * 256 + take(input));
}

/* A well-formed head before any body, and its length; `how`: status and fields. */
static void answer_http(struct client_fixture *fixture, int conn, uint8_t how) {
    static const char *const STATUS[] = {"200 OK",   "200 OK",  "200 OK", "200",
                                         "503 Busy", "400 Bad", "404 No", "204 None"};
    static const char *const FIELDS[] = {
        "Content-Type: application/json\r\n",
        "Content-Type: application/octet-stream\r\n",
        "Content-Type: text/event-stream\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
        "Retry-After: 1\r\nConnection: close\r\n",
    };
    static char text[FRAME_BYTES];
    uint8_t fields = take(&fixture->input);
    struct str body = take_body(&fixture->input);
    size_t n_json = take(&fixture->input);
    int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n%s", STATUS[how % 8], FIELDS[fields % 5]);
    if (fields & 64) {
        n += snprintf(text + n, 100, "Inference-Header-Content-Length: %zu\r\n", n_json);
    }
    n += fields & 128
             ? snprintf(text + n, 100, "Transfer-Encoding: chunked\r\n\r\n%zx\r\n", body.len)
             : snprintf(text + n, 100, "Content-Length: %zu\r\n\r\n", body.len);
    send_bytes(conn, str_make(text, (size_t)n));
    send_bytes(conn, body);
    if (fields & 128) {
        send_bytes(conn, how & 8 ? STR("\r\n") : STR("\r\n0\r\n\r\n"));
    }
}

/* A chunk of a body, or an event in one. */
static void answer_chunk(struct client_fixture *fixture, int conn, uint8_t how) {
    char head[32];
    struct str body = take_bytes(&fixture->input, how & 127);
    size_t n_bytes = body.len + (how & 128 ? 8 : 0);
    send_bytes(conn, str_make(head, (size_t)snprintf(head, sizeof(head), "%zx\r\n", n_bytes)));
    send_bytes(conn, how & 128 ? STR("data: ") : STR(""));
    send_bytes(conn, body);
    send_bytes(conn, how & 128 ? STR("\n\n\r\n") : STR("\r\n"));
}

/* Parts of an answer: head, message and trailers, as the bits of `how` say. */
static void answer_grpc(struct client_fixture *fixture, int conn, uint8_t how) {
    static const struct str HEADS[] = {
        {"\x88\x0f\x10\20application/grpc", 20},
        {"\x88\x0f\x10\20application/grpc\0\15grpc-encoding\4gzip", 40},
        {"\x8d", 1}, /* 404 */
        {"\x88\x5f\11text/html", 12},
    };
    static const struct str TRAILERS[] = {
        {"\0\13grpc-status\0010", 15},
        {"\0\13grpc-status\0010", 15},
        {"\0\13grpc-status\0013\0\14grpc-message\5a%20b", 35},
        {"\0\13grpc-status\0018", 15},
    };
    uint8_t which = take(&fixture->input), flags = take(&fixture->input);
    uint32_t id = 1 + 2 * (uint32_t)(which % 16);
    if (how & 1) {
        send_frame(conn, 1, 4, id, HEADS[flags & 64 ? flags % 4 : 0]);
    }
    if (how & 2) {
        char framed[5 + 1024];
        struct str message = take_body(&fixture->input);
        framed[0] = (char)(flags & 128 ? 1 : 0);
        framed[1] = framed[2] = 0;
        framed[3] = (char)(message.len >> 8);
        framed[4] = (char)message.len;
        memcpy(framed + 5, message.ptr, message.len);
        send_frame(conn, 0, 0, id, str_make(framed, 5 + message.len));
    }
    if (how & 4) {
        send_frame(conn, 1, 5, id, TRAILERS[how & 64 ? how / 8 % 4 : 0]);
    }
}

static void answer_mip(struct client_fixture *fixture, int conn, uint8_t how) {
    char head[MIP_HEADER_BYTES];
    struct str body = take_body(&fixture->input);
    struct mip_header header = {.kind = how % 4,
                                .subtype = how & 8 ? how / 16 : MIP_RESPONSE,
                                .n_bytes = (uint32_t)body.len};
    mip_header_encode(&header, head);
    send_bytes(conn, str_make(head, sizeof(head)));
    send_bytes(conn, body);
}

static void answer(struct client_fixture *fixture, int conn, uint8_t how) {
    static void (*const ANSWERS[PROTOCOLS])(struct client_fixture *, int,
                                            uint8_t) = {answer_http, answer_grpc, answer_mip};
    ANSWERS[fixture->protocol](fixture, conn, how);
}

/* ---- the client's transport ------------------------------------------------------------------ */

enum { LAYER_BYTES = 700, LAYER_PAUSE = 5 };

static int32_t layer_start(void *context, int fd, const char *host) {
    struct layer *layer = context;
    assert(layer->fd < 0 && host);
    *layer = (struct layer){.fd = fd};
    return 0;
}

static void layer_stop(void *context) {
    struct layer *layer = context;
    assert(layer->fd >= 0);
    layer->fd = -1;
}

static const char *layer_reason(void *context) {
    (void)context;
    return "the layer failed";
}

/* What a transfer returns; `n` as of the socket. */
static int64_t layer_result(struct layer *layer, ssize_t n, int32_t wanted) {
    if (n >= 0) {
        return n;
    }
    layer->failed = errno != EAGAIN;
    return layer->failed ? SLUICE_TRANSPORT_FAILED : wanted;
}

static int64_t layer_read(void *context, void *data, size_t n) {
    struct layer *layer = context;
    assert(layer->fd >= 0 && !layer->failed && n > 0);
    if (layer->n_calls++ % LAYER_PAUSE == 1) {
        return layer->n_calls % 2 ? SLUICE_TRANSPORT_WANT_READ : SLUICE_TRANSPORT_WANT_WRITE;
    }
    return layer_result(layer, recv(layer->fd, data, n < LAYER_BYTES ? n : LAYER_BYTES, 0),
                        SLUICE_TRANSPORT_WANT_READ);
}

static int64_t layer_write(void *context, const void *data, size_t n) {
    struct layer *layer = context;
    assert(layer->fd >= 0 && !layer->failed && n > 0);
    assert(!layer->repeats || layer->repeats == data);
    layer->repeats = data;
    if (layer->n_calls++ % LAYER_PAUSE == 3) {
        return SLUICE_TRANSPORT_WANT_WRITE;
    }
    size_t most = n < 100 * LAYER_BYTES ? n : 100 * LAYER_BYTES;
    int64_t result =
        layer_result(layer, send(layer->fd, data, most, MSG_NOSIGNAL), SLUICE_TRANSPORT_WANT_WRITE);
    layer->repeats = result > 0 ? NULL : data;
    return result;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void pass(struct client_fixture *fixture, uint64_t ns) {
    fixture->now_ns += ns;
    clock_set_fake_ns(fixture->now_ns);
}

static void act(struct client_fixture *fixture, uint8_t op, struct ask *ask, uint8_t arg) {
    switch (op) {
    case 8:
        take_next(ask);
        break;
    case 9:
        read_call(ask);
        break;
    case 10:
        if (ask->call) {
            sluice_call_cancel(ask->call);
        }
        break;
    case 11:
        free_call(ask);
        break;
    case 12:
        send_more(ask, arg);
        break;
    case 13:
        if (ask->call) {
            sluice_call_half_close(ask->call);
        }
        break;
    default:
        settle(fixture);
        break;
    }
}

static void operate(struct client_fixture *fixture) {
    uint8_t op = take(&fixture->input) % 16, arg = take(&fixture->input),
            which = take(&fixture->input);
    size_t conn = which % MAX_CONNS;
    switch (op) {
    case 0:
    case 1:
        begin(fixture, arg, which);
        break;
    case 2:
        answer(fixture, fixture->conns[conn], arg);
        break;
    case 3:
        if (fixture->protocol == GRPC) {
            send_frame(fixture->conns[conn], take(&fixture->input) % 12, arg,
                       arg & 2 ? 1 + 2 * (uint32_t)(which / MAX_CONNS) : 0,
                       take_bytes(&fixture->input, take(&fixture->input)));
        } else {
            answer_chunk(fixture, fixture->conns[conn], arg);
        }
        break;
    case 4:
        send_bytes(fixture->conns[conn], take_bytes(&fixture->input, arg));
        break;
    case 5:
        close_conn(fixture, conn);
        break;
    case 6:
        pass(fixture, arg * SECOND / 64);
        break;
    case 7: /* the server does not read, so a large request is sent in part */
        sluice_client_step(fixture->client);
        accept_conns(fixture);
        break;
    default:
        act(fixture, op, &fixture->asks[fixture->n > 0 ? which % fixture->n : 0], arg);
        break;
    }
    if (!(arg & 1)) {
        settle(fixture);
    }
}

/* ---- the input ------------------------------------------------------------------------------- */

static void open_world(struct client_fixture *fixture, uint8_t how) {
    static const int32_t HTTP_AGAIN[] = {503}, GRPC_AGAIN[] = {8, 14};
    sluice_client_error error = {.size = sizeof(error)};
    fixture->protocol = how % 4 % PROTOCOLS;
    fixture->is_polite = how & 4;
    for (size_t i = 0; i < MAX_CONNS; i++) {
        fixture->conns[i] = -1;
    }
    pass(fixture, 1000 * SECOND);
    const sluice_retry_policy retry = {.size = sizeof(retry),
                                       .max_attempts = 3,
                                       .backoff_ns = SECOND / 64,
                                       .may_repeat = 1,
                                       .http_statuses = HTTP_AGAIN,
                                       .n_http_statuses = 1,
                                       .grpc_statuses = GRPC_AGAIN,
                                       .n_grpc_statuses = 2};
    fixture->layer.fd = -1;
    const sluice_client_transport transport = {.size = sizeof(transport),
                                               .context = &fixture->layer,
                                               .start = layer_start,
                                               .read = layer_read,
                                               .write = layer_write,
                                               .stop = layer_stop,
                                               .reason = layer_reason};
    const sluice_client_options options = {.size = sizeof(options),
                                           .url = urls[fixture->protocol],
                                           .max_answer_bytes = how & 8 ? 64 : 1 << 20,
                                           .idle_timeout_ns = how & 16 ? SECOND / 2 : 0,
                                           .max_connections = how & (32 | 128) ? 1 : 3,
                                           .transport = how & 128 ? &transport : NULL,
                                           .retry = how & 64 ? &retry : NULL};
    sluice_client_status status = sluice_client_open(&options, &fixture->client, &error);
    assert(status == SLUICE_CLIENT_OK);
}

/* The server is lost and time goes by: all calls end. */
static void end_calls(struct client_fixture *fixture) {
    for (unsigned i = 0; i < 6; i++) {
        for (size_t j = 0; j < MAX_CONNS; j++) {
            close_conn(fixture, j);
        }
        pass(fixture, SECOND);
        settle(fixture);
    }
    for (size_t i = 0; i < fixture->n; i++) {
        check_done(&fixture->asks[i]);
    }
    while (sluice_client_next_done(fixture->client)) {
    }
    assert(sluice_client_timeout_ns(fixture->client) == UINT64_MAX || fixture->protocol == GRPC);
}

/* A good server is understood. */
static void check_usable(struct client_fixture *fixture) {
    static const struct str GOOD[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38},
        {"\0\0\x14\1\4\0\0\0\1\x88\x0f\x10\20application/grpc"
         "\0\0\7\0\0\0\0\0\1\0\0\0\0\2\x08\1"
         "\0\0\x0f\1\5\0\0\0\1\0\13grpc-status\0010",
         9 + 20 + 9 + 7 + 9 + 15},
        {"\0\1\1\0\0\0\0\0", 8},
    };
    sluice_client_error error = {.size = sizeof(error)};
    sluice_call *call;
    fixture->is_polite = true;
    sluice_client_status status = sluice_client_start_ping(fixture->client, NULL, &call, &error);
    assert(call);
    pass(fixture, 2 * SECOND); /* longer than the client pauses between connections */
    settle(fixture);
    send_bytes(fixture->conns[0], GOOD[fixture->protocol]);
    settle(fixture);
    status = sluice_call_status(call, &error);
    if (status != SLUICE_CLIENT_OK) {
        fprintf(stderr, "%d %s\n", (int)status, error.text);
        abort();
    }
}

static void remove_listener(void) {
    peer_close(&peer);
}

int LLVMFuzzerInitialize(int *n_arguments, char ***arguments) {
    static const char *const SCHEMES[] = {"http+unix:", "grpc+unix:", "unix://"};
    (void)n_arguments;
    (void)arguments;
    peer_open(&peer, true);
    for (size_t i = 0; i < PROTOCOLS; i++) {
        snprintf(urls[i], sizeof(urls[i]), "%s%s", SCHEMES[i], peer.address.sun_path);
    }
    return atexit(remove_listener);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct client_fixture *fixture = calloc(1, sizeof(*fixture));
    if (size == 0 || !fixture) {
        free(fixture);
        return 0;
    }
    fixture->input = str_make((const char *)data + 1, size - 1);
    open_world(fixture, data[0]);
    while (fixture->input.len > 0) {
        operate(fixture);
    }
    end_calls(fixture);
    check_usable(fixture);
    sluice_client_close(fixture->client);
    assert(fixture->layer.fd < 0);
    for (size_t i = 0; i < MAX_CONNS; i++) {
        close_conn(fixture, i);
    }
    serve(fixture); /* what connected last */
    for (size_t i = 0; i < MAX_CONNS; i++) {
        close_conn(fixture, i);
    }
    free(fixture);
    return 0;
}
