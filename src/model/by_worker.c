/* The end of what workers have for themselves. */
#include "model/by_worker.h"

#include <stdlib.h>

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
