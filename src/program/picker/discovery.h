/* All that finds out about endpoints while the picker runs: the file of the pools, which is looked
 * at on a timer, a cluster's API server, the DNS, and whoever asks the endpoints themselves how
 * they are. It has a thread
 * of its own, so that ten thousand endpoints cost those that pick nothing but the CPU. The files of
 * TLS are looked at by a timer on the main thread.
 *
 * Thread: main, for everything. */
#ifndef SLUICE_PROGRAM_PICKER_DISCOVERY_H
#define SLUICE_PROGRAM_PICKER_DISCOVERY_H

#include <stdatomic.h>

#include "core/event/lock.h"
#include "core/event/worker.h"
#include "pick/discovery/dns/watch.h"
#include "pick/discovery/file/pool_watch.h"
#include "pick/discovery/kube/leader.h"
#include "pick/discovery/kube/source.h"
#include "pick/discovery/kube/status.h"
#include "pick/discovery/probe/prober.h"
#include "pick/discovery/scrape/scraper.h"
#include "program/picker/settings.h"

struct tls_server;

struct pick_discovery {
    const struct pick_settings *settings;
    struct pool_set *pools;

    /* Its own thread's. */
    struct worker *worker;
    struct pool_watch *watch;
    struct kube_source *cluster; /* NULL: the pool is in none */
    struct kube_leader *leader;  /* NULL: all lead */
    struct kube_status *status;  /* of the cluster's objects */
    bool has_pool, is_leader;    /* it is ready when both are so */
    struct dns_watch *dns;
    struct prober *prober;
    struct scraper *scraper;
    struct timer reload_timer;
    struct worker_msg begin_msg, resign_msg, leader_stopped_msg, end_msg, refresh_msg;
    atomic_bool refresh_posted; /* `again` is posted */
    size_t n_running;           /* parts that are on its loop yet */

    /* What the two say to each other. */
    struct lock lock;
    struct lock_cond cond;
    bool cluster_known;                      /* what the cluster knows of the pool is known, under
                                                lock */
    bool names_known;                        /* the addresses of names are known, under lock */
    bool endpoints_known;                    /* what the endpoints say of themselves is known, under
                                               lock */
    atomic_bool change_posted;               /* `news` is posted */
    atomic_bool ready;                       /* there is a pool to pick from */
    struct worker_msg change_msg, ended_msg; /* to main: a pool is another now; it has ended */

    /* Main's. */
    struct worker *main;
    struct tls_server *tls; /* whose files are looked at; NULL: none */
    uv_timer_t timer;
    bool running;
    size_t n_stopping; /* the timer, and the thread */
    void (*on_pools_changed)(void *user);
    void *on_pools_changed_user;
    void (*stopped)(void *user);
    void *stopped_user;
};

/* Reads the pools for the first time, into zeroed memory. Returns: why it can't be used. Owns:
 * pick_discovery_free, also after a failure. */
enum status pick_discovery_open(struct pick_discovery *self, const struct pick_settings *settings,
                                struct pool_set *pools, struct error *err)
    __attribute__((warn_unused_result));
/* From now on it goes on by itself; `changed` says, on the loop of `main`, when readers should
 * look. Returns: ST_NO_MEMORY, ST_IO. */
enum status pick_discovery_start(struct pick_discovery *self, struct worker *main,
                                 struct tls_server *tls, void (*on_pools_changed)(void *user),
                                 void *user, struct error *err) __attribute__((warn_unused_result));
/* Blocks until it is known what the cluster knows, then until every name was resolved, or could not
 * be, each for three seconds at most; then until it
 * is known of every endpoint whether it is ready, for a quarter of a second at most: a picker that
 * answers before that sends requests to endpoints that it knows nothing of. */
void pick_discovery_wait_known(struct pick_discovery *self);
/* Looks now at the files that may change, on its own thread. */
void pick_discovery_refresh(struct pick_discovery *self);
/* Another picker may lead now. */
void pick_discovery_resign(struct pick_discovery *self);
/* `stopped` follows when nothing of it is left, at once where nothing was. */
void pick_discovery_stop(struct pick_discovery *self, void (*stopped)(void *user), void *user);
/* While the set still is. */
void pick_discovery_free(struct pick_discovery *self);

#endif
