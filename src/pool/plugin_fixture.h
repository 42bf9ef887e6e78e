/* What the tests of plugins share: a choice among endpoints that are described, not there. For
 * files that include cmocka.h before. */
#ifndef SLUICE_POOL_PLUGIN_FIXTURE_H
#define SLUICE_POOL_PLUGIN_FIXTURE_H

#include "pool/pool_fixture.h"
#include "pool/profile.h"

enum { FIXTURE_MOST_CANDIDATES = 16 };

struct plugin_fixture {
    struct fixture pool;
    struct arena *arena;
    void *parameters;
    struct dice dice;
    struct candidate candidates[FIXTURE_MOST_CANDIDATES];
    struct choice choice;
};

/* `n` candidates of which nothing is known but that nothing is in flight to them. */
static inline void plugin_fixture_open(struct plugin_fixture *fixture, const struct plugin *plugin,
                                       uint32_t n) {
    struct doc_node none = {0};
    struct error err;
    *fixture = (struct plugin_fixture){.dice = {7}};
    fixture_open(&fixture->pool, fixture_spec_of(n));
    fixture->arena = arena_new(NULL, 0);
    assert_non_null(fixture->arena);
    assert_int_equal(plugin_read(plugin, &none, fixture->arena, &fixture->parameters, &err), ST_OK);
    for (uint32_t i = 0; i < n; i++) {
        fixture->candidates[i].member = i;
    }
    fixture->choice = (struct choice){.snapshot = pool_look(fixture->pool.reader),
                                      .dice = &fixture->dice,
                                      .candidates = fixture->candidates,
                                      .n = n};
}

static inline void plugin_fixture_close(struct plugin_fixture *fixture) {
    arena_free(fixture->arena);
    fixture_close(&fixture->pool);
}

static inline void assert_near(float got, float wanted) {
    if (!(got > wanted - 1e-5f && got < wanted + 1e-5f)) {
        fail_msg("got %g, wanted %g", (double)got, (double)wanted);
    }
}

/* The scores of candidates that differ in one member are those wanted. */
#define ASSERT_SCORES(plugin, member_name, values, wanted)                                         \
    do {                                                                                           \
        struct plugin_fixture fixture;                                                             \
        uint32_t n = sizeof(values) / sizeof(*(values));                                           \
        plugin_fixture_open(&fixture, (plugin), n);                                                \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            fixture.candidates[i].member_name = (values)[i];                                       \
        }                                                                                          \
        (plugin)->score(fixture.parameters, &fixture.choice, 1);                                   \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            assert_near(fixture.candidates[i].score, (wanted)[i]);                                 \
        }                                                                                          \
        plugin_fixture_close(&fixture);                                                            \
    } while (0)

#endif
