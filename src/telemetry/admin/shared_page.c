/* The waiting requests of a shared page, the printing, and the references to what was printed. */
#include "telemetry/admin/shared_page.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/event/lock.h"
#include "net/transport/memory_account.h"

enum { FIRST_BYTES = 16384, N_FORMATS = 2 /* enum metric_format */ };

/* What was printed once. */
struct shared_page_text {
    _Atomic uint32_t n_refs;
    uint64_t begun_ns; /* when its numbers began to be read */
    struct net_budget *budget;
    size_t n_bytes;
    char bytes[];
};

TAILQ_HEAD(requests, shared_page_request);

/* The page in one format. */
struct slot {
    struct shared_page_text *latest; /* NULL: none */
    struct requests waiting, in_print;
};

struct shared_page {
    struct shared_page_options options;
    struct lock lock; /* guards `slots`, `is_posted` and the states of requests */
    struct slot slots[N_FORMATS];
    bool is_posted;       /* `msg` is on its way to the printer, or runs */
    unsigned last_format; /* printed last. Thread: the printer's */
    struct worker_msg msg;
};

/* ---- texts ----------------------------------------------------------------------------------- */

static struct shared_page_text *text_ref(struct shared_page_text *text) {
    atomic_fetch_add_explicit(&text->n_refs, 1, memory_order_relaxed);
    return text;
}

static void text_unref(struct shared_page_text *text) {
    if (text && atomic_fetch_sub_explicit(&text->n_refs, 1, memory_order_acq_rel) == 1) {
        net_budget_give_page(text->budget, NET_BODY_HTTP, sizeof(*text) + text->n_bytes);
        free(text);
    }
}

/* Returns: NULL when the budget has no space, or out of memory. */
static struct shared_page_text *text_new(struct shared_page *page, struct str printed,
                                         uint64_t begun_ns, struct error *err) {
    struct net_budget *budget = page->options.budget;
    size_t n_bytes = sizeof(struct shared_page_text) + printed.len;
    if (!net_budget_take_page(budget, NET_BODY_HTTP, n_bytes)) {
        net_budget_page_error(budget, err);
        return NULL;
    }
    struct shared_page_text *text = malloc(n_bytes);
    if (!text) {
        net_budget_give_page(budget, NET_BODY_HTTP, n_bytes);
        error_no_memory(err, "the page");
        return NULL;
    }
    *text = (struct shared_page_text){
        .n_refs = 1, .begun_ns = begun_ns, .budget = budget, .n_bytes = printed.len};
    memcpy(text->bytes, printed.ptr, printed.len);
    return text;
}

static bool is_young(const struct shared_page *page, const struct shared_page_text *text,
                     uint64_t now_ns) {
    uint64_t interval_ns = page->options.interval_ns;
    return interval_ns > 0 && text && clock_between_ns(text->begun_ns, now_ns) <= interval_ns;
}

/* ---- replies --------------------------------------------------------------------------------- */

static void release_text(void *user) {
    struct shared_page_request *request = user;
    memory_page_release(request->account, request->text->n_bytes);
    text_unref(request->text);
}

/* Thread: the exchange's. */
static void reply(struct shared_page_request *request) {
    struct http_exchange *exchange = request->exchange;
    struct shared_page_text *text = request->text;
    if (exchange->client_disconnected) {
        text_unref(text);
        http_reply(exchange, &(struct http_reply){.status = 503}); /* only releases */
        return;
    }
    if (!text) {
        http_reply_error(exchange, &request->error, NULL, 0);
        return;
    }
    struct piece piece = {text->bytes, text->n_bytes};
    request->account = exchange->account;
    memory_page_hold(request->account, text->n_bytes);
    http_reply(exchange, &(struct http_reply){.status = 200,
                                              .content_type = metric_content_type(request->format),
                                              .pieces = &piece,
                                              .n_pieces = text->n_bytes > 0,
                                              .release = release_text,
                                              .user = request});
}

static void on_delivered(struct worker_msg *msg) {
    reply(CONTAINER_OF(msg, struct shared_page_request, msg));
}

/* ---- printing -------------------------------------------------------------------------------- */

static struct shared_page_text *print(struct shared_page *page, enum metric_format format,
                                      struct error *err) {
    struct arena *arena = arena_new(worker_arenas(page->options.printer), 0);
    uint64_t begun_ns = clock_now_ns();
    struct shared_page_text *text = NULL;
    struct buf body;
    if (!arena) {
        error_no_memory(err, "the page");
        return NULL;
    }
    arena_set_budget(arena, &page->options.budget->arena);
    buf_init(&body, arena, FIRST_BYTES);
    struct metric_text out = {.out = &body, .format = format};
    metric_add(METRIC_METRICS_PAGES_TOTAL, 1);
    page->options.print(page->options.context, &out);
    if (!body.failed) {
        text = text_new(page, buf_str(&body), begun_ns, err);
    } else if (arena_is_over_budget(arena)) {
        net_budget_error(page->options.budget, err);
    } else {
        error_no_memory(err, "the page");
    }
    arena_free(arena);
    return text;
}

static void move_all(struct requests *to, struct requests *from) {
    TAILQ_CONCAT(to, from, link);
}

/* Returns: the next format that requests wait for; NULL: none. With the lock. */
static struct slot *find_waiting(struct shared_page *page) {
    for (unsigned i = 1; i <= N_FORMATS; i++) {
        unsigned format = (page->last_format + i) % N_FORMATS;
        if (!TAILQ_EMPTY(&page->slots[format].waiting)) {
            page->last_format = format;
            return &page->slots[format];
        }
    }
    return NULL;
}

/* Takes the requests of the next format. Returns: NULL when none waits. The latest page is too old
 * for them. */
static struct slot *begin_print(struct shared_page *page) {
    struct shared_page_text *old = NULL;
    struct shared_page_request *request;
    lock_acquire(&page->lock);
    struct slot *slot = find_waiting(page);
    page->is_posted = slot != NULL;
    if (slot) {
        TAILQ_FOREACH(request, &slot->waiting, link) {
            request->state = SHARED_PAGE_IN_PRINT;
        }
        move_all(&slot->in_print, &slot->waiting);
        old = slot->latest;
        slot->latest = NULL;
    }
    lock_release(&page->lock);
    text_unref(old);
    return slot;
}

static void set_delivered(struct requests *requests, struct shared_page_text *text,
                          const struct error *err) {
    struct shared_page_request *request;
    TAILQ_FOREACH(request, requests, link) {
        request->state = SHARED_PAGE_DELIVERED;
        request->text = text ? text_ref(text) : NULL;
        if (!text) {
            request->error = *err;
        }
    }
}

/* Their workers may free the requests from here on. */
static void post_delivered(struct requests *requests) {
    while (!TAILQ_EMPTY(requests)) {
        struct shared_page_request *request = TAILQ_FIRST(requests);
        TAILQ_REMOVE(requests, request, link);
        worker_post(request->worker, &request->msg);
    }
}

/* Delivers the page, or the error, to the requests that it was printed for, and a page that is
 * still young to those that came meanwhile. Takes the reference. */
static void end_print(struct shared_page *page, struct slot *slot, struct shared_page_text *text,
                      const struct error *err) {
    struct requests ready = TAILQ_HEAD_INITIALIZER(ready);
    lock_acquire(&page->lock);
    move_all(&ready, &slot->in_print);
    if (is_young(page, text, clock_now_ns())) {
        move_all(&ready, &slot->waiting);
        slot->latest = text_ref(text);
    }
    set_delivered(&ready, text, err);
    bool more = false;
    for (size_t i = 0; i < N_FORMATS; i++) {
        more = more || !TAILQ_EMPTY(&page->slots[i].waiting);
    }
    page->is_posted = more;
    lock_release(&page->lock);
    text_unref(text);
    post_delivered(&ready);
    if (more) {
        worker_post(page->options.printer, &page->msg);
    }
}

/* Thread: the printer's. */
static void run_print(struct worker_msg *msg) {
    struct shared_page *page = CONTAINER_OF(msg, struct shared_page, msg);
    struct slot *slot = begin_print(page);
    struct error err;
    if (slot) { /* all that waited may have been cancelled */
        struct shared_page_text *text = print(page, (enum metric_format)page->last_format, &err);
        end_print(page, slot, text, &err);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

void shared_page_answer(struct shared_page *page, struct http_exchange *exchange,
                        struct shared_page_request *request) {
    struct str accept = {NULL, 0};
    http_head_find(&exchange->head, STR("Accept"), &accept);
    *request = (struct shared_page_request){.page = page,
                                            .exchange = exchange,
                                            .worker = exchange->worker,
                                            .format = metric_format_negotiate(accept),
                                            .msg = {.run = on_delivered}};
    struct slot *slot = &page->slots[request->format];
    bool posts = false;
    lock_acquire(&page->lock);
    if (is_young(page, slot->latest, clock_now_ns())) {
        request->state = SHARED_PAGE_DELIVERED;
        request->text = text_ref(slot->latest);
    } else {
        TAILQ_INSERT_TAIL(&slot->waiting, request, link);
        posts = !page->is_posted;
        page->is_posted = true;
    }
    bool is_delivered = request->state == SHARED_PAGE_DELIVERED;
    lock_release(&page->lock);
    if (posts) {
        worker_post(page->options.printer, &page->msg);
    }
    if (is_delivered) {
        reply(request);
    }
}

void shared_page_cancel(struct shared_page_request *request) {
    struct slot *slot = &request->page->slots[request->format];
    lock_acquire(&request->page->lock);
    bool is_delivered = request->state == SHARED_PAGE_DELIVERED;
    if (!is_delivered) {
        TAILQ_REMOVE(request->state == SHARED_PAGE_WAITS ? &slot->waiting : &slot->in_print,
                     request, link);
    }
    lock_release(&request->page->lock);
    if (!is_delivered) {
        reply(request);
    }
}

/* ---- start and end --------------------------------------------------------------------------- */

enum status shared_page_new(const struct shared_page_options *options, struct shared_page **out,
                            struct error *err) {
    struct shared_page *page = calloc(1, sizeof(*page));
    if (!page) {
        return error_no_memory(err, "the page of metrics");
    }
    page->options = *options;
    page->msg = (struct worker_msg){.run = run_print};
    lock_init(&page->lock);
    for (size_t i = 0; i < N_FORMATS; i++) {
        TAILQ_INIT(&page->slots[i].waiting);
        TAILQ_INIT(&page->slots[i].in_print);
    }
    *out = page;
    return ST_OK;
}

void shared_page_free(struct shared_page *page) {
    if (!page) {
        return;
    }
    for (size_t i = 0; i < N_FORMATS; i++) {
        assert(TAILQ_EMPTY(&page->slots[i].waiting) && TAILQ_EMPTY(&page->slots[i].in_print));
        text_unref(page->slots[i].latest);
    }
    lock_fini(&page->lock);
    free(page);
}
