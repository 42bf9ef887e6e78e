/* The hashes of a text, however it is cut into pieces. */
#include "pick/pool/prefix/chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct arena *arena;

/* In pieces of `piece` bytes. */
static struct prefix_chain chain_of(uint64_t seed, const char *text, size_t piece, bool ended) {
    struct prefix_chain chain;
    size_t n = strlen(text);
    prefix_chain_init(&chain, arena, (struct prefix_blocks){.block_bytes = 4, .most = 40}, seed);
    for (size_t at = 0; at < n; at += piece) {
        prefix_chain_add(&chain, str_make(text + at, n - at < piece ? n - at : piece));
    }
    if (ended) {
        prefix_chain_end(&chain);
    }
    return chain;
}

static void prefix_chain_equal_beginnings_have_equal_hashes(void **state) {
    (void)state;
    struct prefix_chain one = chain_of(1, "abcdefghij", 100, true),
                        other = chain_of(1, "abcdefgxijkl", 100, true);
    assert_int_equal(one.n, 3);
    assert_int_equal(other.n, 3);
    assert_true(one.hashes[0] == other.hashes[0]);
    assert_true(one.hashes[1] != other.hashes[1]);
    /* The same block after another beginning, or with another seed. */
    other = chain_of(1, "abcxefgh", 100, true);
    assert_true(one.hashes[1] != other.hashes[1]);
    other = chain_of(2, "abcdefgh", 100, true);
    assert_true(one.hashes[0] != other.hashes[0]);
}

static void prefix_chain_pieces_make_no_difference(void **state) {
    static const char text[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm"
                               "nopqrstuvwxyz";
    (void)state;
    struct prefix_chain whole = chain_of(1, text, sizeof(text), true);
    assert_int_equal(whole.n, (sizeof(text) - 1 + 3) / 4);
    for (size_t piece = 1; piece < 20; piece++) {
        struct prefix_chain chain = chain_of(1, text, piece, true);
        assert_int_equal(chain.n, whole.n);
        assert_memory_equal(chain.hashes, whole.hashes, whole.n * sizeof(*whole.hashes));
    }
}

/* The last block may be shorter, once the text has ended. */
static void prefix_chain_ends_with_a_short_block(void **state) {
    (void)state;
    struct prefix_chain open = chain_of(1, "abcdef", 100, false),
                        ended = chain_of(1, "abcdef", 100, true),
                        longer = chain_of(1, "abcdefgh", 100, true);
    assert_int_equal(open.n, 1);
    assert_int_equal(ended.n, 2);
    assert_true(ended.hashes[1] != longer.hashes[1]);
    prefix_chain_add(&ended, STR("gh"));
    assert_int_equal(ended.n, 2);
    assert_int_equal(chain_of(1, "", 1, true).n, 0);
    assert_int_equal(chain_of(1, "abc", 1, true).n, 1);
    assert_int_equal(chain_of(1, "abcd", 1, true).n, 1);
}

static void prefix_chain_has_a_limit(void **state) {
    char text[1000];
    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(chain_of(1, text, 7, true).n, 40);
    assert_int_equal(chain_of(1, text, 1000, false).n, 40);
}

static int open_arena(void **state) {
    (void)state;
    arena = arena_new(NULL, 0);
    return arena ? 0 : 1;
}

static int close_arena(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_chain_equal_beginnings_have_equal_hashes),
        cmocka_unit_test(prefix_chain_pieces_make_no_difference),
        cmocka_unit_test(prefix_chain_ends_with_a_short_block),
        cmocka_unit_test(prefix_chain_has_a_limit),
    };
    return cmocka_run_group_tests(tests, open_arena, close_arena);
}
