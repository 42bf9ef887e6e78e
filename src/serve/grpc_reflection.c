/* Server reflection, in both versions: a stream of questions about the descriptors that were built
 * into the program. */
#include "wire/grpc_reflection.h"
#include "serve/descriptors.h"
#include "serve/grpc_method.h"

static void free_message(void *cookie) {
    grpc_message_free(cookie);
}

static void answer(struct grpc_call *call) {
    struct grpc_message *message = call->message;
    struct error err;
    struct buf out;
    buf_init(&out, message->arena, 1024);
    if (grpc_reflection_answer(descriptors_all(), message->data, &out, &err) != ST_OK) {
        grpc_message_free(message);
        grpc_finish(call, &err);
        return;
    }
    struct piece piece = {out.data, out.len};
    grpc_send(call, &piece, 1, free_message, message);
    grpc_read(call);
}

static void step(struct grpc_call *call, enum grpc_event event) {
    switch (event) {
    case GRPC_BEGIN:
        grpc_read(call);
        break;
    case GRPC_MESSAGE:
        answer(call);
        break;
    case GRPC_HALF_CLOSE:
        grpc_finish(call, NULL);
        break;
    case GRPC_CANCELLED:
        grpc_finish(call, &call->cancelled);
        break;
    case GRPC_WRITABLE:
    case GRPC_END:
        break;
    }
}

const struct grpc_row *grpc_reflection_rows(size_t *n) {
    static const struct grpc_row rows[] = {
        {.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
         .group = KEYS_METADATA,
         .step = step,
         .streams = true},
        {.path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
         .group = KEYS_METADATA,
         .step = step,
         .streams = true},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
