/* For tests of command lines of other programs, which are translated into ours: arguments as a
 * line, and the page that has a row for each flag. Include after cmocka. */
#ifndef SLUICE_PROGRAM_OPTIONS_TRANSLATED_FLAGS_FIXTURE_H
#define SLUICE_PROGRAM_OPTIONS_TRANSLATED_FLAGS_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "core/base/buf.h"

enum { FLAGS_MOST_ARGS = 16 };

/* Appends the words of the line, which are separated by blanks, to argv, which has the name of the
 * command. Returns: argc. */
static inline int flags_split(struct arena *arena, const char *line,
                              char *argv[FLAGS_MOST_ARGS + 1]) {
    int argc = 1;
    struct str rest = str_of(line);
    while (rest.ptr && rest.len > 0) {
        assert_true(argc < FLAGS_MOST_ARGS);
        struct str word = str_cut(&rest, ' ');
        argv[argc++] = (char *)arena_printf(arena, "%.*s", STR_ARG(word)).ptr;
    }
    return argc;
}

/* Returns: the arguments after the first one, separated by blanks. */
static inline struct str flags_join(struct arena *arena, int argc, char **argv) {
    struct buf args;
    buf_init(&args, arena, 256);
    for (int i = 1; i < argc; i++) {
        buf_printf(&args, "%s%s", i > 1 ? " " : "", argv[i]);
    }
    return buf_str(&args);
}

/* What the row of a flag says in the manual: our flag, or the reason why there is none. */
struct flags_manual_row {
    const char *name, *ours, *why;
};

static inline void assert_manual_has_rows(const char *page, const struct flags_manual_row *rows,
                                          size_t n_rows) {
    static char text[32768];
    FILE *file = fopen(page, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    assert_true(n < sizeof(text) - 1);
    for (size_t i = 0; i < n_rows; i++) {
        char row[128], line[1024];
        size_t len = (size_t)snprintf(row, sizeof(row), "\n| `--%s", rows[i].name);
        const char *at = strstr(text, row);
        while (at && !strchr("` =", at[len])) {
            at = strstr(at + 1, row);
        }
        if (!at) {
            fail_msg("%s has no row --%s", page, rows[i].name);
        }
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
        if (!strstr(line, rows[i].ours) || !strstr(line, rows[i].why)) {
            fail_msg("the row --%s lacks \"%s%s\"", rows[i].name, rows[i].ours, rows[i].why);
        }
    }
}

#endif
