/* Parsing and printing of addresses, and the spread of their hashes. */
#include "pick/pool/endpoint/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void endpoint_address_valid_text_parses(void **state) {
    static const struct {
        const char *text, *written;
    } rows[] = {
        {"10.0.0.1:8000", "10.0.0.1:8000"},
        {"0.0.0.0:1", "0.0.0.0:1"},
        {"255.255.255.255:65535", "255.255.255.255:65535"},
        {"[::1]:8000", "[::1]:8000"},
        {"[::]:1", "[::]:1"},
        {"[2001:DB8:0:0:0:0:0:1]:80", "[2001:db8::1]:80"},
        {"[2001:db8::0:1]:80", "[2001:db8::1]:80"},
        {"[fe80::1234:5678:9abc:def0]:443", "[fe80::1234:5678:9abc:def0]:443"},
        {"[::ffff:10.0.0.1]:9", "10.0.0.1:9"}, /* RFC 4291, 2.5.5.2: the same server */
        {"[::ffff:a00:1]:9", "10.0.0.1:9"},
        {"[::1:ffff:a00:1]:9", "[::1:ffff:a00:1]:9"},
        {"[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
         "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct endpoint_address address, again;
        char text[ENDPOINT_TEXT_BYTES];
        assert_true(endpoint_address_parse(str_of(rows[i].text), &address));
        struct str written = endpoint_address_print(&address, text);
        assert_string_equal(written.ptr, rows[i].written);
        assert_int_equal(written.len, strlen(rows[i].written));
        assert_true(endpoint_address_parse(written, &again));
        assert_true(endpoint_address_equal(&address, &again));
        assert_true(endpoint_address_hash(&address) == endpoint_address_hash(&again));
    }
}

static void endpoint_address_invalid_text_is_rejected(void **state) {
    static const char *const rows[] = {
        "",
        ":",
        ":8000",
        "8000",
        "localhost:8000",
        "10.0.0.1",
        "10.0.0.1:",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0.1:99999",
        "10.0.0.1:100000",
        "10.0.0.1:08000",
        "10.0.0.1:-1",
        "10.0.0.1:+1",
        "10.0.0.1:8000 ",
        " 10.0.0.1:8000",
        "10.0.0.1:8000,10.0.0.2:8000",
        "10.0.0.256:1",
        "10.0.0:1",
        "10.0.0.0.1:1",
        "10.0.0.01:1",
        "10.0.0.1.:1",
        "10..0.1:1",
        "0x0a.0.0.1:1",
        "4294967297.0.0.1:1",
        "::1:8000",
        "[::1]",
        "[::1]8000",
        "[::1]:",
        "[::1:8000",
        "[]:8000",
        "[10.0.0.1]:8000",
        "[::1%lo]:8000",
        "[::1]]:8000",
        "[[::1]]:8000",
        "[1:2:3:4:5:6:7:8:9]:80",
        "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
        "unix:/run/x",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct endpoint_address address = {.port = 7};
        assert_false(endpoint_address_parse(str_of(rows[i]), &address));
        assert_int_equal(address.port, 7);
    }
    struct endpoint_address address;
    assert_false(endpoint_address_parse(STR("10.0.0.1\0:8000"), &address));
    assert_false(endpoint_address_parse(STR("[::1\0]:8000"), &address));
    assert_false(endpoint_address_parse(str_make(NULL, 0), &address));
}

static void endpoint_address_ip_without_port_parses(void **state) {
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {"10.0.0.1", true}, {"::1", true},   {"[::1]", true}, {"10.0.0.1:8000", false},
        {"", false},        {"[::1", false}, {"::g", false},  {"[::1]:1", false},
        {"10.0.0.", false}, {"host", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct endpoint_address address = {.port = 7};
        assert_int_equal(endpoint_address_parse_ip(str_of(rows[i].text), &address), rows[i].good);
        assert_int_equal(address.port, rows[i].good ? 0 : 7);
    }
}

static void endpoint_address_compare_orders_by_ip_and_port(void **state) {
    static const char *const rows[] = {"9.255.0.1:9", "10.0.0.1:80",  "10.0.0.1:8000",
                                       "10.0.0.2:1",  "[::1]:1",      "[::2]:1",
                                       "[1::]:1",     "[1::1]:65535", "[fe80::1]:2"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            struct endpoint_address a, b;
            assert_true(endpoint_address_parse(str_of(rows[i]), &a));
            assert_true(endpoint_address_parse(str_of(rows[k]), &b));
            int sign = endpoint_address_compare(&a, &b);
            assert_int_equal(sign, i < k ? -1 : i > k);
        }
    }
}

/* Addresses are often consecutive, by host or port: none of 1024 slots gets much more than its
 * share. */
static void endpoint_address_hash_of_neighbours_spreads(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        unsigned slots[1024] = {0}, most = 0;
        for (unsigned i = 0; i < 10240; i++) {
            struct endpoint_address address = {.family = 4, .port = 8000, .low = 10 << 24};
            address.port = (uint16_t)(kind == 0 ? 1 + i : 8000);
            address.low += kind == 1 ? i : kind == 2 ? i << 8 : 0;
            address.high = kind == 3 ? (uint64_t)i << 48 : 0;
            unsigned *slot = &slots[endpoint_address_hash(&address) % 1024];
            most = ++*slot > most ? *slot : most;
        }
        assert_in_range(most, 10, 30);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoint_address_valid_text_parses),
        cmocka_unit_test(endpoint_address_invalid_text_is_rejected),
        cmocka_unit_test(endpoint_address_ip_without_port_parses),
        cmocka_unit_test(endpoint_address_compare_orders_by_ip_and_port),
        cmocka_unit_test(endpoint_address_hash_of_neighbours_spreads),
    };
    return cmocka_run_group_tests_name("pick/pool/endpoint/address", tests, NULL, NULL);
}
