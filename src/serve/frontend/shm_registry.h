/* System shared memory (POSIX): the regions that clients register, and the copies from them into
 * requests and from responses into them.
 *
 * Nothing is mapped. Inputs are copied with pread before they are checked, and outputs with pwrite,
 * because a client may change the bytes or truncate the object at any time; a request sees one
 * copy, or an error. The object stays open while a request uses its region, also when the region is
 * unregistered meanwhile. Error texts contain no name, no key and no errno text.
 *
 * Thread: any, except new and free. */
#ifndef SLUICE_SERVE_FRONTEND_SHM_REGISTRY_H
#define SLUICE_SERVE_FRONTEND_SHM_REGISTRY_H

#include <stdbool.h>

#include "codec/kserve/shared_memory.h"
#include "core/tensor/infer.h"
#include "net/transport/budget.h"

struct shm_registry_options {
    /* --allow-client-shm; false: shm_register_region refuses. */
    bool allow_client_shm;
    /* --client-shm-prefix: a key must begin with one of these, leading '/' ignored; enforced by
     * shm_register_region. */
    const char *const *client_shm_prefixes;
    size_t n_client_shm_prefixes; /* 0: any key */
    struct net_budget *budget;    /* inputs count as request bodies do */
};

struct shm_registry;

/* `options` must outlive the registry. Returns: NULL when out of memory. */
struct shm_registry *shm_registry_new(const struct shm_registry_options *options);
/* No request may be in flight. NULL is allowed. */
void shm_registry_free(struct shm_registry *registry);

/* Opens the object and registers the region. Returns: ST_UNSUPPORTED where shared memory is
 * disabled; ST_BAD_FIELD for an invalid name, key or size and for an object that cannot be opened
 * (ST_IO where only a limit of this process prevents it), ST_ALREADY_EXISTS, ST_BAD_SHAPE for a
 * region beyond the end of its object, ST_OVERLOADED for too many regions. Clause: reference,
 * shared memory, 4: register, unregister, status. */
enum status shm_register_region(struct shm_registry *registry,
                                const struct v2_shared_memory_region *spec,
                                struct error *err) SLUICE_MUST_USE;
/* `name` empty: all regions. An unknown region is no error. Returns: ST_UNSUPPORTED. */
enum status shm_unregister_region(struct shm_registry *registry, struct str name,
                                  struct error *err) SLUICE_MUST_USE;
/* Calls `visit` for the region (`name` empty: for each, in order of registration) with the lock
 * held. Returns: ST_NOT_FOUND. */
enum status shm_visit_regions(struct shm_registry *registry, struct str name,
                              void (*visit)(void *user,
                                            const struct v2_shared_memory_region *region),
                              void *user, struct error *err) SLUICE_MUST_USE;

/* The shared memory that a request uses. Starts zeroed. */
struct shm_request {
    struct shm_region **regions; /* one reference per wanted output; NULL: none */
    size_t n;
    struct net_budget *budget; /* `n_bytes` of it are reserved */
    uint64_t n_bytes;
};

/* Copies the inputs that are in regions into the request's arena, and references the regions of its
 * outputs. Call it after decoding, before infer_check. Returns: ST_NOT_FOUND, ST_BAD_SHAPE for a
 * range beyond its region or a truncated object, ST_NO_MEMORY, ST_OVERLOADED when the body budget
 * is full; no region is referenced then. */
enum status shm_request_read_inputs(struct shm_registry *registry, struct infer_request *request,
                                    struct shm_request *use, struct error *err) SLUICE_MUST_USE;
/* Copies the outputs that belong in regions there, so that they have no bytes in the response, and
 * drops the references. When an output does not fit (ST_BAD_SHAPE) or cannot be written
 * (ST_BAD_OUTPUT), the response becomes that error. With an error response it only drops the
 * references. Idempotent. */
void shm_request_finish_outputs(struct shm_request *use, const struct infer_request *request,
                                struct infer_response *response);
/* Releases the budget of the inputs. Call it once for each request. */
void shm_request_fini(struct shm_request *use);

#endif
