/* What deciders say, the profile of a stage, and which profiles may choose an endpoint. */
#include "pick/pool/profile/handler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void decider_says_by_its_kind(void **state) {
    static const struct {
        struct stage_decider decider;
        struct decider_input input;
        bool says;
    } rows[] = {
        {{.kind = DECIDER_NEVER}, {1000, 0, true, true}, false},
        {{.kind = DECIDER_ALWAYS}, {0, 0, false, false}, true},
        {{.kind = DECIDER_MULTIMODAL}, {1000, 0, true, false}, false},
        {{.kind = DECIDER_MULTIMODAL}, {0, 0, false, true}, true},
        /* 0: never */
        {{DECIDER_PREFIX, 0, 0}, {1000, 0, true, true}, false},
        {{DECIDER_PREFIX, 16, 0}, {1000, 0, true, false}, true},
        {{DECIDER_PREFIX, 16, 0}, {1000, 0, false, false}, false},
        /* at least so many that are not in the cache */
        {{DECIDER_PREFIX, 16, 0}, {1000, 984, true, false}, true},
        {{DECIDER_PREFIX, 16, 0}, {1000, 985, true, false}, false},
        {{DECIDER_PREFIX, 16, 0}, {1000, 1024, true, false}, false},
        {{DECIDER_PREFIX, 16, 0}, {16, 0, true, false}, true},
        {{DECIDER_PREFIX, 16, 0}, {15, 0, true, false}, false},
        {{DECIDER_PREFIX, 16, 0}, {0, 0, true, false}, false},
        /* and in the prompt */
        {{DECIDER_PREFIX, 16, 500}, {499, 0, true, false}, false},
        {{DECIDER_PREFIX, 16, 500}, {500, 0, true, false}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (stage_decider_says(&rows[i].decider, &rows[i].input) != rows[i].says) {
            fail_msg("row %zu: expected %d", i, rows[i].says);
        }
    }
}

static struct str find_header(const void *of, struct str name) {
    return str_is(name, "epp-profile") ? str_of(of) : str_make(NULL, 0);
}

static void handler_finds_profile_of_stage_or_header(void **state) {
    static const struct profile profiles[] = {{.name = STR("a")}, {.name = STR("b")}};
    struct pool_headers headers = {.find = find_header, .of = "b"};
    struct profile_handler handler = {.profiles = profiles, .n_profiles = 2};
    (void)state;
    handler.stages[STAGE_DECODE].profile = &profiles[0];
    handler.stages[STAGE_PREFILL].profile = &profiles[1];
    assert_int_equal(profile_handler_find(&handler, STAGE_DECODE, &headers), 0);
    assert_int_equal(profile_handler_find(&handler, STAGE_PREFILL, &headers), 1);
    assert_int_equal(profile_handler_find(&handler, STAGE_ENCODE, &headers), 2);
    handler.header = STR("epp-profile");
    handler.default_profile = STR("a");
    assert_int_equal(profile_handler_find(&handler, STAGE_DECODE, &headers), 1);
    headers.of = "c";
    assert_int_equal(profile_handler_find(&handler, STAGE_DECODE, &headers), 2);
    headers.of = " ";
    assert_int_equal(profile_handler_find(&handler, STAGE_DECODE, &headers), 0);
    headers.find = NULL;
    assert_int_equal(profile_handler_find(&handler, STAGE_DECODE, &headers), 0);
    handler.n_profiles = 1; /* there is nothing to choose */
    handler.default_profile = STR("c");
    assert_int_equal(profile_handler_find(&handler, STAGE_DECODE, &headers), 0);
}

/* By the filters that look at labels alone. */
static void handler_allows_by_labels(void **state) {
    static const struct pool_label prefill = {STR("llm-d.ai/role"), STR("prefill")};
    static const struct profile_step filters[] = {{.plugin = &plugin_decode_filter},
                                                  {.plugin = &plugin_utilization_filter},
                                                  {.plugin = &plugin_prefill_filter}};
    static const struct profile profiles[] = {{.filters = filters, .n_filters = 2},
                                              {.filters = &filters[1], .n_filters = 2}};
    static const struct profile_handler handler = {.profiles = profiles, .n_profiles = 2};
    (void)state;
    assert_int_equal(profile_handler_allows(&handler, (struct pool_labels){&prefill, 1}), 2);
    assert_int_equal(profile_handler_allows(&handler, (struct pool_labels){NULL, 0}), 1);
    assert_int_equal(profile_handler_allows(NULL, (struct pool_labels){NULL, 0}), UINT16_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decider_says_by_its_kind),
        cmocka_unit_test(handler_finds_profile_of_stage_or_header),
        cmocka_unit_test(handler_allows_by_labels),
    };
    return cmocka_run_group_tests_name("pick/pool/profile/handler", tests, NULL, NULL);
}
