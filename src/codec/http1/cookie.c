/* Pairs separated by semicolons. */
#include "codec/http1/cookie.h"

#include "codec/http1/head_check.h"

/* RFC 9110, 5.6.2: token. */
bool cookie_is_name(struct str name) {
    return http1_is_token(name);
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
