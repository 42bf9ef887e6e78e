/* Lengths of DATA frames: a frame of them fits an empty output, whatever the messages are made
 * of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/transport/grpc/send_queue.h"

enum { MAX_PIECES = 4096, TOTAL_BYTES = 1 << 20 };

static void ignore(struct grpc_send_queue *queue) {
    (void)queue;
}

/* Queues bytes that differ, in pieces of these sizes in rotation. */
static void push(struct grpc_send_queue *queue, const char *bytes, const size_t *sizes,
                 size_t n_sizes, size_t n_pieces) {
    static struct piece pieces[MAX_PIECES];
    const struct grpc_send_queue_options options = {.is_unframed = true};
    size_t at = 0;
    assert_true(n_pieces <= MAX_PIECES);
    for (size_t i = 0; i < n_pieces; i++) {
        pieces[i] = (struct piece){bytes + at, sizes[i % n_sizes]};
        at += pieces[i].n_bytes;
    }
    assert_true(at <= TOTAL_BYTES);
    assert_true(grpc_send_queue_push(queue, &options, pieces, n_pieces, NULL, NULL));
}

/* Collects one frame into an empty output, and compares its payload. Returns: its length. */
static size_t collect(struct grpc_send_queue *queue, struct grpc_output *output, size_t most,
                      const char *expected) {
    static const uint8_t HEAD[9] = "headhead";
    struct grpc_write_batch batch = {.output = output};
    size_t wanted = grpc_send_queue_frame_bytes(queue, most), at = 0;
    size_t n = grpc_send_queue_reserve(queue, wanted);
    grpc_output_clear(output);
    assert_true(grpc_output_add_data_frame(output, queue, &batch, HEAD, n));
    assert_true(output->n <= GRPC_OUTPUT_PIECES && output->used <= GRPC_OUTPUT_BYTES);
    for (size_t i = 0; i < output->n; i++) {
        struct piece piece = output->pieces[i];
        size_t n_head = i == 0 ? sizeof(HEAD) : 0;
        assert_memory_equal((const char *)piece.data + n_head, expected + at,
                            piece.n_bytes - n_head);
        at += piece.n_bytes - n_head;
    }
    assert_int_equal(at, n);
    grpc_write_batch_complete(&batch, ignore);
    return n;
}

static char *numbered_bytes(void) {
    char *bytes = malloc(TOTAL_BYTES);
    for (size_t i = 0; i < TOTAL_BYTES; i++) {
        bytes[i] = (char)(i * 7 + i / 251);
    }
    return bytes;
}

/* Collects all of it. Returns: the number of frames. */
static size_t collect_all(struct grpc_send_queue *queue, struct grpc_output *output, size_t most,
                          const char *expected) {
    size_t n_frames = 0, at = 0;
    for (; queue->n_bytes > 0; n_frames++) {
        size_t n = collect(queue, output, most, expected + at);
        assert_true(n > 0 && n <= most);
        at += n;
    }
    return n_frames;
}

static const struct {
    const char *what;
    size_t sizes[3], n_sizes, n_pieces;
    size_t n_frames; /* for peers that take long ones */
} ROWS[] = {
    {"one large piece", {1 << 20}, 1, 1, 4},
    {"a small one, then a large one", {100, 1000000}, 2, 2, 4},
    {"large pieces", {100000}, 1, 10, 4},
    {"nothing, a byte, 16 KiB", {0, 1, 16384}, 3, 96, 3},
    {"pieces that are barely large", {1025}, 1, 1000, 63},
    {"pieces that are barely small", {1024}, 1, 1024, 64},
    {"small and large in turn", {1024, 1025}, 2, 500, 18},
    {"bytes", {1}, 1, 4096, 1},
    {"less than a small frame", {300}, 1, 50, 1},
};

static void frames_of_any_pieces_fit_an_empty_output(void **state) {
    struct grpc_output *output = malloc(sizeof(*output));
    char *bytes = numbered_bytes();
    size_t n_frames = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        for (size_t most = GRPC_SMALL_FRAME_BYTES; most <= GRPC_LARGE_FRAME_BYTES; most *= 2) {
            struct grpc_send_queue queue = {0};
            push(&queue, bytes, ROWS[i].sizes, ROWS[i].n_sizes, ROWS[i].n_pieces);
            n_frames = collect_all(&queue, output, most, bytes);
        }
        print_message("%s: %zu frames\n", ROWS[i].what, n_frames);
        assert_int_equal(n_frames, ROWS[i].n_frames);
    }
    free(bytes);
    free(output);
}

static void frame_is_never_longer_than_the_peer_allows(void **state) {
    struct grpc_send_queue queue = {0};
    struct grpc_write_batch none = {0};
    char *bytes = numbered_bytes();
    (void)state;
    assert_int_equal(grpc_send_queue_frame_bytes(&queue, 1 << 18), GRPC_SMALL_FRAME_BYTES);
    push(&queue, bytes, (const size_t[]){1 << 20}, 1, 1);
    assert_int_equal(grpc_send_queue_frame_bytes(&queue, 100), 100);
    assert_int_equal(grpc_send_queue_frame_bytes(&queue, 16384), 16384);
    assert_int_equal(grpc_send_queue_frame_bytes(&queue, 16385), 16385);
    assert_int_equal(grpc_send_queue_frame_bytes(&queue, 1 << 18), 1 << 18);
    grpc_send_queue_clear(&queue, &none);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_any_pieces_fit_an_empty_output),
        cmocka_unit_test(frame_is_never_longer_than_the_peer_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
