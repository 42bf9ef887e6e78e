/* Words beside numbers in text for people. */
#ifndef SLUICE_CORE_BASE_PLURAL_H
#define SLUICE_CORE_BASE_PLURAL_H

#include <stdint.h>

/* Returns: the ending of a noun that follows the number, "" or "s". Thread: any. */
static inline const char *plural_s(uint64_t n) {
    return n == 1 ? "" : "s";
}

#endif
