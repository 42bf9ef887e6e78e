/* Frames as a client may send them, whole and in pieces of every size. */
#include "net/transport/h2_scan.h"

#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_FRAMES = 6, MOST_BYTES = 100000, CLOSED = 0x01020305 };

/* Streams are given by their distance to the closed one. */
static const struct row {
    const char *what;
    struct {
        unsigned char type;
        int32_t to;
        size_t n_bytes;
        unsigned char flags;
    } frames[MOST_FRAMES]; /* as many as n */
    size_t n;
    bool good;
    bool in_fields; /* after the last frame */
} ROWS[] = {
    {"a call", {{NGHTTP2_HEADERS, 2, 30, 4}, {NGHTTP2_DATA, 2, 500, 1}}, 2, true, false},
    {"a large frame", {{NGHTTP2_DATA, -2, 70000, 0}, {NGHTTP2_DATA, -2, 3, 0}}, 2, true, false},
    {"DATA behind the end", {{NGHTTP2_DATA, 0, 8, 0}}, 1, false, false},
    {"an empty frame behind the end", {{NGHTTP2_DATA, 0, 0, 0}}, 1, false, false},
    {"HEADERS behind the end", {{NGHTTP2_HEADERS, 0, 8, 4}}, 1, false, false},
    {"windows, resets and priorities behind the end",
     {{NGHTTP2_WINDOW_UPDATE, 0, 4, 0}, {NGHTTP2_RST_STREAM, 0, 4, 0}, {NGHTTP2_PRIORITY, 0, 5, 0}},
     3,
     true,
     false},
    {"on another stream", {{NGHTTP2_DATA, -2, 8, 0}}, 1, true, false},
    {"DATA, then a reset",
     {{NGHTTP2_DATA, -2, 700, 0}, {NGHTTP2_RST_STREAM, -2, 4, 0}},
     2,
     true,
     false},
    {"DATA behind a reset",
     {{NGHTTP2_RST_STREAM, -2, 4, 0}, {NGHTTP2_DATA, -2, 1, 0}},
     2,
     false,
     false},
    {"DATA behind END_STREAM of an open stream",
     {{NGHTTP2_HEADERS, 2, 9, 4}, {NGHTTP2_DATA, 2, 7, 1}, {NGHTTP2_DATA, 2, 1, 0}},
     3,
     false,
     false},
    {"trailers behind END_STREAM of an open stream",
     {{NGHTTP2_HEADERS, 2, 9, 5}, {NGHTTP2_HEADERS, 2, 9, 5}},
     2,
     false,
     false},
    {"all of a stream, and more",
     {{NGHTTP2_HEADERS, 4, 9, 4}, {NGHTTP2_RST_STREAM, 4, 4, 0}, {NGHTTP2_HEADERS, 4, 9, 4}},
     3,
     false,
     false},
    {"payloads that look like heads",
     {{NGHTTP2_DATA, -2, 300, 0}, {NGHTTP2_DATA, -2, 900, 0}},
     2,
     true,
     false},
    {"a stream that was never there", {{NGHTTP2_DATA, 6, 8, 0}}, 1, true, false},
    {"fields that go on", {{NGHTTP2_HEADERS, 2, 9, 0}}, 1, true, true},
    {"fields that end",
     {{NGHTTP2_HEADERS, 2, 9, 0}, {NGHTTP2_CONTINUATION, 2, 9, 4}},
     2,
     true,
     false},
    {"empty fields", {{NGHTTP2_HEADERS, 2, 0, 4}}, 1, true, false},
};

static void print_u32(uint32_t value, char *out) {
    for (int i = 0; i < 4; i++) {
        out[i] = (char)(value >> (24 - 8 * i));
    }
}

static size_t print(const struct row *row, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < row->n; i++) {
        size_t n_bytes = row->frames[i].n_bytes;
        uint32_t id = (uint32_t)(CLOSED + row->frames[i].to);
        char head[H2_FRAME_HEAD_BYTES];
        print_u32((uint32_t)n_bytes << 8 | row->frames[i].type, head);
        head[4] = (char)row->frames[i].flags;
        print_u32(id | UINT32_C(1) << 31, head + 5); /* the reserved bit is ignored */
        memcpy(out + n, head, sizeof(head));
        n += sizeof(head);
        /* Empty DATA frames on an ended stream, if they are parsed as frames. */
        memset(head, 0, 5);
        print_u32(CLOSED, head + 5);
        for (size_t k = 0; k < n_bytes; k++) {
            out[n + k] = head[k % sizeof(head)];
        }
        n += n_bytes;
    }
    return n;
}

static void check(const struct row *row, size_t piece) {
    static char bytes[MOST_BYTES];
    struct h2_scan scan = {0};
    bool good = true;
    size_t n = print(row, bytes), at = 0;
    size_t last = n - H2_FRAME_HEAD_BYTES - row->frames[row->n - 1].n_bytes;
    h2_closed_streams_begin(&scan.ended, CLOSED - 2);
    h2_closed_streams_begin(&scan.ended, CLOSED);
    h2_closed_streams_add(&scan.ended, CLOSED);
    while (at < n && good) {
        bool fields = row->frames[0].type == NGHTTP2_HEADERS && at > H2_FRAME_HEAD_BYTES &&
                      at < H2_FRAME_HEAD_BYTES + row->frames[0].n_bytes;
        assert_true(!fields || h2_scan_is_in_fields(&scan));
        size_t len = n - at < piece ? n - at : piece;
        size_t n_good = h2_scan_add(&scan, str_make(bytes + at, len));
        good = n_good == len;
        at += n_good;
    }
    if (good != row->good || h2_scan_is_in_fields(&scan) != row->in_fields) {
        fail_msg("%s, in pieces of %zu", row->what, piece);
    }
    assert_int_equal(scan.walk.skip, 0);
    assert_int_equal(scan.walk.n_head, 0);
    /* A refused frame is the last one; pieces before its head was complete count as good. */
    assert_true(good ? at == n : at >= last && at < last + H2_FRAME_HEAD_BYTES);
    assert_true(good || piece < MOST_BYTES || at == last);
}

static void h2_scan_table_at_every_piece_size_matches(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        for (size_t piece = 1; piece <= 32; piece++) {
            check(&ROWS[i], piece);
        }
        check(&ROWS[i], MOST_BYTES);
    }
}

/* Three frames of 14, 9 and 209 bytes, from each position of the scan. */
static void h2_scan_frame_end_at_every_split_is_found(void **state) {
    (void)state;
    enum { FIRST = 14, SECOND = FIRST + 9, N = SECOND + 209, CUT = N - 10 };
    char bytes[N] = {0};
    print_u32(5u << 8 | NGHTTP2_PING, bytes);
    print_u32(0u << 8 | NGHTTP2_DATA, bytes + FIRST);
    print_u32(200u << 8 | NGHTTP2_DATA, bytes + SECOND);
    for (size_t at = 0; at < N; at++) {
        struct h2_scan scan = {0};
        assert_int_equal(h2_scan_add(&scan, str_make(bytes, at)), at);
        const size_t skip = scan.walk.skip;
        for (size_t n_least = 1; n_least <= N; n_least++) {
            size_t least = at + n_least;
            size_t end = least <= FIRST ? FIRST : least <= SECOND ? SECOND : N;
            struct str whole = str_make(bytes + at, N - at);
            struct str cut = str_make(bytes + at, at < CUT ? CUT - at : 0);
            assert_int_equal(h2_scan_find_frame_end(&scan, whole, n_least), end - at);
            assert_int_equal(h2_scan_find_frame_end(&scan, cut, n_least),
                             end - at < cut.len ? end - at : cut.len);
        }
        assert_int_equal(scan.walk.skip, skip);
    }
}

/* ---- ended streams, compared with a complete list -------------------------------------------- */

enum { N_STREAMS = 4000 };

static void closed_streams_initially_empty(void **state) {
    (void)state;
    struct h2_closed_streams ended = {0};
    for (int32_t id = 0; id < 2000; id++) {
        assert_false(h2_closed_streams_has(&ended, id));
    }
    h2_closed_streams_add(&ended, 1); /* never opened */
    assert_false(h2_closed_streams_has(&ended, 1));
}

static void closed_streams_add_marks_one_stream(void **state) {
    (void)state;
    struct h2_closed_streams ended = {0};
    h2_closed_streams_begin(&ended, 1);
    h2_closed_streams_begin(&ended, 3);
    assert_false(h2_closed_streams_has(&ended, 1));
    h2_closed_streams_add(&ended, 1);
    assert_true(h2_closed_streams_has(&ended, 1));
    assert_false(h2_closed_streams_has(&ended, 0)); /* shares its slot */
    assert_false(h2_closed_streams_has(&ended, 3));
    assert_false(h2_closed_streams_has(&ended, 5));
    assert_false(h2_closed_streams_has(&ended, 1 + 2 * H2_CLOSED_STREAMS)); /* this too */
    assert_false(h2_closed_streams_has(&ended, INT32_MAX));
}

/* Streams begin with gaps and end in any order; each answer is compared with a complete list. */
static void check_random(unsigned gap) {
    static bool ends[N_STREAMS];
    struct h2_closed_streams ended = {0};
    int32_t newest = 0;
    for (int i = 0; i < N_STREAMS; i++) {
        ends[i] = false;
    }
    while (newest / 2 + (int32_t)gap + 1 < N_STREAMS) {
        newest = (newest == 0 ? 1 : newest + 2) + 2 * (rand() % (int)gap);
        h2_closed_streams_begin(&ended, newest);
        for (int k = rand() % 3; k > 0; k--) {
            int32_t id = newest - 2 * (rand() % (H2_CLOSED_STREAMS + 9));
            h2_closed_streams_add(&ended, id);
            if (id > 0 && newest - id < 2 * H2_CLOSED_STREAMS) {
                ends[id / 2] = true;
            }
        }
        for (int32_t id = 1; id / 2 < N_STREAMS; id += 2) {
            bool known = id <= newest && newest - id < 2 * H2_CLOSED_STREAMS;
            assert_int_equal(h2_closed_streams_has(&ended, id), known && ends[id / 2]);
        }
    }
}

static void closed_streams_random_ids_match_model(void **state) {
    (void)state;
    srand(7);
    check_random(1);
    check_random(4);
    check_random(H2_CLOSED_STREAMS + 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2_scan_table_at_every_piece_size_matches),
        cmocka_unit_test(h2_scan_frame_end_at_every_split_is_found),
        cmocka_unit_test(closed_streams_initially_empty),
        cmocka_unit_test(closed_streams_add_marks_one_stream),
        cmocka_unit_test(closed_streams_random_ids_match_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
