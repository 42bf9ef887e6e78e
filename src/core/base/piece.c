/* Pieces in one block. */
#include "core/base/piece.h"

#include <assert.h>
#include <string.h>

size_t pieces_copy(const struct piece *pieces, size_t n, void *out, size_t capacity) {
    char *to = out;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        assert(pieces[i].n_bytes <= capacity - at);
        if (pieces[i].n_bytes > 0) { /* an empty piece may have no address */
            memcpy(to + at, pieces[i].data, pieces[i].n_bytes);
            at += pieces[i].n_bytes;
        }
    }
    return at;
}
