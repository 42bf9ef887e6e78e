/* Server-sent events: where one ends, and its data. A line ends with LF, CR or CRLF. */
#include "codec/http1/event_stream.h"

#include "core/base/buf.h"

size_t event_stream_find(struct str bytes, size_t *n_searched) {
    for (size_t i = *n_searched; i < bytes.len; i++) {
        char before = i > 0 ? bytes.ptr[i - 1] : '\n', now = bytes.ptr[i];
        bool is_at_start = before == '\n' || (before == '\r' && now != '\n');
        if (is_at_start && (now == '\n' || now == '\r')) {
            *n_searched = 0;
            return i + 1 + (now == '\r' && i + 1 < bytes.len && bytes.ptr[i + 1] == '\n');
        }
    }
    *n_searched = bytes.len;
    return 0;
}

/* Cuts off the first line, without its end. */
static struct str cut_line(struct str *rest) {
    size_t n = 0;
    while (n < rest->len && rest->ptr[n] != '\n' && rest->ptr[n] != '\r') {
        n++;
    }
    struct str line = str_make(rest->ptr, n);
    bool is_crlf = n + 1 < rest->len && rest->ptr[n] == '\r' && rest->ptr[n + 1] == '\n';
    size_t used = n + (n < rest->len) + is_crlf;
    *rest = str_make(rest->ptr + used, rest->len - used);
    return line;
}

/* Is it a `data` line? `value` without the space after the colon. */
static bool is_data(struct str line, struct str *value) {
    struct str name = str_cut(&line, ':');
    if (!str_is(name, "data")) {
        return false;
    }
    *value = line.ptr ? line : STR("");
    if (value->len > 0 && value->ptr[0] == ' ') {
        *value = str_make(value->ptr + 1, value->len - 1);
    }
    return true;
}

bool event_stream_data(struct arena *arena, struct str block, struct str *out) {
    struct buf data;
    struct str value;
    bool has_data = false;
    *out = str_make(NULL, 0);
    buf_init(&data, arena, block.len + 1);
    while (block.len > 0) {
        if (is_data(cut_line(&block), &value)) {
            if (has_data) {
                buf_add_str(&data, STR("\n"));
            }
            buf_add_str(&data, value);
            has_data = true;
        }
    }
    if (!has_data) {
        return !data.failed;
    }
    buf_add(&data, "", 1);
    if (data.failed) {
        return false;
    }
    *out = str_make(data.data, data.len - 1);
    return true;
}
