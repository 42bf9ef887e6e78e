/* Text to numbers and back. Each kind of number has one parser here, so that headers, flags and
 * configuration accept the same texts. What strtol accepts besides (leading spaces, signs, trailing
 * text, values that wrap round) is an error. */
#include "core/base/num.h"

#include <yyjson.h>

enum { F64_MAX_CHARS = 4096 };

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Takes the digits at the front of `text`. Returns: false when there are none or they overflow. */
static bool take_u64(struct str *text, uint64_t *out) {
    uint64_t value = 0;
    size_t n = 0;
    for (; n < text->len && is_digit(text->ptr[n]); n++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text->ptr[n] - '0'), &value)) {
            return false;
        }
    }
    if (n == 0) {
        return false;
    }
    *text = str_make(text->ptr + n, text->len - n);
    *out = value;
    return true;
}

bool num_parse_u64(struct str text, uint64_t *out) {
    uint64_t value;
    if (!take_u64(&text, &value) || text.len != 0) {
        return false;
    }
    *out = value;
    return true;
}

bool num_parse_i64(struct str text, int64_t *out) {
    bool negative = text.len > 0 && text.ptr[0] == '-';
    if (negative) {
        text = str_make(text.ptr + 1, text.len - 1);
    }
    uint64_t magnitude;
    if (!num_parse_u64(text, &magnitude) ||
        magnitude > (uint64_t)INT64_MAX + (negative ? 1u : 0u)) {
        return false;
    }
    *out = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

bool num_parse_f64(struct str text, double *out) {
    /* yyjson needs a NUL after the number; its conversion is exact and independent of the
     * locale. */
    char copy[F64_MAX_CHARS + 1];
    if (text.len == 0 || text.len > F64_MAX_CHARS) {
        return false;
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    yyjson_val value;
    const char *end = yyjson_read_number(copy, &value, YYJSON_READ_NOFLAG, NULL, NULL);
    if (end != copy + text.len) {
        return false;
    }
    double number = yyjson_get_num(&value);
    /* As an integer -0 loses its sign. */
    *out = number == 0 && copy[0] == '-' ? -0.0 : number;
    return true;
}

/* Digits at the front of `text`. */
static struct str take_digits(struct str *text) {
    size_t n = 0;
    while (n < text->len && is_digit(text->ptr[n])) {
        n++;
    }
    struct str digits = str_make(text->ptr, n);
    *text = str_make(text->ptr + n, text->len - n);
    return digits;
}

bool num_parse_decimal(struct str text, double *out) {
    /* Rewritten in JSON's grammar: sign, integer part without leading zeros, point, fraction,
     * rest. */
    char json[F64_MAX_CHARS];
    size_t n = 0;
    if (text.len == 0 || text.len > F64_MAX_CHARS - 2) {
        return false;
    }
    if (text.ptr[0] == '-' || text.ptr[0] == '+') {
        if (text.ptr[0] == '-') {
            json[n++] = '-';
        }
        text = str_make(text.ptr + 1, text.len - 1);
    }
    struct str whole = take_digits(&text);
    struct str fraction = {NULL, 0};
    bool none = whole.len == 0;
    if (text.len > 0 && text.ptr[0] == '.') {
        text = str_make(text.ptr + 1, text.len - 1);
        fraction = take_digits(&text);
    }
    if (none && fraction.len == 0) {
        return false;
    }
    while (whole.len > 0 && whole.ptr[0] == '0') {
        whole = str_make(whole.ptr + 1, whole.len - 1);
    }
    if (whole.len == 0) {
        whole = STR("0");
    }
    memcpy(json + n, whole.ptr, whole.len);
    n += whole.len;
    if (fraction.len > 0) {
        json[n++] = '.';
        memcpy(json + n, fraction.ptr, fraction.len);
        n += fraction.len;
    }
    if (text.len > 0) { /* an exponent, or text that num_parse_f64 rejects */
        memcpy(json + n, text.ptr, text.len);
        n += text.len;
    }
    return num_parse_f64(str_make(json, n), out);
}

struct unit {
    const char *name;
    uint64_t scale;
};

static const struct unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"K", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
};

static const struct unit time_units[] = {
    {"", 1000000000},  {"ns", 1},          {"us", 1000},         {"ms", 1000000},
    {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000},
};

static uint64_t unit_scale(const struct unit *units, size_t n, struct str name) {
    for (size_t i = 0; i < n; i++) {
        if (str_is(name, units[i].name)) {
            return units[i].scale;
        }
    }
    return 0;
}

bool num_parse_bytes(struct str text, uint64_t *out) {
    uint64_t value;
    if (!take_u64(&text, &value)) {
        return false;
    }
    uint64_t scale = unit_scale(byte_units, sizeof(byte_units) / sizeof(byte_units[0]), text);
    return scale != 0 && !__builtin_mul_overflow(value, scale, out);
}

/* Takes ".5" from the front of `text`, if present: `part` of `whole`, a power of ten. At most nine
 * digits, down to a nanosecond. */
static bool take_fraction(struct str *text, uint64_t *part, uint64_t *whole) {
    *part = 0;
    *whole = 1;
    if (text->len == 0 || text->ptr[0] != '.') {
        return true;
    }
    struct str rest = str_make(text->ptr + 1, text->len - 1);
    size_t before = rest.len;
    if (!take_u64(&rest, part) || before - rest.len > 9) {
        return false;
    }
    for (size_t n = before - rest.len; n > 0; n--) {
        *whole *= 10;
    }
    *text = rest;
    return true;
}

bool num_parse_duration_ns(struct str text, uint64_t *out) {
    uint64_t value, part, whole;
    if (!take_u64(&text, &value) || !take_fraction(&text, &part, &whole)) {
        return false;
    }
    uint64_t scale = unit_scale(time_units, sizeof(time_units) / sizeof(time_units[0]), text);
    uint64_t ns;
    if (scale == 0 || __builtin_mul_overflow(value, scale, &ns)) {
        return false;
    }
    /* Both are powers of ten, or the scale is a multiple of all of them: one divides the other. */
    if (scale % whole == 0) {
        part *= scale / whole;
    } else if (part % (whole / scale) == 0) {
        part /= whole / scale;
    } else {
        return false; /* finer than a nanosecond */
    }
    return !__builtin_add_overflow(ns, part, out);
}

/* The first part of a duration: "1h" of "1h30m". Returns: its length; 0 when there is none. */
static size_t duration_part(struct str text) {
    size_t n = 0, digits;
    while (n < text.len && strchr("0123456789.", text.ptr[n])) {
        n++;
    }
    digits = n;
    while (n < text.len && !strchr("0123456789.", text.ptr[n])) {
        n++;
    }
    return digits > 0 && n > digits ? n : 0;
}

bool num_parse_go_duration_ns(struct str text, uint64_t *out) {
    uint64_t sum = 0, part;
    if (str_is(text, "0")) {
        *out = 0;
        return true;
    }
    if (text.len == 0) {
        return false;
    }
    while (text.len > 0) {
        size_t n = duration_part(text);
        if (n == 0 || !num_parse_duration_ns(str_make(text.ptr, n), &part) ||
            __builtin_add_overflow(sum, part, &sum)) {
            return false;
        }
        text = str_make(text.ptr + n, text.len - n);
    }
    *out = sum;
    return true;
}

bool num_parse_bool(struct str text, bool *out) {
    static const char *const words[] = {"false", "off", "0", "true", "on", "1"};
    enum { N_WORDS = sizeof(words) / sizeof(*words) };
    for (size_t i = 0; i < N_WORDS; i++) {
        if (str_eq_nocase(text, str_of(words[i]))) {
            *out = i >= N_WORDS / 2;
            return true;
        }
    }
    return false;
}

static unsigned count_digits(uint64_t value) {
    unsigned n = 1;
    for (; value >= 10000; value /= 10000) {
        n += 4;
    }
    return n + (value >= 10) + (value >= 100) + (value >= 1000);
}

unsigned num_print_u64(char *out, uint64_t value) {
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    unsigned n = count_digits(value);
    char *at = out + n;
    while (value >= 100) {
        at -= 2;
        memcpy(at, pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        memcpy(out, pairs + value * 2, 2);
    } else {
        out[0] = (char)('0' + value);
    }
    return n;
}

unsigned num_print_i64(char *out, int64_t value) {
    if (value >= 0) {
        return num_print_u64(out, (uint64_t)value);
    }
    out[0] = '-';
    return 1 + num_print_u64(out + 1, 0 - (uint64_t)value);
}
