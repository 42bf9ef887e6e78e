/* For tests of plugins: candidate sets without a pool. Include cmocka.h before. */
#ifndef SLUICE_PICK_POOL_PROFILE_PLUGIN_FIXTURE_H
#define SLUICE_PICK_POOL_PROFILE_PLUGIN_FIXTURE_H

#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

enum { FIXTURE_MAX_CANDIDATES = 80, FIXTURE_PICKED_OF = 4, FIXTURE_PICKS = 4000 };

struct plugin_fixture {
    struct fixture pool;
    struct arena *arena;
    void *parameters;
    struct prng prng;
#define COLUMN(type, name) type name[FIXTURE_MAX_CANDIDATES];
#include "pick/pool/profile/candidate_columns.def"
#undef COLUMN
    float score[FIXTURE_MAX_CANDIDATES], scratch[FIXTURE_MAX_CANDIDATES];
    uint32_t order[2 * FIXTURE_MAX_CANDIDATES];
    struct candidate_columns columns; /* arrays of this struct */
    struct prefix_matches prefix;     /* of the default producer */
    struct media_matches media;       /* likewise */
    struct candidate_set candidates;
};

/* Parameters that a plugin requires; NULL: none. */
static inline const char *required_parameters(const struct plugin *plugin) {
    if (plugin == &plugin_header_label_affinity_scorer) {
        return "{headerName: x, labelKey: y}";
    }
    if (plugin == &plugin_endpoint_attribute_filter) {
        return "{attribute: a, algorithm: {type: threshold, threshold: {operator: LessThan, value: "
               "1}}}";
    }
    if (plugin == &plugin_endpoint_attribute_scorer) {
        return "{attributeKey: a, algorithm: {type: linear_lower_is_better}}";
    }
    return plugin == &plugin_utilization_filter
               ? "{conditions: [{metric: waiting-queue, maxValue: 4}]}"
               : NULL;
}

/* `n` candidates without load reports and without requests in flight. */
static inline void plugin_fixture_open(struct plugin_fixture *fixture, const struct plugin *plugin,
                                       uint32_t n) {
    const char *text = required_parameters(plugin);
    struct doc_node none = {0};
    struct doc *doc = NULL;
    struct error err;
    *fixture = (struct plugin_fixture){.prng = {7}};
    fixture_open(&fixture->pool, fixture_spec_of(n));
    fixture->arena = arena_new(NULL, 0);
    assert_non_null(fixture->arena);
    if (text) {
        assert_int_equal(doc_parse(DOC_YAML, "p", str_of(text), &doc, &err), ST_OK);
        none = doc_root(doc);
    }
    assert_int_equal(
        plugin_read_parameters(plugin, &none, fixture->arena, &fixture->parameters, &err), ST_OK);
    doc_free(doc);
    for (uint32_t i = 0; i < n; i++) {
        fixture->member[i] = i;
        fixture->address[i] = pool_reader_refresh(fixture->pool.reader)->members[i].hash;
    }
#define COLUMN(type, name) fixture->columns.name = fixture->name;
#include "pick/pool/profile/candidate_columns.def"
#undef COLUMN
    fixture->candidates =
        (struct candidate_set){.snapshot = pool_reader_refresh(fixture->pool.reader),
                               .adapters = UINT32_MAX,
                               .prefixes = &fixture->prefix,
                               .media = &fixture->media,
                               .prng = &fixture->prng,
                               .n = n,
                               .columns = &fixture->columns,
                               .score = fixture->score,
                               .scratch = fixture->scratch,
                               .order = fixture->order,
                               .filtered_columns = &fixture->columns};
}

static inline void plugin_fixture_close(struct plugin_fixture *fixture) {
    arena_free(fixture->arena);
    fixture_close(&fixture->pool);
}

/* Candidate `i` has `n` requests in flight, the others have none. */
static inline void plugin_fixture_load(struct plugin_fixture *fixture, uint32_t i, float n) {
    for (uint32_t k = 0; k < fixture->candidates.n; k++) {
        fixture->in_flight[k] = k == i ? n : 0;
        fixture->score[k] = 0;
    }
    fixture->candidates.is_summed = false;
    fixture->candidates.affinity_limit = 0;
}

static inline void assert_near(float got, float wanted) {
    if (!(got > wanted - 1e-5f && got < wanted + 1e-5f)) {
        fail_msg("got %g, wanted %g", (double)got, (double)wanted);
    }
}

/* Removes the candidate that the picker chooses. Returns: its member. */
static inline uint32_t plugin_fixture_pick(struct plugin_fixture *fixture,
                                           const struct plugin *picker, uint32_t nth) {
    uint32_t pos = picker->pick(fixture->parameters, &fixture->candidates, nth);
    assert_true(pos < fixture->candidates.n);
    uint32_t member = fixture->member[pos];
    candidate_set_remove(&fixture->candidates, pos);
    return member;
}

/* How often each of FIXTURE_PICKED_OF candidates with these scores is the first choice, of
 * FIXTURE_PICKS. */
static inline void count_picks(const struct plugin *picker, const float *sums, uint32_t *n_first) {
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, picker, FIXTURE_PICKED_OF);
    for (uint32_t k = 0; k < FIXTURE_PICKED_OF; k++) {
        fixture.score[k] = sums[k];
    }
    for (int i = 0; i < FIXTURE_PICKS; i++) {
        n_first[picker->pick(fixture.parameters, &fixture.candidates, 0)]++;
    }
    plugin_fixture_close(&fixture);
}

static inline void assert_share(uint32_t n_picks, double wanted) {
    assert_true(n_picks > (wanted - 0.03) * FIXTURE_PICKS);
    assert_true(n_picks < (wanted + 0.03) * FIXTURE_PICKS);
}

/* Asserts the scores of candidates that differ in one column. */
#define ASSERT_SCORES(plugin, member_name, values, wanted)                                         \
    do {                                                                                           \
        struct plugin_fixture fixture;                                                             \
        uint32_t n = sizeof(values) / sizeof(*(values));                                           \
        plugin_fixture_open(&fixture, (plugin), n);                                                \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            fixture.member_name[i] = (float)(values)[i];                                           \
        }                                                                                          \
        (plugin)->score(fixture.parameters, &fixture.candidates, 1);                               \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            assert_near(fixture.score[i], (wanted)[i]);                                            \
        }                                                                                          \
        plugin_fixture_close(&fixture);                                                            \
    } while (0)

/* The minimum scores 1, the maximum 0, others linearly between; equal ones score 1. */
#define ASSERT_LEAST_IS_BEST(plugin, member_name)                                                  \
    do {                                                                                           \
        static const uint32_t some[] = {2, 10, 4, 6}, alike[] = {7, 7, 7},                         \
                              far[] = {0, UINT32_MAX};                                             \
        static const float of_some[] = {1, 0, 0.75f, 0.5f}, of_alike[] = {1, 1, 1};                \
        static const float of_far[] = {1, 0};                                                      \
        ASSERT_SCORES((plugin), member_name, some, of_some);                                       \
        ASSERT_SCORES((plugin), member_name, alike, of_alike);                                     \
        ASSERT_SCORES((plugin), member_name, far, of_far);                                         \
    } while (0)

#endif
