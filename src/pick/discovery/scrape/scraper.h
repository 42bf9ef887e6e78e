/* Scrapes the metrics pages of the endpoints of all pools repeatedly, and stores their loads and
 * attributes in the pools; of some pools also the pages of their GPUs, which are pages of another
 * server for the same endpoints. The times are in schedule.h, the parsing of pages is in page.h.
 * Pools without a section `metrics` are not scraped. All pools share one schedule and one rate
 * limit, the highest of theirs.
 *
 * When a scrape fails the endpoint keeps its last load until that expires, and then has none: it
 * does not count as busy.
 *
 * Thread: its worker's. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_H

#include "core/base/metric/histogram.h"
#include "core/event/worker.h"
#include "pick/pool/set.h"

struct scraper;

/* Starts with the current pools. The set must live as long as the scraper. Returns: ST_NO_MEMORY.
 * Owns: *out until scraper_free. */
enum status scraper_new(struct worker *worker, struct pool_set *pools, struct scraper **out,
                        struct error *err) SLUICE_MUST_USE;
/* To be called about every second, and when pools have changed: follows the pools, and reads token
 * files again. */
void scraper_refresh(struct scraper *scraper);
/* Cancels running scrapes; calls `done` when nothing is left on the loop. */
void scraper_stop(struct scraper *scraper, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void scraper_free(struct scraper *scraper);

/* Durations of scrapes, failed ones included. Thread: any. */
const struct metric_histogram *scraper_durations(const struct scraper *scraper);

#endif
