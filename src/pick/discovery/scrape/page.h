/* One page of a model server's metrics becomes what is known of its load. Sans I/O: pieces of the
 * page come as they arrive, and only what the rules want is kept, in a fixed room: a page may be
 * huge, garbage, or never end.
 *
 * What an endpoint does not say stays unknown; a number that is none (NaN, infinite) says nothing.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_PAGE_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_PAGE_H

#include "codec/prometheus/series.h"
#include "core/base/status.h"
#include "pick/config/scrape_rules.h"
#include "pick/pool/endpoint/load.h"

/* What counters were on the page before: of each endpoint, between its pages. Zeroed: none. */
struct scrape_history {
    struct {
        uint64_t at_ns; /* 0: there is none */
        double value;
    } counters[SCRAPE_MAX_RULES];
};

struct scrape_page {
    const struct scrape_rules *rules;
    struct {
        bool seen;
        double value;
        double time; /* of the newest */
    } found[SCRAPE_MAX_RULES];
    struct endpoint_load adapters;   /* those of the newest series */
    char scratch[SERIES_LINE_BYTES]; /* a label, unescaped */
    struct series_reader reader;
};

/* `rules` stay until the page has ended. */
void scrape_page_begin(struct scrape_page *page, const struct scrape_rules *rules);
void scrape_page_read(struct scrape_page *page, struct str piece);
/* The page was asked for at `asked_ns`. Fills in what it said of the load, and what it said it of:
 * times and our own requests are the caller's. `past` becomes this page's. Returns: ST_BAD_ANSWER,
 * nothing of what is wanted is there. */
enum status scrape_page_end(struct scrape_page *page, uint64_t asked_ns,
                            struct scrape_history *history, struct endpoint_load *out,
                            struct error *err) __attribute__((warn_unused_result));

#endif
