/* Every boundary of well-formed UTF-8, each at every position of the fast path's eight bytes. */
#include "core/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct row {
    const char *bytes;
    size_t n;
    size_t valid; /* the length of the valid prefix */
};

static const struct row rows[] = {
    {"\x00", 1, 1},
    {"\x7f", 1, 1},
    {"\x80", 1, 0},
    {"\xbf", 1, 0},
    {"\xc0\x80", 2, 0}, /* overlong NUL */
    {"\xc1\xbf", 2, 0}, /* overlong */
    {"\xc2\x7f", 2, 0},
    {"\xc2\x80", 2, 2}, /* U+0080 */
    {"\xc2\xc0", 2, 0},
    {"\xdf\xbf", 2, 2}, /* U+07FF */
    {"\xc3", 1, 0},
    {"\xe0\x80\x80", 3, 0}, /* overlong */
    {"\xe0\x9f\xbf", 3, 0}, /* overlong */
    {"\xe0\xa0\x80", 3, 3}, /* U+0800 */
    {"\xec\xbf\xbf", 3, 3},
    {"\xed\x9f\xbf", 3, 3}, /* U+D7FF */
    {"\xed\xa0\x80", 3, 0}, /* U+D800, a surrogate */
    {"\xed\xbf\xbf", 3, 0}, /* U+DFFF, a surrogate */
    {"\xee\x80\x80", 3, 3}, /* U+E000 */
    {"\xef\xbf\xbf", 3, 3}, /* U+FFFF */
    {"\xe2\x82", 2, 0},
    {"\xe2\x82\x28", 3, 0},
    {"\xe2\x28\x82", 3, 0},
    {"\xf0\x80\x80\x80", 4, 0}, /* overlong */
    {"\xf0\x8f\xbf\xbf", 4, 0}, /* overlong */
    {"\xf0\x90\x80\x80", 4, 4}, /* U+10000 */
    {"\xf3\xbf\xbf\xbf", 4, 4},
    {"\xf4\x8f\xbf\xbf", 4, 4}, /* U+10FFFF */
    {"\xf4\x90\x80\x80", 4, 0}, /* above it */
    {"\xf5\x80\x80\x80", 4, 0},
    {"\xff", 1, 0},
    {"\xf0\x9f\x98", 3, 0},
    {"\xf0\x9f\x98\x28", 4, 0},
    {"\xf0\x28\x98\x80", 4, 0},
    {"a\xc3\xa9\xff", 4, 3},
};

static void utf8_valid_prefix_at_every_offset(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t before = 0; before <= 17; before++) {
            char text[32];
            memset(text, 'x', sizeof(text));
            memcpy(text + before, rows[i].bytes, rows[i].n);
            size_t all = before + rows[i].n;
            assert_int_equal(utf8_valid_prefix(text, all), before + rows[i].valid);
            assert_int_equal(utf8_is_valid(text, all), rows[i].valid == rows[i].n);
            /* followed by text, so that the last bytes are not special */
            size_t whole = rows[i].valid == rows[i].n ? all + 8 : before + rows[i].valid;
            assert_int_equal(utf8_valid_prefix(text, all + 8), whole);
        }
    }
}

/* Every sequence of two lead bytes against a slow definition: decode, then compare with what the
 * code point would be encoded as. */
static size_t slow_next(const unsigned char *p, size_t n) {
    uint32_t code = p[0];
    size_t len = code < 0x80 ? 1 : code < 0xc0 ? 0 : code < 0xe0 ? 2 : code < 0xf0 ? 3 : 4;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (len <= 1 || code >= 0xf8) {
        return code >= 0xf8 ? 0 : len;
    }
    code &= 0x7fu >> len;
    for (size_t i = 1; i < len; i++) {
        if (i >= n || (p[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (p[i] & 0x3f);
    }
    int bad = code < least[len] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
    return bad ? 0 : len;
}

static void utf8_char_len_agrees_with_definition(void **state) {
    static const unsigned char thirds[] = {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    (void)state;
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        for (size_t k = 0; k < 36; k++) {
            unsigned char text[4] = {(unsigned char)(pair >> 8), (unsigned char)pair, thirds[k / 6],
                                     thirds[k % 6]};
            for (size_t n = 1; n <= 4; n++) {
                if (utf8_char_len(text, n) != slow_next(text, n)) {
                    fail_msg("%02x %02x %02x %02x of %zu", text[0], text[1], text[2], text[3], n);
                }
            }
        }
    }
}

/* Every character is written as the definition reads it. */
static void utf8_encode_agrees_with_definition(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x10ffff; code += code == 0xd7ff ? 0x801 : 1) {
        char text[UTF8_MAX_BYTES];
        size_t n = utf8_encode(code, text);
        uint32_t read = (unsigned char)text[0] & (n == 1 ? 0x7fu : 0x7fu >> n);
        for (size_t i = 1; i < n; i++) {
            read = read << 6 | ((unsigned char)text[i] & 0x3f);
        }
        if (slow_next((const unsigned char *)text, n) != n || read != code) {
            fail_msg("U+%04X became %zu bytes, U+%04X", code, n, read);
        }
    }
}

/* One byte that is not ASCII, at each place of a text of each length. */
static void utf8_is_ascii_finds_any_high_byte(void **state) {
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        char text[40];
        memset(text, 0x7f, sizeof(text));
        assert_true(utf8_is_ascii(text, n));
        for (size_t i = 0; i < n; i++) {
            text[i] = '\x80';
            assert_false(utf8_is_ascii(text, n));
            assert_true(utf8_is_ascii(text, i));
            text[i] = '\0';
        }
    }
}

static void utf8_empty_text_is_valid(void **state) {
    (void)state;
    assert_int_equal(utf8_valid_prefix(NULL, 0), 0);
    assert_true(utf8_is_valid(NULL, 0));
    assert_true(utf8_is_ascii(NULL, 0));
    assert_int_equal(utf8_char_len(NULL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_valid_prefix_at_every_offset),
        cmocka_unit_test(utf8_char_len_agrees_with_definition),
        cmocka_unit_test(utf8_encode_agrees_with_definition),
        cmocka_unit_test(utf8_is_ascii_finds_any_high_byte),
        cmocka_unit_test(utf8_empty_text_is_valid),
    };
    return cmocka_run_group_tests_name("core/base/utf8", tests, NULL, NULL);
}
