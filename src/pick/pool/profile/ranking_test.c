/* The ranking against a plain array: after each random step both agree, and the levels are
 * consistent. */
#include "pick/pool/profile/ranking.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 64, OUT = -1 };

struct model {
    struct ranking ranking;
    struct ranked items[MOST];
    int64_t keys[MOST]; /* OUT: not ranked */
    size_t n_in;
    struct prng prng;
};

static size_t index_of(const struct model *model, const struct ranked *item) {
    return (size_t)(item - model->items);
}

/* Sorted, each range of equal keys one level, and each item at its position. */
static void check(const struct model *model) {
    const struct ranking *ranking = &model->ranking;
    assert_int_equal(ranking->n, model->n_in);
    for (uint32_t i = 0; i < ranking->n; i++) {
        const struct ranked *item = ranking->order[i];
        const struct ranking_level *level = &ranking->levels[item->level];
        assert_int_equal(item->pos, i);
        assert_int_equal(level->key, model->keys[index_of(model, item)]);
        assert_in_range(i, level->begin, level->end - 1);
        bool first = i == 0 || ranking->order[i - 1]->level != item->level;
        assert_int_equal(first, level->begin == i);
        if (first && i > 0) {
            assert_true(ranking->levels[ranking->order[i - 1]->level].key < level->key);
            assert_int_equal(ranking->levels[ranking->order[i - 1]->level].end, i);
        }
    }
}

/* The lowest ones are as low as any other, in order, each once. */
static void check_best(struct model *model, size_t most) {
    struct ranked *best[MOST];
    bool chosen[MOST] = {false};
    size_t n = ranking_find_lowest(&model->ranking, &model->prng, most, best);
    int64_t last = 0;
    assert_int_equal(n, most < model->n_in ? most : model->n_in);
    for (size_t i = 0; i < n; i++) {
        size_t index = index_of(model, best[i]);
        assert_false(chosen[index]);
        chosen[index] = true;
        assert_true(model->keys[index] >= last);
        last = model->keys[index];
    }
    for (size_t i = 0; i < MOST; i++) {
        assert_true(chosen[i] || n < most || model->keys[i] == OUT || model->keys[i] >= last);
    }
}

static void step(struct model *model) {
    size_t i = prng_below(&model->prng, MOST);
    struct ranked *item = &model->items[i];
    uint32_t what = prng_below(&model->prng, 16);
    if (model->keys[i] == OUT) {
        model->keys[i] = prng_below(&model->prng, 12);
        ranking_insert(&model->ranking, item, (uint32_t)model->keys[i]);
        model->n_in++;
    } else if (what == 0) {
        ranking_remove(&model->ranking, item);
        model->keys[i] = OUT;
        model->n_in--;
    } else if (what < 9 || model->keys[i] == 0) {
        ranking_increment(&model->ranking, item);
        model->keys[i]++;
    } else {
        ranking_decrement(&model->ranking, item);
        model->keys[i]--;
    }
}

static void ranking_random_operations_stay_sorted(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct model model = {.prng = {seed}};
        for (size_t i = 0; i < MOST; i++) {
            model.keys[i] = OUT;
        }
        assert_true(ranking_reserve(&model.ranking, MOST));
        for (int i = 0; i < 5000; i++) {
            step(&model);
            check(&model);
            check_best(&model, prng_below(&model.prng, 9));
            check(&model);
        }
        ranking_fini(&model.ranking);
    }
}

static void ranking_reserve_keeps_items(void **state) {
    (void)state;
    struct model model = {.prng = {7}};
    for (size_t i = 0; i < MOST; i++) {
        assert_true(ranking_reserve(&model.ranking, i + 1));
        assert_true(model.ranking.cap > i);
        model.keys[i] = (int64_t)(i * 37 % 11);
        ranking_insert(&model.ranking, &model.items[i], (uint32_t)model.keys[i]);
        model.n_in++;
        check(&model);
    }
    assert_true(ranking_reserve(&model.ranking, 0));
    assert_false(ranking_reserve(&model.ranking, SIZE_MAX / 2));
    check(&model);
    ranking_fini(&model.ranking);
}

/* All orders of equal items have the same probability. */
static void ranking_ties_are_uniform(void **state) {
    (void)state;
    enum { N = 4, ROLLS = 48000 };
    struct model model = {.prng = {11}};
    unsigned counts[N][N] = {{0}};
    assert_true(ranking_reserve(&model.ranking, N));
    for (size_t i = 0; i < N; i++) {
        ranking_insert(&model.ranking, &model.items[i], 5);
    }
    for (int i = 0; i < ROLLS; i++) {
        struct ranked *best[2];
        assert_int_equal(ranking_find_lowest(&model.ranking, &model.prng, 2, best), 2);
        counts[index_of(&model, best[0])][index_of(&model, best[1])]++;
    }
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < N; k++) {
            unsigned even = ROLLS / (N * (N - 1));
            assert_in_range(counts[i][k], i == k ? 0 : even * 9 / 10, i == k ? 0 : even * 11 / 10);
        }
    }
    ranking_fini(&model.ranking);
}

static void prng_below_is_uniform(void **state) {
    (void)state;
    struct prng prng = {3};
    unsigned counts[7] = {0};
    for (int i = 0; i < 70000; i++) {
        counts[prng_below(&prng, 7)]++;
    }
    for (int i = 0; i < 7; i++) {
        assert_in_range(counts[i], 9500, 10500);
    }
    assert_int_equal(prng_below(&prng, 1), 0);
    assert_true(prng_below(&prng, UINT32_MAX) < UINT32_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranking_random_operations_stay_sorted),
        cmocka_unit_test(ranking_reserve_keeps_items),
        cmocka_unit_test(ranking_ties_are_uniform),
        cmocka_unit_test(prng_below_is_uniform),
    };
    return cmocka_run_group_tests_name("pick/pool/profile/ranking", tests, NULL, NULL);
}
