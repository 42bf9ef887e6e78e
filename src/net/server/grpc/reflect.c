/* Server reflection: a request is read when the answer to the one before it was sent. */
#include "net/server/grpc/reflect.h"

#include "codec/grpc/reflection.h"

static void free_message(void *user) {
    grpc_message_free(user);
}

static void answer_request(struct str descriptors, struct grpc_call *call) {
    struct grpc_message *message = call->message;
    struct error err;
    struct buf out;
    buf_init(&out, message->arena, 1024);
    if (grpc_reflection_respond(descriptors, message->data, &out, &err) != ST_OK) {
        grpc_message_free(message);
        grpc_finish(call, &err);
        return;
    }
    struct piece piece = {out.data, out.len};
    grpc_send(call, &piece, 1, free_message, message);
}

void grpc_reflect(struct str descriptors, struct grpc_call *call, enum grpc_event event) {
    switch (event) {
    case GRPC_BEGIN:
    case GRPC_WRITABLE:
        grpc_read(call);
        break;
    case GRPC_MESSAGE:
        answer_request(descriptors, call);
        break;
    case GRPC_HALF_CLOSE:
        grpc_finish(call, NULL);
        break;
    case GRPC_CANCELLED:
        grpc_finish(call, &call->cancel_error);
        break;
    case GRPC_END:
        break;
    }
}
