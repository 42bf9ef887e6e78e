/* Parses an expression by recursive descent, and checks its types as the tree is built: operations
 * whose operands have known types fail here, others when they are evaluated. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/cel/cel_program.h"
#include "core/base/buf.h"
#include "core/base/hex.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

/* ---- types ----------------------------------------------------------------------------------- */

const char *cel_type_name(enum cel_type type) {
    static const char *const names[] = {"dyn",  "null",   "bool",   "int",
                                        "uint", "double", "string", "map"};
    return names[type];
}

enum { NULLS = 1 << CEL_NULL, BOOLS = 1 << CEL_BOOL, INTS = 1 << CEL_INT, UINTS = 1 << CEL_UINT };
enum { DOUBLES = 1 << CEL_DOUBLE, STRINGS = 1 << CEL_STRING, MAPS = 1 << CEL_MAP };
enum { NUMBERS = INTS | UINTS | DOUBLES, ALL = NUMBERS | NULLS | BOOLS | STRINGS | MAPS };

/* How the type of an operation's value follows from its operands. */
enum typing { SAME, FIXED, MEMBER };

static const struct operation {
    int n;              /* operands */
    unsigned of[2];     /* the types that they may have */
    enum typing typing; /* SAME: both have one type, which is the value's */
    enum cel_type type; /* FIXED */
    bool alike;         /* FIXED: both have one type */
} OPERATIONS[] = {
    [CEL_SELECT] = {1, {MAPS}, MEMBER, CEL_DYN, false},
    [CEL_HAS] = {1, {MAPS}, FIXED, CEL_BOOL, false},
    [CEL_INDEX] = {2, {MAPS, STRINGS}, MEMBER, CEL_DYN, false},
    [CEL_NOT] = {1, {BOOLS}, FIXED, CEL_BOOL, false},
    [CEL_NEGATE] = {1, {INTS | DOUBLES}, SAME, CEL_DYN, false},
    [CEL_MULTIPLY] = {2, {NUMBERS, NUMBERS}, SAME, CEL_DYN, false},
    [CEL_DIVIDE] = {2, {NUMBERS, NUMBERS}, SAME, CEL_DYN, false},
    [CEL_MODULO] = {2, {INTS | UINTS, INTS | UINTS}, SAME, CEL_DYN, false},
    [CEL_ADD] = {2, {NUMBERS | STRINGS, NUMBERS | STRINGS}, SAME, CEL_DYN, false},
    [CEL_SUBTRACT] = {2, {NUMBERS, NUMBERS}, SAME, CEL_DYN, false},
    [CEL_LESS] = {2, {NUMBERS | STRINGS | BOOLS, NUMBERS | STRINGS | BOOLS}, FIXED, CEL_BOOL, true},
    [CEL_LESS_EQUAL] =
        {2, {NUMBERS | STRINGS | BOOLS, NUMBERS | STRINGS | BOOLS}, FIXED, CEL_BOOL, true},
    [CEL_GREATER] =
        {2, {NUMBERS | STRINGS | BOOLS, NUMBERS | STRINGS | BOOLS}, FIXED, CEL_BOOL, true},
    [CEL_GREATER_EQUAL] =
        {2, {NUMBERS | STRINGS | BOOLS, NUMBERS | STRINGS | BOOLS}, FIXED, CEL_BOOL, true},
    [CEL_EQUAL] = {2, {ALL, ALL}, FIXED, CEL_BOOL, true},
    [CEL_NOT_EQUAL] = {2, {ALL, ALL}, FIXED, CEL_BOOL, true},
    [CEL_IN] = {2, {STRINGS, MAPS}, FIXED, CEL_BOOL, false},
    [CEL_AND] = {2, {BOOLS, BOOLS}, FIXED, CEL_BOOL, false},
    [CEL_OR] = {2, {BOOLS, BOOLS}, FIXED, CEL_BOOL, false},
    [CEL_TO_INT] = {1, {NUMBERS | STRINGS}, FIXED, CEL_INT, false},
    [CEL_TO_UINT] = {1, {NUMBERS | STRINGS}, FIXED, CEL_UINT, false},
    [CEL_TO_DOUBLE] = {1, {NUMBERS | STRINGS}, FIXED, CEL_DOUBLE, false},
    [CEL_TO_BOOL] = {1, {BOOLS | STRINGS}, FIXED, CEL_BOOL, false},
    [CEL_TO_STRING] = {1, {NUMBERS | STRINGS | BOOLS}, FIXED, CEL_STRING, false},
    [CEL_TO_DYN] = {1, {ALL}, MEMBER, CEL_DYN, false},
    [CEL_SIZE] = {1, {STRINGS | MAPS}, FIXED, CEL_INT, false},
    [CEL_CONTAINS] = {2, {STRINGS, STRINGS}, FIXED, CEL_BOOL, false},
    [CEL_STARTS_WITH] = {2, {STRINGS, STRINGS}, FIXED, CEL_BOOL, false},
    [CEL_ENDS_WITH] = {2, {STRINGS, STRINGS}, FIXED, CEL_BOOL, false},
};

static bool type_of_conditional(const enum cel_type *types, enum cel_type *out) {
    bool is_known = types[1] != CEL_DYN && types[2] != CEL_DYN;
    *out = types[1] == types[2] ? types[1] : CEL_DYN;
    return (types[0] == CEL_BOOL || types[0] == CEL_DYN) && (!is_known || types[1] == types[2]);
}

bool cel_type_of(enum cel_op op, const enum cel_type *types, enum cel_type *out) {
    const struct operation *operation = &OPERATIONS[op];
    enum cel_type known = CEL_DYN;
    if (op == CEL_CONDITIONAL) {
        return type_of_conditional(types, out);
    }
    for (int i = 0; i < operation->n; i++) {
        bool fits = types[i] == CEL_DYN || (operation->of[i] >> types[i] & 1);
        bool is_alike = operation->typing != SAME && !operation->alike;
        is_alike = is_alike || types[i] == CEL_DYN || known == CEL_DYN || types[i] == known;
        if (!fits || !is_alike) {
            return false;
        }
        known = types[i] != CEL_DYN ? types[i] : known;
    }
    *out = operation->typing == FIXED  ? operation->type
           : operation->typing == SAME ? known
                                       : CEL_DYN;
    return true;
}

/* ---- the parser's state ---------------------------------------------------------------------- */

struct parser {
    struct arena *arena;
    struct str text, variable;
    size_t at;
    int n_nodes, depth;
    enum status status; /* ST_OK until the first error */
    struct error *err;
};

static bool ok(const struct parser *self) {
    return self->status == ST_OK;
}

static void fail(struct parser *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void fail(struct parser *self, const char *format, ...) {
    char text[300];
    va_list args;
    if (!ok(self)) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    self->status = error_set(self->err, ST_BAD_CONFIG, "at byte %zu: %s", self->at + 1, text);
}

static void no_memory(struct parser *self) {
    if (ok(self)) {
        self->status = error_no_memory(self->err, "an expression");
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static char peek(const struct parser *self, size_t ahead) {
    return self->at + ahead < self->text.len ? self->text.ptr[self->at + ahead] : '\0';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void skip_space(struct parser *self) {
    for (;;) {
        char c = peek(self, 0);
        if (c == '/' && peek(self, 1) == '/') {
            while (self->at < self->text.len && peek(self, 0) != '\n') {
                self->at++;
            }
        } else if (self->at < self->text.len && (c == ' ' || (c >= '\t' && c <= '\r'))) {
            self->at++;
        } else {
            return;
        }
    }
}

/* Takes an operator, if it is next. */
static bool take(struct parser *self, const char *op) {
    size_t n = strlen(op);
    skip_space(self);
    if (!ok(self) || self->text.len - self->at < n ||
        memcmp(self->text.ptr + self->at, op, n) != 0) {
        return false;
    }
    self->at += n;
    return true;
}

static void expect(struct parser *self, const char *op) {
    if (ok(self) && !take(self, op)) {
        fail(self, "expected \"%s\"", op);
    }
}

/* Takes a name, if one is next. Returns: empty: none is. */
static struct str take_name(struct parser *self) {
    skip_space(self);
    size_t start = self->at;
    if (is_letter(peek(self, 0))) {
        while (is_letter(peek(self, 0)) || is_digit(peek(self, 0))) {
            self->at++;
        }
    }
    return str_make(self->text.ptr + start, self->at - start);
}

static void fail_next(struct parser *self, const char *expected) {
    char c = peek(self, 0);
    if (self->at >= self->text.len) {
        fail(self, "expected %s, got nothing", expected);
    } else if (c > ' ' && c <= '~') {
        fail(self, "expected %s, got \"%c\"", expected, c);
    } else {
        fail(self, "expected %s, got the byte 0x%02x", expected, (unsigned char)c);
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct cel_node *new_node(struct parser *self, enum cel_op op, struct str name) {
    if (ok(self) && ++self->n_nodes > CEL_MAX_NODES) {
        fail(self, "expected at most %d operands and operators", CEL_MAX_NODES);
    }
    struct cel_node *node = ok(self) ? arena_calloc(self->arena, 1, sizeof(*node)) : NULL;
    if (!node) {
        no_memory(self);
        return NULL;
    }
    node->op = op;
    node->name = arena_dup(self->arena, name);
    if (!node->name.ptr) {
        no_memory(self);
    }
    return node;
}

/* NULL operands are those of an error before. */
static struct cel_node *operate(struct parser *self, enum cel_op op, const char *name,
                                const struct cel_node *a, const struct cel_node *b,
                                const struct cel_node *c) {
    const struct cel_node *operands[3] = {a, b, c};
    enum cel_type types[3] = {CEL_DYN, CEL_DYN, CEL_DYN};
    struct cel_node *node = new_node(self, op, str_of(name));
    for (int i = 0; node && ok(self) && i < 3 && operands[i]; i++) {
        node->operands[node->n_operands++] = operands[i];
        types[i] = operands[i]->type;
    }
    if (node && ok(self) && !cel_type_of(op, types, &node->type)) {
        fail(self, "no overload of %s for %s%s%s%s%s", name, cel_type_name(types[0]),
             b ? " and " : "", b ? cel_type_name(types[1]) : "", c ? " and " : "",
             c ? cel_type_name(types[2]) : "");
    }
    return node;
}

static struct cel_node *literal(struct parser *self, struct cel_value value) {
    struct cel_node *node = new_node(self, CEL_LITERAL, STR("a literal"));
    if (node) {
        node->literal = value;
        node->type = value.type;
    }
    return node;
}

/* ---- literals -------------------------------------------------------------------------------- */

static bool read_hex(struct parser *self, uint64_t *out) {
    size_t n = 0;
    int digit;
    *out = 0;
    for (self->at += 2; (digit = hex_value(peek(self, 0))) >= 0; self->at++) {
        *out = *out << 4 | (uint64_t)digit;
        n += n > 0 || *out > 0;
    }
    return n <= 16;
}

static void skip_digits(struct parser *self) {
    while (is_digit(peek(self, 0))) {
        self->at++;
    }
}

/* The point and the exponent of a double, if it has them. */
static bool skip_fraction(struct parser *self) {
    bool is_real = false;
    if (peek(self, 0) == '.' && is_digit(peek(self, 1))) {
        is_real = true;
        self->at++;
        skip_digits(self);
    }
    if ((peek(self, 0) | 0x20) == 'e') {
        size_t sign = peek(self, 1) == '+' || peek(self, 1) == '-';
        if (is_digit(peek(self, 1 + sign))) {
            is_real = true;
            self->at += 1 + sign;
            skip_digits(self);
        }
    }
    return is_real;
}

/* `negative`: a minus is before it. */
static struct cel_node *read_number(struct parser *self, bool negative) {
    struct cel_value value = {.type = CEL_INT};
    size_t start = self->at;
    uint64_t magnitude = 0;
    bool is_hex =
        peek(self, 0) == '0' && (peek(self, 1) | 0x20) == 'x' && hex_value(peek(self, 2)) >= 0;
    bool fits = !is_hex || read_hex(self, &magnitude);
    if (!is_hex) {
        skip_digits(self);
        bool is_real = skip_fraction(self);
        struct str digits = str_make(self->text.ptr + start, self->at - start);
        value.type = is_real ? CEL_DOUBLE : CEL_INT;
        fits = is_real ? num_parse_decimal(digits, &value.real) : num_parse_u64(digits, &magnitude);
    }
    if (value.type == CEL_DOUBLE) {
        value.real = negative ? -value.real : value.real;
    } else if ((peek(self, 0) | 0x20) == 'u' && !negative) {
        self->at++;
        value.type = CEL_UINT;
        value.natural = magnitude;
    } else {
        fits = fits && magnitude <= (uint64_t)INT64_MAX + negative;
        value.integer = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    }
    if (is_letter(peek(self, 0)) || !fits) {
        fail(self, "expected a number in its range");
    }
    return literal(self, value);
}

/* After a backslash. */
static void read_escape(struct parser *self, struct buf *out) {
    static const char names[] = "abfnrtv\\\"'`?", values[] = "\a\b\f\n\r\t\v\\\"'`?";
    char c = peek(self, 0);
    const char *found = c != '\0' ? strchr(names, c) : NULL;
    size_t n = (c | 0x20) == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    char bytes[UTF8_MAX_BYTES];
    self->at++;
    if (found) {
        buf_add_char(out, values[found - names]);
        return;
    }
    bool is_octal = c >= '0' && c <= '3';
    for (size_t i = 0; is_octal && i < 2; i++, self->at++) {
        is_octal = peek(self, 0) >= '0' && peek(self, 0) <= '7';
        code = code << 3 | (uint32_t)(peek(self, 0) - '0');
    }
    code = is_octal ? code | (uint32_t)(c - '0') << 6 : 0;
    bool fits = is_octal || n > 0;
    for (size_t i = 0; fits && i < n; i++, self->at++) {
        int digit = hex_value(peek(self, 0));
        fits = digit >= 0;
        code = code << 4 | (fits ? (uint32_t)digit : 0);
    }
    if (!fits || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        fail(self, "invalid escape in a text");
        return;
    }
    buf_add(out, bytes, utf8_encode(code, bytes));
}

/* At the quote. */
static struct cel_node *read_text(struct parser *self, bool is_raw) {
    struct cel_value value = {.type = CEL_STRING};
    char quote = peek(self, 0);
    size_t n_quotes = peek(self, 1) == quote && peek(self, 2) == quote ? 3 : 1;
    struct buf out;
    buf_init(&out, self->arena, 16);
    self->at += n_quotes;
    while (ok(self)) {
        char c = peek(self, 0);
        bool ends =
            c == quote && (n_quotes == 1 || (peek(self, 1) == quote && peek(self, 2) == quote));
        if (self->at >= self->text.len || (n_quotes == 1 && (c == '\n' || c == '\r'))) {
            fail(self, "expected the end of a text");
        } else if (ends) {
            self->at += n_quotes;
            break;
        } else if (c == '\\' && !is_raw) {
            self->at++;
            read_escape(self, &out);
        } else {
            buf_add_char(&out, c);
            self->at++;
        }
    }
    buf_add_char(&out, '\0'); /* so that an empty text has an address */
    if (out.failed) {
        no_memory(self);
        return NULL;
    }
    value.text = str_make(out.data, out.len - 1);
    return literal(self, value);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct cel_node *read_expression(struct parser *self);

static const struct function {
    const char *name;
    enum cel_op op;
    bool is_method; /* TEXT.name(ARGUMENT); of size: also without one */
    bool is_function;
} FUNCTIONS[] = {
    {"int", CEL_TO_INT, false, true},
    {"uint", CEL_TO_UINT, false, true},
    {"double", CEL_TO_DOUBLE, false, true},
    {"bool", CEL_TO_BOOL, false, true},
    {"string", CEL_TO_STRING, false, true},
    {"dyn", CEL_TO_DYN, false, true},
    {"size", CEL_SIZE, true, true},
    {"contains", CEL_CONTAINS, true, false},
    {"startsWith", CEL_STARTS_WITH, true, false},
    {"endsWith", CEL_ENDS_WITH, true, false},
};

static const char *const UNSUPPORTED[] = {
    "matches",      "bytes",       "type",     "duration",        "timestamp",  "all",
    "exists",       "exists_one",  "map",      "filter",          "getDate",    "getDayOfMonth",
    "getHours",     "getMinutes",  "getMonth", "getMilliseconds", "getSeconds", "getFullYear",
    "getDayOfWeek", "getDayOfYear"};

static void fail_function(struct parser *self, struct str name) {
    for (size_t i = 0; i < sizeof(UNSUPPORTED) / sizeof(UNSUPPORTED[0]); i++) {
        if (str_is(name, UNSUPPORTED[i])) {
            fail(self, "%s() is not supported", UNSUPPORTED[i]);
        }
    }
    fail(self,
         "there is no function %.*s(); there are has, int, uint, double, bool, string, dyn, "
         "size, and of texts contains, startsWith, endsWith",
         (int)(name.len < 64 ? name.len : 64), name.ptr);
}

static const struct function *find_function(struct str name, bool is_method) {
    for (size_t i = 0; i < sizeof(FUNCTIONS) / sizeof(FUNCTIONS[0]); i++) {
        const struct function *function = &FUNCTIONS[i];
        if (str_is(name, function->name) &&
            (is_method ? function->is_method : function->is_function)) {
            return function;
        }
    }
    return NULL;
}

/* After "(". `target`: of a method; NULL: none. */
static struct cel_node *read_call(struct parser *self, struct str name, struct cel_node *target) {
    const struct function *function = find_function(name, target != NULL);
    struct cel_node *argument = NULL;
    if (!function) {
        fail_function(self, name);
        return NULL;
    }
    bool wants = !target || function->op != CEL_SIZE;
    if (wants) {
        argument = read_expression(self);
    }
    expect(self, ")");
    return target ? operate(self, function->op, function->name, target, argument, NULL)
                  : operate(self, function->op, function->name, argument, NULL, NULL);
}

/* has(a.b), after "(": the node that selects becomes the test. */
static struct cel_node *read_has(struct parser *self) {
    struct cel_node *node = read_expression(self);
    expect(self, ")");
    if (ok(self) && node->op != CEL_SELECT) {
        fail(self, "expected the selection of a member in has()");
    } else if (ok(self)) {
        node->op = CEL_HAS;
        node->type = CEL_BOOL;
    }
    return node;
}

static bool is_reserved(struct str name) {
    static const char *const words[] = {
        "as", "break", "const", "continue", "else",      "for",    "function", "if",   "import",
        "in", "let",   "loop",  "package",  "namespace", "return", "var",      "void", "while"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (str_is(name, words[i])) {
            return true;
        }
    }
    return false;
}

static struct cel_node *read_word(struct parser *self, struct str name) {
    if (str_is(name, "true") || str_is(name, "false")) {
        return literal(self, (struct cel_value){.type = CEL_BOOL, .boolean = name.len == 4});
    }
    if (str_is(name, "null")) {
        return literal(self, (struct cel_value){.type = CEL_NULL});
    }
    if (is_reserved(name)) {
        fail(self, "%.*s is a reserved word", STR_ARG(name));
    } else if (take(self, "(")) {
        return str_is(name, "has") ? read_has(self) : read_call(self, name, NULL);
    } else if (!str_eq(name, self->variable)) {
        fail(self, "undeclared reference to %.*s: there is the variable %.*s",
             (int)(name.len < 64 ? name.len : 64), name.ptr, STR_ARG(self->variable));
    }
    struct cel_node *node = new_node(self, CEL_VARIABLE, name);
    if (node) {
        node->type = CEL_MAP;
    }
    return node;
}

static struct cel_node *read_primary(struct parser *self) {
    skip_space(self);
    char c = peek(self, 0), next = peek(self, 1);
    bool is_raw = (c | 0x20) == 'r' && (next == '"' || next == '\'');
    bool is_bytes = (c | 0x20) == 'b' && (next == '"' || next == '\'');
    if (is_digit(c) || (c == '.' && is_digit(next))) {
        return read_number(self, false);
    }
    if (c == '"' || c == '\'' || is_raw) {
        self->at += is_raw;
        return read_text(self, is_raw);
    }
    if (is_bytes || c == '[' || c == '{') {
        fail(self, "%s are not supported", is_bytes ? "bytes" : c == '[' ? "lists" : "maps");
        return NULL;
    }
    if (take(self, "(")) {
        struct cel_node *node = read_expression(self);
        expect(self, ")");
        return node;
    }
    (void)take(self, "."); /* a name from the root, which is the same here */
    struct str name = take_name(self);
    if (name.len == 0) {
        fail_next(self, "an operand");
        return NULL;
    }
    return read_word(self, name);
}

/* After ".": a member, or a function of a text. */
static struct cel_node *read_selection(struct parser *self, struct cel_node *target) {
    struct str name = take_name(self);
    if (name.len == 0) {
        fail(self, "expected the name of a member");
        return NULL;
    }
    if (take(self, "(")) {
        return read_call(self, name, target);
    }
    struct cel_node *node = operate(self, CEL_SELECT, ".", target, NULL, NULL);
    if (node) {
        node->name = arena_dup(self->arena, name);
    }
    if (node && !node->name.ptr) {
        no_memory(self);
    }
    return node;
}

static struct cel_node *read_member(struct parser *self) {
    struct cel_node *node = read_primary(self);
    int n_levels = 0;
    while (ok(self)) {
        if (take(self, "[")) {
            struct cel_node *key = read_expression(self);
            expect(self, "]");
            node = operate(self, CEL_INDEX, "[]", node, key, NULL);
        } else if (take(self, ".")) {
            node = read_selection(self, node);
        } else {
            break;
        }
        if (++n_levels > CEL_MAX_DEPTH) {
            fail(self, "expected at most %d levels", CEL_MAX_DEPTH);
        }
    }
    return node;
}

static struct cel_node *read_unary(struct parser *self) {
    size_t n_not = 0, n_minus = 0;
    while (ok(self) && peek(self, 0) != '\0' && take(self, "!")) {
        n_not++;
    }
    while (ok(self) && n_not == 0 && take(self, "-")) {
        n_minus++;
        skip_space(self);
    }
    skip_space(self);
    if (n_not > CEL_MAX_DEPTH || n_minus > CEL_MAX_DEPTH) {
        fail(self, "expected at most %d levels", CEL_MAX_DEPTH);
        return NULL;
    }
    bool is_number = n_minus > 0 &&
                     (is_digit(peek(self, 0)) || (peek(self, 0) == '.' && is_digit(peek(self, 1))));
    struct cel_node *node = is_number ? read_number(self, true) : read_member(self);
    for (n_minus -= is_number; ok(self) && n_minus > 0; n_minus--) {
        node = operate(self, CEL_NEGATE, "-", node, NULL, NULL);
    }
    for (; ok(self) && n_not > 0; n_not--) {
        node = operate(self, CEL_NOT, "!", node, NULL, NULL);
    }
    return node;
}

/* The operators of two operands, those that bind closest first. */
static const struct binary {
    int level;
    const char *text;
    enum cel_op op;
} BINARIES[] = {
    {0, "*", CEL_MULTIPLY},       {0, "/", CEL_DIVIDE},
    {0, "%", CEL_MODULO},         {1, "+", CEL_ADD},
    {1, "-", CEL_SUBTRACT},       {2, "<=", CEL_LESS_EQUAL},
    {2, ">=", CEL_GREATER_EQUAL}, {2, "<", CEL_LESS},
    {2, ">", CEL_GREATER},        {2, "==", CEL_EQUAL},
    {2, "!=", CEL_NOT_EQUAL},     {2, "in", CEL_IN},
    {3, "&&", CEL_AND},           {4, "||", CEL_OR},
};
enum { N_LEVELS = 5 };

static const struct binary *take_binary(struct parser *self, int level) {
    for (size_t i = 0; i < sizeof(BINARIES) / sizeof(BINARIES[0]); i++) {
        size_t before = self->at;
        if (BINARIES[i].level == level && take(self, BINARIES[i].text)) {
            bool is_word = BINARIES[i].op == CEL_IN;
            if (!is_word || (!is_letter(peek(self, 0)) && !is_digit(peek(self, 0)))) {
                return &BINARIES[i];
            }
            self->at = before;
        }
    }
    return NULL;
}

/* Operators of one level go from left to right; so does the tree, whose depth is bounded. */
static struct cel_node *read_binary(struct parser *self, int level) {
    struct cel_node *node = level == 0 ? read_unary(self) : read_binary(self, level - 1);
    const struct binary *binary;
    for (int n = 0; ok(self) && (binary = take_binary(self, level)); n++) {
        struct cel_node *right = level == 0 ? read_unary(self) : read_binary(self, level - 1);
        node = operate(self, binary->op, binary->text, node, right, NULL);
        if (n > CEL_MAX_DEPTH) {
            fail(self, "expected at most %d operators in a row", CEL_MAX_DEPTH);
        }
    }
    return node;
}

static struct cel_node *read_expression(struct parser *self) {
    if (++self->depth > CEL_MAX_DEPTH) {
        fail(self, "expected at most %d levels", CEL_MAX_DEPTH);
        return NULL;
    }
    struct cel_node *node = read_binary(self, N_LEVELS - 1);
    if (ok(self) && take(self, "?")) {
        struct cel_node *yes = read_binary(self, N_LEVELS - 1);
        expect(self, ":");
        struct cel_node *no = read_expression(self);
        node = operate(self, CEL_CONDITIONAL, "?:", node, yes, no);
    }
    self->depth--;
    return node;
}

enum status cel_compile(struct arena *arena, struct str text, const char *variable,
                        struct cel_program **out, struct error *err) {
    struct parser self = {.arena = arena, .text = text, .variable = str_of(variable), .err = err};
    if (text.len > CEL_MAX_BYTES) {
        return error_set(err, ST_BAD_CONFIG, "expected at most %d bytes, got %zu", CEL_MAX_BYTES,
                         text.len);
    }
    if (!utf8_is_valid(text.ptr, text.len)) {
        return error_set(err, ST_BAD_CONFIG, "expected UTF-8");
    }
    struct cel_node *root = read_expression(&self);
    skip_space(&self);
    if (ok(&self) && self.at < text.len) {
        fail_next(&self, "an operator or the end");
    }
    if (!ok(&self)) {
        return self.status;
    }
    struct cel_program *program = arena_calloc(arena, 1, sizeof(*program));
    if (!program) {
        return error_no_memory(err, "an expression");
    }
    program->root = root;
    *out = program;
    return ST_OK;
}

enum cel_type cel_result_type(const struct cel_program *program) {
    return program->root->type;
}
