/* DNS names in a pool's configuration: valid ones and the specs that they result in, invalid ones
 * and their error texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "pick/config/dns_plan.h"
#include "pick/config/spec_print.h"
#include "pick/discovery/file/pool_file.h"

/* A file, and a part of its printed spec. */
static const struct {
    const char *text, *printed;
} taken[] = {
    {"endpoints: [Models.example:8000, {address: b.example., ports: [1, 2], labels: {a: b}},\n"
     "{address: _x._tcp.example, type: SRV}, {address: c.example, type: AAAA}]\nports: 9\n"
     "dns: {servers: [10.0.0.1, '[::1]:5353', '::2'], shortest: 2s, keep: 0s}\n",
     "endpoints   0\nnames       4, whose addresses are endpoints too; not resolved here\n"
     "  models.example                A and AAAA, port 8000\n"
     "  b.example.                    A and AAAA, port 1 2  a=b\n"
     "  _x._tcp.example               SRV\n"
     "  c.example                     AAAA, port 9\n"
     "dns         asks 10.0.0.1:53,[::1]:5353,[::2]:53, once more after 1 s; an answer counts 2 s "
     "to 300 s; what is gone stays 0 s\n"},
    {"endpoints: [a.example]\nports: [1, 2]\n",
     "  a.example                     A and AAAA, port 1 2\n"
     "dns         asks the system's servers, once more after 1 s; an answer counts 1 s to 300 s; "
     "what is gone stays 30 s\n"},
    {"selector: {a: b}\nendpoints: [a.example:1, {address: b.example:1, labels: {a: b}}]\n",
     "  a.example                     A and AAAA, port 1  (not in the pool)\n"
     "  b.example                     A and AAAA, port 1  a=b\n"},
    {"endpoints: [{address: a.example:1, type: A}, {address: a.example:1, type: AAAA}]\n",
     "  a.example                     A, port 1\n  a.example                     AAAA, port 1\n"},
};

static const struct {
    const char *text, *message; /* follows "pool.yaml:" */
} refused[] = {
    {"endpoints:\n- models.example:0\n",
     "2: endpoints[0]: expected \"IP:PORT\" (10.0.0.1:8000, and in quotes \"[::1]:8000\") or "
     "\"NAME:PORT\" (models.example:8000), got \"models.example:0\""},
    {"endpoints:\n- models.example\n",
     "2: endpoints[0]: expected a port after the name (NAME:PORT), or `ports`, or an "
     "InferencePool with targetPorts"},
    {"endpoints: [{address: a.example:80, ports: 81}]\n",
     "1: endpoints[0].address: has a port, and the endpoint has `ports` as well"},
    {"endpoints: [{address: a.example, ports: 81, type: MX}]\n",
     "1: endpoints[0].type: expected any, A, AAAA or SRV, got \"MX\""},
    {"endpoints: [{address: a.example:80, type: SRV}]\n",
     "1: endpoints[0].address: expected a name without a port: SRV records have it"},
    {"endpoints: [{address: a.example, ports: 80, type: SRV}]\n",
     "1: endpoints[0].address: expected a name without a port: SRV records have it"},
    {"endpoints: [{address: '10.0.0.1:80', type: A}]\n",
     "1: endpoints[0].type: is for names; the endpoint has an IP"},
    {"endpoints:\n- a.example:80\n- A.example:80\n",
     "3: the endpoint \"a.example:80 A and AAAA\" is there twice; the first is in line 2"},
    {"dns: {servers: [ns.example]}\n",
     "1: dns.servers[0]: expected IP or IP:PORT, got \"ns.example\""},
    {"dns: {servers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, "
     "10.0.0.8, 10.0.0.9]}\n",
     "1: dns.servers: expected at most 8 servers, got 9"},
    {"dns: {shortest: 10s, longest: 5s}\n",
     "1: dns: expected `shortest` (10 s) to be no more than `longest` (5 s)"},
    {"dns: {ttl: 1}\n", "1: unknown field \"dns.ttl\""},
    {"metrics: {preset_label: p}\nendpoints: [{address: a.example:80, labels: {p: none}}]\n",
     "1: metrics: the endpoint a.example can't be scraped: expected a label with a preset's name "
     "(sluice, triton, vllm, sglang, tensorrt-llm, trtllm-serve) or `preset` here, and a port from "
     "1 "
     "to 65535"},
};

static void pool_config_dns_valid_is_printed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        struct pool_specs specs;
        struct error err;
        struct buf out;
        struct arena *arena = arena_new(NULL, 0);
        if (pool_file_parse("pool.yaml", str_of(taken[i].text), &specs, &err) != ST_OK) {
            fail_msg("%s\n%s", taken[i].text, err.text);
        }
        buf_init(&out, arena, 0);
        pool_specs_print(&specs, &out);
        buf_add_char(&out, '\0');
        if (!strstr(out.data, taken[i].printed)) {
            fail_msg("%s\nbecame\n%s\nwithout\n%s", taken[i].text, out.data, taken[i].printed);
        }
        assert_null(strstr(out.data, " \n"));
        arena_free(arena);
        pool_specs_free(&specs);
    }
}

static void pool_config_dns_invalid_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct pool_specs specs;
        struct error err;
        enum status st = pool_file_parse("pool.yaml", str_of(refused[i].text), &specs, &err);
        assert_int_equal(st, ST_BAD_CONFIG);
        assert_memory_equal(err.text, "pool.yaml:", 10);
        assert_string_equal(err.text + 10, refused[i].message);
    }
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void pool_config_dns_added_name_joins_pool(void **state) {
    (void)state;
    struct pool_specs specs;
    struct error err;
    assert_int_equal(pool_file_parse("f", STR("selector: {app: a}\n"), &specs, &err), ST_OK);
    struct pool_spec *spec = specs.items[0];
    assert_int_equal(pool_file_add_endpoint(spec, STR("Host:80"), &err), ST_OK);
    assert_int_equal(spec->dns->n_names, 1);
    assert_string_equal(spec->dns->names[0].name.ptr, "host");
    assert_int_equal(spec->dns->names[0].ports[0], 80);
    assert_true(pool_labels_match(spec->dns->names[0].labels, spec->selector));
    assert_int_equal(pool_file_add_endpoint(spec, STR("host"), &err), ST_BAD_CONFIG);
    assert_string_equal(err.text, "\"host\" is no endpoint: expected IP:PORT (10.0.0.1:8000, "
                                  "[::1]:8000) or NAME:PORT (models.example:8000)");
    for (int i = 1; i < DNS_MAX_NAMES; i++) {
        assert_int_equal(pool_file_add_endpoint(spec, STR("host:80"), &err), ST_OK);
    }
    assert_int_equal(pool_file_add_endpoint(spec, STR("host:80"), &err), ST_BAD_CONFIG);
    pool_specs_free(&specs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_config_dns_valid_is_printed),
        cmocka_unit_test(pool_config_dns_invalid_refused),
        cmocka_unit_test(pool_config_dns_added_name_joins_pool),
    };
    return cmocka_run_group_tests_name("pick/config/dns", tests, NULL, NULL);
}
