/* What operators see of a running picker, on the listener of --metrics: the status page, /metrics,
 * /debug/state, /debug/pick. It changes nothing.
 *
 * Thread: main. */
#ifndef SLUICE_PROGRAM_PICKER_ADMIN_H
#define SLUICE_PROGRAM_PICKER_ADMIN_H

#include "pick/ext_proc/service.h"
#include "pick/pool/set.h"
#include "program/picker/settings.h"
#include "telemetry/admin/listener.h"
#include "telemetry/admin/process.h"
#include "telemetry/admin/routes.h"
#include "telemetry/admin/state.h"

struct dns_watch;
struct json_writer;
struct kube_leader;
struct kube_source;
struct pick_admin_pools;
struct scraper;
struct pick_admin_pool;

struct pick_admin {
    struct pool_set_reader *pools;
    const struct pick_service *service; /* whose numbers are shown */
    struct dns_watch *dns;              /* whose names are shown; NULL: none yet */
    struct kube_source *cluster;        /* whose objects are shown; NULL: none, or none yet */
    struct kube_leader *leader;         /* whose lease is shown; NULL: none, or none yet */
    const struct scraper *scraper;      /* whose numbers are shown; NULL: none yet */
    struct admin_process process;
    bool has_process;
    struct admin_state state;
    struct admin_routes routes;
    struct admin_listener listener;
};

/* Makes all of it, in memory that is zeroed but for the service, and listens where --metrics says.
 * Returns: why it can't. Owns: pick_admin_free, also after a failure. */
enum status pick_admin_open(struct pick_admin *self, const struct pick_settings *settings,
                            struct pool_set *pools, struct worker *main, struct error *err)
    __attribute__((warn_unused_result));
/* One more server whose connections are written down when somebody wants to know what they do. */
void pick_admin_add_server(struct pick_admin *self, const char *name, struct net_server *server);
/* A pool is another now, or there are others. */
void pick_admin_refresh_pools(struct pick_admin *self);
/* What everything is doing, into the log. */
void pick_admin_log_state(struct pick_admin *self);
/* After the server, if there is one, has stopped. */
void pick_admin_free(struct pick_admin *self);

/* ---- pages.c ---------------------------------------------------------------------------- */

/* /metrics; `context` is the struct pick_admin. */
void pick_metrics_print(void *context, struct metric_text *text);
/* The pools and their endpoints, for /debug/state; `context` too. */
void pick_state_print(void *context, struct buf *out);

/* ---- upstream_metrics.c, status.c ---------------------------------------------------------- */

/* The families that the upstream project's picker has, by its names, and ours of pick times. */
void pick_upstream_metrics_print(const struct pick_admin *admin,
                                 const struct pick_admin_pools *list, struct metric_text *text);
/* flow_control_pages.c: the families of requests that wait for room, and a pool's lines of
 * /debug/state. */
void pick_flow_control_metrics(const struct pick_admin_pools *list, struct metric_text *text);
void pick_flow_control_state(const struct pick_admin_pool *pool, struct buf *out);
/* What workers' ledgers say of the times of picks, added up. */
void pick_times_read(const struct pick_admin *admin, struct metric_distribution out[N_PICK_TIMES]);
/* "ready", "refused", "unchecked" or "not_ready" */
const char *pick_state_name(const struct endpoint *endpoint);
/* /status.json: the numbers behind the status page. */
void pick_status_print(struct pick_admin *admin, struct buf *out);

/* ---- dns_pages.c ---------------------------------------------------------------------------- */

/* Endpoints that are names, on both pages; `dns` may be NULL. */
void pick_dns_metrics(struct dns_watch *dns, struct metric_text *text);
void pick_dns_state(struct dns_watch *dns, struct buf *out);

/* ---- kube_pages.c ---------------------------------------------------------------------------- */

/* What is known of a cluster, if there is one, on all three pages. */
void pick_kube_metrics(const struct pick_admin *admin, struct metric_text *text);
void pick_kube_state(const struct pick_admin *admin, struct buf *out);
void pick_kube_status(const struct pick_admin *admin, struct json_writer *json);

#endif
