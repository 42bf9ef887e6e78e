/* Layouts of batches: what a configuration and a model make of each other, and what is refused. */
#include "serve/config/batch_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/config/resolve_config.h"

/* ---- models ---------------------------------------------------------------------------------- */

#define DIMS(...)                                                                                  \
    .dims = (const int64_t[]) {                                                                    \
        __VA_ARGS__                                                                                \
    }

enum { TENSORS = 4 };

struct model {
    sluice_tensor_info inputs[TENSORS], outputs[TENSORS]; /* ends at the first without a name */
    int32_t takes_any;
};

/* The elements in one dimension, beside three inputs that can be made. */
static const struct model ragged = {
    .inputs = {{.name = "x", .datatype = SLUICE_FP32, DIMS(-1), .rank = 1},
               {.name = "count", .datatype = SLUICE_INT32, DIMS(-1), .rank = 1},
               {.name = "shape", .datatype = SLUICE_FP32, DIMS(-1, 1), .rank = 2}},
    .outputs = {{.name = "y", .datatype = SLUICE_FP32, DIMS(-1, -1), .rank = 2}},
};
/* An encoder of texts: tokens, mask, length. */
static const struct model encoder = {
    .inputs = {{.name = "mask", .datatype = SLUICE_INT64, DIMS(-1, -1), .rank = 2},
               {.name = "ids", .datatype = SLUICE_INT64, DIMS(-1, -1), .rank = 2},
               {.name = "len", .datatype = SLUICE_INT32, DIMS(-1, 1), .rank = 2}},
    .outputs = {{.name = "states", .datatype = SLUICE_FP32, DIMS(-1, -1, 8), .rank = 3},
                {.name = "pooled", .datatype = SLUICE_FP32, DIMS(-1, 8), .rank = 2},
                {.name = "names", .datatype = SLUICE_BYTES, DIMS(-1, -1), .rank = 2}},
};
static const struct model any = {.takes_any = 1};

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
                              .inputs = model->inputs,
                              .n_inputs = count(model->inputs),
                              .outputs = model->outputs,
                              .n_outputs = count(model->outputs),
                              .takes_any = model->takes_any};
    config->name = STR("m");
    config->backend = STR("fake");
    return resolve_config(arena, config, &info, 1, 64, plan, err);
}

#define PARAM(key, value) "parameters { key: \"" key "\" value { string_value: \"" value "\" } } "
#define RAGGED "max_batch_size: 8 input { name: \"x\" dims: -1 allow_ragged_batch: true } "
#define SCATTER "output { name: \"y\" dims: -1 } "
#define COUNT                                                                                      \
    "batch_input { kind: BATCH_ELEMENT_COUNT target_name: \"count\" data_type: TYPE_INT32 "        \
    "source_input: \"x\" } "
#define SHAPE                                                                                      \
    "batch_input { kind: BATCH_ITEM_SHAPE target_name: \"shape\" data_type: TYPE_FP32 "            \
    "source_input: \"x\" } "
#define SCATTERED "batch_output { target_name: \"y\" source_input: \"x\" } "
#define PADDED "max_batch_size: 8 " PARAM("sluice.pad.ids", "0")
#define FILLED PARAM("sluice.pad_mask.mask", "ids") PARAM("sluice.pad_length.len", "ids")

/* ---- accepted -------------------------------------------------------------------------------- */

struct resolved {
    struct arena *arena;
    struct model_config config;
    struct model_plan plan;
    const struct batch_layout *layout;
};

static struct resolved resolve(const char *text, const struct model *model) {
    struct resolved resolved = {.arena = arena_new(NULL, 0)};
    struct error err;
    if (complete(resolved.arena, text, model, &resolved.config, &resolved.plan, &err) != ST_OK) {
        fail_msg("%s: %s", text, err.text);
    }
    resolved.layout = resolved.plan.layout;
    return resolved;
}

static void batch_layout_without_settings_is_none(void **state) {
    (void)state;
    struct resolved resolved = resolve("max_batch_size: 8", &encoder);
    assert_null(resolved.layout);
    arena_free(resolved.arena);
}

static void batch_layout_of_ragged_input_hides_made_inputs(void **state) {
    (void)state;
    struct resolved resolved = resolve(RAGGED SCATTER SHAPE COUNT SCATTERED, &ragged);
    const struct batch_layout *layout = resolved.layout;
    assert_int_equal(resolved.plan.spec.n_inputs, 1);
    assert_int_equal(resolved.plan.spec.inputs[0].shape.rank, 2);
    assert_int_equal(layout->inputs[0].kind, INPUT_RAGGED);
    assert_int_equal(layout->n_made, 2);
    assert_int_equal(layout->made[0].index, 1); /* in the model's order */
    assert_int_equal(layout->made[0].kind, BATCH_ELEMENT_COUNT);
    assert_int_equal(layout->made[1].index, 2);
    assert_string_equal(layout->made[1].name, "shape");
    assert_int_equal(layout->made[1].datatype, DT_FP32);
    assert_int_equal(layout->outputs[0].kind, OUTPUT_SCATTERED);
    assert_int_equal(layout->outputs[0].shape.rank, 2);
    assert_int_equal(layout->pad_multiple, 1);
    arena_free(resolved.arena);
}

static void batch_layout_of_encoder_makes_mask_and_length_optional(void **state) {
    (void)state;
    struct resolved resolved = resolve(PADDED FILLED PARAM("sluice.pad_cut.states", "ids")
                                           PARAM("sluice.pad_multiple", "16"),
                                       &encoder);
    const struct batch_layout *layout = resolved.layout;
    const struct tensor_spec *inputs = resolved.plan.spec.inputs;
    assert_true(inputs[0].optional && !inputs[1].optional && inputs[2].optional);
    assert_true(resolved.config.inputs[0].optional);
    assert_int_equal(layout->inputs[0].kind, INPUT_PADDED);
    assert_int_equal(layout->inputs[0].fill, FILL_MASK);
    assert_int_equal(layout->inputs[0].source, 1);
    assert_int_equal(layout->inputs[1].kind, INPUT_PADDED);
    assert_int_equal(layout->inputs[1].fill, FILL_NOTHING);
    assert_int_equal(layout->inputs[2].kind, INPUT_ROWS);
    assert_int_equal(layout->inputs[2].fill, FILL_LENGTH);
    assert_int_equal(layout->outputs[0].kind, OUTPUT_CUT);
    assert_int_equal(layout->outputs[0].source, 1);
    assert_int_equal(layout->outputs[1].kind, OUTPUT_ROWS);
    assert_int_equal(layout->pad_multiple, 16);
    arena_free(resolved.arena);
}

static void batch_layout_of_backend_that_takes_any_numbers_made_inputs_last(void **state) {
    (void)state;
    struct resolved resolved =
        resolve("max_batch_size: 8 input [ { name: \"x\" data_type: TYPE_STRING dims: -1 "
                "allow_ragged_batch: true }, { name: \"z\" data_type: TYPE_FP32 dims: 1 } ] "
                "output { name: \"y\" data_type: TYPE_STRING dims: -1 } " COUNT SCATTERED,
                &any);
    assert_int_equal(resolved.layout->made[0].index, 2);
    assert_int_equal(resolved.layout->n_inputs, 3);
    arena_free(resolved.arena);
}

/* ---- refused --------------------------------------------------------------------------------- */

struct bad {
    const char *config;
    const struct model *model;
    const char *says;
};

static const struct bad bads[] = {
    {"input { name: \"x\" dims: -1 allow_ragged_batch: true }", &ragged,
     "allow_ragged_batch of input \"x\" needs a model that batches (max_batch_size of at least "
     "1): "},
    {COUNT "max_batch_size: 0", &ragged, "config.pbtxt:1: batch_input needs a model that"},
    {SCATTERED "max_batch_size: 0", &ragged, "config.pbtxt:1: batch_output needs a model"},
    {PARAM("sluice.pad.ids", "0") "max_batch_size: 0", &encoder,
     "parameter \"sluice.pad.ids\" needs a model that batches"},
    {RAGGED "model_transaction_policy { decoupled: true } " SCATTER COUNT SHAPE, &ragged,
     "one response for each request"},
    {"max_batch_size: 8 input { name: \"mask\" dims: -1 allow_ragged_batch: true }", &encoder,
     "input \"mask\": with allow_ragged_batch the model gets the elements of all requests in one "
     "dimension, the shape [-1]; the model has [-1,-1]"},
    {RAGGED SCATTER COUNT SHAPE "sequence_batching { state { input_name: \"s\" output_name: \"t\" "
                                "data_type: TYPE_FP32 dims: 1 "
                                "} }",
     &ragged, "is not supported together with state"},
    /* batch_input */
    {RAGGED SCATTER COUNT
     "\nbatch_input { target_name: \"shape\" data_type: TYPE_FP32 source_input: \"q\" }",
     &ragged,
     "config.pbtxt:2: batch_input[1]: source_input \"q\" is no input that clients "
     "send; those are \"x\""},
    {RAGGED SCATTER SHAPE
     "batch_input { target_name: \"number\" data_type: TYPE_INT32 source_input: \"x\" } " COUNT,
     &ragged, "batch_input[1]: target_name \"number\": the model has no input of that name"},
    {RAGGED SCATTER COUNT SHAPE
     "batch_input { target_name: \"x\" data_type: TYPE_FP32 source_input: \"x\" }",
     &ragged, "target_name \"x\": the name is taken"},
    {RAGGED SCATTER COUNT SHAPE COUNT, &ragged, "target_name \"count\": the name is taken"},
    {RAGGED SCATTER SHAPE
     "batch_input { target_name: \"count\" data_type: TYPE_FP32 source_input: \"x\" }",
     &ragged, "its data_type is TYPE_FP32, the model's input has TYPE_INT32"},
    {RAGGED SCATTER COUNT
     "batch_input { target_name: \"shape\" data_type: TYPE_FP32 source_input: \"x\" }",
     &ragged,
     "target_name \"shape\": the server makes it with the shape [-1], the model has "
     "[-1,1]"},
    {RAGGED SCATTER COUNT, &ragged, "the model needs input \"shape\", which config.pbtxt does not"},
    /* batch_output */
    {RAGGED SCATTER COUNT SHAPE "batch_output { target_name: \"q\" source_input: \"x\" }", &ragged,
     "config.pbtxt:1: batch_output: target_name \"q\" is no output that clients get; those "
     "are \"y\""},
    {RAGGED SCATTER COUNT SHAPE "batch_output { target_name: \"y\" source_input: \"y\" }", &ragged,
     "source_input \"y\" is no input"},
    {RAGGED SCATTER COUNT SHAPE SCATTERED SCATTERED, &ragged, "it is divided twice"},
    {RAGGED "output { name: \"y\" dims: [ -1, -1 ] } " COUNT SHAPE SCATTERED, &ragged,
     "its shape [-1,-1,-1] has a free dimension that the source's shape [-1,-1] lacks"},
    /* padding */
    {PADDED PARAM("sluice.pad.q", "0"), &encoder,
     "parameter \"sluice.pad.q\": input \"q\" is no input that clients send; those are \"mask\", "
     "\"ids\", \"len\""},
    {PADDED PARAM("sluice.pad.mask", "0.5"), &encoder,
     "parameter \"sluice.pad.mask\": \"0.5\" is no number of TYPE_INT64"},
    {"max_batch_size: 8 " PARAM("sluice.pad.len", "0"), &encoder,
     "the input's shape [-1,1] has no free dimension"},
    {PADDED PARAM("sluice.pad_mask.mask", "len"), &encoder,
     "input \"len\" is not padded: it needs the parameter sluice.pad.len"},
    {PADDED PARAM("sluice.pad_mask.len", "ids"), &encoder,
     "a mask of 1 free dimension is needed, the input has the shape [-1,1]"},
    {PADDED PARAM("sluice.pad_mask.ids", "ids"), &encoder, "it is its own source"},
    {PADDED FILLED PARAM("sluice.pad_mask.len", "ids"), &encoder,
     "a mask of 1 free dimension is needed"},
    {PADDED PARAM("sluice.pad_length.mask", "ids"), &encoder,
     "the lengths are 1 number for each row, the input has the shape [-1,-1]"},
    {PADDED PARAM("sluice.pad_cut.q", "ids"), &encoder, "\"q\" is no output that clients get"},
    {PADDED PARAM("sluice.pad_cut.pooled", "ids"), &encoder,
     "the output's shape [-1,8] has 0 free dimensions after the batch dimension, the input "
     "\"ids\" 1"},
    {PADDED PARAM("sluice.pad_cut.names", "ids"), &encoder, "TYPE_STRING"},
    {PADDED FILLED PARAM("sluice.pad_cut.states", "mask"), &encoder,
     "cannot be the source of another one"},
    {"max_batch_size: 8 " PARAM("sluice.pad_multiple", "8"), &encoder, "needs a padded input"},
    {RAGGED SCATTER COUNT SHAPE PARAM("sluice.pad.x", "0"), &ragged,
     "input \"x\" is padded (sluice.pad) and has allow_ragged_batch"},
};

static void batch_layout_contradiction_names_setting_and_value(void **state) {
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

/* ---- elements -------------------------------------------------------------------------------- */

static void element_put_range_by_datatype(void **state) {
    (void)state;
    static const struct {
        enum datatype datatype;
        int64_t value;
        bool fits;
    } rows[] = {
        {DT_INT8, 127, true},        {DT_INT8, 128, false},        {DT_INT8, -128, true},
        {DT_INT8, -129, false},      {DT_UINT8, 255, true},        {DT_UINT8, 256, false},
        {DT_UINT8, -1, false},       {DT_INT32, INT32_MAX, true},  {DT_INT32, INT64_MAX, false},
        {DT_INT64, INT64_MIN, true}, {DT_UINT64, INT64_MAX, true}, {DT_UINT64, -1, false},
        {DT_BOOL, 1, true},          {DT_BOOL, 2, false},          {DT_FP16, 65504, true},
        {DT_FP16, 70000, false},     {DT_BF16, INT64_MAX, true},   {DT_FP32, INT64_MAX, true},
        {DT_FP64, INT64_MAX, true},  {DT_BYTES, 0, false},         {DT_UINT32, UINT32_MAX, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned char element[ELEMENT_MAX_BYTES];
        if (element_put(rows[i].datatype, rows[i].value, element) != rows[i].fits) {
            fail_msg("%s %lld", datatype_name(rows[i].datatype), (long long)rows[i].value);
        }
    }
}

static void pad_value_is_an_element_of_the_datatype(void **state) {
    (void)state;
    static const struct {
        const char *datatype, *text;
        unsigned char element[ELEMENT_MAX_BYTES];
    } rows[] = {
        {"TYPE_INT64", "-1", {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
        {"TYPE_UINT64", "18446744073709551615", {255, 255, 255, 255, 255, 255, 255, 255}},
        {"TYPE_FP32", "-1.5", {0, 0, 0xc0, 0xbf}},
        {"TYPE_FP16", "1", {0, 0x3c}},
        {"TYPE_BOOL", "true", {1}},
        {"TYPE_FP64", "0.5", {0, 0, 0, 0, 0, 0, 0xe0, 0x3f}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "max_batch_size: 2 input { name: \"i\" data_type: %s dims: -1 } output { name: "
                 "\"o\" data_type: TYPE_FP32 dims: 1 } parameters { key: \"sluice.pad.i\" value { "
                 "string_value: \"%s\" } }",
                 rows[i].datatype, rows[i].text);
        struct resolved resolved = resolve(text, &any);
        size_t size = datatype_size(resolved.plan.spec.inputs[0].datatype);
        assert_memory_equal(resolved.layout->inputs[0].pad, rows[i].element, size);
        arena_free(resolved.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_layout_without_settings_is_none),
        cmocka_unit_test(batch_layout_of_ragged_input_hides_made_inputs),
        cmocka_unit_test(batch_layout_of_encoder_makes_mask_and_length_optional),
        cmocka_unit_test(batch_layout_of_backend_that_takes_any_numbers_made_inputs_last),
        cmocka_unit_test(batch_layout_contradiction_names_setting_and_value),
        cmocka_unit_test(element_put_range_by_datatype),
        cmocka_unit_test(pad_value_is_an_element_of_the_datatype),
    };
    return cmocka_run_group_tests_name("serve/config/batch_layout", tests, NULL, NULL);
}
