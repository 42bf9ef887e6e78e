/* For tests that read pages of the documentation. They run in the repository's root. Include
 * cmocka.h before. */
#ifndef SLUICE_PICK_CONFIG_PAGE_FIXTURE_H
#define SLUICE_PICK_CONFIG_PAGE_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "core/base/str.h"

/* Returns: the page's text, valid until the next call. */
static inline const char *page_read(const char *path) {
    static char text[128 << 10];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    assert_in_range(n, 1, sizeof(text) - 2);
    text[n] = '\0';
    return text;
}

/* Cuts the next YAML example off `*rest`. Returns: ptr NULL when there is none. */
static inline struct str page_next_example(const char **rest) {
    static const char begin[] = "\n```yaml\n";
    const char *at = strstr(*rest, begin);
    if (!at) {
        return str_make(NULL, 0);
    }
    at += sizeof(begin) - 1;
    const char *end = strstr(at, "\n```\n");
    assert_non_null(end);
    *rest = end;
    return str_make(at, (size_t)(end - at) + 1);
}

#endif
