/* Queue deadlines that follow from a configuration and a request's parameters. */
#include "serve/config/queue_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { NOW = 1000000, MS = 1000000 };
#define NEVER UINT64_MAX

static const struct model_config_level three_levels[] = {
    {1, {.timeout_us = 1000}},
    {3, {.timeout_us = 9000, .allow_override = true, .delay_on_timeout = true}},
};
static const struct model_config plain = {0};
static const struct model_config lingers = {.max_queue_delay_us = 4000};
static const struct model_config lingers_for_ever = {.max_queue_delay_us = INT64_MAX};
static const struct model_config fixed = {.queue = {.timeout_us = 2000}};
static const struct model_config open_ended = {.queue = {.allow_override = true}};
static const struct model_config shortened = {
    .queue = {.timeout_us = 2000, .allow_override = true}};
static const struct model_config levels = {
    .priority_levels = 3, .default_priority = 2, .levels = three_levels, .n_levels = 2};

static struct param number(const char *name, int64_t value) {
    return (struct param){.name = str_of(name), .kind = PARAM_INT64, .int64 = value};
}

struct row {
    const struct model_config *config;
    int64_t priority, timeout; /* 0: absent */
    uint64_t deadline_ns;
    struct queue_deadline want;
};

static const struct row rows[] = {
    {&plain, 0, 0, 0, {0, false, NOW, NEVER, NEVER}},
    {&plain, 7, 5, 0, {0, false, NOW, NEVER, NEVER}}, /* accepted, without effect */
    {&plain, 0, 0, NOW + 1, {0, false, NOW, NEVER, NOW + 1}},
    {&fixed, 0, 0, 0, {0, false, NOW, NEVER, NOW + 2 * MS}},
    {&fixed, 0, 1000, 0, {0, false, NOW, NEVER, NOW + 2 * MS}}, /* override not allowed */
    {&fixed, 0, 0, NOW + MS, {0, false, NOW, NEVER, NOW + MS}},
    {&fixed, 0, 0, NOW + 5 * MS, {0, false, NOW, NEVER, NOW + 2 * MS}},
    {&shortened, 0, 1000, 0, {0, false, NOW, NEVER, NOW + MS}},
    /* a timeout is only shortened */
    {&shortened, 0, 3000, 0, {0, false, NOW, NEVER, NOW + 2 * MS}},
    {&open_ended, 0, 3000, 0, {0, false, NOW, NEVER, NOW + 3 * MS}},
    {&open_ended, 0, 0, 0, {0, false, NOW, NEVER, NEVER}},
    {&open_ended, 0, INT64_MAX, 0, {0, false, NOW, NEVER, NEVER}},
    {&levels, 0, 0, 0, {1, false, NOW, NEVER, NEVER}},
    {&levels, 1, 0, 0, {0, false, NOW, NEVER, NOW + MS}},
    {&levels, 2, 0, 0, {1, false, NOW, NEVER, NEVER}},
    {&levels, 3, 0, 0, {2, false, NOW, NOW + 9 * MS, NEVER}},
    {&levels, 3, 4000, NOW + 5 * MS, {2, false, NOW, NOW + 4 * MS, NOW + 5 * MS}},
    {&levels, 4, 0, 0, {1, false, NOW, NEVER, NEVER}}, /* no such level */
    {&lingers, 0, 0, 0, {0, false, NOW + 4 * MS, NEVER, NEVER}},
    {&lingers, 0, 0, NOW + 9 * MS, {0, false, NOW + 4 * MS, NEVER, NOW + 9 * MS}},
    /* half of the time until the deadline */
    {&lingers, 0, 0, NOW + 2 * MS, {0, false, NOW + MS, NEVER, NOW + 2 * MS}},
    {&lingers_for_ever, 0, 0, 0, {0, false, NOW + (NEVER - NOW) / 2, NEVER, NEVER}},
};

static void queue_policy_apply_deadlines_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct arena *arena = arena_new(NULL, 0);
        struct queue_policy policy;
        struct queue_deadline got;
        struct error err;
        struct param params[2];
        struct infer_request request = {.params = {params, 0}, .deadline_ns = row->deadline_ns};
        if (row->priority > 0) {
            params[request.params.n++] = number("priority", row->priority);
        }
        if (row->timeout > 0) {
            params[request.params.n++] = number("timeout", row->timeout);
        }
        assert_int_equal(queue_policy_init(arena, row->config, 5, &policy, &err), ST_OK);
        assert_int_equal(queue_policy_apply(&policy, &request, NOW, &got, &err), ST_OK);
        if (got.level != row->want.level || got.deprioritized ||
            got.batch_wait_until_ns != row->want.batch_wait_until_ns ||
            got.deprioritize_ns != row->want.deprioritize_ns ||
            got.expires_ns != row->want.expires_ns) {
            fail_msg("row %zu: level %zu, lingers %llu, yields %llu, expires %llu", i, got.level,
                     (unsigned long long)got.batch_wait_until_ns,
                     (unsigned long long)got.deprioritize_ns, (unsigned long long)got.expires_ns);
        }
        arena_free(arena);
    }
}

static void queue_policy_level_without_own_policy_has_default(void **state) {
    (void)state;
    static const struct model_config_level one[] = {{2, {.max_size = 3}}};
    static const struct model_config config = {.priority_levels = 2,
                                               .default_priority = 1,
                                               .levels = one,
                                               .n_levels = 1,
                                               .queue = {.max_size = 9, .timeout_us = 1}};
    struct arena *arena = arena_new(NULL, 0);
    struct queue_policy policy;
    struct error err;
    assert_int_equal(queue_policy_init(arena, &config, 5, &policy, &err), ST_OK);
    assert_int_equal(policy.n_levels, 2);
    assert_int_equal(policy.levels[0].max_size, 9);
    assert_int_equal(policy.levels[1].max_size, 3);
    assert_int_equal(policy.levels[1].timeout_us, 0); /* the level's own policy replaces the
                                                         default one */
    assert_int_equal(policy.limit, 5);
    arena_free(arena);
}

static void queue_policy_apply_invalid_parameters_are_refused(void **state) {
    (void)state;
    static const struct {
        struct param param;
        enum status status;
        const char *says;
    } bads[] = {
        {{.name = STR("priority"), .kind = PARAM_INT64, .int64 = -1}, ST_BAD_FIELD, "\"priority\""},
        {{.name = STR("priority"), .kind = PARAM_STRING, .string = STR("1")},
         ST_BAD_FIELD,
         "whole number"},
        {{.name = STR("timeout"), .kind = PARAM_DOUBLE, .number = 1}, ST_BAD_FIELD, "\"timeout\""},
        {{.name = STR("timeout"), .kind = PARAM_BOOL, .boolean = true},
         ST_BAD_FIELD,
         "\"timeout\""},
        {{.name = STR("timeout"), .kind = PARAM_UINT64, .uint64 = UINT64_MAX}, ST_OK, ""},
        {{.name = STR("other"), .kind = PARAM_STRING, .string = STR("1")}, ST_OK, ""},
    };
    struct arena *arena = arena_new(NULL, 0);
    struct queue_policy policy;
    struct queue_deadline queue_deadline;
    struct error err;
    assert_int_equal(queue_policy_init(arena, &shortened, 0, &policy, &err), ST_OK);
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        struct infer_request request = {.params = {&bads[i].param, 1}};
        err.text[0] = '\0';
        assert_int_equal(queue_policy_apply(&policy, &request, NOW, &queue_deadline, &err),
                         bads[i].status);
        assert_non_null(strstr(err.text, bads[i].says));
    }
    struct infer_request late = {.deadline_ns = NOW};
    assert_int_equal(queue_policy_apply(&policy, &late, NOW, &queue_deadline, &err),
                     ST_DEADLINE_EXCEEDED);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_policy_apply_deadlines_by_table),
        cmocka_unit_test(queue_policy_level_without_own_policy_has_default),
        cmocka_unit_test(queue_policy_apply_invalid_parameters_are_refused),
    };
    return cmocka_run_group_tests_name("serve/config/queue_policy", tests, NULL, NULL);
}
