/* Memory that clients share with the server (POSIX shared memory): which regions there are, and the
 * way from them into requests and from answers into them.
 *
 * Nothing is mapped. An input is copied out with pread before anything looks at it, and an output
 * is copied in with pwrite: the client may change the bytes, or cut the object short, whenever it
 * likes, and a request finds what it read once, or an error. An object stays open while a request
 * uses its region, also when that was unregistered meanwhile. No message repeats a name, a key, or
 * what the system said about it.
 *
 * Thread: any, for everything but new and free. */
#ifndef SLUICE_SERVE_FRONTEND_SHM_REGISTRY_H
#define SLUICE_SERVE_FRONTEND_SHM_REGISTRY_H

#include <stdbool.h>

#include "codec/kserve/shared_memory.h"
#include "core/tensor/infer.h"
#include "net/transport/budget.h"

struct shm_registry_options {
    bool allowed;                /* false: no region can be registered */
    const char *const *prefixes; /* keys begin with one of these, a leading '/' aside; none: with */
    size_t n_prefixes;           /* anything */
    struct net_budget *budget;   /* inputs count as bodies that came over a connection do */
};

struct shm_registry;

/* `options` and what it points to stay until shm_registry_free. Returns: NULL when out of
 * memory. */
struct shm_registry *shm_registry_new(const struct shm_registry_options *options);
/* After the last request. NULL is allowed. */
void shm_registry_free(struct shm_registry *registry);

/* Returns: ST_UNSUPPORTED where it is not allowed; ST_BAD_FIELD for a name, a key or a size that
 * can't be, ST_ALREADY_EXISTS, ST_IO for an object that can't be opened, ST_BAD_SHAPE for a region
 * that is not within its object, ST_OVERLOADED for too many.
 * Clause: reference, shared memory, 4: register, unregister, status. */
enum status shm_register_region(struct shm_registry *registry,
                                const struct v2_shared_memory_region *spec, struct error *err)
    __attribute__((warn_unused_result));
/* `name` empty: all. One that is not there is no error. Returns: ST_UNSUPPORTED. */
enum status shm_unregister_region(struct shm_registry *registry, struct str name, struct error *err)
    __attribute__((warn_unused_result));
/* Calls `visit` for the region, or (`name` empty) for each, in the order they came, with a lock
 * held. Returns: ST_NOT_FOUND. */
enum status shm_visit_regions(struct shm_registry *registry, struct str name,
                              void (*visit)(void *user,
                                            const struct v2_shared_memory_region *region),
                              void *user, struct error *err) __attribute__((warn_unused_result));

/* What a request has of it while it runs. Starts as zeros. */
struct shm_request {
    struct shm_region **regions; /* one per wanted output; NULL: it is in none */
    size_t n;
    struct net_budget *budget; /* of which it has `n_bytes` */
    uint64_t n_bytes;
};

/* Copies the inputs that are in regions into the request's arena, and holds the regions of its
 * outputs. Between decoding and infer_check. Returns: ST_NOT_FOUND, ST_BAD_SHAPE for what is not
 * within its region or no longer within the object, ST_NO_MEMORY, ST_OVERLOADED when bodies have no
 * more memory; no region is held then. */
enum status shm_request_read_inputs(struct shm_registry *registry, struct infer_request *request,
                                    struct shm_request *use, struct error *err)
    __attribute__((warn_unused_result));
/* Copies the outputs that belong in regions there, which then have no bytes in the answer, and lets
 * go of the regions. Where an output does not fit or can't be written the answer becomes that error
 * (ST_BAD_OUTPUT). With an answer that is an error it only lets go. Idempotent. */
void shm_request_finish_outputs(struct shm_request *use, const struct infer_request *request,
                                struct infer_response *response);
/* The memory of the inputs goes now. Once for each request that may have begun. */
void shm_request_fini(struct shm_request *use);

#endif
