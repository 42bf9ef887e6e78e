/* For tests of the store: objects in YAML, and a store that gets them. Include cmocka.h first. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_STORE_FIXTURE_H
#define SLUICE_PICK_DISCOVERY_KUBE_STORE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "pick/config/spec_print.h"
#include "pick/discovery/kube/store.h"

#define FIXTURE_POOL                                                                               \
    "metadata: {name: p, namespace: n}\n"                                                          \
    "spec: {selector: {matchLabels: {app: a}}, targetPorts: [{number: 80}]}"

static inline struct kube_store *fixture_store(const char *group) {
    struct kube_store_options options = {.name_space = "n", .pool = "p", .group = group};
    struct kube_store *store;
    struct error err;
    assert_int_equal(kube_store_new(&options, &store, &err), ST_OK);
    return store;
}

static inline void fixture_tell(struct kube_store *store, enum kube_kind kind, bool there,
                                const char *yaml) {
    struct doc *doc;
    struct error err;
    if (doc_parse(DOC_YAML, "object", str_of(yaml), &doc, &err) != ST_OK) {
        fail_msg("%s\n%s", yaml, err.text);
    }
    struct doc_node root = doc_root(doc);
    (there ? kube_store_put : kube_store_remove)(store, kind, &root);
    doc_free(doc);
}

static inline void fixture_put(struct kube_store *store, enum kube_kind kind, const char *yaml) {
    fixture_tell(store, kind, true, yaml);
}

/* Puts the pod `name` at `ip`; `more` has further members of its metadata. */
static inline void fixture_pod(struct kube_store *store, const char *name, const char *ip,
                               bool ready, const char *more) {
    char yaml[600];
    snprintf(
        yaml, sizeof(yaml),
        "metadata: {name: %s, namespace: n, %s}\n"
        "status: {podIP: '%s', conditions: [{type: Initialized, status: 'True'}, {type: Ready, "
        "status: '%s'}]}",
        name, more, ip, ready ? "True" : "False");
    fixture_put(store, KUBE_POD, yaml);
}

/* Lists every kind as empty, and served. */
static inline void fixture_sync(struct kube_store *store) {
    for (int kind = 0; kind < N_KUBE_KINDS; kind++) {
        kube_store_list_begin(store, (enum kube_kind)kind);
        kube_store_list_end(store, (enum kube_kind)kind, true);
    }
}

/* Prints the spec as `sluice pick --check`, into a static buffer. */
static inline const char *fixture_print(const struct kube_store *store) {
    static char text[16384];
    struct pool_specs specs = {.n = 0};
    struct pool_spec *spec;
    struct buf out;
    struct arena *arena = arena_new(NULL, 0);
    spec = pool_spec_new();
    kube_store_add_to_spec(store, spec);
    pool_specs_add(&specs, spec);
    buf_init(&out, arena, 4096);
    pool_specs_print(&specs, &out);
    assert_true(out.len < sizeof(text));
    memcpy(text, out.data, out.len);
    text[out.len] = '\0';
    pool_specs_free(&specs);
    arena_free(arena);
    return text;
}

static inline void assert_prints(const struct kube_store *store, const char *part) {
    const char *text = fixture_print(store);
    if (!strstr(text, part)) {
        fail_msg("got\n%sexpected\n%s", text, part);
    }
}

/* Frees the store; all memory must be freed. */
static inline void fixture_end(struct kube_store *store) {
    kube_store_free(store);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

#endif
