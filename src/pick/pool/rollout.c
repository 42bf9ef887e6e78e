/* Counts the ready endpoints of each revision and role at each request: readiness changes without a
 * new snapshot. */
#include "pick/pool/rollout.h"

#include <assert.h>

#include "core/base/random.h"
#include "pick/pool/endpoint/endpoint.h"
#include "pick/pool/snapshot.h"
#include "pick/pool/spec.h"

const char *rollout_mode_name(enum rollout_mode mode) {
    static const char *const names[] = {
        [ROLLOUT_SUM] = "sum", [ROLLOUT_MAX_ROLE] = "max-role", [ROLLOUT_DISABLED] = "disabled"};
    return names[mode];
}

/* ---- index ----------------------------------------------------------------------------------- */

static struct str label_of(struct pool_labels labels, struct str key) {
    const struct pool_label *label = pool_labels_find(labels, key);
    return label ? label->value : str_make(NULL, 0);
}

static uint8_t find_or_add_revision(struct rollout_index *index, struct str name) {
    for (size_t i = 0; i < index->n_revisions; i++) {
        if (str_eq(index->revisions[i], name)) {
            return (uint8_t)i;
        }
    }
    if (!name.ptr || index->n_revisions == ROLLOUT_MOST_REVISIONS) {
        return ROLLOUT_NONE;
    }
    index->revisions[index->n_revisions] = name;
    return (uint8_t)index->n_revisions++;
}

static uint8_t find_role(const struct rollout_screener *screener, struct pool_labels labels) {
    struct str name = label_of(labels, screener->role_label);
    for (size_t i = 0; name.ptr && i < screener->n_roles; i++) {
        if (str_eq(screener->roles[i], name)) {
            return pool_labels_match(labels, screener->scope) ? (uint8_t)i : ROLLOUT_NONE;
        }
    }
    return ROLLOUT_NONE;
}

struct rollout_index *rollout_index_new(const struct rollout_screener *screener,
                                        const struct pool_snapshot *snapshot, struct arena *arena) {
    struct rollout_index *index = arena_calloc(arena, 1, sizeof(*index));
    uint8_t *revisions = arena_calloc(arena, (size_t)snapshot->n_members + 1, 1);
    uint8_t *roles = arena_calloc(arena, (size_t)snapshot->n_members + 1, 1);
    if (!index || !revisions || !roles) {
        return NULL;
    }
    index->revision_of = revisions;
    index->role_of = roles;
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct pool_labels labels = snapshot->members[i].labels;
        revisions[i] = find_or_add_revision(index, label_of(labels, screener->revision_label));
        roles[i] = find_role(screener, labels);
    }
    return index;
}

/* ---- choosing a revision --------------------------------------------------------------------- */

struct counts {
    uint32_t n[ROLLOUT_MOST_REVISIONS][ROLLOUT_MOST_ROLES];
};

/* Of the ready endpoints whose rank is below `limit`. */
static void count_ready(const struct rollout_index *index, const struct pool_snapshot *snapshot,
                        uint32_t limit, struct counts *out) {
    *out = (struct counts){.n = {{0}}};
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        uint8_t revision = index->revision_of[i], role = index->role_of[i];
        if (revision != ROLLOUT_NONE && role != ROLLOUT_NONE) {
            const struct endpoint *endpoint = snapshot->members[i].endpoint;
            out->n[revision][role] +=
                endpoint_is_ready(endpoint) && endpoint_rank(endpoint) < limit;
        }
    }
}

static bool has_all_roles(const struct rollout_screener *screener, const struct counts *counts,
                          size_t revision) {
    bool has = true;
    for (size_t role = 0; role < screener->n_roles; role++) {
        has = has && counts->n[revision][role] > 0;
    }
    return has;
}

/* The role with most endpoints in the revisions that have all; the first of several. */
static size_t find_dominant_role(const struct rollout_screener *screener,
                                 const struct rollout_index *index, const struct counts *counts) {
    uint64_t most = 0;
    size_t dominant = 0;
    for (size_t role = 0; role < screener->n_roles; role++) {
        uint64_t n = 0;
        for (size_t i = 0; i < index->n_revisions; i++) {
            n += has_all_roles(screener, counts, i) ? counts->n[i][role] : 0;
        }
        if (n > most) {
            most = n;
            dominant = role;
        }
    }
    return dominant;
}

/* Of a revision that has all roles. */
static uint32_t weigh(const struct rollout_screener *screener, const struct counts *counts,
                      size_t revision, size_t dominant) {
    uint32_t weight = 0;
    for (size_t role = 0; role < screener->n_roles; role++) {
        bool counted = screener->mode == ROLLOUT_SUM || role == dominant;
        weight += counted ? counts->n[revision][role] : 0;
    }
    return weight;
}

/* A set of revisions: a bit for each. */
static_assert(ROLLOUT_MOST_REVISIONS <= 64, "a revision is a bit of 64");

static uint64_t set_of_revision(uint8_t revision) {
    return revision != ROLLOUT_NONE ? UINT64_C(1) << revision : 0;
}

static bool is_in_set(uint64_t set, size_t revision) {
    return set >> revision & 1;
}

static uint64_t revisions_of(const struct rollout_index *index,
                             const struct candidate_set *candidates) {
    uint64_t set = 0;
    for (uint32_t i = 0; i < candidates->n; i++) {
        set |= set_of_revision(index->revision_of[candidates->columns->member[i]]);
    }
    return set;
}

/* Those of the revisions that have all roles. An endpoint that is avoided is no candidate while
 * others are left, so a role that has only such endpoints counts where no revision has better
 * ones. */
static uint64_t find_usable(const struct rollout_screener *screener,
                            const struct rollout_index *index, const struct pool_snapshot *snapshot,
                            uint64_t of_candidates, struct counts *counts) {
    static const uint32_t limits[] = {ENDPOINT_LIMITED, ENDPOINT_REFUSED, ENDPOINT_OUT};
    uint64_t usable = 0;
    for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]) && usable == 0; k++) {
        count_ready(index, snapshot, limits[k], counts);
        for (size_t i = 0; i < index->n_revisions; i++) {
            bool is_usable = is_in_set(of_candidates, i) && has_all_roles(screener, counts, i);
            usable |= is_usable ? set_of_revision((uint8_t)i) : 0;
        }
    }
    return usable;
}

/* Returns: one of the usable revisions; none when there is none. */
static uint64_t draw(const struct rollout_screener *screener, const struct rollout_index *index,
                     const struct counts *counts, uint64_t usable, struct prng *prng) {
    size_t dominant = find_dominant_role(screener, index, counts);
    uint32_t total = 0;
    for (size_t i = 0; i < index->n_revisions; i++) {
        total += is_in_set(usable, i) ? weigh(screener, counts, i, dominant) : 0;
    }
    uint32_t left = total > 0 ? prng_below(prng, total) : 0;
    for (size_t i = 0; total > 0 && i < index->n_revisions; i++) {
        uint32_t weight = is_in_set(usable, i) ? weigh(screener, counts, i, dominant) : 0;
        if (left < weight) {
            return set_of_revision((uint8_t)i);
        }
        left -= weight;
    }
    return 0;
}

void rollout_get_shares(const struct rollout_screener *screener, const struct rollout_index *index,
                        const struct pool_snapshot *snapshot, double out[ROLLOUT_MOST_REVISIONS]) {
    struct counts counts;
    uint64_t usable = find_usable(screener, index, snapshot, UINT64_MAX, &counts);
    size_t dominant = find_dominant_role(screener, index, &counts);
    double total = 0;
    for (size_t i = 0; i < index->n_revisions; i++) {
        out[i] = is_in_set(usable, i) ? weigh(screener, &counts, i, dominant) : 0;
        total += out[i];
    }
    for (size_t i = 0; i < index->n_revisions && total > 0; i++) {
        out[i] /= total;
    }
}

/* ---- screening ------------------------------------------------------------------------------- */

struct wanted_revisions {
    const struct rollout_index *index;
    uint64_t set;
};

static bool is_of_revisions(const void *parameters, const struct candidate_set *candidates,
                            uint32_t i) {
    const struct wanted_revisions *wanted = parameters;
    uint8_t revision = wanted->index->revision_of[candidates->columns->member[i]];
    return (wanted->set & set_of_revision(revision)) != 0;
}

struct wanted_label {
    struct str label, value;
};

static bool has_label(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    const struct wanted_label *wanted = parameters;
    return str_eq(label_of(candidate_set_member(candidates, i)->labels, wanted->label),
                  wanted->value);
}

static struct str header_of(const struct candidate_set *candidates, struct str name) {
    const struct pool_headers *headers = &candidates->headers;
    return headers->find ? headers->find(headers->of, name) : str_make(NULL, 0);
}

/* By the headers that the request has, of which an empty one counts as absent. `*screened`: it has
 * any. */
static enum status screen_by_headers(const struct rollout_screener *screener,
                                     struct candidate_set *candidates, bool *screened,
                                     struct error *err) {
    for (size_t i = 0; i < screener->n_selectors; i++) {
        const struct rollout_selector *selector = &screener->selectors[i];
        struct wanted_label wanted = {selector->label, header_of(candidates, selector->header)};
        if (wanted.value.len == 0) {
            continue;
        }
        *screened = true;
        candidate_set_filter(candidates, &wanted, has_label);
        if (candidates->n == 0) {
            if (screener->n_unmatched) {
                atomic_fetch_add_explicit(&screener->n_unmatched[i], 1, memory_order_relaxed);
            }
            return error_set(err, ST_NO_ENDPOINT,
                             "no ready endpoint has the label %.*s that the header %.*s asks for",
                             STR_ARG(selector->label), STR_ARG(selector->header));
        }
    }
    return ST_OK;
}

enum status rollout_screen(const struct rollout_screener *screener,
                           const struct rollout_index *index, const struct endpoint *fellow,
                           struct candidate_set *candidates, struct error *err) {
    const struct pool_snapshot *snapshot = candidates->snapshot;
    const struct pool_member *member =
        fellow ? pool_snapshot_find(snapshot, &fellow->address) : NULL;
    struct wanted_revisions wanted = {index, 0};
    bool screened = false;
    struct counts counts;
    enum status st = screen_by_headers(screener, candidates, &screened, err);
    if (st != ST_OK || screener->mode == ROLLOUT_DISABLED) {
        return st;
    }
    if (fellow && !member) {
        return error_set(err, ST_NO_ENDPOINT,
                         "the endpoint of another stage of the request has left the pool, and its "
                         "revision is not known any more");
    }
    if (member) {
        wanted.set = set_of_revision(index->revision_of[member - snapshot->members]);
    } else {
        wanted.set =
            find_usable(screener, index, snapshot, revisions_of(index, candidates), &counts);
        if (!screened) {
            wanted.set = draw(screener, index, &counts, wanted.set, candidates->prng);
        }
    }
    if (wanted.set == 0) {
        return error_set(err, ST_NO_ENDPOINT,
                         "no revision that the request may use has a ready endpoint of each role "
                         "that disaggregatedset-rollout-screener requires");
    }
    candidate_set_filter(candidates, &wanted, is_of_revisions);
    return ST_OK;
}
