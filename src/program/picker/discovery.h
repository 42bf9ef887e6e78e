/* Everything that finds endpoints and their state while the picker runs: the pools' file, a
 * cluster's API server, the DNS, readiness probes and metrics scrapes. They share one thread, so
 * that ten thousand endpoints cost the picking workers only CPU. TLS files are checked by a timer
 * on the main thread.
 *
 * The life of an endpoint, from its source to the pool and back. The steps run on the discovery
 * thread, but for 6 and 9:
 *   1. File: on_timer_expired (discovery.c), every --reload-interval, calls pool_watch_check
 *      (pick/discovery/file/pool_watch.c), which parses a changed file.
 *   2. DNS: on_done (pick/discovery/dns/watch.c) stores an answer; on_notify_timer there calls
 *      on_addresses_changed (discovery.c), which calls pool_watch_rebuild.
 *   3. Kubernetes: on_object (pick/discovery/kube/source.c) puts an event into the store;
 *      on_notify_timer there calls on_store_changed (discovery.c): pool_watch_rebuild.
 *   4. Each of these ends in apply_text (pool_watch.c), which makes specs of all three sources and
 *      publishes them: pool_set_update (pick/pool/set.c). A new endpoint is unchecked.
 *   5. on_pool_changed (discovery.c) posts change_msg, and calls prober_refresh and
 *      scraper_refresh, which follow the new snapshots.
 *   6. Main: run_change (discovery.c) calls on_pools_changed (process.c); pick_service_refresh
 *      (pick/ext_proc/service.c) wakes the workers, which refresh their readers and can pick it.
 *   7. Probe: finish_check (pick/discovery/probe/prober.c) calls pool_set_ready. When every
 *      endpoint has a result, on_all_probed (discovery.c) ends pick_discovery_wait_known.
 *   8. Scrape: on_done (pick/discovery/scrape/scraper.c) calls pool_set_load; the load expires.
 *   9. Workers: a response tells that the endpoint refused a connection (pick/session/session.c):
 *      pool_report_refused. A later success there, or a probe's (step 7), ends that.
 *  10. Gone from its source: steps 4 to 6 again. The new snapshot does not have it, and its probe
 *      and scrape are cancelled or their results dropped.
 *
 * Thread: main. */
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

    /* Of the discovery thread. */
    struct worker *worker;
    struct pool_watch *watch;
    struct kube_source *cluster; /* NULL: no --kube */
    struct kube_leader *leader;  /* NULL: no --leader-election */
    struct kube_status *status;  /* NULL: no --kube */
    bool has_pool, is_leader;    /* the picker is ready when both are true */
    struct dns_watch *dns;
    struct prober *prober;
    struct scraper *scraper;
    struct timer reload_timer;
    struct worker_msg begin_msg, resign_msg, leader_stopped_msg, end_msg, refresh_msg;
    atomic_bool refresh_posted; /* `refresh_msg` is posted */
    size_t n_running;           /* sources that have not stopped */

    /* Shared by the discovery thread and main. */
    struct lock lock;
    struct lock_cond cond;
    bool cluster_known;        /* the cluster's objects have been listed; under lock */
    bool names_known;          /* each DNS name has had an answer; under lock */
    bool endpoints_known;      /* each endpoint has been probed; under lock */
    atomic_bool change_posted; /* `change_msg` is posted */
    atomic_bool ready;         /* there is a pool to pick from, and this picker leads */
    struct worker_msg change_msg, ended_msg; /* to main: pools have changed; the thread has ended */

    /* Of main. */
    struct worker *main;
    struct tls_server *tls; /* whose files are checked; NULL: none */
    uv_timer_t tls_timer;
    bool running;
    size_t n_stopping; /* the timer, and the thread */
    void (*on_pools_changed)(void *user);
    void *on_pools_changed_user;
    void (*stopped)(void *user);
    void *stopped_user;
};

/* Reads the pools into `self`, which is zeroed. Returns: why the configuration can't be used. Owns:
 * pick_discovery_free, also after a failure. */
enum status pick_discovery_open(struct pick_discovery *self, const struct pick_settings *settings,
                                struct pool_set *pools, struct error *err) SLUICE_MUST_USE;
/* Starts the thread. `on_pools_changed` is called on the loop of `main` when readers of the pools
 * are to be refreshed. Returns: ST_NO_MEMORY, ST_IO. */
enum status pick_discovery_start(struct pick_discovery *self, struct worker *main,
                                 struct tls_server *tls, void (*on_pools_changed)(void *user),
                                 void *user, struct error *err) SLUICE_MUST_USE;
/* Blocks until the cluster's objects are listed, then until each name has been resolved or has
 * failed, each for three seconds at most, then until each endpoint has been probed, for a quarter
 * of a second at most: before that, requests would be sent to endpoints of unknown state. */
void pick_discovery_wait_known(struct pick_discovery *self);
/* Checks the files now, on the discovery thread. */
void pick_discovery_refresh(struct pick_discovery *self);
/* Gives up leadership, so that another picker can lead. */
void pick_discovery_resign(struct pick_discovery *self);
/* Stops everything; calls `stopped` when nothing is left, at once if it was not started. */
void pick_discovery_stop(struct pick_discovery *self, void (*stopped)(void *user), void *user);
/* To be called before the set is freed. */
void pick_discovery_free(struct pick_discovery *self);

#endif
