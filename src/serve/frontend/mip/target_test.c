/* The setting --mip: addresses, names and versions, and their resolution against a repository. */
#include "serve/frontend/mip/target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"

static const struct {
    const char *text;
    const char *address, *url, *model; /* address NULL: an error */
    const char *says;
} rows[] = {
    {"tcp://127.0.0.1:9000=m", "127.0.0.1:9000", "tcp://127.0.0.1:9000", "m", NULL},
    {"tcp://[::1]:9000=m:2", "[::1]:9000", "tcp://[::1]:9000", "m:2", NULL},
    {"tcp://localhost:0=a b", "127.0.0.1:0", "tcp://127.0.0.1:0", "a b", NULL},
    {"unix:///run/x.sock=m", "unix:/run/x.sock", "unix:///run/x.sock", "m", NULL},
    {"unix://here/x=m", "unix:here/x", "unix://here/x", "m", NULL},
    {"unix:///a=b/x=m", "unix:/a=b/x", "unix:///a=b/x", "m", NULL},
    {"", NULL, NULL, NULL, "begins with no scheme"},
    {"127.0.0.1:9000=m", NULL, NULL, NULL, "begins with no scheme"},
    {"http://127.0.0.1:9000=m", NULL, NULL, NULL, "expected tcp://HOST:PORT=MODEL"},
    {"unix:/run/x=m", NULL, NULL, NULL, "begins with no scheme"},
    {"tcp://127.0.0.1:9000", NULL, NULL, NULL, "names no model"},
    {"tcp://127.0.0.1:9000=", NULL, NULL, NULL, "names no model"},
    {"tcp://127.0.0.1=m", NULL, NULL, NULL, "the port is missing"},
    {"tcp://127.0.0.1:99999=m", NULL, NULL, NULL, "from 0 to 65535"},
    {"tcp://example:1=m", NULL, NULL, NULL, "numeric address"},
    {"tcp://unix:/run/x=m", NULL, NULL, NULL, "not TCP's"},
    {"unix://=m", NULL, NULL, NULL, "names no path"},
    {"unix:///"
     "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
     "01234567890123456789012345678901234567890123456789012345678901234567890123456789=m",
     NULL, NULL, NULL, "too long"},
};

static void target_each_text_parses_or_names_error(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct mip_target target;
        struct error err = {0};
        char text[ADDRESS_TEXT_BYTES], url[MIP_URL_BYTES];
        enum status st = mip_target_parse(str_of(rows[i].text), &target, &err);
        assert_int_equal(st, rows[i].address ? ST_OK : ST_BAD_CONFIG);
        if (!rows[i].address) {
            if (!strstr(err.text, rows[i].says)) {
                fail_msg("%s: \"%s\" lacks \"%s\"", rows[i].text, err.text, rows[i].says);
            }
            continue;
        }
        assert_string_equal(address_print(&target.address, text), rows[i].address);
        assert_string_equal(mip_url_print(&target.address, url), rows[i].url);
        assert_true(str_is(target.model, rows[i].model));
        assert_null(target.version.ptr);
    }
}

/* A repository of m (versions 1 and 7), m:3 and colon:x. */
static void target_name_with_colon_resolves_by_repository(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum status before, after;   /* loading */
        const char *model, *version; /* or words of the message */
    } cases[] = {
        {"m", ST_OK, ST_OK, "m", NULL},
        {"m:7", ST_OK, ST_OK, "m", "7"},
        {"m:3", ST_OK, ST_OK, "m:3", NULL}, /* a model with the whole name exists */
        {"m:3:1", ST_OK, ST_OK, "m:3", "1"},
        {"m:8", ST_OK, ST_BAD_CONFIG, "m", "8"}, /* versions are not known before loading */
        {"colon:x", ST_OK, ST_OK, "colon:x", NULL},
        {"m:x", ST_BAD_CONFIG, ST_BAD_CONFIG, "unknown model \"m:x\"", NULL},
        {"m:", ST_BAD_CONFIG, ST_BAD_CONFIG, "unknown model \"m:\"", NULL},
        {"colonx", ST_BAD_CONFIG, ST_BAD_CONFIG, "; did you mean \"colon:x\"?", NULL},
        {"colonx:1", ST_BAD_CONFIG, ST_BAD_CONFIG, "\"colonx\"; did you mean", NULL},
        {"other", ST_BAD_CONFIG, ST_BAD_CONFIG, "unknown model \"other\"", NULL},
        {"other:1", ST_BAD_CONFIG, ST_BAD_CONFIG, "unknown model \"other\"", NULL},
    };
    const sluice_backend *builtin[] = {&rig_backend};
    struct test_dir dir;
    struct error err;
    struct repository *repository;
    test_dir_make(&dir);
    test_dir_add(&dir, "m/1/model.fake", "");
    test_dir_add(&dir, "m/7/model.fake", "");
    test_dir_add(&dir, "m/config.pbtxt", "version_policy { all { } }");
    test_dir_add(&dir, "m:3/1/model.fake", "");
    test_dir_add(&dir, "colon:x/1/model.fake", "");
    const char *const paths[] = {dir.path};
    struct repository_options options = {.model_load_thread_count = 1,
                                         .paths = paths,
                                         .n_paths = 1,
                                         .builtin = builtin,
                                         .n_builtin = 1};
    assert_int_equal(repository_new(&options, &repository, &err), ST_OK);
    assert_int_equal(repository_scan(repository, &err), ST_OK);
    for (int loaded = 0; loaded < 2; loaded++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            struct mip_target target = {.model = str_of(cases[i].name)};
            enum status st = mip_target_resolve(&target, repository, &err);
            assert_int_equal(st, loaded ? cases[i].after : cases[i].before);
            if (st == ST_OK) {
                assert_true(str_is(target.model, cases[i].model));
                assert_true(str_eq(target.version, str_of(cases[i].version)));
            } else {
                assert_non_null(strstr(err.text, cases[i].model));
            }
        }
        if (!loaded) {
            assert_int_equal(repository_load(repository, &err), ST_OK);
        }
    }
    repository_stop(repository);
    repository_free(repository);
    test_dir_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_each_text_parses_or_names_error),
        cmocka_unit_test(target_name_with_colon_resolves_by_repository)};
    return cmocka_run_group_tests_name("serve/frontend/mip/target", tests, NULL, NULL);
}
