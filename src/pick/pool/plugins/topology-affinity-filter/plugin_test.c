/* Keeps what is close to the peer, or all. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"
#include "pick/pool/profile/topology.h"

#define HOST(text)                                                                                 \
    { STR("h"), STR(text) }
#define RACK(text)                                                                                 \
    { STR("r"), STR(text) }
static const struct pool_label near[] = {HOST("a"), RACK("1")}, beside[] = {HOST("b"), RACK("1")},
                               far[] = {HOST("c"), RACK("2")}, empty[] = {HOST(""), RACK("")};
static const struct pool_labels labels[] = {
    {near, 2}, {beside, 2}, {far, 2}, {empty, 2}, {NULL, 0}};
enum { N = sizeof(labels) / sizeof(labels[0]) };

static void filter_keeps_close_ones(void **state) {
    static const struct {
        const char *parameters;
        int peer; /* -1: none */
        unsigned left;
    } rows[] = {{"{}", 0, 1},
                {"{minAffinity: host}", 2, 4},
                {"{minAffinity: rack}", 0, 3},
                {"{minAffinity: region}", 2, 4},
                /* all, where nothing is known */
                {"{}", -1, 31},
                {"{}", 3, 31},
                {"{}", 4, 31}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plugin_fixture fixture;
        plugin_fixture_open(&fixture, &plugin_topology_affinity_filter, N);
        fixture_label(&fixture, labels, N);
        fixture_tell(&fixture, &plugin_topology_affinity_filter, rows[i].parameters);
        struct topology_user *user = fixture.parameters;
        user->labels = (struct topology_labels){{STR("h"), STR("r"), STR("z"), STR("")}};
        fixture.candidates.peer =
            rows[i].peer < 0 ? NULL : &fixture.candidates.snapshot->members[rows[i].peer];
        plugin_topology_affinity_filter.filter(fixture.parameters, &fixture.candidates);
        assert_int_equal(fixture_left(&fixture), rows[i].left);
        plugin_fixture_close(&fixture);
    }
}

/* Where there is no label of the host, the pod's own name of it is that. */
static void filter_compares_hostnames_of_pods(void **state) {
    static const struct pool_label host[] = {HOST("a")};
    static const struct pool_labels mixed[] = {{NULL, 0}, {host, 1}, {NULL, 0}, {NULL, 0}};
    static const char *const hosts[] = {"a", "b", "a", "c"};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_topology_affinity_filter, 4);
    fixture_label(&fixture, mixed, 4);
    struct topology_user *user = fixture.parameters;
    user->labels.keys[TOPOLOGY_HOST] = STR("h");
    for (int i = 0; i < 4; i++) {
        fixture.candidates.snapshot->members[i].name.host = str_of(hosts[i]);
    }
    fixture.candidates.peer = &fixture.candidates.snapshot->members[2];
    plugin_topology_affinity_filter.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), 7); /* the second by its label */
    plugin_fixture_close(&fixture);
}

/* The peer's own host was removed before. */
static void filter_without_close_one_keeps_all(void **state) {
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_topology_affinity_filter, N);
    fixture_label(&fixture, labels, N);
    struct topology_user *user = fixture.parameters;
    user->labels.keys[TOPOLOGY_HOST] = STR("h");
    fixture.candidates.peer = &fixture.candidates.snapshot->members[0];
    candidate_set_remove(&fixture.candidates, 0);
    plugin_topology_affinity_filter.filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), 30);
    plugin_fixture_close(&fixture);
}

static void filter_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{minAffinity: planet}", "minAffinity: expected host, rack, zone or region"},
        {"{minAffinity: host, x: 1}", "unknown field"}};
    (void)state;
    assert_refused(&plugin_topology_affinity_filter, texts, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_close_ones),
        cmocka_unit_test(filter_compares_hostnames_of_pods),
        cmocka_unit_test(filter_without_close_one_keeps_all),
        cmocka_unit_test(filter_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
