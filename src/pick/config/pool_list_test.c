/* Files with a list of pools: which requests each pool matches, and error texts of invalid
 * lists. */
#include "pick/discovery/file/pool_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pick/config/spec_print.h"
#include "pick/discovery/file/pool_file_fixture.h"

#define GROUP "apiVersion: inference.networking.k8s.io/v1\n"
#define POOL(name, label)                                                                          \
    "---\n" GROUP "kind: InferencePool\nmetadata: {name: " name "}\nspec:\n"                       \
    "  selector: {matchLabels: {app: " label "}}\n  targetPorts: [{number: 8000}]\n"
#define MODEL(name, pool)                                                                          \
    "---\n" GROUP "kind: InferenceModel\nmetadata: {name: m}\nspec: {modelName: " name             \
    ", poolRef: {name: " pool "}}\n"
#define ENDPOINTS "endpoints: [{address: 10.0.0.1, labels: {app: x}}]\n"

static void expect_printed(const char *text, const char *const *printed, size_t n) {
    struct pool_specs specs;
    struct error err;
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    if (pool_file_parse("pool.yaml", str_of(text), &specs, &err) != ST_OK) {
        fail_msg("%s\n%s", text, err.text);
    }
    assert_true(specs.is_list);
    buf_init(&out, arena, 0);
    pool_specs_print(&specs, &out);
    buf_add_char(&out, '\0');
    for (size_t i = 0; i < n; i++) {
        if (!strstr(out.data, printed[i])) {
            fail_msg("%s\nexpected in it: %s", out.data, printed[i]);
        }
    }
    arena_free(arena);
    pool_specs_free(&specs);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void pool_list_item_equals_file_of_one_pool(void **state) {
    static const char text[] = "pools:\n"
                               "- name: chat\n"
                               "  match: {authority: [Chat.example.com, \"*.chat.example.com\"]}\n"
                               "  endpoints: [10.0.0.1:80]\n"
                               "  models: [llama]\n"
                               "  health: {tcp: true}\n"
                               "- name: vision\n"
                               "  match:\n"
                               "    path_prefix: /vision/\n"
                               "    header: {name: x-tenant, value: a b}\n"
                               "    metadata: {namespace: my.filter, key: kind, value: picture}\n"
                               "  endpoints: [10.0.0.1:80, 10.0.0.2:80]\n"
                               "- name: others\n"
                               "  metrics: {preset: vllm}\n"
                               "  endpoints: [10.0.0.3:80]\n";
    static const char *const printed[] = {
        "--- pool 1 of 3\ntakes       authority chat.example.com or *.chat.example.com\n"
        "pool        chat\nendpoints   1\n",
        "readiness   a TCP connection",
        "models      1; a request for another is refused\n  llama",
        "--- pool 2 of 3\ntakes       path /vision, header x-tenant = a b, metadata "
        "my.filter/kind = picture\npool        vision\nendpoints   2\n",
        "--- pool 3 of 3\ntakes       all other requests\npool        others\nendpoints   1\n",
        "models      0; a request for another is passed on",
    };
    (void)state;
    expect_printed(text, printed, sizeof(printed) / sizeof(printed[0]));
}

static void pool_list_objects_go_to_named_pool(void **state) {
    static const char text[] =
        "pools:\n"
        "- name: a\n  match: {authority: a.b}\n  " ENDPOINTS
        "- name: b\n  " ENDPOINTS POOL("b", "x") POOL("a", "y") MODEL("one", "a")
            MODEL("two", "b") "---\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
                              "plugins: [{type: random-picker}]\n";
    static const char *const printed[] = {
        "pool        a\nendpoints   0 of 1 listed: those with app=y\n",
        "pool        b\nendpoints   1 of 1 listed: those with app=x\n  10.0.0.1:8000",
        "  one                           Standard\n",
        "  two                           Standard\n",
        "random-picker",
    };
    (void)state;
    expect_printed(text, printed, sizeof(printed) / sizeof(printed[0]));
}

/* ---- invalid lists --------------------------------------------------------------------------- */

static const struct {
    const char *text;
    const char *message; /* follows "pool.yaml:" */
} refused[] = {
    {"pools: []\n", "1: pools: expected a list of pools, got none"},
    {"pools:\n", "1: pools: expected a list of pools, got none"},
    {"pools: [1]\n", "1: pools[0]: expected an object (named fields), got 1"},
    {"pools: [{}]\n", "1: pools[0].name: expected a name of 1 to 256 bytes without control "
                      "characters, got none"},
    {"pools:\n- name: a\n  endpoint: []\n",
     "3: unknown field \"pools[0].endpoint\"; did you mean \"endpoints\"? (in the pool \"a\")"},
    {"pools:\n- name: a\n- name: b\n  endpoints: [x]\n",
     "4: pools[1].endpoints[0]: expected a port after the name (NAME:PORT), or `ports`, or an "
     "InferencePool with targetPorts (in the pool \"b\")"},
    {"pools:\n- name: a\n  endpoints: [10.0.0.1:80, 10.0.0.1:80]\n",
     "3: the endpoint \"10.0.0.1:80\" is there twice; the first is in line 3 (in the pool \"a\")"},
    {"pools:\n- name: a\nmodels: [m]\n",
     "3: models: is for a file of one pool: beside `pools` it stands in each of them"},
    /* names */
    {"pools:\n- name: a\n- name: b\n- name: a\n  match: {path_prefix: /a}\n",
     "4: the pool \"a\" is there twice; the first is in line 2"},
    /* two pools that match the same requests */
    {"pools:\n- name: a\n- name: b\n",
     "3: the pool \"b\" is for the same requests as \"a\" in line 2: expected a `match` that tells "
     "them apart"},
    {"pools:\n- name: a\n  match: {}\n- name: b\n  match: {path_prefix: /}\n",
     "4: the pool \"b\" is for the same requests as \"a\" in line 2: expected a `match` that tells "
     "them apart"},
    {"pools:\n- name: a\n  match: {authority: [x, \"*.y\"]}\n- name: b\n  match: {authority: "
     "\"*.Y\"}\n",
     "4: the pool \"b\" is for the same requests to *.y as \"a\" in line 2: expected a `match` "
     "that "
     "tells them apart"},
    /* matches */
    {"pools: [{name: a, match: {host: x}}]\n",
     "1: unknown field \"pools[0].match.host\" (in the pool \"a\")"},
    {"pools: [{name: a, match: {authority: []}}]\n",
     "1: pools[0].match.authority: expected 1 to 100 authorities, got 0 (in the pool \"a\")"},
    {"pools: [{name: a, match: {authority: [x, X]}}]\n",
     "1: pools[0].match.authority[1]: is there twice (in the pool \"a\")"},
    {"pools: [{name: a, match: {authority: \"*\"}}]\n",
     "1: pools[0].match.authority: expected an authority (api.example.com, "
     "api.example.com:8443 or *.example.com), got \"*\" (in the pool \"a\")"},
    {"pools: [{name: a, match: {authority: \"*.x:80\"}}]\n",
     "1: pools[0].match.authority: expected an authority (api.example.com, "
     "api.example.com:8443 or *.example.com), got \"*.x:80\" (in the pool \"a\")"},
    {"pools: [{name: a, match: {authority: \"x/y\"}}]\n",
     "1: pools[0].match.authority: expected an authority (api.example.com, "
     "api.example.com:8443 or *.example.com), got \"x/y\" (in the pool \"a\")"},
    {"pools: [{name: a, match: {path_prefix: v1}}]\n",
     "1: pools[0].match.path_prefix: expected a path of visible ASCII that begins with /, got "
     "\"v1\" (in the pool \"a\")"},
    {"pools: [{name: a, match: {path_prefix: \"/v1?x\"}}]\n",
     "1: pools[0].match.path_prefix: expected a path without ? and #, got \"/v1?x\" (in the pool "
     "\"a\")"},
    {"pools: [{name: a, match: {header: {value: x}}}]\n",
     "1: pools[0].match.header.name: expected the name of a header, got nothing (in the pool "
     "\"a\")"},
    {"pools: [{name: a, match: {header: {name: X-A, value: x}}}]\n",
     "1: pools[0].match.header.name: expected the name of a header in lower case, got \"X-A\" (in "
     "the pool \"a\")"},
    {"pools: [{name: a, match: {header: {name: x-a}}}]\n",
     "1: pools[0].match.header.value: expected a name of 1 to 256 bytes without control "
     "characters, got none (in the pool \"a\")"},
    {"pools: [{name: a, match: {metadata: {key: k, value: v}}}]\n",
     "1: pools[0].match.metadata.namespace: expected a name of 1 to 256 bytes without control "
     "characters, got none (in the pool \"a\")"},
    /* objects */
    {"pools: [{name: a}]\n" POOL("b", "x"),
     "5: metadata.name: expected the name of one of the file's pools, got \"b\""},
    {"pools: [{name: a}]\n" MODEL("m", "b"),
     "6: spec.poolRef.name: expected the name of one of the file's pools, got \"b\""},
    {"pools: [{name: a}]\n---\n" GROUP "kind: InferenceModel\nmetadata: {name: m}\nspec: "
     "{modelName: m}\n",
     "6: spec.poolRef.name: expected the name of one of the file's pools, got nothing"},
    {"pools: [{name: a}]\n" POOL("a", "x") POOL("a", "y"),
     "10: expected one InferencePool of this name in the file, got a second"},
};

static void pool_list_invalid_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_file_refused(refused[i].text, refused[i].message);
    }
}

static void pool_list_too_many_match_headers_refused(void **state) {
    char text[4096] = "pools:\n";
    struct pool_specs specs;
    struct error err;
    (void)state;
    for (int i = 0; i <= POOL_MATCH_MAX_NAMES; i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof(text) - len,
                 "- {name: p%d, match: {header: {name: h%d, value: x}}}\n", i, i);
    }
    assert_int_equal(pool_file_parse("f", str_of(text), &specs, &err), ST_BAD_CONFIG);
    assert_string_equal(err.text,
                        "f:18: the pool \"p16\": expected at most 16 different headers in "
                        "all matches of pools");
}

static void pool_list_every_prefix_does_not_crash(void **state) {
    static const char text[] =
        "pools:\n- {name: a, match: {authority: [x, \"*.y\"], path_prefix: /v1}}\n"
        "- {name: b, match: {header: {name: h, value: v}, metadata: {namespace: n, key: k, value: "
        "v}}}\n- {name: c, models: [m]}\n" POOL("a", "x") MODEL("m", "b");
    (void)state;
    for (size_t n = 0; n < sizeof(text); n++) {
        struct pool_specs specs;
        struct error err;
        enum status st = pool_file_parse("f", str_make(text, n), &specs, &err);
        assert_true(st == ST_OK || (st == ST_BAD_CONFIG && strncmp(err.text, "f:", 2) == 0));
        assert_true(st != ST_OK || specs.n > 0);
        pool_specs_free(&specs);
    }
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

static void pool_list_ten_thousand_pools_are_read(void **state) {
    enum { N = 10000, LINE_BYTES = 120 };
    char *text = malloc((size_t)N * LINE_BYTES);
    size_t len = (size_t)sprintf(text, "pools:\n");
    struct pool_specs specs;
    struct error err;
    (void)state;
    for (int i = 0; i < N; i++) {
        len += (size_t)sprintf(text + len,
                               "- {name: p%d, match: {authority: h%d.x}, endpoints: "
                               "[10.1.%d.%d:80]}\n",
                               i, i, i / 250, i % 250);
    }
    assert_int_equal(pool_file_parse("f", str_make(text, len), &specs, &err), ST_OK);
    assert_int_equal(specs.n, N);
    assert_true(str_is(specs.items[N - 1]->name, "p9999"));
    pool_specs_free(&specs);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_list_item_equals_file_of_one_pool),
        cmocka_unit_test(pool_list_objects_go_to_named_pool),
        cmocka_unit_test(pool_list_invalid_refused),
        cmocka_unit_test(pool_list_too_many_match_headers_refused),
        cmocka_unit_test(pool_list_every_prefix_does_not_crash),
        cmocka_unit_test(pool_list_ten_thousand_pools_are_read),
    };
    return cmocka_run_group_tests_name("pick/config/pool_list", tests, NULL, NULL);
}
