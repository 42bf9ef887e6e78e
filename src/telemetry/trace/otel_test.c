/* The variables of OpenTelemetry: defaults, values, those that are invalid, and the samplers. */
#include "telemetry/trace/otel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const NAMES[] = {"OTEL_TRACES_SAMPLER",
                                    "OTEL_TRACES_SAMPLER_ARG",
                                    "OTEL_TRACES_EXPORTER",
                                    "OTEL_EXPORTER_OTLP_ENDPOINT",
                                    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                                    "OTEL_EXPORTER_OTLP_PROTOCOL",
                                    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
                                    "OTEL_EXPORTER_OTLP_HEADERS",
                                    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                                    "OTEL_EXPORTER_OTLP_TIMEOUT",
                                    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
                                    "OTEL_EXPORTER_OTLP_CERTIFICATE",
                                    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
                                    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
                                    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
                                    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
                                    "OTEL_EXPORTER_OTLP_INSECURE",
                                    "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
                                    "OTEL_BSP_MAX_QUEUE_SIZE",
                                    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
                                    "OTEL_BSP_SCHEDULE_DELAY",
                                    "OTEL_RESOURCE_ATTRIBUTES",
                                    "OTEL_SERVICE_NAME"};
#define FULL UINT64_C(0x8000000000000000)

static struct arena *arena;
static struct error err;

static int setup(void **state) {
    (void)state;
    arena = arena_new(NULL, 0);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        unsetenv(NAMES[i]);
    }
    return arena ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

/* Sets "NAME=VALUE|NAME=VALUE"; reads; unsets. */
static enum status read_with(const char *variables, struct otel_settings *out) {
    char *copy = strdup(variables), *rest = copy, *item;
    while ((item = strsep(&rest, "|")) && *item) {
        char *value = item;
        const char *name = strsep(&value, "=");
        assert_int_equal(setenv(name, value, 1), 0);
    }
    free(copy);
    enum status st = otel_settings_read(arena, "me", out, &err);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        unsetenv(NAMES[i]);
    }
    return st;
}

static void otel_defaults_are_upstreams(void **state) {
    struct otel_settings settings;
    (void)state;
    assert_int_equal(read_with("", &settings), ST_OK);
    assert_true(settings.exports && settings.sampler.is_parent_based);
    assert_int_equal(settings.sampler.bound, (uint64_t)(0.1 * 9223372036854775808.0));
    assert_int_equal(settings.collector.protocol, TRACE_GRPC);
    assert_string_equal(settings.collector.url, "localhost:4317");
    assert_int_equal(settings.collector.max_queue, 2048);
    assert_int_equal(settings.collector.max_batch, 512);
    assert_int_equal(settings.collector.delay_ms, 5000);
    assert_int_equal(settings.collector.timeout_ns, UINT64_C(10000000000));
    assert_int_equal(settings.collector.n_resource, 2);
    assert_true(str_is(settings.collector.resource[0].text, "me"));
}

static void otel_endpoints_become_urls(void **state) {
    static const struct {
        const char *variables, *url; /* NULL: refused */
    } rows[] = {
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "c:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c", "c:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1/v1", "c:1"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://[::1]:5/", "[::1]:5"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://[::1]", "[::1]:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:4318", "c:4318"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://c:4318/", "c:4318"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://[::1]", "[::1]:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://", NULL},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=grpc://c:1", NULL},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://a|OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://b",
         "b:4317"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "http://localhost:4318/v1/traces"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL=http/json|OTEL_EXPORTER_OTLP_ENDPOINT=https://c:1/a//",
         "https://c:1/a/v1/traces"},
        {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json|OTEL_EXPORTER_OTLP_PROTOCOL=grpc|"
         "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c/x",
         "http://c/x"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL=http/json|OTEL_EXPORTER_OTLP_ENDPOINT=c:1", NULL},
        {"OTEL_EXPORTER_OTLP_PROTOCOL=udp", NULL},
        {"OTEL_TRACES_EXPORTER=zipkin", NULL},
        {"OTEL_TRACES_EXPORTER=otlp|OTEL_EXPORTER_OTLP_ENDPOINT=", "localhost:4317"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct otel_settings settings;
        enum status st = read_with(rows[i].variables, &settings);
        if ((st == ST_OK) != (rows[i].url != NULL) ||
            (rows[i].url && strcmp(settings.collector.url, rows[i].url) != 0)) {
            fail_msg("%s: %s", rows[i].variables, st == ST_OK ? settings.collector.url : err.text);
        }
    }
}

/* A scheme counts before OTEL_EXPORTER_OTLP_INSECURE, which is for gRPC. */
static void otel_endpoints_are_over_tls(void **state) {
    static const struct {
        const char *variables;
        bool is_tls;
    } rows[] = {
        {"", false},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1", false},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://c:1", true},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:1", true},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:1|OTEL_EXPORTER_OTLP_INSECURE=true", false},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:1|OTEL_EXPORTER_OTLP_INSECURE=TRUE", false},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:1|OTEL_EXPORTER_OTLP_INSECURE=false", true},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:1|OTEL_EXPORTER_OTLP_INSECURE=1", true}, /* invalid */
        {"OTEL_EXPORTER_OTLP_ENDPOINT=c:1|OTEL_EXPORTER_OTLP_INSECURE=true|"
         "OTEL_EXPORTER_OTLP_TRACES_INSECURE=false",
         true},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=https://c:1|OTEL_EXPORTER_OTLP_INSECURE=true", true},
        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1|OTEL_EXPORTER_OTLP_INSECURE=false", false},
        {"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf|OTEL_EXPORTER_OTLP_ENDPOINT=https://c", true},
        {"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf|OTEL_EXPORTER_OTLP_ENDPOINT=http://c", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct otel_settings settings;
        assert_int_equal(read_with(rows[i].variables, &settings), ST_OK);
        if (settings.collector.is_tls != rows[i].is_tls) {
            fail_msg("%s", rows[i].variables);
        }
    }
}

static void otel_files_of_tls_have_their_variables(void **state) {
    struct otel_settings settings;
    (void)state;
    assert_int_equal(read_with("OTEL_EXPORTER_OTLP_ENDPOINT=https://c|"
                               "OTEL_EXPORTER_OTLP_CERTIFICATE=/a|"
                               "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=/b|"
                               "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/c|"
                               "OTEL_EXPORTER_OTLP_CLIENT_KEY=/d",
                               &settings),
                     ST_OK);
    const struct grpc_client_tls *tls = &settings.collector.tls;
    assert_string_equal(tls->ca, "/b");
    assert_string_equal(tls->ca_setting, "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE");
    assert_string_equal(tls->cert, "/c");
    assert_string_equal(tls->cert_setting, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE");
    assert_string_equal(tls->key, "/d");
    assert_int_equal(read_with("OTEL_EXPORTER_OTLP_ENDPOINT=https://c|"
                               "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY=/d",
                               &settings),
                     ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: expected its "
                                     "certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"));
    assert_int_equal(read_with("OTEL_EXPORTER_OTLP_CLIENT_KEY=/d", &settings), ST_OK);
}

static void otel_invalid_numbers_leave_the_default(void **state) {
    struct otel_settings settings;
    (void)state;
    assert_int_equal(read_with("OTEL_BSP_MAX_QUEUE_SIZE=0|OTEL_BSP_MAX_EXPORT_BATCH_SIZE=x|"
                               "OTEL_BSP_SCHEDULE_DELAY=-1|OTEL_EXPORTER_OTLP_TIMEOUT=1.5",
                               &settings),
                     ST_OK);
    assert_int_equal(settings.collector.max_queue, 2048);
    assert_int_equal(settings.collector.max_batch, 512);
    assert_int_equal(settings.collector.delay_ms, 5000);
    assert_int_equal(settings.collector.timeout_ns, UINT64_C(10000000000));
    assert_int_equal(read_with("OTEL_BSP_MAX_QUEUE_SIZE=100|OTEL_EXPORTER_OTLP_TIMEOUT=7|"
                               "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=8",
                               &settings),
                     ST_OK);
    assert_int_equal(settings.collector.max_batch, 100); /* no more than the queue */
    assert_int_equal(settings.collector.timeout_ns, 8000000);
}

static void otel_lists_are_decoded(void **state) {
    struct otel_settings settings;
    (void)state;
    assert_int_equal(read_with("OTEL_RESOURCE_ATTRIBUTES=a=b%20c, d = e=f ,bad,x=%zz,y=%4,"
                               "service.version=7,a=last|OTEL_SERVICE_NAME=named|"
                               "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20x,k=",
                               &settings),
                     ST_OK);
    const struct trace_export_options *got = &settings.collector;
    assert_int_equal(got->n_resource, 4);
    assert_true(str_is(got->resource[0].text, "named") && str_is(got->resource[1].text, "7"));
    assert_true(str_is(got->resource[2].key, "a") && str_is(got->resource[2].text, "last"));
    assert_true(str_is(got->resource[3].key, "d") && str_is(got->resource[3].text, "e=f"));
    assert_int_equal(got->n_fields, 2);
    assert_true(str_is(got->fields[0].name, "authorization"));
    assert_true(str_is(got->fields[0].value, "Bearer x"));
    assert_true(str_is(got->fields[1].name, "k") && got->fields[1].value.len == 0);
    assert_int_equal(read_with("OTEL_EXPORTER_OTLP_HEADERS=a b=c", &settings), ST_BAD_CONFIG);
    assert_int_equal(read_with("OTEL_EXPORTER_OTLP_HEADERS=a=%0a", &settings), ST_BAD_CONFIG);
}

/* Many more than there is place for. */
static void otel_lists_are_bounded(void **state) {
    static char attributes[4096] = "OTEL_RESOURCE_ATTRIBUTES=",
                fields[4096] = "OTEL_EXPORTER_OTLP_HEADERS=";
    struct otel_settings settings;
    (void)state;
    for (int i = 0; i < 100; i++) {
        size_t n = strlen(attributes), m = strlen(fields);
        snprintf(attributes + n, sizeof attributes - n, "k%d=v,", i);
        snprintf(fields + m, sizeof fields - m, "k%d=v,", i);
    }
    assert_int_equal(read_with(attributes, &settings), ST_OK);
    assert_int_equal(settings.collector.n_resource, TRACE_MAX_RESOURCES);
    assert_int_equal(read_with(fields, &settings), ST_BAD_CONFIG);
}

static void otel_samplers_decide(void **state) {
    static const struct {
        const char *variables;
        bool of_low, of_high, of_sampled, of_unsampled;
    } rows[] = {
        {"OTEL_TRACES_SAMPLER=always_on", true, true, true, true},
        {"OTEL_TRACES_SAMPLER=always_off", false, false, false, false},
        {"OTEL_TRACES_SAMPLER=parentbased_always_on", true, true, true, false},
        {"OTEL_TRACES_SAMPLER=parentbased_always_off", false, false, true, false},
        {"OTEL_TRACES_SAMPLER=traceidratio|OTEL_TRACES_SAMPLER_ARG=0.5", true, false, true, true},
        {"OTEL_TRACES_SAMPLER=traceidratio|OTEL_TRACES_SAMPLER_ARG=0", false, false, false, false},
        {"OTEL_TRACES_SAMPLER_ARG=1", true, true, true, false},
        {"", true, false, true, false},
        {"OTEL_TRACES_SAMPLER_ARG=2", true, false, true, false},   /* invalid: 0.1 */
        {"OTEL_TRACES_SAMPLER_ARG=nan", true, false, true, false}, /* likewise */
        {"OTEL_TRACES_SAMPLER=xray", true, false, true, false},
    };
    unsigned char low[TRACE_ID_BYTES] = {0xff, [TRACE_ID_BYTES / 2] = 0x01};
    unsigned char high[TRACE_ID_BYTES] = {0, [TRACE_ID_BYTES / 2] = 0xff};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct otel_settings settings;
        const struct traceparent sampled = {.sampled = true}, unsampled = {.sampled = false};
        assert_int_equal(read_with(rows[i].variables, &settings), ST_OK);
        const struct otel_sampler *sampler = &settings.sampler;
        if (otel_is_sampled(sampler, NULL, low) != rows[i].of_low ||
            otel_is_sampled(sampler, NULL, high) != rows[i].of_high ||
            otel_is_sampled(sampler, &sampled, low) != rows[i].of_sampled ||
            otel_is_sampled(sampler, &unsampled, low) != rows[i].of_unsampled) {
            fail_msg("%s", rows[i].variables);
        }
    }
    struct otel_settings settings;
    unsigned char highest[TRACE_ID_BYTES];
    memset(highest, 0xff, sizeof highest);
    assert_int_equal(read_with("OTEL_TRACES_SAMPLER_ARG=1", &settings), ST_OK);
    assert_int_equal(settings.sampler.bound, FULL);
    assert_true(otel_is_sampled(&settings.sampler, NULL, highest));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(otel_defaults_are_upstreams, setup, teardown),
        cmocka_unit_test_setup_teardown(otel_endpoints_become_urls, setup, teardown),
        cmocka_unit_test_setup_teardown(otel_endpoints_are_over_tls, setup, teardown),
        cmocka_unit_test_setup_teardown(otel_files_of_tls_have_their_variables, setup, teardown),
        cmocka_unit_test_setup_teardown(otel_invalid_numbers_leave_the_default, setup, teardown),
        cmocka_unit_test_setup_teardown(otel_lists_are_decoded, setup, teardown),
        cmocka_unit_test_setup_teardown(otel_lists_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(otel_samplers_decide, setup, teardown),
    };
    return cmocka_run_group_tests_name("telemetry/trace/otel", tests, NULL, NULL);
}
