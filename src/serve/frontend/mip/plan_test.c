/* Plans of shapes and settings, compared as the text of --check; errors and their texts. */
#include "serve/frontend/mip/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/config/config.h"
#include "serve/repository/test_dir.h"

enum { MAX_PARAMS = 6, MAX_DIMS = 6 };

struct tensor_row {
    const char *name;
    enum datatype datatype;
    int64_t dims[MAX_DIMS]; /* of an element; terminated by 0 */
    const char *label_filename;
};

struct param_row {
    const char *name, *value;
};

/* A model with one or two inputs and outputs. */
struct model_row {
    struct tensor_row in[2], out[2];
    struct param_row params[MAX_PARAMS];
};

/* The arguments of mip_plan_new. */
struct made {
    struct arena *arena;
    struct model_spec spec;
    struct model_config config;
    struct tensor_spec inputs[2], outputs[2];
    int64_t dims[4][MAX_DIMS + 1];
    struct model_config_tensor config_outputs[2];
    struct model_config_param params[MAX_PARAMS];
    struct error err;
};

static size_t make_tensors(const struct tensor_row *rows, bool batches, struct tensor_spec *out,
                           int64_t (*dims)[MAX_DIMS + 1]) {
    size_t n = 0;
    for (; n < 2 && rows[n].name; n++) {
        size_t rank = 0;
        if (batches) {
            dims[n][rank++] = -1;
        }
        for (size_t i = 0; i < MAX_DIMS && rows[n].dims[i] != 0; i++) {
            dims[n][rank++] = rows[n].dims[i];
        }
        out[n] = (struct tensor_spec){
            .name = str_of(rows[n].name), .datatype = rows[n].datatype, .shape = {dims[n], rank}};
    }
    return n;
}

static enum status make(const struct model_row *row, bool batches, const char *directory,
                        struct made *made, const struct mip_plan **plan) {
    *made = (struct made){.arena = arena_new(NULL, 0)};
    made->spec.name = STR("m");
    made->spec.max_batch_size = batches ? 8 : 0;
    made->spec.inputs = made->inputs;
    made->spec.n_inputs = make_tensors(row->in, batches, made->inputs, made->dims);
    made->spec.outputs = made->outputs;
    made->spec.n_outputs = make_tensors(row->out, batches, made->outputs, made->dims + 2);
    for (size_t i = 0; i < made->spec.n_outputs; i++) {
        made->config_outputs[i].label_filename = str_of(row->out[i].label_filename);
    }
    made->config.outputs = made->config_outputs;
    made->config.n_outputs = made->spec.n_outputs;
    made->config.params = made->params;
    for (size_t i = 0; i < MAX_PARAMS && row->params[i].name; i++) {
        made->params[made->config.n_params++] =
            (struct model_config_param){str_of(row->params[i].name), str_of(row->params[i].value),
                                        strncmp(row->params[i].value, "/", 1) == 0};
    }
    return mip_plan_new(made->arena, &made->spec, &made->config, str_of(directory), plan,
                        &made->err);
}

#define IN(...) .in = {{__VA_ARGS__}}
#define OUT .out = {{"y", DT_FP32, {4}, NULL}}

static const struct {
    struct model_row model;
    const char *input, *output; /* the beginning of the first line of each, after the name */
} plans[] = {
    /* shapes */
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT},
     "JSON; pictures become 28x28 grey (stretch, filter auto)",
     "JSON"},
    {{IN("x", DT_FP32, {3, 20, 30}, NULL), OUT},
     "JSON; pictures become 30x20 rgb (stretch, filter auto, nchw)",
     "JSON"},
    {{IN("x", DT_UINT8, {20, 30, 3}, NULL), OUT},
     "JSON; pictures become 30x20 rgb (stretch, filter auto, nhwc)",
     "JSON"},
    {{IN("x", DT_FP16, {1, 20, 30}, NULL), OUT},
     "JSON; pictures become 30x20 grey (stretch, filter auto)",
     "JSON"},
    {{IN("x", DT_BF16, {20, 30, 1}, NULL), OUT},
     "JSON; pictures become 30x20 grey (stretch, filter auto)",
     "JSON"},
    {{IN("x", DT_FP32, {1, 3, 20, 30}, NULL), OUT},
     "JSON; pictures become 30x20 rgb (stretch, filter auto, nchw)",
     "JSON"},
    {{IN("x", DT_FP32, {1, -1, 20, 30, 3}, NULL), OUT},
     "JSON; pictures become 30x20 rgb (stretch, filter auto, nhwc)",
     "JSON"},
    {{IN("x", DT_FP32, {4}, NULL), OUT},
     "JSON; no pictures: its shape [4] is not that of a picture",
     ""},
    {{IN("x", DT_FP32, {2, 20, 30}, NULL), OUT}, "JSON; no pictures: its shape [2,20,30] is", ""},
    {{IN("x", DT_FP32, {2, 3, 20, 30}, NULL), OUT}, "JSON; no pictures: its shape [2,3,20,", ""},
    {{IN("x", DT_BOOL, {28, 28}, NULL), OUT}, "JSON; no pictures: BOOL is not a datatype", ""},
    {{IN("x", DT_FP32, {3, -1, -1}, NULL), OUT},
     "JSON; no pictures: its shape does not set the height of a picture; set mip.size",
     ""},
    {{IN("x", DT_BYTES, {1}, NULL), OUT}, "TEXT, JSON; pictures as the files they are", "JSON"},
    {{IN("x", DT_BYTES, {-1}, NULL), OUT}, "TEXT, JSON; pictures as the files they are", "JSON"},
    {{IN("x", DT_BYTES, {2}, NULL), OUT}, "TEXT, JSON; no pictures: its shape [2] is not one", ""},
    /* settings */
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.scale", "1/256"}}},
     "JSON; pictures become 28x28 grey (stretch, filter auto, scale 0.00390625)",
     ""},
    {{IN("x", DT_FP32, {3, -1, -1}, NULL),
      OUT,
      {{"mip.size", "30x20"},
       {"mip.color", "bgr"},
       {"mip.fit", "crop"},
       {"mip.filter", "lanczos"},
       {"mip.mean", "0.5, 0.25 ,1/8"},
       {"mip.std", "2"}}},
     "JSON; pictures become 30x20 bgr (crop, filter lanczos, nchw, mean 0.5 0.25 0.125, std 2)",
     ""},
    {{IN("x", DT_FP32, {-1, -1, -1}, NULL),
      OUT,
      {{"mip.size", "16"}, {"mip.layout", "nhwc"}, {"mip.color", "grey"}}},
     "JSON; pictures become 16x16 grey",
     ""},
    {{IN("x", DT_FP32, {3, 20, 3}, NULL), OUT, {{"mip.layout", "nhwc"}}},
     "JSON; pictures become 20x3 rgb (stretch, filter auto, nhwc)",
     ""},
    {{IN("x", DT_FP32, {3, 20, 3}, NULL), OUT},
     "JSON; pictures become 3x20 rgb (stretch, filter auto, nchw)",
     ""},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.fit", "pad"}, {"mip.x.fit", "crop"}}},
     "JSON; pictures become 28x28 grey (crop",
     ""},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.x.fit", "crop"}, {"mip.fit", "pad"}}},
     "JSON; pictures become 28x28 grey (crop",
     ""},
    {{IN("a.b", DT_FP32, {28, 28}, NULL), OUT, {{"mip.a.b.fit", "crop"}}},
     "JSON; pictures become 28x28 grey (crop",
     ""},
    /* outputs */
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.softmax", "true"}}}, "", "JSON, after softmax"},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.top_k", "3"}, {"mip.softmax", "true"}}},
     "",
     "JSON, the 3 best after softmax by index"},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.top_k", "3"}, {"mip.y.top_k", "0"}}}, "", "JSON\n"},
    {{IN("x", DT_FP32, {4}, NULL), .out = {{"y", DT_BYTES, {1}, NULL}}},
     "",
     "TEXT where it is one element, else JSON"},
    {{IN("x", DT_FP32, {4}, NULL),
      .out = {{"y", DT_FP32, {4}, "labels.txt"}},
      {{"mip.top_k", "2"}}},
     "",
     "JSON, the 2 best by 4 labels"},
    {{IN("x", DT_FP32, {4}, NULL),
      .out = {{"y", DT_FP32, {4}, "missing.txt"}},
      {{"mip.top_k", "2"}, {"mip.labels", "labels.txt"}}},
     "",
     "JSON, the 2 best by 4 labels"},
    /* labels without top_k are not loaded */
    {{IN("x", DT_FP32, {4}, NULL), .out = {{"y", DT_FP32, {4}, "missing.txt"}}}, "", "JSON\n"},
};

static void write_labels(struct test_dir *dir) {
    test_dir_make(dir);
    test_dir_add(dir, "labels.txt", "a\nb\nc\nd\n");
    test_dir_add(dir, "three.txt", "a\nb\nc");
}

/* Checks that the line of `kind` in `text` continues with `expected` after the tensor's name. */
static void check_line(size_t i, const char *text, const char *kind, const char *expected) {
    const char *line = strstr(text, kind);
    const char *rest = line ? strstr(line + strlen(kind), "  ") : NULL;
    rest = rest ? strpbrk(rest, "xya") : NULL;
    rest = rest ? strstr(rest, "  ") : NULL;
    if (!rest || strncmp(rest + 2, expected, strlen(expected)) != 0) {
        fail_msg("row %zu: expected \"%s\" at the %s of:\n%s", i, expected, kind, text);
    }
}

static void plan_each_model_prints_expected_lines(void **state) {
    (void)state;
    struct test_dir dir;
    write_labels(&dir);
    for (size_t i = 0; i < 2 * (sizeof(plans) / sizeof(plans[0])); i++) {
        struct made made;
        struct buf text;
        const struct mip_plan *plan;
        if (make(&plans[i / 2].model, i % 2, dir.path, &made, &plan) != ST_OK) {
            fail_msg("row %zu: %s", i / 2, made.err.text);
        }
        buf_init(&text, made.arena, 0);
        mip_plan_print(plan, &text);
        buf_add_char(&text, '\0');
        check_line(i / 2, text.data, "inputs", plans[i / 2].input);
        check_line(i / 2, text.data, "outputs", plans[i / 2].output);
        assert_int_equal(plan->max_batch, i % 2 ? 8 : 1);
        arena_free(made.arena);
    }
    test_dir_remove(&dir);
}

/* Errors, with words that the message must contain. */
static const struct {
    struct model_row model;
    const char *says[3];
} refusals[] = {
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.colour", "grey"}}},
     {"parameter mip.colour", "did you mean \"color\"?"}},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.frobnicate", "1"}}},
     {"those of inputs are color, fit", "those of outputs softmax"}},
    {{IN("image", DT_FP32, {28, 28}, NULL), OUT, {{"mip.imgae.fit", "crop"}}},
     {"the model has no input \"imgae\"", "did you mean \"image\"?"}},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.x.softmax", "true"}}},
     {"parameter mip.x.softmax", "the model has no output \"x\""}},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.fit", "squeeze"}}},
     {"expected one of stretch, crop, pad, got \"squeeze\""}},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.scale", "1/0"}}}, {"mip.scale", "1/255"}},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.mean", "1,2"}}}, {"mip.mean", "three"}},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.x.mean", "1,2,3"}}},
     {"mip.x.mean", "for one channel"}},
    {{IN("x", DT_FP32, {28, 28}, NULL), OUT, {{"mip.color", "rgb"}}},
     {"no input can be a picture", "rgb needs 3 channels, its shape has 1"}},
    {{IN("x", DT_FP32, {3, 8, 8}, NULL), OUT, {{"mip.x.color", "grey"}}},
     {"mip.x.color", "grey needs 1 channel, its shape has 3"}},
    {{IN("x", DT_FP32, {3, 8, 8}, NULL), OUT, {{"mip.size", "8x9"}}},
     {"mip.size makes the height 9, its shape has 8"}},
    {{IN("x", DT_FP32, {3, -1, 70000}, NULL), OUT, {{"mip.size", "8"}}}, {"the width 8"}},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.color", "grey"}}},
     {"no input can be a picture", "input \"x\"", "its shape [4] is not that of a picture"}},
    {{IN("x", DT_BYTES, {1}, NULL), OUT, {{"mip.x.color", "grey"}}}, {"without settings"}},
    {{IN("x", DT_BYTES, {1}, NULL), OUT, {{"mip.color", "grey"}}}, {"takes files as they are"}},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.labels", "labels.txt"}}}, {"top_k must be set"}},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.top_k", "2"}, {"mip.labels", "three.txt"}}},
     {"MIP settings of output \"y\"", "three.txt has 3 labels, the output has 4 values"}},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.top_k", "2"}, {"mip.labels", "none.txt"}}},
     {"none.txt: No such file"}},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.top_k", "2"}, {"mip.labels", "../labels.txt"}}},
     {"inside its directory"}},
    {{IN("x", DT_FP32, {4}, NULL), OUT, {{"mip.top_k", "2"}, {"mip.labels", "/nowhere"}}},
     {"/nowhere: No such file"}}, /* the server's settings may name any file */
    {{IN("x", DT_FP32, {4}, NULL), .out = {{"y", DT_BYTES, {4}, NULL}}, {{"mip.top_k", "2"}}},
     {"output \"y\"", "values of BYTES are not scores"}},
    {{IN("x", DT_FP32, {4}, NULL), .out = {{"y", DT_BOOL, {4}, NULL}}, {{"mip.softmax", "true"}}},
     {"softmax: values of BOOL are not scores"}},
};

static void plan_each_bad_setting_is_refused(void **state) {
    (void)state;
    struct test_dir dir;
    write_labels(&dir);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct made made;
        const struct mip_plan *plan;
        if (make(&refusals[i].model, true, dir.path, &made, &plan) != ST_BAD_CONFIG) {
            fail_msg("row %zu was not refused", i);
        }
        for (size_t k = 0; k < 3 && refusals[i].says[k]; k++) {
            if (!strstr(made.err.text, refusals[i].says[k])) {
                fail_msg("row %zu: \"%s\" lacks \"%s\"", i, made.err.text, refusals[i].says[k]);
            }
        }
        arena_free(made.arena);
    }
    test_dir_remove(&dir);
}

/* Settings for all inputs apply to those that can be pictures; the others are not affected. */
static void plan_settings_for_all_apply_to_picture_inputs(void **state) {
    (void)state;
    static const struct model_row row = {
        .in = {{"text", DT_BYTES, {1}, NULL}, {"x", DT_FP32, {8, 8}, NULL}},
        .out = {{"y", DT_FP32, {4}, NULL}},
        .params = {{"mip.fit", "crop"}},
    };
    struct made made;
    const struct mip_plan *plan;
    assert_int_equal(make(&row, true, ".", &made, &plan), ST_OK);
    assert_int_equal(plan->inputs[0].pictures, MIP_PICTURES_AS_FILE);
    assert_int_equal(plan->inputs[1].pictures, MIP_PICTURES_DECODED);
    assert_int_equal(plan->inputs[1].picture.fit, PICTURE_CROP);
    assert_int_equal(plan->inputs[1].picture_bytes, 8 * 8 * 4);
    assert_true(mip_plan_decodes_pictures(plan));
    arena_free(made.arena);
}

/* The optional inputs after the last required one may be omitted. */
static void plan_trailing_optional_inputs_are_not_required(void **state) {
    (void)state;
    static const struct model_row row = {
        .in = {{"a", DT_FP32, {4}, NULL}, {"b", DT_FP32, {4}, NULL}},
        .out = {{"y", DT_FP32, {4}, NULL}},
    };
    static const struct {
        bool optional[2];
        size_t n_required;
    } cases[] = {{{false, false}, 2}, {{false, true}, 1}, {{true, false}, 2}, {{true, true}, 0}};
    for (size_t i = 0; i < 4; i++) {
        struct made made;
        const struct mip_plan *plan;
        assert_int_equal(make(&row, true, ".", &made, &plan), ST_OK);
        made.inputs[0].optional = cases[i].optional[0];
        made.inputs[1].optional = cases[i].optional[1];
        assert_int_equal(
            mip_plan_new(made.arena, &made.spec, &made.config, STR("."), &plan, &made.err), ST_OK);
        assert_int_equal(plan->n_required, cases[i].n_required);
        arena_free(made.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_each_model_prints_expected_lines),
        cmocka_unit_test(plan_each_bad_setting_is_refused),
        cmocka_unit_test(plan_settings_for_all_apply_to_picture_inputs),
        cmocka_unit_test(plan_trailing_optional_inputs_are_not_required),
    };
    return cmocka_run_group_tests_name("serve/frontend/mip/plan", tests, NULL, NULL);
}
