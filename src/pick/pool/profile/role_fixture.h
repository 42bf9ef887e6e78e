/* For tests of the role filters: an endpoint of each role. Include cmocka.h before. */
#ifndef SLUICE_PICK_POOL_PROFILE_ROLE_FIXTURE_H
#define SLUICE_PICK_POOL_PROFILE_ROLE_FIXTURE_H

#include "pick/pool/profile/plugin_text_fixture.h"

/* `wanted`: the endpoints that it keeps, one bit each: the roles in order, then an unknown role,
 * then no label. */
static inline void assert_roles(const struct plugin *filter, unsigned wanted) {
    static const char *const names[] = {"encode",
                                        "prefill",
                                        "decode",
                                        "encode-prefill",
                                        "prefill-decode",
                                        "both",
                                        "encode-prefill-decode",
                                        "other"};
    enum { N = sizeof(names) / sizeof(*names) };
    struct plugin_fixture fixture;
    struct pool_label items[N];
    struct pool_labels labels[N + 1] = {{NULL, 0}};
    for (int i = 0; i < N; i++) {
        items[i] = (struct pool_label){STR("llm-d.ai/role"), str_of(names[i])};
        labels[i] = (struct pool_labels){&items[i], 1};
    }
    plugin_fixture_open(&fixture, filter, N + 1);
    fixture_label(&fixture, labels, N + 1);
    filter->filter(fixture.parameters, &fixture.candidates);
    assert_int_equal(fixture_left(&fixture), wanted);
    plugin_fixture_close(&fixture);
}

#endif
