/* The groups of paths: those of `sluice serve`, whatever a client does to the path. */
#include "program/gateway/authorize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void authorize_group_of_path_is_that_of_serve(void **state) {
    static const struct {
        const char *method, *path;
        enum keys_group group;
    } CASES[] = {
        {"GET", "/v2/health/live", KEYS_HEALTH},
        {"GET", "/v2/models/m/ready", KEYS_HEALTH},
        {"GET", "/v2/models/m/versions/1/ready", KEYS_HEALTH},
        {"GET", "/health", KEYS_HEALTH},
        {"GET", "/v2", KEYS_METADATA},
        {"GET", "/v2/models/m", KEYS_METADATA},
        {"GET", "/v2/models/m/config", KEYS_METADATA},
        {"GET", "/v1/models", KEYS_METADATA},
        {"POST", "/v2/repository/index", KEYS_METADATA},
        {"POST", "/v2/models/m/infer", KEYS_INFER},
        {"POST", "/v2/models/m/generate_stream", KEYS_INFER},
        {"POST", "/v1/chat/completions", KEYS_INFER},
        {"POST", "/v1/messages", KEYS_INFER},
        {"POST", "/inference.GRPCInferenceService/ModelInfer", KEYS_INFER},
        {"POST", "/inference.GRPCInferenceService/ModelStreamInfer", KEYS_INFER},
        {"POST", "/inference.GRPCInferenceService/ServerLive", KEYS_HEALTH},
        {"POST", "/inference.GRPCInferenceService/ModelMetadata", KEYS_METADATA},
        {"POST", "/inference.GRPCInferenceService/RepositoryModelUnload", KEYS_CONTROL},
        {"POST", "/inference.GRPCInferenceService/Whatever", KEYS_CONTROL},
        {"POST", "/v2/repository/models/m/load", KEYS_CONTROL},
        {"POST", "/v2/systemsharedmemory/region/r/register", KEYS_CONTROL},
        {"POST", "/v2/trace/setting", KEYS_CONTROL},
        {"POST", "/v2/models/m/trace/setting", KEYS_CONTROL},
        /* what a server may take for another path */
        {"POST", "/v2/%72epository/models/m/load", KEYS_CONTROL},
        {"POST", "/v2%2Frepository/models/m/load", KEYS_CONTROL},
        {"POST", "//v2///repository/models/m/load", KEYS_CONTROL},
        {"POST", "/v2/./repository/models/m/load", KEYS_NO_GROUP},
        {"POST", "/v2/models/%2e%2E/repository/models/m/load", KEYS_NO_GROUP},
        {"POST", "/v2/models/a..b/infer", KEYS_INFER},
        {"POST", "/%", KEYS_INFER},
        {"POST", "/%4", KEYS_INFER},
    };
    static char longer[8192];
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        enum keys_group group = authorize_group_of(str_of(CASES[i].method), str_of(CASES[i].path));
        if (group != CASES[i].group) {
            fail_msg("%s %s: %d", CASES[i].method, CASES[i].path, (int)group);
        }
    }
    for (size_t i = 0; i < sizeof(longer) - 1; i++) {
        longer[i] = 'a';
    }
    assert_int_equal(authorize_group_of(STR("POST"), str_of(longer)), KEYS_NO_GROUP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(authorize_group_of_path_is_that_of_serve),
    };
    return cmocka_run_group_tests_name("program/gateway/authorize", tests, NULL, NULL);
}
