/* Addresses: accepted texts, how they print, and the errors of the others. */
#include "net/transport/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PATH_107                                                                                   \
    "/23456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/"   \
    "123456789/1234567"

static const struct {
    const char *text;
    const char *printed; /* NULL: refused */
    const char *why;     /* part of the message */
} ROWS[] = {
    {"127.0.0.1:8000", "127.0.0.1:8000", NULL},
    {"localhost:0", "127.0.0.1:0", NULL},
    {"LocalHost:65535", "127.0.0.1:65535", NULL},
    {"0.0.0.0:1", "0.0.0.0:1", NULL},
    {"[::1]:8000", "[::1]:8000", NULL},
    {"[2001:DB8::1]:80", "[2001:db8::1]:80", NULL},
    {":8000", "[::]:8000", NULL},
    {"unix:/tmp/s.sock", "unix:/tmp/s.sock", NULL},
    {"unix:s", "unix:s", NULL},
    {"unix:" PATH_107, "unix:" PATH_107, NULL},
    {"unix:" PATH_107 "8", NULL, "at most 107 bytes"},
    {"unix:", NULL, "path of the socket is missing"},
    {"", NULL, "port is missing"},
    {"8000", NULL, "port is missing"},
    {"127.0.0.1", NULL, "port is missing"},
    {"127.0.0.1:", NULL, "port is a number"},
    {"127.0.0.1:65536", NULL, "port is a number"},
    {"127.0.0.1:-1", NULL, "port is a number"},
    {"127.0.0.1:0x50", NULL, "port is a number"},
    {"127.0.0.1: 80", NULL, "port is a number"},
    {"127.0.0.1:http", NULL, "port is a number"},
    {"::1:8000", NULL, "not a numeric address"},
    {"[]:8000", NULL, "in brackets"},
    {"[127.0.0.1]:8000", NULL, "in brackets"},
    {"[::1:8000", NULL, "not a numeric address"},
    {"example.com:80", NULL, "not a numeric address"},
    {"127.0.0.256:80", NULL, "not a numeric address"},
    {"127.1:80", NULL, "not a numeric address"},
    {"http://127.0.0.1:80", NULL, "not a numeric address"},
};

static void check_refused(const char *text, const char *why, enum status st,
                          const struct error *err) {
    assert_int_equal(st, ST_BAD_CONFIG);
    if (!strstr(err->text, why)) {
        fail_msg("%s: expected \"%s\" in \"%s\"", text, why, err->text);
    }
}

static void address_parse_and_print_match_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct address address;
        struct error err;
        char printed[ADDRESS_TEXT_BYTES];
        enum status st = address_parse(str_of(ROWS[i].text), &address, &err);
        if (!ROWS[i].printed) {
            check_refused(ROWS[i].text, ROWS[i].why, st, &err);
        } else {
            assert_int_equal(st, ST_OK);
            assert_string_equal(address_print(&address, printed), ROWS[i].printed);
        }
    }
}

static void address_print_unknown_family_is_question_mark(void **state) {
    (void)state;
    char printed[ADDRESS_TEXT_BYTES];
    assert_string_equal(address_print(&(struct address){0}, printed), "?");
}

static void address_is_local_and_port_match_table(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_local;
        uint16_t port;
    } rows[] = {
        {"127.0.0.1:8000", true, 8000},    {"127.8.9.10:1", true, 1},
        {"[::1]:8000", true, 8000},        {"[::ffff:127.0.0.1]:80", true, 80},
        {"unix:/run/sluice", true, 0},     {"128.0.0.1:8000", false, 8000},
        {"0.0.0.0:65535", false, 65535},   {":443", false, 443},
        {"[::ffff:10.0.0.1]:5", false, 5}, {"[fe80::1]:6", false, 6},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct address address;
        assert_int_equal(address_parse(str_of(rows[i].text), &address, NULL), ST_OK);
        assert_int_equal(address_is_local(&address), rows[i].is_local);
        assert_int_equal(address_port(&address), rows[i].port);
    }
    assert_false(address_is_local(&(struct address){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_parse_and_print_match_table),
        cmocka_unit_test(address_print_unknown_family_is_question_mark),
        cmocka_unit_test(address_is_local_and_port_match_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
