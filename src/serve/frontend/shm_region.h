/* A region of shared memory. For shared*.c only. */
#ifndef SLUICE_SERVE_FRONTEND_SHM_REGION_H
#define SLUICE_SERVE_FRONTEND_SHM_REGION_H

#include <stdatomic.h>

#include "serve/frontend/shm_registry.h"

struct shm_region {
    struct v2_shared_memory_region spec; /* as it was registered */
    char *text;                          /* of name and key */
    int fd;
    atomic_size_t refs; /* of the list, and of each request that uses it */
    struct shm_region *next;
};

/* Returns: NULL where there is none; otherwise with a reference. */
struct shm_region *shm_region_find(struct shm_registry *registry, struct str name);
struct net_budget *shm_registry_budget(const struct shm_registry *registry);
/* NULL is allowed. */
void shm_region_unref(struct shm_region *region);

#endif
