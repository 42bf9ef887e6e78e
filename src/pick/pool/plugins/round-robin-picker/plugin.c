/* One after the other, in the order of their addresses, whatever their sums. */
#include "pick/pool/profile/plugin.h"

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

/* A member below `next` is far away, as it should be, since its difference is below 0. */
static uint32_t pick(void *parameters, const struct choice *choice, uint32_t nth) {
    struct turn *turn = parameters;
    const uint32_t *member = choice->columns->member;
    uint32_t next = atomic_load_explicit(&turn->next, memory_order_relaxed), nearest = 0;
    for (uint32_t i = 1; i < choice->n; i++) {
        if (member[i] - next < member[nearest] - next) {
            nearest = i;
        }
    }
    if (nth == 0) { /* it has its turn; who only stands behind it has not */
        atomic_store_explicit(&turn->next, member[nearest] + 1, memory_order_relaxed);
    }
    return nearest;
}

const struct plugin plugin_round_robin_picker = {
    .type = "round-robin-picker", .kind = PLUGIN_PICKER, .read = read, .pick = pick};
