/* The operators' listener of --metrics: the status page, /metrics, /debug/state and /debug/pick.
 * All are read-only.
 *
 * Thread: the functions, main; the pages, the admin worker's. */
#ifndef SLUICE_PROGRAM_PICKER_ROUTES_H
#define SLUICE_PROGRAM_PICKER_ROUTES_H

#include <stdatomic.h>

#include "core/base/metric/text.h"
#include "pick/pool/set.h"
#include "pick/stream/stream.h"
#include "program/picker/settings.h"
#include "telemetry/admin/listener.h"
#include "telemetry/admin/metrics_page.h"
#include "telemetry/admin/process.h"
#include "telemetry/admin/router.h"
#include "telemetry/admin/state.h"

struct dns_watch;
struct kube_access;
struct kube_client;
struct kube_leader;
struct kube_source;
struct pick_discovery;
struct scraper;

struct pick_admin {
    struct pool_set_reader *pools; /* the admin worker's */
    struct worker_msg refresh_msg, log_msg;
    atomic_bool refresh_posted, log_posted;
    struct pick_workers *workers;
    struct dns_watch *dns;         /* NULL: not started */
    struct kube_source *cluster;   /* NULL: no --kube, or not started */
    struct kube_leader *leader;    /* NULL: no --leader-election, or not started */
    const struct scraper *scraper; /* NULL: not started */
    struct admin_process process;
    bool has_process;
    bool has_deprecated_metrics; /* --deprecated-metrics: upstream_page.c:pick_upstream_print */
    struct metrics_page metrics_page;
    struct admin_state state;
    struct admin_routes routes;
    struct tls_server *tls; /* of the listener; NULL: no --metrics-tls-cert */
    struct admin_listener listener;
    struct kube_client *client; /* of the worker; NULL: no --metrics-auth */
    struct kube_access *access; /* likewise: which clients may read the pages */
    struct worker_msg stop_msg; /* of pick_admin_stop */
    struct worker *main;
    void (*stopped)(void *user);
    void *stopped_user;
};

/* `worker` serves the pages and nothing else. `budget`: of the proxies. `self` is zeroed but for
 * `workers`. Returns: ST_NO_MEMORY. Owns: pick_admin_free, also after a failure. */
enum status pick_admin_init(struct pick_admin *self, struct pool_set *pools,
                            struct net_budget *budget, struct worker *worker,
                            struct error *err) SLUICE_MUST_USE;
/* Adds a server whose connections /debug/state lists. Before pick_admin_open. */
void pick_admin_add_server(struct pick_admin *self, const char *name, struct net_server *server);
/* Opens the listener where --metrics says. Returns: an error. */
enum status pick_admin_open(struct pick_admin *self, const struct pick_settings *settings,
                            struct error *err) SLUICE_MUST_USE;
/* Shows discovery, which has started, on the pages. */
void pick_admin_show_discovery(struct pick_admin *self, const struct pick_discovery *discovery);
/* To be called when pools have changed. */
void pick_admin_refresh_pools(struct pick_admin *self);
/* Logs the contents of /debug/state soon. */
void pick_admin_log_state(struct pick_admin *self);
/* Stops the listener, which is open; `stopped` is called on `main`. */
void pick_admin_stop(struct pick_admin *self, struct worker *main, void (*stopped)(void *user),
                     void *user);
/* After the server, if there is one, has stopped. */
void pick_admin_free(struct pick_admin *self);

/* ---- what the pages share -------------------------------------------------------------------- */

struct pick_admin_pool {
    const struct pool_entry *entry;
    const struct pool_snapshot *snapshot;
    struct pool_stats numbers;
};

struct pick_admin_pools {
    struct pick_admin_pool *items;
    size_t n;
    bool named; /* series have a label `pool` */
};

/* Takes a snapshot of each pool, valid until the reader is refreshed. Out of memory it has no
 * pools. Owns: the array is in `arena`. */
struct pick_admin_pools pick_admin_pools_load(struct pool_set_reader *pools, struct arena *arena);
/* The pool's name, or else that of its InferencePool; len 0: none. */
struct str pick_admin_pool_name(const struct pick_admin_pool *pool);
/* Begins the labels of a series: with `pool` if pools are named. */
void pick_admin_pool_begin_labels(const struct metric_text *text,
                                  const struct pick_admin_pools *list,
                                  const struct pick_admin_pool *pool, struct buf *labels);
/* Seconds since a time of clock_now_ns; 0 for a time to come. */
double pick_seconds_since(uint64_t then_ns);

/* ---- metrics_page.c -------------------------------------------------------------------------- */

/* /metrics; `context` is the struct pick_admin. */
void pick_metrics_print(void *context, struct metric_text *text);
/* Sums the pick duration histograms of all workers. */
void pick_times_read(struct pick_workers *workers, struct metric_distribution out[N_PICK_TIMES]);

/* ---- upstream_page.c ------------------------------------------------------------------------- */

/* Prints the families under upstream's names. */
void pick_upstream_print(const struct pick_admin *admin, const struct pick_admin_pools *list,
                         struct metric_text *text);

/* ---- state_page.c ---------------------------------------------------------------------------- */

/* /debug/state; `context` is the struct pick_admin. */
void pick_state_print(void *context, struct buf *out);

/* ---- status_page.c --------------------------------------------------------------------------- */

/* /status.json: the numbers of the status page; `context` is the struct pick_admin. */
void pick_status_print(void *context, const struct net_memory_report *memory, struct buf *out);

#endif
