/* Evaluates a tree. Each operation checks the types of its operands again: of a map's members they
 * are known only now. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/cel/cel_program.h"
#include "core/base/buf.h"
#include "core/base/num.h"

struct evaluation {
    const struct cel_map *variable;
    struct arena *arena;
    size_t n_text_bytes;
    struct error *err;
};

static enum status eval(struct evaluation *self, const struct cel_node *node,
                        struct cel_value *out);

/* ---- values ---------------------------------------------------------------------------------- */

static struct cel_value of_bool(bool value) {
    return (struct cel_value){.type = CEL_BOOL, .boolean = value};
}

static const struct cel_value *find_member(const struct cel_map *map, struct str key) {
    for (size_t i = 0; i < map->n; i++) {
        if (str_eq(map->entries[i].key, key)) {
            return &map->entries[i].value;
        }
    }
    return NULL;
}

static bool is_number(const struct cel_value *value) {
    return value->type == CEL_INT || value->type == CEL_UINT || value->type == CEL_DOUBLE;
}

/* Compares a double with a whole number without rounding the latter. Returns: below 0, 0, above 0;
 * 2: the double is no number. */
static int compare_real_with_whole(double real, bool negative, uint64_t magnitude) {
    if (isnan(real)) {
        return 2;
    }
    if ((real < 0) != negative) {
        bool both_zero = !(real < 0) && !(real > 0) && magnitude == 0;
        return both_zero ? 0 : real < 0 ? -1 : 1;
    }
    double absolute = fabs(real), whole = floor(absolute);
    int order = absolute >= 18446744073709551616.0 ? 1
                : (uint64_t)whole != magnitude     ? ((uint64_t)whole > magnitude ? 1 : -1)
                                                   : (absolute > whole ? 1 : 0);
    return negative ? -order : order;
}

static void split_whole(const struct cel_value *value, bool *negative, uint64_t *magnitude) {
    *negative = value->type == CEL_INT && value->integer < 0;
    *magnitude = value->type == CEL_UINT ? value->natural
                 : *negative             ? 0 - (uint64_t)value->integer
                                         : (uint64_t)value->integer;
}

/* Numbers of any types. Returns: as compare_real_with_whole. */
static int compare_numbers(const struct cel_value *a, const struct cel_value *b) {
    bool negative[2] = {false, false};
    uint64_t magnitude[2] = {0, 0};
    if (a->type == CEL_DOUBLE && b->type == CEL_DOUBLE) {
        return isnan(a->real) || isnan(b->real) ? 2 : (a->real > b->real) - (a->real < b->real);
    }
    if (a->type == CEL_DOUBLE) {
        split_whole(b, &negative[1], &magnitude[1]);
        return compare_real_with_whole(a->real, negative[1], magnitude[1]);
    }
    if (b->type == CEL_DOUBLE) {
        split_whole(a, &negative[0], &magnitude[0]);
        int order = compare_real_with_whole(b->real, negative[0], magnitude[0]);
        return order == 2 ? 2 : -order;
    }
    split_whole(a, &negative[0], &magnitude[0]);
    split_whole(b, &negative[1], &magnitude[1]);
    if (negative[0] != negative[1]) {
        return negative[0] ? -1 : 1;
    }
    int order = (magnitude[0] > magnitude[1]) - (magnitude[0] < magnitude[1]);
    return negative[0] ? -order : order;
}

/* Maps are the variable and members of it, a few levels deep. */
static bool are_equal(const struct cel_value *a, const struct cel_value *b) {
    if (is_number(a) && is_number(b)) {
        return compare_numbers(a, b) == 0;
    }
    if (a->type != b->type) {
        return false;
    }
    if (a->type == CEL_BOOL) {
        return a->boolean == b->boolean;
    }
    if (a->type == CEL_STRING) {
        return str_eq(a->text, b->text);
    }
    for (size_t i = 0; a->type == CEL_MAP && i < a->map.n; i++) {
        const struct cel_value *other = find_member(&b->map, a->map.entries[i].key);
        if (!other || !are_equal(&a->map.entries[i].value, other)) {
            return false;
        }
    }
    return a->type != CEL_MAP || a->map.n == b->map.n;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static enum status no_overload(struct evaluation *self, const struct cel_node *node,
                               const struct cel_value *values) {
    return error_set(self->err, ST_BAD_ANSWER, "no such overload: %.*s of %s%s%s",
                     STR_ARG(node->name), cel_type_name(values[0].type),
                     node->n_operands > 1 ? " and " : "",
                     node->n_operands > 1 ? cel_type_name(values[1].type) : "");
}

static enum status overflow(struct evaluation *self, const struct cel_node *node) {
    return error_set(self->err, ST_BAD_ANSWER, "overflow: the result of %.*s is out of range",
                     STR_ARG(node->name));
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static enum status add_texts(struct evaluation *self, const struct cel_value *values,
                             struct cel_value *out) {
    size_t n = values[0].text.len + values[1].text.len;
    if (n > CEL_MAX_TEXT_BYTES - self->n_text_bytes) {
        return error_set(self->err, ST_BAD_ANSWER, "its texts have more than %d bytes",
                         CEL_MAX_TEXT_BYTES);
    }
    self->n_text_bytes += n;
    char *text = arena_alloc(self->arena, n + 1);
    if (!text) {
        return error_no_memory(self->err, "an expression");
    }
    for (size_t i = 0, at = 0; i < 2; at += values[i++].text.len) {
        if (values[i].text.len > 0) {
            memcpy(text + at, values[i].text.ptr, values[i].text.len);
        }
    }
    out->text = str_make(text, n);
    return ST_OK;
}

static bool add_ints(enum cel_op op, int64_t a, int64_t b, int64_t *out) {
    return op == CEL_ADD        ? !__builtin_add_overflow(a, b, out)
           : op == CEL_SUBTRACT ? !__builtin_sub_overflow(a, b, out)
                                : !__builtin_mul_overflow(a, b, out);
}

static bool add_uints(enum cel_op op, uint64_t a, uint64_t b, uint64_t *out) {
    return op == CEL_ADD        ? !__builtin_add_overflow(a, b, out)
           : op == CEL_SUBTRACT ? !__builtin_sub_overflow(a, b, out)
                                : !__builtin_mul_overflow(a, b, out);
}

static double add_reals(enum cel_op op, double a, double b) {
    return op == CEL_ADD ? a + b : op == CEL_SUBTRACT ? a - b : op == CEL_MULTIPLY ? a * b : a / b;
}

/* Of whole numbers. */
static enum status divide(struct evaluation *self, const struct cel_node *node,
                          const struct cel_value *values, struct cel_value *out) {
    bool is_int = values[0].type == CEL_INT;
    if (is_int ? values[1].integer == 0 : values[1].natural == 0) {
        return error_set(self->err, ST_BAD_ANSWER, "%s by zero",
                         node->op == CEL_DIVIDE ? "division" : "modulus");
    }
    if (!is_int) {
        out->natural = node->op == CEL_DIVIDE ? values[0].natural / values[1].natural
                                              : values[0].natural % values[1].natural;
        return ST_OK;
    }
    if (values[0].integer == INT64_MIN && values[1].integer == -1) {
        return overflow(self, node);
    }
    out->integer = node->op == CEL_DIVIDE ? values[0].integer / values[1].integer
                                          : values[0].integer % values[1].integer;
    return ST_OK;
}

static enum status compute(struct evaluation *self, const struct cel_node *node,
                           const struct cel_value *values, struct cel_value *out) {
    enum cel_type type = values[0].type;
    bool is_whole = type == CEL_INT || type == CEL_UINT;
    *out = (struct cel_value){.type = type};
    if (type == CEL_STRING) {
        return add_texts(self, values, out);
    }
    if (is_whole && (node->op == CEL_DIVIDE || node->op == CEL_MODULO)) {
        return divide(self, node, values, out);
    }
    if (type == CEL_INT) {
        bool fits = add_ints(node->op, values[0].integer, values[1].integer, &out->integer);
        return fits ? ST_OK : overflow(self, node);
    }
    if (type == CEL_UINT) {
        bool fits = add_uints(node->op, values[0].natural, values[1].natural, &out->natural);
        return fits ? ST_OK : overflow(self, node);
    }
    out->real = add_reals(node->op, values[0].real, values[1].real);
    return ST_OK;
}

static enum status negate(struct evaluation *self, const struct cel_node *node,
                          const struct cel_value *value, struct cel_value *out) {
    *out = *value;
    if (value->type == CEL_DOUBLE) {
        out->real = -value->real;
        return ST_OK;
    }
    return __builtin_sub_overflow((int64_t)0, value->integer, &out->integer) ? overflow(self, node)
                                                                             : ST_OK;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static bool compare(enum cel_op op, const struct cel_value *a, const struct cel_value *b) {
    int order = is_number(a)            ? compare_numbers(a, b)
                : a->type == CEL_STRING ? str_compare(a->text, b->text)
                                        : (int)a->boolean - (int)b->boolean;
    if (is_number(a) && order == 2) {
        return false;
    }
    return op == CEL_LESS         ? order < 0
           : op == CEL_LESS_EQUAL ? order <= 0
           : op == CEL_GREATER    ? order > 0
                                  : order >= 0;
}

/* ---- conversions ----------------------------------------------------------------------------- */

static enum status cannot_convert(struct evaluation *self, const struct cel_node *node,
                                  const struct cel_value *value) {
    return error_set(self->err, ST_BAD_ANSWER, "type conversion error: %.*s of this %s",
                     STR_ARG(node->name), cel_type_name(value->type));
}

/* A double is cut at its point, and is within the range without its ends, as in cel-go. */
static bool to_int(const struct cel_value *value, int64_t *out) {
    switch ((int)value->type) {
    case CEL_INT:
        *out = value->integer;
        return true;
    case CEL_UINT:
        *out = (int64_t)value->natural;
        return value->natural <= INT64_MAX;
    case CEL_DOUBLE:
        if (!(value->real > -9223372036854775808.0 && value->real < 9223372036854775808.0)) {
            return false;
        }
        *out = (int64_t)value->real;
        return true;
    default:
        return num_parse_i64(value->text, out);
    }
}

static bool to_uint(const struct cel_value *value, uint64_t *out) {
    switch ((int)value->type) {
    case CEL_INT:
        *out = (uint64_t)value->integer;
        return value->integer >= 0;
    case CEL_UINT:
        *out = value->natural;
        return true;
    case CEL_DOUBLE:
        if (!(value->real >= 0 && value->real < 18446744073709551616.0)) {
            return false;
        }
        *out = (uint64_t)value->real;
        return true;
    default:
        return num_parse_u64(value->text, out);
    }
}

static bool to_double(const struct cel_value *value, double *out) {
    *out = value->type == CEL_INT    ? (double)value->integer
           : value->type == CEL_UINT ? (double)value->natural
                                     : value->real;
    return value->type == CEL_STRING ? num_parse_decimal(value->text, out) : true;
}

static bool to_bool(const struct cel_value *value, bool *out) {
    static const char *const words[2][6] = {{"0", "f", "F", "false", "FALSE", "False"},
                                            {"1", "t", "T", "true", "TRUE", "True"}};
    if (value->type == CEL_BOOL) {
        *out = value->boolean;
        return true;
    }
    for (size_t i = 0; i < 12; i++) {
        if (str_is(value->text, words[i / 6][i % 6])) {
            *out = i >= 6;
            return true;
        }
    }
    return false;
}

enum { NUMBER_BYTES = 48 };

/* A double in as few digits as it can be read again from. */
static struct str print_real(struct arena *arena, double real) {
    char text[NUMBER_BYTES];
    double again = 0;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, real);
        if (num_parse_f64(str_of(text), &again) && !(again < real) && !(again > real)) {
            break;
        }
    }
    return arena_dup(arena, str_of(text));
}

static struct str print_value(struct arena *arena, const struct cel_value *value) {
    switch ((int)value->type) {
    case CEL_BOOL:
        return value->boolean ? STR("true") : STR("false");
    case CEL_INT:
        return arena_printf(arena, "%" PRId64, value->integer);
    case CEL_UINT:
        return arena_printf(arena, "%" PRIu64, value->natural);
    case CEL_DOUBLE:
        return print_real(arena, value->real);
    default:
        return value->text;
    }
}

static enum status convert(struct evaluation *self, const struct cel_node *node,
                           const struct cel_value *value, struct cel_value *out) {
    bool fits = true;
    switch ((int)node->op) {
    case CEL_TO_INT:
        out->type = CEL_INT;
        fits = to_int(value, &out->integer);
        break;
    case CEL_TO_UINT:
        out->type = CEL_UINT;
        fits = to_uint(value, &out->natural);
        break;
    case CEL_TO_DOUBLE:
        out->type = CEL_DOUBLE;
        fits = to_double(value, &out->real);
        break;
    case CEL_TO_BOOL:
        out->type = CEL_BOOL;
        fits = to_bool(value, &out->boolean);
        break;
    case CEL_TO_STRING:
        out->type = CEL_STRING;
        out->text = print_value(self->arena, value);
        if (!out->text.ptr) {
            return error_no_memory(self->err, "an expression");
        }
        break;
    default:
        *out = *value;
    }
    return fits ? ST_OK : cannot_convert(self, node, value);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool contains(struct str text, struct str part) {
    return part.len == 0 || memmem(text.ptr, text.len, part.ptr, part.len) != NULL;
}

/* In characters. */
static int64_t size_of(const struct cel_value *value) {
    int64_t n = value->type == CEL_MAP ? (int64_t)value->map.n : 0;
    for (size_t i = 0; value->type == CEL_STRING && i < value->text.len; i++) {
        n += ((unsigned char)value->text.ptr[i] & 0xc0) != 0x80;
    }
    return n;
}

/* ---- members --------------------------------------------------------------------------------- */

static enum status select_member(struct evaluation *self, const struct cel_value *from,
                                 struct str key, struct cel_value *out) {
    const struct cel_value *found = find_member(&from->map, key);
    if (!found) {
        return error_set(self->err, ST_BAD_ANSWER, "no such key: %.*s", STR_ARG(key));
    }
    *out = *found;
    return ST_OK;
}

/* ---- logic ----------------------------------------------------------------------------------- */

/* As the language: an error of one side does not count where the other side decides. */
static enum status combine(struct evaluation *self, const struct cel_node *node,
                           struct cel_value *out) {
    bool decides = node->op == CEL_OR;
    struct cel_value values[2] = {{.type = CEL_NULL}, {.type = CEL_NULL}};
    enum status first = ST_OK;
    struct error kept = {.status = ST_OK};
    for (int i = 0; i < 2; i++) {
        enum status st = eval(self, node->operands[i], &values[i]);
        if (st == ST_OK && values[i].type != CEL_BOOL) {
            st = no_overload(self, node, values);
        }
        if (st == ST_OK && values[i].boolean == decides) {
            *out = of_bool(decides);
            return ST_OK;
        }
        if (st != ST_OK && first == ST_OK) {
            first = st;
            kept = *self->err;
        }
    }
    *out = of_bool(!decides);
    if (first != ST_OK) {
        *self->err = kept;
    }
    return first;
}

static enum status choose(struct evaluation *self, const struct cel_node *node,
                          struct cel_value *out) {
    struct cel_value condition = {.type = CEL_NULL};
    enum status st = eval(self, node->operands[0], &condition);
    if (st != ST_OK) {
        return st;
    }
    if (condition.type != CEL_BOOL) {
        return error_set(self->err, ST_BAD_ANSWER, "no such overload: a condition of type %s",
                         cel_type_name(condition.type));
    }
    return eval(self, node->operands[condition.boolean ? 1 : 2], out);
}

/* ---- all operations -------------------------------------------------------------------------- */

static enum status apply(struct evaluation *self, const struct cel_node *node,
                         const struct cel_value *values, struct cel_value *out) {
    switch (node->op) {
    case CEL_SELECT:
        return select_member(self, &values[0], node->name, out);
    case CEL_INDEX:
        return select_member(self, &values[0], values[1].text, out);
    case CEL_HAS:
        *out = of_bool(find_member(&values[0].map, node->name) != NULL);
        return ST_OK;
    case CEL_IN:
        *out = of_bool(find_member(&values[1].map, values[0].text) != NULL);
        return ST_OK;
    case CEL_NOT:
        *out = of_bool(!values[0].boolean);
        return ST_OK;
    case CEL_NEGATE:
        return negate(self, node, &values[0], out);
    case CEL_MULTIPLY:
    case CEL_DIVIDE:
    case CEL_MODULO:
    case CEL_ADD:
    case CEL_SUBTRACT:
        return compute(self, node, values, out);
    case CEL_LESS:
    case CEL_LESS_EQUAL:
    case CEL_GREATER:
    case CEL_GREATER_EQUAL:
        *out = of_bool(compare(node->op, &values[0], &values[1]));
        return ST_OK;
    case CEL_EQUAL:
    case CEL_NOT_EQUAL:
        *out = of_bool(are_equal(&values[0], &values[1]) == (node->op == CEL_EQUAL));
        return ST_OK;
    case CEL_SIZE:
        *out = (struct cel_value){.type = CEL_INT, .integer = size_of(&values[0])};
        return ST_OK;
    case CEL_CONTAINS:
        *out = of_bool(contains(values[0].text, values[1].text));
        return ST_OK;
    case CEL_STARTS_WITH:
        *out = of_bool(str_starts_with(values[0].text, values[1].text));
        return ST_OK;
    case CEL_ENDS_WITH:
        *out = of_bool(str_ends_with(values[0].text, values[1].text));
        return ST_OK;
    case CEL_TO_INT:
    case CEL_TO_UINT:
    case CEL_TO_DOUBLE:
    case CEL_TO_BOOL:
    case CEL_TO_STRING:
    case CEL_TO_DYN:
        return convert(self, node, &values[0], out);
    case CEL_LITERAL:
    case CEL_VARIABLE:
    case CEL_AND:
    case CEL_OR:
    case CEL_CONDITIONAL:
        break;
    }
    return ST_OK;
}

/* Numbers of different types may be compared, though their static types may not. */
static bool is_mixed_comparison(const struct cel_node *node, const struct cel_value *values) {
    return node->op >= CEL_LESS && node->op <= CEL_GREATER_EQUAL && is_number(&values[0]) &&
           is_number(&values[1]);
}

static enum status eval(struct evaluation *self, const struct cel_node *node,
                        struct cel_value *out) {
    struct cel_value values[3] = {{.type = CEL_NULL}, {.type = CEL_NULL}, {.type = CEL_NULL}};
    enum cel_type types[3] = {CEL_NULL, CEL_NULL, CEL_NULL}, unused;
    if (node->op == CEL_LITERAL) {
        *out = node->literal;
        return ST_OK;
    }
    if (node->op == CEL_VARIABLE) {
        *out = (struct cel_value){.type = CEL_MAP, .map = *self->variable};
        return ST_OK;
    }
    if (node->op == CEL_AND || node->op == CEL_OR) {
        return combine(self, node, out);
    }
    if (node->op == CEL_CONDITIONAL) {
        return choose(self, node, out);
    }
    for (int i = 0; i < node->n_operands; i++) {
        enum status st = eval(self, node->operands[i], &values[i]);
        if (st != ST_OK) {
            return st;
        }
        types[i] = values[i].type;
    }
    bool is_any = node->op == CEL_EQUAL || node->op == CEL_NOT_EQUAL;
    if (!is_any && !is_mixed_comparison(node, values) && !cel_type_of(node->op, types, &unused)) {
        return no_overload(self, node, values);
    }
    return apply(self, node, values, out);
}

enum status cel_evaluate(const struct cel_program *program, const struct cel_map *variable,
                         struct arena *arena, struct cel_value *out, struct error *err) {
    struct evaluation self = {.variable = variable, .arena = arena, .err = err};
    return eval(&self, program->root, out);
}
