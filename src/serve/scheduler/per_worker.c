/* Allocation of per-worker data. */
#include "serve/scheduler/per_worker.h"

#include <stdlib.h>

void per_worker_table_fini(struct per_worker_table *table) {
    for (size_t i = 0; i < PER_WORKER_SLOTS; i++) {
        struct per_worker *entry = per_worker_first(table, i);
        while (entry) {
            struct per_worker *next = entry->next;
            free(entry);
            entry = next;
        }
        atomic_store(&table->slots[i], NULL);
    }
}
