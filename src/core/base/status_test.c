/* The table of reasons, and the text of an error: where it is cut and which bytes are replaced. */
#include "core/base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/utf8.h"

static void status_rows_are_complete(void **state) {
    (void)state;
    for (int i = 0; i < ST_COUNT_; i++) {
        enum status status = (enum status)i;
        assert_true(strlen(status_name(status)) > 0);
        assert_true(strlen(status_text(status)) > 0);
        assert_in_range(status_http(status), status == ST_OK ? 200 : 400,
                        status == ST_OK ? 200 : 599);
        assert_in_range(status_grpc(status), status == ST_OK ? 0 : 1, 16);
        assert_in_range(status_mip(status), 0, 5);
    }
    assert_string_equal(status_name(ST_BAD_SHAPE), "BAD_SHAPE");
    assert_string_equal(status_text(ST_BAD_SHAPE), "wrong shape");
    assert_int_equal(status_http(ST_BODY_TOO_LARGE), 413);
    assert_int_equal(status_grpc(ST_BODY_TOO_LARGE), 8);
    assert_int_equal(status_mip(ST_BODY_TOO_LARGE), 3);
}

static void error_set_replaces_invalid_bytes(void **state) {
    static const struct {
        const char *sent;
        const char *written;
    } rows[] = {
        {"plain", "plain"},
        {"a\r\nb\tc\x7f", "a??b?c?"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\xfe", "??"},
        {"\xc3(", "?("},
        {"\xed\xa0\x80", "???"},        /* a surrogate */
        {"\xc0\xaf", "??"},             /* overlong */
        {"\xc2\x85 \xc2\x9b", "?? ??"}, /* C1: terminals obey them */
        {"\xe2\x82", "??"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        assert_int_equal(error_set(&err, ST_BAD_FIELD, "%s", rows[i].sent), ST_BAD_FIELD);
        assert_int_equal(err.status, ST_BAD_FIELD);
        assert_string_equal(err.text, rows[i].written);
    }
}

/* Each pair of adjacent ASCII characters, at each offset in a word of eight. */
static void error_set_replaces_every_control_character(void **state) {
    (void)state;
    for (unsigned i = 0; i < 127 * 127; i++) {
        char sent[] = "plain: what else is plain", written[sizeof sent];
        size_t at = i % 16;
        sent[at] = (char)(1 + i / 127), sent[at + 1] = (char)(1 + i % 127);
        for (size_t k = 0; k < sizeof sent; k++) {
            bool is_control = sent[k] != '\0' && (sent[k] < 0x20 || sent[k] == 0x7f);
            written[k] = is_control ? '?' : sent[k];
        }
        struct error err;
        error_set(&err, ST_BAD_FIELD, "%s", sent);
        assert_string_equal(err.text, written);
    }
}

static void error_set_long_text_is_cut_at_character(void **state) {
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    (void)state;
    for (size_t c = 0; c < 4; c++) {
        for (int shift = 0; shift < 4; shift++) {
            char text[4 * ERROR_TEXT_BYTES + 8] = "";
            size_t n = 0;
            memset(text, '-', (size_t)shift);
            for (n = (size_t)shift; n < 2 * ERROR_TEXT_BYTES; n += c + 1) {
                memcpy(text + n, characters[c], c + 1);
            }
            struct error err;
            error_set(&err, ST_IO, "%s", text);
            size_t len = strlen(err.text);
            assert_true(len >= ERROR_TEXT_BYTES - 4 && len < ERROR_TEXT_BYTES);
            assert_true(utf8_is_valid(err.text, len));
            assert_memory_equal(err.text, text, len);
            assert_null(strchr(err.text, '?'));
        }
    }
}

static void error_set_may_quote_its_own_text(void **state) {
    struct error err;
    (void)state;
    error_set(&err, ST_BAD_SHAPE, "first %d", 1);
    error_set(&err, ST_BAD_DATA, "second after \"%s\"", err.text);
    assert_string_equal(err.text, "second after \"first 1\"");
    assert_int_equal(err.status, ST_BAD_DATA);
}

static void error_prefix_is_prepended(void **state) {
    struct error err;
    (void)state;
    error_set(&err, ST_BAD_CONFIG, "no such field");
    assert_int_equal(error_prefix(&err, "model \"%s\"", "dig\nits"), ST_BAD_CONFIG);
    assert_string_equal(err.text, "model \"dig?its\": no such field");
    char longest[ERROR_TEXT_BYTES + 10];
    memset(longest, 'p', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    error_prefix(&err, "%s", longest);
    assert_int_equal(strlen(err.text), ERROR_TEXT_BYTES - 1);
}

static void error_set_null_returns_status(void **state) {
    (void)state;
    assert_int_equal(error_set(NULL, ST_INTERNAL, "%s", "nobody reads this"), ST_INTERNAL);
}

static void error_no_memory_names_the_purpose(void **state) {
    struct error err;
    (void)state;
    assert_int_equal(error_no_memory(&err, "the request"), ST_NO_MEMORY);
    assert_int_equal(err.status, ST_NO_MEMORY);
    assert_string_equal(err.text, "out of memory for the request");
    assert_int_equal(error_no_memory(&err, "%d items of %s", 7, "a\nb"), ST_NO_MEMORY);
    assert_string_equal(err.text, "out of memory for 7 items of a?b");
    assert_int_equal(error_no_memory(NULL, "the request"), ST_NO_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_rows_are_complete),
        cmocka_unit_test(error_set_replaces_invalid_bytes),
        cmocka_unit_test(error_set_replaces_every_control_character),
        cmocka_unit_test(error_set_long_text_is_cut_at_character),
        cmocka_unit_test(error_set_may_quote_its_own_text),
        cmocka_unit_test(error_prefix_is_prepended),
        cmocka_unit_test(error_set_null_returns_status),
        cmocka_unit_test(error_no_memory_names_the_purpose),
    };
    return cmocka_run_group_tests_name("core/base/status", tests, NULL, NULL);
}
