/* The reference of config.pbtxt in docs/models.md against the tables that read it: each field, what
 * it takes, and its default. Runs in the repository's root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/doc/reader.h"
#include "serve/config/config.h"

static const char PAGE[] = "docs/models.md";
static const char BEGIN[] = "| field | value | default |\n| --- | --- | --- |\n";

static void print_bounds(struct buf *out, const struct doc_member *member) {
    if (member->max == INT64_MAX) {
        buf_printf(out, "%lld or more", (long long)member->min);
    } else {
        buf_printf(out, "%lld to %lld", (long long)member->min, (long long)member->max);
    }
}

static void print_words(struct buf *out, const struct doc_member *member) {
    for (size_t i = 0; member->words[i]; i++) {
        buf_printf(out, "%s%s", i > 0 ? ", " : "", member->words[i]);
    }
}

static void print_value(struct buf *out, const struct doc_member *member) {
    switch (member->kind) {
    case DOC_MEMBER_CUSTOM:
    case DOC_MEMBER_OBJECT:
        buf_add_str(out, str_of(member->members ? "message" : member->form ? member->form : ""));
        buf_add_str(out, STR(" | |\n"));
        break;
    case DOC_MEMBER_BOOL:
        buf_add_str(out, STR("bool | false |\n"));
        break;
    case DOC_MEMBER_WHOLE:
        print_bounds(out, member);
        buf_printf(out, " | %.0f |\n", member->preset);
        break;
    case DOC_MEMBER_SHARE:
        buf_printf(out, "%s to 1 | %g |\n", member->min == 0 ? "0" : "above 0", member->preset);
        break;
    case DOC_MEMBER_TEXT:
        buf_add_str(out, STR("text | |\n"));
        break;
    case DOC_MEMBER_WORD:
        print_words(out, member);
        buf_printf(out, " | %s |\n", member->words[0]);
        break;
    case DOC_MEMBER_IGNORED:
        buf_printf(out, "no effect: %s | |\n", member->text);
        break;
    case DOC_MEMBER_REFUSED:
        buf_printf(out, "refused: %s | |\n", member->text);
        break;
    case DOC_MEMBER_REFUSED_TRUE:
        buf_printf(out, "true is refused: %s | |\n", member->text);
        break;
    case DOC_MEMBER_NUMBER:
    case DOC_MEMBER_DURATION:
        fail_msg("%s: say how it is printed", member->name);
    }
}

static void print_members(struct buf *out, const char *path, const struct doc_member *members) {
    for (; members->name; members++) {
        char name[256];
        snprintf(name, sizeof(name), "%s%s%s", path, path[0] ? "." : "", members->name);
        buf_printf(out, "| `%s` | ", name);
        print_value(out, members);
        if (members->members) {
            print_members(out, name, members->members);
        }
    }
}

static void models_page_lists_all_fields(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf expected, page;
    (void)state;
    buf_init(&expected, arena, 0);
    buf_add_str(&expected, str_of(BEGIN));
    print_members(&expected, "", model_config_members());
    buf_init(&page, arena, 1 << 20);
    FILE *file = fopen(PAGE, "r");
    assert_non_null(file);
    buf_advance(&page, fread(page.data, 1, (1 << 20) - 1, file));
    fclose(file);
    buf_add_char(&page, '\0');
    buf_add_char(&expected, '\0');
    assert_false(page.failed || expected.failed);
    const char *table = strstr(page.data, BEGIN);
    if (!table || strncmp(table, expected.data, expected.len - 1) != 0 ||
        (table[expected.len - 1] && table[expected.len - 1] != '\n')) {
        fprintf(stderr, "%s", expected.data);
        fail_msg("%s: the table of fields must be the one above", PAGE);
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_page_lists_all_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
