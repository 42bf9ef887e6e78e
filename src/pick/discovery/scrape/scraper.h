/* Asks the endpoints of all pools for their loads, again and again: who is asked when is the
 * schedule's matter (schedule.h), what their pages say the rules' (page.h). Where a
 * pool's configuration has no section for it none of it is asked. Pools have one schedule and one
 * limit: the highest that one of them has.
 *
 * An endpoint that does not answer, or not with what is wanted, keeps the load it said last until
 * that is too old, and then has none: it is never taken for a busy one.
 *
 * Thread: its worker's, for everything. */
#ifndef SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_H
#define SLUICE_PICK_DISCOVERY_SCRAPE_SCRAPER_H

#include "core/base/metric/histogram.h"
#include "core/event/worker.h"
#include "pick/pool/set.h"

struct scraper;

/* The set stays as long as the scraper. Begins with the pools as they are. Returns: ST_NO_MEMORY.
 * Owns: *out until scraper_free. */
enum status scraper_new(struct worker *worker, struct pool_set *pools, struct scraper **out,
                        struct error *err) __attribute__((warn_unused_result));
/* To be called every second or so, and when a pool is another: looks at the pools and at the files
 * with their tokens. */
void scraper_refresh(struct scraper *scraper);
/* Gives up what is under way; `done` when nothing of it is on the loop any more. */
void scraper_stop(struct scraper *scraper, void (*done)(void *user), void *user);
/* After `done`. NULL is allowed. */
void scraper_free(struct scraper *scraper);

/* How long answers took, those that could not be used, too. Thread: any. */
const struct metric_histogram *scraper_durations(const struct scraper *scraper);

#endif
