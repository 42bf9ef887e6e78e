/* A hash is the same for the same key and text, and differs for another key or text. */
#include "core/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *const TEXTS[] = {"", "a", "b", "aa", "0123456789abcdef0", "0123456789abcdef1"};
enum { N_TEXTS = sizeof(TEXTS) / sizeof(TEXTS[0]), LONG = 5000 };

static void keyed_hash_differs_by_key_and_text(void **state) {
    static struct hash_key key, other;
    (void)state;
    hash_key_init(&key);
    hash_key_init(&other);
    for (size_t i = 0; i < N_TEXTS; i++) {
        struct keyed_hash hash = keyed_hash_of(&key, str_of(TEXTS[i]));
        assert_true(keyed_hash_eq(hash, keyed_hash_of(&key, str_of(TEXTS[i]))));
        assert_false(keyed_hash_eq(hash, keyed_hash_of(&other, str_of(TEXTS[i]))));
        for (size_t k = 0; k < i; k++) {
            assert_false(keyed_hash_eq(hash, keyed_hash_of(&key, str_of(TEXTS[k]))));
        }
    }
    assert_true(
        keyed_hash_eq(keyed_hash_of(&key, str_make(NULL, 0)), keyed_hash_of(&key, STR(""))));
}

/* The hash depends on each byte of a long text, and on its length. */
static void keyed_hash_long_text_every_byte_counts(void **state) {
    static char text[LONG];
    static struct hash_key key;
    (void)state;
    hash_key_init(&key);
    struct keyed_hash whole = keyed_hash_of(&key, str_make(text, LONG));
    for (size_t i = 0; i < LONG; i++) {
        assert_false(keyed_hash_eq(whole, keyed_hash_of(&key, str_make(text, i))));
        text[i] = 1;
        assert_false(keyed_hash_eq(whole, keyed_hash_of(&key, str_make(text, LONG))));
        text[i] = 0;
    }
}

/* So does that of a block, and what comes before it, in this order. */
static void hash_block_every_byte_counts(void **state) {
    enum { BLOCK = 600, SEED = 3 };
    static char text[BLOCK];
    (void)state;
    uint64_t whole = hash_block(str_make(text, BLOCK), 1, SEED);
    assert_true(whole != hash_block(str_make(text, BLOCK), 2, SEED));
    assert_true(whole != hash_block(str_make(text, BLOCK), 1, SEED + 1));
    for (size_t i = 0; i < BLOCK; i++) {
        assert_true(whole != hash_block(str_make(text, i), 1, SEED));
        text[i] = 1;
        assert_true(whole != hash_block(str_make(text, BLOCK), 1, SEED));
        text[i] = 0;
    }
    uint64_t ab = hash_block(STR("b"), hash_block(STR("a"), SEED, SEED), SEED);
    assert_true(ab != hash_block(STR("a"), hash_block(STR("b"), SEED, SEED), SEED));
    assert_true(ab != hash_block(STR("ab"), SEED, SEED));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keyed_hash_differs_by_key_and_text),
        cmocka_unit_test(keyed_hash_long_text_every_byte_counts),
        cmocka_unit_test(hash_block_every_byte_counts),
    };
    return cmocka_run_group_tests_name("core/base/keyed_hash", tests, NULL, NULL);
}
