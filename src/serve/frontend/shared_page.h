/* Pages that all clients share: metrics, and lists of models and their numbers. Their length grows
 * with the number of models, so they are printed on a worker that serves no requests, one at a
 * time, and not once for each request: a request gets the latest page if that is young enough;
 * otherwise it waits, together with all others, for the next one. All responses share its bytes,
 * which the budget counts once, until the last of them is sent and a newer page has replaced it.
 *
 * Lists of few models are shorter than PAGE_SMALL_BYTES, and printed by the request's worker. */
#ifndef SLUICE_SERVE_FRONTEND_SHARED_PAGE_H
#define SLUICE_SERVE_FRONTEND_SHARED_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/buf.h"
#include "core/event/worker.h"
#include "net/transport/memory_account.h"
#include "serve/repository/repository.h"

enum shared_page_kind {
    PAGE_METRICS,
    PAGE_OPENMETRICS,
    PAGE_INDEX, /* of all models */
    PAGE_READY_INDEX,
    PAGE_LOAD,
    PAGE_STATISTICS, /* of all models */
    PAGE_GRPC_INDEX,
    PAGE_GRPC_READY_INDEX,
    PAGE_GRPC_STATISTICS,
    PAGE_KINDS,
};

/* How a kind is printed. */
struct shared_page_printing {
    void (*print)(void *context, struct buf *out); /* Thread: the printer's */
    void *context;
    enum net_body_owner protocol; /* of the responses that hold it */
    /* A page that was begun at most so long ago answers a request; 0: only one that was begun after
     * the request. */
    uint64_t interval_ns;
};

struct shared_pages_options {
    struct shared_page_printing kinds[PAGE_KINDS];
    struct worker *printer;
    struct net_budget *budget;
};

struct shared_pages;
struct shared_page_text;

/* Returns: ST_NO_MEMORY. Owns: the caller, until shared_pages_free. */
enum status shared_pages_new(const struct shared_pages_options *options, struct shared_pages **out,
                             struct error *err) SLUICE_MUST_USE;
/* Call it after the printer and the workers of all requests have ended. NULL is allowed. */
void shared_pages_free(struct shared_pages *pages);

enum shared_page_state {
    SHARED_PAGE_WAITS,     /* for the next page */
    SHARED_PAGE_IN_PRINT,  /* that page is being printed */
    SHARED_PAGE_DELIVERED, /* the message to the request's worker is on its way, or has run */
};

/* A request. The caller sets the first members, and zeroes the rest. */
struct shared_page_request {
    enum shared_page_kind kind;
    struct worker *worker;
    struct memory_account *account; /* of the connection: it holds the page. NULL is allowed */
    /* Called once, on `worker`, also by shared_page_get itself. */
    void (*done)(struct shared_page_request *request);
    /* for `done` */
    struct str text; /* valid until shared_page_release; ptr NULL: `error` */
    struct error error;
    /* internal */
    struct shared_pages *pages;
    enum shared_page_state state; /* guarded by the pages' lock */
    TAILQ_ENTRY(shared_page_request) link;
    struct worker_msg msg;
    struct shared_page_text *printed;
};

/* Gets the page, at once or later. The request stays valid until `done`, and, where that got a
 * page, until shared_page_release. Thread: the worker's. */
void shared_page_get(struct shared_pages *pages, struct shared_page_request *request);
/* The page is not wanted any more. Returns: whether the request has left the list: `done` is not
 * called then. Before `done`. Thread: the worker's. */
bool shared_page_cancel(struct shared_page_request *request);
/* The text is not used any more. No effect where there is none. Thread: the worker's. */
void shared_page_release(struct shared_page_request *request);

enum { PAGE_SMALL_BYTES = 16384 };

/* Returns: whether a list of all models, with about `n_bytes` for each version, is shared. `pages`
 * NULL: never. Thread: as repository_visit. */
static inline bool shared_page_is_large(const struct shared_pages *pages,
                                        struct repository *repository, size_t n_bytes) {
    return pages && repository_has_more_than(repository, PAGE_SMALL_BYTES / n_bytes);
}

#endif
