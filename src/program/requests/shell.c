/* Quoting for a POSIX shell, without the extensions of some shells ($'…', printf's \x). */
#include "program/requests/shell.h"

void shell_word_print(struct buf *out, struct str text) {
    buf_add_char(out, '\'');
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\'') {
            buf_add_str(out, STR("'\\''"));
        } else {
            buf_add_char(out, text.ptr[i]);
        }
    }
    buf_add_char(out, '\'');
}

void shell_printf_print(struct buf *out, struct str bytes) {
    buf_add_str(out, STR("printf '"));
    for (size_t i = 0; i < bytes.len; i++) {
        unsigned char c = (unsigned char)bytes.ptr[i];
        bool plain = c >= 0x20 && c < 0x7f && c != '%' && c != '\\' && c != '\'';
        if (plain && !(i == 0 && c == '-')) { /* a leading - would be an option */
            buf_add_char(out, (char)c);
        } else {
            buf_printf(out, "\\%03o", c);
        }
    }
    buf_add_char(out, '\'');
}
