/* A pool of a Kubernetes cluster: a watch of each kind of object (watch.h), all of which fill one
 * store (store.h), and a notification when the pool changes. Kinds that the cluster does not serve
 * are left out. Of the two groups of InferencePool one is enough; kinds that we may not read, other
 * than pods, count as not served until access is granted.
 *
 * Notifications are limited so that handling them takes at most a tenth of the thread's time. There
 * is none before each kind has been listed once.
 *
 * Thread: the worker's, once it is set, for everything but kube_source_report. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_SOURCE_H
#define SLUICE_PICK_DISCOVERY_KUBE_SOURCE_H

#include "core/event/worker.h"
#include "pick/discovery/kube/credentials/config.h"
#include "pick/discovery/kube/store.h"
#include "pick/discovery/kube/watch.h"

enum { KUBE_MAX_PORTS = 8 };

struct kube_source;

/* Settings of the picker (program/picker/settings.def), and callbacks. */
struct kube_source_options {
    struct kube_config_options config;
    const char *pool_namespace; /* NULL: the configuration's, or else "default" */
    const char *pool_name;      /* of the InferencePool */
    const char *pool_group;     /* its group; NULL: the newer one that is served */
    /* Instead of an InferencePool: the pods that match a label selector, at these ports
     * ("8000,8001"). `pool_name`, which may be NULL then, is the name that other objects refer to.
     */
    const char *pod_selector, *pod_ports;
    /* The store has changed, and each kind has been listed; never within a call of this header. */
    void (*on_store_changed)(void *user);
    /* The state of a watch has changed; NULL: not needed. Called by a watch: nothing may be stopped
     * within it. */
    void (*on_watch_status)(void *user);
    void *user;
};

struct kube_ports {
    uint16_t items[KUBE_MAX_PORTS];
    size_t n;
};

/* Reads "8000,8001". Returns: ST_BAD_CONFIG. */
enum status kube_ports_parse(const char *text, struct kube_ports *out,
                             struct error *err) SLUICE_MUST_USE;

/* Reads the configuration; the options' texts must live as long as the source. Returns: as
 * kube_config_load. Owns: *out until kube_source_free. */
enum status kube_source_new(const struct kube_source_options *options, struct kube_source **out,
                            struct error *err) SLUICE_MUST_USE;
/* To be called once, before the worker runs or on it. Returns: ST_NO_MEMORY. */
enum status kube_source_set_worker(struct kube_source *source, struct worker *worker,
                                   struct error *err) SLUICE_MUST_USE;
/* Starts the watches. Returns: ST_NO_MEMORY; watches that were started keep running. */
enum status kube_source_start(struct kube_source *source, struct error *err) SLUICE_MUST_USE;
/* Stops the watches; no notification follows. Calls `done` when nothing is left on the loop,
 * perhaps within the call. */
void kube_source_stop(struct kube_source *source, void (*done)(void *user), void *user);
/* After `done`, or if it was not started. NULL is allowed. */
void kube_source_free(struct kube_source *source);

/* The client, once the worker is set; valid while the source runs. */
struct kube_client *kube_source_client(const struct kube_source *source);
/* Valid as long as the source. */
const struct kube_store *kube_source_store(const struct kube_source *source);

/* ---- reports --------------------------------------------------------------------------------- */

struct kube_source_kind {
    bool watched; /* false for InferencePools of another group than the configured one */
    struct kube_watch_status state;
    struct kube_kind_counts counts;
};

struct kube_source_report {
    const char *server, *name_space; /* these texts are valid as long as the source */
    const char *pool;                /* its name; "" for --kube-pods without a name */
    const char *pods;                /* the label selector; NULL: that of an InferencePool */
    const char *group;               /* of the InferencePool in use; NULL: none */
    bool synced;                     /* stays true */
    uint64_t n_changes;              /* notifications */
    struct kube_source_kind kinds[N_KUBE_KINDS];
};

/* The current state; counts of objects are those of the last notification. Thread: any. */
void kube_source_report(struct kube_source *source, struct kube_source_report *out);
/* Returns: when the pool was last known to be up to date, that is the oldest kind's heard_ns
 * (clock_now_ns); 0: not every kind is known. */
uint64_t kube_source_fresh_ns(const struct kube_source_report *report);

#endif
