/* Units are sorted by their hashes: those that begin alike are neighbours, and what two units share
 * is the least of what the neighbours between them share. So the endpoints that have most of a unit
 * are found without comparing it with all others. */
#include "pick/pool/prefix/burst_assign.h"

#include <stdlib.h>
#include <string.h>

/* Requests with one prompt. */
struct unit {
    uint32_t first, n_members; /* in work->members */
    uint32_t n_blocks;
    const uint64_t *hashes;
    uint32_t first_target, n_targets; /* in work->targets; 0 targets: not placed */
};

struct replica {
    uint64_t load;
    float n_running;
    uint32_t place;             /* in work->heap */
    uint32_t n_of_unit, unit;   /* requests of this unit (plus one) that it has */
    uint32_t match, match_unit; /* blocks of this unit (plus one) that it has */
    uint32_t side;              /* the last search that met it */
    bool has_units;
};

struct work {
    struct burst_entry *entries;
    const struct burst_rules *rules;
    uint32_t *members;  /* indexes of entries, by prompt */
    struct unit *units; /* sorted by their hashes */
    uint32_t *shared;   /* blocks that units[i] and units[i + 1] share */
    uint32_t *order;    /* units, as they are placed */
    uint32_t *targets;  /* replicas of placed units */
    struct replica *replicas;
    uint32_t *heap, *aside; /* replicas: the least loaded first; those that have enough of a unit */
    uint32_t *matched;      /* replicas that have a part of the unit */
    uint32_t n_units, n_order, n_targets, n_heap, n_aside, n_matched, n_holding, n_sides;
    uint32_t n_replicas;
    bool is_overfull; /* all replicas have enough of the unit: the limit does not hold for the
                         rest */
};

/* ---- units ----------------------------------------------------------------------------------- */

/* The number of blocks that two prompts share: where one is equal, those before it are. */
static uint32_t count_shared(const uint64_t *a, uint32_t n_a, const uint64_t *b, uint32_t n_b) {
    uint32_t low = 0, high = n_a < n_b ? n_a : n_b;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (a[middle] == b[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int compare_hashes(const struct burst_entry *a, const struct burst_entry *b) {
    uint32_t i = count_shared(a->hashes, a->n_blocks, b->hashes, b->n_blocks);
    if (i < a->n_blocks && i < b->n_blocks) {
        return a->hashes[i] < b->hashes[i] ? -1 : 1;
    }
    return a->n_blocks < b->n_blocks ? -1 : a->n_blocks > b->n_blocks;
}

/* qsort has no context. */
struct sorted {
    const struct burst_entry *entry;
    uint32_t index;
};

static int compare_sorted(const void *a, const void *b) {
    const struct sorted *left = a, *right = b;
    int order = compare_hashes(left->entry, right->entry);
    return order != 0 ? order : left->index < right->index ? -1 : left->index > right->index;
}

/* Units in the order of their hashes. */
static void make_units(struct work *work, const struct sorted *sorted, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct unit *unit = work->n_units > 0 ? &work->units[work->n_units - 1] : NULL;
        const struct burst_entry *entry = sorted[i].entry;
        if (!unit || compare_hashes(&work->entries[work->members[unit->first]], entry) != 0) {
            unit = &work->units[work->n_units];
            *unit = (struct unit){.first = i, .n_blocks = entry->n_blocks, .hashes = entry->hashes};
            work->n_units++;
        }
        work->members[i] = sorted[i].index;
        unit->n_members++;
    }
    for (uint32_t i = 0; i + 1 < work->n_units; i++) {
        const struct unit *a = &work->units[i], *b = &work->units[i + 1];
        work->shared[i] = count_shared(a->hashes, a->n_blocks, b->hashes, b->n_blocks);
    }
}

/* A single request that shares enough with another one: then it does with a neighbour. */
static bool is_sharing(const struct work *work, uint32_t i) {
    uint32_t min = work->rules->min_blocks;
    return min > 0 && ((i > 0 && work->shared[i - 1] >= min) ||
                       (i + 1 < work->n_units && work->shared[i] >= min));
}

struct placed_order {
    uint32_t unit, is_single, n_blocks, first; /* `first`: index of the first request */
};

static int compare_order(const void *a, const void *b) {
    const struct placed_order *left = a, *right = b;
    if (left->is_single != right->is_single) {
        return left->is_single ? 1 : -1;
    }
    if (left->n_blocks != right->n_blocks) {
        return left->n_blocks > right->n_blocks ? -1 : 1;
    }
    return left->first < right->first ? -1 : left->first > right->first;
}

static void order_units(struct work *work, struct placed_order *order) {
    for (uint32_t i = 0; i < work->n_units; i++) {
        const struct unit *unit = &work->units[i];
        if (unit->n_members > 1 || is_sharing(work, i)) {
            order[work->n_order++] = (struct placed_order){i, unit->n_members == 1, unit->n_blocks,
                                                           work->members[unit->first]};
        }
    }
    qsort(order, work->n_order, sizeof(*order), compare_order);
    for (uint32_t i = 0; i < work->n_order; i++) {
        work->order[i] = order[i].unit;
    }
}

/* ---- the least loaded endpoint --------------------------------------------------------------- */

static bool is_less(const struct work *work, uint32_t a, uint32_t b) {
    const struct replica *left = &work->replicas[a], *right = &work->replicas[b];
    if (left->load != right->load) {
        return left->load < right->load;
    }
    if (left->n_running < right->n_running || left->n_running > right->n_running) {
        return left->n_running < right->n_running;
    }
    return a < b;
}

static void set_place(struct work *work, uint32_t place, uint32_t replica) {
    work->heap[place] = replica;
    work->replicas[replica].place = place;
}

static void sift_down(struct work *work, uint32_t place) {
    uint32_t replica = work->heap[place];
    for (;;) {
        uint32_t child = place * 2 + 1;
        if (child >= work->n_heap) {
            break;
        }
        if (child + 1 < work->n_heap && is_less(work, work->heap[child + 1], work->heap[child])) {
            child++;
        }
        if (!is_less(work, work->heap[child], replica)) {
            break;
        }
        set_place(work, place, work->heap[child]);
        place = child;
    }
    set_place(work, place, replica);
}

static void push(struct work *work, uint32_t replica) {
    uint32_t place = work->n_heap++;
    while (place > 0 && is_less(work, replica, work->heap[(place - 1) / 2])) {
        set_place(work, place, work->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    set_place(work, place, replica);
}

static void pop(struct work *work) {
    uint32_t last = work->heap[--work->n_heap];
    if (work->n_heap > 0) {
        set_place(work, 0, last);
        sift_down(work, 0);
    }
}

static void restore_aside(struct work *work) {
    while (work->n_aside > 0) {
        push(work, work->aside[--work->n_aside]);
    }
}

/* ---- placing --------------------------------------------------------------------------------- */

static uint32_t count_of_unit(const struct work *work, uint32_t replica, uint32_t unit) {
    const struct replica *own = &work->replicas[replica];
    return own->unit == unit + 1 ? own->n_of_unit : 0;
}

static uint32_t match_of(const struct work *work, uint32_t replica, uint32_t unit) {
    const struct replica *own = &work->replicas[replica];
    return own->match_unit == unit + 1 ? own->match : 0;
}

/* The replicas of a neighbour have so many blocks of the unit. Returns: replicas that this side of
 * the search had not met before. */
static uint32_t note_match(struct work *work, uint32_t unit, const struct unit *neighbour,
                           uint32_t n_shared) {
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < neighbour->n_targets; i++) {
        uint32_t target = work->targets[neighbour->first_target + i];
        struct replica *replica = &work->replicas[target];
        n_new += replica->side != work->n_sides;
        replica->side = work->n_sides;
        if (replica->match_unit != unit + 1) {
            replica->match_unit = unit + 1;
            replica->match = 0;
            work->matched[work->n_matched++] = target;
        }
        replica->match = n_shared > replica->match ? n_shared : replica->match;
    }
    return n_new;
}

/* To one side what is shared becomes less: a replica has most where it is met first. */
static void find_matches(struct work *work, uint32_t unit) {
    uint32_t min =
        work->rules->min_blocks > 0 && !work->rules->by_tokens ? work->rules->min_blocks : 1;
    work->n_matched = 0;
    for (int side = 0; side < 2; side++) {
        uint32_t n_shared = work->units[unit].n_blocks, n_met = 0;
        work->n_sides++;
        for (uint32_t i = unit; n_met < work->n_holding;) {
            if (side == 0 ? i == 0 : i + 1 >= work->n_units) {
                break;
            }
            uint32_t between = side == 0 ? work->shared[i - 1] : work->shared[i];
            i = side == 0 ? i - 1 : i + 1;
            n_shared = between < n_shared ? between : n_shared;
            if (n_shared < min) {
                break;
            }
            n_met += note_match(work, unit, &work->units[i], n_shared);
        }
    }
}

/* The endpoint that has most of the unit's beginning, below its share. Returns: BURST_NOWHERE. */
static uint32_t find_preferred(const struct work *work, uint32_t unit, uint64_t share) {
    uint32_t best = BURST_NOWHERE;
    for (uint32_t k = 0; k < work->n_matched; k++) {
        uint32_t i = work->matched[k], match = match_of(work, i, unit);
        if (work->replicas[i].load >= share || match < work->rules->min_blocks) {
            continue;
        }
        uint32_t most = best == BURST_NOWHERE ? 0 : match_of(work, best, unit);
        if (best == BURST_NOWHERE || match > most || (match == most && is_less(work, i, best))) {
            best = i;
        }
    }
    return best;
}

/* The least loaded one that has room for more of the unit, or else the least loaded one. */
static uint32_t find_least_loaded(struct work *work, uint32_t unit) {
    uint32_t limit = work->rules->max_per_replica;
    while (limit > 0 && !work->is_overfull && work->n_heap > 0 &&
           count_of_unit(work, work->heap[0], unit) >= limit) {
        work->aside[work->n_aside++] = work->heap[0];
        pop(work);
    }
    if (work->n_heap == 0) {
        work->is_overfull = true;
        restore_aside(work);
    }
    return work->heap[0];
}

/* So many requests of the unit are placed there. */
static void place(struct work *work, uint32_t unit, uint32_t target, uint32_t n) {
    struct replica *replica = &work->replicas[target];
    struct unit *own = &work->units[unit];
    bool is_first = count_of_unit(work, target, unit) == 0;
    replica->n_of_unit = is_first ? n : replica->n_of_unit + n;
    replica->unit = unit + 1;
    if (!work->rules->by_tokens) {
        replica->load += n;
    } else if (is_first) {
        uint32_t match = match_of(work, target, unit);
        replica->load += own->n_blocks > match ? own->n_blocks - match : 0;
    }
    if (is_first) {
        work->targets[own->first_target + own->n_targets++] = target;
        work->n_targets++;
        work->n_holding += !replica->has_units;
        replica->has_units = true;
    }
    bool in_heap = replica->place < work->n_heap && work->heap[replica->place] == target;
    if (in_heap) { /* the load has become more */
        sift_down(work, replica->place);
    }
}

static void place_unit(struct work *work, uint32_t unit, uint64_t share) {
    struct unit *own = &work->units[unit];
    uint32_t limit = work->rules->max_per_replica;
    bool prefers = work->rules->min_blocks > 0;
    own->first_target = work->n_targets;
    work->n_matched = 0;
    work->is_overfull = false;
    if (prefers || work->rules->by_tokens) {
        find_matches(work, unit);
    }
    for (uint32_t i = 0; i < own->n_members;) {
        uint32_t target = prefers ? find_preferred(work, unit, share) : BURST_NOWHERE;
        target = target == BURST_NOWHERE ? find_least_loaded(work, unit) : target;
        uint32_t n = own->n_members - i;
        if (limit > 0) {
            uint32_t n_there = count_of_unit(work, target, unit);
            uint32_t left = n_there < limit ? limit - n_there : 1;
            n = n < left ? n : left;
        }
        for (uint32_t k = 0; k < n; k++) {
            work->entries[work->members[own->first + i + k]].target = target;
        }
        place(work, unit, target, n);
        i += n;
        prefers = false;
    }
    restore_aside(work);
}

/* ---- all ------------------------------------------------------------------------------------- */

static uint64_t fair_share(const struct work *work) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < work->n_order; i++) {
        const struct unit *unit = &work->units[work->order[i]];
        total += work->rules->by_tokens ? unit->n_blocks : unit->n_members;
    }
    return (total + work->n_replicas - 1) / work->n_replicas;
}

/* A part of the block of memory. */
static void *cut(char **at, size_t n, size_t size) {
    void *out = *at;
    *at += (n * size + 15) / 16 * 16;
    return out;
}

static void run(struct work *work, uint32_t n, const float *n_running, char *memory) {
    struct sorted *sorted = cut(&memory, n, sizeof(*sorted));
    struct placed_order *order = cut(&memory, n, sizeof(*order));
    uint32_t n_sorted = 0;
    work->units = cut(&memory, n, sizeof(*work->units));
    work->replicas = cut(&memory, work->n_replicas, sizeof(*work->replicas));
    work->members = cut(&memory, n, sizeof(uint32_t));
    work->shared = cut(&memory, n, sizeof(uint32_t));
    work->order = cut(&memory, n, sizeof(uint32_t));
    work->targets = cut(&memory, n, sizeof(uint32_t));
    work->heap = cut(&memory, work->n_replicas, sizeof(uint32_t));
    work->aside = cut(&memory, work->n_replicas, sizeof(uint32_t));
    work->matched = cut(&memory, work->n_replicas, sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        if (work->entries[i].is_present && work->entries[i].n_blocks > 0) {
            sorted[n_sorted++] = (struct sorted){&work->entries[i], i};
        }
    }
    qsort(sorted, n_sorted, sizeof(*sorted), compare_sorted);
    make_units(work, sorted, n_sorted);
    order_units(work, order);
    for (uint32_t i = 0; i < work->n_replicas; i++) {
        work->replicas[i].n_running = n_running[i];
        push(work, i);
    }
    uint64_t share = fair_share(work);
    for (uint32_t i = 0; i < work->n_order; i++) {
        place_unit(work, work->order[i], share);
    }
}

void burst_assign(struct burst_entry *entries, uint32_t n, const float *n_running,
                  uint32_t n_replicas, const struct burst_rules *rules) {
    struct work work = {.entries = entries, .rules = rules, .n_replicas = n_replicas};
    size_t of_entry = sizeof(struct sorted) + sizeof(struct placed_order) + sizeof(struct unit) +
                      4 * sizeof(uint32_t);
    size_t of_replica = sizeof(struct replica) + 3 * sizeof(uint32_t);
    enum { ROUNDING = 11 * 16 };
    for (uint32_t i = 0; i < n; i++) {
        entries[i].target = BURST_NOWHERE;
    }
    char *memory = n > 0 && n_replicas > 0
                       ? calloc(1, n * of_entry + n_replicas * of_replica + ROUNDING)
                       : NULL;
    if (memory) {
        run(&work, n, n_running, memory);
    }
    free(memory);
}
