/* The model repository extension over gRPC: RepositoryIndex, RepositoryModelLoad and
 * RepositoryModelUnload. As over HTTP, a client that goes away stops nothing. */
#include "codec/kserve/repository.h"
#include "serve/frontend/grpc/method.h"
#include "serve/frontend/repository_index.h"

/* Lives in the message's arena. */
struct grpc_repository {
    struct repository_change change;
    struct v2_repository_request request;
    struct grpc_call *call;
    struct grpc_message *message;
    struct repository *repository;
};

static void finish(struct grpc_repository *self, const struct error *err) {
    struct grpc_call *call = self->call;
    grpc_message_free(self->message); /* and this with it */
    grpc_finish(call, err);
}

static void on_done(struct repository_change *change) {
    struct grpc_repository *self =
        (struct grpc_repository *)((char *)change - offsetof(struct grpc_repository, change));
    struct grpc_call *call = self->call;
    struct error err = change->error;
    struct buf out;
    if (call->gone) {
        finish(self, &call->cancelled);
        return;
    }
    buf_init(&out, call->arena, 256);
    if (err.status == ST_OK && change->act == REPOSITORY_LOOK) {
        repository_index_print_pb(self->repository, self->request.ready, &out);
    }
    if (err.status == ST_OK && out.failed) {
        error_set(&err, ST_NO_MEMORY, "no memory for the answer");
    }
    if (err.status == ST_OK) {
        struct piece piece = {out.data, out.len};
        grpc_send(call, &piece, 1, NULL, NULL);
    }
    finish(self, err.status == ST_OK ? NULL : &err);
}

static enum status decode(struct grpc_repository *self, struct error *err) {
    struct str message = self->message->data;
    switch (self->change.act) {
    case REPOSITORY_LOAD:
        return v2_grpc_repository_load_decode(self->message->arena, message, &self->request, err);
    case REPOSITORY_UNLOAD:
        return v2_grpc_repository_unload_decode(message, &self->request, err);
    case REPOSITORY_LOOK:
        break;
    }
    return v2_grpc_repository_index_decode(message, &self->request, err);
}

static void begin(struct grpc_call *call, enum repository_act act) {
    struct error err;
    struct grpc_message *message = call->message;
    struct grpc_repository *self = arena_calloc(message->arena, 1, sizeof(*self));
    if (!self) {
        grpc_message_free(message);
        error_set(&err, ST_NO_MEMORY, "no memory for the request");
        grpc_finish(call, &err);
        return;
    }
    *self = (struct grpc_repository){
        .change = {.act = act, .worker = call->worker, .done = on_done},
        .call = call,
        .message = message,
        .repository = grpc_context_of(call)->api->options.repository,
    };
    call->user = self;
    enum status st = decode(self, &err);
    if (st == ST_OK) {
        st = repository_files_of(message->arena, &self->request, &self->change, &err);
    }
    if (st != ST_OK) {
        finish(self, &err);
        return;
    }
    self->change.model = self->request.model;
    repository_change(self->repository, &self->change);
}

static void step(struct grpc_call *call, enum grpc_event event, enum repository_act act) {
    if (event == GRPC_MESSAGE) {
        begin(call, act);
    } else if (event == GRPC_CANCELLED && !call->user) { /* before its message */
        grpc_finish(call, &call->cancelled);
    }
}

static void step_index(struct grpc_call *call, enum grpc_event event) {
    step(call, event, REPOSITORY_LOOK);
}

static void step_load(struct grpc_call *call, enum grpc_event event) {
    step(call, event, REPOSITORY_LOAD);
}

static void step_unload(struct grpc_call *call, enum grpc_event event) {
    step(call, event, REPOSITORY_UNLOAD);
}

const struct grpc_row *grpc_repository_rows(size_t *n) {
    static const struct grpc_row rows[] = {
        {.path = "/inference.GRPCInferenceService/RepositoryIndex",
         .group = KEYS_METADATA,
         .step = step_index},
        {.path = "/inference.GRPCInferenceService/RepositoryModelLoad",
         .group = KEYS_CONTROL,
         .step = step_load},
        {.path = "/inference.GRPCInferenceService/RepositoryModelUnload",
         .group = KEYS_CONTROL,
         .step = step_unload},
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}
