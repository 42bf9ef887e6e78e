/* A decoder receives the first picture only, whatever the file contains. */
#include "serve/picture/strip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/picture/picture_fixture.h"

#define SOI "\xff\xd8"
#define JFIF "\xff\xe0\0\x06JFIF"
#define EXIF                                                                                       \
    "\xff\xe1\0\x06"                                                                               \
    "Exif"
#define ADOBE                                                                                      \
    "\xff\xee\0\x07"                                                                               \
    "Adobe"
#define NOTE "\xff\xfe\0\x05hey"
#define SOF "\xff\xc0\0\x0b\x08\0\x03\0\x02\x01\x01\x11\0"
#define SCAN                                                                                       \
    "\xff\xda\0\x08\x01\x01\0\0\x3f\0"                                                             \
    "coded\xff\0\xff\xd0more"
#define EOI "\xff\xd9"

#define IHDR FIXTURE_IHDR("\0\0\0\2", "\0\0\0\3")
#define PLTE "\0\0\0\3PLTErgbCRC!"
#define TEXT "\0\0\0\4zTXtabcdCRC!"
#define IDAT "\0\0\0\5IDAThelloCRC!"

#define VP8                                                                                        \
    "VP8 \x0c\0\0\0"                                                                               \
    "\x30\x01\0\x9d\x01\x2a\x02\0\x03\0xx"
#define VP8X(flags)                                                                                \
    "VP8X\x0a\0\0\0" flags "\0\0\0"                                                                \
    "\x01\0\0"                                                                                     \
    "\x02\0\0"
#define ICCP "ICCP\x03\0\0\0abc\0"
#define EXIF_CHUNK "EXIF\x02\0\0\0ab"
#define ANIM "ANIM\x06\0\0\0abcdef"
#define ANMF "ANMF\x04\0\0\0abcd"

struct row {
    const char *what;
    struct str file;
    struct str expected;
};

static const struct row rows[] = {
    {"JPEG", STR(SOI JFIF SOF SCAN EOI), STR(SOI JFIF SOF SCAN EOI)},
    {"JPEG with notes", STR(SOI JFIF EXIF ADOBE NOTE SOF EXIF NOTE SCAN EOI),
     STR(SOI JFIF ADOBE SOF SCAN EOI)},
    {"JPEG, a note between scans", STR(SOI SOF SCAN NOTE SCAN EOI),
     STR(SOI SOF SCAN NOTE SCAN EOI)},
    {"JPEG, fill bytes stay with their marker", STR(SOI "\xff\xff" EXIF SOF SCAN EOI),
     STR(SOI SOF SCAN EOI)},
    {"JPEG, a note past the end",
     STR(SOI SOF "\xff\xe1\xff\xff"
                 "Exif"),
     STR(SOI SOF)},
    {"PNG", STR(FIXTURE_PNG_BEGIN IHDR PLTE IDAT IDAT FIXTURE_IEND),
     STR(FIXTURE_PNG_BEGIN IHDR PLTE IDAT IDAT FIXTURE_IEND)},
    {"PNG with text and a tail",
     STR(FIXTURE_PNG_BEGIN IHDR TEXT PLTE TEXT TEXT IDAT TEXT IDAT FIXTURE_IEND TEXT "tail"),
     STR(FIXTURE_PNG_BEGIN IHDR PLTE IDAT IDAT FIXTURE_IEND)},
    {"PNG, cut off in its data", STR(FIXTURE_PNG_BEGIN IHDR TEXT "\0\0\0\5IDAThel"),
     STR(FIXTURE_PNG_BEGIN IHDR "\0\0\0\5IDAThel")},
    {"PNG, cut off in its text", STR(FIXTURE_PNG_BEGIN IHDR "\0\0\0\5zTXthel"),
     STR(FIXTURE_PNG_BEGIN IHDR)},
    {"PNG, a chunk of 4 GB", STR(FIXTURE_PNG_BEGIN IHDR "\xff\xff\xff\xffIDAThello"),
     STR(FIXTURE_PNG_BEGIN IHDR "\xff\xff\xff\xffIDAThello")},
    {"WebP", STR("RIFF\x18\0\0\0WEBP" VP8), STR("RIFF\x18\0\0\0WEBP" VP8)},
    {"WebP with notes", STR("RIFF\x40\0\0\0WEBP" VP8X("\x3c") ICCP VP8 EXIF_CHUNK),
     STR("RIFF\x2a\0\0\0WEBP" VP8X("\x10") VP8)},
    {"WebP, animated", STR("RIFF\x52\0\0\0WEBP" VP8X("\x2a") ICCP ANIM ANMF ANMF EXIF_CHUNK),
     STR("RIFF\x30\0\0\0WEBP" VP8X("\x02") ANIM ANMF)},
    {"WebP with a tail", STR("RIFF\x18\0\0\0WEBP" VP8 VP8 "tail"), STR("RIFF\x18\0\0\0WEBP" VP8)},
    {"WebP, a size that is too small", STR("RIFF\x10\0\0\0WEBP" VP8),
     STR("RIFF\x10\0\0\0WEBP"
         "VP8 \x0c\0\0\0"
         "\x30\x01\0\x9d")},
    {"WebP, no size", STR("RIFF\0\0\0\0WEBP" VP8), STR("RIFF\0\0\0\0")},
    {"WebP, cut off",
     STR("RIFF\x18\0\0\0WEBP"
         "VP8 \x0c\0\0\0"
         "\x30\x01\0\x9d\x01\x2a\x02\0\x03\0x"),
     STR("RIFF\x18\0\0\0WEBP"
         "VP8 \x0c\0\0\0"
         "\x30\x01\0\x9d\x01\x2a\x02\0\x03\0x")},
    {"GIF",
     STR(FIXTURE_GIF_SCREEN FIXTURE_GIF_CONTROL FIXTURE_GIF_FRAME FIXTURE_GIF_CONTROL
             FIXTURE_GIF_FRAME "\x3b"),
     STR(FIXTURE_GIF_SCREEN "\x21\xf9\x04\0\0\0\x01\0" FIXTURE_GIF_FRAME "\x3b")},
    {"GIF without a control", STR(FIXTURE_GIF_SCREEN FIXTURE_GIF_FRAME),
     STR(FIXTURE_GIF_SCREEN FIXTURE_GIF_FRAME "\x3b")},
};

static void strip_copy_keeps_picture_only_by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct picture_head head;
        struct error err = {0};
        if (head_read(rows[i].file, &head, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].what, err.text);
        }
        struct str got = strip_copy(rows[i].file, &head);
        if (!str_eq(got, rows[i].expected)) {
            fail_msg("%s: expected %zu bytes, got %zu, or others", rows[i].what,
                     rows[i].expected.len, got.len);
        }
        free((char *)got.ptr);
    }
}

/* The sanitizer detects reads past the file and writes past the copy. */
static void strip_copy_every_prefix_stays_within_size(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t n = 1; n <= rows[i].file.len; n++) {
            char *exact = malloc(n);
            struct picture_head head;
            memcpy(exact, rows[i].file.ptr, n);
            if (head_read(str_make(exact, n), &head, NULL) == ST_OK) {
                struct str got = strip_copy(str_make(exact, n), &head);
                assert_true(got.len <= n + 1);
                free((char *)got.ptr);
            }
            free(exact);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strip_copy_keeps_picture_only_by_table),
        cmocka_unit_test(strip_copy_every_prefix_stays_within_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
