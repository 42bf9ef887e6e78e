/* All that finds out about endpoints while the picker runs: the file of the pool, which is looked
 * at on a timer, and whatever keeps asking the endpoints themselves. The files of TLS are looked at
 * by the same timer.
 *
 * Thread: main, for everything. */
#ifndef SLUICE_CLI_PICK_DISCOVERY_H
#define SLUICE_CLI_PICK_DISCOVERY_H

#include "cli/pick_settings.h"
#include "discover/pool_watch.h"
#include "discover/scraper.h"
#include "loop/worker.h"

struct tls_server;

struct pick_discovery {
    const struct pick_settings *settings;
    struct pool *pool;
    struct tls_server *tls; /* whose files are looked at; NULL: none */
    struct pool_watch *watch;
    struct scraper *scraper;
    size_t n_stopping; /* parts that are on the loop yet */
    uv_timer_t timer;
    bool timing;
    void (*changed)(void *cookie); /* the pool is another now */
    void *changed_cookie;
    void (*stopped)(void *cookie);
    void *stopped_cookie;
};

/* Reads the pool for the first time, into zeroed memory. Returns: why it can't be used. Owns:
 * pick_discovery_free, also after a failure. */
enum status pick_discovery_open(struct pick_discovery *self, const struct pick_settings *settings,
                                struct pool *pool, struct error *err)
    __attribute__((warn_unused_result));
/* From now on it goes on by itself, on the loop of `main`; `changed` says when readers should
 * look. Returns: ST_NO_MEMORY. */
enum status pick_discovery_start(struct pick_discovery *self, struct worker *main,
                                 struct tls_server *tls, void (*changed)(void *cookie),
                                 void *cookie, struct error *err)
    __attribute__((warn_unused_result));
/* `stopped` follows when nothing of it is on the loop any more, at once where nothing was. */
void pick_discovery_stop(struct pick_discovery *self, void (*stopped)(void *cookie), void *cookie);
/* While the pool still is. */
void pick_discovery_free(struct pick_discovery *self);

#endif
