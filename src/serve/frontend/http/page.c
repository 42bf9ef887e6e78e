/* Responses with a page that all clients share. A page is printed on another thread, and delivered
 * to the worker. */
#include "codec/kserve/grpc/v2_grpc.h"
#include "core/base/compiler.h"
#include "core/base/metric/text.h"
#include "serve/frontend/documents.h"
#include "serve/frontend/http/routes.h"

struct http_page {
    struct shared_page_request request;
    struct http_exchange *exchange;
    const char *content_type;
    bool is_waiting;
};

static void release(void *user) {
    shared_page_release(user);
}

static void on_page(struct shared_page_request *request) {
    struct http_page *self = CONTAINER_OF(request, struct http_page, request);
    struct http_exchange *exchange = self->exchange;
    self->is_waiting = false;
    if (exchange->client_disconnected) {
        shared_page_release(request);
        http_reply(exchange, &(struct http_reply){.status = 503}); /* only releases */
        return;
    }
    if (!request->text.ptr) {
        http_reply_error(exchange, &request->error, NULL, 0);
        return;
    }
    struct piece piece = {request->text.ptr, request->text.len};
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = self->content_type,
                                              .pieces = &piece,
                                              .n_pieces = piece.n_bytes > 0,
                                              .release = release,
                                              .user = request});
}

static void on_body(struct http_exchange *exchange, void *context) {
    const struct http_api *api = context;
    struct http_page *self = exchange->user;
    self->is_waiting = true;
    shared_page_get(api->services.pages, &self->request);
}

static void on_disconnect(struct http_exchange *exchange, void *context) {
    struct http_page *self = exchange->user;
    (void)context;
    if (self->is_waiting && exchange->client_disconnected && shared_page_cancel(&self->request)) {
        http_reply(exchange, &(struct http_reply){.status = 503}); /* only releases */
    }
}

static const struct http_handler page_handler = {.on_body = on_body,
                                                 .on_disconnect = on_disconnect};

/* Returns: false when out of memory; the exchange is answered then. */
static bool prepare(struct http_exchange *exchange, enum shared_page_kind kind,
                    const char *content_type) {
    struct http_page *self = arena_calloc(exchange->arena, 1, sizeof(*self));
    if (!self) {
        struct error err;
        error_no_memory(&err, "the request");
        http_reply_error(exchange, &err, NULL, 0);
        return false;
    }
    self->request = (struct shared_page_request){
        .kind = kind, .worker = exchange->worker, .account = exchange->account, .done = on_page};
    self->exchange = exchange;
    self->content_type = content_type;
    exchange->user = self;
    exchange->handler = &page_handler;
    return true;
}

void http_page_send(struct http_api *api, struct http_exchange *exchange,
                    enum shared_page_kind kind, const char *content_type) {
    if (exchange->client_disconnected) {
        http_reply(exchange, &(struct http_reply){.status = 503}); /* only releases */
    } else if (prepare(exchange, kind, content_type)) {
        on_body(exchange, api);
    }
}

void http_page_begin(struct http_exchange *exchange, enum shared_page_kind kind,
                     const char *content_type) {
    if (prepare(exchange, kind, content_type)) {
        http_limit_body(exchange);
    }
}

void http_metrics_begin(struct http_exchange *exchange) {
    struct str accept = {NULL, 0};
    http_head_find(&exchange->head, STR("Accept"), &accept);
    enum metric_format format = metric_format_negotiate(accept);
    http_page_begin(exchange, format == METRIC_FORMAT_OPENMETRICS ? PAGE_OPENMETRICS : PAGE_METRICS,
                    metric_content_type(format));
}

/* ---- how they are printed -------------------------------------------------------------------- */

/* Appends the JSON of a message that was appended to an empty buffer in the same arena. */
static void print_message(enum v2_grpc_document document, const struct buf *message,
                          struct buf *out) {
    struct error err;
    if (message->failed ||
        v2_grpc_document_add(out, document, buf_str(message), UINT64_MAX, &err) != ST_OK) {
        out->failed = true;
    }
}

static void print_index_of(struct repository *repository, bool ready, struct buf *out) {
    struct buf message;
    buf_init(&message, out->arena, 0);
    document_encode_index(repository, ready, &message);
    print_message(V2_GRPC_INDEX, &message, out);
}

static void print_index(void *context, struct buf *out) {
    print_index_of(context, false, out);
}

static void print_ready_index(void *context, struct buf *out) {
    print_index_of(context, true, out);
}

static void print_load(void *context, struct buf *out) {
    load_report_print(context, out);
}

static void print_statistics(void *context, struct buf *out) {
    struct buf message;
    buf_init(&message, out->arena, 0);
    document_encode_all_statistics(context, &message);
    print_message(V2_GRPC_STATISTICS, &message, out);
}

void http_pages_list(struct shared_page_printing kinds[PAGE_KINDS], struct repository *repository) {
    static const struct {
        enum shared_page_kind kind;
        void (*print)(void *context, struct buf *out);
    } ROWS[] = {{PAGE_INDEX, print_index},
                {PAGE_READY_INDEX, print_ready_index},
                {PAGE_LOAD, print_load},
                {PAGE_STATISTICS, print_statistics}};
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        kinds[ROWS[i].kind] = (struct shared_page_printing){
            .print = ROWS[i].print, .context = repository, .protocol = NET_BODY_HTTP};
    }
}
