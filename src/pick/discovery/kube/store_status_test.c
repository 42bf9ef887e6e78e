/* Status conditions of objects: each object of the pool gets one, once, and other controllers'
 * conditions stay. */
#include "pick/discovery/kube/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/discovery/kube/store_fixture.h"

#define NOW "2026-01-31T23:59:59Z"
#define META(name, created)                                                                        \
    "metadata: {name: " name ", namespace: n, resourceVersion: '7', generation: 3, "               \
    "creationTimestamp: '" created "-01-01T00:00:00Z'}\n"
#define SPEC(more) "spec: {poolRef: {name: p, group: inference.networking.k8s.io}, " more "}\n"
#define ACCEPTED(status, reason)                                                                   \
    "{type: Accepted, status: '" status "', reason: " reason ", message: old, "                    \
    "observedGeneration: 3, lastTransitionTime: '2025-05-05T05:05:05Z'}"

static struct kube_store *synced(void) {
    struct kube_store *store = fixture_store(NULL);
    fixture_sync(store);
    fixture_put(store, KUBE_POOL, FIXTURE_POOL);
    return store;
}

/* Compares all patches, a line each: "KIND/NAME BODY". */
static void assert_patches(const struct kube_store *store, const char *expected) {
    struct arena *arena = arena_new(NULL, 0);
    struct kube_patch *patches;
    struct buf out;
    buf_init(&out, arena, 1024);
    size_t n = kube_store_patches(store, arena, NOW, &patches);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&out, "%s/%.*s %.*s\n", KUBE_KINDS[patches[i].kind].kind,
                   STR_ARG(patches[i].name), STR_ARG(patches[i].body));
    }
    if (!str_is(buf_str(&out), expected)) {
        fail_msg("got\n%.*sexpected\n%s", STR_ARG(buf_str(&out)), expected);
    }
    arena_free(arena);
}

#define FOLLOWS "the endpoint picker follows it"
#define SAID(status, reason, message, since)                                                       \
    "{\"type\":\"Accepted\",\"status\":\"" status "\",\"reason\":\"" reason                        \
    "\",\"message\":\"" message "\",\"observedGeneration\":3,\"lastTransitionTime\":\"" since      \
    "\"}"
#define PATCH(conditions)                                                                          \
    " {\"metadata\":{\"resourceVersion\":\"7\"},\"status\":{\"conditions\":[" conditions "]}}\n"

static void status_new_object_gets_accepted(void **state) {
    (void)state;
    struct kube_store *store = synced();
    assert_patches(store, "");
    fixture_put(store, KUBE_MODEL,
                META("m", "2026") SPEC("modelName: llama") "status: {conditions: [{type: Ready, "
                                                           "status: Unknown, reason: Pending}]}");
    fixture_put(store, KUBE_OBJECTIVE, META("o", "2026") SPEC("priority: 1"));
    fixture_put(store, KUBE_MODEL,
                META("others", "2026") "spec: {modelName: x, poolRef: {name: q}}");
    assert_patches(store, "InferenceModel/m" PATCH(SAID("True", "Accepted", FOLLOWS, NOW)) //
                   "InferenceObjective/o" PATCH(SAID("True", "Accepted", FOLLOWS, NOW)));
    fixture_end(store);
}

static void status_current_condition_is_not_patched(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_put(store, KUBE_MODEL,
                META("m", "2026") SPEC("modelName: llama") "status: {conditions: [" ACCEPTED(
                    "True", "Accepted") "]}");
    assert_patches(store, "");
    fixture_put(store, KUBE_MODEL, /* of an older generation */
                "metadata: {name: m, namespace: n, resourceVersion: '7', generation: 3}\n" SPEC(
                    "modelName: other") "status: {conditions: [{type: Accepted, status: 'True', "
                                        "reason: Accepted, "
                                        "observedGeneration: 2, lastTransitionTime: "
                                        "'2025-05-05T05:05:05Z'}]}");
    assert_patches(
        store, "InferenceModel/m" PATCH(SAID("True", "Accepted", FOLLOWS, "2025-05-05T05:05:05Z")));
    fixture_end(store);
}

static void status_duplicate_name_oldest_accepted(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_put(store, KUBE_MODEL,
                META("a", "2026") SPEC("modelName: llama") "status: {conditions: [" ACCEPTED(
                    "True", "Accepted") "]}");
    assert_patches(store, "");
    fixture_put(store, KUBE_MODEL, META("b", "2025") SPEC("modelName: llama"));
    fixture_put(store, KUBE_MODEL,
                META("c", "2024") SPEC("modelName: phi") "status: {conditions: [" ACCEPTED(
                    "True", "Accepted") "]}");
    assert_patches(store,
                   "InferenceModel/a" PATCH(SAID("False", "ModelNameInUse",
                                                 "b is older, and has the same modelName", NOW)) //
                   "InferenceModel/b" PATCH(SAID("True", "Accepted", FOLLOWS, NOW)));
    fixture_end(store);
}

static void status_foreign_conditions_are_kept(void **state) {
    (void)state;
    struct kube_store *store = synced();
    fixture_put(
        store, KUBE_REWRITE,
        META("r", "2026")
            SPEC("rules: [{targets: [{modelRewrite: x}]}]") "status: {conditions: [{type: Audited, "
                                                            "status: 'True', by: me}, " ACCEPTED(
                                                                "Unknown", "Pending") "]}");
    assert_patches(store, "InferenceModelRewrite/r" PATCH(
                              "{\"type\":\"Audited\",\"status\":\"True\",\"by\":\"me\"}," SAID(
                                  "True", "Accepted", FOLLOWS, NOW)));
    fixture_end(store);
}

/* Without a pool no object gets a condition; an invalid object is not accepted, with the reason. */
static void status_unsupported_object_is_not_accepted(void **state) {
    (void)state;
    struct kube_store *store = synced();
    struct kube_patch *patches;
    struct arena *arena = arena_new(NULL, 0);
    fixture_put(store, KUBE_MODEL, META("m", "2026") SPEC("modelName: x, criticality: Utmost"));
    assert_int_equal(kube_store_patches(store, arena, NOW, &patches), 1);
    char *body = str_dup(patches[0].body);
    assert_non_null(strstr(body, "\"status\":\"Unknown\",\"reason\":\"Pending\""));
    assert_non_null(strstr(body, "Utmost"));
    free(body);
    arena_free(arena);
    fixture_tell(store, KUBE_POOL, false, FIXTURE_POOL);
    assert_patches(store, "");
    fixture_end(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_new_object_gets_accepted),
        cmocka_unit_test(status_current_condition_is_not_patched),
        cmocka_unit_test(status_duplicate_name_oldest_accepted),
        cmocka_unit_test(status_foreign_conditions_are_kept),
        cmocka_unit_test(status_unsupported_object_is_not_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
