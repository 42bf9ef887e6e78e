/* A region of shared memory. For shared*.c only. */
#ifndef SLUICE_SERVE_FRONTEND_SHARED_REGION_H
#define SLUICE_SERVE_FRONTEND_SHARED_REGION_H

#include <stdatomic.h>

#include "serve/frontend/shared.h"

struct shared_region {
    struct v2_memory_region what; /* as it was registered */
    char *text;                   /* of name and key */
    int fd;
    atomic_size_t refs; /* of the list, and of each request that uses it */
    struct shared_region *next;
};

/* Returns: NULL where there is none; otherwise with a reference. */
struct shared_region *shared_region_find(struct shared *shared, struct str name);
struct net_budget *shared_budget(const struct shared *shared);
/* NULL is allowed. */
void shared_region_unref(struct shared_region *region);

#endif
