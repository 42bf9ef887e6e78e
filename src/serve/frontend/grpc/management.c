/* The extensions with which clients change the server: log and trace settings, shared memory, and
 * the model repository. */
#include "serve/frontend/management.h"
#include "codec/kserve/shared_memory.h"
#include "core/base/compiler.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/grpc/methods.h"
#include "serve/frontend/shm_registry.h"
#include "serve/trace/tracer.h"

/* ---- settings -------------------------------------------------------------------------------- */

/* LogSettings changes the settings and returns the new ones. */
enum status grpc_answer_log_settings(struct grpc_api *api, struct grpc_call *call,
                                     struct str message, struct buf *out, struct error *err) {
    struct v2_log_settings wanted;
    enum status st = v2_grpc_log_decode(message, &wanted, err);
    (void)api, (void)call;
    log_settings_apply(&wanted); /* settings before the invalid one are applied */
    if (st == ST_OK) {
        struct v2_log_settings now = log_settings_get();
        v2_grpc_log_encode(out, &now);
    }
    return st;
}

/* TraceSetting, as grpc_answer_log_settings. */
enum status grpc_answer_trace_setting(struct grpc_api *api, struct grpc_call *call,
                                      struct str message, struct buf *out, struct error *err) {
    struct tracer *tracer = api->options.services.tracer;
    struct v2_trace_update wanted;
    (void)call;
    if (v2_grpc_trace_decode(message, &wanted, err) != ST_OK ||
        trace_model_check(api->options.services.repository, wanted.model, err) != ST_OK ||
        tracer_change_settings(tracer, wanted.model, &wanted, err) != ST_OK) {
        return err->status;
    }
    struct v2_trace_settings now = tracer_get_settings(tracer, wanted.model);
    v2_grpc_trace_encode(out, &now);
    return ST_OK;
}

/* ---- shared memory --------------------------------------------------------------------------- */

static void add_region(void *user, const struct v2_shared_memory_region *region) {
    v2_grpc_shared_memory_encode(user, region);
}

enum status grpc_answer_memory_status(struct grpc_api *api, struct grpc_call *call,
                                      struct str message, struct buf *out, struct error *err) {
    struct str name, version;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK ? shm_visit_regions(api->options.services.shared, name, add_region, out, err)
                       : st;
}

enum status grpc_answer_memory_register(struct grpc_api *api, struct grpc_call *call,
                                        struct str message, struct buf *out, struct error *err) {
    struct v2_shared_memory_region region;
    (void)call, (void)out;
    enum status st = v2_grpc_shared_memory_register_decode(message, &region, err);
    return st == ST_OK ? shm_register_region(api->options.services.shared, &region, err) : st;
}

enum status grpc_answer_memory_unregister(struct grpc_api *api, struct grpc_call *call,
                                          struct str message, struct buf *out, struct error *err) {
    struct str name, version;
    (void)out;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK ? shm_unregister_region(api->options.services.shared, name, err) : st;
}

/* No region can be registered. Clients ask for the status, and unregister all, before they
 * begin. */
enum status grpc_answer_cuda_status(struct grpc_api *api, struct grpc_call *call,
                                    struct str message, struct buf *out, struct error *err) {
    struct str name, version;
    (void)api, (void)out;
    enum status st = v2_grpc_named_decode(call->arena, message, &name, &version, err);
    return st == ST_OK && name.len > 0 ? error_set(err, ST_NOT_FOUND, V2_CUDA_MEMORY_NO_REGION)
                                       : st;
}

enum status grpc_answer_cuda_unregister(struct grpc_api *api, struct grpc_call *call,
                                        struct str message, struct buf *out, struct error *err) {
    (void)api, (void)call, (void)message, (void)out, (void)err;
    return ST_OK;
}

enum status grpc_refuse_cuda(struct grpc_api *api, struct grpc_call *call, struct str message,
                             struct buf *out, struct error *err) {
    (void)api, (void)call, (void)message, (void)out;
    return error_set(err, ST_UNSUPPORTED, V2_CUDA_MEMORY_UNSUPPORTED);
}

/* ---- the model repository -------------------------------------------------------------------- */

/* A change. A client that disconnects does not cancel it. Lives in the message's arena. */
struct grpc_repository {
    struct grpc_waiting waiting;
    struct repository_change change;
    struct v2_repository_request request;
    struct grpc_call *call;
    struct grpc_message *message;
    struct repository *repository;
};

static void finish_call(struct grpc_repository *self, const struct error *err) {
    struct grpc_call *call = self->call;
    grpc_message_free(self->message); /* frees `self` too */
    grpc_finish(call, err);
}

static void on_done(struct repository_change *change) {
    struct grpc_repository *self = CONTAINER_OF(change, struct grpc_repository, change);
    struct grpc_call *call = self->call;
    struct error err = change->error;
    struct buf out;
    if (call->is_cancelled) {
        finish_call(self, &call->cancel_error);
        return;
    }
    const struct shared_pages *pages = grpc_method_context_of(call)->api->options.services.pages;
    if (err.status == ST_OK && change->action == REPOSITORY_SCAN &&
        shared_page_is_large(pages, self->repository, INDEX_ENTRY_BYTES)) {
        bool ready = self->request.ready;
        grpc_message_free(self->message); /* frees `self` too */
        grpc_page_send(call, ready ? PAGE_GRPC_READY_INDEX : PAGE_GRPC_INDEX);
        return;
    }
    buf_init(&out, call->arena, 256);
    if (err.status == ST_OK && change->action == REPOSITORY_SCAN) {
        document_encode_index(self->repository, self->request.ready, &out);
    }
    if (err.status == ST_OK && out.failed) {
        error_no_memory(&err, "the answer");
    }
    if (err.status == ST_OK) {
        struct piece piece = {out.data, out.len};
        grpc_send(call, &piece, 1, NULL, NULL);
    }
    finish_call(self, err.status == ST_OK ? NULL : &err);
}

static enum status decode_request(struct grpc_repository *self, struct error *err) {
    struct str message = self->message->data;
    switch (self->change.action) {
    case REPOSITORY_LOAD:
        return v2_grpc_repository_load_decode(self->message->arena, message, &self->request, err);
    case REPOSITORY_UNLOAD:
        return v2_grpc_repository_unload_decode(message, &self->request, err);
    case REPOSITORY_SCAN:
        break;
    }
    return v2_grpc_repository_index_decode(message, &self->request, err);
}

static void begin_change(struct grpc_call *call, enum repository_action act) {
    struct error err;
    struct grpc_message *message = call->message;
    struct grpc_repository *self = arena_calloc(message->arena, 1, sizeof(*self));
    if (!self) {
        grpc_message_free(message);
        error_no_memory(&err, "the request");
        grpc_finish(call, &err);
        return;
    }
    *self = (struct grpc_repository){
        .change = {.action = act, .worker = call->worker, .done = on_done},
        .call = call,
        .message = message,
        .repository = grpc_method_context_of(call)->api->options.services.repository,
    };
    call->user = self;
    if (decode_request(self, &err) != ST_OK ||
        repository_change_from_request(message->arena, &self->request, &self->change, &err) !=
            ST_OK) {
        finish_call(self, &err);
        return;
    }
    self->change.model = self->request.model;
    repository_change(self->repository, &self->change);
}

static void step_repository(struct grpc_call *call, enum grpc_event event,
                            enum repository_action act) {
    if (event == GRPC_MESSAGE) {
        begin_change(call, act);
    } else if (event == GRPC_CANCELLED) {
        grpc_waiting_cancel(call);
    }
}

void grpc_step_index(struct grpc_call *call, enum grpc_event event) {
    step_repository(call, event, REPOSITORY_SCAN);
}

void grpc_step_load(struct grpc_call *call, enum grpc_event event) {
    step_repository(call, event, REPOSITORY_LOAD);
}

void grpc_step_unload(struct grpc_call *call, enum grpc_event event) {
    step_repository(call, event, REPOSITORY_UNLOAD);
}
