/* What the code takes from gcc and clang beyond C17, by one name each. */
#ifndef SLUICE_CORE_BASE_COMPILER_H
#define SLUICE_CORE_BASE_COMPILER_H

#include <stddef.h>

/* The compiler warns when a caller ignores the returned value. */
#define SLUICE_MUST_USE __attribute__((warn_unused_result))

/* A variable of each thread, accessed without a call. Only for code that is linked into programs:
 * a library that is loaded later may exceed the space reserved for this model. */
#define THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

/* The structure that embeds `member` at `ptr`. A pointer of another type than the member's does not
 * compile; a pointer to const yields a pointer to const. */
#define CONTAINER_OF(ptr, type, member)                                                            \
    _Generic((ptr),                                                                                \
        __typeof__(((type *)0)->member) *: (type *)CONTAINER_ADDRESS(ptr, type, member),           \
        const __typeof__(((type *)0)->member) *: (const type *)CONTAINER_ADDRESS(ptr, type, member))
/* Internal to CONTAINER_OF. */
#define CONTAINER_ADDRESS(ptr, type, member) ((void *)((const char *)(ptr)-offsetof(type, member)))

#endif
