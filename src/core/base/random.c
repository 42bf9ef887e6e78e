/* getrandom(2), which returns up to 256 bytes at once or fails. */
#include "core/base/random.h"

#include <stdlib.h>
#include <sys/random.h>

void random_fill(void *out, size_t n_bytes) {
    if (getrandom(out, n_bytes, 0) != (ssize_t)n_bytes) {
        abort();
    }
}
