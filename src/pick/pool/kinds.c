/* A kind has one place in the table, by its hash. It loses the place to another kind when it was
 * not used for a second: clients that ask for a new model each time displace none in use.
 *
 * Trials are as those of avoided endpoints (pick/pool/window.c), by picks of the kind: after
 * TRIAL_NS and TRIAL_PICKS picks that went elsewhere, an avoided endpoint may get one request. */
#include "pick/pool/kinds.h"

#include "pick/pool/endpoint/endpoint.h"

#include "core/base/hash.h"
#include "core/event/clock.h"

static const uint64_t KEEP_NS = 1000000000, TRIAL_NS = 1000000000;
enum { TRIAL_PICKS = 32 };

uint64_t request_kind_of(uint64_t path_hash, struct str model) {
    if (path_hash == 0) {
        return 0;
    }
    uint64_t hash = hash_text(model, path_hash);
    return hash != 0 ? hash : 1;
}

static struct request_kind *find_kind(struct request_kinds *kinds, uint64_t kind) {
    struct request_kind *item = &kinds->items[kind % REQUEST_KINDS];
    return kind != 0 && item->kind == kind ? item : NULL;
}

static const struct request_kind *find_kind_const(const struct request_kinds *kinds,
                                                  uint64_t kind) {
    const struct request_kind *item = &kinds->items[kind % REQUEST_KINDS];
    return kind != 0 && item->kind == kind ? item : NULL;
}

static void clear_avoided(struct request_kinds *kinds, struct kind_state *state) {
    kinds->n_avoided -= state->avoided;
    state->avoided = false;
}

static void drop_kind(struct request_kinds *kinds, struct request_kind *item) {
    for (size_t i = 0; i < ENDPOINTS_OF_KIND; i++) {
        clear_avoided(kinds, &item->states[i]);
    }
    *item = (struct request_kind){.kind = 0};
}

struct outcome_share request_kinds_elsewhere(const struct request_kinds *kinds, uint64_t kind,
                                             const struct endpoint *endpoint,
                                             enum outcome_kind outcome, uint64_t now_ns,
                                             uint64_t age_ns) {
    const struct request_kind *item = find_kind_const(kinds, kind);
    return item ? outcome_records_elsewhere(item->records, ENDPOINTS_OF_KIND, endpoint, outcome,
                                            now_ns, age_ns)
                : (struct outcome_share){0, 0};
}

/* ---- recording ------------------------------------------------------------------------------- */

/* Returns: NULL: the kind has no place, and gets none. */
static struct request_kind *find_or_add_kind(struct request_kinds *kinds, uint64_t kind,
                                             enum outcome_kind outcome, uint64_t now_ns) {
    struct request_kind *item = &kinds->items[kind % REQUEST_KINDS];
    if (kind == 0 || item->kind == kind) {
        return kind == 0 ? NULL : item;
    }
    if (outcome == OUTCOME_KIND_ANSWERED ||
        (item->kind != 0 && clock_between_ns(item->used_ns, now_ns) < KEEP_NS)) {
        return NULL;
    }
    drop_kind(kinds, item);
    item->kind = kind;
    return item;
}

/* The endpoint's place, an unused one, or that of the oldest record of an endpoint that is not
 * avoided. Returns: ENDPOINTS_OF_KIND: all are avoided. */
static size_t find_place(const struct request_kind *item, const struct endpoint *endpoint) {
    size_t found = ENDPOINTS_OF_KIND;
    for (size_t i = 0; i < ENDPOINTS_OF_KIND; i++) {
        const struct outcome_record *record = &item->records[i];
        if (record->endpoint == endpoint) {
            return i;
        }
        if (!item->states[i].avoided &&
            (found == ENDPOINTS_OF_KIND || record->at_ns < item->records[found].at_ns)) {
            found = i; /* an unused record's time is 0 */
        }
    }
    return found;
}

uint32_t request_kinds_add(struct request_kinds *kinds, uint64_t kind,
                           const struct endpoint *endpoint, enum outcome_kind outcome, bool counts,
                           uint64_t now_ns, uint64_t age_ns) {
    struct request_kind *item = find_or_add_kind(kinds, kind, outcome, now_ns);
    size_t i = item ? find_place(item, endpoint) : ENDPOINTS_OF_KIND;
    if (i == ENDPOINTS_OF_KIND) {
        return 0;
    }
    struct outcome_record *record = &item->records[i];
    struct kind_state *state = &item->states[i];
    if (record->endpoint != endpoint) {
        *state = (struct kind_state){.avoided = false};
    }
    if (outcome == OUTCOME_KIND_ANSWERED || clock_between_ns(record->at_ns, now_ns) > age_ns) {
        state->n_bad_in_row = 0;
    }
    if (outcome == OUTCOME_KIND_ANSWERED) {
        clear_avoided(kinds, state);
    } else {
        state->n_bad_in_row += counts;
    }
    *record = (struct outcome_record){endpoint, now_ns, outcome, endpoint->profiles};
    item->used_ns = now_ns;
    return state->n_bad_in_row;
}

/* ---- avoiding -------------------------------------------------------------------------------- */

static void begin_wait(struct kind_state *state, uint64_t now_ns) {
    state->trial_ns = now_ns + TRIAL_NS;
    state->n_skipped = 0;
}

bool request_kinds_avoid(struct request_kinds *kinds, uint64_t kind,
                         const struct endpoint *endpoint, uint64_t now_ns) {
    struct request_kind *item = find_kind(kinds, kind);
    for (size_t i = 0; item && i < ENDPOINTS_OF_KIND; i++) {
        struct kind_state *state = &item->states[i];
        if (item->records[i].endpoint == endpoint && !state->avoided) {
            state->avoided = true;
            kinds->n_avoided++;
            begin_wait(state, now_ns);
            return true;
        }
    }
    return false;
}

uint32_t request_kinds_count_avoided(const struct request_kinds *kinds, uint64_t kind) {
    const struct request_kind *item = find_kind_const(kinds, kind);
    uint32_t n = 0;
    for (size_t i = 0; item && i < ENDPOINTS_OF_KIND; i++) {
        n += item->states[i].avoided;
    }
    return n;
}

static bool is_due(const struct kind_state *state, uint64_t now_ns) {
    return state->trial_ns <= now_ns && state->n_skipped >= TRIAL_PICKS;
}

size_t request_kinds_list_avoided(const struct request_kinds *kinds, uint64_t kind, uint64_t now_ns,
                                  const struct endpoint *out[ENDPOINTS_OF_KIND]) {
    const struct request_kind *item = find_kind_const(kinds, kind);
    size_t n = 0;
    for (size_t i = 0; item && i < ENDPOINTS_OF_KIND; i++) {
        if (item->states[i].avoided && !is_due(&item->states[i], now_ns)) {
            out[n++] = item->records[i].endpoint;
        }
    }
    return n;
}

void request_kinds_count_pick(struct request_kinds *kinds, uint64_t kind,
                              const struct endpoint *endpoint, uint64_t now_ns) {
    struct request_kind *item = find_kind(kinds, kind);
    if (!item) {
        return;
    }
    item->used_ns = now_ns;
    for (size_t i = 0; i < ENDPOINTS_OF_KIND; i++) {
        struct kind_state *state = &item->states[i];
        if (state->avoided && item->records[i].endpoint == endpoint) {
            begin_wait(state, now_ns);
        } else if (state->avoided && state->n_skipped < TRIAL_PICKS) {
            state->n_skipped++;
        }
    }
}

/* ---- forgetting ------------------------------------------------------------------------------ */

static void forget(struct request_kinds *kinds, const struct endpoint *endpoint,
                   bool with_records) {
    for (size_t k = 0; k < REQUEST_KINDS; k++) {
        struct request_kind *item = &kinds->items[k];
        for (size_t i = 0; item->kind != 0 && i < ENDPOINTS_OF_KIND; i++) {
            if (item->records[i].endpoint == endpoint) {
                clear_avoided(kinds, &item->states[i]);
                item->states[i].n_bad_in_row = 0;
                item->records[i] =
                    with_records ? (struct outcome_record){.endpoint = NULL} : item->records[i];
            }
        }
    }
}

void request_kinds_readmit(struct request_kinds *kinds, const struct endpoint *endpoint) {
    forget(kinds, endpoint, false);
}

void request_kinds_forget(struct request_kinds *kinds, const struct endpoint *endpoint) {
    forget(kinds, endpoint, true);
}

void request_kinds_expire(struct request_kinds *kinds, uint64_t now_ns, uint64_t age_ns) {
    for (size_t k = 0; k < REQUEST_KINDS; k++) {
        struct request_kind *item = &kinds->items[k];
        if (item->kind != 0 && clock_between_ns(item->used_ns, now_ns) > age_ns) {
            drop_kind(kinds, item);
        }
    }
}
