/* The graphs of ensembles: what is read, what is refused, and whether they fit their members. */
#include "serve/config/ensemble.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/config/config.h"

#define ENDS                                                                                       \
    "platform: \"ensemble\"\nmax_batch_size: 8\n"                                                  \
    "input { name: \"IN\" data_type: TYPE_FP32 dims: 4 }\n"                                        \
    "output { name: \"OUT\" data_type: TYPE_FP32 dims: 4 }\n"
#define STEP(model, in, from, out, to)                                                             \
    "step { model_name: \"" model "\" input_map { key: \"" in "\" value: \"" from                  \
    "\" } output_map { key: \"" out "\" value: \"" to "\" } }\n"
#define GRAPH(steps) ENDS "ensemble_scheduling {\n" steps "}\n"

static enum status read_text(struct arena *arena, const char *text, struct model_config *out,
                             struct error *err) {
    struct doc *doc = NULL;
    enum status st = doc_parse(DOC_PBTXT, "config.pbtxt", str_of(text), &doc, err);
    if (st == ST_OK) {
        st = model_config_read(arena, doc, NULL, out, err);
        doc_free(doc); /* the configuration must not refer to the document */
    }
    return st;
}

static void assert_str(struct str got, const char *expected) {
    if (!str_is(got, expected)) {
        fail_msg("got \"%.*s\", expected \"%s\"", STR_ARG(got), expected);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static void ensemble_is_read_as_steps_and_tensors(void **state) {
    static const char text[] = GRAPH("max_inflight_requests: 3\n" STEP(
        "a", "x", "IN", "y",
        "mid") "step { model_name: \"b\" model_version: 7 input_map { key: \"p\" value: \"mid\" } "
               "input_map { key: \"q\" value: \"IN\" } output_map { key: \"r\" value: \"OUT\" } "
               "}\n");
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err;
    (void)state;
    if (read_text(arena, text, &config, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    const struct model_ensemble *ensemble = &config.ensemble;
    assert_int_equal(ensemble->n_steps, 2);
    assert_int_equal(ensemble->max_inflight_requests, 3);
    assert_str(ensemble->steps[0].model, "a");
    assert_null(ensemble->steps[0].version.ptr);
    assert_str(ensemble->steps[1].version, "7");
    assert_str(ensemble->steps[1].place, "config.pbtxt:8: ensemble_scheduling.step[1]");
    assert_int_equal(ensemble->n_tensors, 3);
    const struct ensemble_tensor *in = &ensemble->tensors[ensemble->steps[0].inputs[0].tensor];
    const struct ensemble_tensor *mid = &ensemble->tensors[ensemble->steps[0].outputs[0].tensor];
    const struct ensemble_tensor *out = &ensemble->tensors[ensemble->steps[1].outputs[0].tensor];
    assert_str(in->name, "IN");
    assert_int_equal(in->input, 0);
    assert_int_equal(in->made_by, SIZE_MAX);
    assert_int_equal(in->n_used_by, 2);
    assert_int_equal(in->used_by[0], 0);
    assert_int_equal(in->used_by[1], 1);
    assert_str(mid->name, "mid");
    assert_int_equal(mid->made_by, 0);
    assert_int_equal(mid->n_used_by, 1);
    assert_int_equal(out->output, 0);
    assert_int_equal(out->made_by, 1);
    arena_free(arena);
}

struct bad {
    const char *text;
    const char *parts[2]; /* of the message */
};

static void assert_says(const struct error *err, const struct bad *bad) {
    for (size_t i = 0; i < 2; i++) {
        if (!strstr(err->text, bad->parts[i])) {
            fail_msg("%s\nlacks %s", err->text, bad->parts[i]);
        }
    }
}

static const struct bad bads[] = {
    {ENDS, {"config.pbtxt:1: ensemble_scheduling", "at least one step"}},
    {GRAPH("step { }"), {"config.pbtxt:6: ensemble_scheduling.step", "has no model_name"}},
    {GRAPH("step { model_name: \"a\" model_version: -2 }"), {"step.model_version", "got -2"}},
    {GRAPH("step { model_name: \"a\" }"), {"step.input_map", "expected 1 to"}},
    {GRAPH("step { model_name: \"a\" input_map { key: \"x\" value: \"IN\" } }"),
     {"step.output_map", "expected 1 to"}},
    {GRAPH("step { model_name: \"a\" input_map { key: \"x\" } }"),
     {"step.input_map", "expected key, a tensor of the member, and value"}},
    {GRAPH("step { model_name: \"a\" input_map { key: \"x\" value: \"IN\" }\n"
           "input_map { key: \"x\" value: \"IN\" } }"),
     {"config.pbtxt:7: ensemble_scheduling.step.input_map[1]", "\"x\" is mapped already"}},
    {GRAPH("step { model: \"a\" }"), {"unknown field", "did you mean \"model_name\""}},
    /* the graph */
    {GRAPH(STEP("a", "x", "IN", "y", "OUT") STEP("b", "x", "IN", "y", "OUT")),
     {"config.pbtxt:7: ensemble_scheduling.step[1]", "\"OUT\" is made by step[0] already"}},
    {GRAPH(STEP("a", "x", "IN", "y", "IN")), {"step: output_map", "\"IN\" is an input of the"}},
    {GRAPH(STEP("a", "x", "IN", "y", "out")),
     {"config.pbtxt:5: ensemble_scheduling: no step makes output \"OUT\"", ""}},
    {GRAPH(STEP("a", "x", "INN", "y", "OUT")),
     {"input_map: \"INN\" is no input of the ensemble, and no step makes it",
      "did you mean \"IN\"?"}},
    {GRAPH(STEP("a", "x", "IN", "y", "OUT") STEP("b", "x", "IN", "y", "more")),
     {"step[1]: output_map: \"more\" is no output", "no step uses it"}},
    {GRAPH(STEP("a", "x", "mid", "y", "OUT") STEP("b", "x", "OUT", "y", "mid")),
     {"ensemble_scheduling", "no step uses input \"IN\""}},
    {GRAPH("step { model_name: \"a\" input_map { key: \"x\" value: \"IN\" } input_map { key: "
           "\"z\" value: \"mid\" } output_map { key: \"y\" value: \"OUT\" } }\n" STEP(
               "b", "x", "OUT", "y", "mid")),
     {"config.pbtxt:", "waits for itself, by way of other steps or at once: a circle"}},
    {GRAPH("step { model_name: \"a\" input_map { key: \"x\" value: \"IN\" } input_map { key: "
           "\"z\" value: \"OUT\" } output_map { key: \"y\" value: \"OUT\" } }\n"),
     {"config.pbtxt:6: ensemble_scheduling.step: makes \"OUT\"", "a circle"}},
    {"platform: \"ensemble\" input { name: \"IN\" data_type: TYPE_FP32 }\n"
     "output { name: \"OUT\" }\nensemble_scheduling { }",
     {"config.pbtxt:1: input", "needs data_type and dims"}},
    {GRAPH("max_inflight_requests: -1"), {"max_inflight_requests", "got -1"}},
};

static void ensemble_with_a_bad_graph_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct model_config config;
        struct error err = {0};
        assert_int_equal(read_text(arena, bads[i].text, &config, &err), ST_BAD_CONFIG);
        assert_says(&err, &bads[i]);
        arena_free(arena);
    }
}

/* ---- members --------------------------------------------------------------------------------- */

static const int64_t batch_of_4[] = {-1, 4}, four[] = {4}, any[] = {-1}, batch_of_3[] = {-1, 3};

static const struct tensor_spec x4[] = {
    {.name = STR("x"), .datatype = DT_FP32, .shape = {batch_of_4, 2}}};
static const struct tensor_spec y4[] = {
    {.name = STR("y"), .datatype = DT_FP32, .shape = {batch_of_4, 2}}};
static const struct tensor_spec x3[] = {
    {.name = STR("x"), .datatype = DT_FP32, .shape = {batch_of_3, 2}}};
static const struct tensor_spec text[] = {
    {.name = STR("x"), .datatype = DT_BYTES, .shape = {batch_of_4, 2}}};
static const struct tensor_spec x_of_4[] = {
    {.name = STR("x"), .datatype = DT_FP32, .shape = {four, 1}}};
static const struct tensor_spec y_of_4[] = {
    {.name = STR("y"), .datatype = DT_FP32, .shape = {four, 1}}};
static const struct tensor_spec y_any[] = {
    {.name = STR("y"), .datatype = DT_FP32, .shape = {any, 1}}};
static const struct tensor_spec two_inputs[] = {
    {.name = STR("x"), .datatype = DT_FP32, .shape = {batch_of_4, 2}},
    {.name = STR("w"), .datatype = DT_FP32, .shape = {batch_of_4, 2}}};
static const struct tensor_spec optional_input[] = {
    {.name = STR("x"), .datatype = DT_FP32, .shape = {batch_of_4, 2}},
    {.name = STR("w"), .datatype = DT_FP32, .shape = {batch_of_4, 2}, .optional = true}};

#define MEMBER(of, batch, in, out, more)                                                           \
    {                                                                                              \
        .name = STR(of), .max_batch_size = (batch), .inputs = (in),                                \
        .n_inputs = sizeof(in) / sizeof((in)[0]), .outputs = (out), .n_outputs = 1, more           \
    }

static const struct model_spec members[] = {
    MEMBER("good", 8, x4, y4, .decoupled = false),
    MEMBER("small", 4, x4, y4, .decoupled = false),
    MEMBER("narrow", 8, x3, y4, .decoupled = false),
    MEMBER("text", 8, text, y4, .decoupled = false),
    MEMBER("two", 8, two_inputs, y4, .decoupled = false),
    MEMBER("optional", 8, optional_input, y4, .decoupled = false),
    MEMBER("single", 0, x_of_4, y_of_4, .decoupled = false),
    MEMBER("vague", 0, x_of_4, y_any, .decoupled = false),
    MEMBER("stream", 8, x4, y4, .decoupled = true),
};

static const struct model_spec *find(void *user, const struct ensemble_step *step,
                                     struct error *err) {
    (void)user;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (str_eq(members[i].name, step->model)) {
            return &members[i];
        }
    }
    error_set(err, ST_BAD_MODEL, "it is not there");
    return NULL;
}

static enum status check(const char *config_text, bool *decoupled, struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    err->text[0] = '\0';
    if (read_text(arena, config_text, &config, err) != ST_OK) {
        fail_msg("%s", err->text);
    }
    enum status st = ensemble_check(&config, find, NULL, decoupled, err);
    arena_free(arena);
    return st;
}

static void ensemble_fits_its_members(void **state) {
    static const struct {
        const char *text;
        bool decoupled;
    } rows[] = {
        {GRAPH(STEP("good", "x", "IN", "y", "OUT")), false},
        {GRAPH(STEP("good", "x", "IN", "y", "mid") STEP("good", "x", "mid", "y", "OUT")), false},
        {GRAPH(STEP("optional", "x", "IN", "y", "OUT")), false},
        {GRAPH(STEP("stream", "x", "IN", "y", "OUT")), true},
        {GRAPH(STEP("good", "x", "IN", "y", "mid") STEP("stream", "x", "mid", "y", "OUT")), true},
        /* a member that does not batch, in an ensemble that does, and back */
        {GRAPH(STEP("single", "x", "IN", "y", "mid") STEP("good", "x", "mid", "y", "OUT")), false},
        {GRAPH(STEP("good", "x", "IN", "y", "mid") STEP("vague", "x", "mid", "y", "OUT")), false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        bool decoupled;
        if (check(rows[i].text, &decoupled, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        assert_int_equal(decoupled, rows[i].decoupled);
    }
}

static const struct bad unfit[] = {
    {GRAPH(STEP("absent", "x", "IN", "y", "OUT")),
     {"config.pbtxt:6: ensemble_scheduling.step: ", "it is not there"}},
    {GRAPH(STEP("good", "xx", "IN", "y", "OUT")),
     {"step.input_map: model \"good\" has no input \"xx\"", "did you mean \"x\""}},
    {GRAPH(STEP("good", "x", "IN", "Y", "OUT")),
     {"step.output_map: model \"good\" has no output \"Y\"", ""}},
    {GRAPH(STEP("text", "x", "IN", "y", "OUT")),
     {"input_map: tensor \"IN\" is FP32 in the ensemble and BYTES in model \"text\"", ""}},
    {GRAPH(STEP("narrow", "x", "IN", "y", "OUT")),
     {"input_map: tensor \"IN\" has shape [-1,4] in the ensemble and [-1,3] in model", ""}},
    {GRAPH(STEP("good", "x", "IN", "y", "mid") STEP("narrow", "x", "mid", "y", "OUT")),
     {"step[1].input_map: tensor \"mid\" has shape [-1,4] in model \"good\"", "\"narrow\""}},
    {GRAPH(STEP("small", "x", "IN", "y", "OUT")),
     {"the ensemble's max_batch_size is 8", "that of model \"small\" is 4"}},
    {GRAPH(STEP("two", "x", "IN", "y", "OUT")),
     {"step.input_map: model \"two\" needs input \"w\", which no entry has", ""}},
    {"platform: \"ensemble\" input { name: \"IN\" data_type: TYPE_FP32 dims: [ 2, 2, 4 ] }\n"
     "output { name: \"OUT\" data_type: TYPE_FP32 dims: [ 4 ] }\n"
     "ensemble_scheduling { " STEP("good", "x", "IN", "y", "OUT") " }",
     {"tensor \"IN\" has shape [2,2,4] in the ensemble and [-1,4] (with the batch dimension) in",
      "model \"good\""}},
    {GRAPH("step { model_name: \"two\" input_map { key: \"x\" value: \"IN\" } input_map { key: "
           "\"w\" value: \"mid\" } output_map { key: \"y\" value: \"OUT\" } }\n" STEP(
               "stream", "x", "IN", "y", "mid")),
     {"step[0].input_map: the inputs of model \"two\" come from different decoupled models", ""}},
};

static void ensemble_that_does_not_fit_its_members_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
        struct error err;
        bool decoupled;
        assert_int_equal(check(unfit[i].text, &decoupled, &err), ST_BAD_MODEL);
        assert_says(&err, &unfit[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ensemble_is_read_as_steps_and_tensors),
        cmocka_unit_test(ensemble_with_a_bad_graph_is_refused),
        cmocka_unit_test(ensemble_fits_its_members),
        cmocka_unit_test(ensemble_that_does_not_fit_its_members_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
