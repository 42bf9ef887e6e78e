/* Alignment: aligned pieces are not copied; others are copied completely and once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/tensor/infer.h"

struct counted {
    int64_t copied;
    int64_t misaligned;
};

static struct counted counted_now(void) {
    return (struct counted){metric_read(METRIC_COPIED_BYTES_TOTAL),
                            metric_read(METRIC_MISALIGNED_TOTAL)};
}

/* Aligns one input of `pieces`; the result is in *tensor. */
static struct counted align(struct arena *arena, struct tensor *tensor) {
    struct infer_input input = {.tensor = *tensor};
    struct infer_request request = {.arena = arena, .inputs = &input, .n_inputs = 1};
    struct counted before = counted_now();
    struct error err;
    assert_int_equal(infer_align_copy(&request, &err), ST_OK);
    *tensor = input.tensor;
    struct counted after = counted_now();
    return (struct counted){after.copied - before.copied, after.misaligned - before.misaligned};
}

static void assert_same_bytes(const struct tensor *tensor, const unsigned char *want, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        assert_true(tensor->pieces[i].n_bytes <= n - at);
        assert_memory_equal(tensor->pieces[i].data, want + at, tensor->pieces[i].n_bytes);
        at += tensor->pieces[i].n_bytes;
    }
    assert_int_equal(at, n);
}

/* Every datatype at every offset from a boundary, in one piece. */
static void infer_align_misaligned_piece_is_copied(void **state) {
    _Alignas(64) unsigned char bytes[128];
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)i;
    }
    for (int d = DT_BOOL; d < DT_COUNT_; d++) {
        size_t size = datatype_size((enum datatype)d);
        for (size_t offset = 0; offset < 16; offset++) {
            struct arena *arena = arena_new(NULL, 0);
            struct piece piece = {bytes + offset, 48};
            struct tensor tensor = {
                .datatype = (enum datatype)d, .pieces = &piece, .n_pieces = 1, .n_bytes = 48};
            bool well = size <= 1 || offset % size == 0;
            struct counted counted = align(arena, &tensor);
            assert_int_equal(counted.copied, well ? 0 : 48);
            assert_int_equal(counted.misaligned, well ? 0 : 1);
            assert_int_equal(tensor.pieces[0].data == piece.data, well);
            assert_same_bytes(&tensor, bytes + offset, 48);
            if (size > 0) {
                assert_int_equal((uintptr_t)tensor.pieces[0].data % size, 0);
            }
            arena_free(arena);
        }
    }
}

/* 24 bytes of FP64 and FP16, split in three at every pair of places, at every offset. */
static void infer_align_split_pieces_keep_bytes(void **state) {
    _Alignas(64) unsigned char bytes[64];
    static const enum datatype datatypes[] = {DT_FP64, DT_INT32, DT_BF16};
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(i * 7);
    }
    for (size_t d = 0; d < 3; d++) {
        size_t size = datatype_size(datatypes[d]);
        for (size_t offset = 0; offset < 8; offset++) {
            for (size_t a = 0; a <= 24; a++) {
                for (size_t b = a; b <= 24; b++) {
                    const unsigned char *from = bytes + offset;
                    struct piece pieces[] = {{from, a}, {from + a, b - a}, {from + b, 24 - b}};
                    struct tensor tensor = {
                        .datatype = datatypes[d], .pieces = pieces, .n_pieces = 3, .n_bytes = 24};
                    struct arena *arena = arena_new(NULL, 0);
                    struct counted counted = align(arena, &tensor);
                    assert_same_bytes(&tensor, from, 24);
                    for (size_t i = 0; i < tensor.n_pieces; i++) {
                        if (tensor.pieces[i].n_bytes > 0) {
                            assert_int_equal((uintptr_t)tensor.pieces[i].data % size, 0);
                            assert_int_equal(tensor.pieces[i].n_bytes % size, 0);
                        }
                    }
                    bool well = offset % size == 0 && a % size == 0 && b % size == 0;
                    assert_int_equal(counted.misaligned, well ? 0 : 1);
                    assert_int_equal(counted.copied == 0, well);
                    arena_free(arena);
                }
            }
        }
    }
}

static void infer_align_aligned_pieces_are_not_copied(void **state) {
    _Alignas(64) unsigned char bytes[64] = {0};
    struct piece pieces[] = {
        {bytes, 16}, {bytes + 17, 8}, {bytes + 32, 6}, {bytes + 38, 2}, {bytes + 40, 8}};
    struct tensor tensor = {.datatype = DT_FP32, .pieces = pieces, .n_pieces = 5, .n_bytes = 40};
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    struct counted counted = align(arena, &tensor);
    assert_int_equal(counted.copied, 16);
    assert_int_equal(counted.misaligned, 1);
    assert_int_equal(tensor.n_pieces, 4);
    assert_ptr_equal(tensor.pieces[0].data, bytes);
    assert_ptr_equal(tensor.pieces[3].data, bytes + 40);
    assert_int_equal(tensor.n_bytes, 40);
    arena_free(arena);
}

static void infer_align_empty_tensor_is_unchanged(void **state) {
    struct tensor tensor = {.datatype = DT_FP64};
    struct piece piece = {(const void *)(uintptr_t)1, 0}; /* no bytes: any address is aligned */
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    assert_int_equal(align(arena, &tensor).copied, 0);
    tensor.pieces = &piece;
    tensor.n_pieces = 1;
    assert_int_equal(align(arena, &tensor).misaligned, 0);
    arena_free(arena);
}

static void infer_align_out_of_memory_is_reported(void **state) {
    static const unsigned char bytes[100001];
    struct piece piece = {bytes + ((uintptr_t)bytes % 2 == 0), 100000};
    struct infer_input input = {.tensor = {.name = STR("x"),
                                           .datatype = DT_FP32,
                                           .pieces = &piece,
                                           .n_pieces = 1,
                                           .n_bytes = 100000}};
    struct arena *arena = arena_new(NULL, 50000);
    struct infer_request request = {.arena = arena, .inputs = &input, .n_inputs = 1};
    struct error err;
    (void)state;
    assert_int_equal(infer_align_copy(&request, &err), ST_NO_MEMORY);
    assert_string_equal(err.text, "out of memory for aligning input \"x\" of 100000 bytes");
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infer_align_misaligned_piece_is_copied),
        cmocka_unit_test(infer_align_split_pieces_keep_bytes),
        cmocka_unit_test(infer_align_aligned_pieces_are_not_copied),
        cmocka_unit_test(infer_align_empty_tensor_is_unchanged),
        cmocka_unit_test(infer_align_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests_name("core/tensor/infer_align", tests, NULL, NULL);
}
