/* Parses one page of a model server's metrics into a load. Without I/O: pieces of the page are fed
 * as they arrive, and only values that the rules select are stored, in a fixed size: a page may be
 * huge, invalid or endless.
 *
 * Values that are not on the page, negative, or not numbers (NaN, infinite), stay unknown: a server
 * that reports -1 for "unknown" must not look idle.
 *
 * Thread: one at a time. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_PAGE_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_PAGE_H

#include "codec/prometheus/series.h"
#include "core/base/status.h"
#include "pick/config/scrape_rules.h"
#include "pick/pool/endpoint/attribute.h"
#include "pick/pool/endpoint/load.h"

/* The counters of an endpoint's last page. Zeroed: none. */
struct scrape_history {
    struct {
        uint64_t at_ns; /* 0: none */
        double value;
    } counters[SCRAPE_MAX_RULES];
};

struct scrape_page {
    const struct scrape_rules *rules;
    struct str pod; /* of the endpoint; empty: unknown */
    struct {
        bool seen;
        double value;
        double time; /* of the newest series */
    } found[SCRAPE_MAX_RULES];
    uint64_t n_invalid;              /* wanted series without a valid value */
    uint64_t n_of_others;            /* wanted series of other pods */
    bool is_gzip;                    /* it begins as a gzip file does */
    struct endpoint_load adapters;   /* from the newest series */
    char scratch[SERIES_LINE_BYTES]; /* an unescaped label value */
    struct series_reader reader;
};

/* `rules` and the name of the endpoint's pod are borrowed until the page ends. */
void scrape_page_begin(struct scrape_page *page, const struct scrape_rules *rules, struct str pod);
/* The same, at another place: the old ones will be freed while the page is read. */
void scrape_page_move_rules(struct scrape_page *page, const struct scrape_rules *rules,
                            struct str pod);
void scrape_page_read(struct scrape_page *page, struct str piece);
/* The page was requested at `asked_ns`. Sets the members of the load, and the attributes, that the
 * page has, and their flags; times and the in-flight count are the caller's. `history` is replaced
 * by this page's counters. Returns: ST_BAD_ANSWER if the page has none of the selected series. */
enum status scrape_page_end(struct scrape_page *page, uint64_t asked_ns,
                            struct scrape_history *history, struct endpoint_load *out,
                            struct attribute_report *attributes, struct error *err) SLUICE_MUST_USE;

#endif
