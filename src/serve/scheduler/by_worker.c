/* The beginning and the end of what workers have for themselves. */
#include "serve/scheduler/by_worker.h"

#include <stdlib.h>

struct by_worker *by_worker_get(struct by_workers *all, const struct worker *worker,
                                size_t n_bytes) {
    struct by_worker *one = by_worker_find(all, worker);
    if (!one) {
        one = calloc(1, n_bytes);
        if (one) {
            by_worker_add(all, worker, one);
        }
    }
    return one;
}

void by_worker_free_all(struct by_workers *all) {
    for (size_t i = 0; i < BY_WORKER_SLOTS; i++) {
        struct by_worker *one = by_worker_first(all, i);
        while (one) {
            struct by_worker *next = one->next;
            free(one);
            one = next;
        }
        atomic_store(&all->slots[i], NULL);
    }
}
