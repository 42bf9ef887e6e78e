/* Reading config.pbtxt: accepted fields, refused fields, and messages that name line and field. */
#include "serve/config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static void assert_dims(struct shape got, const char *expected) {
    char text[SHAPE_TEXT_BYTES];
    assert_string_equal(shape_print(got, text), expected);
}

/* ---- accepted -------------------------------------------------------------------------------- */

static const char whole[] =
    "# everything that is understood\n"
    "name: \"digits\"\n"
    "platform: 'onnxruntime_onnx'\n"
    "max_batch_size: 16\n"
    "input [\n"
    "  { name: \"im\" \"age\" data_type: TYPE_FP32 dims: [ 28, 28 ]\n"
    "    reshape { shape: [ 1, 784 ] } optional: false allow_ragged_batch: false },\n"
    "  { name: \"words\" data_type: TYPE_STRING dims: -1 optional: true }\n"
    "]\n"
    "output < name: \"label\" data_type: TYPE_INT64 dims: 1 reshape: { shape: [ ] }\n"
    "         label_filename: \"labels.txt\" >\n"
    "output { name: \"half\" data_type: TYPE_BF16 dims: [ 10 ] }\n"
    "version_policy: { specific: { versions: [ 1, 3 ] } }\n"
    "default_model_filename: \"net.onnx\"\n"
    "instance_group [ { count: 2 kind: KIND_CPU name: \"a\" }, { } ]\n"
    "dynamic_batching {\n"
    "  preferred_batch_size: [ 4, 8 ]\n"
    "  max_queue_delay_microseconds: 100\n"
    "  preserve_ordering: true\n"
    "  default_queue_policy { max_queue_size: 20 }\n"
    "}\n"
    "model_warmup [ { name: \"first\" batch_size: 2 count: 3\n"
    "    inputs { key: \"image\" value { data_type: TYPE_FP32 dims: [ 28, 28 ] zero_data: true } "
    "}\n"
    "    inputs { key: \"words\" value { data_type: TYPE_STRING dims: 2\n"
    "                                  input_data_file: \"words.bin\" } } },\n"
    "  { name: \"not run\" },\n"
    "  { name: \"last\" batch_size: 1\n"
    "    inputs { key: \"age\" value { data_type: TYPE_INT8 random_data: true } } } ]\n"
    "model_transaction_policy { decoupled: false }\n"
    "parameters { key: \"sluice.run_on\" value: { string_value: \"worker\" } }\n"
    "parameters { key: \"threads\" value { string_value: \"3\" } }\n";

static void assert_warmups(const struct model_warmup *warmups) {
    const struct model_warmup_input *inputs = warmups[0].inputs;
    assert_str(warmups[0].name, "first");
    assert_int_equal(warmups[0].batch_size, 2);
    assert_int_equal(warmups[0].count, 3);
    assert_int_equal(warmups[0].n_inputs, 2);
    assert_str(inputs[0].name, "image");
    assert_int_equal(inputs[0].datatype, DT_FP32);
    assert_dims(inputs[0].dims, "[28,28]");
    assert_int_equal(inputs[0].data, WARMUP_ZERO);
    assert_int_equal(inputs[1].datatype, DT_BYTES);
    assert_int_equal(inputs[1].data, WARMUP_FILE);
    assert_str(inputs[1].filename, "words.bin");
    assert_str(warmups[1].name, "last");
    assert_int_equal(warmups[1].count, 1);
    assert_int_equal(warmups[1].inputs[0].data, WARMUP_RANDOM);
    assert_int_equal(warmups[1].inputs[0].dims.rank, 0);
}

static void config_full_file_sets_all_fields(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err;
    (void)state;
    if (read_text(arena, whole, &config, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_str(config.name, "digits");
    assert_str(config.backend, "onnxruntime");
    assert_str(config.platform, "onnxruntime_onnx");
    assert_true(config.has_max_batch_size);
    assert_int_equal(config.max_batch_size, 16);
    assert_int_equal(config.n_inputs, 2);
    assert_str(config.inputs[0].name, "image");
    assert_int_equal(config.inputs[0].datatype, DT_FP32);
    assert_dims(config.inputs[0].dims, "[28,28]");
    assert_true(config.inputs[0].has_reshape);
    assert_dims(config.inputs[0].reshape, "[1,784]");
    assert_false(config.inputs[0].optional);
    assert_int_equal(config.inputs[1].datatype, DT_BYTES);
    assert_dims(config.inputs[1].dims, "[-1]");
    assert_true(config.inputs[1].optional);
    assert_int_equal(config.n_outputs, 2);
    assert_true(config.outputs[0].has_reshape);
    assert_dims(config.outputs[0].reshape, "[]");
    assert_str(config.outputs[0].label_filename, "labels.txt");
    assert_int_equal(config.outputs[1].datatype, DT_BF16);
    assert_int_equal(config.policy, VERSIONS_SPECIFIC);
    assert_int_equal(config.n_specific, 2);
    assert_int_equal(config.specific[1], 3);
    assert_str(config.default_filename, "net.onnx");
    assert_int_equal(config.instance_count, 3);
    assert_true(config.has_dynamic_batching);
    assert_int_equal(config.n_preferred, 2);
    assert_int_equal(config.preferred_batch_sizes[1], 8);
    assert_int_equal(config.max_queue_delay_us, 100);
    assert_true(config.preserve_ordering);
    assert_int_equal(config.queue.max_size, 20);
    assert_int_equal(config.n_warmups, 2);
    assert_warmups(config.warmups);
    assert_int_equal(config.run_on, RUN_ON_WORKER);
    assert_int_equal(config.n_params, 1); /* sluice.* parameters are not passed to the backend */
    assert_str(config.params[0].name, "threads");
    assert_str(config.params[0].value, "3");
    arena_free(arena);
}

static void config_priority_levels_and_queue_policies_are_read(void **state) {
    static const char text[] =
        "dynamic_batching {\n"
        "  priority_levels: 3 default_priority_level: 2\n"
        "  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5000\n"
        "                         allow_timeout_override: true max_queue_size: 4 }\n"
        "  priority_queue_policy { key: 3 value { max_queue_size: 7 } }\n"
        "  priority_queue_policy { key: 1 value { timeout_action: REJECT } }\n"
        "}\n";
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err;
    (void)state;
    assert_int_equal(read_text(arena, text, &config, &err), ST_OK);
    assert_int_equal(config.priority_levels, 3);
    assert_int_equal(config.default_priority, 2);
    assert_true(config.queue.delay_on_timeout);
    assert_true(config.queue.allow_override);
    assert_int_equal(config.queue.timeout_us, 5000);
    assert_int_equal(config.queue.max_size, 4);
    assert_int_equal(config.n_levels, 2);
    assert_int_equal(config.levels[0].level, 3);
    assert_int_equal(config.levels[0].policy.max_size, 7);
    assert_int_equal(config.levels[0].policy.timeout_us, 0);
    assert_int_equal(config.levels[1].level, 1);
    assert_false(config.levels[1].policy.delay_on_timeout);
    arena_free(arena);
}

/* Server settings override the file for every kind of parameter. */
static void config_states_are_read(void **state) {
    static const char text[] =
        "sequence_batching { iterative_sequence: true oldest { } state [\n"
        "  { input_name: \"in\" output_name: \"out\" data_type: TYPE_FP32 dims: [ 2, -1 ]\n"
        "    use_same_buffer_for_input_output: true use_growable_memory: true\n"
        "    initial_state { name: \"n\" data_type: TYPE_FP32 dims: [ 2, 5 ] data_file: \"f\" } "
        "},\n"
        "  { input_name: \"a\" output_name: \"b\" data_type: TYPE_STRING dims: 1\n"
        "    initial_state { data_type: TYPE_STRING dims: 1 zero_data: true } } ] }\n";
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err;
    (void)state;
    if (read_text(arena, text, &config, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    const struct model_state *states = config.sequences.states;
    assert_true(config.sequences.iterative);
    assert_int_equal(config.sequences.n_states, 2);
    assert_str(states[0].input_name, "in");
    assert_str(states[0].output_name, "out");
    assert_int_equal(states[0].datatype, DT_FP32);
    assert_dims(states[0].dims, "[2,-1]");
    assert_true(states[0].same_buffer && states[0].growable && states[0].has_initial);
    assert_str(states[0].initial_name, "n");
    assert_dims(states[0].initial_dims, "[2,5]");
    assert_str(states[0].initial_file, "f");
    assert_str(states[0].origin, "sequence_batching.state[0] in config.pbtxt, line 2");
    assert_int_equal(states[1].datatype, DT_BYTES);
    assert_true(states[1].has_initial && !states[1].same_buffer);
    assert_int_equal(states[1].initial_file.len, 0);
    assert_str(states[1].origin, "sequence_batching.state[1] in config.pbtxt, line 5");
    arena_free(arena);
}

static void config_server_parameters_override_file(void **state) {
    static const struct model_config_param given[] = {
        {STR("threads"), STR("5"), true},
        {STR("mip.scale"), STR("1/255"), true},
        {STR("sluice.run_on"), STR("instance"), true}};
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config, before;
    struct error err;
    (void)state;
    assert_int_equal(read_text(arena, whole, &config, &err), ST_OK);
    before = config;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(model_config_set_param(arena, &config, &given[i], &err), ST_OK);
    }
    assert_int_equal(config.n_params, 2);
    assert_str(config.params[0].value, "5");
    assert_true(config.params[0].by_server);
    assert_true(model_config_param_is_for_backend(&config.params[0]));
    assert_str(config.params[1].name, "mip.scale");
    assert_false(model_config_param_is_for_backend(&config.params[1]));
    assert_int_equal(config.run_on, RUN_ON_INSTANCE);
    assert_str(before.params[0].value, "3"); /* the earlier copy is unchanged */
    assert_false(before.params[0].by_server);
    struct model_config_param wrong = {STR("sluice.run_at"), STR("x"), true};
    assert_int_equal(model_config_set_param(arena, &config, &wrong, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "known are sluice.run_on"));
    arena_free(arena);
}

static void config_empty_file_has_defaults(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err;
    (void)state;
    assert_int_equal(read_text(arena, "", &config, &err), ST_OK);
    assert_false(config.has_max_batch_size);
    assert_int_equal(config.n_inputs, 0);
    assert_int_equal(config.policy, VERSIONS_LATEST);
    assert_int_equal(config.latest_count, 1);
    assert_int_equal(config.instance_count, 0);
    assert_int_equal(config.run_on, RUN_AUTO);
    assert_false(config.has_dynamic_batching);
    arena_free(arena);
}

/* Fields that only tune, each alone, are accepted (their warnings are not asserted here). */
static const char *const tuning[] = {
    "optimization { graph { level: 1 } cuda { graphs: true } priority: PRIORITY_MAX }",
    "optimization { eager_batching: true execution_accelerators { } }",
    "runtime: \"libtriton_x.so\"",
    "cc_model_filenames { key: \"7.0\" value: \"a.plan\" }",
    "metric_tags { key: \"team\" value: \"a\" }",
    "model_warmup { name: \"w\" }", /* no batch size */
    "model_operations { op_library_filename: \"a.so\" }",
    "model_repository_agents { agents [ { name: \"checksum\" } ] }",
    "instance_group { gpus: [ ] }",
    "response_cache { enable: false } model_transaction_policy { decoupled: true }",
    "model_metrics { }",
    "input { name: \"a\" format: FORMAT_NCHW }",
    "instance_group { rate_limiter { resources [ { name: \"R\" count: 1 } ] } }",
    "instance_group { profile: [ \"0\" ] }",
    "dynamic_batching { priority_queue_policy { key: 1 value { max_queue_size: 1 } } }",
    "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1 }",
    "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }",
    "version_policy { all { } }",
    "version_policy { latest { num_versions: 3 } }",
    "max_batch_size: 0",
    "input { name: \"a\" data_type: TYPE_INVALID }",
    "instance_group { kind: KIND_AUTO }",
    "instance_group { kind: KIND_MODEL }",
    "backend: \"my-own_1\"",
    "backend: \"custom\" platform: \"whatever\"",
    "input { name: \"a\" is_shape_tensor: false } output { name: \"a\" }",
};

static void config_ignored_fields_are_accepted(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(tuning) / sizeof(tuning[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct model_config config;
        struct error err;
        if (read_text(arena, tuning[i], &config, &err) != ST_OK) {
            fail_msg("%s: %s", tuning[i], err.text);
        }
        arena_free(arena);
    }
}

#define MD5_OF_A "0cc175b9c0f1b6a831c399e269772661"

static void config_graph_level_libraries_and_checksums_are_read(void **state) {
    static const char text[] =
        "optimization { graph { level: -1 } }\n"
        "model_operations { op_library_filename: \"ops/a.so\" op_library_filename: \"/b.so\" }\n"
        "model_repository_agents { agents [\n"
        "  { name: \"checksum\" parameters { key: \"MD5:1/model.onnx\" value: \"" MD5_OF_A
        "\" } },\n"
        "  { name: \"checksum\" parameters { key: \"md5:b:c\"\n"
        "    value: \"0CC175B9C0F1B6A831C399E269772661\" } } ] }\n";
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err = {.text = ""};
    (void)state;
    if (read_text(arena, text, &config, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(config.graph_level, -1);
    assert_int_equal(config.n_libraries, 2);
    assert_str(config.libraries[0].filename, "ops/a.so");
    assert_str(config.libraries[1].filename, "/b.so");
    assert_str(config.libraries[1].place,
               "config.pbtxt:2: model_operations.op_library_filename[1]");
    assert_int_equal(config.n_checksums, 2);
    assert_str(config.checksums[0].filename, "1/model.onnx");
    assert_str(config.checksums[1].filename, "b:c");
    assert_str(config.checksums[1].md5, MD5_OF_A);
    assert_non_null(
        strstr(config.checksums[1].place.ptr, "config.pbtxt:5: model_repository_agents"));
    arena_free(arena);
}

static void config_groups_have_host_policies_of_their_kinds(void **state) {
    static const char text[] = "instance_group [ { count: 2 }, { kind: KIND_MODEL }, { count: 3 "
                               "kind: KIND_MODEL host_policy: \"p\" } ]";
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err = {.text = ""};
    (void)state;
    assert_int_equal(read_text(arena, text, &config, &err), ST_OK);
    assert_int_equal(config.instance_count, 6);
    assert_int_equal(config.n_groups, 3);
    assert_str(config.groups[0].host_policy, "cpu");
    assert_str(config.groups[1].host_policy, "model");
    assert_str(config.groups[2].host_policy, "p");
    assert_false(config.groups[1].names_policy);
    assert_true(config.groups[2].names_policy);
    assert_int_equal(config.groups[2].count, 3);
    arena_free(arena);
}

static void config_for_gpus_is_read_with_the_rule(void **state) {
    static const char text[] = "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]";
    const struct model_config_rules rules = {.gpu_models_on_cpu = true};
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err = {.text = ""};
    struct doc *doc;
    (void)state;
    assert_int_equal(doc_parse(DOC_PBTXT, "config.pbtxt", str_of(text), &doc, &err), ST_OK);
    assert_int_equal(model_config_read(arena, doc, &rules, &config, &err), ST_OK);
    assert_true(config.written_for_gpus);
    assert_int_equal(config.instance_count, 2);
    doc_free(doc);
    assert_int_equal(read_text(arena, "instance_group { kind: KIND_CPU }", &config, &err), ST_OK);
    assert_false(config.written_for_gpus);
    arena_free(arena);
}

/* ---- refused --------------------------------------------------------------------------------- */

/* A configuration with one control. Adjacent strings in the table are one string on purpose: they
 * test protobuf's concatenation. */
#define AGENT(key, value)                                                                          \
    "model_repository_agents { agents { name: \"checksum\" parameters { key: \"" key               \
    "\" value: \"" value "\" } } }"
#define STATE(text) "sequence_batching { state { " text " } }"
#define IN_OUT "input_name: \"a\" output_name: \"b\""
#define WHOLE_STATE IN_OUT " data_type: TYPE_INT8 dims: [ -1, 3 ]"
#define CONTROL(text) "sequence_batching { control_input { name: \"c\" control { " text " } } }"

struct bad {
    const char *text;
    const char *says[2]; /* the place and the reason */
};

static const struct bad bads[] = {
    /* unknown */
    {"name: \"m\"\n\nmax_batchsize: 3\n",
     {"config.pbtxt:3: unknown field \"max_batchsize\"", "did you mean \"max_batch_size\"?"}},
    {"input {\n name: \"a\"\n dim: 3\n}", {"config.pbtxt:3:", "unknown field \"input.dim\""}},
    {"input [ { name: \"a\" },\n{ name: \"b\" size: 1 } ]", {"config.pbtxt:2:", "input[1].size"}},
    {"version_policy { all { x: 1 } }", {"config.pbtxt:1:", "version_policy.all.x"}},
    {"parameters { key: \"a\" value { int_value: 1 } }", {"config.pbtxt:1:", "int_value"}},
    {"parameters { key: \"sluice.run_at\" value { string_value: \"x\" } }",
     {"config.pbtxt:1: parameters", "unknown parameter \"sluice.run_at\""}},
    /* would change answers */
    {"\nensemble_scheduling { step [ ] }",
     {"config.pbtxt:2: ensemble_scheduling", "expected platform: \"ensemble\""}},
    {"batch_input [ { kind: BATCH_ELEMENT_COUNT } ]", {"batch_input", "has no target_name"}},
    {"batch_input {\n kind: BATCH_COUNT }",
     {"config.pbtxt:2: batch_input.kind", "got \"BATCH_COUNT\""}},
    {"batch_input { target_name: \"\" }", {"batch_input.target_name", "must not be empty"}},
    {"batch_input { target_name: \"t\" }", {"batch_input", "TYPE_INT32 or TYPE_FP32"}},
    {"batch_input { target_name: \"t\"\n data_type: TYPE_INT64 }",
     {"config.pbtxt:2: batch_input.data_type", "TYPE_INT32 or TYPE_FP32"}},
    {"batch_input { target_name: \"t\" data_type: TYPE_FP32 }",
     {"batch_input", "has no source_input"}},
    {"batch_input { target_name: \"t\" data_type: TYPE_FP32 source_input: [ \"a\", \"b\" ] }",
     {"batch_input.source_input", "expected one input, got 2"}},
    {"batch_output [ { } ]", {"batch_output", "has no target_name"}},
    {"batch_output { target_name: \"t\" }", {"batch_output", "has no source_input"}},
    {"batch_output { target_name: \"t\" kind: SCATTER source_input: \"a\" }",
     {"batch_output.kind", "BATCH_SCATTER_WITH_INPUT_SHAPE"}},
    {"parameters { key: \"sluice.pad_multiple\" value { string_value: \"0\" } }",
     {"parameters", "a whole number from 1"}},
    {"parameters { key: \"sluice.pad.\" value { string_value: \"0\" } }",
     {"parameters", "unknown parameter \"sluice.pad.\""}},
    {"input { name: \"a\" is_shape_tensor: true }", {"input.is_shape_tensor", "not supported"}},
    {"output { name: \"a\" is_non_linear_format_io: true }", {"output.is_non", "row-major"}},
    {"dynamic_batching { preserve_ordering: true }\nmodel_transaction_policy { decoupled: true }",
     {"config.pbtxt:2: model_transaction_policy.decoupled", "preserve_ordering"}},
    {"response_cache { enable: true }\nmodel_transaction_policy { decoupled: true }",
     {"config.pbtxt:1: response_cache.enable", "decoupled"}},
    {"response_cache { enable: 3 }", {"response_cache.enable", "true or false"}},
    {"response_cache { size: 3 }", {"response_cache", "size"}},
    {"model_transaction_policy { decoupled: 3 }", {"decoupled", "true or false"}},
    {"name: \"m\"\ndynamic_batching { }\ndynamic_batching { }",
     {"config.pbtxt:2: dynamic_batching", "an object (named fields), got a list of 2"}},
    {"dynamic_batching { priority_queue_policy { key: 1 value { max_queue_size: -1 } } }",
     {"priority_queue_policy.value.max_queue_size", "got -1"}},
    {"dynamic_batching { }\nsequence_batching { }",
     {"config.pbtxt:2: sequence_batching", "either this or dynamic_batching"}},
    {"sequence_batching { }\nresponse_cache { enable: true }",
     {"config.pbtxt:2: response_cache.enable", "of sequences can't be cached"}},
    {STATE("input_name: \"a\""), {"sequence_batching.state", "has no output_name"}},
    {STATE(IN_OUT " dims: 1"), {"sequence_batching.state", "has no data_type"}},
    {STATE(IN_OUT " data_type: TYPE_INT8"), {"sequence_batching.state", "has no dims"}},
    {"input { name: \"a\" }\n" STATE(WHOLE_STATE),
     {"config.pbtxt:2: sequence_batching.state", "\"a\" is an input that clients send"}},
    {"sequence_batching { state [ { " WHOLE_STATE " },\n { " WHOLE_STATE " } ] }",
     {"config.pbtxt:2: sequence_batching.state[1]", "same input_name or output_name"}},
    {STATE(WHOLE_STATE " initial_state { data_type: TYPE_INT8 dims: [ 1, 3 ] }"),
     {"state.initial_state", "zero_data: true and data_file"}},
    {STATE(WHOLE_STATE " initial_state { data_type: TYPE_INT8 dims: [ 1, 4 ] zero_data: true }"),
     {"state.initial_state", "[1,4], which do not fit those of the state, [-1,3]"}},
    {STATE(WHOLE_STATE " initial_state { data_type: TYPE_INT8 dims: [ -1, 3 ] zero_data: true }"),
     {"state.initial_state.dims[0]", "fixed"}},
    {STATE(WHOLE_STATE " initial_state { data_type: TYPE_BOOL dims: [ 1, 3 ] zero_data: true }"),
     {"state.initial_state", "TYPE_BOOL, that of the state TYPE_INT8"}},
    {"sequence_batching { iterative_sequence: 3 }", {"iterative_sequence", "true or false"}},
    {"sequence_batching { direct { } oldest { } }", {"sequence_batching", "both direct and"}},
    {"sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
     {"direct.minimum_slot_utilization", "from 0 to 1"}},
    {"sequence_batching { oldest { max_candidate_sequences: -1 } }",
     {"oldest.max_candidate_sequences", "got -1"}},
    {"sequence_batching { max_sequence_idle_microseconds: -1 }", {"max_sequence_idle", "got -1"}},
    {"sequence_batching { control_input { } }", {"control_input", "has no name"}},
    {"sequence_batching { control_input { name: \"c\" } }",
     {"control_input", "one control, got 0"}},
    {CONTROL("kind: CONTROL_SEQUENCE_STOP"), {"control.kind", "got \"CONTROL_SEQUENCE_STOP\""}},
    {CONTROL("kind: CONTROL_SEQUENCE_END"), {"control", "needs one of int32_false_true"}},
    {CONTROL("int32_false_true: [ 0 ]"), {"int32_false_true", "one pair"}},
    {CONTROL("int32_false_true: [ 0, 3000000000 ]"), {"int32_false_true[1]", "2147483647"}},
    {CONTROL("int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ]"), {"fp32_", "one pair"}},
    {CONTROL("bool_false_true: [ 0, 3 ]"), {"bool_false_true[1]", "true or false"}},
    {CONTROL("kind: CONTROL_SEQUENCE_CORRID"), {"control", "needs a data_type"}},
    {CONTROL("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"), {"control", "data_type"}},
    {"input { name: \"c\" }\n" CONTROL("int32_false_true: [ 0, 1 ]"),
     {"config.pbtxt:2: sequence_batching.control_input", "that clients send"}},
    {"sequence_batching { control_input { name: \"c\" control { int32_false_true: [ 0, 1 ] } }\n"
     "control_input { name: \"d\" control { int32_false_true: [ 0, 1 ] } } }",
     {"config.pbtxt:2: sequence_batching.control_input[1]", "the same name or kind"}},
    {"platform: \"ensemble\"", {"config.pbtxt:1: ", "an ensemble needs the field input"}},
    {"platform: \"ensemble\"\ninstance_group { }",
     {"config.pbtxt:2: instance_group", "no instances of its own"}},
    {"platform: \"ensemble\"\nbatch_output { target_name: \"t\" source_input: \"a\" }",
     {"config.pbtxt:2: batch_output", "no instances of its own"}},
    {"platform: \"ensemble\" parameters { key: \"sluice.pad.a\" value { string_value: \"0\" } }",
     {"sluice.pad.a", "belongs to its members"}},
    {"platform: \"ensemble\" backend: \"identity\"",
     {"platform: ", "belongs to backend \"ensemble\""}},
    {"instance_group { kind: KIND_GPU }", {"instance_group.kind", "CPUs only"}},
    {"instance_group { gpus: [ 0 ] }", {"instance_group.gpus", "--gpu-models-on-cpu"}},
    {"instance_group { gpus: [ -1 ] }", {"instance_group.gpus", "got -1"}},
    {"instance_group { kind: KIND_TPU }",
     {"instance_group.kind", "KIND_AUTO, KIND_CPU or KIND_MODEL"}},
    {"optimization { graph { level: 3 } }", {"optimization.graph.level", "got 3"}},
    {"model_operations { op_library_filename: \"\" }",
     {"config.pbtxt:1: model_operations.op_library_filename", "the path of a library"}},
    {"model_operations { op_library: \"a.so\" }", {"model_operations", "op_library_filename"}},
    {"model_repository_agents { agents { name: \"relocation\" } }",
     {"agents.name", "no repository agent \"relocation\""}},
    {"model_repository_agents { agents { } }", {"agents", "no repository agent \"\""}},
    {AGENT("MD5", MD5_OF_A), {"parameters.key", "MD5:FILE"}},
    {AGENT("MD5:", MD5_OF_A), {"parameters.key", "MD5:FILE"}},
    {AGENT("SHA256:a", MD5_OF_A), {"parameters.key", "the only one is MD5"}},
    {AGENT("MD5:/a", MD5_OF_A), {"parameters.key", "must not begin with /"}},
    {AGENT("MD5:../a", MD5_OF_A), {"parameters.key", "lead out"}},
    {AGENT("MD5:a", "0cc1"), {"parameters.value", "32 hexadecimal digits"}},
    {AGENT("MD5:a", "zcc175b9c0f1b6a831c399e269772661"), {"parameters.value", "32 hexadecimal"}},
    {"model_repository_agents { agents { name: \"checksum\" parameters { key: \"MD5:a\" } } }",
     {"parameters", "32 hexadecimal digits"}},
    {"instance_group { passive: true }", {"instance_group.passive", "no requests"}},
    /* wrong types and values */
    {"max_batch_size: -1", {"config.pbtxt:1: max_batch_size", "got -1"}},
    {"max_batch_size: \"8\"", {"max_batch_size", "whole number"}},
    {"max_batch_size: 4294967296", {"max_batch_size", "2147483647"}},
    {"name: 7", {"config.pbtxt:1: name", "expected text"}},
    {"name: \"a\\000b\"", {"config.pbtxt:1: name", "NUL"}},
    {"input: 3", {"config.pbtxt:1: input", "expected an object"}},
    {"input { data_type: TYPE_FP32 }", {"config.pbtxt:1: input", "has no name"}},
    {"input { name: \"a\" data_type: TYPE_FLOAT }", {"input.data_type", "TYPE_FP32"}},
    {"input { name: \"a\" data_type: 3 }", {"input.data_type", "expected text"}},
    {"input { name: \"a\" dims: [ ] }", {"input.dims", "must not be empty"}},
    {"input { name: \"a\" dims: [ 2, 0 ] }", {"input.dims[1]", "got 0"}},
    {"input { name: \"a\" dims: [ -2 ] }", {"input.dims", "got -2"}},
    {"input { name: \"a\" dims: [ 1.5 ] }", {"input.dims", "whole number"}},
    {"input { name: \"a\" dims: [ 4 ] reshape { shape: [ 5 ] } }",
     {"input.reshape", "[5] has not as many elements as dims [4]"}},
    {"input { name: \"a\" dims: [ -1, 2 ] reshape { shape: [ 2, -1 ] } }",
     {"input.reshape", "between any two -1"}},
    {"input { name: \"a\" reshape { shape: [ 5 ] } }", {"input.reshape", "needs dims"}},
    {"input [ { name: \"a\" },\n { name: \"a\" } ]", {"config.pbtxt:2: input[1]", "taken"}},
    {"output { name: \"a\" label_filename: \"../l\" }", {"output.label_filename", "lead out"}},
    {"default_model_filename: \"../2/model.onnx\"", {"default_model_filename", "lead out"}},
    {"default_model_filename: \"a/..\"", {"default_model_filename", "lead out"}},
    {"default_model_filename: \"/etc/passwd\"", {"default_model_filename", "begin with /"}},
    {"backend: \"../evil\"", {"config.pbtxt:1: backend", "a-z, 0-9, _ and -"}},
    {"backend: \"Onnx\"", {"config.pbtxt:1: backend", "a-z, 0-9, _ and -"}},
    {"platform: \"onnx\"", {"config.pbtxt:1: platform", "no known platform"}},
    {"platform: \"onnxruntime_onnx\" backend: \"openvino\"", {"platform", "belongs to backend"}},
    {"version_policy { latest { } all { } }", {"version_policy", "more than one"}},
    {"version_policy { latest { num_versions: 0 } }", {"num_versions", "got 0"}},
    {"version_policy { specific { } }", {"version_policy.specific", "lists no versions"}},
    {"version_policy { specific { versions: [ 0 ] } }", {"versions", "got 0"}},
    {"instance_group { count: 0 }", {"instance_group.count", "got 0"}},
    {"instance_group { count: 1000 } instance_group { count: 1000 }",
     {"instance_group", "2000 instances"}},
    {"instance_group { kind: KIND_TPU }", {"instance_group.kind", "KIND_TPU"}},
    {"dynamic_batching { preferred_batch_size: 0 }", {"preferred_batch_size", "got 0"}},
    {"dynamic_batching { max_queue_delay_microseconds: -1 }", {"max_queue_delay", "got -1"}},
    {"dynamic_batching { preserve_ordering: 3 }", {"preserve_ordering", "true or false"}},
    {"dynamic_batching { priority_levels: 2 }",
     {"priority_levels", "from 1 to priority_levels, 2"}},
    {"dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
     {"default_priority_level", "got 3"}},
    {"dynamic_batching { priority_levels: 5000 default_priority_level: 1 }",
     {"priority_levels", "1000"}},
    {"dynamic_batching { default_queue_policy { timeout_action: DROP } }",
     {"default_queue_policy.timeout_action", "REJECT or DELAY, got \"DROP\""}},
    {"dynamic_batching { default_queue_policy { default_timeout_microseconds: -1 } }",
     {"default_timeout_microseconds", "got -1"}},
    {"dynamic_batching { priority_levels: 2 default_priority_level: 1\n"
     "priority_queue_policy { key: 3 value { } } }",
     {"config.pbtxt:2: dynamic_batching.priority_queue_policy.key", "got 3"}},
    {"dynamic_batching { priority_levels: 2 default_priority_level: 1\n"
     "priority_queue_policy { value { } } }",
     {"priority_queue_policy", "has no key"}},
    {"dynamic_batching { priority_levels: 2 default_priority_level: 1\n"
     "priority_queue_policy [ { key: 2 }, { key: 2 } ] }",
     {"priority_queue_policy[1].key", "level 2 is given twice"}},
    {"dynamic_batching { priority_queue_policy { key: 1 value { max_size: 1 } } }",
     {"priority_queue_policy.value.max_size", "unknown field"}},
    {"dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }",
     {"preserve_ordering", "priority_levels is 2"}},
    {"dynamic_batching { preserve_ordering: true\n"
     "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }",
     {"preserve_ordering", "timeout_action is DELAY"}},
    {"dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1\n"
     "priority_queue_policy { key: 1 value { timeout_action: DELAY allow_timeout_override: true } "
     "} }",
     {"preserve_ordering", "timeout_action is DELAY"}},
    {"model_warmup { batch_size: -1 }", {"model_warmup.batch_size", "got -1"}},
    {"model_warmup { batch_size: 1 inputs { value { } } }", {"model_warmup.inputs", "has no key"}},
    {"model_warmup { batch_size: 1 inputs { key: \"a\" } }",
     {"model_warmup.inputs", "has no value"}},
    {"model_warmup { batch_size: 1 inputs { key: \"a\" value { zero_data: true } } }",
     {"model_warmup.inputs.value", "has no data_type"}},
    {"model_warmup { batch_size: 1 inputs { key: \"a\" value { data_type: TYPE_INT8 dims: 3 } } }",
     {"model_warmup.inputs.value", "expected one of zero_data"}},
    {"model_warmup { batch_size: 1 inputs { key: \"a\" value { data_type: TYPE_INT8\n"
     "zero_data: true random_data: true } } }",
     {"model_warmup.inputs.value", "expected one of zero_data"}},
    {"model_warmup { batch_size: 1 inputs { key: \"a\" value { data_type: TYPE_INT8\n"
     "dims: [ 2, -1 ] zero_data: true } } }",
     {"config.pbtxt:2: model_warmup.inputs.value.dims[1]", "fixed"}},
    {"model_warmup { batch_size: 1 inputs { key: \"a\" value { data_type: TYPE_INT8\n"
     "input_data_file: \"../x\" } } }",
     {"input_data_file", "lead out"}},
    {"parameters { value { string_value: \"a\" } }", {"parameters", "has no key"}},
    {"parameters { key: \"a\" value { string_value: 3 } }", {"string_value", "expected text"}},
    {"parameters { key: \"a\" } parameters { key: \"a\" }", {"parameters[1]", "given twice"}},
    {"parameters { key: \"sluice.run_on\" value { string_value: \"gpu\" } }",
     {"parameters", "auto, worker or instance"}},
};

/* `n` entries "PART0 }", "PART1 }"... */
static char *entries(const char *part, size_t n) {
    size_t room = n * (strlen(part) + 24) + 1, len = 0;
    char *text = malloc(room);
    for (size_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, room - len, "%s%zu\" } ", part, i);
    }
    return text;
}

static void config_long_list_is_refused(void **state) {
    static const struct {
        const char *part, *says;
        size_t max;
    } lists[] = {
        {"parameters { key: \"p", "parameters: expected at most 500 entries, got 501", 500},
        {"input { data_type: TYPE_INT8 dims: [ 1 ] name: \"i",
         "input: expected at most 4096 entries, got 4097", 4096},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct model_config config;
        struct error err = {.text = ""};
        char *fits = entries(lists[i].part, lists[i].max);
        char *over = entries(lists[i].part, lists[i].max + 1);
        assert_int_equal(read_text(arena, fits, &config, &err), ST_OK);
        assert_int_equal(read_text(arena, over, &config, &err), ST_BAD_CONFIG);
        assert_non_null(strstr(err.text, lists[i].says));
        free(fits);
        free(over);
        arena_free(arena);
    }
}

/* Each entry was found from the start of its list: this took minutes. */
static void config_list_is_read_in_one_pass(void **state) {
    enum { N = 300000 };
    static const char begin[] = "{\"instance_group\":[{}", more[] = ",{}", end[] = "]}";
    size_t len = sizeof(begin) - 1;
    char *text = malloc(sizeof(begin) + N * (sizeof(more) - 1) + sizeof(end));
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config;
    struct error err = {.text = ""};
    struct doc *doc = NULL;
    (void)state;
    memcpy(text, begin, sizeof(begin));
    for (size_t i = 1; i < N; i++, len += sizeof(more) - 1) {
        memcpy(text + len, more, sizeof(more));
    }
    memcpy(text + len, end, sizeof(end));
    assert_int_equal(doc_parse(DOC_JSON, "c", str_of(text), &doc, &err), ST_OK);
    assert_int_equal(model_config_read(arena, doc, NULL, &config, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "more than 1024"));
    doc_free(doc);
    arena_free(arena);
    free(text);
}

static void config_invalid_field_error_names_place_and_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct model_config config;
        struct error err = {.text = ""};
        if (read_text(arena, bads[i].text, &config, &err) != ST_BAD_CONFIG) {
            fail_msg("accepted: %s", bads[i].text);
        }
        if (!strstr(err.text, bads[i].says[0]) || !strstr(err.text, bads[i].says[1])) {
            fail_msg("%s\n  gives: %s\n  which lacks: %s ... %s", bads[i].text, err.text,
                     bads[i].says[0], bads[i].says[1]);
        }
        arena_free(arena);
    }
}

static void config_arena_limit_returns_no_memory(void **state) {
    char text[9000];
    int n_ok = 0, n_refused = 0;
    (void)state;
    /* A name that needs more than the arena's first block. */
    int n = snprintf(text, sizeof(text), "name: \"%08000d\"", 7);
    assert_true(n > 0 && (size_t)n < sizeof(text));
    for (size_t limit = 4096; limit < 5 * 4096; limit += 256) {
        struct arena *arena = arena_new(NULL, limit);
        struct model_config config;
        struct error err;
        enum status st = read_text(arena, text, &config, &err);
        assert_true(st == ST_OK || st == ST_NO_MEMORY);
        n_ok += st == ST_OK;
        n_refused += st == ST_NO_MEMORY;
        arena_free(arena);
    }
    assert_true(n_ok > 0 && n_refused > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_full_file_sets_all_fields),
        cmocka_unit_test(config_priority_levels_and_queue_policies_are_read),
        cmocka_unit_test(config_states_are_read),
        cmocka_unit_test(config_server_parameters_override_file),
        cmocka_unit_test(config_empty_file_has_defaults),
        cmocka_unit_test(config_ignored_fields_are_accepted),
        cmocka_unit_test(config_graph_level_libraries_and_checksums_are_read),
        cmocka_unit_test(config_groups_have_host_policies_of_their_kinds),
        cmocka_unit_test(config_for_gpus_is_read_with_the_rule),
        cmocka_unit_test(config_invalid_field_error_names_place_and_reason),
        cmocka_unit_test(config_long_list_is_refused),
        cmocka_unit_test(config_list_is_read_in_one_pass),
        cmocka_unit_test(config_arena_limit_returns_no_memory),
    };
    return cmocka_run_group_tests_name("serve/config/read", tests, NULL, NULL);
}
