/* --trace-config: the meaning of each setting, and the errors. */
#include "serve/trace/tracer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static enum status read_two(const char *first, const char *second, struct tracer_options *out,
                            struct error *err) {
    const char *items[] = {first, second};
    return trace_config_parse(items, second ? 2 : 1, out, err);
}

static void trace_config_without_items_has_defaults(void **state) {
    struct tracer_options got;
    struct error err;
    (void)state;
    assert_int_equal(trace_config_parse(NULL, 0, &got, &err), ST_OK);
    assert_int_equal(got.values.level, 0);
    assert_int_equal(got.values.rate, 1000);
    assert_int_equal(got.values.count, -1);
    assert_int_equal(got.values.log_frequency, 0);
    assert_null(got.file);
}

static void trace_config_later_item_wins(void **state) {
    struct tracer_options got;
    struct error err;
    (void)state;
    assert_int_equal(read_two("triton,file=t=,.json", "level=timestamps", &got, &err), ST_OK);
    assert_string_equal(got.file, "t=,.json");
    assert_int_equal(got.values.level, V2_TRACE_TIMESTAMPS);
    assert_int_equal(read_two("rate=7", "count=3", &got, &err), ST_OK);
    assert_int_equal(got.values.rate, 7);
    assert_int_equal(got.values.count, 3);
    assert_int_equal(read_two("triton,log-frequency=50", "mode=triton", &got, &err), ST_OK);
    assert_int_equal(got.values.log_frequency, 50);
    assert_int_equal(read_two("level=TENSORS", "level=OFF", &got, &err), ST_OK);
    assert_int_equal(got.values.level, 0);
    const char *both[] = {"level=TENSORS", "triton,file=/t", "level=on"};
    assert_int_equal(trace_config_parse(both, 3, &got, &err), ST_OK);
    assert_int_equal(got.values.level, V2_TRACE_TENSORS | V2_TRACE_TIMESTAMPS);
}

static void collector(void **state) {
    const char *items[] = {"mode=opentelemetry",
                           "level=TIMESTAMPS",
                           "rate=0",
                           "opentelemetry,url=http://h:1/x=y,z",
                           "opentelemetry,resource=a=b=c",
                           "opentelemetry,resource=service.name=other",
                           "opentelemetry,bsp_schedule_delay=7"};
    struct tracer_options got;
    struct error err;
    (void)state;
    assert_int_equal(trace_config_parse(items, sizeof items / sizeof items[0], &got, &err), ST_OK);
    assert_true(got.opentelemetry);
    assert_string_equal(got.collector.url, "http://h:1/x=y,z");
    assert_int_equal(got.collector.n_resource, 2);
    assert_true(str_is(got.collector.resource[0].text, "other"));
    assert_true(str_is(got.collector.resource[1].text, "b=c"));
    assert_int_equal(got.collector.delay_ms, 7);
    assert_int_equal(got.collector.max_queue, 2048);
}

static void trace_config_bad_item_is_refused(void **state) {
    static const struct {
        const char *first, *second;
        const char *says;
    } rows[] = {
        {"", NULL, "expected level="},
        {"level", NULL, "expected level="},
        {"nope=1", NULL, "expected level="},
        {"triton,nope=1", NULL, "expected level="},
        {",file=x", NULL, "expected level="},
        {"other,file=x", NULL, "expected level="},
        {"level=EVERYTHING", NULL, "TIMESTAMPS"},
        {"rate=-1", NULL, "whole number"},
        {"rate=", NULL, "whole number"},
        {"count=-2", NULL, "whole number"},
        {"mode=jaeger", NULL, "mode"},
        {"opentelemetry,url=ftp://localhost:4318", NULL, "http://"},
        {"opentelemetry,url=", NULL, "http://"},
        {"opentelemetry,resource=name", NULL, "KEY=VALUE"},
        {"opentelemetry,resource==x", NULL, "KEY=VALUE"},
        {"opentelemetry,bsp_schedule_delay=0", NULL, "from 3"},
        {"opentelemetry,bsp_max_export_batch_size=4000", NULL, "bsp_max_queue_size"},
        {"opentelemetry,nope=1", NULL, "expected level="},
        {"mode=opentelemetry", "level=TENSORS", "TENSORS"},
        {"triton,log-frequency=x", NULL, "whole number"},
        {"triton,file=", NULL, "path"},
        {"triton,file=/nowhere/at/all/t.json", NULL, "/nowhere/at/all"},
        {"triton,file=folder/", NULL, "path"},
        {"level=TIMESTAMPS", NULL, "triton,file"},
    };
    struct tracer_options got;
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (read_two(rows[i].first, rows[i].second, &got, &err) != ST_BAD_CONFIG ||
            !strstr(err.text, rows[i].says)) {
            fail_msg("%s: %s", rows[i].first, err.text);
        }
    }
    const char *never[] = {"level=TIMESTAMPS", "triton,file=t", "rate=0"};
    assert_int_equal(trace_config_parse(never, 3, &got, &err), ST_BAD_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_config_without_items_has_defaults),
        cmocka_unit_test(trace_config_later_item_wins),
        cmocka_unit_test(collector),
        cmocka_unit_test(trace_config_bad_item_is_refused),
    };
    return cmocka_run_group_tests_name("serve/trace/config", tests, NULL, NULL);
}
