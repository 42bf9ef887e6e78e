/* The value that a header has for a name. */
#include "codec/http1/cookie.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void cookie_find_returns_first_valid_value(void **state) {
    static const struct {
        const char *header, *value; /* of "sid"; NULL: there is none */
    } rows[] = {
        {"sid=abc", "abc"},
        {"a=1; sid=abc; b=2", "abc"},
        {"a=1;sid=abc", "abc"},
        {"sid=", ""},
        {"sid=\"abc\"", "abc"},
        {"sid=a=b==", "a=b=="},
        {"sid=1; sid=2", "1"},
        {"sid=\"; sid=2", "2"},
        {"sid=a b; sid=2", "2"},
        {"sid=a,b", NULL},
        {"sid=a\\b", NULL},
        {"sid=\x01; x=1", NULL},
        {"sid=caf\xc3\xa9", NULL},
        {"Sid=1", NULL},
        {"xsid=1; sidx=2; sid", NULL},
        {" sid =1", NULL},
        {"sid", NULL},
        {"=; ;;=1", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct str got = cookie_find(str_of(rows[i].header), STR("sid"));
        if (rows[i].value ? !got.ptr || !str_is(got, rows[i].value) : got.ptr != NULL) {
            fail_msg("%s: got \"%.*s\"", rows[i].header, STR_ARG(got));
        }
    }
    assert_null(cookie_find(str_make(NULL, 0), STR("sid")).ptr);
}

static void cookie_is_name_accepts_tokens_only(void **state) {
    static const char *const wrong[] = {"", "a b", "a=b", "a;b", "\"a\"", "caf\xc3\xa9"};
    (void)state;
    assert_true(cookie_is_name(STR("JSESSIONID")));
    assert_true(cookie_is_name(STR("__Host-sid.1")));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_false(cookie_is_name(str_of(wrong[i])));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cookie_find_returns_first_valid_value),
        cmocka_unit_test(cookie_is_name_accepts_tokens_only),
    };
    return cmocka_run_group_tests_name("codec/http1/cookie", tests, NULL, NULL);
}
