/* Internal header of the gRPC front end: the rows of its method table, and the API object. */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_METHOD_H
#define SLUICE_SERVE_FRONTEND_GRPC_METHOD_H

#include <stdatomic.h>

#include "core/base/buf.h"
#include "net/server/grpc/health.h"
#include "serve/frontend/grpc/methods.h"
#include "serve/frontend/keys_file.h"

/* Metadata of ModelStreamInfer: "true" asks for errors as the status of the stream. */
#define GRPC_STRICT_ERRORS_FIELD "triton_grpc_error"

/* A unary method that answers at once: appends the response message to `out`. */
typedef enum status grpc_unary_handler(struct grpc_api *api, struct grpc_call *call,
                                       struct str message, struct buf *out, struct error *err);

/* A row of the method table: either `on_event` (with `streams`), or `unary`. */
struct grpc_method_entry {
    const char *path;
    enum keys_group group; /* the keys of this group are valid */
    grpc_unary_handler *unary;
    grpc_event_cb *on_event;
    bool streams;
    bool large; /* messages contain tensors or files: up to --max-body-size */
    size_t (*align_at)(struct str beginning);
};

/* The context of a method. */
struct grpc_method_context {
    struct grpc_api *api;
    const struct grpc_method_entry *entry;
};

static inline const struct grpc_method_context *grpc_method_context_of(
    const struct grpc_call *call) {
    return call->context;
}

struct grpc_api {
    struct grpc_api_options options;
    struct grpc_health *health;
    atomic_bool draining;
    struct grpc_method *methods;
    struct grpc_method_context *contexts;
    size_t n_methods;
};

bool grpc_api_is_ready(const struct grpc_api *api);

/* health.c: for struct grpc_health_options; `context` is the api. Thread: any. */
enum grpc_health_state grpc_api_health_state(void *context, struct str service);

/* The event callback of the methods that have `unary` and no `on_event`. */
void grpc_step_unary(struct grpc_call *call, enum grpc_event event);
/* What a unary method waits for: the first member of what call->user points to. */
struct grpc_waiting {
    /* Finishes the call. NULL: what it waits for does. */
    void (*on_cancelled)(struct grpc_call *call);
};
/* GRPC_CANCELLED of a method whose call->user is a struct grpc_waiting once it waits. */
static inline void grpc_waiting_cancel(struct grpc_call *call) {
    const struct grpc_waiting *waiting = call->user;
    if (!waiting) { /* cancelled before its message */
        grpc_finish(call, &call->cancel_error);
    } else if (waiting->on_cancelled) {
        waiting->on_cancelled(call);
    }
}
/* page.c: answers the call with a page that all clients share, and finishes it. Sets call->user to
 * a struct grpc_waiting. */
void grpc_page_send(struct grpc_call *call, enum shared_page_kind kind);

/* The `n` rows of each service. */
const struct grpc_method_entry *grpc_metadata_method_table(size_t *n);
const struct grpc_method_entry *grpc_infer_method_table(size_t *n);
const struct grpc_method_entry *grpc_health_method_table(size_t *n);
const struct grpc_method_entry *grpc_reflection_method_table(size_t *n);
const struct grpc_method_entry *grpc_repository_method_table(size_t *n);
const struct grpc_method_entry *grpc_memory_method_table(size_t *n);
const struct grpc_method_entry *grpc_logging_method_table(size_t *n);
const struct grpc_method_entry *grpc_trace_method_table(size_t *n);

#endif
