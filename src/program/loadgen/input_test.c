/* Given and generated inputs. */
#include "program/loadgen/input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/buf.h"
#include "core/tensor/bytes.h"
#include "core/tensor/float16.h"

static const int64_t image_dims[] = {-1, 2, 2}, text_dims[] = {-1, 1}, fixed_dims[] = {3},
                     free_dims[] = {-1, -1, 4};
static const struct tensor_spec specs[] = {
    {.name = {"image", 5}, .datatype = DT_FP32, .shape = {image_dims, 3}},
    {.name = {"text", 4}, .datatype = DT_BYTES, .shape = {text_dims, 2}},
    {.name = {"fixed", 5}, .datatype = DT_INT64, .shape = {fixed_dims, 1}},
    {.name = {"free", 4}, .datatype = DT_UINT8, .shape = {free_dims, 3}}};

/* "image FP32 [1,2,2] 16; …": the inputs that the arguments make for a model of the specs first
 * to last. */
static enum status make(struct arena *arena, const char *line, size_t first, size_t last,
                        struct buf *out, struct error *err) {
    char bench[] = "bench";
    char *argv[32] = {bench};
    int argc = 1;
    const struct tensor *inputs;
    struct str rest = str_of(line);
    struct bench_settings *settings = arena_calloc(arena, 1, sizeof(*settings));
    while (rest.ptr) {
        argv[argc++] = (char *)(uintptr_t)arena_dup(arena, str_cut(&rest, '|')).ptr;
    }
    assert_int_equal(bench_settings_read(argc, argv, arena, settings), -1);
    struct model_spec model = {
        .name = STR("m"), .inputs = specs + first, .n_inputs = last - first + 1};
    enum status status = bench_inputs_read(arena, &settings->options, &model, &inputs, err);
    for (size_t i = 0; i < model.n_inputs && status == ST_OK; i++) {
        char shape[SHAPE_TEXT_BYTES];
        buf_printf(out, "%s%.*s %s %s %zu", i > 0 ? "; " : "", STR_ARG(inputs[i].name),
                   datatype_name(inputs[i].datatype), shape_print(inputs[i].shape, shape),
                   inputs[i].n_bytes);
    }
    return status;
}

static void input_shapes_follow_flags_and_model(void **state) {
    (void)state;
    static const struct {
        const char *line;
        size_t first, last;
        const char *is;
    } rows[] = {
        {"http://h|m", 0, 2, "image FP32 [1,2,2] 16; text BYTES [1,1] 20; fixed INT64 [3] 24"},
        {"http://h|m|--batch|3", 0, 1, "image FP32 [3,2,2] 48; text BYTES [3,1] 60"},
        {"http://h|m|--data|zeros", 0, 1, "image FP32 [1,2,2] 16; text BYTES [1,1] 4"},
        {"http://h|m|--text-size|0", 1, 1, "text BYTES [1,1] 4"},
        {"http://h|m", 3, 3, "free UINT8 [1,1,4] 4"},
        {"http://h|m|--shape|free=5,4", 3, 3, "free UINT8 [1,5,4] 20"},
        {"http://h|m|--shape|free:5,4|-b|2", 3, 3, "free UINT8 [2,5,4] 40"},
        {"http://h|m|--shape|free=2,5,4", 3, 3, "free UINT8 [2,5,4] 40"},
        {"http://h|m|--shape|free=2,0,4", 3, 3, "free UINT8 [2,0,4] 0"},
        {"http://h|m|--input|image=[[1,2],[3,4]]", 0, 0, "image FP32 [1,2,2] 16"},
        {"http://h|m|--input|image=[[1,2],[3,4]]|-b|3", 0, 0, "image FP32 [3,2,2] 48"},
        {"http://h|m|--input|image=[[[1,2],[3,4]],[[1,2],[3,4]]]|-b|2", 0, 0,
         "image FP32 [2,2,2] 32"},
        {"http://h|m|--input|text=hello", 0, 1, "image FP32 [1,2,2] 16; text BYTES [1,1] 9"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct error err = {0};
        struct buf out;
        buf_init(&out, arena, 0);
        if (make(arena, rows[i].line, rows[i].first, rows[i].last, &out, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].line, err.text);
        }
        if (!str_is(buf_str(&out), rows[i].is)) {
            fail_msg("%s: %.*s", rows[i].line, STR_ARG(buf_str(&out)));
        }
        arena_free(arena);
    }
}

static void input_invalid_refused(void **state) {
    (void)state;
    static const struct {
        const char *line;
        size_t first, last;
        const char *says;
    } rows[] = {
        {"http://h|m|--input|imgae=1", 0, 0,
         "--input: model \"m\" has no input \"imgae\"; did you mean \"image\"? (it "
         "has: image)"},
        {"http://h|m|--input|image", 0, 0, "--input image: expected NAME=SOURCE"},
        {"http://h|m|--input|image=1|--input|image=2", 0, 0, "--input is given twice"},
        {"http://h|m|--shape|image", 0, 0, "--shape image: expected NAME=DIMS"},
        {"http://h|m|--shape|x=1", 0, 0, "has no input \"x\""},
        {"http://h|m|--shape|image=a", 0, 0, "--shape image: expected"},
        {"http://h|m|--shape|image=3,3", 0, 0, "[3,3] does not fit the model's [-1,2,2]"},
        {"http://h|m|--shape|image=2", 0, 0, "[2] does not fit the model's [-1,2,2]"},
        {"http://h|m|--shape|image=1,1,2,2", 0, 0, "does not fit the model's [-1,2,2]"},
        {"http://h|m|--shape|fixed=4", 2, 2, "[4] does not fit the model's [3]"},
        {"http://h|m|--batch|2", 2, 2, "input \"fixed\" is 3; the model takes no batches"},
        {"http://h|m|--batch|3|--shape|image=2,2,2", 0, 0, "is 2 as --shape says"},
        {"http://h|m|--input|image=[1,2,3]", 0, 0, "input \"image\""},
        {"http://h|m|-b|3|--input|image=[[[1,2],[3,4]],[[1,2],[3,4]]]", 0, 0,
         "given with a first dimension of 2"},
        {"http://h|m|-b|2|--input|fixed=[1,2,3]", 2, 2, "given with a first dimension of 3"},
        {"http://h|m|--shape|free=9223372036854775807,4", 3, 3, "too many elements"},
        {"http://h|m|--shape|free=1152921504606846976,4", 3, 3, "too many elements"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, (size_t)1 << 30);
        struct error err = {0};
        struct buf out;
        buf_init(&out, arena, 0);
        assert_int_not_equal(make(arena, rows[i].line, rows[i].first, rows[i].last, &out, &err),
                             ST_OK);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%s: \"%s\" without \"%s\"", rows[i].line, err.text, rows[i].says);
        }
        arena_free(arena);
    }
}

/* The value of one element as a number. */
static double value_of(const char *at, enum datatype datatype) {
    uint64_t bits = 0;
    float f32;
    double f64 = 0;
    memcpy(&bits, at, datatype_size(datatype)); /* little-endian, as the host */
    if (datatype == DT_FP16) {
        return (double)half_to_float((uint16_t)bits);
    }
    if (datatype == DT_BF16) {
        return (double)bfloat_to_float((uint16_t)bits);
    }
    if (datatype == DT_FP32) {
        memcpy(&f32, at, sizeof(f32));
        return (double)f32;
    }
    memcpy(&f64, at, datatype_size(datatype) == sizeof(f64) ? sizeof(f64) : 0);
    return datatype == DT_FP64 ? f64 : (double)bits;
}

static void input_random_data_is_within_bounds(void **state) {
    (void)state;
    static const int64_t dims[] = {1000};
    struct shape shape = {dims, 1};
    for (enum datatype datatype = DT_BOOL; datatype < DT_COUNT_; datatype++) {
        struct arena *arena = arena_new(NULL, 0);
        struct prng random = {.state = 5}, again = {.state = 5};
        struct bench_data_options fill = {.text_size = 3, .random = &random};
        struct bench_data_options fill_again = {.text_size = 3, .random = &again};
        struct str bytes, same;
        struct error err = {0};
        size_t size = datatype_size(datatype);
        double least = 1e9, most = -1;
        assert_int_equal(bench_data_generate(arena, &fill, datatype, shape, &bytes, &err), ST_OK);
        assert_int_equal(bench_data_generate(arena, &fill_again, datatype, shape, &same, &err),
                         ST_OK);
        assert_true(str_eq(bytes, same));
        if (datatype == DT_BYTES) {
            assert_int_equal(bytes_check(bytes, 1000, STR("x"), &err), ST_OK);
        } else {
            assert_int_equal(bytes.len, 1000 * size);
        }
        for (size_t at = 0; size > 0 && at < bytes.len; at += size) {
            double value = value_of(bytes.ptr + at, datatype);
            least = value < least ? value : least;
            most = value > most ? value : most;
        }
        double top = datatype == DT_BOOL || datatype_is_float(datatype) ? 1 : 100;
        if (size > 0 && (least < 0 || least > top * 0.1 || most > top || most < top * 0.9)) {
            fail_msg("%s: from %g to %g", datatype_name(datatype), least, most);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_shapes_follow_flags_and_model),
        cmocka_unit_test(input_invalid_refused),
        cmocka_unit_test(input_random_data_is_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
