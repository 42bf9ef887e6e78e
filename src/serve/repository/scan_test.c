/* From paths to models: files, a model's directory, directories of models; names; versions. */
#include "serve/repository/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"

static const sluice_backend *const builtin[] = {&rig_backend};

enum { MODELS_MOST = 16 };

struct scan {
    struct model_list list;
    struct model *models[MODELS_MOST]; /* of the list's items */
    struct error err;
    enum status status;
};

static void scan_init(struct scan *scan) {
    *scan = (struct scan){0};
    scan->list.arena = arena_new(NULL, 0);
    scan->list.backends = backends_new(NULL, builtin, 1);
}

/* Reads the found models, by name. */
static void scan_inspect(struct scan *scan) {
    assert_true(scan->list.n <= MODELS_MOST);
    for (size_t i = 0; i < scan->list.n; i++) {
        scan->models[i] = model_new(&scan->list.items[i]);
        assert_non_null(scan->models[i]);
        model_inspect(scan->models[i], &(struct config_rules){0}, NULL);
    }
}

static void scan_fini(struct scan *scan) {
    for (size_t i = 0; i < MODELS_MOST; i++) {
        model_free(scan->models[i]);
    }
    backends_free(scan->list.backends);
    arena_free(scan->list.arena);
}

static int compare_names(const void *a, const void *b) {
    const struct model_origin *left = a, *right = b;
    return strcmp(left->name.ptr, right->name.ptr);
}

/* "digits:1,2 other:!" ('!' marks a model with an error) */
static const char *print_models(struct scan *scan, char *out, size_t size) {
    size_t len = 0;
    out[0] = '\0';
    if (scan->list.n > 0) {
        qsort(scan->list.items, scan->list.n, sizeof(scan->list.items[0]), compare_names);
    }
    scan_inspect(scan);
    for (size_t i = 0; i < scan->list.n; i++) {
        const struct model *model = scan->models[i];
        len += (size_t)snprintf(out + len, size - len, "%s%s:", i > 0 ? " " : "", model->name.ptr);
        for (size_t v = 0; v < model->n_attempts; v++) {
            len += (size_t)snprintf(out + len, size - len, "%s%llu", v > 0 ? "," : "",
                                    (unsigned long long)model->attempts[v].number);
        }
        len += (size_t)snprintf(out + len, size - len, "%s", model->error.status ? "!" : "");
    }
    return out;
}

/* ---- files, argument, result ----------------------------------------------------------------- */

struct row {
    const char *const files[8]; /* "NAME=TEXT" writes TEXT; a trailing / makes a directory */
    const char *argument;       /* @ is replaced by the directory */
    bool is_repository;         /* --model-repository */
    const char *models;         /* or NULL: the refusal contains */
    const char *says;
};

static const struct row rows[] = {
    /* files */
    {{"digits.fake"}, "@/digits.fake", false, "digits:1", NULL},
    {{"digits.fake"}, "net=@/digits.fake", false, "net:1", NULL},
    {{"a.b.fake"}, "@/a.b.fake", false, "a.b:1", NULL},
    {{"digits.onnx"},
     "@/digits.onnx",
     false,
     NULL,
     "no installed backend knows files of this kind"},
    {{".fake"}, "@/.fake", false, NULL, "no installed backend knows"},
    {{"a"}, "@/b", false, NULL, "No such file"},
    {{"a"}, "x=", false, NULL, "no path after the ="},
    {{"a.fake"}, "..=@/a.fake", false, NULL, "cannot be the name of a model"},
    {{"a.fake"}, "=@/a.fake", false, NULL, "cannot be the name of a model"},
    {{"a.fake"}, "a\x01=@/a.fake", false, NULL, "cannot be the name of a model"},
    {{"a.fake"}, "a\xff=@/a.fake", false, NULL, "cannot be the name of a model"},
    /* one model's directory */
    {{"m/1/model.fake"}, "@/m", false, "m:1", NULL},
    {{"m/1/model.fake", "m/3/model.fake", "m/20/model.fake"}, "@/m/", false, "m:20", NULL},
    {{"m/1/model.fake"}, "n=@/m", false, "n:1", NULL},
    {{"m/config.pbtxt=", "m/2/"}, "@/m", false, "m:2", NULL},
    {{"m/config.pbtxt=", "m/notes/"}, "@/m", false, "m:!", NULL},
    /* a directory of models */
    {{"r/a/1/model.fake", "r/b/config.pbtxt=", "r/b/1/", "r/README"},
     "@/r",
     false,
     "a:1 b:1",
     NULL},
    {{"r/a/1/model.fake", "r/b/oops/", "r/.git/1/"}, "@/r", false, "a:1 b:!", NULL},
    {{"r/a/1/model.fake", "r/b/1/model.fake"},
     "x=@/r",
     false,
     NULL,
     "NAME=PATH is for one model, and there are several: "},
    /* a directory with one model, under another name */
    {{"r/a/1/model.fake"}, "x=@/r", false, "x:1", NULL},
    {{"r/model.fake"}, "x=@/r", false, "x:1", NULL},
    {{"r/model.fake", "r/docs/README", "r/README", "r/.cache/1/"}, "x=@/r", false, "x:1", NULL},
    {{"r/1/model.fake", "r/docs/README"}, "x=@/r", false, "x:1", NULL},
    {{"r/a/config.pbtxt=name: \"a\"", "r/a/1/model.fake"}, "x=@/r", false, "x:1", NULL},
    {{"r/a.fake", "r/b.fake"}, "x=@/r", false, NULL, "there are several: "},
    {{"r/README"}, "x=@/r", false, NULL, "there is none; expected PATH/MODEL.onnx"},
    {{"r/1/1/model.fake", "r/2/1/model.fake"}, "@/r", false, "1:1 2:1", NULL},
    {{"r/a/1/model.fake"}, "@/r", true, "a:1", NULL},
    {{"r/"}, "@/r", true, "", NULL},
    {{"r/"}, "@/r", false, NULL, "neither a model nor a directory of models"},
    {{"r/x.onnx"}, "@/r", false, NULL, "r/MODEL.onnx"},
    /* a directory of model files */
    {{"r/y.fake", "r/x.fake", "r/README", "r/.z.fake", "r/src/w.fake"},
     "@/r",
     false,
     "x:1 y:1",
     NULL},
    {{"r/x.fake"}, "@/r", true, "x:1", NULL},
    {{"r/a/1/model.fake", "r/x.fake"}, "@/r", false, "a:1", NULL},
    {{"r/src/file"}, "@/r", true, NULL, "MODEL/VERSION/model.onnx"},
    {{"r/"}, "@/q", true, NULL, "No such file"},
    {{"r"}, "@/r", true, NULL, "Not a directory"},
    /* versions */
    {{"m/1/", "m/2/", "m/03/", "m/0/", "m/-4/", "m/5x/", "m/18446744073709551616/"},
     "@/m",
     false,
     "m:2",
     NULL},
    {{"m/1/", "m/2/", "m/3/", "m/config.pbtxt=version_policy { latest { num_versions: 2 } }"},
     "@/m",
     false,
     "m:2,3",
     NULL},
    {{"m/1/", "m/10/", "m/9/", "m/config.pbtxt=version_policy { all { } }"},
     "@/m",
     false,
     "m:1,9,10",
     NULL},
    {{"m/1/", "m/2/", "m/3/",
      "m/config.pbtxt=version_policy { specific { versions: [ 3, 1, 7 ] } }"},
     "@/m",
     false,
     "m:1,3",
     NULL},
    {{"m/1/", "m/config.pbtxt=version_policy { specific { versions: 7 } }"},
     "@/m",
     false,
     "m:!",
     NULL},
    /* names in configurations */
    {{"m/1/", "m/config.pbtxt=name: \"m\""}, "@/m", false, "m:1", NULL},
    {{"m/1/", "m/config.pbtxt=name: \"m\""}, "n=@/m", false, "n:1", NULL},
    {{"m/1/", "m/config.pbtxt=name: \"other\""}, "@/m", false, "m:!", NULL},
    {{"m/1/", "m/config.pbtxt=nam: \"other\""}, "@/m", false, "m:!", NULL},
};

static void fill(const struct test_dir *dir, const struct row *row) {
    for (size_t i = 0; i < 8 && row->files[i]; i++) {
        char name[256];
        snprintf(name, sizeof(name), "%s", row->files[i]);
        char *text = strchr(name, '=');
        if (text) {
            *text++ = '\0';
        }
        test_dir_add(dir, name, text ? text : "");
    }
}

static void argument_of(const struct test_dir *dir, const struct row *row, char *out) {
    const char *at = strchr(row->argument, '@');
    if (at) {
        snprintf(out, PATH_MAX, "%.*s%s%s", (int)(at - row->argument), row->argument, dir->path,
                 at + 1);
    } else {
        snprintf(out, PATH_MAX, "%s", row->argument);
    }
}

static void check_row(const struct row *row, size_t i, struct scan *scan) {
    char text[512];
    if (!row->models) {
        if (scan->status != ST_BAD_CONFIG || !strstr(scan->err.text, row->says)) {
            fail_msg("row %zu (%s): %s", i, row->argument,
                     scan->status == ST_OK ? "accepted" : scan->err.text);
        }
        return;
    }
    if (scan->status != ST_OK) {
        fail_msg("row %zu (%s): %s", i, row->argument, scan->err.text);
    }
    if (strcmp(print_models(scan, text, sizeof(text)), row->models) != 0) {
        fail_msg("row %zu (%s): found \"%s\", expected \"%s\"", i, row->argument, text,
                 row->models);
    }
}

static void scan_directory_layouts_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_dir dir;
        struct scan scan;
        char argument[PATH_MAX];
        test_dir_make(&dir);
        scan_init(&scan);
        fill(&dir, &rows[i]);
        argument_of(&dir, &rows[i], argument);
        scan.status = rows[i].is_repository ? scan_repository(&scan.list, argument, &scan.err)
                                            : scan_path(&scan.list, argument, NULL, &scan.err);
        check_row(&rows[i], i, &scan);
        scan_fini(&scan);
        test_dir_remove(&dir);
    }
}

/* ---- other cases ----------------------------------------------------------------------------- */

static void scan_duplicate_name_is_refused(void **state) {
    struct test_dir dir;
    struct scan scan;
    char first[PATH_MAX], second[PATH_MAX];
    (void)state;
    test_dir_make(&dir);
    scan_init(&scan);
    test_dir_add(&dir, "one/m.fake", "");
    test_dir_add(&dir, "two/m/1/", "");
    assert_int_equal(
        scan_path(&scan.list, test_dir_path(&dir, "one/m.fake", first), NULL, &scan.err), ST_OK);
    assert_int_equal(scan_path(&scan.list, test_dir_path(&dir, "two/m", second), NULL, &scan.err),
                     ST_BAD_CONFIG);
    assert_non_null(strstr(scan.err.text, first));
    assert_non_null(strstr(scan.err.text, second));
    scan_fini(&scan);
    test_dir_remove(&dir);
}

static void scan_repositories_with_one_name_are_merged(void **state) {
    struct test_dir dir;
    struct scan scan;
    char first[PATH_MAX], second[PATH_MAX], again[PATH_MAX], other[PATH_MAX];
    (void)state;
    test_dir_make(&dir);
    scan_init(&scan);
    test_dir_add(&dir, "one/m/1/", "");
    test_dir_add(&dir, "one/a/1/", "");
    test_dir_add(&dir, "two/m/1/", "");
    test_dir_path(&dir, "one", first);
    test_dir_path(&dir, "two", second);
    test_dir_path(&dir, "two/../one/", again);
    assert_int_equal(scan_repository(&scan.list, first, &scan.err), ST_OK);
    assert_int_equal(scan_repository(&scan.list, again, &scan.err), ST_OK); /* nothing new */
    assert_int_equal(scan_path(&scan.list, second, NULL, &scan.err), ST_OK);
    assert_int_equal(scan.list.n, 2);
    assert_int_equal(scan.list.n_roots, 2);
    for (size_t i = 0; i < scan.list.n; i++) {
        const struct model_origin *origin = &scan.list.items[i];
        bool is_m = str_is(origin->name, "m");
        assert_int_equal(model_origin_is_ambiguous(origin), is_m);
        assert_true(!is_m || str_is(origin->other, test_dir_path(&dir, "two/m", other)));
    }
    scan_fini(&scan);
    test_dir_remove(&dir);
}

static void model_inspect_config_error_is_kept(void **state) {
    struct test_dir dir;
    struct scan scan;
    char path[PATH_MAX];
    (void)state;
    test_dir_make(&dir);
    scan_init(&scan);
    test_dir_add(&dir, "r/m/config.pbtxt", "# nothing\n\nmax_batch_size: -1\n");
    test_dir_add(&dir, "r/m/1/", "");
    assert_int_equal(scan_path(&scan.list, test_dir_path(&dir, "r", path), NULL, &scan.err), ST_OK);
    scan_inspect(&scan);
    assert_int_equal(scan.models[0]->error.status, ST_BAD_CONFIG);
    assert_non_null(strstr(scan.models[0]->error.text, "r/m/config.pbtxt:3: max_batch_size"));
    scan_fini(&scan);
    test_dir_remove(&dir);
}

/* A mounted repository often consists of links into another directory. */
static void scan_symlinks_are_followed(void **state) {
    struct test_dir dir;
    struct scan scan;
    char path[PATH_MAX], target[PATH_MAX], text[64];
    (void)state;
    test_dir_make(&dir);
    scan_init(&scan);
    test_dir_add(&dir, "data/4/model.fake", "");
    test_dir_add(&dir, "r/", "");
    assert_int_equal(symlink(test_dir_path(&dir, "data", target), test_dir_path(&dir, "r/m", path)),
                     0);
    assert_int_equal(scan_path(&scan.list, test_dir_path(&dir, "r", path), NULL, &scan.err), ST_OK);
    assert_string_equal(print_models(&scan, text, sizeof(text)), "m:4");
    scan_fini(&scan);
    test_dir_remove(&dir);
}

/* Parameters from the server's own settings belong to one model. */
static void scan_path_parameters_override_config(void **state) {
    static const struct repository_param items[] = {{STR("a"), STR("2")},
                                                    {STR("sluice.run_on"), STR("gpu")}};
    const struct repository_params good = {items, 1}, bad = {items, 2};
    struct test_dir dir;
    struct scan scan;
    char path[PATH_MAX];
    (void)state;
    test_dir_make(&dir);
    scan_init(&scan);
    test_dir_add(&dir, "r/m/config.pbtxt",
                 "parameters { key: \"a\" value { string_value: \"1\" } }");
    test_dir_add(&dir, "r/m/1/", "");
    test_dir_add(&dir, "f.fake", "");
    test_dir_add(&dir, "g.fake", "");
    test_dir_path(&dir, "r/m", path);
    assert_int_equal(scan_path(&scan.list, path, &good, &scan.err), ST_OK);
    test_dir_path(&dir, "f.fake", path);
    assert_int_equal(scan_path(&scan.list, path, &good, &scan.err), ST_OK);
    test_dir_path(&dir, "g.fake", path);
    assert_int_equal(scan_path(&scan.list, path, &bad, &scan.err), ST_OK);
    scan_inspect(&scan);
    for (size_t i = 0; i < 2; i++) {
        const struct model_config *config = &scan.models[i]->config;
        assert_int_equal(config->n_params, 1);
        assert_string_equal(config->params[0].value.ptr, "2");
    }
    assert_int_equal(scan.models[2]->error.status, ST_BAD_CONFIG);
    assert_non_null(strstr(scan.models[2]->error.text, "auto, worker or instance"));
    test_dir_path(&dir, "r", path);
    assert_int_equal(scan_path(&scan.list, path, &good, &scan.err), ST_BAD_CONFIG);
    assert_non_null(strstr(scan.err.text, "they are for one model"));
    scan_fini(&scan);
    test_dir_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan_directory_layouts_by_table),
        cmocka_unit_test(scan_duplicate_name_is_refused),
        cmocka_unit_test(scan_repositories_with_one_name_are_merged),
        cmocka_unit_test(model_inspect_config_error_is_kept),
        cmocka_unit_test(scan_symlinks_are_followed),
        cmocka_unit_test(scan_path_parameters_override_config),
    };
    return cmocka_run_group_tests_name("serve/repository/scan", tests, NULL, NULL);
}
