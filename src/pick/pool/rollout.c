/* Counts the ready endpoints of each revision and role at each request: readiness changes without a
 * new snapshot. */
#include "pick/pool/rollout.h"

#include "core/base/random.h"
#include "pick/pool/endpoint/endpoint.h"
#include "pick/pool/snapshot.h"
#include "pick/pool/spec.h"

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

static void count_ready(const struct rollout_index *index, const struct pool_snapshot *snapshot,
                        struct counts *out) {
    *out = (struct counts){.n = {{0}}};
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        uint8_t revision = index->revision_of[i], role = index->role_of[i];
        if (revision != ROLLOUT_NONE && role != ROLLOUT_NONE) {
            out->n[revision][role] += endpoint_is_ready(snapshot->members[i].endpoint);
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

/* Returns: the weight of the revision; 0: it has not all roles. */
static uint32_t weigh(const struct rollout_screener *screener, const struct counts *counts,
                      size_t revision, size_t dominant) {
    uint32_t weight = 0;
    if (!has_all_roles(screener, counts, revision)) {
        return 0;
    }
    for (size_t role = 0; role < screener->n_roles; role++) {
        bool counted = screener->mode == ROLLOUT_SUM || role == dominant;
        weight += counted ? counts->n[revision][role] : 0;
    }
    return weight;
}

/* Returns: ROLLOUT_NONE: no revision has all roles. */
static uint8_t draw(const struct rollout_screener *screener, const struct rollout_index *index,
                    const struct counts *counts, struct prng *prng) {
    size_t dominant = find_dominant_role(screener, index, counts);
    uint32_t total = 0;
    for (size_t i = 0; i < index->n_revisions; i++) {
        total += weigh(screener, counts, i, dominant);
    }
    uint32_t left = total > 0 ? prng_below(prng, total) : 0;
    for (size_t i = 0; total > 0 && i < index->n_revisions; i++) {
        uint32_t weight = weigh(screener, counts, i, dominant);
        if (left < weight) {
            return (uint8_t)i;
        }
        left -= weight;
    }
    return ROLLOUT_NONE;
}

/* ---- screening ------------------------------------------------------------------------------- */

struct wanted_revision {
    const struct rollout_index *index;
    uint8_t revision;
};

static bool is_of_revision(const void *parameters, const struct candidate_set *candidates,
                           uint32_t i) {
    const struct wanted_revision *wanted = parameters;
    return wanted->index->revision_of[candidates->columns->member[i]] == wanted->revision;
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

/* The headers that the request has. `*revision`: the value of the revision's. */
static enum status screen_by_headers(const struct rollout_screener *screener,
                                     struct candidate_set *candidates, struct str *revision,
                                     struct error *err) {
    for (size_t i = 0; i < screener->n_selectors; i++) {
        const struct rollout_selector *selector = &screener->selectors[i];
        struct wanted_label wanted = {selector->label, header_of(candidates, selector->header)};
        if (!wanted.value.ptr) {
            continue;
        }
        if (str_eq(selector->label, screener->revision_label)) {
            *revision = wanted.value;
        }
        candidate_set_filter(candidates, &wanted, has_label);
        if (candidates->n == 0) {
            return error_set(err, ST_NO_ENDPOINT,
                             "no ready endpoint has the label %.*s that the header %.*s asks for",
                             STR_ARG(selector->label), STR_ARG(selector->header));
        }
    }
    return ST_OK;
}

enum status rollout_screen(const struct rollout_screener *screener,
                           const struct rollout_index *index, bool has_peer,
                           struct candidate_set *candidates, struct error *err) {
    const struct pool_snapshot *snapshot = candidates->snapshot;
    struct wanted_revision wanted = {index, ROLLOUT_NONE};
    struct str asked = {NULL, 0};
    struct counts counts;
    enum status st = screen_by_headers(screener, candidates, &asked, err);
    if (st != ST_OK || screener->mode == ROLLOUT_DISABLED) {
        return st;
    }
    count_ready(index, snapshot, &counts);
    if (has_peer && !candidates->peer) {
        return error_set(err, ST_NO_ENDPOINT,
                         "the endpoint of another stage of the request has left the pool, and its "
                         "revision is not known any more");
    }
    if (candidates->peer) {
        wanted.revision = index->revision_of[candidates->peer - snapshot->members];
    } else if (asked.ptr) {
        for (size_t i = 0; i < index->n_revisions; i++) {
            bool fits = str_eq(index->revisions[i], asked) && has_all_roles(screener, &counts, i);
            wanted.revision = fits ? (uint8_t)i : wanted.revision;
        }
    } else {
        wanted.revision = draw(screener, index, &counts, candidates->prng);
    }
    if (wanted.revision == ROLLOUT_NONE) {
        return error_set(err, ST_NO_ENDPOINT,
                         "no revision has a ready endpoint of each role that "
                         "disaggregatedset-rollout-screener requires");
    }
    candidate_set_filter(candidates, &wanted, is_of_revision);
    return ST_OK;
}
