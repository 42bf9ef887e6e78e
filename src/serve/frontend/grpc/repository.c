/* The model repository extension over gRPC: RepositoryIndex, RepositoryModelLoad and
 * RepositoryModelUnload. A client that disconnects does not cancel a change. */
#include "codec/kserve/repository.h"
#include "core/base/compiler.h"
#include "serve/frontend/grpc/method.h"
#include "serve/frontend/repository_index.h"

/* Lives in the message's arena. */
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

static bool is_large(const struct grpc_repository *self) {
    const struct shared_pages *pages =
        grpc_method_context_of(self->call)->api->options.services.pages;
    return shared_page_is_large(pages, self->repository, INDEX_ENTRY_BYTES);
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
    if (err.status == ST_OK && change->action == REPOSITORY_SCAN && is_large(self)) {
        bool ready = self->request.ready;
        grpc_message_free(self->message); /* frees `self` too */
        grpc_page_send(call, ready ? PAGE_GRPC_READY_INDEX : PAGE_GRPC_INDEX);
        return;
    }
    buf_init(&out, call->arena, 256);
    if (err.status == ST_OK && change->action == REPOSITORY_SCAN) {
        repository_index_encode(self->repository, self->request.ready, &out);
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
    enum status st = decode_request(self, &err);
    if (st == ST_OK) {
        st = repository_change_from_request(message->arena, &self->request, &self->change, &err);
    }
    if (st != ST_OK) {
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

static void step_index(struct grpc_call *call, enum grpc_event event) {
    step_repository(call, event, REPOSITORY_SCAN);
}

static void step_load(struct grpc_call *call, enum grpc_event event) {
    step_repository(call, event, REPOSITORY_LOAD);
}

static void step_unload(struct grpc_call *call, enum grpc_event event) {
    step_repository(call, event, REPOSITORY_UNLOAD);
}

const struct grpc_method_entry *grpc_repository_method_table(size_t *n) {
    static const struct grpc_method_entry rows[] = {
        {.path = "/inference.GRPCInferenceService/RepositoryIndex",
         .group = KEYS_METADATA,
         .on_event = step_index},
        {.path = "/inference.GRPCInferenceService/RepositoryModelLoad",
         .group = KEYS_CONTROL,
         .on_event = step_load,
         .large = true},
        {.path = "/inference.GRPCInferenceService/RepositoryModelUnload",
         .group = KEYS_CONTROL,
         .on_event = step_unload},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
