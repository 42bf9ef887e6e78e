/* Bodies in pieces, with edits: at every split the bytes sent are the edited whole. */
#include "pick/session/body_buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pick/session/state.h"

static const char body[] = "0123456789abcdefghij";

static const struct pick_edits none = {.n = 0};
static const struct pick_edits one = {.items = {{5, 6, {"<new>", 5}}}, .n = 1, .growth = -1};
static const struct pick_edits both = {
    .items = {{0, 4, {"WXYZ", 4}}, {18, 2, {"the end", 7}}}, .n = 2, .growth = 5};

static void body_chunk_edits_hold_at_every_split(void **state) {
    static const struct {
        const struct pick_edits *edits;
        const char *expected;
    } cases[] = {{&none, body},
                 {NULL, body},
                 {&one, "01234<new>bcdefghij"},
                 {&both, "WXYZ456789abcdefghthe end"}};
    const size_t n = strlen(body);
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t step = 1; step <= n; step++) {
            char out[64];
            size_t n_out = 0;
            for (size_t at = 0; at < n; at += step) {
                struct pick_body_chunk part = {
                    .bytes = str_make(body + at, n - at < step ? n - at : step)};
                struct piece pieces[PICK_MAX_PIECES];
                size_t n_pieces = pick_body_chunk_pieces(&part, at, cases[i].edits, pieces);
                for (size_t k = 0; k < n_pieces; n_out += pieces[k++].n_bytes) {
                    assert_true(pieces[k].n_bytes > 0);
                    memcpy(out + n_out, pieces[k].data, pieces[k].n_bytes);
                }
            }
            assert_int_equal(n_out, strlen(cases[i].expected));
            assert_memory_equal(out, cases[i].expected, n_out);
        }
    }
}

/* The edits for a model found in JSON and in gRPC. */
static void pick_scan_edit_replaces_model(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct pick_scan scan;
    struct pick_edits edits;
    struct error err;
    (void)state;
    pick_scan_init(&scan, arena, false, true);
    assert_true(pick_scan_feed(&scan, STR("{\"model\":\"a\"}"), false));
    assert_int_equal(pick_scan_edit(&scan, arena, STR("b\"\n"), &edits, &err), ST_OK);
    assert_int_equal(edits.n, 1);
    assert_int_equal(edits.growth, 4);
    assert_true(str_is(edits.items[0].with, "\"b\\\"\\n\""));
    pick_scan_init(&scan, arena, true, false);
    assert_true(pick_scan_feed(&scan,
                               STR("\x0a\x01"
                                   "a"),
                               false));
    assert_int_equal(pick_scan_edit(&scan, arena, STR("bcd"), &edits, &err), ST_OK);
    assert_int_equal(edits.n, 1); /* no length prefix to change */
    assert_int_equal(edits.items[0].at, 0);
    assert_int_equal(edits.items[0].n_bytes, 3);
    assert_true(str_is(edits.items[0].with, "\x0a\x03"
                                            "bcd"));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(body_chunk_edits_hold_at_every_split),
        cmocka_unit_test(pick_scan_edit_replaces_model),
    };
    return cmocka_run_group_tests_name("pick/session/body_buffer", tests, NULL, NULL);
}
