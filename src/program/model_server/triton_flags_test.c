/* The translation of each of Triton's flags, as documented in docs/triton-flags.md. Runs in the
 * repository's root. */
#include "program/model_server/triton_flags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program/options/translated_flags_fixture.h"

static const char *const NAMES[] = {
#define TRITON(name, kind, action, ours, why) name,
#include "program/model_server/triton_flags.def"
#undef TRITON
};
enum { N_NAMES = sizeof(NAMES) / sizeof(NAMES[0]) };

struct outcome {
    enum status status;
    struct error err;
    struct triton_flags flags;
    struct str args; /* the translated arguments, separated by blanks */
};

/* `line`: the arguments, separated by blanks. */
static struct outcome translate(struct arena *arena, const char *line) {
    char *argv[FLAGS_MOST_ARGS + 1] = {(char *)"tritonserver"};
    int argc = flags_split(arena, line, argv);
    struct outcome outcome = {.status = ST_OK};
    outcome.status = triton_flags_read(argc, argv, arena, &outcome.flags, &outcome.err);
    outcome.args = outcome.status == ST_OK
                       ? flags_join(arena, outcome.flags.argc, outcome.flags.argv)
                       : STR("");
    return outcome;
}

/* What Triton's defaults become, by the place of what is changed in the cases below. */
#define HTTP "--http=0.0.0.0:8000"
#define GRPC "--grpc=0.0.0.0:8001"
#define METRICS "--metrics=0.0.0.0:8002"
#define LOG "--log-level=info"
#define EXIT "--exit-on-error=true"
#define LIMIT "--http-max-input-size=64MiB"
#define BATCH "--default-max-batch-size=4"

enum says { HAS, LACKS, IS_NOTED, IS_QUIET, IS_REFUSED };

/* HAS, LACKS: an argument of `sluice serve`. IS_NOTED: the flag as it is logged. IS_QUIET: neither
 * an argument nor a note. IS_REFUSED: a part of the message. */
static const struct {
    const char *line;
    enum says says;
    const char *what;
} CASES[] = {
    {"", HAS, "--id=triton"},
    {"", HAS, HTTP},
    {"", HAS, GRPC},
    {"", HAS, METRICS},
    {"", HAS, LOG},
    {"", HAS, EXIT},
    {"", HAS, LIMIT},
    {"", HAS, BATCH},
    {"", HAS, "--max-body-size=2147483647"},
    {"--id=one", HAS, "--id=one"},
    {"--id=one", LACKS, "--id=triton"},
    {"--exit-timeout-secs 5", HAS, "--drain-timeout=5s"},
    {"--exit-timeout-secs=soon", IS_REFUSED,
     "--exit-timeout-secs: expected a whole number, got \"soon\""},
    {"--help", IS_QUIET, ""},

    {"--model-repository=/a", HAS, "--model-repository=/a"},
    {"--model-repository /a --model-store=/b", HAS, "--model-repository=/b"},
    {"--model-repository /a --model-repository /b", HAS, "--model-repository=/a"},
    {"--model-rep=/a", HAS, "--model-repository=/a"}, /* as getopt_long */
    {"/a", IS_REFUSED, "one argument too many: \"/a\""},
    {"--model-repositroy=/a", IS_REFUSED, "did you mean --model-repository?"},
    {"--model-repository", IS_REFUSED, "--model-repository needs a value"},
    {"-m /a", IS_REFUSED, "unknown flag -m"},
    {"--exit-on-error=TRUE", HAS, EXIT},
    {"--exit-on-error off", HAS, "--keep-going"},
    {"--exit-on-error=0", HAS, "--exit-on-error=false"},
    {"--exit-on-error=maybe", IS_REFUSED, "--exit-on-error: expected true or false, got \"maybe\""},
    {"--strict-readiness=False", HAS, "--strict-readiness=false"},
    {"--model-control-mode=EXPLICIT", HAS, "--model-control-mode=EXPLICIT"},
    {"--repository-poll-secs=0", HAS, "--repository-poll-secs=0"},
    {"--model-control-mode=Explicit --load-model=a --load-model=b", HAS, "--load-model=b"},
    {"--load-model=a", IS_REFUSED, "--load-model needs --model-control-mode=explicit"},
    {"--model-config-name=big", HAS, "--model-config-name=big"},
    {"--disable-auto-complete-config", HAS, "--disable-auto-complete-config"},
    {"--disable-auto-complete-config=true", IS_REFUSED,
     "--disable-auto-complete-config takes no value"},
    {"--strict-model-config=true", HAS, "--disable-auto-complete-config"},
    {"--strict-model-config=false", LACKS, "--disable-auto-complete-config"},
    {"--model-load-thread-count=0", HAS, "--model-load-thread-count=0"},
    {"--model-load-retry-count=3", HAS, "--model-load-retry-count=3"},
    {"--model-namespacing=false", IS_QUIET, ""},
    {"--model-namespacing=true", IS_REFUSED, "--model-namespacing: not supported"},

    {"--http-port=9000", HAS, "--http=0.0.0.0:9000"},
    {"--http-port=9000 --http-port=9001", HAS, "--http=0.0.0.0:9001"},
    {"--http-port=70000", IS_REFUSED, "--http-port: expected a port up to 65535"},
    {"--http-port=-1", IS_REFUSED, "--http-port: expected a port up to 65535"},
    {"--http-address=::1", HAS, "--http=[::1]:8000"},
    {"--http-address=::1", HAS, "--metrics=[::1]:8002"}, /* HTTP's address is its default */
    {"--http-address=127.0.0.1", HAS, GRPC},
    {"--allow-http=false --http-port=9000", HAS, "--http=none"},
    {"--reuse-http-port=1", HAS, "--reuse-http-port=true"},
    {"--http-header-forward-pattern=x-.*", HAS, "--http-header-forward-pattern=x-.*"},
    {"--http-thread-count=16", HAS, "--workers=16"},
    {"--http-max-input-size=1000", HAS, "--http-max-input-size=1000"},
    {"--http-max-input-size=0", IS_REFUSED, "--http-max-input-size: expected a number of bytes"},
    {"--http-restricted-api=health:k=v", HAS, "--http-restricted-api=health:k=v"},

    {"--grpc-port 9001", HAS, "--grpc=0.0.0.0:9001"},
    {"--grpc-address localhost", HAS, "--grpc=localhost:8001"},
    {"--allow-grpc=False", HAS, "--grpc=none"},
    {"--reuse-grpc-port=on", HAS, "--reuse-grpc-port=true"},
    {"--grpc-header-forward-pattern=x", HAS, "--grpc-header-forward-pattern=x"},
    {"--grpc-infer-thread-count=8", IS_NOTED, "--grpc-infer-thread-count=8"},
    {"--grpc-infer-allocation-pool-size=8", IS_NOTED, "--grpc-infer-allocation-pool-size=8"},
    {"--grpc-max-response-pool-size=8", IS_NOTED, "--grpc-max-response-pool-size=8"},
    {"--grpc-server-cert=c --grpc-server-key=k", LACKS, "--grpc-tls-cert=c"},
    {"--grpc-use-ssl=true --grpc-server-cert=c --grpc-server-key=k", HAS, "--grpc-tls-cert=c"},
    {"--grpc-use-ssl=true --grpc-server-cert=c --grpc-server-key=k", HAS, "--grpc-tls-key=k"},
    {"--grpc-use-ssl=true --grpc-server-cert=c --grpc-server-key=k --grpc-root-cert=r", LACKS,
     "--grpc-tls-client-ca=r"},
    {"--grpc-use-ssl=true", IS_REFUSED, "--grpc-use-ssl needs --grpc-server-cert"},
    {"--grpc-use-ssl-mutual=true --grpc-server-cert=c --grpc-server-key=k --grpc-root-cert=r", HAS,
     "--grpc-tls-client-ca=r"},
    {"--grpc-use-ssl-mutual=true --grpc-server-cert=c --grpc-server-key=k", IS_REFUSED,
     "--grpc-use-ssl-mutual needs --grpc-root-cert"},
    {"--grpc-use-ssl-mutual=false --grpc-server-cert=c --grpc-server-key=k", HAS,
     "--grpc-tls-cert=c"},
    {"--grpc-infer-response-compression-level=HIGH", HAS,
     "--grpc-infer-response-compression-level=HIGH"},
    {"--grpc-keepalive-time=10000", HAS, "--grpc-keepalive-time=10000ms"},
    {"--grpc-keepalive-timeout=500", HAS, "--grpc-keepalive-timeout=500ms"},
    {"--grpc-keepalive-permit-without-calls=true", IS_QUIET, ""},
    {"--grpc-keepalive-permit-without-calls=0", IS_NOTED,
     "--grpc-keepalive-permit-without-calls=false"},
    {"--grpc-http2-max-pings-without-data=2", IS_NOTED, "--grpc-http2-max-pings-without-data=2"},
    {"--grpc-http2-min-recv-ping-interval-without-data=9", IS_NOTED,
     "--grpc-http2-min-recv-ping-interval-without-data=9"},
    {"--grpc-http2-max-ping-strikes=9", IS_NOTED, "--grpc-http2-max-ping-strikes=9"},
    {"--grpc-restricted-protocol=logging:k=v", HAS, "--grpc-restricted-protocol=logging:k=v"},
    {"--grpc-max-connection-age=60000", HAS, "--grpc-max-connection-age=60000ms"},
    {"--grpc-max-connection-age-grace=5", HAS, "--grpc-max-connection-age-grace=5ms"},

    {"--log-verbose=0", HAS, LOG},
    {"--log-verbose=2", HAS, "--log-level=debug"},
    {"--log-verbose=true", HAS, "--log-level=debug"},
    {"--log-verbose=loud", IS_REFUSED, "--log-verbose: expected a whole number, got \"loud\""},
    {"--log-info=false", HAS, LOG},
    {"--log-warning=false", HAS, LOG},
    {"--log-error=false", HAS, LOG},
    {"--log-format=ISO8601", HAS, "--log-format=ISO8601"},
    {"--log-file=/f", HAS, "--log-file=/f"},

    {"--allow-metrics=false", HAS, "--metrics=none"},
    {"--metrics-address=127.0.0.1 --metrics-port=0", HAS, "--metrics=127.0.0.1:0"},
    {"--allow-gpu-metrics=false", IS_QUIET, ""},
    {"--allow-gpu-metrics=true", IS_NOTED, "--allow-gpu-metrics=true"},
    {"--allow-cpu-metrics=off", HAS, "--allow-cpu-metrics=false"},
    {"--metrics-interval-ms=0.5", IS_NOTED, "--metrics-interval-ms=0.5"},
    {"--metrics-interval-ms=often", IS_REFUSED, "--metrics-interval-ms: expected a number"},
    {"--metrics-config=counter_latencies=false", HAS, "--metrics-config=counter_latencies=false"},
    {"--metrics-config summary_quantiles=0.5:0.1,0.9:0.1", HAS,
     "--metrics-config=summary_quantiles=0.5:0.1,0.9:0.1"},
    {"--metrics-config=tags=on", IS_NOTED, "--metrics-config=tags=on"},

    {"--trace-config=rate=1 --trace-config=level=TENSORS", HAS, "--trace-config=rate=1"},
    {"--trace-config=rate=1 --trace-rate=2", LACKS, "--trace-config=rate=2"},
    {"--trace-file=/t", HAS, "--trace-config=triton,file=/t"},
    {"--trace-level=TIMESTAMPS", HAS, "--trace-config=level=TIMESTAMPS"},
    {"--trace-rate=5", HAS, "--trace-config=rate=5"},
    {"--trace-count=5", HAS, "--trace-config=count=5"},
    {"--trace-log-frequency=5", HAS, "--trace-config=triton,log-frequency=5"},

    {"--backend-directory=/opt/tritonserver/backends", IS_NOTED,
     "--backend-directory=/opt/tritonserver/backends"},
    {"--backend-config=default-max-batch-size=16", HAS, "--default-max-batch-size=16"},
    {"--backend-config=onnxruntime,threads=2", HAS, "--backend-config=onnxruntime,threads=2"},
    {"--backend-config=min-compute-capability=6", IS_NOTED,
     "--backend-config=min-compute-capability=6"},
    {"--backend-config=onnxruntime", IS_REFUSED,
     "--backend-config: expected BACKEND,KEY=VALUE or KEY=VALUE, got \"onnxruntime\""},
    {"--backend-config=,a=b", IS_REFUSED, "--backend-config: expected BACKEND,KEY=VALUE"},
    {"--repoagent-directory=/r", IS_NOTED, "--repoagent-directory=/r"},
    {"--cache-config=local,size=1048576", HAS, "--cache-config=local,size=1048576"},
    {"--response-cache-byte-size=1024", HAS, "--cache-config=local,size=1024"},
    {"--response-cache-byte-size=1024 --cache-config=local,size=1", IS_REFUSED,
     "exclude each other"},
    {"--cache-directory=/c", IS_NOTED, "--cache-directory=/c"},
    {"--rate-limit=OFF", IS_QUIET, ""},
    {"--rate-limit=execution_count", IS_NOTED, "--rate-limit=execution_count"},
    {"--rate-limit=sometimes", IS_REFUSED, "--rate-limit: expected execution_count or off"},
    {"--rate-limit-resource=R1:2:0", IS_NOTED, "--rate-limit-resource=R1:2:0"},
    {"--host-policy=cpu,cpu-cores=0-1", HAS, "--host-policy=cpu,cpu-cores=0-1"},
    {"--allow-client-shm=1", HAS, "--allow-client-shm=true"},
    {"--buffer-manager-thread-count=2", IS_NOTED, "--buffer-manager-thread-count=2"},

    {"--allow-vertex-ai=false", IS_QUIET, ""},
    {"--allow-vertex-ai=true", IS_REFUSED, "Vertex AI needs AIP_HEALTH_ROUTE in the environment"},
    {"--vertex-ai-port=1", IS_QUIET, ""},
    {"--vertex-ai-thread-count=1", IS_NOTED, "--vertex-ai-thread-count=1"},
    {"--vertex-ai-default-model=m", IS_QUIET, ""},
    {"--allow-sagemaker=false", IS_QUIET, ""},
    {"--allow-sagemaker=true", HAS, "--platform=sagemaker"},
    {"--allow-sagemaker=true --allow-http=false", HAS, "--http=0.0.0.0:8080"},
    {"--allow-sagemaker=true --allow-http=false", LACKS, "--http=none"},
    {"--allow-sagemaker=true", HAS, "--http=0.0.0.0:8000"},
    {"--sagemaker-port=1", IS_QUIET, ""},
    {"--sagemaker-port=9 --allow-sagemaker=1", HAS, "--http=0.0.0.0:9"},
    {"--sagemaker-port=x --allow-sagemaker=1", IS_REFUSED, "--sagemaker-port: expected"},
    {"--sagemaker-safe-port-range=1-2", IS_QUIET, ""},
    {"--sagemaker-safe-port-range=1-2 --allow-sagemaker=1", IS_REFUSED,
     "--sagemaker-port 8080 is outside of --sagemaker-safe-port-range 1-2"},
    {"--sagemaker-safe-port-range=1 --allow-sagemaker=1", IS_REFUSED, "expected FIRST-LAST"},
    {"--sagemaker-thread-count=1", IS_NOTED, "--sagemaker-thread-count=1"},

    {"--pinned-memory-pool-byte-size=0", IS_NOTED, "--pinned-memory-pool-byte-size=0"},
    {"--cuda-memory-pool-byte-size=0:67108864", IS_NOTED,
     "--cuda-memory-pool-byte-size=0:67108864"},
    {"--cuda-virtual-address-size=0:1", IS_NOTED, "--cuda-virtual-address-size=0:1"},
    {"--min-supported-compute-capability=6.0", IS_NOTED, "--min-supported-compute-capability=6.0"},
    {"--enable-peer-access=true", IS_NOTED, "--enable-peer-access=true"},
    {"--enable-peer-access=false", IS_QUIET, ""},
    {"--model-load-gpu-limit=0:0.5", IS_NOTED, "--model-load-gpu-limit=0:0.5"},

    {"--op-library-dir=/a --op-library-dir /b", HAS, "--op-library-dir=/a"},
    {"--python /opt/venv", HAS, "--python=/opt/venv"},
    {"--gpu-models-on-cpu=TRUE", HAS, "--gpu-models-on-cpu=true"},
    {"--programs-from-requests=true", HAS, "--programs-from-requests=true"},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static bool has_argument(const struct triton_flags *flags, const char *what) {
    for (int i = 1; i < flags->argc; i++) {
        if (strcmp(flags->argv[i], what) == 0) {
            return true;
        }
    }
    return false;
}

static bool outcome_is(struct arena *arena, const struct outcome *outcome, enum says says,
                       const char *what) {
    if (says == IS_REFUSED) {
        return outcome->status == ST_BAD_CONFIG && strstr(outcome->err.text, what);
    }
    if (outcome->status != ST_OK) {
        return false;
    }
    const struct triton_flags *flags = &outcome->flags;
    switch (says) {
    case HAS:
        return has_argument(flags, what);
    case LACKS:
        return !has_argument(flags, what);
    case IS_NOTED:
        return flags->n_notes == 1 && strcmp(flags->notes[0].flag, what) == 0 &&
               *flags->notes[0].why;
    case IS_QUIET:
    case IS_REFUSED:
        break;
    }
    struct outcome defaults = translate(arena, "");
    return flags->n_notes == 0 && (flags->help || str_eq(outcome->args, defaults.args));
}

static void triton_flag_translates_to_ours(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct outcome outcome = translate(arena, CASES[i].line);
        if (!outcome_is(arena, &outcome, CASES[i].says, CASES[i].what)) {
            fail_msg("%s: not as expected (%s): %s%.*s", CASES[i].line, CASES[i].what,
                     outcome.status == ST_OK ? "" : outcome.err.text, STR_ARG(outcome.args));
        }
        arena_free(arena);
    }
}

static void triton_every_flag_has_test_case(void **state) {
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        char written[128];
        size_t n = (size_t)snprintf(written, sizeof(written), "--%s", NAMES[i]);
        bool found = false;
        for (size_t j = 0; j < N_CASES && !found; j++) {
            const char *at = strstr(CASES[j].line, written);
            found = at && (at[n] == '=' || at[n] == ' ' || at[n] == '\0');
        }
        if (!found) {
            fail_msg("no case has %s", written);
        }
    }
}

static void triton_log_levels_are_switched_one_by_one(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct outcome outcome = translate(arena, "--log-info=0 --log-warning=OFF --log-error=true");
    assert_int_equal(outcome.status, ST_OK);
    assert_true(outcome.flags.no_info && outcome.flags.no_warning && !outcome.flags.no_error);
    arena_free(arena);
}

static void set_variables(const char *const variables[][2], size_t n) {
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(setenv(variables[i][0], variables[i][1], 1), 0);
    }
}

static void triton_vertex_environment_serves_its_routes_unless_turned_off(void **state) {
    static const char *const variables[][2] = {{"AIP_MODE", "PREDICTION"},
                                               {"AIP_HTTP_PORT", "8085"},
                                               {"AIP_HEALTH_ROUTE", "/health"},
                                               {"AIP_PREDICT_ROUTE", "/predict"},
                                               {"AIP_STORAGE_URI", "/models"}};
    enum { N = sizeof(variables) / sizeof(*variables) };
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    set_variables(variables, N);
    struct outcome on = translate(arena, "--vertex-ai-default-model=m"),
                   both = translate(arena, "--allow-http=1 --model-repository=/r"),
                   off = translate(arena, "--allow-vertex-ai=off");
    for (size_t i = 0; i < N; i++) {
        unsetenv(variables[i][0]);
    }
    assert_int_equal(on.status, ST_OK);
    assert_int_equal(both.status, ST_OK);
    assert_int_equal(off.status, ST_OK);
    static const char *const wanted[] = {"--http=0.0.0.0:8085",
                                         "--grpc=none",
                                         "--platform=vertex-ai",
                                         "--platform-health-route=/health",
                                         "--platform-predict-route=/predict",
                                         "--platform-model=m",
                                         "--model-repository=/models"};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        assert_true(has_argument(&on.flags, wanted[i]));
    }
    assert_false(has_argument(&on.flags, "--http=0.0.0.0:8000"));
    assert_false(has_argument(&on.flags, "--http=none"));
    assert_true(has_argument(&both.flags, "--http=0.0.0.0:8000"));
    assert_false(has_argument(&both.flags, "--model-repository=/models"));
    assert_false(has_argument(&off.flags, "--platform=vertex-ai"));
    assert_true(has_argument(&off.flags, "--http=0.0.0.0:8000"));
    arena_free(arena);
}

static void triton_sagemaker_environment_is_read(void **state) {
    static const char *const variables[][2] = {{"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "m"},
                                               {"SAGEMAKER_TRITON_PING_MODE", "live"},
                                               {"SAGEMAKER_TRITON_INFERENCE_TYPE", "generate"}};
    enum { N = sizeof(variables) / sizeof(*variables) };
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    set_variables(variables, N);
    struct outcome on = translate(arena, "--allow-sagemaker=true");
    for (size_t i = 0; i < N; i++) {
        unsetenv(variables[i][0]);
    }
    assert_true(has_argument(&on.flags, "--platform-model=m"));
    assert_true(has_argument(&on.flags, "--platform-health=live"));
    assert_true(has_argument(&on.flags, "--platform-inference=generate"));
    arena_free(arena);
}

static void triton_sagemaker_multi_model_loads_from_its_directory(void **state) {
    static const char *const variables[][2] = {{"SAGEMAKER_MULTI_MODEL", "true"}};
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct outcome without = translate(arena, "--allow-sagemaker=true");
    set_variables(variables, 1);
    struct outcome on = translate(arena, "--allow-sagemaker=true --model-control-mode=explicit");
    unsetenv(variables[0][0]);
    assert_true(has_argument(&on.flags, "--platform-models=/opt/ml/models"));
    assert_true(has_argument(&on.flags, "--platform-health=live"));
    assert_false(has_argument(&without.flags, "--platform-models=/opt/ml/models"));
    assert_true(has_argument(&without.flags, "--platform-health=ready"));
    arena_free(arena);
}

/* The arguments in the manifests that people have. */
static void triton_manifest_arguments_are_accepted(void **state) {
    static const char *const lines[] = {
        /* KServe's ClusterServingRuntime */
        "--model-store=/mnt/models --grpc-port=9000 --http-port=8080 --allow-grpc=true "
        "--allow-http=true",
        /* ModelMesh's */
        "--model-repository=/models/_triton_models --model-control-mode=explicit "
        "--strict-model-config=false --strict-readiness=false --allow-http=true "
        "--allow-sagemaker=false",
        /* the chart in the server's repository */
        "--model-store=s3://models --model-control-mode=poll --repository-poll-secs=5",
        /* the charts for AWS and GKE */
        "--model-repository=/data/model_repository --log-verbose=0 --log-info=true "
        "--exit-on-error=true --strict-model-config=false",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct outcome outcome = translate(arena, lines[i]);
        if (outcome.status != ST_OK) {
            fail_msg("%s: %s", lines[i], outcome.err.text);
        }
        assert_int_equal(outcome.flags.n_notes, 0);
        arena_free(arena);
    }
}

/* Each flag has a row in the manual, with our flag, or the reason why it has none. */
static void triton_manual_lists_every_flag(void **state) {
    static const struct flags_manual_row rows[] = {
#define TRITON(name, kind, action, ours, why) {name, ours, why},
#include "program/model_server/triton_flags.def"
#undef TRITON
    };
    (void)state;
    assert_manual_has_rows("docs/triton-flags.md", rows, N_NAMES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(triton_flag_translates_to_ours),
        cmocka_unit_test(triton_every_flag_has_test_case),
        cmocka_unit_test(triton_log_levels_are_switched_one_by_one),
        cmocka_unit_test(triton_vertex_environment_serves_its_routes_unless_turned_off),
        cmocka_unit_test(triton_sagemaker_environment_is_read),
        cmocka_unit_test(triton_sagemaker_multi_model_loads_from_its_directory),
        cmocka_unit_test(triton_manifest_arguments_are_accepted),
        cmocka_unit_test(triton_manual_lists_every_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
