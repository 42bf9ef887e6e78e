/* What the files of the scraper share. For scraper*.c only; everybody else uses scraper.h. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_STATE_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_STATE_H

#include "core/os/credential.h"
#include "core/os/log_limit.h"
#include "net/client/http_fetch.h"
#include "pick/discovery/scrape/page.h"
#include "pick/discovery/scrape/schedule.h"
#include "pick/discovery/scrape/scraper.h"
#include "pick/pool/followed.h"

/* The room to read one page in. */
struct room {
    struct room *next; /* of those that are free */
    struct scrape_page page;
};

/* An endpoint that is asked. */
struct target {
    struct scrape_turn turn; /* first: a turn is cast to its target */
    struct scraped *of;
    struct endpoint_address address;
    const struct endpoint *endpoint; /* of the reader's snapshot */
    struct scrape_target_place place;
    struct scrape_past past;
    struct credential token;  /* its own */
    struct http_fetch *fetch; /* under way; NULL: it waits for its time */
    struct room *room;
    uint64_t asked_ns;
    uint32_t in_flight; /* when it was asked */
    bool failing;       /* as the log has it */
};

/* A pool. */
struct scraped {
    struct followed followed; /* first */
    struct scraper *scraper;
    const struct scrape_plan *plan; /* of the reader's snapshot; NULL: nobody is asked */
    struct target **targets;        /* in the order of their addresses */
    size_t n_targets;
    struct scrape_pace pace;
    struct credential token; /* of endpoints without one of their own */
};

struct scraper {
    struct worker *worker;
    struct pool_set_reader *pools;
    struct http_fetcher *fetcher;
    struct followed_pools scraped;
    struct scrape_schedule schedule;
    struct alarm alarm; /* looks who is due */
    bool armed;
    uint64_t armed_ns;
    struct room *rooms; /* those that are free */
    size_t n_rooms;     /* in all */
    struct metric_histogram times;
    struct log_limit log_limit;
    void (*done)(void *cookie);
    void *cookie;
};

/* ---- scraper.c ------------------------------------------------------------------------------- */

/* The alarm rings when the next one is due: sooner than it would have, never later. */
void scraper_arm(struct scraper *scraper);
/* For the log. */
void scraper_tell_failure(struct target *target, const char *reason);
/* What is under way is given up. */
void scraper_give_up(struct target *target);

/* ---- scraper_pools.c ------------------------------------------------------------------------- */

/* Targets, plans and tokens become those of the pools as they are. */
void scraper_follow(struct scraper *scraper);
/* For a zeroed one. */
void scraper_follow_init(struct scraper *scraper);

#endif
