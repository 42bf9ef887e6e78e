/* The pool that a cluster's objects result in, whatever their order, and which events change its
 * version. */
#include "pick/discovery/kube/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "pick/discovery/kube/store_fixture.h"

#define APP "labels: {app: a}"

/* A store with its pool, and each kind listed. */
static struct kube_store *synced(void) {
    struct kube_store *store = fixture_store(NULL);
    fixture_sync(store);
    fixture_put(store, KUBE_POOL, FIXTURE_POOL);
    return store;
}

/* ---- pods ------------------------------------------------------------------------------------ */

static void store_ready_matching_pods_become_endpoints(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_pod(store, "a", "10.0.0.1", true, "labels: {app: a, zone: z}");
    fixture_pod(store, "b", "fd00::2", true, APP);
    fixture_pod(store, "unready", "10.0.0.3", false, APP);
    fixture_pod(store, "leaving", "10.0.0.4", true,
                APP ", deletionTimestamp: '2026-01-01T00:00:00Z'");
    fixture_pod(store, "other", "10.0.0.5", true, "labels: {app: b}");
    fixture_pod(store, "young", "", true, APP);
    fixture_put(store, KUBE_POD, "metadata: {name: bare, namespace: n, labels: {app: a}}");
    fixture_put(store, KUBE_POD,
                "metadata: {name: dual, namespace: n, labels: {app: a}}\n"
                "status: {podIPs: [{ip: 10.0.0.7}, {ip: 'fd00::7'}], conditions: "
                "[{type: Ready, status: 'True'}]}");
    fixture_put(store, KUBE_POD,
                "metadata: {name: abroad, namespace: m, labels: {app: a}}\n"
                "status: {podIP: 10.0.0.8, conditions: [{type: Ready, status: 'True'}]}");
    assert_prints(store, "endpoints   3\n"
                         "  10.0.0.1:80                   app=a zone=z\n"
                         "  [fd00::2]:80                  app=a\n"
                         "  10.0.0.7:80                   app=a\n");
    struct kube_kind_counts counts;
    kube_store_count(store, KUBE_POD, &counts);
    assert_int_equal(counts.n_objects, 8);
    assert_int_equal(counts.n_matching, 7);
    assert_int_equal(counts.n_usable, 3);
    fixture_end(store);
}

static void store_endpoints_have_name_of_pod_and_port(void **state) {
    (void)state;
    struct kube_store *store = synced();
    struct pool_spec *spec = pool_spec_new();
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_pod(store, "b", "10.0.0.2", true, APP);
    kube_store_add_to_spec(store, spec);
    assert_int_equal(spec->n_endpoints, 2);
    assert_true(str_is(spec->endpoints[1].name.pod, "b"));
    assert_true(str_is(spec->endpoints[1].name.name_space, "n"));
    assert_true(str_is(spec->endpoints[1].name.text, "b-rank-0"));
    pool_spec_free(spec);
    fixture_end(store);
}

static void store_pod_events_change_version_when_they_matter(void **state) {
    (void)state;
    struct kube_store *store = synced();
    uint64_t version = kube_store_version(store);
    fixture_pod(store, "a", "10.0.0.1", false, APP);
    assert_int_equal(kube_store_version(store), version); /* no endpoint yet */
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    assert_int_equal(kube_store_version(store), ++version);
    fixture_pod(store, "a", "10.0.0.1", true, APP ", resourceVersion: '9'"); /* a heartbeat */
    assert_int_equal(kube_store_version(store), version);
    fixture_pod(store, "b", "10.0.0.2", true, "labels: {app: b}"); /* not selected */
    assert_int_equal(kube_store_version(store), version);
    fixture_pod(store, "a", "10.0.0.1", true, "labels: {app: a, x: y}");
    assert_int_equal(kube_store_version(store), ++version);
    fixture_pod(store, "a", "10.0.0.1", true, "labels: {app: b}"); /* its label changes */
    assert_int_equal(kube_store_version(store), ++version);
    assert_prints(store, "endpoints   0\n");
    fixture_pod(store, "a", "10.0.0.9", true, APP);
    fixture_pod(store, "a", "10.0.0.9", false, APP);
    assert_int_equal(kube_store_version(store), version += 2);
    fixture_pod(store, "a", "10.0.0.9", true, APP);
    fixture_tell(store, KUBE_POD, false, "metadata: {name: a, namespace: n}");
    assert_int_equal(kube_store_version(store), version += 2);
    fixture_tell(store, KUBE_POD, false, "metadata: {name: a, namespace: n}");
    assert_int_equal(kube_store_version(store), version);
    assert_prints(store, "endpoints   0\n");
    fixture_end(store);
}

static void store_list_removes_unlisted_objects(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_pod(store, "b", "10.0.0.2", true, APP);
    fixture_pod(store, "c", "10.0.0.3", true, APP);
    uint64_t version = kube_store_version(store);
    kube_store_list_begin(store, KUBE_POD);
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_pod(store, "d", "10.0.0.4", true, APP);
    assert_prints(store, "endpoints   4\n"); /* the objects stay until the list is complete */
    kube_store_list_begin(store, KUBE_POD);  /* the list was incomplete, and starts again */
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_pod(store, "c", "10.0.0.3", true, APP);
    kube_store_list_end(store, KUBE_POD, true);
    assert_prints(store, "endpoints   2\n  10.0.0.1:80                   app=a\n"
                         "  10.0.0.3:80                   app=a\n");
    assert_true(kube_store_version(store) > version);
    version = kube_store_version(store);
    kube_store_list_begin(store, KUBE_POD);
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_pod(store, "c", "10.0.0.3", true, APP);
    kube_store_list_end(store, KUBE_POD, true);
    assert_int_equal(kube_store_version(store), version); /* everything as before */
    fixture_end(store);
}

static void store_target_ports_make_endpoint_each(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_put(store, KUBE_POOL,
                "metadata: {name: p, namespace: n}\n"
                "spec: {selector: {matchLabels: {app: a}}, appProtocol: http, targetPorts: "
                "[{number: 3000}, {number: 3002}, {number: 3004}]}");
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_pod(store, "b", "10.0.0.2", true,
                APP ", annotations: {inference.networking.k8s.io/active-ports: '3000, 3004,9,x'}");
    fixture_pod(store, "c", "10.0.0.3", true,
                APP ", annotations: {llm-d.ai/active-ports: '3002', "
                    "inference.networking.k8s.io/active-ports: '3000'}");
    fixture_pod(store, "d", "10.0.0.4", true, APP ", annotations: {llm-d.ai/active-ports: ''}");
    assert_prints(store, "endpoints   6\n"
                         "  10.0.0.1:3000                 app=a\n"
                         "  10.0.0.1:3002                 app=a\n"
                         "  10.0.0.1:3004                 app=a\n"
                         "  10.0.0.2:3000                 app=a\n"
                         "  10.0.0.2:3004                 app=a\n"
                         "  10.0.0.3:3002                 app=a\n");
    fixture_end(store);
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void store_pool_events_change_endpoints(void **state) {
    (void)state;
    struct kube_store *store = fixture_store(NULL);
    fixture_sync(store);
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_pod(store, "b", "10.0.0.2", true, "labels: {app: b}");
    assert_false(kube_store_has_pool(store));
    assert_prints(store, "endpoints   0\n");
    uint64_t version = kube_store_version(store);
    fixture_put(store, KUBE_POOL, FIXTURE_POOL);
    assert_int_equal(kube_store_version(store), ++version);
    assert_true(kube_store_has_pool(store));
    assert_prints(store, "10.0.0.1:80");
    fixture_put(store, KUBE_POOL, FIXTURE_POOL "\nstatus: {parents: [{parentRef: {name: g}}]}");
    assert_int_equal(kube_store_version(store), version);
    fixture_put(store, KUBE_POOL,
                "metadata: {name: p, namespace: n}\n"
                "spec: {selector: {matchLabels: {app: b}}, targetPorts: [{number: 81}]}");
    assert_prints(store, "endpoints   1\n  10.0.0.2:81");
    fixture_put(store, KUBE_POOL,
                "metadata: {name: q, namespace: n}\nspec: {}"); /* another pool's */
    assert_prints(store, "endpoints   1\n  10.0.0.2:81");
    fixture_tell(store, KUBE_POOL, false, "metadata: {name: p, namespace: n}");
    assert_false(kube_store_has_pool(store));
    assert_prints(store, "endpoints   0\n");
    fixture_put(store, KUBE_POOL,
                "metadata: {name: p, namespace: n, deletionTimestamp: '2026-01-01T00:00:00Z'}\n"
                "spec: {selector: {matchLabels: {app: b}}, targetPorts: [{number: 81}]}");
    assert_false(kube_store_has_pool(store));
    fixture_put(store, KUBE_POOL,
                "metadata: {name: p, namespace: n}\nspec: {selector: {}, targetPorts: "
                "[{number: 99999}]}");
    assert_false(kube_store_has_pool(store)); /* it is invalid */
    fixture_put(store, KUBE_POOL, FIXTURE_POOL);
    assert_prints(store, "10.0.0.1:80");
    fixture_end(store);
}

/* Unknown members of a newer API are ignored. */
static void store_unknown_fields_are_ignored(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_put(store, KUBE_POOL,
                "metadata: {name: p, namespace: n}\n"
                "spec: {selector: {matchLabels: {app: a}}, targetPorts: [{number: 80}], later: 1}");
    assert_prints(store, "endpoints   1\n  10.0.0.1:80 ");
    fixture_put(store, KUBE_MODEL,
                "metadata: {name: m, namespace: n}\n"
                "spec: {modelName: llama, poolRef: {name: p}, later: {}}");
    assert_prints(store, "models      1; a request for another is refused\n");
    fixture_end(store);
}

#define ALPHA_POOL                                                                                 \
    "metadata: {name: p, namespace: n}\n"                                                          \
    "spec: {selector: {app: a}, targetPortNumber: 8000, extensionRef: {name: e}}"

static void store_newer_pool_group_is_preferred(void **state) {
    (void)state;
    struct kube_store *store = fixture_store(NULL);
    fixture_sync(store);
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    fixture_put(store, KUBE_POOL_ALPHA, ALPHA_POOL);
    assert_prints(store, "endpoints   1\n  10.0.0.1:8000");
    assert_string_equal(kube_store_group(store), "inference.networking.x-k8s.io");
    fixture_put(store, KUBE_POOL, FIXTURE_POOL); /* the newer group has precedence */
    assert_prints(store, "endpoints   1\n  10.0.0.1:80 ");
    assert_string_equal(kube_store_group(store), "inference.networking.k8s.io");
    kube_store_list_begin(store, KUBE_POOL);
    kube_store_list_end(store, KUBE_POOL, false); /* the cluster no longer serves it */
    assert_prints(store, "endpoints   1\n  10.0.0.1:8000");
    fixture_end(store);
    store = fixture_store("inference.networking.k8s.io");
    fixture_sync(store);
    fixture_put(store, KUBE_POOL_ALPHA, ALPHA_POOL);
    assert_false(kube_store_has_pool(store)); /* of another group than configured */
    fixture_end(store);
}

/* ---- objects that refer to the pool ---------------------------------------------------------- */

#define MODEL(name, more, spec)                                                                    \
    "metadata: {name: " name ", namespace: n, " more "}\n"                                         \
    "spec: {poolRef: {name: p, group: inference.networking.k8s.io}, " spec "}"
#define MADE(year) "creationTimestamp: '" year "-01-01T00:00:00Z'"

static void store_models_are_added_to_spec(void **state) {
    (void)state;
    struct kube_store *store = synced();
    assert_prints(store, "models      0; a request for another is refused\n");
    fixture_put(store, KUBE_MODEL,
                MODEL("a", MADE("2026"),
                      "modelName: llama, criticality: Critical, targetModels: "
                      "[{name: l1, weight: 3}, {name: l2, weight: 1}]"));
    fixture_put(store, KUBE_MODEL, MODEL("b", MADE("2025"), "modelName: phi"));
    uint64_t version = kube_store_version(store);
    fixture_put(store, KUBE_MODEL, MODEL("senseless", "", "modelName: x, criticality: Utmost"));
    assert_int_equal(kube_store_version(store), version + 1); /* a status is to be written */
    fixture_put(store, KUBE_MODEL, MODEL("senseless", "", "modelName: x, criticality: Utmost"));
    assert_int_equal(kube_store_version(store), version + 1);
    fixture_put(store, KUBE_MODEL, "metadata: {name: bare, namespace: n}");
    fixture_put(store, KUBE_MODEL,
                "metadata: {name: others, namespace: n}\n"
                "spec: {modelName: o, poolRef: {name: q, group: inference.networking.k8s.io}}");
    fixture_put(store, KUBE_MODEL,
                "metadata: {name: group, namespace: n}\n"
                "spec: {modelName: g, poolRef: {name: p, group: inference.networking.x-k8s.io}}");
    fixture_put(store, KUBE_MODEL,
                "metadata: {name: service, namespace: n}\n"
                "spec: {modelName: s, poolRef: {name: p, kind: Service}}");
    fixture_put(store, KUBE_MODEL,
                MODEL("leaving", "deletionTimestamp: '2026-01-01T00:00:00Z'", "modelName: z"));
    assert_prints(store, "models      2; a request for another is refused\n"
                         "  phi                           Standard\n"
                         "  llama                         Critical, sent as l1 75 %, l2 25 %\n");
    struct kube_kind_counts counts;
    kube_store_count(store, KUBE_MODEL, &counts);
    assert_int_equal(counts.n_objects, 8);
    assert_int_equal(counts.n_matching, 3);
    assert_int_equal(counts.n_usable, 2);
    assert_int_equal(counts.n_invalid, 2);
    fixture_end(store);
}

/* Objects are sorted by age, and the first one has precedence. */
static void store_duplicate_models_ordered_by_age(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_put(store, KUBE_MODEL, MODEL("a", MADE("2026"), "modelName: m"));
    fixture_put(store, KUBE_MODEL, MODEL("c", MADE("2025"), "modelName: m, criticality: Critical"));
    fixture_put(store, KUBE_MODEL,
                MODEL("b", MADE("2025"), "modelName: m, criticality: Sheddable"));
    assert_prints(store, "  m                             Sheddable\n"
                         "  m                             Critical\n"
                         "  m                             Standard\n");
    fixture_end(store);
}

static void store_served_models_refuse_unknown(void **state) {
    (void)state;
    struct kube_store *store = fixture_store(NULL);
    struct pool_spec *spec;
    assert_prints(store, "a request for another is passed on\n");
    kube_store_list_end(store, KUBE_MODEL, false);
    assert_prints(store, "a request for another is passed on\n");
    uint64_t version = kube_store_version(store);
    kube_store_list_begin(store, KUBE_MODEL);
    kube_store_list_end(store, KUBE_MODEL, true);
    assert_prints(store, "a request for another is passed on\n"); /* there is no pool yet */
    fixture_put(store, KUBE_POOL, FIXTURE_POOL);
    assert_prints(store, "a request for another is refused\n");
    assert_true(kube_store_version(store) > version);
    spec = pool_spec_new();
    spec->strict_models_set = true; /* the file's unknown_models is "pass" */
    kube_store_add_to_spec(store, spec);
    assert_false(spec->strict_models);
    pool_spec_free(spec);
    kube_store_skip_kind(store, KUBE_MODEL);
    assert_prints(store, "a request for another is passed on\n");
    fixture_end(store);
}

static void store_objectives_are_added_to_spec(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_put(store, KUBE_OBJECTIVE_ALPHA, MODEL("batch", "", "priority: 1"));
    fixture_put(store, KUBE_OBJECTIVE_ALPHA, MODEL("none", "", "unheard: {of: 1}"));
    fixture_put(store, KUBE_OBJECTIVE, MODEL("batch", "", "priority: -3"));
    assert_prints(store, "objectives  3\n"
                         "  batch                         priority -3, sheddable\n"
                         "  batch                         priority 1\n"
                         "  none                          priority 0\n");
    fixture_end(store);
}

static void store_rewrites_ordered_by_age(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_put(store, KUBE_REWRITE,
                MODEL("young", MADE("2026"),
                      "rules: [{matches: [{model: {type: Exact, value: m}}], targets: "
                      "[{modelRewrite: y}]}, {targets: [{modelRewrite: rest}]}]"));
    fixture_put(store, KUBE_REWRITE_ALPHA,
                MODEL("old", MADE("2025"),
                      "rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: o}]}]"));
    fixture_put(store, KUBE_REWRITE,
                MODEL("bad", MADE("2024"),
                      "rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: b}]}, "
                      "{matches: [{model: {type: Regex, value: x}}]}]"));
    assert_prints(store, "rewrites    3\n"
                         "  m                             o\n"
                         "  m                             y\n"
                         "  (every unknown name)          rest\n");
    fixture_end(store);
}

/* ---- loads ----------------------------------------------------------------------------------- */

static void store_engine_label_turns_scraping_on(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_pod(store, "a", "10.0.0.1", true, APP);
    assert_prints(store, "loads       not asked for");
    fixture_pod(store, "b", "10.0.0.2", true, "labels: {app: a, llm-d.ai/engine-type: wonder}");
    assert_prints(store, "loads       not asked for");
    fixture_pod(store, "b", "10.0.0.2", true,
                "labels: {app: a, inference.networking.k8s.io/engine-type: triton}");
    assert_prints(store, "  of an endpoint with the label llm-d.ai/engine-type: by that engine\n");
    fixture_end(store);
}

/* The host of a pod is kept, and a change of it counts; an invalid one is unknown. */
static void store_pod_has_its_host(void **state) {
    static const char *const hosts[] = {"192.168.7.1", "fd00::9", "a.example", NULL};
    (void)state;
    struct kube_store *store = synced();
    for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
        char object[400], text[100] = "";
        snprintf(object, sizeof(object),
                 "metadata: {name: p, namespace: n, labels: {app: a}}\nstatus: {podIP: 10.0.0.1, "
                 "%s%s%sconditions: [{type: Ready, status: 'True'}]}",
                 hosts[i] ? "hostIP: '" : "", hosts[i] ? hosts[i] : "", hosts[i] ? "', " : "");
        fixture_put(store, KUBE_POD, object);
        struct pool_spec *spec = pool_spec_new();
        kube_store_add_to_spec(store, spec);
        assert_int_equal(spec->n_endpoints, 1);
        if (spec->endpoints[0].node.family > 0) {
            endpoint_address_print(&spec->endpoints[0].node, text);
        }
        static const char *const wanted[] = {"192.168.7.1:0", "[fd00::9]:0", "", ""};
        assert_string_equal(text, wanted[i]);
        pool_spec_free(spec);
    }
    fixture_end(store);
}

/* Each change of it counts. */
static void store_pod_has_its_hostname(void **state) {
    static const char *const names[] = {"", "hostname: a", "hostname: b"},
                             *wanted[] = {"", "a", "b"};
    (void)state;
    struct kube_store *store = synced();
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char object[400];
        snprintf(object, sizeof(object),
                 "metadata: {name: p, namespace: n, labels: {app: a}}\nspec: {%s}\nstatus: {podIP: "
                 "10.0.0.1, conditions: [{type: Ready, status: 'True'}]}",
                 names[i]);
        fixture_put(store, KUBE_POD, object);
        struct pool_spec *spec = pool_spec_new();
        kube_store_add_to_spec(store, spec);
        assert_int_equal(spec->n_endpoints, 1);
        assert_true(str_is(spec->endpoints[0].name.host, wanted[i]));
        pool_spec_free(spec);
    }
    fixture_end(store);
}

/* ---- synced ---------------------------------------------------------------------------------- */

static void store_all_kinds_listed_is_synced(void **state) {
    (void)state;
    struct kube_store *store = fixture_store(NULL);
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        assert_false(kube_store_is_synced(store));
        kube_store_list_begin(store, (enum kube_kind)kind);
        assert_false(kube_store_is_synced(store));
        kube_store_list_end(store, (enum kube_kind)kind, kind % 2 == 0);
        assert_int_equal(kube_store_is_served(store, (enum kube_kind)kind), kind % 2 == 0);
    }
    assert_true(kube_store_is_synced(store));
    fixture_end(store);
}

/* Every member is replaced by values of other types. */
static void store_invalid_objects_are_ignored(void **state) {
    static const char *const objects[] = {
        "{}",
        "[]",
        "x",
        "metadata: 7",
        "metadata: {name: 7}",
        "metadata: {name: ''}",
        "metadata: {name: p}",
        "metadata: {name: p, namespace: n, labels: [], annotations: x}\nstatus: {podIP: 7}",
        "metadata: {name: p, namespace: 7}",
        "metadata: {name: p, labels: {app: 7}}\nstatus: {podIP: example.com}",
        "metadata: {name: p}\nstatus: {podIPs: {}, conditions: {type: Ready}}",
        "metadata: {name: p}\nstatus: {conditions: [7, {}, {type: 7}, {type: Ready, status: 7}]}",
        "metadata: {name: p, creationTimestamp: 7, deletionTimestamp: {}}\nspec: 7",
        "metadata: {name: p}\nspec: []",
        "metadata: {name: p}\nspec: {poolRef: 7, selector: 7, targetPorts: 7, rules: 7}",
        "metadata: {name: p}\nspec: {poolRef: {name: [p]}, modelName: [], priority: x}",
        "metadata: {name: p}\nspec: {poolRef: {name: p}, modelName: 7}",
        "metadata: {name: p}\nspec: {poolRef: {name: p}, selector: {matchLabels: {a: 7}}}",
        "metadata: {name: p}\nspec: {selector: {a: b}, targetPorts: [{}, {number: x}, 7]}",
        "metadata: {name: p}\nspec: {selector: {a: b}, targetPorts: [1,2,3,4,5,6,7,8,9]}",
        "metadata: {name: p}\nspec: {poolRef: {name: p}, rules: [7, {matches: 7, targets: 7}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        struct kube_store *store = synced();
        fixture_pod(store, "good", "10.0.0.1", true, APP);
        for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
            if (!kube_kind_is_pool((enum kube_kind)kind)) {
                fixture_put(store, (enum kube_kind)kind, objects[i]);
                fixture_put(store, (enum kube_kind)kind, objects[i]);
            }
        }
        assert_prints(store, "  10.0.0.1:80 ");
        for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
            fixture_put(store, (enum kube_kind)kind, objects[i]);
            fixture_tell(store, (enum kube_kind)kind, false, objects[i]);
        }
        fixture_put(store, KUBE_POOL, FIXTURE_POOL);
        assert_prints(store, "  10.0.0.1:80 ");
        fixture_end(store);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_ready_matching_pods_become_endpoints),
        cmocka_unit_test(store_endpoints_have_name_of_pod_and_port),
        cmocka_unit_test(store_pod_events_change_version_when_they_matter),
        cmocka_unit_test(store_list_removes_unlisted_objects),
        cmocka_unit_test(store_target_ports_make_endpoint_each),
        cmocka_unit_test(store_pool_events_change_endpoints),
        cmocka_unit_test(store_unknown_fields_are_ignored),
        cmocka_unit_test(store_newer_pool_group_is_preferred),
        cmocka_unit_test(store_models_are_added_to_spec),
        cmocka_unit_test(store_duplicate_models_ordered_by_age),
        cmocka_unit_test(store_served_models_refuse_unknown),
        cmocka_unit_test(store_objectives_are_added_to_spec),
        cmocka_unit_test(store_rewrites_ordered_by_age),
        cmocka_unit_test(store_engine_label_turns_scraping_on),
        cmocka_unit_test(store_pod_has_its_host),
        cmocka_unit_test(store_pod_has_its_hostname),
        cmocka_unit_test(store_all_kinds_listed_is_synced),
        cmocka_unit_test(store_invalid_objects_are_ignored),
    };
    log_configure(LOG_ERROR, LOG_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
