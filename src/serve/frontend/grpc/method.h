/* What the methods of the gRPC front end have in common. For the grpc_*.c files of this room
 * only. */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_METHOD_H
#define SLUICE_SERVE_FRONTEND_GRPC_METHOD_H

#include "core/base/buf.h"
#include "net/server/grpc/health.h"
#include "serve/config/config.h"
#include "serve/frontend/grpc/api.h"
#include "serve/frontend/keys_file.h"
#include "serve/scheduler/per_worker.h"

/* A method that answers at once, from what it is asked and what the server knows. */
typedef enum status grpc_unary_handler(struct grpc_api *api, struct grpc_call *call,
                                       struct str message, struct buf *out, struct error *err);

/* A row of a service: `step` (with `streams`), or `answer`. */
struct grpc_method_entry {
    const char *path;
    enum keys_group group; /* whose keys open it */
    grpc_unary_handler *unary;
    grpc_event_cb *on_event;
    bool streams;
    size_t (*align_at)(struct str beginning);
};

/* What a method's context is. */
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
    struct per_worker_table decode_caches; /* of inferences; infer.c */
    atomic_bool draining;
    struct grpc_method *methods;
    struct grpc_method_context *contexts;
    size_t n_methods;
};

bool grpc_api_is_ready(const struct grpc_api *api);

/* health.c: for struct grpc_health_options; the context is the api. Thread: any. */
enum grpc_health_state grpc_api_health_state(void *context, struct str service);

/* Rows of each service, `n` of them. */
const struct grpc_method_entry *grpc_metadata_method_table(size_t *n);
const struct grpc_method_entry *grpc_infer_method_table(size_t *n);
const struct grpc_method_entry *grpc_health_method_table(size_t *n);
const struct grpc_method_entry *grpc_reflection_method_table(size_t *n);
const struct grpc_method_entry *grpc_stats_method_table(size_t *n);
const struct grpc_method_entry *grpc_repository_method_table(size_t *n);
const struct grpc_method_entry *grpc_memory_method_table(size_t *n);
const struct grpc_method_entry *grpc_logging_method_table(size_t *n);
const struct grpc_method_entry *grpc_trace_method_table(size_t *n);

/* config.c: A model's configuration as the answer of ModelConfig (proto/model_config.proto). */
/* Appends a ModelConfigResponse: what was configured, completed from the model, defaults filled
 * in. */
void grpc_config_encode(struct buf *out, const struct model_config *config);

#endif
