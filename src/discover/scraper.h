/* Asks the endpoints of a pool for their loads, again and again: who is asked when is the
 * schedule's matter (scrape_schedule.h), what their pages say the rules' (scrape_page.h). Where the
 * pool's configuration has no section for it nobody is asked.
 *
 * An endpoint that does not answer, or not with what is wanted, keeps the load it said last until
 * that is too old, and then has none: it is never taken for a busy one.
 *
 * Thread: its worker's, for everything. */
#ifndef SLUICE_DISCOVER_SCRAPER_H
#define SLUICE_DISCOVER_SCRAPER_H

#include "base/metric_histogram.h"
#include "loop/worker.h"
#include "pool/pool.h"

struct scraper;

/* The pool stays as long as the scraper. Begins with the pool as it is. Returns: ST_NO_MEMORY.
 * Owns: *out until scraper_free. */
enum status scraper_new(struct worker *worker, struct pool *pool, struct scraper **out,
                        struct error *err) __attribute__((warn_unused_result));
/* To be called every second or so, and when the pool is another: looks at the pool and at the file
 * with the token. */
void scraper_look(struct scraper *scraper);
/* Gives up what is under way; `done` when nothing of it is on the loop any more. */
void scraper_stop(struct scraper *scraper, void (*done)(void *cookie), void *cookie);
/* After `done`. NULL is allowed. */
void scraper_free(struct scraper *scraper);

/* How long answers took, those that could not be used, too. Thread: any. */
const struct metric_histogram *scraper_times(const struct scraper *scraper);

#endif
