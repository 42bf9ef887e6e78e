/* Future events by time; events of the same time in the order in which they were added. */
#ifndef SLUICE_BENCH_SIMULATE_EVENTS_H
#define SLUICE_BENCH_SIMULATE_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_event_kind { SIM_ARRIVAL, SIM_FIRST_TOKEN, SIM_END, SIM_SCRAPE, SIM_GIVE_UP };

struct sim_event {
    uint64_t at_ns;
    uint64_t order;
    enum sim_event_kind kind;
    uint32_t index; /* of the request; of the server for a scrape */
};

/* Of `n` rows of `row_bytes`, each of which begins with its name: the one with this name. Returns:
 * NULL when there is none. */
const void *sim_find(const void *rows, size_t n, size_t row_bytes, const char *name);

/* Out of memory: prints it and ends the program. */
_Noreturn void sim_no_memory(void);

/* Zeroed memory is empty. */
struct sim_events {
    struct sim_event *heap; /* a binary heap, 1-based positions less one: the children of i are 2i +
                               1 and 2i + 2 */
    size_t n, cap;
    uint64_t n_added;
};

void sim_events_fini(struct sim_events *events);
/* Ends the program when out of memory. */
void sim_events_add(struct sim_events *events, uint64_t at_ns, enum sim_event_kind kind,
                    uint32_t index);
/* Returns: false when there is none. */
bool sim_events_next(struct sim_events *events, struct sim_event *out);

#endif
