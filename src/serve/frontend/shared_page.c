/* The waiting requests of shared pages, the printing, and the references to what was printed. */
#include "serve/frontend/shared_page.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/event/lock.h"

enum { FIRST_BYTES = 16384 };

/* What was printed once. */
struct shared_page_text {
    _Atomic uint32_t n_refs;
    uint64_t begun_ns; /* when its numbers began to be read */
    struct net_budget *budget;
    enum net_body_owner protocol;
    size_t n_bytes;
    char bytes[];
};

TAILQ_HEAD(requests, shared_page_request);

/* A kind of pages. */
struct slot {
    struct shared_page_text *latest; /* NULL: none */
    struct requests waiting, in_print;
};

struct shared_pages {
    struct shared_pages_options options;
    struct lock lock; /* guards `slots`, `is_posted` and the states of requests */
    struct slot slots[PAGE_KINDS];
    bool is_posted;     /* `msg` is on its way to the printer, or runs */
    unsigned last_kind; /* printed last. Thread: the printer's */
    struct worker_msg msg;
};

/* ---- texts ----------------------------------------------------------------------------------- */

static struct shared_page_text *text_ref(struct shared_page_text *text) {
    atomic_fetch_add_explicit(&text->n_refs, 1, memory_order_relaxed);
    return text;
}

static void text_unref(struct shared_page_text *text) {
    if (text && atomic_fetch_sub_explicit(&text->n_refs, 1, memory_order_acq_rel) == 1) {
        net_budget_give_page(text->budget, text->protocol, sizeof(*text) + text->n_bytes);
        free(text);
    }
}

/* Returns: NULL when the budget has no space, or out of memory. */
static struct shared_page_text *text_new(struct net_budget *budget, enum net_body_owner protocol,
                                         struct str printed, uint64_t begun_ns, struct error *err) {
    size_t n_bytes = sizeof(struct shared_page_text) + printed.len;
    if (!net_budget_take_page(budget, protocol, n_bytes)) {
        net_budget_page_error(budget, err);
        net_budget_relieve_pages(budget);
        return NULL;
    }
    struct shared_page_text *text = malloc(n_bytes);
    if (!text) {
        net_budget_give_page(budget, protocol, n_bytes);
        error_no_memory(err, "the page");
        return NULL;
    }
    *text = (struct shared_page_text){.n_refs = 1,
                                      .begun_ns = begun_ns,
                                      .budget = budget,
                                      .protocol = protocol,
                                      .n_bytes = printed.len};
    memcpy(text->bytes, printed.ptr, printed.len);
    return text;
}

static bool is_young(const struct shared_page_text *text, uint64_t interval_ns, uint64_t now_ns) {
    return interval_ns > 0 && text && clock_between_ns(text->begun_ns, now_ns) <= interval_ns;
}

/* ---- delivery -------------------------------------------------------------------------------- */

/* The account is kept until then, as its connection may be closed while the request waits. Thread:
 * the request's. */
static void deliver(struct shared_page_request *request) {
    if (request->printed) {
        request->text = str_make(request->printed->bytes, request->printed->n_bytes);
        memory_page_hold(request->account, request->printed->n_bytes);
    }
    memory_page_release(request->account, 0);
    request->done(request);
}

static void on_delivered(struct worker_msg *msg) {
    deliver(CONTAINER_OF(msg, struct shared_page_request, msg));
}

void shared_page_release(struct shared_page_request *request) {
    if (request->printed) {
        memory_page_release(request->account, request->printed->n_bytes);
        text_unref(request->printed);
        request->printed = NULL;
    }
}

/* ---- printing -------------------------------------------------------------------------------- */

static struct shared_page_text *print(const struct shared_pages_options *options,
                                      enum shared_page_kind kind, struct error *err) {
    const struct shared_page_printing *printing = &options->kinds[kind];
    struct arena *arena = arena_new(worker_arenas(options->printer), 0);
    uint64_t begun_ns = clock_now_ns();
    struct shared_page_text *text = NULL;
    struct buf body;
    if (!arena) {
        error_no_memory(err, "the page");
        return NULL;
    }
    arena_set_budget(arena, &options->budget->arena);
    buf_init(&body, arena, FIRST_BYTES);
    metric_add(METRIC_SHARED_PAGES_TOTAL, 1);
    printing->print(printing->context, &body);
    if (!body.failed) {
        text = text_new(options->budget, printing->protocol, buf_str(&body), begun_ns, err);
    } else if (arena_is_over_budget(arena)) {
        net_budget_error(options->budget, err);
    } else {
        error_no_memory(err, "the page");
    }
    arena_free(arena);
    return text;
}

static void move_all(struct requests *to, struct requests *from) {
    TAILQ_CONCAT(to, from, link);
}

/* Returns: the next kind that requests wait for; NULL: none. With the lock. */
static struct slot *find_waiting(struct shared_pages *pages) {
    for (unsigned i = 1; i <= PAGE_KINDS; i++) {
        unsigned kind = (pages->last_kind + i) % PAGE_KINDS;
        if (!TAILQ_EMPTY(&pages->slots[kind].waiting)) {
            pages->last_kind = kind;
            return &pages->slots[kind];
        }
    }
    return NULL;
}

/* Takes the requests of the next kind. Returns: NULL when none waits. The latest page is too old
 * for them. */
static struct slot *begin_print(struct shared_pages *pages) {
    struct shared_page_text *old = NULL;
    struct shared_page_request *request;
    lock_acquire(&pages->lock);
    struct slot *slot = find_waiting(pages);
    pages->is_posted = slot != NULL;
    if (slot) {
        TAILQ_FOREACH(request, &slot->waiting, link) {
            request->state = SHARED_PAGE_IN_PRINT;
        }
        move_all(&slot->in_print, &slot->waiting);
        old = slot->latest;
        slot->latest = NULL;
    }
    lock_release(&pages->lock);
    text_unref(old);
    return slot;
}

/* Delivers the page, or the error, to the requests that it was printed for, and a page that is
 * still young to those that came meanwhile. Takes the reference. */
static void end_print(struct shared_pages *pages, struct slot *slot, struct shared_page_text *text,
                      const struct error *err) {
    uint64_t interval_ns = pages->options.kinds[pages->last_kind].interval_ns;
    struct requests ready = TAILQ_HEAD_INITIALIZER(ready);
    lock_acquire(&pages->lock);
    move_all(&ready, &slot->in_print);
    if (is_young(text, interval_ns, clock_now_ns())) {
        move_all(&ready, &slot->waiting);
        slot->latest = text_ref(text);
    }
    struct shared_page_request *request;
    TAILQ_FOREACH(request, &ready, link) {
        request->state = SHARED_PAGE_DELIVERED;
        request->printed = text ? text_ref(text) : NULL;
        if (!text) {
            request->error = *err;
        }
    }
    bool more = false;
    for (size_t i = 0; i < PAGE_KINDS; i++) {
        more = more || !TAILQ_EMPTY(&pages->slots[i].waiting);
    }
    pages->is_posted = more;
    lock_release(&pages->lock);
    text_unref(text);
    while ((request = TAILQ_FIRST(&ready))) { /* its worker may free it once it is posted */
        TAILQ_REMOVE(&ready, request, link);
        worker_post(request->worker, &request->msg);
    }
    if (more) {
        worker_post(pages->options.printer, &pages->msg);
    }
}

/* Thread: the printer's. */
static void run_print(struct worker_msg *msg) {
    struct shared_pages *pages = CONTAINER_OF(msg, struct shared_pages, msg);
    struct slot *slot = begin_print(pages);
    struct error err;
    if (slot) { /* all that waited may have been cancelled */
        struct shared_page_text *text =
            print(&pages->options, (enum shared_page_kind)pages->last_kind, &err);
        end_print(pages, slot, text, &err);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

void shared_page_get(struct shared_pages *pages, struct shared_page_request *request) {
    struct slot *slot = &pages->slots[request->kind];
    uint64_t interval_ns = pages->options.kinds[request->kind].interval_ns;
    bool posts = false;
    request->pages = pages;
    request->msg.run = on_delivered;
    memory_page_hold(request->account, 0);
    lock_acquire(&pages->lock);
    bool is_delivered = is_young(slot->latest, interval_ns, clock_now_ns());
    if (is_delivered) {
        request->state = SHARED_PAGE_DELIVERED;
        request->printed = text_ref(slot->latest);
    } else {
        TAILQ_INSERT_TAIL(&slot->waiting, request, link);
        posts = !pages->is_posted;
        pages->is_posted = true;
    }
    lock_release(&pages->lock);
    if (posts) {
        worker_post(pages->options.printer, &pages->msg);
    }
    if (is_delivered) {
        deliver(request);
    }
}

bool shared_page_cancel(struct shared_page_request *request) {
    struct shared_pages *pages = request->pages;
    struct slot *slot = &pages->slots[request->kind];
    lock_acquire(&pages->lock);
    bool waits = request->state != SHARED_PAGE_DELIVERED;
    if (waits) {
        TAILQ_REMOVE(request->state == SHARED_PAGE_WAITS ? &slot->waiting : &slot->in_print,
                     request, link);
    }
    lock_release(&pages->lock);
    if (waits) {
        memory_page_release(request->account, 0);
    }
    return waits;
}

/* ---- start and end --------------------------------------------------------------------------- */

enum status shared_pages_new(const struct shared_pages_options *options, struct shared_pages **out,
                             struct error *err) {
    struct shared_pages *pages = calloc(1, sizeof(*pages));
    if (!pages) {
        return error_no_memory(err, "the pages");
    }
    pages->options = *options;
    pages->msg = (struct worker_msg){.run = run_print};
    lock_init(&pages->lock);
    for (size_t i = 0; i < PAGE_KINDS; i++) {
        TAILQ_INIT(&pages->slots[i].waiting);
        TAILQ_INIT(&pages->slots[i].in_print);
    }
    *out = pages;
    return ST_OK;
}

void shared_pages_free(struct shared_pages *pages) {
    if (!pages) {
        return;
    }
    for (size_t i = 0; i < PAGE_KINDS; i++) {
        assert(TAILQ_EMPTY(&pages->slots[i].waiting) && TAILQ_EMPTY(&pages->slots[i].in_print));
        text_unref(pages->slots[i].latest);
    }
    lock_fini(&pages->lock);
    free(pages);
}
