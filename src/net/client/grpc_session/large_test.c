/* Large messages between our client and our server: long DATA frames, whose bytes are read to their
 * place and not copied, and what else may happen on a connection meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/client/grpc_session/session_fixture.h"

enum { LARGE_BYTES = 3 << 20, FIRST_BYTES = 70000 };

static struct session_pair *open_large(enum pace pace) {
    struct grpc_limits limits = grpc_fixture_limits();
    limits.net.max_body_size = 8 << 20;
    limits.stream_window_bytes = 4 << 20;
    limits.connection_window_bytes = 64 << 20;
    struct grpc_client_limits client = {0};
    struct session_pair *pair = session_pair_open_with(&limits, &client);
    pair->fixture->budget.body_memory = 64 << 20;
    pair->fixture->pace = pair->pace = pace;
    return pair;
}

static char *large_text(size_t n) {
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)(i * 11 + i / 253);
    }
    return text;
}

static void assert_echoed(const struct call_record *record, const char *text, size_t n) {
    assert_int_equal(record->n_ended, 1);
    if (record->code != 0 || record->error.status != ST_OK) {
        fail_msg("expected OK, got %d: %s", record->code, record->error.text);
    }
    assert_int_equal(record->n_messages, 1);
    assert_int_equal(record->in_len, n);
    assert_memory_equal(record->in, text, n);
}

/* The first message asks for larger frames, from the second one on both sides use them. */
static void large_messages_are_not_copied(void **state) {
    static const enum pace PACES[] = {PACE_RANDOM, PACE_SEVENS};
    char *text = large_text(LARGE_BYTES);
    (void)state;
    for (size_t i = 0; i < sizeof(PACES) / sizeof(PACES[0]); i++) {
        struct session_pair *pair = open_large(PACES[i]);
        struct call_record *first =
            session_pair_unary(pair, "/t.T/Echo", str_make(text, LARGE_BYTES));
        session_pair_run(pair);
        assert_echoed(first, text, LARGE_BYTES);
        int64_t copied = metric_read(METRIC_COPIED_BYTES_TOTAL);
        size_t n_server = pair->fixture->n_in_place, n_client = pair->n_in_place;
        struct call_record *record =
            session_pair_unary(pair, "/t.T/Echo", str_make(text, LARGE_BYTES));
        session_pair_run(pair);
        assert_echoed(record, text, LARGE_BYTES);
        assert_true(metric_read(METRIC_COPIED_BYTES_TOTAL) < copied + 2 * (int64_t)FIRST_BYTES);
        assert_true(pair->fixture->n_in_place - n_server > LARGE_BYTES - FIRST_BYTES);
        assert_true(pair->n_in_place - n_client > LARGE_BYTES - FIRST_BYTES);
        session_pair_free(pair);
    }
    free(text);
}

/* The byte that a method wants aligned is so also where it is read in place. */
static void large_message_in_place_is_aligned(void **state) {
    char *text = large_text(LARGE_BYTES);
    (void)state;
    memset(text, 'a', 100);
    text[77] = 'x';
    struct session_pair *pair = open_large(PACE_RANDOM);
    for (int i = 0; i < 3; i++) {
        struct call_record *record =
            session_pair_unary(pair, "/t.T/Aligned", str_make(text, LARGE_BYTES));
        session_pair_run(pair);
        assert_echoed(record, text, LARGE_BYTES);
        assert_true(pair->fixture->service.calls[i].aligned);
    }
    session_pair_free(pair);
    free(text);
}

static void large_messages_of_many_calls_do_not_mix(void **state) {
    enum { N = 6 };
    char *texts[N];
    struct call_record *records[N];
    (void)state;
    struct session_pair *pair = open_large(PACE_RANDOM);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < N; i++) {
            size_t n = LARGE_BYTES - i * 400000;
            texts[i] = large_text(n);
            memset(texts[i], (int)('a' + i), 1000);
            records[i] = session_pair_unary(pair, "/t.T/Echo", str_make(texts[i], n));
        }
        session_pair_run(pair);
        for (size_t i = 0; i < N; i++) {
            assert_echoed(records[i], texts[i], LARGE_BYTES - i * 400000);
            free(texts[i]);
        }
    }
    session_pair_free(pair);
}

/* The call of a message that is half received goes: its bytes have no place any more. */
static void cancel_in_a_large_message_frees_it(void **state) {
    char *text = large_text(LARGE_BYTES);
    (void)state;
    for (int by_server = 0; by_server < 2; by_server++) {
        struct session_pair *pair = open_large(PACE_WHOLE);
        struct call_record *first =
            session_pair_unary(pair, "/t.T/Echo", str_make(text, LARGE_BYTES));
        session_pair_run(pair);
        assert_echoed(first, text, LARGE_BYTES);
        struct call_record *record = session_pair_unary(
            pair, by_server ? "/t.T/Echo" : "/t.T/Later", str_make(text, LARGE_BYTES));
        session_pair_run_once(pair); /* a part of it */
        assert_true(pair->fixture->budget.n_body_bytes > 0);
        if (by_server) {
            pair->fixture->budget.body_memory = 1; /* refuses what comes */
        } else {
            grpc_client_cancel(record->call);
        }
        session_pair_run(pair);
        assert_int_equal(record->n_ended, 1);
        assert_int_equal(record->error.status != ST_OK, true);
        assert_int_equal(pair->fixture->budget.n_body_bytes, 0);
        pair->fixture->budget.body_memory = 64 << 20;
        struct call_record *next =
            session_pair_unary(pair, "/t.T/Echo", str_make(text, LARGE_BYTES));
        session_pair_run(pair);
        assert_echoed(next, text, LARGE_BYTES);
        session_pair_free(pair);
    }
    free(text);
}

/* ---- lengths of frames ----------------------------------------------------------------------- */

static size_t longest_sent(const struct session_pair *pair) {
    size_t longest = 0;
    for (size_t i = 0;; i++) {
        struct str payload = session_pair_find_sent(pair, NGHTTP2_DATA, 0, i);
        if (!payload.ptr) {
            return longest;
        }
        longest = payload.len > longest ? payload.len : longest;
    }
}

static void client_sends_frames_as_long_as_the_server_takes(void **state) {
    static const struct {
        uint32_t setting;
        size_t longest;
    } rows[] = {{16384, 16384}, {16385, 16385}, {100000, 100000}, {1 << 20, 1 << 18}};
    char *text = large_text(LARGE_BYTES);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct session_pair *pair = session_pair_open_raw(&(struct grpc_client_limits){0});
        struct frames frames = {0};
        uint32_t size = rows[i].setting, window = 8 << 20;
        const char settings[12] = {
            0, 5, (char)(size >> 24),   (char)(size >> 16),   (char)(size >> 8),   (char)size,
            0, 4, (char)(window >> 24), (char)(window >> 16), (char)(window >> 8), (char)window};
        frames_frame(&frames, NGHTTP2_SETTINGS, 0, 0, str_make(settings, sizeof(settings)));
        frames_u32(&frames, NGHTTP2_WINDOW_UPDATE, 0, window);
        session_pair_receive_frames(pair, &frames);
        session_pair_unary(pair, "/t.T/Echo", str_make(text, LARGE_BYTES));
        while (session_pair_run_once(pair)) {
        }
        assert_int_equal(longest_sent(pair), rows[i].longest);
        session_pair_free(pair);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_messages_are_not_copied),
        cmocka_unit_test(large_message_in_place_is_aligned),
        cmocka_unit_test(large_messages_of_many_calls_do_not_mix),
        cmocka_unit_test(cancel_in_a_large_message_frees_it),
        cmocka_unit_test(client_sends_frames_as_long_as_the_server_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
