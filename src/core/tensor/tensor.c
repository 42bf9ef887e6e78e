/* Finding a tensor by name, and a name in a message. */
#include "core/tensor/tensor.h"

#include <string.h>

size_t tensor_spec_find(const struct tensor_spec *specs, size_t n, struct str name) {
    for (size_t i = 0; i < n; i++) {
        if (str_eq(specs[i].name, name)) {
            return i;
        }
    }
    return SIZE_MAX;
}

const char *tensor_name_print(struct str name, char out[TENSOR_NAME_TEXT_BYTES]) {
    static const char cut[] = "…\"";
    size_t room = TENSOR_NAME_TEXT_BYTES - 1 - sizeof(cut);
    size_t len = name.len;
    if (len > room) { /* cut between characters, if it is text */
        for (len = room; len > room - 3 && ((unsigned char)name.ptr[len] & 0xc0) == 0x80; len--) {
        }
    }
    out[0] = '"';
    for (size_t i = 0; i < len; i++) {
        out[1 + i] = name.ptr[i] != '\0' ? name.ptr[i] : '?';
    }
    if (len < name.len) {
        memcpy(out + 1 + len, cut, sizeof(cut));
    } else {
        memcpy(out + 1 + len, "\"", 2);
    }
    return out;
}
