/* The scores by the closest level in common. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"
#include "pick/pool/profile/topology.h"

#define PLACE(host, rack, zone, region)                                                            \
    {                                                                                              \
        {STR("h"), STR(host)}, {STR("r"), STR(rack)}, {STR("z"), STR(zone)},                       \
            {STR("g"), STR(region)},                                                               \
    }
static const struct pool_label places[][4] = {
    PLACE("a", "1", "x", "eu"), PLACE("b", "1", "x", "eu"), PLACE("c", "2", "x", "eu"),
    PLACE("d", "3", "y", "eu"), PLACE("e", "4", "z", "us"), PLACE("", "", "", "")};
enum { N = sizeof(places) / sizeof(places[0]) };

static void scorer_scores_by_level(void **state) {
    static const float wanted[] = {1, 0.2f, 0.05f, 0.02f, 0, 0}, zero[N] = {0};
    struct pool_labels labels[N];
    struct plugin_fixture fixture;
    (void)state;
    for (int i = 0; i < N; i++) {
        labels[i] = (struct pool_labels){places[i], 4};
    }
    plugin_fixture_open(&fixture, &plugin_topology_affinity_scorer, N);
    fixture_label(&fixture, labels, N);
    struct topology_user *user = fixture.parameters;
    user->labels = (struct topology_labels){{STR("h"), STR("r"), STR("z"), STR("g")}};
    assert_scores(&fixture, &plugin_topology_affinity_scorer, zero); /* no peer */
    fixture.candidates.peer = &fixture.candidates.snapshot->members[0];
    assert_scores(&fixture, &plugin_topology_affinity_scorer, wanted);
    fixture.candidates.peer = &fixture.candidates.snapshot->members[5]; /* in no known place */
    assert_scores(&fixture, &plugin_topology_affinity_scorer, zero);
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_scores_by_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
