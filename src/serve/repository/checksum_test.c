/* Digests of files against those of a configuration. */
#include "serve/repository/checksum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "serve/repository/test_dir.h"

#define MD5_OF_A "0cc175b9c0f1b6a831c399e269772661"
#define MD5_OF_NOTHING "d41d8cd98f00b204e9800998ecf8427e"

static struct test_dir dir;

static int make_files(void **state) {
    (void)state;
    test_dir_make(&dir);
    test_dir_add(&dir, "1/a", "a");
    test_dir_add(&dir, "empty", "");
    test_dir_add(&dir, "folder/", "");
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    test_dir_remove(&dir);
    return 0;
}

/* Verifies at most two files, up to a NULL. */
static enum status verify(const char *const files[2][2], const atomic_bool *cancelled,
                          struct error *err) {
    struct model_origin origin = {.name = STR("m"), .path = str_of(dir.path)};
    struct model *model = model_new(&origin);
    struct model_config_checksum checksums[2];
    size_t n = 0;
    for (; n < 2 && files[n][0]; n++) {
        checksums[n] = (struct model_config_checksum){
            .filename = str_of(files[n][0]), .md5 = str_of(files[n][1]), .place = STR("place")};
    }
    model->config.checksums = checksums;
    model->config.n_checksums = n;
    enum status st = checksums_verify(model, cancelled, err);
    model_free(model);
    return st;
}

static void checksum_files_have_or_lack_digest(void **state) {
    static const struct {
        const char *files[2][2];
        enum status status;
        const char *says[2];
    } rows[] = {
        {{{NULL}}, ST_OK, {"", ""}},
        {{{"1/a", MD5_OF_A}}, ST_OK, {"", ""}},
        {{{"1/a", MD5_OF_A}, {"empty", MD5_OF_NOTHING}}, ST_OK, {"", ""}},
        {{{"1/a", MD5_OF_A}, {"empty", MD5_OF_A}},
         ST_BAD_MODEL,
         {"place: ", "/empty has the MD5 digest " MD5_OF_NOTHING ", expected " MD5_OF_A}},
        {{{"none", MD5_OF_A}}, ST_BAD_MODEL, {"/none can't be read", MD5_OF_A}},
        {{{"folder", MD5_OF_A}}, ST_BAD_MODEL, {"/folder can't be read", "regular"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {.text = ""};
        assert_int_equal(verify(rows[i].files, NULL, &err), rows[i].status);
        if (!strstr(err.text, rows[i].says[0]) || !strstr(err.text, rows[i].says[1])) {
            fail_msg("%zu: %s", i, err.text);
        }
    }
}

static void checksum_cancelled_is_not_ready(void **state) {
    static const char *const files[2][2] = {{"1/a", MD5_OF_A}};
    const atomic_bool cancelled = true;
    struct error err;
    (void)state;
    assert_int_equal(verify(files, &cancelled, &err), ST_NOT_READY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksum_files_have_or_lack_digest),
        cmocka_unit_test(checksum_cancelled_is_not_ready),
    };
    return cmocka_run_group_tests_name("serve/repository/checksum", tests, make_files,
                                       remove_files);
}
