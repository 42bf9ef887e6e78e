/* Authorization over gRPC, and the key group of every method. */
#include "serve/frontend/grpc/methods.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/server/grpc/server.h"
#include "serve/frontend/keys_fixture.h"

static const char BEARER[] = "infer: [one, two]\nhealth: [three]\n";

static enum status ask_grpc(struct keys *keys, enum keys_group group, const char *value) {
    struct grpc_method_entry row = {.path = "/s/M", .group = group};
    struct grpc_api api = {0};
    struct grpc_method_context context = {&api, &row};
    struct grpc_method method = {.path = row.path, .context = &context};
    struct grpc_field field = {STR("authorization"), str_of(value)};
    struct grpc_call call = {.method = &method, .fields = &field, .n_fields = value ? 1 : 0};
    struct error err;
    return grpc_api_admit(&call, keys, &err);
}

static void over_grpc(void **state) {
    struct keys *keys;
    struct error err;
    (void)state;
    assert_int_equal(ask_grpc(NULL, KEYS_CONTROL, NULL), ST_OK);
    keys_path_write(BEARER);
    assert_int_equal(keys_new(keys_path, &keys, &err), ST_OK);
    assert_int_equal(ask_grpc(keys, KEYS_INFER, "Bearer two"), ST_OK);
    assert_int_equal(ask_grpc(keys, KEYS_INFER, "Bearer three"), ST_UNAUTHENTICATED);
    assert_int_equal(ask_grpc(keys, KEYS_INFER, NULL), ST_UNAUTHENTICATED);
    assert_int_equal(ask_grpc(keys, KEYS_METADATA, NULL), ST_OK);
    assert_int_equal(ask_grpc(keys, KEYS_NO_GROUP, "Bearer two"), ST_UNAUTHENTICATED);
    keys_free(keys);
}

/* A method without a group would reject every key. */
static void every_method_has_a_group(void **state) {
    size_t n;
    const struct grpc_method_entry *rows = grpc_method_entries(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].group == KEYS_NO_GROUP) {
            fail_msg("%s has no group", rows[i].path);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_grpc),
        cmocka_unit_test(every_method_has_a_group),
    };
    return cmocka_run_group_tests(tests, keys_path_make, keys_path_remove);
}
