/* The queue of writes: order, parts of any size, and what is left of them. */
#include "net/server/write_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static unsigned n_done;
static uv_write_t *done_writes[8];
static int done_status;

static void on_done(uv_write_t *write, int status) {
    done_writes[n_done++] = write;
    done_status = status;
}

static int setup(void **state) {
    (void)state;
    n_done = 0;
    return 0;
}

static void complete_all(struct write_queue *queue) {
    struct queued_writes writes;
    write_queue_pop_all(queue, &writes);
    queued_writes_complete(&writes, UV_ECANCELED);
}

static void write_queue_peek_in_parts_of_any_size_gives_all_bytes(void **state) {
    (void)state;
    static char text[] = "abcdefghij";
    uv_buf_t bufs[] = {{text, 0},     {text, 3},     {text + 3, 0},
                       {text + 3, 1}, {text + 4, 6}, {text, 0}};
    for (size_t part = 1; part <= 11; part++) {
        for (unsigned max_bufs = 1; max_bufs <= 4; max_bufs++) {
            struct write_queue queue;
            uv_write_t write;
            char got[16] = "";
            write_queue_init(&queue);
            assert_true(write_queue_add(&queue, &write, bufs, 6, on_done));
            assert_int_equal(queue.n_bytes, 10);
            struct queued_write *first = STAILQ_FIRST(&queue.writes);
            while (first->rest.n > 0) {
                uv_buf_t out[4];
                size_t n_bytes = 0;
                unsigned n = write_cursor_peek(first->rest, part, out, max_bufs);
                assert_in_range(n, 1, max_bufs);
                for (unsigned i = 0; i < n; i++) {
                    assert_true(out[i].len > 0);
                    strncat(got, out[i].base, out[i].len);
                    n_bytes += out[i].len;
                }
                assert_in_range(n_bytes, 1, part);
                write_queue_advance(&queue, first, n_bytes);
            }
            assert_string_equal(got, text);
            assert_int_equal(queue.n_bytes, 0);
            complete_all(&queue);
            n_done = 0;
        }
    }
}

static void write_queue_taken_writes_complete_in_order(void **state) {
    (void)state;
    static char text[] = "abcdef";
    struct write_queue queue;
    struct queued_writes done;
    uv_write_t writes[3];
    uv_buf_t buf = {text, 6};
    write_queue_init(&queue);
    for (size_t i = 0; i < 3; i++) {
        assert_true(write_queue_add(&queue, &writes[i], &buf, 1, on_done));
    }
    struct queued_write *first = STAILQ_FIRST(&queue.writes);
    write_queue_advance(&queue, first, 6);
    write_queue_advance(&queue, STAILQ_NEXT(first, link), 6);
    assert_int_equal(queue.n_bytes, 6);
    write_queue_pop_taken(&queue, &done);
    queued_writes_complete(&done, 0);
    assert_int_equal(n_done, 2);
    assert_ptr_equal(done_writes[0], &writes[0]);
    assert_ptr_equal(done_writes[1], &writes[1]);
    assert_int_equal(done_status, 0);
    complete_all(&queue);
    assert_int_equal(n_done, 3);
    assert_int_equal(done_status, UV_ECANCELED);
    assert_true(write_queue_is_empty(&queue));
}

static void write_queue_remove_last_leaves_the_others(void **state) {
    (void)state;
    static char text[] = "abcdef";
    struct write_queue queue;
    uv_write_t writes[2];
    uv_buf_t bufs[] = {{text, 2}, {text + 2, 4}};
    write_queue_init(&queue);
    assert_true(write_queue_add(&queue, &writes[0], bufs, 2, on_done));
    assert_true(write_queue_add(&queue, &writes[1], bufs, 2, on_done));
    struct queued_write *first = STAILQ_FIRST(&queue.writes);
    write_queue_advance(&queue, STAILQ_NEXT(first, link), 3);
    assert_int_equal(queue.n_bytes, 9);
    write_queue_remove_last(&queue);
    assert_int_equal(queue.n_bytes, 6);
    assert_ptr_equal(STAILQ_FIRST(&queue.writes), first);
    write_queue_remove_last(&queue);
    assert_int_equal(queue.n_bytes, 0);
    assert_true(write_queue_is_empty(&queue));
    assert_int_equal(n_done, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(write_queue_peek_in_parts_of_any_size_gives_all_bytes, setup),
        cmocka_unit_test_setup(write_queue_taken_writes_complete_in_order, setup),
        cmocka_unit_test_setup(write_queue_remove_last_leaves_the_others, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
