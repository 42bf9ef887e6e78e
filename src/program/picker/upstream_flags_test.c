/* The translation of each flag of the upstream project's picker, as documented in
 * docs/upstream-flags.md. Runs in the repository's root. */
#include "program/picker/upstream_flags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "program/options/translated_flags_fixture.h"

static const char *const NAMES[] = {
#define UPSTREAM(name, kind, action, our_name, why) name,
#include "program/picker/upstream_flags.def"
#undef UPSTREAM
};
enum { N_NAMES = sizeof(NAMES) / sizeof(NAMES[0]) };

struct outcome {
    enum status status;
    struct error err;
    struct upstream_flags flags;
    struct str args; /* the translated arguments, separated by blanks */
};

/* `line`: the arguments, separated by blanks. */
static struct outcome translate(struct arena *arena, const char *line) {
    char *argv[FLAGS_MOST_ARGS + 1] = {(char *)"pick"};
    int argc = flags_split(arena, line, argv);
    struct outcome outcome = {.status = ST_OK};
    outcome.status = upstream_flags_read(argc, argv, arena, &outcome.flags, &outcome.err);
    outcome.args = outcome.status == ST_OK
                       ? flags_join(arena, outcome.flags.argc, outcome.flags.argv)
                       : STR("");
    return outcome;
}

/* ---- each flag ------------------------------------------------------------------------------- */

/* The arguments for upstream's defaults, which come after translated ones. */
#define PLACES "--metrics=:9090 --health=:9003 --grpc=:9002"
#define DEFAULTS PLACES " --grpc-tls-self-signed"
#define METRICS(more) "{\"metrics\": {\"preset\": \"vllm\"" more "}}\n"
#define RULES(rules) METRICS(", \"rules\": {" rules "}")

enum says { BECOMES, IS_NOTED, CONFIGURES, IS_REFUSED };

static const struct {
    const char *line;
    enum says says;
    const char *what; /* the arguments, the note, the configuration, or a part of the message */
} CASES[] = {
    {"--pool-name p --pool-namespace n", BECOMES,
     DEFAULTS " --kube --pool-name=p --pool-namespace n"},
    {"-pool-name=p -poolNamespace n -pool-group=g -kubeconfig c", BECOMES,
     DEFAULTS " --kubeconfig=c --pool-group=g --pool-namespace=n --kube --pool-name=p"},
    {"--kube --pool-name p", BECOMES,
     "--kube --pool-name p"}, /* it is ours, too: no defaults apply */
    {"--pool-namespace=n", BECOMES, "--pool-namespace=n"},
    {"--pool-group=g", BECOMES, "--pool-group=g"},
    {"--kubeconfig c", BECOMES, "--kubeconfig c"},
    {"--fairness-id-metric-label-limit 5", BECOMES, "--fairness-id-metric-label-limit 5"},
    {"--grpc-port 9100", BECOMES,
     "--metrics=:9090 --health=:9003 --grpc-tls-self-signed --grpc=:9100"},
    {"--grpc-port=65536", IS_REFUSED, "--grpc-port: expected a port up to 65535, got \"65536\""},
    {"--grpc-port", IS_REFUSED, "--grpc-port needs a value"},
    {"--grpc-port 1 --grpc-port 2", BECOMES,
     "--metrics=:9090 --health=:9003 --grpc-tls-self-signed --grpc=:2"},
    {"--grpc-health-port=9100", BECOMES,
     "--metrics=:9090 --grpc=:9002 --grpc-tls-self-signed --health=:9100"},
    {"-grpcHealthPort 9100", BECOMES,
     "--metrics=:9090 --grpc=:9002 --grpc-tls-self-signed --health=:9100"},
    {"--metrics-port 0", BECOMES,
     "--health=:9003 --grpc=:9002 --grpc-tls-self-signed --metrics=:0"},
    {"--config-file /etc/epp.yaml", BECOMES, DEFAULTS " --config=/etc/epp.yaml"},
    {"--config-file=a --endpoint 1.2.3.4:5", BECOMES, DEFAULTS " --config=a --endpoint 1.2.3.4:5"},
    {"-config-text a", BECOMES, DEFAULTS " --config-text=a"},
    {"--config-text a", BECOMES, "--config-text a"}, /* it is ours, too: no defaults apply */
    {"-drain-timeout=1m30s", BECOMES, DEFAULTS " --drain-timeout=90000000us"},
    {"-drain-timeout=1.5s", BECOMES, DEFAULTS " --drain-timeout=1500000us"},
    {"-drain-timeout=30", IS_REFUSED, "expected a time such as 50ms, 30s or 1m30s, got \"30\""},
    {"--grpc-max-recv-msg-size=10Mi", BECOMES, DEFAULTS " --max-body-size=10MiB"},
    {"--grpc-max-recv-msg-size=25MB", BECOMES, DEFAULTS " --max-body-size=25MB"},
    {"--secure-serving", BECOMES, DEFAULTS},
    {"--secure-serving=false", BECOMES, PLACES},
    {"--secure-serving=maybe", IS_REFUSED, "--secure-serving: expected true or false"},
    {"--cert-path=/certs", BECOMES,
     PLACES " --grpc-tls-key=/certs/tls.key --grpc-tls-cert=/certs/tls.crt"},
    {"--cert-path=", BECOMES, DEFAULTS},
    {"--cert-path=/certs --secure-serving=0", BECOMES, PLACES},
    {"--cert-path=/certs --grpc-tls-cert=c --grpc-tls-key=k", BECOMES,
     PLACES " --grpc-tls-cert=c --grpc-tls-key=k"},
    {"--v 4", BECOMES, DEFAULTS " --log-level=debug"},
    {"-v=3", BECOMES, DEFAULTS " --log-level=info"},
    {"-v5", BECOMES, DEFAULTS " --log-level=debug"},
    {"-v -1", BECOMES, DEFAULTS " --log-level=info"},
    {"-v x", IS_REFUSED, "--v: expected a whole number, got \"x\""},
    {"--zap-log-level=warn -v 5", BECOMES, DEFAULTS " --log-level=warning"},
    {"--zap-log-level=panic", BECOMES, DEFAULTS " --log-level=error"},
    {"--zap-log-level=5", BECOMES, DEFAULTS " --log-level=debug"},
    {"--zap-log-level=loud", IS_REFUSED, "expected debug, info, error, panic or a number"},
    {"--zap-encoder json", BECOMES, DEFAULTS " --log-format=json"},
    {"--zap-encoder=console", BECOMES, DEFAULTS " --log-format=text"},
    {"--zap-encoder=xml", IS_REFUSED, "--zap-encoder: expected json or console, got \"xml\""},
    {"--refresh-metrics-interval 50ms", CONFIGURES, METRICS(", \"interval\": \"50000us\"")},
    {"--metrics-staleness-threshold=2s", CONFIGURES, METRICS(", \"max_age\": \"2000000us\"")},
    {"--model-server-metrics-port=8002", CONFIGURES, METRICS(", \"port\": 8002")},
    {"--model-server-metrics-port=0", CONFIGURES, METRICS("")},
    {"--model-server-metrics-path=/m", CONFIGURES, METRICS(", \"path\": \"/m\"")},
    {"--model-server-metrics-scheme=https", CONFIGURES, METRICS(", \"scheme\": \"https\"")},
    {"--model-server-metrics-https-insecure-skip-verify", CONFIGURES,
     METRICS(", \"insecure_skip_verify\": true")},
    {"--total-queued-requests-metric=q", CONFIGURES, RULES("\"waiting\": {\"series\": \"q\"}")},
    {"--total-queued-requests-metric=", CONFIGURES, METRICS("")},
    {"--total-queued-requests-metric={a=b}", IS_REFUSED, "expected NAME or NAME{LABEL=VALUE"},
    {"--total-queued-requests-metric=q{a}", IS_REFUSED, "expected NAME or NAME{LABEL=VALUE"},
    {"--total-running-requests-metric=q{a=b,c=\"d\"}", CONFIGURES,
     RULES("\"running\": {\"series\": \"q\", \"labels\": {\"a\": \"b\", \"c\": \"d\"}}")},
    {"--kv-cache-usage-percentage-metric=k", CONFIGURES,
     RULES("\"kv_cache\": {\"series\": \"k\"}")},
    {"--lora-info-metric=l", CONFIGURES, RULES("\"adapters\": {\"series\": \"l\"}")},
    {"--cache-info-metric=c", CONFIGURES,
     RULES("\"kv_block_tokens\": {\"series\": \"c\", \"value_label\": \"block_size\"}, "
           "\"kv_blocks\": {\"series\": \"c\", \"value_label\": \"num_gpu_blocks\"}")},
    {"-destinationEndpointHintKey x-to", CONFIGURES,
     "{\"metrics\": {\"preset\": \"vllm\"}, \"protocol\": {\"destination_header\": \"x-to\", "
     "\"destination_key\": \"x-to\"}}\n"},
    {"-DestinationEndpointHintMetadataNamespace n", CONFIGURES,
     "{\"metrics\": {\"preset\": \"vllm\"}, \"protocol\": {\"destination_namespace\": \"n\"}}\n"},
    {"--health-checking", IS_NOTED, "--health-checking=true"},
    {"--enable-cert-reload=1", IS_NOTED, "--enable-cert-reload=true"},
    {"--enable-grpc-stream-metrics", IS_NOTED, "--enable-grpc-stream-metrics=true"},
    {"--enable-pprof=false", IS_NOTED, "--enable-pprof=false"},
    {"--refresh-prometheus-metrics-interval 5s", IS_NOTED,
     "--refresh-prometheus-metrics-interval=5s"},
    {"--grpc-max-send-msg-size 5", IS_NOTED, "--grpc-max-send-msg-size=5"},
    {"--allow-experimental-plugins", IS_NOTED, "--allow-experimental-plugins=true"},
    {"--zap-devel", IS_NOTED, "--zap-devel=true"},
    {"--zap-stacktrace-level error", IS_NOTED, "--zap-stacktrace-level=error"},
    {"--zap-time-encoding epoch", IS_NOTED, "--zap-time-encoding=epoch"},
    {"--tracing", BECOMES, "--tracing"},
    {"--tracing=true --tracing=false", BECOMES, ""},
    {"--ha-enable-leader-election", BECOMES, DEFAULTS " --leader-election"},
    {"--ha-enable-leader-election=false", BECOMES, DEFAULTS},
    {"--emit-endpoint-scores", BECOMES, "--emit-endpoint-scores"},
    {"--emit-endpoint-scores=true", BECOMES, "--emit-endpoint-scores"},
    {"--emit-endpoint-scores=false", BECOMES, ""},
    {"--emit-endpoint-scores --emit-endpoint-scores=false -v=1", BECOMES,
     DEFAULTS " --log-level=info"},
    {"-emit-endpoint-scores", BECOMES, DEFAULTS " --emit-endpoint-scores"},
    {"--emit-endpoint-scores=maybe", IS_REFUSED, "expected true or false"},
    {"--metrics-endpoint-auth", BECOMES, DEFAULTS " --metrics-auth"},
    {"--metrics-endpoint-auth=false", BECOMES, DEFAULTS},
    {"--disable-endpoint-subset-filter", IS_REFUSED, "the proxy's subset hint always applies"},
    {"--disable-endpoint-subset-filter=false", BECOMES, DEFAULTS},
    {"--metrics-cert-dir /c", BECOMES,
     DEFAULTS " --metrics-tls-key=/c/tls.key --metrics-tls-cert=/c/tls.crt"},
    {"--metrics-cert-dir=", BECOMES, DEFAULTS},
    {"--metrics-client-ca-file /c", BECOMES, DEFAULTS " --metrics-tls-client-ca=/c"},
    {"--tls-min-version VersionTLS12", IS_NOTED, "--tls-min-version=VersionTLS12"},
    {"--tls-min-version VersionTLS13", BECOMES, DEFAULTS " --grpc-tls-min-version=1.3"},
    {"--tls-min-version VersionTLS14", IS_REFUSED, "TLS 1.2 and 1.3 are supported"},
    {"--tls-cipher-suites A,B", BECOMES, DEFAULTS " --grpc-tls-suites=A,B"},
    {"--endpoint-data-parallel-size 1", BECOMES, DEFAULTS},
    {"--endpoint-data-parallel-size=8", IS_REFUSED,
     "--endpoint-data-parallel-size: not supported: an endpoint is an address, so ranks that "
     "share a port are not told apart"},
    {"--endpoint-selector app=a,b --endpoint-target-ports 1,2", BECOMES,
     DEFAULTS " --pod-ports=1,2 --kube --pod-selector=app=a,b"},
    {"--endpoint-target-ports 1,2", BECOMES, DEFAULTS " --pod-ports=1,2"},
    {"--plugin-state-staleness-threshold 10m", IS_NOTED, "--plugin-state-staleness-threshold=10m"},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static void check_case(struct arena *arena, size_t i) {
    struct outcome outcome = translate(arena, CASES[i].line);
    const struct upstream_flags *flags = &outcome.flags;
    struct str got = outcome.args;
    if (CASES[i].says == IS_REFUSED) {
        assert_int_equal(outcome.status, ST_BAD_CONFIG);
        got = str_of(strstr(outcome.err.text, CASES[i].what) ? CASES[i].what : outcome.err.text);
    } else if (outcome.status != ST_OK) {
        fail_msg("%s: %s", CASES[i].line, outcome.err.text);
    } else if (CASES[i].says == IS_NOTED) {
        assert_int_equal(flags->n_notes, 1);
        assert_true(strlen(flags->notes[0].why) > 0);
        got = str_of(flags->notes[0].flag);
    } else {
        assert_int_equal(flags->n_notes, 0);
        if (CASES[i].says == CONFIGURES) {
            assert_non_null(flags->extra_config_flag);
            got = str_of(flags->config);
        }
    }
    if (!str_is(got, CASES[i].what)) {
        fail_msg("%s:\ngot      %.*s\nexpected %s", CASES[i].line, STR_ARG(got), CASES[i].what);
    }
}

static void upstream_flag_translates_to_ours(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        struct arena *arena = arena_new(NULL, 0);
        assert_non_null(arena);
        check_case(arena, i);
        arena_free(arena);
    }
}

/* Does the case's line begin with the flag? Older releases write "grpcPort". */
static bool is_of(const char *line, const char *name) {
    for (line += strspn(line, "-"); *name; name += *name == '-') {
        if (*name != '-' && (*line++ | 0x20) != *name++) {
            return false;
        }
        line += *name == '-' && *line == '-';
    }
    return *line == '=' || *line == ' ' || *line == '\0';
}

static void upstream_every_flag_has_test_case(void **state) {
    (void)state;
    for (size_t i = 0; i < N_NAMES; i++) {
        bool found = false;
        for (size_t k = 0; k < N_CASES && !found; k++) {
            found = is_of(CASES[k].line, NAMES[i]);
        }
        if (!found) {
            fail_msg("--%s has no case", NAMES[i]);
        }
    }
}

/* ---- combinations ---------------------------------------------------------------------------- */

static void upstream_no_flags_changes_nothing(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct outcome outcome =
        translate(arena, "--endpoint 10.0.0.1:8000 --grpc=127.0.0.1:1 --drain-timeout 5s -- -v 4");
    assert_int_equal(outcome.status, ST_OK);
    assert_false(outcome.flags.used);
    assert_null(outcome.flags.config);
    assert_true(str_is(outcome.args,
                       "--endpoint 10.0.0.1:8000 --grpc=127.0.0.1:1 --drain-timeout 5s -- -v 4"));
    arena_free(arena);
}

/* The arguments in the manifests of the gateways' conformance suite, and of the upstream
 * project. */
static void upstream_manifest_arguments_are_accepted(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct outcome outcome = translate(arena, "--zap-encoder json --grpc-port 9002 "
                                              "--grpc-health-port 9003");
    assert_int_equal(outcome.status, ST_OK);
    assert_true(outcome.flags.used);
    assert_true(str_is(outcome.args, "--metrics=:9090 --grpc-tls-self-signed --log-format=json "
                                     "--health=:9003 --grpc=:9002"));
    assert_string_equal(outcome.flags.config, METRICS(""));
    assert_null(outcome.flags.extra_config_flag);
    outcome = translate(arena, "--v 4 --zap-encoder json --grpc-port 9002 --grpc-health-port 9003 "
                               "--config-file /etc/epp/epp-config.yaml");
    assert_int_equal(outcome.status, ST_OK);
    assert_true(str_is(outcome.args, "--metrics=:9090 --grpc-tls-self-signed --log-format=json "
                                     "--log-level=debug --config=/etc/epp/epp-config.yaml "
                                     "--health=:9003 --grpc=:9002"));
    arena_free(arena);
}

/* Our flags have precedence over upstream's defaults. */
static void upstream_own_flags_override(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct outcome outcome =
        translate(arena, "--grpc 127.0.0.1:1 --metrics=none --health=h --zap-devel "
                         "--grpc-tls-self-signed");
    assert_int_equal(outcome.status, ST_OK);
    assert_true(str_is(outcome.args,
                       "--grpc 127.0.0.1:1 --metrics=none --health=h --grpc-tls-self-signed"));
    arena_free(arena);
}

/* ---- the manual ------------------------------------------------------------------------------ */

/* Each flag has a row in the manual, with its translation, or the reason why it is ignored. */
static void upstream_manual_lists_every_flag(void **state) {
    static const struct flags_manual_row rows[] = {
#define UPSTREAM(name, kind, action, ours, why) {name, ours, why},
#include "program/picker/upstream_flags.def"
#undef UPSTREAM
    };
    (void)state;
    assert_manual_has_rows("docs/upstream-flags.md", rows, N_NAMES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(upstream_flag_translates_to_ours),
        cmocka_unit_test(upstream_every_flag_has_test_case),
        cmocka_unit_test(upstream_no_flags_changes_nothing),
        cmocka_unit_test(upstream_manifest_arguments_are_accepted),
        cmocka_unit_test(upstream_own_flags_override),
        cmocka_unit_test(upstream_manual_lists_every_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
