/* The floor of an endpoint picker: ext-proc on our gRPC server without reading the requests; each
 * response names the same endpoint and was encoded once. Bodies of full duplex mode are sent back,
 * as the proxy needs them, but not looked into. Prints its address; exits when its standard input
 * is closed.
 *
 *     usage: pick_floor [ADDRESS]   ("127.0.0.1:0" by default) */
#include <stdio.h>
#include <stdlib.h>

#include "codec/ext_proc/request.h"
#include "codec/ext_proc/response.h"
#include "grpc_server_main.h"

/* The first byte of a request: of all that pick_load sends, the tag of what it is. */
enum { TAG_HEADERS = 2 << 3 | 2, TAG_BODY = 4 << 3 | 2 };

static struct ext_proc_message headers, end;

static void release_message(void *message) {
    grpc_message_free(message);
}

/* Sends the body back in parts that the proxy takes; the last of them releases the message. */
static void pass_on(struct grpc_call *call, struct grpc_message *message, struct str body) {
    while (body.len > 0) {
        size_t n = body.len < EXT_PROC_MAX_CHUNK_BYTES ? body.len : EXT_PROC_MAX_CHUNK_BYTES;
        struct piece piece = {body.ptr, n};
        struct ext_proc_response part = {.kind = EXT_PROC_REQUEST_BODY,
                                         .body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE,
                                         .body = &piece,
                                         .n_body = 1};
        struct ext_proc_message out;
        struct error err;
        if (ext_proc_response_encode(call->arena, &part, &out, &err) != ST_OK) {
            abort();
        }
        body = str_make(body.ptr + n, body.len - n);
        bool last = body.len == 0;
        grpc_send(call, out.pieces, out.n_pieces, last ? release_message : NULL,
                  last ? message : NULL);
    }
}

/* Takes the message. */
static void answer(struct grpc_call *call, struct grpc_message *message) {
    uint8_t tag = message->data.len > 0 ? (uint8_t)message->data.ptr[0] : 0;
    struct ext_proc_request request;
    struct error err;
    if (tag == TAG_HEADERS) {
        grpc_send(call, headers.pieces, headers.n_pieces, NULL, NULL);
    } else if (tag == TAG_BODY && ext_proc_request_decode(message->data, &request, &err) == ST_OK &&
               request.body.len > 0) {
        pass_on(call, message, request.body);
        return;
    } else if (tag == TAG_BODY) {
        grpc_send(call, end.pieces, end.n_pieces, NULL, NULL);
    }
    grpc_message_free(message);
}

static void step(struct grpc_call *call, enum grpc_event event) {
    switch (event) {
    case GRPC_MESSAGE:
        answer(call, call->message);
        grpc_read(call);
        break;
    case GRPC_BEGIN:
        grpc_read(call);
        break;
    case GRPC_HALF_CLOSE:
    case GRPC_CANCELLED:
        if (!call->user) { /* not yet */
            call->user = call;
            grpc_finish(call, NULL);
        }
        break;
    case GRPC_WRITABLE:
    case GRPC_END:
        break;
    }
}

static enum status make_answers(struct arena *arena, struct error *err) {
    const struct ext_proc_header set = {STR("x-gateway-destination-endpoint"),
                                        STR("10.0.0.1:8000")};
    const struct ext_proc_entry entry = {.key = set.key, .text = set.value};
    const struct ext_proc_namespace space = {STR("envoy.lb"), &entry, 1};
    const struct ext_proc_response names_it = {
        .kind = EXT_PROC_REQUEST_HEADERS,
        .headers = {.set = &set, .n_set = 1},
        .clear_route_cache = true,
        .metadata = &space,
        .n_metadata = 1,
    };
    const struct ext_proc_response ends_it = {.kind = EXT_PROC_REQUEST_BODY,
                                              .body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE,
                                              .end_of_stream = true};
    enum status st = ext_proc_response_encode(arena, &names_it, &headers, err);
    return st == ST_OK ? ext_proc_response_encode(arena, &ends_it, &end, err) : st;
}

int main(int argc, char **argv) {
    static const struct grpc_method method = {
        .path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
        .on_event = step,
        .streams = true,
    };
    struct error err;
    struct arena *arena = arena_new(NULL, 0);
    if (!arena || make_answers(arena, &err) != ST_OK) {
        fprintf(stderr, "pick_floor: out of memory\n");
        return EXIT_FAILURE;
    }
    int code = grpc_server_main(&method, argc, argv);
    arena_free(arena);
    return code;
}
