/* Frames as a client may send them, whole and in pieces of every size. */
#include "net/h2_scan.h"

#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_FRAMES = 6, MOST_BYTES = 4096 };

static const struct row {
    const char *what;
    struct {
        unsigned char type;
        int32_t id;
        size_t n_bytes;
    } frames[MOST_FRAMES]; /* up to one without a stream and a type */
    int32_t closed;        /* the peer had ended it, before all this */
    bool good;
} ROWS[] = {
    {"a call", {{NGHTTP2_HEADERS, 5, 30}, {NGHTTP2_DATA, 5, 500}}, 3, true},
    {"DATA behind the end", {{NGHTTP2_DATA, 3, 8}}, 3, false},
    {"an empty frame behind the end", {{NGHTTP2_DATA, 3, 0}}, 3, false},
    {"HEADERS behind the end", {{NGHTTP2_HEADERS, 3, 8}}, 3, false},
    {"windows and resets behind the end",
     {{NGHTTP2_WINDOW_UPDATE, 3, 4}, {NGHTTP2_RST_STREAM, 3, 4}, {NGHTTP2_PRIORITY, 3, 5}},
     3,
     true},
    {"on another stream", {{NGHTTP2_DATA, 1, 8}}, 3, true},
    {"DATA, then a reset", {{NGHTTP2_DATA, 1, 700}, {NGHTTP2_RST_STREAM, 1, 4}}, 3, true},
    {"DATA behind a reset", {{NGHTTP2_RST_STREAM, 1, 4}, {NGHTTP2_DATA, 1, 1}}, 3, false},
    {"all of a stream, and more",
     {{NGHTTP2_HEADERS, 7, 9}, {NGHTTP2_RST_STREAM, 7, 4}, {NGHTTP2_HEADERS, 7, 9}},
     3,
     false},
    {"payloads that look like heads", {{NGHTTP2_DATA, 1, 300}, {NGHTTP2_DATA, 1, 900}}, 3, true},
    {"a stream that was never there", {{NGHTTP2_DATA, 9, 8}}, 3, true},
};

static size_t print(const struct row *row, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < MOST_FRAMES && row->frames[i].id != 0; i++) {
        size_t n_bytes = row->frames[i].n_bytes;
        char head[H2_FRAME_HEAD_BYTES] = {0, (char)(n_bytes >> 8), (char)n_bytes};
        head[3] = (char)row->frames[i].type;
        head[8] = (char)row->frames[i].id;
        memcpy(out + n, head, sizeof(head));
        for (size_t k = 0; k < n_bytes; k++) { /* empty frames of DATA behind the end, read amiss */
            out[n + sizeof(head) + k] = (char)(k % 9 == 8 ? row->closed : 0);
        }
        n += sizeof(head) + n_bytes;
    }
    return n;
}

static void check(const struct row *row, size_t piece) {
    static char bytes[MOST_BYTES];
    struct h2_scan scan = {0};
    bool good = true;
    size_t n = print(row, bytes);
    h2_ended_begin(&scan.ended, 1);
    h2_ended_begin(&scan.ended, 3);
    h2_ended_add(&scan.ended, row->closed);
    for (size_t at = 0; at < n; at += piece) {
        good = h2_scan_add(&scan, str_make(bytes + at, n - at < piece ? n - at : piece)) && good;
    }
    if (good != row->good) {
        fail_msg("%s, in pieces of %zu", row->what, piece);
    }
    assert_int_equal(scan.skip, 0);
    assert_int_equal(scan.n_head, 0);
}

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        for (size_t piece = 1; piece <= 32; piece++) {
            check(&ROWS[i], piece);
        }
        check(&ROWS[i], MOST_BYTES);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
