/* One after the other, in the order of their addresses, whatever their sums. */
#include "pool/plugin.h"

struct turn {
    _Atomic uint32_t next; /* the member that is next, if it is a candidate */
};

static enum status read(const struct doc_node *node, struct arena *arena, void **parameters,
                        struct error *err) {
    static const char *const none[] = {NULL};
    struct turn *turn = arena_calloc(arena, 1, sizeof(*turn));
    *parameters = turn;
    if (!turn) {
        return error_set(err, ST_NO_MEMORY, "no memory for a picker");
    }
    return doc_present(node) ? doc_only(node, none, err) : ST_OK;
}

/* How far behind `next` the member is, going round. */
static uint32_t distance(const struct choice *choice, uint32_t next, uint32_t i) {
    return choice->candidates[i].member - next; /* below 0 is far away, as it should be */
}

static void pick(void *parameters, struct choice *choice, uint32_t most) {
    struct turn *turn = parameters;
    uint32_t next = atomic_load_explicit(&turn->next, memory_order_relaxed);
    for (uint32_t i = 0; i < most; i++) {
        uint32_t nearest = i;
        for (uint32_t k = i + 1; k < choice->n; k++) {
            if (distance(choice, next, k) < distance(choice, next, nearest)) {
                nearest = k;
            }
        }
        choice_swap(choice, i, nearest);
    }
    atomic_store_explicit(&turn->next, choice->candidates[0].member + 1, memory_order_relaxed);
}

const struct plugin plugin_round_robin_picker = {
    .type = "round-robin-picker", .kind = PLUGIN_PICKER, .read = read, .pick = pick};
