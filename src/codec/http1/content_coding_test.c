/* Compressed bodies: the output of the compressor decompresses to the same bytes, in any pieces and
 * with any capacity; malformed texts are errors; a decompression bomb never exceeds the
 * capacity. */
#include "codec/http1/content_coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT_BYTES = 3000, OUT_BYTES = 16384 };

/* Something with repetition and with noise. */
static void text_make(char *text, size_t n) {
    uint32_t random = 1;
    for (size_t i = 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        text[i] = (char)(i % 7 < 4 ? 'a' + (int)(i % 7) : (int)(random >> 24) - 128);
    }
}

/* Compresses in pieces of `piece` bytes, with `room` bytes of output at a time. */
static size_t compress_text(enum http_coding coding, struct str text, size_t piece, size_t room,
                            char *out) {
    struct deflate *deflate = deflate_new(coding, 6);
    assert_non_null(deflate);
    assert_true(deflate_bound(deflate, text.len) <= OUT_BYTES);
    size_t n = 0;
    bool done = false;
    while (!done) {
        struct str in = str_make(text.ptr, text.len < piece ? text.len : piece);
        size_t before = in.len, n_out;
        done = deflate_step(deflate, &in, text.len <= piece, out + n, room, &n_out) &&
               text.len <= piece;
        text = str_make(text.ptr + (before - in.len), text.len - (before - in.len));
        n += n_out;
    }
    deflate_free(deflate);
    return n;
}

struct outcome {
    enum status status;
    struct error err;
    size_t n_out;
    char out[OUT_BYTES];
};

/* Decompresses in pieces of `piece` bytes, with `room` bytes of output at a time. */
static void inflate_text(enum http_coding coding, struct str text, size_t piece, size_t room,
                         struct outcome *outcome) {
    struct inflate *inflate = inflate_new(coding);
    assert_non_null(inflate);
    *outcome = (struct outcome){.status = ST_OK};
    while (outcome->status == ST_OK && text.len > 0) {
        struct str in = str_make(text.ptr, text.len < piece ? text.len : piece);
        text = str_make(text.ptr + in.len, text.len - in.len);
        size_t n_out = room;
        while (outcome->status == ST_OK && (in.len > 0 || n_out == room)) {
            assert_true(outcome->n_out + room <= OUT_BYTES);
            outcome->status = inflate_step(inflate, &in, outcome->out + outcome->n_out, room,
                                           &n_out, &outcome->err);
            outcome->n_out += n_out;
        }
    }
    if (outcome->status == ST_OK) {
        outcome->status = inflate_finish(inflate, &outcome->err);
    }
    inflate_free(inflate);
}

static const enum http_coding CODINGS[] = {HTTP_GZIP, HTTP_DEFLATE};

static void inflate_deflated_text_roundtrips(void **state) {
    (void)state;
    static const size_t SIZES[] = {1, 7, 100, OUT_BYTES / 2};
    char text[TEXT_BYTES], packed[OUT_BYTES];
    static struct outcome outcome;
    text_make(text, TEXT_BYTES);
    for (size_t c = 0; c < 2; c++) {
        for (size_t i = 0; i < 16; i++) {
            size_t piece = SIZES[i / 4], room = SIZES[i % 4];
            struct str plain = str_make(text, TEXT_BYTES);
            size_t n = compress_text(CODINGS[c], plain, piece, room, packed);
            assert_true(n < TEXT_BYTES);
            inflate_text(CODINGS[c], str_make(packed, n), piece, room, &outcome);
            assert_int_equal(outcome.status, ST_OK);
            assert_true(str_eq(str_make(outcome.out, outcome.n_out), plain));
        }
    }
}

static void inflate_empty_text_roundtrips(void **state) {
    (void)state;
    char packed[64];
    static struct outcome outcome;
    for (size_t c = 0; c < 2; c++) {
        size_t n = compress_text(CODINGS[c], STR(""), 1, sizeof(packed), packed);
        assert_true(n > 0);
        inflate_text(CODINGS[c], str_make(packed, n), 1, 1, &outcome);
        assert_int_equal(outcome.status, ST_OK);
        assert_int_equal(outcome.n_out, 0);
    }
}

static void check_prefixes(enum http_coding coding) {
    char packed[OUT_BYTES];
    static struct outcome outcome;
    size_t n = compress_text(coding, STR("hello hello hello hello"), 100, OUT_BYTES / 2, packed);
    for (size_t i = 0; i < n; i++) {
        inflate_text(coding, str_make(packed, i), 100, 64, &outcome);
        assert_int_equal(outcome.status, ST_BAD_ENCODING);
    }
}

static void inflate_truncated_input_is_refused(void **state) {
    (void)state;
    check_prefixes(HTTP_GZIP);
    check_prefixes(HTTP_DEFLATE);
}

/* "hello" as raw deflate (RFC 1951), in zlib's format and in gzip's, as other programs write it. */
#define RAW "\xcb\x48\xcd\xc9\xc9\x07\x00"
#define ZLIB "\x78\x9c" RAW "\x06\x2c\x02\x15"
#define GZIP_HEAD "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
#define GZIP GZIP_HEAD RAW "\x86\xa6\x10\x36\x05\x00\x00\x00"

static const struct row {
    const char *what;
    enum http_coding coding;
    struct str text;
    enum status status;
    const char *plain;
} ROWS[] = {
    {"zlib", HTTP_DEFLATE, STR(ZLIB), ST_OK, "hello"},
    {"raw", HTTP_DEFLATE, STR(RAW), ST_OK, "hello"},
    {"gzip", HTTP_GZIP, STR(GZIP), ST_OK, "hello"},
    {"two members", HTTP_GZIP, STR(GZIP GZIP), ST_OK, "hellohello"},
    {"gzip's name and comment", HTTP_GZIP,
     STR("\x1f\x8b\x08\x18\x00\x00\x00\x00\x00\x03name\0comment\0" RAW
         "\x86\xa6\x10\x36\x05\x00\x00\x00"),
     ST_OK, "hello"},
    {"nothing", HTTP_GZIP, STR(""), ST_BAD_ENCODING, NULL},
    {"nothing", HTTP_DEFLATE, STR(""), ST_BAD_ENCODING, NULL},
    {"no gzip", HTTP_GZIP, STR("{\"inputs\":[]}"), ST_BAD_ENCODING, NULL},
    {"zlib as gzip", HTTP_GZIP, STR(ZLIB), ST_BAD_ENCODING, NULL},
    {"gzip as deflate", HTTP_DEFLATE, STR(GZIP), ST_BAD_ENCODING, NULL},
    {"JSON as deflate", HTTP_DEFLATE, STR("{\"inputs\":[]}"), ST_BAD_ENCODING, NULL},
    {"a wrong checksum", HTTP_GZIP, STR(GZIP_HEAD RAW "\x87\xa6\x10\x36\x05\x00\x00\x00"),
     ST_BAD_ENCODING, NULL},
    {"a wrong size", HTTP_GZIP, STR(GZIP_HEAD RAW "\x86\xa6\x10\x36\x06\x00\x00\x00"),
     ST_BAD_ENCODING, NULL},
    {"a wrong checksum", HTTP_DEFLATE, STR("\x78\x9c" RAW "\x06\x2c\x02\x16"), ST_BAD_ENCODING,
     NULL},
    {"bytes behind gzip", HTTP_GZIP, STR(GZIP "x"), ST_BAD_ENCODING, NULL},
    {"zeros behind gzip", HTTP_GZIP, STR(GZIP "\0\0"), ST_BAD_ENCODING, NULL},
    {"half a member behind gzip", HTTP_GZIP, STR(GZIP GZIP_HEAD), ST_BAD_ENCODING, NULL},
    {"bytes behind zlib", HTTP_DEFLATE, STR(ZLIB "x"), ST_BAD_ENCODING, NULL},
    {"bytes behind raw", HTTP_DEFLATE, STR(RAW "x"), ST_BAD_ENCODING, NULL},
    {"a preset dictionary", HTTP_DEFLATE, STR("\x78\xbb\x06\x2c\x02\x15" RAW), ST_BAD_ENCODING,
     NULL},
    {"a reserved block", HTTP_DEFLATE, STR("\x07\x00\x00"), ST_BAD_ENCODING, NULL},
};

static void check_row(const struct row *row, size_t piece) {
    static struct outcome outcome;
    inflate_text(row->coding, row->text, piece, 16, &outcome);
    if (outcome.status != row->status) {
        fail_msg("%s, by %zu: expected %s, got %s (%s)", row->what, piece, status_name(row->status),
                 status_name(outcome.status), outcome.err.text);
    }
    if (outcome.status == ST_OK) {
        assert_true(str_is(str_make(outcome.out, outcome.n_out), row->plain));
    }
}

static void inflate_foreign_streams_match_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        for (size_t piece = 1; piece <= ROWS[i].text.len + 1; piece++) {
            check_row(&ROWS[i], piece);
        }
    }
}

static void inflate_bomb_is_bounded_by_output_capacity(void **state) {
    (void)state;
    enum { ZEROS = 1 << 20, PACKED = 4096 };
    static char zeros[ZEROS], packed[PACKED + 64], out[100];
    struct deflate *deflate = deflate_new(HTTP_GZIP, 9);
    struct str in = str_make(zeros, ZEROS);
    size_t n, n_out;
    assert_true(deflate_step(deflate, &in, true, packed, sizeof(packed), &n));
    deflate_free(deflate);

    struct inflate *inflate = inflate_new(HTTP_GZIP);
    struct error err;
    in = str_make(packed, n);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(inflate_step(inflate, &in, out, sizeof(out), &n_out, &err), ST_OK);
        assert_int_equal(n_out, sizeof(out));
    }
    assert_int_equal(inflate_finish(inflate, &err), ST_BAD_ENCODING);
    inflate_free(inflate);
    inflate_free(NULL);
    deflate_free(NULL);
}

/* Zeros after a text that cannot be compressed: the ratio rises from 1 to a thousand at once. */
static void inflate_slice_bounds_output(void **state) {
    (void)state;
    enum { PLAIN = 5000, ZEROS = 4 << 20 };
    static char text[PLAIN + ZEROS], packed[PLAIN + 8192], out[1 << 20];
    uint32_t seed = 1;
    for (size_t i = 0; i < PLAIN; i++) {
        seed = seed * 1664525 + 1013904223;
        text[i] = (char)(seed >> 24);
    }
    struct deflate *deflate = deflate_new(HTTP_GZIP, 9);
    struct str in = str_make(text, sizeof(text));
    size_t n, n_slices = 0, n_all = 0;
    assert_true(deflate_step(deflate, &in, true, packed, sizeof(packed), &n));
    deflate_free(deflate);

    struct inflate *inflate = inflate_new(HTTP_GZIP);
    struct error err;
    in = str_make(packed, n);
    while (in.len > 0) {
        struct inflate_slice slice = inflate_slice_start(INFLATE_SLICE_BYTES);
        size_t n_slice = 0;
        while (in.len > 0 && slice.left > 0) {
            size_t n_in = inflate_slice_input(&slice), n_out;
            assert_in_range(n_in, 1, 512);
            struct str part = str_make(in.ptr, n_in < in.len ? n_in : in.len);
            in = str_make(in.ptr + part.len, in.len - part.len);
            n_in = part.len;
            assert_int_equal(inflate_step(inflate, &part, out, sizeof(out), &n_out, &err), ST_OK);
            assert_int_equal(part.len, 0);
            inflate_slice_count(&slice, n_in, n_out);
            n_slice += n_out;
        }
        assert_in_range(n_slice, 1, 1032 * 512);
        n_all += n_slice;
        n_slices++;
    }
    assert_int_equal(n_all, sizeof(text));
    assert_true(n_slices > 40); /* but for the one where the ratio rises, 64 KiB each */
    assert_int_equal(inflate_finish(inflate, &err), ST_OK);
    inflate_free(inflate);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inflate_deflated_text_roundtrips),
        cmocka_unit_test(inflate_truncated_input_is_refused),
        cmocka_unit_test(inflate_empty_text_roundtrips),
        cmocka_unit_test(inflate_foreign_streams_match_rows),
        cmocka_unit_test(inflate_bomb_is_bounded_by_output_capacity),
        cmocka_unit_test(inflate_slice_bounds_output),
    };
    return cmocka_run_group_tests_name("codec/http1/content_coding", tests, NULL, NULL);
}
