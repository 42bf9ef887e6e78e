/* What a model adds to its configuration, and what it may not change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/config/config_add.h"

static const int64_t FOUR[] = {4}, ANY[] = {-1};

static sluice_model_info info_of(const sluice_tensor_info *inputs, size_t n_inputs,
                                 const sluice_tensor_info *outputs, size_t n_outputs) {
    return (sluice_model_info){.size = sizeof(sluice_model_info),
                               .inputs = inputs,
                               .n_inputs = n_inputs,
                               .outputs = outputs,
                               .n_outputs = n_outputs,
                               .takes_any = 1,
                               .adds_config = 1,
                               .max_batch_size = 8,
                               .dynamic_batching = 1};
}

static void config_add_keeps_tensors_and_adds_others(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct error err;
    struct model_config_tensor given = {.name = STR("A"),
                                        .datatype = DT_FP32,
                                        .has_dims = true,
                                        .dims = {FOUR, 1},
                                        .label_filename = STR("labels.txt")};
    struct model_config config = {.inputs = &given, .n_inputs = 1};
    const sluice_tensor_info inputs[] = {
        {.name = "A", .datatype = SLUICE_FP32, .dims = FOUR, .rank = 1},
        {.name = "B", .datatype = SLUICE_BYTES, .dims = ANY, .rank = 1, .optional = 1},
    };
    const sluice_model_info info = info_of(inputs, 2, inputs, 1);
    assert_int_equal(config_add(arena, &config, &info, &err), ST_OK);
    assert_int_equal(config.n_inputs, 2);
    assert_true(str_is(config.inputs[0].label_filename, "labels.txt"));
    assert_true(str_is(config.inputs[1].name, "B") && config.inputs[1].optional);
    assert_int_equal(config.inputs[1].dims.dims[0], -1);
    assert_int_equal(config.n_outputs, 1);
    assert_int_equal(config.max_batch_size, 8);
    assert_true(config.has_max_batch_size && config.has_dynamic_batching && !config.decoupled);
    arena_free(arena);
}

static void config_add_sequences_are_not_batched_otherwise(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct error err;
    struct model_config config = {.sequences = {.strategy = SEQUENCES_DIRECT}};
    const sluice_model_info info = info_of(NULL, 0, NULL, 0);
    assert_int_equal(config_add(arena, &config, &info, &err), ST_OK);
    assert_false(config.has_dynamic_batching);
    arena_free(arena);
}

static void config_add_other_tensor_is_an_error(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct error err;
    struct model_config_tensor given = {
        .name = STR("A"), .datatype = DT_FP32, .has_dims = true, .dims = {FOUR, 1}};
    struct model_config config = {.inputs = &given, .n_inputs = 1};
    sluice_tensor_info input = {.name = "A", .datatype = SLUICE_INT8, .dims = FOUR, .rank = 1};
    sluice_model_info info = info_of(&input, 1, NULL, 0);
    assert_int_equal(config_add(arena, &config, &info, &err), ST_BAD_MODEL);
    assert_non_null(strstr(err.text, "config.pbtxt says TYPE_FP32, the model TYPE_INT8"));
    input = (sluice_tensor_info){.name = "A", .datatype = SLUICE_FP32, .dims = ANY, .rank = 1};
    assert_int_equal(config_add(arena, &config, &info, &err), ST_BAD_MODEL);
    assert_non_null(strstr(err.text, "config.pbtxt says [4], the model [-1]"));
    info = info_of(NULL, 0, NULL, 0);
    info.max_batch_size = UINT64_MAX;
    assert_int_equal(config_add(arena, &config, &info, &err), ST_BAD_MODEL);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_add_keeps_tensors_and_adds_others),
        cmocka_unit_test(config_add_sequences_are_not_batched_otherwise),
        cmocka_unit_test(config_add_other_tensor_is_an_error),
    };
    return cmocka_run_group_tests_name("serve/config/config_add", tests, NULL, NULL);
}
