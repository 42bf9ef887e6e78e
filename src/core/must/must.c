/* The line is written without memory: by write, or as one line of the log. */
#include "core/must/must.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/base/log.h"

/* _exit: other threads may still use what atexit's functions free. */
_Noreturn void must_end(const char *what) {
    if (log_format() == LOG_JSON) { /* standard error has JSON lines only */
        log_event(LOG_ERROR, "out of memory", LOG_CSTR("for", what));
        _exit(EXIT_FAILURE);
    }
    char line[256] = "sluice: out of memory for ";
    size_t n = strlen(line), space = sizeof(line) - n - 1;
    size_t n_what = strnlen(what, space);
    memcpy(line + n, what, n_what);
    line[n + n_what] = '\n';
    ssize_t n_written = write(STDERR_FILENO, line, n + n_what + 1);
    (void)n_written;
    _exit(EXIT_FAILURE);
}

void *must_have(void *ptr, const char *what) {
    if (!ptr) {
        must_end(what);
    }
    return ptr;
}

/* A block of 0 bytes may be NULL. */
void *must_calloc(size_t n, size_t size, const char *what) {
    return must_have(calloc(n > 0 ? n : 1, size), what);
}

void *must_realloc(void *ptr, size_t n, size_t size, const char *what) {
    size_t n_bytes;
    if (!checked_mul(n > 0 ? n : 1, size, &n_bytes)) {
        must_end(what);
    }
    return must_have(realloc(ptr, n_bytes), what);
}

char *must_dup(struct str text, const char *what) {
    return must_have(str_dup(text), what);
}

struct arena *must_arena_new(const char *what) {
    struct arena *arena = must_have(arena_new(NULL, 0), what);
    arena_set_end(arena, must_end, what);
    return arena;
}
