/* Pairs separated by semicolons. */
#include "codec/http1/cookie.h"

/* RFC 9110, 5.6.2: token. */
bool cookie_is_name(struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i], folded = (char)(c | 0x20);
        bool is_plain = (folded >= 'a' && folded <= 'z') || (c >= '0' && c <= '9');
        if (!is_plain && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c))) {
            return false;
        }
    }
    return name.len > 0;
}

/* cookie-octet: no blanks, quotes, commas, semicolons, backslashes, controls. */
static bool is_value(struct str value) {
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        if (c <= ' ' || c >= 0x7f || c == '"' || c == ',' || c == ';' || c == '\\') {
            return false;
        }
    }
    return true;
}

struct str cookie_find(struct str header, struct str name) {
    while (header.ptr) {
        struct str value = str_trim(str_cut(&header, ';'));
        struct str own = str_cut(&value, '=');
        if (value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"') {
            value = str_make(value.ptr + 1, value.len - 2);
        }
        if (value.ptr && str_eq(own, name) && is_value(value)) {
            return value;
        }
    }
    return str_make(NULL, 0);
}
