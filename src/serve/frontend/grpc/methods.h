/* KServe v2 over gRPC: the front end between the gRPC server and the models. methods.c has a row
 * for each method; the functions of the rows are in the files that are named below.
 *
 * Thread: grpc_api_new, _drain and _free on the main thread; methods on any worker. */
#ifndef SLUICE_SERVE_FRONTEND_GRPC_METHODS_H
#define SLUICE_SERVE_FRONTEND_GRPC_METHODS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "codec/kserve/grpc/v2_grpc.h"
#include "core/base/buf.h"
#include "net/server/grpc/health.h"
#include "net/server/grpc/server.h"
#include "serve/frontend/client_inference.h"
#include "serve/frontend/keys.h"
#include "serve/frontend/restrictions.h"

struct header_forward;

struct grpc_api_options {
    struct inference_services services;
    const char *server_name;                      /* metadata: name */
    const char *server_version;                   /* metadata: version */
    const struct header_forward *forward;         /* metadata forwarded to models; NULL: none */
    const struct keys *keys;                      /* of grpc_api_admit; NULL: none */
    const struct restrictions *restrictions;      /* the same */
    const struct restrictions *http_restrictions; /* of calls on a port of HTTP, besides */
    enum v2_grpc_contents output_contents;        /* of requests without that parameter */
    size_t max_in_flight;                         /* unanswered requests of one ModelStreamInfer */
    struct worker *const *workers;                /* workers of the server, for Health/Watch */
    size_t n_workers;
};

struct grpc_api;

/* Returns: ST_NO_MEMORY. Owns: *out until grpc_api_free, after the server has stopped. */
enum status grpc_api_new(const struct grpc_api_options *options, struct grpc_api **out,
                         struct error *err) SLUICE_MUST_USE;
void grpc_api_free(struct grpc_api *api);
/* For grpc_server_options.admit, with the keys (serve/frontend/keys.h) as its argument: checks the
 * key group of the method's row, and its category of restrictions. */
enum status grpc_api_admit(const struct grpc_call *call, void *keys,
                           struct error *err) SLUICE_MUST_USE;
/* For grpc_server_options.keeps_field, with the api as its argument: keys, traces, the kind of a
 * stream's errors, and what is forwarded to models. */
bool grpc_api_keeps_field(struct str name, void *api);
/* The method table for grpc_server_new; lives as long as the api. */
const struct grpc_method *grpc_api_methods(const struct grpc_api *api, size_t *n);
/* The state of the server or of a model may have changed: notifies the streams of Health/Watch.
 * Thread: any. */
void grpc_api_notify_health_watchers(struct grpc_api *api);
/* ServerReady answers false from now on; calls are still served. Thread: any. */
void grpc_api_drain(struct grpc_api *api);

/* ---- inside of the front end ----------------------------------------------------------------- */

/* Metadata of ModelStreamInfer: "true" asks for errors as the status of the stream. */
#define GRPC_STRICT_ERRORS_FIELD "triton_grpc_error"

/* A unary method that answers at once: appends the response message to `out`. */
typedef enum status grpc_unary_handler(struct grpc_api *api, struct grpc_call *call,
                                       struct str message, struct buf *out, struct error *err);

/* A row of the method table: either `on_event` (with `streams`), or `unary`. */
struct grpc_method_entry {
    const char *path;
    enum keys_group group; /* the keys of this group are valid */
    enum restricted_category category;
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
};

bool grpc_api_is_ready(const struct grpc_api *api);

/* All rows of the table, and how many. */
const struct grpc_method_entry *grpc_method_entries(size_t *n);

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

/* Sets how the pages of gRPC are printed. */
void grpc_pages_list(struct shared_page_printing kinds[PAGE_KINDS], struct repository *repository);

/* metadata.c: health of the server and its models, what it tells about them, and reflection. */
grpc_unary_handler grpc_answer_live, grpc_answer_ready, grpc_answer_server, grpc_answer_model_ready,
    grpc_answer_model, grpc_answer_config, grpc_answer_statistics, grpc_answer_health;
grpc_event_cb grpc_step_statistics, grpc_step_health_watch, grpc_step_reflection;
/* For struct grpc_health_options; `context` is the api. Thread: any. */
enum grpc_health_state grpc_api_health_state(void *context, struct str service);
/* The FileDescriptorSet of the server's services, compiled from proto/ (cmake/proto.cmake). */
struct str serve_descriptors(void);

/* management.c: the extensions with which clients change the server. */
grpc_event_cb grpc_step_index, grpc_step_load, grpc_step_unload;
grpc_unary_handler grpc_answer_memory_status, grpc_answer_memory_register,
    grpc_answer_memory_unregister, grpc_answer_cuda_status, grpc_refuse_cuda,
    grpc_answer_cuda_unregister, grpc_answer_log_settings, grpc_answer_trace_setting;

/* infer.c, infer_stream.c */
grpc_event_cb grpc_step_infer, grpc_step_infer_stream;

#endif
