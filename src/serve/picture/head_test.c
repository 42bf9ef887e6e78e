/* Sizes from picture heads, hostile ones included, and files truncated at every byte. */
#include "serve/picture/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/picture/picture_fixture.h"

struct row {
    const char *what;
    struct str file;
    enum picture_format format; /* 0: refused */
    uint32_t width, height;
    const char *says; /* part of the error text */
};

#define SOI "\xff\xd8"
#define APP0                                                                                       \
    "\xff\xe0\0\x04"                                                                               \
    "ab"
#define SOF(marker, height, width) "\xff" marker "\0\x0b\x08" height width "\x01\x01\x11\0"
#define SOS "\xff\xda\0\x08\x01\x01\0\0\x3f\0"
#define EOI "\xff\xd9"
#define WEBP(chunk) "RIFF\x30\0\0\0WEBP" chunk "\0\0\0\0\0\0\0\0"

static const struct row rows[] = {
    {"PNG", STR(FIXTURE_PNG("\0\0\x02\x80", "\0\0\x01\xe0")), PICTURE_PNG, 640, 480, NULL},
    {"PNG, the largest", STR(FIXTURE_PNG("\x7f\xff\xff\xff", "\xff\xff\xff\xff")), PICTURE_PNG,
     0x7fffffff, 0xffffffff, NULL},
    {"PNG without width", STR(FIXTURE_PNG("\0\0\0\0", "\0\0\0\1")), 0, 0, 0, "0 x 1 pixels"},
    {"PNG without IHDR", STR(FIXTURE_PNG_BEGIN "\0\0\0\x0dIDAT0123456789012345678901234"), 0, 0, 0,
     "does not begin with its IHDR"},
    {"PNG, cut off", STR(FIXTURE_PNG_BEGIN "\0\0\0\rIHDR"), 0, 0, 0, "ends within its head"},
    {"JPEG", STR(SOI APP0 SOF("\xc0", "\x01\xe0", "\x02\x80") SOS "\x12\xff\0\x34" EOI),
     PICTURE_JPEG, 640, 480, NULL},
    {"JPEG, progressive", STR(SOI SOF("\xc2", "\xff\xff", "\xff\xff") SOS EOI), PICTURE_JPEG, 65535,
     65535, NULL},
    {"JPEG, fill bytes and stray ones",
     STR(SOI "\xff\xff\xff"
             "\xe0\0\x04xxgarbage" SOF("\xc1", "\0\x03", "\0\x02") SOS EOI),
     PICTURE_JPEG, 2, 3, NULL},
    {"JPEG, a second frame",
     STR(SOI SOF("\xc0", "\0\x03", "\0\x02") SOF("\xc0", "\0\x63", "\0\x63") SOS EOI), PICTURE_JPEG,
     2, 3, NULL},
    {"JPEG, a frame within a note",
     STR(SOI "\xff\xfe\0\x0f" SOF("\xc0", "\0\x09", "\0\x09") SOF("\xc0", "\0\x03", "\0\x02")
             SOS EOI),
     PICTURE_JPEG, 2, 3, NULL},
    {"JPEG with tables only", STR(SOI "\xff\xc4\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0" EOI), 0, 0, 0,
     "no frame header"},
    {"JPEG without lines", STR(SOI SOF("\xc0", "\0\0", "\0\x02") SOS EOI), 0, 0, 0, "2 x 0 pixels"},
    {"JPEG, segment of length 0", STR(SOI "\xff\xe0\0\0" SOF("\xc0", "\0\x03", "\0\x02")), 0, 0, 0,
     "no frame header"},
    {"JPEG, segment past the end", STR(SOI "\xff\xe0\xff\xff" SOF("\xc0", "\0\x03", "\0\x02")), 0,
     0, 0, "no frame header"},
    {"JPEG, nothing behind", STR(SOI "\xff"), 0, 0, 0, "no frame header"},
    {"WebP, lossy",
     STR(WEBP("VP8 \x20\0\0\0"
              "\x30\x01\0\x9d\x01\x2a\x80\x42\xe0\x81")),
     PICTURE_WEBP, 640, 480, NULL},
    {"WebP, lossless",
     STR(WEBP("VP8L\x20\0\0\0"
              "\x2f\x7f\xc2\x77\x10")),
     PICTURE_WEBP, 640, 480, NULL},
    {"WebP, extended",
     STR(WEBP("VP8X\x0a\0\0\0\x10\0\0\0"
              "\x7f\x02\0"
              "\xdf\x01\0")),
     PICTURE_WEBP, 640, 480, NULL},
    {"WebP, extended, the largest",
     STR(WEBP("VP8X\x0a\0\0\0\0\0\0\0"
              "\xff\xff\xff"
              "\xff\xff\xff")),
     PICTURE_WEBP, 1 << 24, 1 << 24, NULL},
    {"WebP, not a key frame",
     STR(WEBP("VP8 \x20\0\0\0"
              "\x31\x01\0\x9d\x01\x2b\x80\x42\xe0\x81")),
     0, 0, 0, "does not begin with a VP8"},
    {"WebP, another chunk",
     STR(WEBP("EXIF\x20\0\0\0"
              "0123456789")),
     0, 0, 0, "does not begin with a VP8"},
    {"RIFF of another kind", STR("RIFF\x20\0\0\0WAVEfmt 0123456789012345"), 0, 0, 0,
     "52 49 46 46 20 00 00 00"},
    {"GIF", STR(FIXTURE_GIF), PICTURE_GIF, 2, 2, NULL},
    {"GIF, no trailer", STR(FIXTURE_GIF_SCREEN FIXTURE_GIF_FRAME), PICTURE_GIF, 2, 2, NULL},
    {"GIF, the frame is larger",
     STR("GIF87a\x01\0\x01\0\0\0\0"
         "\x2c\xff\xff\xff\xff\x03\0\x02\0\0"
         "\x02\x01\x44\0"),
     PICTURE_GIF, 65538, 65537, NULL},
    {"GIF, an empty frame",
     STR("GIF87a\x01\0\x01\0\0\0\0"
         "\x2c\0\0\0\0\0\0\x02\0\0"
         "\x02\0"),
     0, 0, 0, "first frame of the GIF file is 0 x 2"},
    {"GIF without frames", STR(FIXTURE_GIF_SCREEN "\x3b"), 0, 0, 0, "before its first frame"},
    {"GIF, nothing behind", STR("GIF89a"), 0, 0, 0, "before its first frame"},
    {"GIF of the future", STR("GIF90a\x02\0\x02\0\x81\0\0"), 0, 0, 0, "expected a JPEG"},
    {"nothing", {NULL, 0}, 0, 0, 0, "got no bytes"},
    {"one byte", STR("\xff"), 0, 0, 0, "begin with ff"},
    {"SVG", STR("<svg xmlns='http://www.w3.org/2000/svg'/>"), 0, 0, 0, "begin with 3c 73 76 67"},
    {"PDF with a JPEG in it", STR("%PDF-1.4\n" SOI SOF("\xc0", "\0\x03", "\0\x02")), 0, 0, 0,
     "expected a JPEG, PNG, WebP or GIF file"},
};

/* A copy of the exact size, so that the sanitizer detects a read past the end. */
static struct str exact(struct str file, size_t len) {
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    if (len > 0) {
        memcpy(copy, file.ptr, len);
    }
    return str_make(copy, len);
}

static void head_read_size_or_error_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct str file = exact(row->file, row->file.len);
        struct error err = {0};
        struct picture_head head;
        enum status st = head_read(file, &head, &err);
        if (st != (row->format ? ST_OK : ST_BAD_PICTURE)) {
            fail_msg("%s: %s %s", row->what, status_name(st), err.text);
        }
        if (row->format) {
            assert_int_equal(head.format, row->format);
            assert_int_equal(head.width, row->width);
            assert_int_equal(head.height, row->height);
        } else if (!strstr(err.text, row->says)) {
            fail_msg("%s: \"%s\" does not say \"%s\"", row->what, err.text, row->says);
        }
        free((char *)file.ptr);
    }
}

static void head_read_every_prefix_is_ok_or_error(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t n = 0; n < rows[i].file.len; n++) {
            struct str file = exact(rows[i].file, n);
            struct error err = {0};
            struct picture_head head;
            enum status st = head_read(file, &head, &err);
            assert_true(st == ST_OK || (st == ST_BAD_PICTURE && err.text[0] != '\0'));
            assert_true(st != ST_OK || (head.width > 0 && head.height > 0));
            free((char *)file.ptr);
        }
    }
}

static void head_read_gif_finds_first_frame(void **state) {
    (void)state;
    struct str file = STR(
        FIXTURE_GIF_SCREEN
        "\x21\xfe\x03"
        "abc\0" FIXTURE_GIF_CONTROL FIXTURE_GIF_FRAME FIXTURE_GIF_CONTROL FIXTURE_GIF_FRAME "\x3b");
    struct picture_head head;
    struct error err;
    assert_int_equal(head_read(file, &head, &err), ST_OK);
    assert_int_equal(head.frame.left, 1);
    assert_int_equal(head.frame.top, 0);
    assert_int_equal(head.frame.width, 1);
    assert_int_equal(head.frame.height, 1);
    assert_memory_equal(head.frame.fill, "\0\xff\0", 3); /* green: the transparent colour */
    assert_int_equal(file.ptr[head.frame.control], 1);
    assert_int_equal(head.frame.n_bytes,
                     sizeof(FIXTURE_GIF_SCREEN FIXTURE_GIF_CONTROL FIXTURE_GIF_FRAME) - 1 + 7);

    struct str plain = STR(FIXTURE_GIF_SCREEN FIXTURE_GIF_FRAME);
    assert_int_equal(head_read(plain, &head, &err), ST_OK);
    assert_int_equal(head.frame.control, 0);
    assert_memory_equal(head.frame.fill, "\xff\0\0", 3); /* red: the first */
}

/* Formats whose pixels cannot be interpolated. */
static const struct {
    const char *what;
    struct str file;
    bool is_indexed;
} pixels[] = {
    {"PNG, 1 bit", STR(FIXTURE_PNG_OF("\0\0\0\2", "\0\0\0\2", "\x01\0")), true},
    {"PNG, 2 bits", STR(FIXTURE_PNG_OF("\0\0\0\2", "\0\0\0\2", "\x02\0")), false},
    {"PNG, grey", STR(FIXTURE_PNG_OF("\0\0\0\2", "\0\0\0\2", "\x08\0")), false},
    {"PNG, RGB", STR(FIXTURE_PNG("\0\0\0\2", "\0\0\0\2")), false},
    {"PNG, palette of 1 bit", STR(FIXTURE_PNG_OF("\0\0\0\2", "\0\0\0\2", "\x01\x03")), true},
    {"PNG, palette", STR(FIXTURE_PNG_OF("\0\0\0\2", "\0\0\0\2", "\x08\x03")), true},
    {"PNG, RGBA", STR(FIXTURE_PNG_OF("\0\0\0\2", "\0\0\0\2", "\x08\x06")), false},
    {"GIF", STR(FIXTURE_GIF), true},
    {"GIF, colours are greys",
     STR("GIF89a\x02\0\x02\0\x81\0\0\0\0\0\1\1\1\2\2\2\3\3\3" FIXTURE_GIF_FRAME), false},
    {"GIF, all but one",
     STR("GIF89a\x02\0\x02\0\x81\0\0\0\0\0\1\1\1\2\2\2\3\3\4" FIXTURE_GIF_FRAME), true},
    {"GIF, the frame's own are greys",
     STR(FIXTURE_GIF_SCREEN "\x2c\x01\0\0\0\x01\0\x01\0\x80\0\0\0\1\1\1"
                            "\x02\x02\x4c\x01\0"),
     false},
    {"GIF without colours", STR("GIF89a\x02\0\x02\0\0\0\0" FIXTURE_GIF_FRAME), false},
};

static void head_read_indexed_pixels_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(pixels) / sizeof(pixels[0]); i++) {
        struct picture_head head;
        struct error err;
        assert_int_equal(head_read(pixels[i].file, &head, &err), ST_OK);
        if (head.is_indexed != pixels[i].is_indexed) {
            fail_msg("%s: %d", pixels[i].what, head.is_indexed);
        }
    }
}

/* Decoders of these need some rows, of all others the whole picture. */
static void head_read_jpeg_rows_in_order_by_table(void **state) {
#define SOF_OF_3(marker) "\xff" marker "\0\x11\x08\0\x08\0\x08\3\1\x11\0\2\x11\0\3\x11\0"
#define SOS_OF_3 "\xff\xda\0\x0c\3\1\0\2\0\3\0\0\x3f\0"
    static const struct {
        const char *what;
        struct str file;
        bool is_sequential;
    } files[] = {
        {"grey", STR(SOI SOF("\xc0", "\0\x08", "\0\x08") SOS EOI), true},
        {"coloured", STR(SOI SOF_OF_3("\xc0") SOS_OF_3 EOI), true},
        {"12 bits", STR(SOI SOF_OF_3("\xc1") SOS_OF_3 EOI), true},
        {"progressive", STR(SOI SOF_OF_3("\xc2") SOS_OF_3 EOI), false},
        {"two scans", STR(SOI SOF_OF_3("\xc0") SOS_OF_3 SOS_OF_3 EOI), false},
        {"a scan for each component", STR(SOI SOF_OF_3("\xc0") SOS SOS SOS EOI), false},
        {"a scan of one component of three", STR(SOI SOF_OF_3("\xc0") SOS EOI), false},
        {"no scan", STR(SOI SOF_OF_3("\xc0") EOI), false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct picture_head head;
        struct error err;
        assert_int_equal(head_read(files[i].file, &head, &err), ST_OK);
        if (head.is_sequential != files[i].is_sequential) {
            fail_msg("%s: %d", files[i].what, head.is_sequential);
        }
    }
}

/* An empty scan is a dozen bytes, and decoding it is a pass over the whole picture. */
static void head_read_jpeg_scan_limit(void **state) {
    (void)state;
    static const char scan[] = SOS;
    static const char begin[] = SOI SOF("\xc2", "\x20\0", "\x20\0");
    for (int n = HEAD_MAX_SCANS - 1; n <= HEAD_MAX_SCANS + 1; n++) {
        char file[4096];
        size_t len = sizeof(begin) - 1;
        memcpy(file, begin, len);
        for (int i = 0; i < n; i++) {
            memcpy(file + len, scan, sizeof(scan) - 1);
            len += sizeof(scan) - 1;
        }
        struct picture_head head;
        struct error err = {0};
        enum status st = head_read(str_make(file, len), &head, &err);
        assert_int_equal(st, n > HEAD_MAX_SCANS ? ST_BAD_PICTURE : ST_OK);
        if (st != ST_OK) {
            assert_string_equal(err.text, "the JPEG file has 101 scans, at most 100 are decoded");
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_read_size_or_error_by_table),
        cmocka_unit_test(head_read_every_prefix_is_ok_or_error),
        cmocka_unit_test(head_read_gif_finds_first_frame),
        cmocka_unit_test(head_read_indexed_pixels_by_table),
        cmocka_unit_test(head_read_jpeg_rows_in_order_by_table),
        cmocka_unit_test(head_read_jpeg_scan_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
