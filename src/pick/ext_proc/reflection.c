/* Both versions of server reflection. The rest is net/server/grpc/reflect.h's. */
#include "pick/ext_proc/reflection.h"

#include "net/server/grpc/reflect.h"
#include "pick/ext_proc/descriptors.h"

static void step(struct grpc_call *call, enum grpc_event event) {
    grpc_reflect(pick_descriptors(), call, event);
}

void pick_reflection_methods(struct grpc_method methods[PICK_REFLECTION_METHODS]) {
    methods[0] = (struct grpc_method){.path = GRPC_REFLECT_V1, .on_event = step, .streams = true};
    methods[1] =
        (struct grpc_method){.path = GRPC_REFLECT_V1ALPHA, .on_event = step, .streams = true};
}
