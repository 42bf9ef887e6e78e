/* How first bytes are classified, whole and byte by byte. */
#include "net/transport/h2_preface.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct row {
    const char *bytes;
    enum h2_preface_result result;
    size_t n_left; /* bytes not consumed */
} ROWS[] = {
    {"", H2_PREFACE_MORE, 0},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", H2_PREFACE_MORE, 0},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", H2_PREFACE_OK, 0},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nabc", H2_PREFACE_OK, 3},
    {"PRI * HTTP/1.1\r\n\r\n", H2_PREFACE_HTTP1, 6},
    {"G", H2_PREFACE_MORE, 0},
    {"GET ", H2_PREFACE_MORE, 0},
    {"GET / HTTP/1.1\r\n", H2_PREFACE_HTTP1, 11},
    {"POST /v2/models HTTP/1.1\r\n", H2_PREFACE_HTTP1, 20},
    {"OPTIONS * HTTP/1.1\r\n", H2_PREFACE_HTTP1, 11},
    {"GET http://a/ HTTP/1.1\r\n", H2_PREFACE_HTTP1, 19},
    {"INVALID CONNECTION PREFACE\r\n\r\n", H2_PREFACE_OTHER, 21},
    {"\x16\x03\x01", H2_PREFACE_OTHER, 2}, /* TLS */
    {" GET / HTTP/1.1", H2_PREFACE_OTHER, 14},
    {"get / HTTP/1.1", H2_PREFACE_OTHER, 13},
    {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", H2_PREFACE_OTHER, 6},
    {"AAAAAAAAAAAAAAAAAAAAAAA /", H2_PREFACE_OTHER, 1},
};

static void h2_preface_table_at_every_split_matches(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct h2_preface whole = {0}, pieces = {0};
        struct str data = str_of(ROWS[i].bytes);
        assert_int_equal(h2_preface_add(&whole, &data), ROWS[i].result);
        assert_int_equal(data.len, ROWS[i].n_left);
        size_t n_left = 0;
        for (const char *at = ROWS[i].bytes; *at; at++) {
            struct str byte = str_make(at, 1);
            h2_preface_add(&pieces, &byte);
            n_left += byte.len;
        }
        assert_int_equal(pieces.result, ROWS[i].result);
        assert_int_equal(n_left, ROWS[i].n_left);
    }
}

static void h2_preface_match_at_every_split_counts_equal_bytes(void **state) {
    (void)state;
    struct str preface = h2_preface_bytes(H2_PREFACE_BYTES);
    for (size_t before = 0; before <= H2_PREFACE_BYTES; before++) {
        struct str rest = str_make(preface.ptr + before, preface.len - before);
        assert_int_equal(h2_preface_match(before, rest), rest.len);
        assert_int_equal(h2_preface_match(before, STR("")), 0);
        assert_int_equal(h2_preface_match(before, STR("?")), 0);
    }
    assert_int_equal(h2_preface_match(0, STR("PRI * HTTP/1.1\r\n")), 11);
    assert_int_equal(h2_preface_match(0, STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nPRI")),
                     H2_PREFACE_BYTES);
    assert_int_equal(h2_preface_match(3, STR("PRI")), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2_preface_table_at_every_split_matches),
        cmocka_unit_test(h2_preface_match_at_every_split_counts_equal_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
