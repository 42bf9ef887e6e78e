/* Server reflection, v1 and v1alpha. net/server/grpc/reflect.h implements the protocol. */
#include "net/server/grpc/reflect.h"
#include "serve/frontend/grpc/descriptors.h"
#include "serve/frontend/grpc/method.h"

static void step_reflection(struct grpc_call *call, enum grpc_event event) {
    grpc_reflect(serve_descriptors(), call, event);
}

const struct grpc_method_entry *grpc_reflection_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = GRPC_REFLECT_V1,
         .group = KEYS_METADATA,
         .on_event = step_reflection,
         .streams = true},
        {.path = GRPC_REFLECT_V1ALPHA,
         .group = KEYS_METADATA,
         .on_event = step_reflection,
         .streams = true},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
