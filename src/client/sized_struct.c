/* Copies of structs that begin with their size. */
#include "client/sized_struct.h"

#include <string.h>

#include "sluice/client.h"

enum { MOST_BYTES = 4096 }; /* a size above was not set */

static size_t size_of(const void *given) {
    size_t n;
    memcpy(&n, given, sizeof(n)); /* an array's element may be unaligned if its size is wrong */
    return n;
}

/* A member that a newer header has and this library does not would be ignored without a word. */
static enum status copy_in(void *out, size_t n_known, const void *from, const char *name,
                           struct error *err) {
    size_t n_given = size_of(from);
    if (n_given > MOST_BYTES) {
        return error_set(err, ST_BAD_FIELD, "%s was given with the size %zu: set its `size`", name,
                         n_given);
    }
    for (size_t i = n_known; i < n_given; i++) {
        if (((const char *)from)[i] != 0) {
            return error_set(err, ST_UNSUPPORTED,
                             "%s is not zero after the members that libsluice %s has: set the "
                             "struct to zero first, or use a newer library",
                             name, sluice_version());
        }
    }
    memset(out, 0, n_known);
    memcpy(out, from, n_given < n_known ? n_given : n_known);
    return ST_OK;
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
    return status == ST_OK ? copy_in(out, n_known, from, name, err) : status;
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
    return copy_in(out, n_known, item, name, err);
}

void sized_struct_write(void *out, const void *from, size_t n_known) {
    size_t n = size_of(out);
    n = n < n_known ? n : n_known;
    if (n > sizeof(size_t)) {
        memcpy((char *)out + sizeof(size_t), (const char *)from + sizeof(size_t),
               n - sizeof(size_t));
    }
}
