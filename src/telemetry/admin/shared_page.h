/* A page of metrics that is printed at most once in an interval, however many clients request it,
 * and on a worker that serves no requests: its length grows with the number of models. A request
 * gets the latest page if that is young enough; otherwise it waits, together with all others, for
 * the next one. One page is printed at a time. All responses share its bytes, which the budget
 * counts once, until the last of them is sent and a newer page has replaced it.
 *
 *     shared_page_answer → (waits → shared_page_cancel, or the page is delivered) → http_reply
 */
#ifndef SLUICE_TELEMETRY_ADMIN_SHARED_PAGE_H
#define SLUICE_TELEMETRY_ADMIN_SHARED_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/base/metric/text.h"
#include "core/event/worker.h"
#include "net/server/http/server.h"

struct shared_page;
struct shared_page_text;

struct shared_page_options {
    /* Prints the page. Thread: the printer's. */
    void (*print)(void *context, struct metric_text *text);
    void *context;
    struct worker *printer;
    /* A page that was begun at most so long ago answers a request; 0: only one that was begun after
     * the request. */
    uint64_t interval_ns;
    struct net_budget *budget; /* after net_budget_count_arenas */
};

/* Returns: ST_NO_MEMORY. Owns: the caller, until shared_page_free. */
enum status shared_page_new(const struct shared_page_options *options, struct shared_page **out,
                            struct error *err) SLUICE_MUST_USE;
/* Call it after the printer and the workers of all requests have ended. NULL is allowed. */
void shared_page_free(struct shared_page *page);

enum shared_page_request_state {
    SHARED_PAGE_WAITS,     /* for the next page */
    SHARED_PAGE_IN_PRINT,  /* that page is being printed */
    SHARED_PAGE_DELIVERED, /* the message to the request's worker is on its way, or has run */
};

/* A request, in the arena of its exchange. */
struct shared_page_request {
    struct shared_page *page;
    struct http_exchange *exchange;
    struct worker *worker; /* the exchange's */
    enum metric_format format;
    enum shared_page_request_state state; /* guarded by the page's lock */
    TAILQ_ENTRY(shared_page_request) link;
    struct worker_msg msg;
    struct shared_page_text *text;  /* NULL: `error` */
    struct memory_account *account; /* holds the page */
    struct error error;
};

/* Answers the exchange with the page, in the format that its Accept field selects: at once, or
 * later. Thread: the exchange's. */
void shared_page_answer(struct shared_page *page, struct http_exchange *exchange,
                        struct shared_page_request *request);
/* The client has disconnected: replies, which only releases, unless the page is delivered. After
 * shared_page_answer, before the reply. Thread: the exchange's. */
void shared_page_cancel(struct shared_page_request *request);

#endif
