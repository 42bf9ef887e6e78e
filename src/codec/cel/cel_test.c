/* Expressions over a response's usage: their values and types, errors when they are read and when
 * they are evaluated, and the limits. */
#include "codec/cel/cel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct cel_entry DETAILS[] = {{STR("cached_tokens"), {.type = CEL_DOUBLE, .real = 4}}};
static const struct cel_entry USAGE[] = {
    {STR("prompt_tokens"), {.type = CEL_DOUBLE, .real = 32}},
    {STR("completion_tokens"), {.type = CEL_DOUBLE, .real = 10}},
    {STR("total_tokens"), {.type = CEL_DOUBLE, .real = 42}},
    {STR("prompt_tokens_details"), {.type = CEL_MAP, .map = {DETAILS, 1}}},
    {STR("name"), {.type = CEL_STRING, .text = {"gpt", 3}}}};
static const struct cel_map VARIABLE = {USAGE, sizeof(USAGE) / sizeof(*USAGE)};

static enum status run(struct arena *arena, const char *text, struct cel_value *out,
                       struct error *err) {
    struct cel_program *program;
    enum status st = cel_compile(arena, str_of(text), "usage", &program, err);
    if (st == ST_OK) {
        st = cel_evaluate(program, &VARIABLE, arena, out, err);
        enum cel_type type = cel_result_type(program);
        assert_true(st != ST_OK || type == CEL_DYN || type == out->type);
    }
    return st;
}

/* "int 5", "double 1.5", "string ab", "bool true" */
static const char *print(const struct cel_value *value) {
    static char text[200];
    const char *name = cel_type_name(value->type);
    switch ((int)value->type) {
    case CEL_BOOL:
        snprintf(text, sizeof(text), "%s %s", name, value->boolean ? "true" : "false");
        break;
    case CEL_INT:
        snprintf(text, sizeof(text), "%s %lld", name, (long long)value->integer);
        break;
    case CEL_UINT:
        snprintf(text, sizeof(text), "%s %llu", name, (unsigned long long)value->natural);
        break;
    case CEL_DOUBLE:
        snprintf(text, sizeof(text), "%s %.17g", name, value->real);
        break;
    case CEL_STRING:
        snprintf(text, sizeof(text), "%s %.*s", name, STR_ARG(value->text));
        break;
    default:
        return name;
    }
    return text;
}

static void expressions_have_values(void **state) {
    static const char *const rows[][2] = {
        /* upstream's examples */
        {"usage.prompt_tokens + usage.completion_tokens", "double 42"},
        {"has(usage.prompt_tokens) && has(usage.completion_tokens)", "bool true"},
        {"(has(usage.prompt_tokens) ? usage.prompt_tokens : 0) + (has(usage.completion_tokens) ? "
         "usage.completion_tokens : 0)\n",
         "double 42"},
        {"usage.prompt_tokens_details.cached_tokens", "double 4"},
        {"usage[\"prompt_tokens\"] - usage['prompt_tokens_details'].cached_tokens", "double 28"},
        {"has(usage.prompt_tokens_details.cached_tokens)", "bool true"},
        {"has(usage.prompt_tokens_details.other)", "bool false"},
        {"has(usage.other) ? 1 : 2", "int 2"},
        {"\"total_tokens\" in usage && !('x' in usage)", "bool true"},
        {"usage.total_tokens > 40 && usage.total_tokens <= 42u", "bool true"},
        {"usage.prompt_tokens * 0.5 + usage.completion_tokens * 2.0", "double 36"},
        {"int(usage.completion_tokens) * 3", "int 30"},
        {"usage == usage", "bool true"},
        {"usage.total_tokens == 42", "bool true"},
        {"usage.total_tokens != 42.5", "bool true"},
        {"usage.name == 42", "bool false"},
        {"usage.name + '-' + string(usage.total_tokens)", "string gpt-42"},
        /* literals */
        {"0x1F + 1", "int 32"},
        {"9223372036854775807", "int 9223372036854775807"},
        {"-9223372036854775808", "int -9223372036854775808"},
        {"18446744073709551615u", "uint 18446744073709551615"},
        {"0xFFFFFFFFFFFFFFFFU", "uint 18446744073709551615"},
        {"1.5e3", "double 1500"},
        {"1e3", "double 1000"},
        {".5", "double 0.5"},
        {"-.5", "double -0.5"},
        {"--5", "int 5"},
        {"- 5 // a comment\n + 7", "int 2"},
        {"'a\"b'", "string a\"b"},
        {"\"\\x41\\u00e9\\U0001F600\\101\\n\"", "string A\xc3\xa9\xf0\x9f\x98\x80"
                                                "A\n"},
        {"r'a\\n'", "string a\\n"},
        {"'''a'b\nc'''", "string a'b\nc"},
        {"''", "string "},
        {"null == null", "bool true"},
        /* precedence */
        {"1 + 2 * 3 - 4 / 2 % 2", "int 7"},
        {"(1 + 2) * 3", "int 9"},
        {"10 - 2 - 3", "int 5"},
        {"true || false && false", "bool true"},
        {"!false == true", "bool true"},
        {"1 < 2 == true", "bool true"},
        {"true ? (false ? 1 : 2) : 3", "int 2"},
        {"false ? 1 : false ? 2 : 3", "int 3"},
        {"-2 * -3", "int 6"},
        {"-7 / 2", "int -3"},
        {"-7 % 3", "int -1"},
        {"7u % 4u", "uint 3"},
        /* doubles */
        {"1.0 / 0.0 > 1e308", "bool true"},
        {"0.0 / 0.0 == 0.0 / 0.0", "bool false"},
        {"0.0 / 0.0 < 1.0 || 0.0 / 0.0 >= 1.0", "bool false"},
        {"dyn(9007199254740993) > dyn(9007199254740992.0)", "bool true"},
        {"dyn(-1) < dyn(1u)", "bool true"},
        {"dyn(18446744073709551615u) > dyn(-1.5)", "bool true"},
        {"dyn(1) == dyn(1u) && dyn(1u) == dyn(1.0)", "bool true"},
        {"dyn(-0.0) == dyn(0)", "bool true"},
        {"dyn(-3) > dyn(-3.5) && dyn(-3.5) < dyn(-3)", "bool true"},
        {"dyn(1) == 'a'", "bool false"},
        /* conversions and functions */
        {"int(3.99)", "int 3"},
        {"int(-3.99)", "int -3"},
        {"int('-12')", "int -12"},
        {"int(7u)", "int 7"},
        {"uint(7)", "uint 7"},
        {"uint('8')", "uint 8"},
        {"uint(2.5)", "uint 2"},
        {"double('1.5')", "double 1.5"},
        {"double(3) / 2.0", "double 1.5"},
        {"double(3u)", "double 3"},
        {"bool('true') && !bool('0')", "bool true"},
        {"string(1.5) + string(true) + string(-3) + string(4u)", "string 1.5true-34"},
        {"size('a\xc3\xa9') + 'abc'.size()", "int 5"},
        {"size(usage)", "int 5"},
        {"'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('bc')", "bool true"},
        {"'abc'.contains('') && !'abc'.contains('abcd')", "bool true"},
        {"'a' < 'b' && false < true", "bool true"},
        /* an error of one side does not count where the other side decides */
        {"usage.other > 1 || true", "bool true"},
        {"true || usage.other > 1", "bool true"},
        {"usage.other > 1 && false", "bool false"},
        {"false && 1 / 0 > 1", "bool false"},
        {"true ? 1 : 1 / 0", "int 1"},
        {".usage.total_tokens", "double 42"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct cel_value value;
        struct error err = {0};
        if (run(arena, rows[i][0], &value, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i][0], err.text);
        }
        if (strcmp(print(&value), rows[i][1]) != 0) {
            fail_msg("%s: %s", rows[i][0], print(&value));
        }
        arena_free(arena);
    }
}

static void expect_error(const char *text, enum status status, const char *message) {
    struct arena *arena = arena_new(NULL, 0);
    struct cel_value value;
    struct error err = {0};
    enum status st = run(arena, text, &value, &err);
    if (st != status || !strstr(err.text, message)) {
        fail_msg("%s: %d %s", text, (int)st, err.text);
    }
    arena_free(arena);
}

static void expressions_are_checked_when_read(void **state) {
    static const char *const rows[][2] = {
        {"", "at byte 1: expected an operand, got nothing"},
        {"usage.prompt_tokens + -", "at byte 24: expected an operand, got nothing"},
        {"usage.", "expected the name of a member"},
        {"usage.prompt_tokens >", "expected an operand, got nothing"},
        {"(1 + 2", "expected \")\""},
        {"1 2", "at byte 3: expected an operator or the end, got \"2\""},
        {"1 ? 2 : 3", "no overload of ?: for int and int and int"},
        {"true ? 1", "expected \":\""},
        {"true ? false ? 1 : 2 : 3", "expected \":\""}, /* as in the language */
        {"true ? 1 : 'a'", "no overload of ?:"},
        {"1 + 1.0", "no overload of + for int and double"},
        {"1 + 'a'", "no overload of + for int and string"},
        {"1 + 1u", "no overload of + for int and uint"},
        {"1.5 % 2.0", "no overload of % for double and double"},
        {"1 == 1.0", "no overload of == for int and double"},
        {"1 < 1u", "no overload of < for int and uint"},
        {"null == 1", "no overload of == for null and int"},
        {"!1", "no overload of ! for int"},
        {"-'a'", "no overload of - for string"},
        {"-1u", "expected a number in its range"},
        {"true && 1", "no overload of && for bool and int"},
        {"1 in usage", "no overload of in for int and map"},
        {"usage[1]", "no overload of [] for map and int"},
        {"'a'.b", "no overload of . for string"},
        {"has(usage)", "expected the selection of a member in has()"},
        {"has(usage['a'])", "expected the selection of a member in has()"},
        {"request.path", "undeclared reference to request: there is the variable usage"},
        {"usages", "undeclared reference to usages"},
        {"max(1, 2)", "there is no function max()"},
        {"usage.foo()", "there is no function foo()"},
        {"'a'.int()", "there is no function int()"},
        {"contains('a')", "there is no function contains()"},
        {"int(true)", "no overload of int for bool"},
        {"size(1)", "no overload of size for int"},
        {"'a'.contains(1)", "no overload of contains for string and int"},
        {"int()", "expected an operand, got \")\""},
        {"int(1, 2)", "expected \")\""},
        {"'a'.matches('b')", "matches() is not supported"},
        {"[1, 2]", "lists are not supported"},
        {"{'a': 1}", "maps are not supported"},
        {"b'a'", "bytes are not supported"},
        {"usage.all(x, true)", "all() is not supported"},
        {"9223372036854775808", "expected a number in its range"},
        {"-9223372036854775809", "expected a number in its range"},
        {"18446744073709551616u", "expected a number in its range"},
        {"0x10000000000000000", "expected a number in its range"},
        {"1e999", "expected a number in its range"},
        {"1x", "expected a number in its range"},
        {"'a", "expected the end of a text"},
        {"'a\nb'", "expected the end of a text"},
        {"'\\q'", "invalid escape"},
        {"'\\ud800'", "invalid escape"},
        {"'\\x4'", "invalid escape"},
        {"'\\8'", "invalid escape"},
        {"if", "if is a reserved word"},
        {"1 & 2", "expected an operator or the end, got \"&\""},
        {"1 = 2", "expected an operator or the end, got \"=\""},
        {"\x01", "got the byte 0x01"},
        {"'\xff'", "expected UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        expect_error(rows[i][0], ST_BAD_CONFIG, rows[i][1]);
    }
}

static void expressions_fail_when_evaluated(void **state) {
    static const char *const rows[][2] = {
        {"usage.other", "no such key: other"},
        {"usage['other'] + 1.0", "no such key: other"},
        {"has(usage.other.more)", "no such key: other"},
        {"usage.prompt_tokens * 2", "no such overload: * of double and int"},
        {"usage.prompt_tokens.more", "no such overload: more of double"},
        {"usage.name + 1.0", "no such overload: + of string and double"},
        {"usage.name < 1", "no such overload: < of string and int"},
        {"!usage.name", "no such overload: ! of string"},
        {"usage.name && true", "no such overload: && of string"},
        {"usage.name ? 1 : 2", "no such overload: a condition of type string"},
        {"usage[usage.prompt_tokens]", "no such overload: [] of map and double"},
        {"9223372036854775807 + 1", "overflow: the result of +"},
        {"-9223372036854775808 - 1", "overflow: the result of -"},
        {"4611686018427387904 * 2", "overflow: the result of *"},
        {"-9223372036854775808 / -1", "overflow: the result of /"},
        {"-(-9223372036854775808)", "overflow: the result of -"},
        {"0u - 1u", "overflow: the result of -"},
        {"18446744073709551615u + 1u", "overflow: the result of +"},
        {"1 / 0", "division by zero"},
        {"1u / 0u", "division by zero"},
        {"1 % 0", "modulus by zero"},
        {"int(1e19)", "type conversion error: int of this double"},
        {"int(0.0 / 0.0)", "type conversion error: int of this double"},
        {"int('x')", "type conversion error: int of this string"},
        {"int(9223372036854775808u)", "type conversion error: int of this uint"},
        {"uint(-1)", "type conversion error: uint of this int"},
        {"uint(-0.5)", "type conversion error: uint of this double"},
        {"bool('maybe')", "type conversion error: bool of this string"},
        {"double('x')", "type conversion error: double of this string"},
        {"usage.other > 1 || false", "no such key: other"},
        {"false || usage.other > 1", "no such key: other"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        expect_error(rows[i][0], ST_BAD_ANSWER, rows[i][1]);
    }
}

/* `n` times the first text, then the second, then `n` times the third. */
static const char *nested(const char *before, const char *middle, const char *after, size_t n) {
    static char text[3 * CEL_MAX_BYTES];
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", before);
    }
    len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", middle);
    for (size_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", after);
    }
    return text;
}

static void expressions_have_limits(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct cel_value value;
    struct error err = {0};
    (void)state;
    assert_int_equal(run(arena, nested("(", "1", ")", CEL_MAX_DEPTH - 1), &value, &err), ST_OK);
    expect_error(nested("(", "1", ")", CEL_MAX_DEPTH), ST_BAD_CONFIG, "at most 48 levels");
    expect_error(nested("(", "1", ")", 1000), ST_BAD_CONFIG, "at most 48 levels");
    expect_error(nested("!", "true", "", 1000), ST_BAD_CONFIG, "at most 48 levels");
    expect_error(nested("-", "usage", "", 1000), ST_BAD_CONFIG, "at most 48 levels");
    expect_error(nested("", "usage", ".a", 1000), ST_BAD_CONFIG, "at most 48 levels");
    expect_error(nested("true?", "1", ":1", 1000), ST_BAD_CONFIG, "expected");
    expect_error(nested("1+", "1", "", 100), ST_BAD_CONFIG, "at most 48 operators in a row");
    expect_error(nested("(1+1+1+1+1+1+1+1+1+1+1+1+1+1)+", "1", "", 40), ST_BAD_CONFIG,
                 "at most 512 operands and operators");
    expect_error(nested(" ", "1", " ", CEL_MAX_BYTES), ST_BAD_CONFIG,
                 "expected at most 4096 bytes");
    /* A text that is added to itself again and again. */
    char big[CEL_MAX_BYTES] = "('";
    memset(big + 2, 'x', 3000);
    strcpy(big + 3002, "')");
    for (int i = 0; i < 25; i++) {
        strcat(big, "+'xxxxxxxxxxxxxxxxxxxxxxxxx'");
    }
    expect_error(big, ST_BAD_ANSWER, "its texts have more than 65536 bytes");
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_have_values),
        cmocka_unit_test(expressions_are_checked_when_read),
        cmocka_unit_test(expressions_fail_when_evaluated),
        cmocka_unit_test(expressions_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
