/* What the files of the scraper share. For scraper*.c only; everybody else uses scraper.h. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_STATE_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_STATE_H

#include "core/os/credential.h"
#include "core/os/log_limit.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/scrape/page.h"
#include "pick/discovery/scrape/schedule.h"
#include "pick/discovery/scrape/scraper.h"
#include "pick/pool/per_pool_table.h"

/* The room to read one page in. */
struct page_buffer {
    struct page_buffer *next; /* of those that are free */
    struct scrape_page page;
};

/* An endpoint that is asked. */
struct scrape_target {
    struct scrape_job job; /* first: a turn is cast to its target */
    struct scraped_pool *of;
    struct endpoint_address address;
    const struct endpoint *endpoint; /* of the reader's snapshot */
    struct scrape_request place;
    struct scrape_history history;
    struct credential token;  /* its own */
    struct http_fetch *fetch; /* under way; NULL: it waits for its time */
    struct page_buffer *buffer;
    uint64_t asked_ns;
    uint32_t in_flight; /* when it was asked */
    bool failing;       /* as the log has it */
};

/* A pool. */
struct scraped_pool {
    struct per_pool per_pool; /* first */
    struct scraper *scraper;
    const struct scrape_plan *plan; /* of the reader's snapshot; NULL: nobody is asked */
    struct scrape_target **targets; /* in the order of their addresses */
    size_t n_targets;
    struct scrape_rate rate;
    struct credential token; /* of endpoints without one of their own */
};

struct scraper {
    struct worker *worker;
    struct pool_set_reader *pools;
    struct http_fetcher *fetcher;
    struct per_pool_table scraped;
    struct scrape_schedule schedule;
    struct timer timer; /* looks who is due */
    bool timer_set;
    uint64_t timer_ns;
    struct page_buffer *free_buffers; /* those that are free */
    size_t n_buffers;                 /* in all */
    struct metric_histogram times;
    struct log_limit log_limit;
    void (*done)(void *user);
    void *user;
};

/* ---- scraper.c ------------------------------------------------------------------------------- */

/* The alarm rings when the next one is due: sooner than it would have, never later. */
void scraper_set_timer(struct scraper *scraper);
/* For the log. */
void scraper_log_failure(struct scrape_target *target, const char *reason);
/* What is under way is given up. */
void scraper_cancel(struct scrape_target *target);

/* ---- scraper_pools.c ------------------------------------------------------------------------- */

/* Targets, plans and tokens become those of the pools as they are. */
void scraper_sync_pools(struct scraper *scraper);
/* For a zeroed one. */
void scraper_pools_init(struct scraper *scraper);

#endif
