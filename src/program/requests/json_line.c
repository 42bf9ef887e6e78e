/* One line of JSON out of any layout. The check is the parser's; the layout is a walk that knows
 * what is inside of strings. */
#include "program/requests/json_line.h"

#include "codec/json/tree.h"

enum status json_line_check(struct arena *arena, struct str text, struct error *err) {
    struct json_tree tree;
    /* Depth and size are bounded by what was read already. */
    struct json_limits limits = {.max_json_size = UINT64_MAX,
                                 .max_json_depth = UINT64_MAX,
                                 .max_tensor_elements = UINT64_MAX};
    enum status status = json_tree_parse(&tree, "the value", arena, text, &limits, err);
    if (status == ST_OK) {
        json_tree_free_values(&tree);
    }
    return status;
}

/* Returns: the bytes of the string that `text` begins with, quotes included. */
static size_t string_bytes(struct str text) {
    size_t i = 1;
    while (i < text.len && text.ptr[i] != '"') {
        i += text.ptr[i] == '\\' ? 2 : 1;
    }
    return i < text.len ? i + 1 : text.len;
}

void json_line_print(struct buf *out, struct str text) {
    for (size_t i = 0; i < text.len;) {
        switch (text.ptr[i]) {
        case ' ':
        case '\t':
        case '\r':
        case '\n':
            i++;
            break;
        case '"': {
            size_t n = string_bytes(str_make(text.ptr + i, text.len - i));
            buf_add(out, text.ptr + i, n);
            i += n;
            break;
        }
        case ',':
        case ':':
            buf_add_char(out, text.ptr[i++]);
            buf_add_char(out, ' ');
            break;
        default:
            buf_add_char(out, text.ptr[i++]);
        }
    }
}
