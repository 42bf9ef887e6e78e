/* Copies of structs that begin with their size. */
#include "client/sized_struct.h"

#include <string.h>

static size_t size_of(const void *given) {
    size_t n;
    memcpy(&n, given, sizeof(n)); /* an array's element may be unaligned if its size is wrong */
    return n;
}

static void copy_in(void *out, size_t n_known, const void *from, size_t n_given) {
    memset(out, 0, n_known);
    memcpy(out, from, n_given < n_known ? n_given : n_known);
}

enum status sized_struct_check(size_t n_given, const char *name, struct error *err) {
    if (n_given >= sizeof(size_t)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_FIELD, "%s was given without its size: set its `size`", name);
}

enum status sized_struct_read(void *out, size_t n_known, const void *from, const char *name,
                              struct error *err) {
    enum status status = sized_struct_check(size_of(from), name, err);
    if (status == ST_OK) {
        copy_in(out, n_known, from, size_of(from));
    }
    return status;
}

enum status sized_array_read(void *out, size_t n_known, const void *items, size_t index,
                             const char *name, struct error *err) {
    size_t n_first = size_of(items);
    enum status status = sized_struct_check(n_first, name, err);
    if (status != ST_OK) {
        return status;
    }
    const char *item = (const char *)items + index * n_first;
    if (size_of(item) != n_first) {
        return error_set(err, ST_BAD_FIELD,
                         "%s %zu of an array has the size %zu, and the first one %zu: set the "
                         "`size` of each",
                         name, index, size_of(item), n_first);
    }
    copy_in(out, n_known, item, n_first);
    return ST_OK;
}

void sized_struct_write(void *out, const void *from, size_t n_known) {
    size_t n = size_of(out);
    n = n < n_known ? n : n_known;
    if (n > sizeof(size_t)) {
        memcpy((char *)out + sizeof(size_t), (const char *)from + sizeof(size_t),
               n - sizeof(size_t));
    }
}
