/* Backends: checks of function tables, reading the backend directory, and the identity backend,
 * loaded from the build directory as the server does. */
#include "serve/scheduler/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "serve/config/config.h"
#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"
#include "serve/scheduler/call_run.h"

/* ---- tables ---------------------------------------------------------------------------------- */

static void backend_name_validity_by_table(void **state) {
    const char *const good[] = {"identity", "a", "0", "my-own_1"};
    const char *const bad[] = {"", "A", "a.b", "../a", "a/b", "a b", "\xc3\xa4"};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(backend_name_is_valid(str_of(good[i])));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(backend_name_is_valid(str_of(bad[i])));
    }
    assert_false(backend_name_is_valid(STR("a\0b")));
}

static void other_abi(sluice_backend *table) {
    table->abi = SLUICE_BACKEND_ABI + 1;
}
static void small_table(sluice_backend *table) {
    table->size = offsetof(sluice_backend, model_configured) - 8;
}
static void no_execute(sluice_backend *table) {
    table->execute = NULL;
}
static void no_describe(sluice_backend *table) {
    table->model_describe = NULL;
}
static void other_name(sluice_backend *table) {
    table->name = "somebody";
}
static void no_name(sluice_backend *table) {
    table->name = NULL;
}

struct corrupted {
    void (*corrupt)(sluice_backend *table);
    const char *says;
};

static const struct corrupted corrupted_tables[] = {
    {other_abi, "made for version 2 of the backend interface, this server has version 1"},
    {small_table, "expected at least"},
    {no_execute, "a function is missing"},
    {no_describe, "a function is missing"},
    {other_name, "calls itself \"somebody\""},
    {no_name, "calls itself \"\""},
};

static void backend_check_bad_table_is_refused(void **state) {
    struct error err;
    (void)state;
    assert_int_equal(backend_check(&rig_backend, STR("fake"), &err), ST_OK);
    assert_int_equal(backend_check(NULL, STR("fake"), &err), ST_BAD_MODEL);
    for (size_t i = 0; i < sizeof(corrupted_tables) / sizeof(corrupted_tables[0]); i++) {
        sluice_backend table = rig_backend;
        corrupted_tables[i].corrupt(&table);
        assert_int_equal(backend_check(&table, STR("fake"), &err), ST_BAD_MODEL);
        if (!strstr(err.text, corrupted_tables[i].says)) {
            fail_msg("\"%s\" lacks \"%s\"", err.text, corrupted_tables[i].says);
        }
    }
}

/* ---- directories ----------------------------------------------------------------------------- */

static void backends_directory_lists_and_loads_by_name(void **state) {
    struct test_dir dir;
    const sluice_backend *const builtin[] = {&rig_backend};
    const sluice_backend *backend = NULL;
    struct error err, why;
    (void)state;
    test_dir_make(&dir);
    test_dir_add(&dir, "libsluice_zeta.so", "this is not a library");
    test_dir_add(&dir, "libsluice_alpha.so", "nor is this");
    test_dir_add(&dir, "libsluice_fake.so", "never looked at: it is built in");
    test_dir_add(&dir, "libsluice_Bad.so", "");
    test_dir_add(&dir, "libonnxruntime.so.1", "");
    test_dir_add(&dir, "libsluice_.so", "");
    struct backends *backends = backends_new(dir.path, builtin, 1);
    assert_string_equal(backends_list(backends), "alpha, fake, zeta");
    assert_int_equal(backends_get(backends, STR("fake"), &backend, &err), ST_OK);
    assert_ptr_equal(backend, &rig_backend);
    assert_false(backends_failure(backends, &why));
    for (int i = 0; i < 2; i++) { /* the second time from the cache */
        assert_int_equal(backends_get(backends, STR("zeta"), &backend, &err), ST_BAD_MODEL);
        assert_non_null(strstr(err.text, "backend zeta ("));
        assert_non_null(strstr(err.text, "libsluice_zeta.so"));
    }
    assert_true(backends_failure(backends, &why));
    assert_string_equal(why.text, err.text);
    assert_int_equal(backends_get(backends, STR("beta"), &backend, &err), ST_BAD_MODEL);
    assert_non_null(strstr(err.text, "no backend beta is installed in /"));
    assert_non_null(strstr(err.text, "installed: alpha, fake, zeta"));
    assert_int_equal(backends_get(backends, STR("../fake"), &backend, &err), ST_BAD_MODEL);
    backends_free(backends);
    test_dir_remove(&dir);
}

static void backends_without_directory_lists_none(void **state) {
    const sluice_backend *backend = NULL;
    struct error err;
    const char *const directories[] = {NULL, "/nonexistent/backends"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct backends *backends = backends_new(directories[i], NULL, 0);
        assert_string_equal(backends_list(backends),
                            i == 0 ? "none"
                                   : "none; /nonexistent/backends: No such file or directory");
        assert_int_equal(backends_get(backends, STR("identity"), &backend, &err), ST_BAD_MODEL);
        assert_non_null(strstr(err.text, "installed: none"));
        backends_free(backends);
    }
}

/* ---- identity backend ------------------------------------------------------------------------ */

/* The build's backends/ directory, relative to this program in unit/serve/scheduler/. */
static void backend_dir(char out[PATH_MAX]) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(n > 0);
    self[n] = '\0';
    for (int i = 0; i < 4; i++) {
        *strrchr(self, '/') = '\0';
    }
    int len = snprintf(out, PATH_MAX, "%s/backends", self);
    assert_true(len < PATH_MAX);
}

static bool accepts_none(void *user, const char *extension) {
    (void)user, (void)extension;
    return false;
}

/* The reason is in the error of a model whose backend is looked for, and the backend is there with
 * the next load. */
static void backends_without_descriptors_are_tried_again(void **state) {
    struct test_dir dir;
    char directory[PATH_MAX], target[PATH_MAX + 64], link[PATH_MAX];
    const sluice_backend *backend = NULL;
    struct error err, why;
    struct rlimit before;
    (void)state;
    backend_dir(directory);
    test_dir_make(&dir);
    test_dir_add(&dir, "libsluice_alpha.so", "this is not a library");
    snprintf(target, sizeof(target), "%s/libsluice_identity.so", directory);
    snprintf(link, sizeof(link), "%s/libsluice_identity.so", dir.path);
    assert_int_equal(symlink(target, link), 0);
    struct backends *backends = backends_new(dir.path, NULL, 0);
    assert_int_equal(backends_get(backends, STR("alpha"), &backend, &err), ST_BAD_MODEL);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_null(backends_find(backends, accepts_none, NULL));
    bool failed = backends_failure(backends, &why);
    assert_int_equal(backends_get(backends, STR("identity"), &backend, &err), ST_NOT_READY);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(failed);
    assert_int_equal(why.status, ST_NOT_READY);
    assert_non_null(strstr(why.text, "backend identity ("));
    assert_non_null(strstr(why.text, "Too many open files"));
    if (backends_get(backends, STR("identity"), &backend, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(backends_failure(backends, &why));
    assert_int_equal(why.status, ST_BAD_MODEL);
    backends_free(backends);
    test_dir_remove(&dir);
}

static const struct model_config_tensor identity_input = {
    .name = STR("in"),
    .datatype = DT_FP32,
    .dims = {(const int64_t[]){RIG_WIDTH}, 1},
    .has_dims = true,
};

/* The rig's requests name their input x. */
static void open_identity(struct rig *rig, const sluice_backend *backend, uint64_t delay_us) {
    struct model_config_tensor x = identity_input, y = identity_input;
    struct error err;
    x.name = STR("x");
    y.name = STR("y");
    struct model_config config = {.max_queue_delay_us = delay_us,
                                  .has_max_batch_size = true,
                                  .max_batch_size = RIG_ROWS_MAX,
                                  .inputs = &x,
                                  .n_inputs = 1,
                                  .outputs = &y,
                                  .n_outputs = 1};
    if (rig_open_with(rig, backend, &config, 0, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
}

static void send_two_rows(struct rig *rig) {
    struct rig_call *call = rig_make(rig, 0, 2, 5);
    rig_submit(call);
    /* the backend declares that its models are cheap */
    assert_int_equal(call_state(&call->call), CALL_INLINE_QUEUED);
}

static void identity_backend_built_library_echoes(void **state) {
    static struct rig rig;
    char directory[PATH_MAX];
    const sluice_backend *backend = NULL;
    struct error err;
    (void)state;
    backend_dir(directory);
    struct backends *backends = backends_new(directory, NULL, 0);
    if (backends_get(backends, STR("identity"), &backend, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    open_identity(&rig, backend, 0);
    assert_int_equal(rig.version->run_on, RUN_ON_WORKER);
    assert_true(str_is(model_version_spec(rig.version)->platform, "identity"));
    rig_run(&rig, send_two_rows, 1);
    assert_int_equal(rig.calls[0].error.status, ST_OK);
    assert_int_equal(rig.calls[0].n_outputs, 1);
    assert_int_equal(rig.calls[0].y_dims[0], 2);
    assert_memory_equal(rig.calls[0].y, rig.calls[0].x, 2 * RIG_WIDTH * sizeof(float));
    rig_close(&rig);
    /* A worker cannot wait for a batch to fill, however cheap the model is. */
    open_identity(&rig, backend, 1000);
    assert_int_equal(rig.version->run_on, RUN_ON_INSTANCE);
    rig_close(&rig);
    backends_free(backends);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backend_name_validity_by_table),
        cmocka_unit_test(backend_check_bad_table_is_refused),
        cmocka_unit_test(backends_directory_lists_and_loads_by_name),
        cmocka_unit_test(backends_without_directory_lists_none),
        cmocka_unit_test(backends_without_descriptors_are_tried_again),
        cmocka_unit_test(identity_backend_built_library_echoes),
    };
    return cmocka_run_group_tests_name("serve/scheduler/backend", tests, NULL, NULL);
}
