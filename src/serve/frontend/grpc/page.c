/* Responses of unary methods with a page that all clients share. A page is printed on another
 * thread, and delivered to the worker. */
#include "core/base/compiler.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/grpc/methods.h"

struct grpc_page {
    struct grpc_waiting waiting;
    struct shared_page_request request;
    struct grpc_call *call;
};

static void release(void *user) {
    shared_page_release(user);
}

static void on_page(struct shared_page_request *request) {
    struct grpc_call *call = CONTAINER_OF(request, struct grpc_page, request)->call;
    if (call->is_cancelled) {
        shared_page_release(request);
        grpc_finish(call, &call->cancel_error);
    } else if (request->text.ptr) {
        struct piece piece = {request->text.ptr, request->text.len};
        grpc_send(call, &piece, 1, release, request);
        grpc_finish(call, NULL);
    } else {
        grpc_finish(call, &request->error);
    }
}

/* A page that is on its way to the worker finishes the call. */
static void on_cancelled(struct grpc_call *call) {
    struct grpc_page *self = call->user;
    if (shared_page_cancel(&self->request)) {
        grpc_finish(call, &call->cancel_error);
    }
}

void grpc_page_send(struct grpc_call *call, enum shared_page_kind kind) {
    struct grpc_page *self = arena_calloc(call->arena, 1, sizeof(*self));
    if (!self) {
        struct error err;
        error_no_memory(&err, "the request");
        grpc_finish(call, &err);
        return;
    }
    call->user = self;
    self->waiting.on_cancelled = on_cancelled;
    self->call = call;
    self->request = (struct shared_page_request){
        .kind = kind, .worker = call->worker, .account = call->account, .done = on_page};
    shared_page_get(grpc_method_context_of(call)->api->options.services.pages, &self->request);
}

/* ---- how they are printed -------------------------------------------------------------------- */

static void print_index(void *context, struct buf *out) {
    document_encode_index(context, false, out);
}

static void print_ready_index(void *context, struct buf *out) {
    document_encode_index(context, true, out);
}

static void print_statistics(void *context, struct buf *out) {
    document_encode_all_statistics(context, out);
}

void grpc_pages_list(struct shared_page_printing kinds[PAGE_KINDS], struct repository *repository) {
    static const struct {
        enum shared_page_kind kind;
        void (*print)(void *context, struct buf *out);
    } ROWS[] = {{PAGE_GRPC_INDEX, print_index},
                {PAGE_GRPC_READY_INDEX, print_ready_index},
                {PAGE_GRPC_STATISTICS, print_statistics}};
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        kinds[ROWS[i].kind] = (struct shared_page_printing){
            .print = ROWS[i].print, .context = repository, .protocol = NET_BODY_GRPC};
    }
}
