/* A gRPC server of one worker with one unary method, /bench.Bench/Echo, that sends its message
 * back: the cost of the module net/server by itself. Prints its address; ends when its standard
 * input does.
 *
 *     usage: grpc_echo [ADDRESS]   ("127.0.0.1:0" by default) */
#include "grpc_server_main.h"

static void release(void *cookie) {
    grpc_message_free(cookie);
}

static void step(struct grpc_call *call, enum grpc_event event) {
    if (event == GRPC_MESSAGE) {
        struct piece piece = {call->message->data.ptr, call->message->data.len};
        grpc_send(call, &piece, 1, release, call->message);
        grpc_finish(call, NULL);
    }
}

int main(int argc, char **argv) {
    static const struct grpc_method method = {.path = "/bench.Bench/Echo", .on_event = step};
    return grpc_server_main(&method, argc, argv);
}
