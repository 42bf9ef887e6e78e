/* Plays a proxy to an endpoint picker: streams of ext-proc, a number of them at once on one
 * connection, each with the headers of one request and, if there is one, its body; ended by a reset
 * as proxies do it, as soon as the answers are here. Prints one JSON line: streams a second, and
 * the latency from a stream's beginning to the answer that names the endpoint.
 *
 *     usage: pick_load TARGET headers|duplex|buffered BODY-BYTES STREAMS SECONDS [WARMUP]
 *
 * An answer without an endpoint is a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/event/clock.h"
#include "core/event/worker.h"
#include "lib/ext_proc/client.h"
#include "load.h"
#include "net/client/grpc/grpc_client.h"

struct pick_load {
    struct arena *arena; /* of what is sent */
    struct worker *worker;
    struct grpc_client *client;
    struct buf headers, body, end; /* what is sent; `end`: the body's, in mode duplex */
    bool buffered;
    bool ending;
    uint64_t begin_ns, until_ns; /* what is counted */
    size_t n_running;
    uint64_t n_picks, n_failures;
    uint64_t n_all; /* picks, those of the warm-up and of the end, too */
    struct histogram latency;
};

/* One of the streams that are under way. */
struct stream {
    struct pick_load *load;
    uint64_t began_ns;
    bool has_pick; /* an answer named an endpoint */
    bool failed;
};

static const struct str NAMESPACE = STR("envoy.lb"), KEY = STR("x-gateway-destination-endpoint");

/* ---- what is asked --------------------------------------------------------------------------- */

static void make_headers(struct pick_load *load, const char *mode, size_t n_body) {
    char length[24];
    snprintf(length, sizeof(length), "%zu", n_body);
    const struct ext_proc_header headers[] = {
        {STR(":authority"), STR("models.example:8080")},
        {STR(":path"),
         n_body > 0 ? STR("/v1/completions") : STR("/v2/models/digits/versions/1/infer")},
        {STR(":method"), STR("POST")},
        {STR(":scheme"), STR("http")},
        {STR("accept"), STR("*/*")},
        {STR("user-agent"), STR("load/1")},
        {STR("content-type"), STR("application/json")},
        {STR("content-length"), str_of(length)},
        {STR("x-forwarded-proto"), STR("http")},
        {STR("x-request-id"), STR("51d86f08-5953-43fc-87a8-67464b1ccd7f")},
    };
    const struct ext_proc_config config = {
        .request_body = strcmp(mode, "duplex") == 0     ? EXT_PROC_BODY_FULL_DUPLEX
                        : strcmp(mode, "buffered") == 0 ? EXT_PROC_BODY_BUFFERED
                                                        : EXT_PROC_BODY_NONE,
    };
    const struct ext_proc_client_request question = {
        .kind = EXT_PROC_REQUEST_HEADERS,
        .headers = headers,
        .n_headers = sizeof(headers) / sizeof(headers[0]),
        .config = &config,
        .has_metadata = true,
    };
    ext_proc_client_request_encode(&load->headers, &question);
}

/* A completion whose prompt fills it up, in lines; the model is in front, as clients send it. */
static void make_body(struct pick_load *load, size_t n_body) {
    static const char head[] = "{\"model\":\"digits\",\"prompt\":\"", tail[] = "\"}";
    static const char line[] =
        "The quick brown fox jumps over the lazy dog while it reads a book on queues.\\n";
    enum { LINE_BYTES = sizeof(line) - 1 };
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_BODY, .has_metadata = true};
    char *text = arena_alloc(load->arena, n_body + sizeof(head) + sizeof(tail));
    if (!text) {
        abort();
    }
    size_t n = sizeof(head) - 1;
    memcpy(text, head, n);
    for (; n + LINE_BYTES + sizeof(tail) - 1 <= n_body; n += LINE_BYTES) {
        memcpy(text + n, line, LINE_BYTES);
    }
    for (; n + sizeof(tail) - 1 < n_body; n++) {
        text[n] = ' ';
    }
    memcpy(text + n, tail, sizeof(tail) - 1);
    question.body = str_make(text, n + sizeof(tail) - 1);
    question.end_of_stream = load->buffered;
    ext_proc_client_request_encode(&load->body, &question);
    question.body = str_make(NULL, 0);
    question.end_of_stream = true;
    ext_proc_client_request_encode(&load->end, &question);
}

/* ---- a stream -------------------------------------------------------------------------------- */

static void send_message(struct grpc_client_call *call, const struct buf *message) {
    struct piece piece = {message->data, message->len};
    grpc_client_send(call, &piece, 1, NULL, NULL);
}

static void send_body(struct grpc_client_call *call, const struct pick_load *load) {
    send_message(call, &load->body);
    if (!load->buffered) {
        send_message(call, &load->end);
    }
}

static void count(struct stream *stream) {
    struct pick_load *load = stream->load;
    uint64_t now = clock_now_ns();
    load->n_all++;
    if (stream->began_ns >= load->begin_ns && now <= load->until_ns) {
        load->n_picks++;
        histogram_add(&load->latency, now - stream->began_ns);
    }
}

/* Returns: the stream has all that it waits for. */
static bool take_answer(struct stream *stream, struct grpc_client_call *call, struct str message) {
    struct pick_load *load = stream->load;
    struct ext_proc_client_response reply;
    struct error err;
    if (ext_proc_client_response_decode(message, &reply, &err) != ST_OK || reply.is_immediate) {
        stream->failed = true;
        return true;
    }
    if (!stream->has_pick &&
        ext_proc_client_response_metadata_find(&reply, NAMESPACE, KEY).kind == EXT_PROC_STRING) {
        stream->has_pick = true;
        count(stream);
    }
    if (reply.kind == EXT_PROC_REQUEST_HEADERS) {
        if (load->buffered && load->body.len > 0) {
            send_body(call, load);
        }
        return load->body.len == 0;
    }
    return load->buffered || reply.end_of_stream;
}

static void begin(struct pick_load *load, struct stream *stream);

static void step(struct grpc_client_call *call, enum grpc_client_event event) {
    struct stream *stream = call->user;
    struct pick_load *load = stream->load;
    if (event == GRPC_CLIENT_MESSAGE) {
        bool over = take_answer(stream, call, call->message->data);
        grpc_message_free(call->message);
        if (over) {
            grpc_client_cancel(call);
        } else {
            grpc_client_read(call);
        }
    } else if (event == GRPC_CLIENT_END) {
        load->n_failures += stream->failed || !stream->has_pick;
        if (call->error.status != ST_CANCELLED) {
            fprintf(stderr, "pick_load: %s\n", call->error.text);
            load->ending = true;
        }
        begin(load, stream);
    }
}

static void on_stopped(void *cookie) {
    worker_stop(cookie);
}

static void begin(struct pick_load *load, struct stream *stream) {
    struct grpc_client_call_options ask = {
        .path = STR("/envoy.service.ext_proc.v3.ExternalProcessor/Process"),
        .on_event = step,
        .user = stream,
        .streams = true,
    };
    struct grpc_client_call *call;
    struct error err;
    *stream = (struct stream){.load = load, .began_ns = clock_now_ns()};
    if (load->ending || stream->began_ns > load->until_ns) {
        if (--load->n_running == 0) {
            grpc_client_stop(load->client, on_stopped, load->worker);
        }
        return;
    }
    if (grpc_client_start_call(load->client, &ask, &call, &err) != ST_OK) {
        fprintf(stderr, "pick_load: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    send_message(call, &load->headers);
    if (load->body.len > 0 && !load->buffered) {
        send_body(call, load);
    }
    grpc_client_read(call);
}

/* ---- the run --------------------------------------------------------------------------------- */

static enum status make_client(struct pick_load *load, const char *target, struct error *err) {
    enum status st = worker_new("load", &load->worker, err);
    struct grpc_client_options options = {.worker = load->worker, .target = str_of(target)};
    return st == ST_OK ? grpc_client_new(&options, &load->client, err) : st;
}

static void run(struct pick_load *load, size_t n_streams, double seconds, double warmup) {
    struct stream *streams = calloc(n_streams, sizeof(*streams));
    if (!streams) {
        abort();
    }
    load->n_running = n_streams;
    load->begin_ns = clock_now_ns() + (uint64_t)(warmup * 1e9);
    load->until_ns = load->begin_ns + (uint64_t)(seconds * 1e9);
    for (size_t i = 0; i < n_streams; i++) {
        begin(load, &streams[i]);
    }
    worker_run(load->worker);
    free(streams);
}

int main(int argc, char **argv) {
    static struct pick_load load;
    struct error err;
    if (argc < 6 || atoi(argv[4]) < 1) {
        fprintf(stderr,
                "usage: pick_load TARGET headers|duplex|buffered BODY-BYTES STREAMS SECONDS "
                "[WARMUP]\n");
        return 2;
    }
    size_t n_body = strtoul(argv[3], NULL, 10);
    double seconds = atof(argv[5]);
    load.buffered = strcmp(argv[2], "buffered") == 0;
    load.arena = arena_new(NULL, 0);
    if (!load.arena) {
        abort();
    }
    buf_init(&load.headers, load.arena, 0), buf_init(&load.body, load.arena, 0);
    buf_init(&load.end, load.arena, 0);
    make_headers(&load, argv[2], n_body);
    if (n_body > 0) {
        make_body(&load, n_body);
    }
    if (make_client(&load, argv[1], &err) != ST_OK) {
        fprintf(stderr, "pick_load: %s\n", err.text);
        return EXIT_FAILURE;
    }
    run(&load, (size_t)atoi(argv[4]), seconds, argc > 6 ? atof(argv[6]) : 0.3);
    printf("{\"rate\":%.1f,\"picks\":%llu,\"all\":%llu,\"failures\":%llu,\"p50_us\":%.1f,"
           "\"p99_us\":%.1f}\n",
           (double)load.n_picks / seconds, (unsigned long long)load.n_picks,
           (unsigned long long)load.n_all, (unsigned long long)load.n_failures,
           (double)histogram_quantile(&load.latency, 0.5) / 1e3,
           (double)histogram_quantile(&load.latency, 0.99) / 1e3);
    grpc_client_free(load.client);
    worker_free(load.worker);
    arena_free(load.arena);
    return load.n_failures > 0 || load.ending ? EXIT_FAILURE : EXIT_SUCCESS;
}
