/* Requests that wait for the page, its printing, and the references to what was printed. */
#include "telemetry/admin/metrics_page.h"

#include "core/base/compiler.h"

enum { PAGE_BYTES = 16384 };

/* What was printed once; lives in its arena. */
struct metrics_page_text {
    struct arena *arena;
    struct buf body;
    enum metric_format format;
    size_t n_refs;
};

/* A request; lives in its exchange's arena. */
struct metrics_page_request {
    STAILQ_ENTRY(metrics_page_request) link;
    struct http_exchange *exchange;
    struct metrics_page_text *text; /* a reference; NULL: not printed, or out of memory */
};

static void text_unref(void *user) {
    struct metrics_page_text *text = user;
    if (--text->n_refs == 0) {
        arena_free(text->arena);
    }
}

/* Returns: NULL when out of memory. Owns: text_unref. */
static struct metrics_page_text *print_text(struct metrics_page *page, enum metric_format format) {
    struct arena *arena = arena_new(worker_arenas(page->worker), 0);
    struct metrics_page_text *text = arena ? arena_calloc(arena, 1, sizeof(*text)) : NULL;
    if (!text) {
        arena_free(arena);
        return NULL;
    }
    *text = (struct metrics_page_text){.arena = arena, .format = format, .n_refs = 1};
    buf_init(&text->body, arena, PAGE_BYTES);
    page->print(page->context, &(struct metric_text){.out = &text->body, .format = format});
    if (text->body.failed) {
        text_unref(text);
        return NULL;
    }
    return text;
}

/* Moves those that wait for a page of that format to `printed`. */
static void print_for(struct metrics_page *page, enum metric_format format) {
    struct metrics_page_requests *waiting = &page->waiting[format];
    struct metrics_page_request *request;
    if (STAILQ_EMPTY(waiting)) {
        return;
    }
    struct metrics_page_text *text = print_text(page, format);
    STAILQ_FOREACH(request, waiting, link) {
        request->text = text;
        if (text) {
            text->n_refs++;
        }
    }
    STAILQ_CONCAT(&page->printed, waiting);
    if (text) {
        text_unref(text);
    }
}

/* May free the request. Where the client has disconnected, the reply only releases. */
static void reply(struct metrics_page_request *request) {
    struct metrics_page_text *text = request->text;
    struct error err;
    if (!text) {
        error_no_memory(&err, "the page");
        http_reply_error(request->exchange, &err, NULL, 0);
        return;
    }
    struct piece piece = {text->body.data, text->body.len};
    http_reply(request->exchange,
               &(struct http_reply){.status = 200,
                                    .content_type = metric_content_type(text->format),
                                    .pieces = &piece,
                                    .n_pieces = piece.n_bytes > 0,
                                    .release = text_unref,
                                    .user = text});
}

static bool has_waiting(const struct metrics_page *page) {
    for (size_t i = 0; i < METRICS_PAGE_FORMATS; i++) {
        if (!STAILQ_EMPTY(&page->waiting[i])) {
            return true;
        }
    }
    return false;
}

/* Returns: whether the connections that wait for a turn get theirs first, once for each page: they
 * may have requests for it. */
static bool let_others_pass(struct metrics_page *page, struct loop_iteration *iteration) {
    page->lets_pass =
        !page->lets_pass && STAILQ_EMPTY(&page->printed) && loop_iteration_n_turns(iteration) > 0;
    return page->lets_pass;
}

/* Prints once all of the last page have their response, which takes several turns where there are
 * many. */
static void run_turn(struct loop_turn *turn) {
    struct metrics_page *page = CONTAINER_OF(turn, struct metrics_page, turn);
    struct loop_iteration *iteration = worker_loop_iteration(page->worker);
    if (let_others_pass(page, iteration)) {
        loop_iteration_wait(iteration, turn);
        return;
    }
    for (size_t i = 0; i < METRICS_PAGE_FORMATS && STAILQ_EMPTY(&page->printed); i++) {
        print_for(page, (enum metric_format)i);
    }
    bool is_over = false;
    while (!is_over && !STAILQ_EMPTY(&page->printed)) {
        struct metrics_page_request *request = STAILQ_FIRST(&page->printed);
        STAILQ_REMOVE_HEAD(&page->printed, link);
        reply(request);
        is_over = loop_iteration_is_over(iteration);
    }
    if (!STAILQ_EMPTY(&page->printed) || has_waiting(page)) {
        loop_iteration_wait(iteration, turn);
    }
}

void metrics_page_init(struct metrics_page *page,
                       void (*print)(void *context, struct metric_text *text), void *context) {
    *page = (struct metrics_page){.print = print, .context = context, .turn = {.run = run_turn}};
    for (size_t i = 0; i < METRICS_PAGE_FORMATS; i++) {
        STAILQ_INIT(&page->waiting[i]);
    }
    STAILQ_INIT(&page->printed);
}

void metrics_page_reply(struct metrics_page *page, struct http_exchange *exchange) {
    struct str accept = {NULL, 0};
    struct metrics_page_request *request = arena_calloc(exchange->arena, 1, sizeof(*request));
    if (!request) {
        struct error err;
        error_no_memory(&err, "the request");
        http_reply_error(exchange, &err, NULL, 0);
        return;
    }
    http_head_find(&exchange->head, STR("Accept"), &accept);
    request->exchange = exchange;
    page->worker = exchange->worker;
    STAILQ_INSERT_TAIL(&page->waiting[metric_format_negotiate(accept)], request, link);
    loop_iteration_wait(worker_loop_iteration(page->worker), &page->turn);
}
