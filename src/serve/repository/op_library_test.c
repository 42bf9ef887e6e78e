/* Where a library of operators may be: the directories of the version and the model, and those of
 * the operator. */
#include "serve/repository/op_library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/repository/test_dir.h"

static struct test_dir dir;

static void make_link(const char *target, const char *name) {
    char path[PATH_MAX], to[PATH_MAX];
    test_dir_path(&dir, target, to);
    assert_int_equal(symlink(to, test_dir_path(&dir, name, path)), 0);
}

static int make_files(void **state) {
    (void)state;
    test_dir_make(&dir);
    test_dir_add(&dir, "m/both.so", "");
    test_dir_add(&dir, "m/ops/model.so", "");
    test_dir_add(&dir, "m/1/both.so", "");
    test_dir_add(&dir, "m/1/version.so", "");
    test_dir_add(&dir, "m2/neighbour.so", "");
    test_dir_add(&dir, "allowed/allowed.so", "");
    test_dir_add(&dir, "outside/outside.so", "");
    make_link("outside/outside.so", "m/out.so");
    make_link("outside", "m/folder");
    make_link("allowed/allowed.so", "m/in.so");
    make_link("allowed", "other_name");
    make_link("m/none", "m/dangling.so");
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

static const struct row {
    const char *name;  /* with "DIR/" before it, absolute */
    const char *found; /* below the test's directory; NULL: refused */
    const char *says;
    bool by_request;
    bool none_allowed;
} ROWS[] = {
    {"both.so", "m/1/both.so", "", false, false},
    {"version.so", "m/1/version.so", "", false, true},
    {"ops/model.so", "m/ops/model.so", "", false, true},
    {"../both.so", "m/both.so", "", false, true},
    {"allowed.so", "allowed/allowed.so", "", false, false},
    {"in.so", "allowed/allowed.so", "", false, false},
    {"DIR/allowed/allowed.so", "allowed/allowed.so", "", false, false},
    {"DIR/m/both.so", "m/both.so", "", false, true},
    {"DIR/other_name/allowed.so", "allowed/allowed.so", "", false, false},
    {"allowed.so", NULL, "No such file", false, true},
    {"in.so", NULL, "neither in the model's directory", false, true},
    {"out.so", NULL, "neither in the model's directory nor in one of --op-library-dir", false,
     false},
    {"folder/outside.so", NULL, "neither in", false, false},
    {"../../outside/outside.so", NULL, "neither in", false, false},
    {"../../m2/neighbour.so", NULL, "neither in", false, false},
    {"DIR/outside/outside.so", NULL, "neither in", false, false},
    {"dangling.so", NULL, "No such file", false, false},
    {"ops", NULL, "expected a regular file", false, false},
    {"both.so", NULL, "No such file", true, false},
    {"DIR/m/both.so", NULL, "neither in", true, false},
    {"allowed.so", "allowed/allowed.so", "", true, false},
};

static void check_row(const struct row *row) {
    char path[PATH_MAX], allowed[PATH_MAX], name[PATH_MAX];
    struct model_origin origin = {.name = STR("m"), .path = str_of(test_dir_path(&dir, "m", path))};
    struct model *model = model_new(&origin);
    snprintf(name, sizeof(name), "%s", row->name);
    if (strncmp(row->name, "DIR/", 4) == 0) {
        test_dir_path(&dir, row->name + 4, name);
    }
    const char *const directories[] = {"/nonexistent", test_dir_path(&dir, "allowed", allowed)};
    const struct op_library_places places = {directories, row->none_allowed ? 1 : 2};
    const struct model_config_library library = {str_of(name), STR("place")};
    model->config.libraries = &library;
    model->config.n_libraries = 1;
    model->override_config = row->by_request ? STR("{}") : (struct str){NULL, 0};
    const char *const *found;
    size_t n;
    struct error err = {.text = ""};
    enum status st = op_libraries_find(model, 1, &places, &found, &n, &err);
    if (row->found) {
        assert_int_equal(st, ST_OK);
        assert_int_equal(n, 1);
        assert_string_equal(found[0], test_dir_path(&dir, row->found, path));
    } else if (st != ST_BAD_MODEL || !strstr(err.text, row->says) ||
               strncmp(err.text, "place: ", 7) != 0) {
        fail_msg("%s: %s", row->name, err.text);
    }
    model_free(model);
}

static void op_library_is_found_where_it_may_be(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        check_row(&ROWS[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(op_library_is_found_where_it_may_be),
    };
    return cmocka_run_group_tests_name("serve/repository/op_library", tests, make_files,
                                       remove_files);
}
