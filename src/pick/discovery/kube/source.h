/* A pool that a cluster's API server knows: a watch of each kind of object that the pool is made of
 * (watch.h), all of them into one store (store.h), and the word that the pool is another
 * now. Which kinds the cluster serves is found out. Of the two groups of InferencePool one is
 * enough; kinds that we may not read are as good as not served until we may, but for pods.
 *
 * However many events come, the word comes at most so often that what is done with it takes a tenth
 * of the thread's time. Before every kind was told once there is no word, and nothing is known.
 *
 * Thread: the worker's, once there is one, for everything but kube_source_report. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_SOURCE_H
#define SLUICE_PICK_DISCOVERY_KUBE_SOURCE_H

#include "core/event/worker.h"
#include "pick/discovery/kube/credentials/config.h"
#include "pick/discovery/kube/store.h"
#include "pick/discovery/kube/watch.h"

enum { KUBE_MAX_PORTS = 8 };

struct kube_source;

struct kube_source_options {
    struct kube_config_options config;
    const char *name_space; /* NULL: the configuration's, else "default" */
    const char *pool;       /* the InferencePool's name */
    const char *group;      /* and its group; NULL: it is found out, the newer one first */
    /* In place of an InferencePool: the pods that a label selector of the API takes, at these ports
     * ("8000,8001"). `pool`, which may be NULL then, is the name that others refer to. */
    const char *pods, *ports;
    /* What the store says is another now, from the time on at which it is all known; never from
     * within a call. */
    void (*on_store_changed)(void *user);
    /* How a watch is doing is another now; NULL: nobody asks. From within a watch: nothing of it
     * may be stopped there. */
    void (*on_watch_status)(void *user);
    void *user;
};

struct kube_ports {
    uint16_t items[KUBE_MAX_PORTS];
    size_t n;
};

/* "8000,8001". Returns: ST_BAD_CONFIG. */
enum status kube_ports_parse(const char *text, struct kube_ports *out, struct error *err)
    __attribute__((warn_unused_result));

/* Reads the configuration; the texts must stay. Returns: as kube_config_load. Owns: *out until
 * kube_source_free. */
enum status kube_source_new(const struct kube_source_options *options, struct kube_source **out,
                            struct error *err) __attribute__((warn_unused_result));
/* Before the worker runs, or on it. Once. Returns: ST_NO_MEMORY. */
enum status kube_source_set_worker(struct kube_source *source, struct worker *worker,
                                   struct error *err) __attribute__((warn_unused_result));
/* Begins to ask. Returns: ST_NO_MEMORY; what was begun by then goes on. */
enum status kube_source_start(struct kube_source *source, struct error *err)
    __attribute__((warn_unused_result));
/* Nothing is told any more; `done` when nothing is left on the loop, perhaps from within. */
void kube_source_stop(struct kube_source *source, void (*done)(void *user), void *user);
/* After `done`, or of one that never started. NULL is allowed. */
void kube_source_free(struct kube_source *source);

/* Whose it is, once there is a worker; as long as the source runs. */
struct kube_client *kube_source_client(const struct kube_source *source);
/* As long as the source. */
const struct kube_store *kube_source_store(const struct kube_source *source);
/* Every kind was told once: the store is all that the cluster knows of the pool. */
bool kube_source_is_synced(const struct kube_source *source);

/* ---- a look from outside --------------------------------------------------------------------- */

struct kube_source_kind {
    bool watched; /* it is asked for; not so are pools of another group than the one that is said */
    struct kube_watch_status state;
    struct kube_kind_counts counts;
};

struct kube_source_report {
    const char *server, *name_space; /* as long as the source, as are these: */
    const char *pool;                /* the name; "" where pods have none */
    const char *pods;                /* their selector; NULL: an InferencePool has it */
    const char *group;               /* of the InferencePool that is used; NULL: there is none */
    bool synced;                     /* once is always */
    uint64_t n_changes;              /* how often the pool was another */
    struct kube_source_kind kinds[N_KUBE_KINDS];
};

/* As it is now; counts of objects are as old as the last word. Thread: any. */
void kube_source_report(struct kube_source *source, struct kube_source_report *out);
/* When what is known of the pool was last known to be up to date: of the kind that was heard of the
 * longest ago (clock_now_ns); 0: not everything is known. */
uint64_t kube_source_fresh_ns(const struct kube_source_report *report);

#endif
