/* What is read of a model's configuration. */
#include "program/commands/infer_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void infer_config_takes_batch_size_and_parameters(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err;
    static const char text[] =
        "{\"name\":\"m\",\"max_batch_size\":8,\"parameters\":{"
        "\"mip.scale\":{\"string_value\":\"1/255\"},\"mip.fit\":{\"string_value\":\"crop\"}}}";
    assert_int_equal(infer_config_parse(arena, str_of(text), &config, &err), ST_OK);
    assert_true(config.has_max_batch_size);
    assert_int_equal(config.max_batch_size, 8);
    assert_int_equal(config.n_params, 2);
    assert_true(str_is(config.params[0].name, "mip.scale"));
    assert_true(str_is(config.params[0].value, "1/255"));
    assert_true(str_is(config.params[1].value, "crop"));
    arena_free(arena);
}

static void infer_config_of_another_form_is_empty(void **state) {
    (void)state;
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "7",
                                        "{\"max_batch_size\":-1,\"parameters\":[1]}",
                                        "{\"max_batch_size\":\"8\",\"parameters\":null}",
                                        "{\"max_batch_size\":1e99}"};
    struct arena *arena = arena_new(NULL, 0);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct model_config config;
        struct error err;
        assert_int_equal(infer_config_parse(arena, str_of(texts[i]), &config, &err), ST_OK);
        assert_false(config.has_max_batch_size);
        assert_int_equal(config.max_batch_size, 0);
        assert_int_equal(config.n_params, 0);
    }
    arena_free(arena);
}

static void infer_config_without_json_is_a_bad_answer(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err;
    assert_int_equal(infer_config_parse(arena, STR("{\"parameters\":"), &config, &err),
                     ST_BAD_ANSWER);
    assert_non_null(strstr(err.text, "the model's configuration"));
    assert_int_equal(infer_config_parse(arena, STR(""), &config, &err), ST_BAD_ANSWER);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_config_takes_batch_size_and_parameters),
        cmocka_unit_test(infer_config_of_another_form_is_empty),
        cmocka_unit_test(infer_config_without_json_is_a_bad_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
