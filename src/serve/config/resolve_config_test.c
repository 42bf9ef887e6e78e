/* Combining configuration and model: defaults, contradictions, and when a model batches. */
#include "serve/config/resolve_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- models ---------------------------------------------------------------------------------- */

#define DIMS(...)                                                                                  \
    .dims = (const int64_t[]) {                                                                    \
        __VA_ARGS__                                                                                \
    }
#define SYMBOLS(...)                                                                               \
    .symbols = (const char *const[]) {                                                             \
        __VA_ARGS__                                                                                \
    }

enum { TENSORS = 3 };

struct model {
    /* ends at the first entry without a name */
    sluice_tensor_info inputs[TENSORS], outputs[TENSORS];
    int32_t takes_any;
    const char *platform;
};

/* Input x and an optional bias, one output with the same batch dimension. */
static const struct model batched = {
    .inputs = {{.name = "x", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2, SYMBOLS("N", "")},
               {.name = "bias",
                .datatype = SLUICE_FP32,
                DIMS(-1, 1),
                .rank = 2,
                SYMBOLS("N", ""),
                .optional = 1}},
    .outputs = {{.name = "y", .datatype = SLUICE_INT64, DIMS(-1, -1), .rank = 2, SYMBOLS("N", "k")},
                {.name = "z", .datatype = SLUICE_BYTES, DIMS(-1), .rank = 1, SYMBOLS("N")}},
    .platform = "onnxruntime_onnx",
};
static const struct model fixed = {
    .inputs = {{.name = "a", .datatype = SLUICE_INT8, DIMS(2, 3), .rank = 2},
               {.name = "b", .datatype = SLUICE_BOOL, .rank = 0}},
    .outputs = {{.name = "y", .datatype = SLUICE_INT8, DIMS(2, 3), .rank = 2}},
};
static const struct model flagged = {
    .inputs = {{.name = "flag", .datatype = SLUICE_INT32, DIMS(-1, 1), .rank = 2, SYMBOLS("N", "")},
               {.name = "x", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2, SYMBOLS("N", "")}},
    .outputs = {{.name = "y", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2, SYMBOLS("N", "")}},
};
#define SEQUENCES(name, says)                                                                      \
    "sequence_batching { control_input { name: \"" name "\" control { " says " } } }"
static const struct model recurrent = {
    .inputs = {{.name = "old", .datatype = SLUICE_FP32, DIMS(-1, -1), .rank = 2, SYMBOLS("N", "")},
               {.name = "x", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2, SYMBOLS("N", "")}},
    .outputs = {{.name = "new", .datatype = SLUICE_FP32, DIMS(-1, -1), .rank = 2, SYMBOLS("N", "")},
                {.name = "y", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2, SYMBOLS("N", "")}},
};
#define STATE(in, out, says)                                                                       \
    "sequence_batching { state { input_name: \"" in "\" output_name: \"" out "\" " says " } }"
#define ROWS "max_batch_size: 8 "
static const struct model nameless = {
    .inputs = {{.name = "x", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2}},
    .outputs = {{.name = "y", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2}},
};
static const struct model two_names = {
    .inputs = {{.name = "x", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2, SYMBOLS("N", "")}},
    .outputs = {{.name = "y", .datatype = SLUICE_FP32, DIMS(-1, 4), .rank = 2, SYMBOLS("M", "")}},
};
static const struct model empty_name = {
    .inputs = {{.name = "x", .datatype = SLUICE_FP32, DIMS(-1), .rank = 1, SYMBOLS("N")}},
    .outputs = {{.name = "y", .datatype = SLUICE_FP32, DIMS(-1), .rank = 1, SYMBOLS("")}},
};
static const struct model scalar_out = {
    .inputs = {{.name = "x", .datatype = SLUICE_FP32, DIMS(-1), .rank = 1, SYMBOLS("N")}},
    .outputs = {{.name = "mean", .datatype = SLUICE_FP32, .rank = 0}},
};
static const struct model no_inputs = {
    .outputs = {{.name = "y", .datatype = SLUICE_FP32, DIMS(-1), .rank = 1, SYMBOLS("N")}},
};
static const struct model any = {.takes_any = 1, .platform = "identity"};

static size_t count(const sluice_tensor_info infos[TENSORS]) {
    size_t n = 0;
    while (n < TENSORS && infos[n].name) {
        n++;
    }
    return n;
}

static enum status complete(struct arena *arena, const char *text, const struct model *model,
                            struct model_config *config, struct model_plan *plan,
                            struct error *err) {
    struct doc *doc = NULL;
    enum status st = doc_parse(DOC_PBTXT, "config.pbtxt", str_of(text), &doc, err);
    if (st == ST_OK) {
        st = model_config_read(arena, doc, NULL, config, err);
        doc_free(doc);
    }
    if (st != ST_OK) {
        fail_msg("%s: %s", text, err->text);
    }
    sluice_model_info info = {.size = sizeof(info),
                              .platform = model->platform,
                              .inputs = model->inputs,
                              .n_inputs = count(model->inputs),
                              .outputs = model->outputs,
                              .n_outputs = count(model->outputs),
                              .takes_any = model->takes_any};
    assert_int_equal(model_info_check(&info, err), ST_OK);
    config->name = STR("m");
    config->backend = config->backend.len > 0 ? config->backend : STR("fake");
    return resolve_config(arena, config, &info, 3, 64, plan, err);
}

/* ---- accepted -------------------------------------------------------------------------------- */

struct good {
    const char *config;
    const struct model *model;
    uint64_t max_batch_size;
    const char *reason;
    const char *tensors; /* of the specification */
    const char *plan;    /* indices of inputs | of outputs, reshapes | order of the inputs */
};

static const struct good goods[] = {
    /* nothing configured */
    {"", &batched, 64, "dynamic and named \"N\"; 64 is --default-max-batch-size",
     "x FP32 [-1,4], bias? FP32 [-1,1] -> y INT64 [-1,-1], z BYTES [-1]", "0 1 | 0 1 | 0 1"},
    {"", &fixed, 0, "the first dimension of input \"a\" is fixed at 2",
     "a INT8 [2,3], b BOOL [] -> y INT8 [2,3]", "0 1 | 0 | 0 1"},
    {"", &nameless, 0, "input \"x\" is dynamic but has no name", "x FP32 [-1,4] -> y FP32 [-1,4]",
     "0 | 0 | 0"},
    {"", &two_names, 0, "of input \"x\" is named \"N\", that of output \"y\" is named \"M\"",
     "x FP32 [-1,4] -> y FP32 [-1,4]", "0 | 0 | 0"},
    {"", &empty_name, 0, "of output \"y\" is dynamic but has no name", "x FP32 [-1] -> y FP32 [-1]",
     "0 | 0 | 0"},
    {"", &scalar_out, 0, "output \"mean\" has no dimensions", "x FP32 [-1] -> mean FP32 []",
     "0 | 0 | 0"},
    {"", &no_inputs, 0, "the model has no inputs", " -> y FP32 [-1]", " | 0 | "},
    {"instance_group { count: 2 }", &batched, 64, "named \"N\"",
     "x FP32 [-1,4], bias? FP32 [-1,1] -> y INT64 [-1,-1], z BYTES [-1]", "0 1 | 0 1 | 0 1"},
    /* a batch size configured */
    {"max_batch_size: 8", &nameless, 8, "max_batch_size is 8 in config.pbtxt",
     "x FP32 [-1,4] -> y FP32 [-1,4]", "0 | 0 | 0"},
    {"max_batch_size: 0", &batched, 0, "max_batch_size is 0 in config.pbtxt",
     "x FP32 [-1,4], bias? FP32 [-1,1] -> y INT64 [-1,-1], z BYTES [-1]", "0 1 | 0 1 | 0 1"},
    /* tensors configured */
    {"max_batch_size: 8 input { name: \"x\" data_type: TYPE_FP32 dims: 4 } output { name: \"z\" "
     "data_type: TYPE_STRING dims: 1 reshape { shape: [ ] } }",
     &batched, 8, "is 8", "x FP32 [-1,4] -> z BYTES [-1,1]", "0 | 1=[-1] | 0"},
    {"max_batch_size: 8 input [ { name: \"bias\" dims: 1 }, { name: \"x\" } ] output [ { name: "
     "\"z\" }, { name: \"y\" dims: 10 } ]",
     &batched, 8, "is 8", "bias FP32 [-1,1], x FP32 [-1,4] -> z BYTES [-1], y INT64 [-1,10]",
     "1 0 | 1 0 | 1 0"},
    {"max_batch_size: 8 input [ { name: \"x\" }, { name: \"bias\" optional: true } ]", &batched, 8,
     "is 8", "x FP32 [-1,4], bias? FP32 [-1,1] -> y INT64 [-1,-1], z BYTES [-1]",
     "0 1 | 0 1 | 0 1"},
    {"input { name: \"x\" dims: [ -1, 4 ] }", &batched, 0, "gives dims and no max_batch_size",
     "x FP32 [-1,4] -> y INT64 [-1,-1], z BYTES [-1]", "0 | 0 1 | 0"},
    {"input { name: \"x\" dims: [ 3, 4 ] }", &nameless, 0, "whole shapes",
     "x FP32 [3,4] -> y FP32 [-1,4]", "0 | 0 | 0"},
    {"input { name: \"x\" }", &batched, 64, "named \"N\"",
     "x FP32 [-1,4] -> y INT64 [-1,-1], z BYTES [-1]", "0 | 0 1 | 0"},
    {"max_batch_size: 4 input { name: \"x\" dims: [ 2, 2 ] reshape { shape: 4 } }", &nameless, 4,
     "is 4", "x FP32 [-1,2,2] -> y FP32 [-1,4]", "0=[-1,4] | 0 | 0"},
    {"max_batch_size: 4 output { name: \"mean\" dims: 7 }", &scalar_out, 4, "is 4",
     "x FP32 [-1] -> mean FP32 [-1,7]", "0 | 0 | 0"},
    /* one element for a tensor without dimensions */
    {"input [ { name: \"a\" }, { name: \"b\" dims: 1 } ]", &fixed, 0, "whole shapes",
     "a INT8 [2,3], b BOOL [1] -> y INT8 [2,3]", "0 1=[] | 0 | 0 1"},
    {"max_batch_size: 0 input [ { name: \"b\" dims: [ 1, 1 ] }, { name: \"a\" } ]", &fixed, 0,
     "is 0", "b BOOL [1,1], a INT8 [2,3] -> y INT8 [2,3]", "1=[] 0 | 0 | 1 0"},
    {"input [ { name: \"a\" }, { name: \"b\" dims: 1 reshape { shape: [ ] } } ]", &fixed, 0,
     "whole shapes", "a INT8 [2,3], b BOOL [1] -> y INT8 [2,3]", "0 1=[] | 0 | 0 1"},
    {"output { name: \"mean\" dims: 1 }", &scalar_out, 0, "whole shapes",
     "x FP32 [-1] -> mean FP32 [1]", "0 | 0 or [] | 0"},
    {"output { name: \"mean\" dims: 7 }", &scalar_out, 0, "whole shapes",
     "x FP32 [-1] -> mean FP32 [7]", "0 | 0 | 0"},
    {"max_batch_size: 4 output { name: \"mean\" dims: 1 }", &scalar_out, 4, "is 4",
     "x FP32 [-1] -> mean FP32 [-1,1]", "0 | 0 | 0"},
    /* a model that takes anything */
    {"max_batch_size: 2 input { name: \"i\" data_type: TYPE_FP32 dims: 16 } output { name: \"o\" "
     "data_type: TYPE_FP32 dims: 16 }",
     &any, 2, "is 2", "i FP32 [-1,16] -> o FP32 [-1,16]", "0 | 0 | 0"},
    {"input { name: \"i\" data_type: TYPE_FP32 dims: [ -1, 16 ] } output { name: \"o\" "
     "data_type: TYPE_FP32 dims: [ -1, 16 ] }",
     &any, 0, "whole shapes", "i FP32 [-1,16] -> o FP32 [-1,16]", "0 | 0 | 0"},
};

static void print_specs(struct buf *out, const struct tensor_spec *specs, size_t n) {
    char text[SHAPE_TEXT_BYTES];
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%.*s%s %s %s", i > 0 ? ", " : "", STR_ARG(specs[i].name),
                   specs[i].optional ? "?" : "", datatype_name(specs[i].datatype),
                   shape_print(specs[i].shape, text));
    }
}

static void print_plans(struct buf *out, const struct plan_tensor *plans, size_t n) {
    char text[SHAPE_TEXT_BYTES];
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%u%s%s", i > 0 ? " " : "", plans[i].index, plans[i].reshaped ? "=" : "",
                   plans[i].reshaped ? shape_print(plans[i].reshape, text) : "");
        buf_printf(out, "%s", plans[i].may_be_scalar ? " or []" : "");
    }
}

static void assert_printed(const struct good *row, const struct buf *out, const char *expected) {
    if (!str_is(buf_str(out), expected)) {
        fail_msg("%s\n  gives: %.*s\n  expected: %s", row->config, STR_ARG(buf_str(out)), expected);
    }
}

static void check_good(const struct good *row, const struct model_config *config,
                       const struct model_plan *plan, struct arena *arena) {
    const struct model_spec *spec = &plan->spec;
    struct buf tensors, indices;
    buf_init(&tensors, arena, 0);
    buf_init(&indices, arena, 0);
    print_specs(&tensors, spec->inputs, spec->n_inputs);
    buf_printf(&tensors, " -> ");
    print_specs(&tensors, spec->outputs, spec->n_outputs);
    print_plans(&indices, plan->inputs, spec->n_inputs);
    buf_printf(&indices, " | ");
    print_plans(&indices, plan->outputs, spec->n_outputs);
    buf_printf(&indices, " | ");
    for (size_t i = 0; i < spec->n_inputs; i++) {
        buf_printf(&indices, "%s%u", i > 0 ? " " : "", plan->input_order[i]);
    }
    assert_printed(row, &tensors, row->tensors);
    assert_printed(row, &indices, row->plan);
    assert_int_equal(spec->max_batch_size, row->max_batch_size);
    assert_int_equal(config->max_batch_size, row->max_batch_size);
    if (!strstr(config->batch_reason, row->reason)) {
        fail_msg("%s\n  because: %s\n  expected: %s", row->config, config->batch_reason,
                 row->reason);
    }
    assert_true(str_is(spec->version_text, "3"));
    assert_true(str_is(spec->platform, row->model->platform ? row->model->platform : "fake"));
}

static void resolve_config_valid_pairs_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(goods) / sizeof(goods[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct model_config config;
        struct model_plan plan;
        struct error err;
        if (complete(arena, goods[i].config, goods[i].model, &config, &plan, &err) != ST_OK) {
            fail_msg("%s: %s", goods[i].config, err.text);
        }
        check_good(&goods[i], &config, &plan, arena);
        arena_free(arena);
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

struct bad {
    const char *config;
    const struct model *model;
    const char *says;
};

static void resolve_config_control_input_is_hidden_from_clients(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct model_plan plan;
    struct error err = {.text = ""};
    assert_int_equal(complete(arena, SEQUENCES("flag", "int32_false_true: [ 0, 1 ]"), &flagged,
                              &config, &plan, &err),
                     ST_OK);
    assert_int_equal(config.max_batch_size, 64);
    assert_int_equal(config.n_inputs, 1);
    assert_int_equal(plan.spec.n_inputs, 1);
    assert_string_equal(plan.spec.inputs[0].name.ptr, "x");
    assert_int_equal(plan.inputs[0].index, 1);
    assert_int_equal(plan.n_controls, 1);
    assert_int_equal(plan.controls[0].index, 0);
    arena_free(arena);
}

static void resolve_config_state_is_hidden_from_clients(void **state) {
    static const char first[] = "data_type: TYPE_FP32 dims: -1 initial_state { "
                                "data_type: TYPE_FP32 dims: 5 zero_data: true }";
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct model_plan plan;
    struct error err = {.text = ""};
    char text[512], shape[SHAPE_TEXT_BYTES];
    snprintf(text, sizeof(text), ROWS STATE("old", "new", "%s"), first);
    assert_int_equal(complete(arena, text, &recurrent, &config, &plan, &err), ST_OK);
    assert_int_equal(plan.spec.n_inputs, 1);
    assert_string_equal(plan.spec.inputs[0].name.ptr, "x");
    assert_int_equal(plan.spec.n_outputs, 1);
    assert_string_equal(plan.spec.outputs[0].name.ptr, "y");
    assert_int_equal(plan.n_states, 1);
    assert_int_equal(plan.states[0].input, 0);
    assert_int_equal(plan.states[0].output, 0);
    assert_string_equal(shape_print(plan.states[0].spec.shape, shape), "[-1,-1]");
    assert_string_equal(shape_print(plan.states[0].first_shape, shape), "[1,5]");
    arena_free(arena);
}

/* They follow the tensors that the configuration lists; an output that it lists has its number. */
static void resolve_config_states_of_any_tensors_are_numbered(void **state) {
    static const char text[] =
        "input { name: \"i\" data_type: TYPE_INT8 dims: 1 }\n"
        "output [ { name: \"o\" data_type: TYPE_INT8 dims: 1 },\n"
        "         { name: \"b\" data_type: TYPE_INT8 dims: 1 } ]\n"
        "sequence_batching { control_input { name: \"c\" control { int32_false_true: [ 0, 1 ] } }\n"
        "  state [ { input_name: \"s\" output_name: \"a\" data_type: TYPE_INT8 dims: [ -1, 2 ] },\n"
        "          { input_name: \"t\" output_name: \"b\" data_type: TYPE_INT8 dims: 1 } ] }\n";
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct model_plan plan;
    struct error err = {.text = ""};
    char shape[SHAPE_TEXT_BYTES];
    assert_int_equal(complete(arena, text, &any, &config, &plan, &err), ST_OK);
    assert_int_equal(plan.controls[0].index, 1);
    assert_int_equal(plan.states[0].input, 2);
    assert_int_equal(plan.states[0].output, 2);
    assert_string_equal(shape_print(plan.states[0].first_shape, shape), "[1,2]");
    assert_int_equal(plan.states[1].input, 3);
    assert_int_equal(plan.states[1].output, 1);
    arena_free(arena);
}

static const struct bad bads[] = {
    {"max_batch_size: 8", &fixed, "input \"a\" of the model has the shape [2,3], whose first"},
    {"max_batch_size: 8 input { name: \"x\" }", &scalar_out,
     "output \"mean\": the model does not say its shape"},
    {"input { name: \"q\" dims: 4 }", &batched,
     "input \"q\": the model has no input of that name; it has \"x\", \"bias\""},
    {"output { name: \"x\" }", &batched, "output \"x\": the model has no output of that name"},
    {"input { name: \"bias\" }", &batched, "the model needs input \"x\""},
    {"input [ { name: \"a\" } ]", &fixed, "the model needs input \"b\""},
    {"input { name: \"x\" data_type: TYPE_FP64 }", &batched,
     "input \"x\": config.pbtxt says TYPE_FP64, the model has TYPE_FP32"},
    {"max_batch_size: 8 input { name: \"x\" dims: 5 }", &batched,
     "input \"x\": config.pbtxt makes its shape [-1,5] (the batch dimension and dims), the model "
     "has [-1,4]"},
    {"input { name: \"x\" dims: [ -1, -1 ] }", &batched, "its shape [-1,-1], the model has [-1,4]"},
    {"input { name: \"x\" dims: 4 }", &batched, "its shape [4], the model has [-1,4]"},
    {"input [ { name: \"a\" }, { name: \"b\" dims: 2 } ]", &fixed,
     "its shape [2], the model has [], one element: dims: [ 1 ]"},
    {"input [ { name: \"a\" }, { name: \"b\" dims: -1 } ]", &fixed,
     "its shape [-1], the model has []"},
    {"output { name: \"y\" dims: [ 2, 4 ] }", &fixed, "its shape [2,4], the model has [2,3]"},
    {"max_batch_size: 4 input { name: \"x\" dims: [ 2, 3 ] reshape { shape: 6 } }", &nameless,
     "its shape [-1,6] (the batch dimension and dims) by its reshape, the model has [-1,4]"},
    {"max_batch_size: 8 input { name: \"x\" optional: true }", &batched, "cannot do without it"},
    {"max_batch_size: 8 dynamic_batching { preferred_batch_size: 9 }", &batched,
     "preferred_batch_size 9 is above max_batch_size, 8"},
    {ROWS STATE("older", "new", "data_type: TYPE_FP32 dims: 7"), &recurrent,
     "state[0] in config.pbtxt, line 1: input_name \"older\": the model has no input of that name"},
    {ROWS STATE("old", "newer", "data_type: TYPE_FP32 dims: 7"), &recurrent,
     "output_name \"newer\": the model has no output of that name; it has \"new\", \"y\""},
    {ROWS STATE("old", "new", "data_type: TYPE_FP16 dims: 7"), &recurrent,
     "input_name \"old\": config.pbtxt says TYPE_FP16, the model has TYPE_FP32"},
    {ROWS STATE("old", "y", "data_type: TYPE_FP32 dims: 7"), &recurrent,
     "output_name \"y\": config.pbtxt makes its shape [-1,7] (the batch dimension and dims)"},
    {ROWS STATE("old", "new", "data_type: TYPE_FP32 dims: [ 7, 1 ]"), &recurrent,
     "input_name \"old\": config.pbtxt makes its shape [-1,7,1]"},
    {SEQUENCES("q", "int32_false_true: [ 0, 1 ]"), &flagged,
     "control_input \"q\": the model has no input of that name"},
    {SEQUENCES("flag", "fp32_false_true: [ 0, 1 ]"), &flagged,
     "control_input \"flag\": config.pbtxt fills it with TYPE_FP32, the model has TYPE_INT32"},
    {"max_batch_size: 0 " SEQUENCES("flag", "int32_false_true: [ 0, 1 ]"), &flagged,
     "control_input \"flag\": the server fills it with the shape [1], the model has [-1,1]"},
    {"", &any, "must list each input"},
    {"input { name: \"i\" data_type: TYPE_FP32 dims: 1 }", &any, "must list each output"},
    {"input { name: \"i\" dims: 1 }", &any, "input \"i\": this backend's models take any"},
    {"input { name: \"i\" data_type: TYPE_FP32 }", &any, "must give its data_type and dims"},
};

static void resolve_config_contradiction_names_both_sides(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct model_config config;
        struct model_plan plan;
        struct error err = {.text = ""};
        if (complete(arena, bads[i].config, bads[i].model, &config, &plan, &err) != ST_BAD_MODEL) {
            fail_msg("accepted: %s", bads[i].config);
        }
        if (!strstr(err.text, bads[i].says)) {
            fail_msg("%s\n  gives: %s\n  which lacks: %s", bads[i].config, err.text, bads[i].says);
        }
        arena_free(arena);
    }
}

/* ---- invalid model descriptions -------------------------------------------------------------- */

struct broken {
    sluice_tensor_info inputs[TENSORS];
    size_t n_inputs, n_outputs;
    const char *says;
};

static const struct broken brokens[] = {
    {{{.name = "", .datatype = SLUICE_FP32}}, 1, 1, "input 0 of the model has no proper name"},
    {{{.name = NULL, .datatype = SLUICE_FP32}}, 1, 1, "no proper name"},
    {{{.name = "\xff", .datatype = SLUICE_FP32}}, 1, 1, "no proper name"},
    {{{.name = "a", .datatype = (sluice_datatype)0}}, 1, 1, "datatype number 0 is unknown"},
    {{{.name = "a", .datatype = (sluice_datatype)15}}, 1, 1, "datatype number 15 is unknown"},
    {{{.name = "a", .datatype = SLUICE_FP32, .rank = 65, DIMS(1)}}, 1, 1, "got 65"},
    {{{.name = "a", .datatype = SLUICE_FP32, .rank = 1}}, 1, 1, "without their sizes"},
    {{{.name = "a", .datatype = SLUICE_FP32, .rank = 1, DIMS(-2)}}, 1, 1, "is -2"},
    {{{.name = "a", .datatype = SLUICE_FP32}, {.name = "a", .datatype = SLUICE_FP32}},
     2,
     1,
     "two of that name"},
    {{{.name = "a", .datatype = SLUICE_FP32}}, 1, 0, "no outputs"},
};

static void model_info_check_invalid_description_is_backend_error(void **state) {
    static const sluice_tensor_info outputs[1] = {{.name = "y", .datatype = SLUICE_FP32}};
    (void)state;
    for (size_t i = 0; i < sizeof(brokens) / sizeof(brokens[0]); i++) {
        struct error err = {.text = ""};
        sluice_model_info info = {.size = sizeof(info),
                                  .inputs = brokens[i].inputs,
                                  .n_inputs = brokens[i].n_inputs,
                                  .outputs = outputs,
                                  .n_outputs = brokens[i].n_outputs};
        assert_int_equal(model_info_check(&info, &err), ST_BACKEND_FAILED);
        if (!strstr(err.text, brokens[i].says)) {
            fail_msg("\"%s\" lacks \"%s\"", err.text, brokens[i].says);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolve_config_valid_pairs_by_table),
        cmocka_unit_test(resolve_config_control_input_is_hidden_from_clients),
        cmocka_unit_test(resolve_config_state_is_hidden_from_clients),
        cmocka_unit_test(resolve_config_states_of_any_tensors_are_numbered),
        cmocka_unit_test(resolve_config_contradiction_names_both_sides),
        cmocka_unit_test(model_info_check_invalid_description_is_backend_error),
    };
    return cmocka_run_group_tests_name("serve/config/resolve_config", tests, NULL, NULL);
}
