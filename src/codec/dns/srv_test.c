/* Responses with SRV records: what is decoded, and that malformed messages are rejected without
 * reading outside of them. */
#include "codec/dns/srv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/buf.h"

/* A message that is being written. */
struct writer {
    struct arena *arena;
    struct buf buf;
};

static void add_u16(struct writer *writer, unsigned value) {
    buf_add_char(&writer->buf, (char)(value >> 8));
    buf_add_char(&writer->buf, (char)value);
}

/* "a.b" as labels; "" is the root. */
static void add_name(struct writer *writer, const char *text) {
    struct str rest = str_of(text);
    while (rest.ptr && rest.len > 0) {
        struct str label = str_cut(&rest, '.');
        buf_add_char(&writer->buf, (char)label.len);
        buf_add_str(&writer->buf, label);
    }
    buf_add_char(&writer->buf, 0);
}

/* A head, and the question for s.test, whose name is at 12. */
static void begin(struct writer *writer, unsigned n_answers) {
    static const unsigned head[] = {1, 0x8180, 1};
    writer->arena = arena_new(NULL, 0);
    buf_init(&writer->buf, writer->arena, 512);
    for (size_t i = 0; i < 3; i++) {
        add_u16(writer, head[i]);
    }
    add_u16(writer, n_answers);
    add_u16(writer, 0);
    add_u16(writer, 0);
    add_name(writer, "s.test");
    add_u16(writer, DNS_TYPE_SRV);
    add_u16(writer, 1);
}

static void add_head(struct writer *writer, unsigned type, unsigned class, uint32_t ttl_s,
                     unsigned n) {
    add_u16(writer, 0xc00c);
    add_u16(writer, type);
    add_u16(writer, class);
    add_u16(writer, ttl_s >> 16);
    add_u16(writer, ttl_s & 0xffff);
    add_u16(writer, n);
}

static void add_srv(struct writer *writer, uint32_t ttl_s, unsigned priority, unsigned port,
                    const char *target) {
    add_head(writer, DNS_TYPE_SRV, 1, ttl_s, 6 + (unsigned)strlen(target) + (target[0] ? 2 : 1));
    add_u16(writer, priority);
    add_u16(writer, 7);
    add_u16(writer, port);
    add_name(writer, target);
}

static enum status decode(struct writer *writer, struct dns_srv_list *out) {
    struct error err;
    return dns_srv_decode(writer->arena, buf_str(&writer->buf), out, &err);
}

static void dns_srv_decode_sorts_by_priority(void **state) {
    (void)state;
    struct writer writer;
    struct dns_srv_list list;
    begin(&writer, 4);
    add_srv(&writer, 300, 20, 8001, "b.test");
    add_srv(&writer, 60, 10, 8002, "A-1.test");
    add_head(&writer, 1, 1, 5, 4); /* an address record, which is skipped */
    add_u16(&writer, 0);
    add_u16(&writer, 0);
    add_head(&writer, DNS_TYPE_SRV, 3, 6, 0); /* of another class */
    assert_int_equal(decode(&writer, &list), ST_OK);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.ttl_s, 60);
    assert_int_equal(list.items[0].priority, 10);
    assert_int_equal(list.items[0].weight, 7);
    assert_int_equal(list.items[0].port, 8002);
    assert_string_equal(list.items[0].target.ptr, "A-1.test");
    assert_string_equal(list.items[1].target.ptr, "b.test");
    arena_free(writer.arena);
}

static void dns_srv_decode_compressed_name_is_expanded(void **state) {
    (void)state;
    struct writer writer;
    struct dns_srv_list list;
    begin(&writer, 2);
    add_head(&writer, 5, 1, 9, 2); /* an alias with a shorter time to live */
    add_u16(&writer, 0xc00c);
    add_head(&writer, DNS_TYPE_SRV, 1, 60, 6 + 4);
    add_u16(&writer, 1);
    add_u16(&writer, 0);
    add_u16(&writer, 80);
    buf_add(&writer.buf, "\1h\300\014", 4);
    assert_int_equal(decode(&writer, &list), ST_OK);
    assert_int_equal(list.n, 1);
    assert_int_equal(list.ttl_s, 9);
    assert_string_equal(list.items[0].target.ptr, "h.s.test");
    arena_free(writer.arena);
}

static void dns_srv_decode_invalid_targets_are_counted(void **state) {
    (void)state;
    struct writer writer;
    struct dns_srv_list list;
    begin(&writer, 5);
    add_srv(&writer, 1, 0, 80, "");
    add_srv(&writer, 1, 0, 0, "a.test");
    add_srv(&writer, 1, 0, 80, "a b.test");
    add_srv(&writer, 1, 0, 80, "10.0.0.1");
    add_srv(&writer, UINT32_C(0x80000000), 0, 80, "good.test"); /* not a valid time to live */
    assert_int_equal(decode(&writer, &list), ST_OK);
    assert_int_equal(list.n, 1);
    assert_int_equal(list.n_invalid, 3);
    assert_int_equal(list.ttl_s, 0);
    arena_free(writer.arena);
}

/* Every prefix is rejected. The next byte must not be read. */
static void dns_srv_decode_truncated_message_is_refused(void **state) {
    (void)state;
    struct writer writer;
    struct dns_srv_list list;
    struct error err;
    begin(&writer, 2);
    add_srv(&writer, 300, 20, 8001, "b.test");
    add_srv(&writer, 60, 10, 8002, "a.test");
    for (size_t n = 0; n < writer.buf.len; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, writer.buf.data, n);
        assert_int_equal(dns_srv_decode(writer.arena, str_make(copy, n), &list, &err),
                         ST_BAD_ANSWER);
        free(copy);
    }
    arena_free(writer.arena);
}

/* Names that point to themselves, forwards, out of the message, or that do not end. */
static void dns_srv_decode_malformed_name_is_refused(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
    } rows[] = {
        {"\300\052", 2}, /* to itself: the target is at 42 */
        {"\377\377", 2}, {"\200\014", 2}, {"\100a", 2}, {"\1a\300", 3}, {"\1a", 2}, {"\300", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct writer writer;
        struct dns_srv_list list;
        begin(&writer, 1);
        add_head(&writer, DNS_TYPE_SRV, 1, 60, 6 + (unsigned)rows[i].n);
        add_u16(&writer, 1);
        add_u16(&writer, 0);
        add_u16(&writer, 80);
        buf_add(&writer.buf, rows[i].bytes, rows[i].n);
        assert_int_equal(decode(&writer, &list), ST_BAD_ANSWER);
        arena_free(writer.arena);
    }
}

/* A record whose length is above or below that of its target. */
static void dns_srv_decode_wrong_record_length_is_refused(void **state) {
    (void)state;
    for (unsigned n = 0; n < 20; n++) {
        struct writer writer;
        struct dns_srv_list list;
        begin(&writer, 1);
        add_head(&writer, DNS_TYPE_SRV, 1, 60, n);
        add_u16(&writer, 1);
        add_u16(&writer, 0);
        add_u16(&writer, 80);
        add_name(&writer, "a.test");
        buf_add(&writer.buf, "more bytes", 10);
        assert_int_equal(decode(&writer, &list), n == 6 + 8 ? ST_OK : ST_BAD_ANSWER);
        arena_free(writer.arena);
    }
}

static void dns_srv_decode_record_count_over_message_is_refused(void **state) {
    (void)state;
    struct writer writer;
    struct dns_srv_list list;
    begin(&writer, 65535);
    add_srv(&writer, 300, 20, 8001, "b.test");
    assert_int_equal(decode(&writer, &list), ST_BAD_ANSWER);
    arena_free(writer.arena);
}

static void dns_name_is_valid_follows_host_name_rules(void **state) {
    static const struct {
        const char *name;
        bool valid;
    } rows[] = {
        {"a", true},
        {"a.b", true},
        {"a.b.", true},
        {"_http._tcp.A-9.b", true},
        {"10.example", true},
        {"xn--bcher-kva", true},
        {"a1", true},
        {"", false},
        {".", false},
        {".a", false},
        {"a..b", false},
        {"a..", false},
        {"a b", false},
        {"10.0.0.256", false},
        {"a.10", false},
        {"1", false},
        {"a.10.", false},
        {"a:b", false},
        {"b\303\274cher", false},
        {"a/b", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(dns_name_is_valid(str_of(rows[i].name)), rows[i].valid);
    }
    char text[260];
    memset(text, 'a', sizeof(text));
    assert_true(dns_name_is_valid(str_make(text, 63)));
    assert_false(dns_name_is_valid(str_make(text, 64)));
    for (size_t i = 1; i < sizeof(text); i += 2) {
        text[i] = '.';
    }
    assert_true(dns_name_is_valid(str_make(text, 253)));
    assert_false(dns_name_is_valid(str_make(text, 255)));
    assert_false(dns_name_is_valid(str_make("a\0b", 3)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dns_srv_decode_sorts_by_priority),
        cmocka_unit_test(dns_srv_decode_compressed_name_is_expanded),
        cmocka_unit_test(dns_srv_decode_invalid_targets_are_counted),
        cmocka_unit_test(dns_srv_decode_truncated_message_is_refused),
        cmocka_unit_test(dns_srv_decode_malformed_name_is_refused),
        cmocka_unit_test(dns_srv_decode_wrong_record_length_is_refused),
        cmocka_unit_test(dns_srv_decode_record_count_over_message_is_refused),
        cmocka_unit_test(dns_name_is_valid_follows_host_name_rules),
    };
    return cmocka_run_group_tests_name("codec/dns/srv", tests, NULL, NULL);
}
