/* Limits and failures of one picture, with fake parts: a decoder's misbehaviour must end in an
 * error message. */
#include "serve/picture/decode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/picture/picture_fixture.h"

#define PNG_4X3 STR(FIXTURE_PNG("\0\0\0\4", "\0\0\0\3"))

/* ---- fake parts ------------------------------------------------------------------------------ */

/* Behaviour and observations of the next decode; used by one thread. */
static struct {
    uint32_t n_rows; /* rows returned, whatever the file announces */
    enum picture_part_result result;
    unsigned n_calls;
    char file[256]; /* the file it received */
    size_t n_bytes;
} script;

static enum picture_part_result scripted(const struct picture_part_file *file,
                                         const struct picture_part_sink *sink) {
    uint8_t row[64 * 3] = {1, 2, 3};
    script.n_calls++;
    assert_true(file->n_bytes <= sizeof(script.file));
    memcpy(script.file, file->data, file->n_bytes);
    script.n_bytes = file->n_bytes;
    if (!sink->start(sink->user, PICTURE_SAMPLES_RGB)) {
        return PICTURE_PART_NO_MEMORY;
    }
    for (uint32_t i = 0; i < script.n_rows; i++) {
        sink->row(sink->user, row);
    }
    return script.result;
}

static const uint8_t four[4][4] = {
    {255, 0, 0, 255}, {0, 255, 0, 0}, {0, 0, 255, 128}, {200, 200, 200, 1}};
static enum picture_samples four_are;

/* Returns one row of four pixels in the requested format. */
static enum picture_part_result give_four(const struct picture_part_file *file,
                                          const struct picture_part_sink *sink) {
    uint8_t rgb[4][3];
    (void)file;
    assert_true(sink->start(sink->user, four_are));
    for (int i = 0; i < 4; i++) {
        memcpy(rgb[i], four[i], 3);
    }
    sink->row(sink->user, four_are == PICTURE_SAMPLES_RGB ? rgb[0] : four[0]);
    return PICTURE_PART_OK;
}

static const struct picture_part four_part = {.decode = give_four};
static const struct picture_part scripted_part = {.decode = scripted};
static const struct picture_part good_part = {.decode = fixture_decode};

static const struct picture_plan plan_4x3 = {.width = 4,
                                             .height = 3,
                                             .layout = PICTURE_NHWC,
                                             .datatype = DT_UINT8,
                                             .scale = 1,
                                             .std = {1, 1, 1}};

/* ---- limits ---------------------------------------------------------------------------------- */

struct limit {
    struct str file;
    uint64_t max_picture_pixels;
    const char *says; /* the error; NULL: decoded */
};

static const struct limit limits[] = {
    {PNG_4X3, 12, NULL},
    {PNG_4X3, 11,
     "the PNG picture has 4 x 3 = 12 pixels, at most 11 are decoded (--max-picture-pixels)"},
    {STR(FIXTURE_PNG("\xff\xff\xff\xff", "\xff\xff\xff\xff")), 1u << 30,
     "the PNG picture has 4294967295 x 4294967295 = 18446744065119617025 pixels, at most "
     "1073741824 are decoded (--max-picture-pixels)"},
    {STR(FIXTURE_PNG("\0\1\0\0", "\0\0\0\1")), UINT64_MAX,
     "the PNG picture is 65536 x 1 pixels, no side may be over 65535"},
    {STR(FIXTURE_PNG("\0\0\0\1", "\0\1\0\0")), UINT64_MAX,
     "the PNG picture is 1 x 65536 pixels, no side may be over 65535"},
};

static void picture_decode_size_limits_apply_before_decoder(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        uint8_t out[36];
        struct error err = {0};
        script.n_calls = 0;
        script.n_rows = 3;
        script.result = PICTURE_PART_OK;
        enum status st = picture_decode(&scripted_part, limits[i].max_picture_pixels, &plan_4x3,
                                        limits[i].file, out, &err);
        assert_int_equal(st, limits[i].says ? ST_BODY_TOO_LARGE : ST_OK);
        assert_int_equal(script.n_calls, limits[i].says ? 0 : 1);
        if (limits[i].says) {
            assert_string_equal(err.text, limits[i].says);
        }
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

struct failure {
    uint32_t n_rows;
    enum picture_part_result result;
    enum status expected;
    const char *says;
};

static const struct failure failures[] = {
    {3, PICTURE_PART_OK, ST_OK, ""},
    {2, PICTURE_PART_DAMAGED, ST_BAD_PICTURE,
     "the PNG picture is cut off or damaged: 2 of its 3 rows could be decoded"},
    {3, PICTURE_PART_DAMAGED, ST_BAD_PICTURE,
     "the PNG picture is cut off or damaged: 3 of its 3 rows could be decoded"},
    {2, PICTURE_PART_OK, ST_BAD_PICTURE,
     "the PNG picture is cut off or damaged: 2 of its 3 rows could be decoded"},
    {9, PICTURE_PART_OK, ST_BAD_PICTURE,
     "the PNG picture is cut off or damaged: 9 of its 3 rows could be decoded"},
    {0, PICTURE_PART_NO_MEMORY, ST_NO_MEMORY, "out of memory for a PNG picture of 4 x 3 pixels"},
};

static void picture_decode_decoder_failure_is_an_error(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        uint8_t *out = malloc(36); /* the exact size, so that the sanitizer detects a write past
                                      the end */
        struct error err = {0};
        script.n_rows = failures[i].n_rows;
        script.result = failures[i].result;
        assert_int_equal(picture_decode(&scripted_part, 12, &plan_4x3, PNG_4X3, out, &err),
                         failures[i].expected);
        assert_string_equal(err.text, failures[i].says);
        free(out);
    }
}

static void picture_decode_unknown_format_skips_decoder(void **state) {
    (void)state;
    uint8_t out[36];
    struct error err = {0};
    script.n_calls = 0;
    assert_int_equal(picture_decode(&scripted_part, 12, &plan_4x3, STR("<svg/>"), out, &err),
                     ST_BAD_PICTURE);
    assert_int_equal(script.n_calls, 0);
}

/* ---- pictures -------------------------------------------------------------------------------- */

static void picture_decode_pixels_are_stored(void **state) {
    (void)state;
    uint8_t out[36];
    struct error err = {0};
    assert_int_equal(picture_decode(&good_part, 12, &plan_4x3, PNG_4X3, out, &err), ST_OK);
    for (uint8_t i = 0; i < 12; i++) {
        assert_int_equal(out[i * 3], i % 4);
        assert_int_equal(out[i * 3 + 1], i / 4);
        assert_int_equal(out[i * 3 + 2], 7);
    }
}

static void picture_decode_pad_fills_around_picture(void **state) {
    (void)state;
    struct picture_plan plan = plan_4x3;
    uint8_t out[4 * 5 * 3];
    struct error err = {0};
    plan.height = 5;
    plan.fit = PICTURE_PAD;
    plan.pad = 99;
    assert_int_equal(picture_decode(&good_part, 12, &plan, PNG_4X3, out, &err), ST_OK);
    for (uint8_t i = 0; i < 20; i++) {
        uint8_t y = i / 4;
        bool inside = y >= 1 && y <= 3;
        assert_int_equal(out[i * 3], inside ? i % 4 : 99);
        assert_int_equal(out[i * 3 + 1], inside ? y - 1 : 99);
        assert_int_equal(out[i * 3 + 2], inside ? 7 : 99);
    }
}

/* The frame is the pixel at (1, 0); the rest gets the transparent colour, green. */
static void picture_decode_partial_gif_frame_is_filled(void **state) {
    (void)state;
    struct picture_plan plan = plan_4x3;
    static const uint8_t expected[12] = {0, 255, 0, 1, 0, 7, 0, 255, 0, 0, 255, 0};
    uint8_t out[12];
    struct error err = {0};
    plan.width = plan.height = 2;
    assert_int_equal(picture_decode(&good_part, 12, &plan, STR(FIXTURE_GIF), out, &err), ST_OK);
    assert_memory_equal(out, expected, sizeof(expected));
}

/* Four pixels become two, as Pillow's resize computes it in the mode of such a file, or on its
 * colours alone where a filter is given. */
static const struct kind {
    const char *pixel; /* of the PNG header: bit depth, colour type */
    enum picture_samples samples;
    enum picture_filter filter;
    uint8_t wanted[6];
} kinds[] = {
    {"\x08\x02", PICTURE_SAMPLES_RGB, PICTURE_AUTO, {110, 110, 23, 82, 122, 209}},
    {"\x08\x06", PICTURE_SAMPLES_RGBA, PICTURE_AUTO, {226, 0, 28, 0, 0, 255}},
    {"\x08\x02", PICTURE_SAMPLES_CMYK, PICTURE_AUTO, {70, 70, 112, 139, 107, 37}},
    {"\x08\x03", PICTURE_SAMPLES_RGB, PICTURE_AUTO, {0, 255, 0, 200, 200, 200}},
    {"\x08\x03", PICTURE_SAMPLES_RGBA, PICTURE_AUTO, {0, 255, 0, 200, 200, 200}},
    {"\x01\0", PICTURE_SAMPLES_RGB, PICTURE_AUTO, {0, 255, 0, 200, 200, 200}},
    {"\x08\x06", PICTURE_SAMPLES_RGBA, PICTURE_BICUBIC, {110, 110, 23, 82, 122, 209}},
    {"\x08\x02", PICTURE_SAMPLES_CMYK, PICTURE_BICUBIC, {130, 13, 115, 114, 83, 56}},
    {"\x08\x03", PICTURE_SAMPLES_RGB, PICTURE_BICUBIC, {110, 110, 23, 82, 122, 209}},
};

static void picture_decode_auto_filter_follows_file_samples(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct picture_plan plan = plan_4x3;
        char file[] = FIXTURE_PNG("\0\0\0\4", "\0\0\0\1");
        uint8_t out[6];
        struct error err = {0};
        plan.width = 2;
        plan.height = 1;
        plan.filter = kinds[i].filter;
        four_are = kinds[i].samples;
        memcpy(file + 24, kinds[i].pixel, 2);
        struct str whole = str_make(file, sizeof(file) - 1);
        assert_int_equal(picture_decode(&four_part, 12, &plan, whole, out, &err), ST_OK);
        assert_memory_equal(out, kinds[i].wanted, sizeof(out));
    }
}

/* Pillow copies a picture of the right size: colours of transparent pixels stay. */
static void picture_decode_same_size_keeps_colors(void **state) {
    (void)state;
    struct picture_plan plan = plan_4x3;
    struct str file = STR(FIXTURE_PNG_OF("\0\0\0\4", "\0\0\0\1", "\x08\x06"));
    uint8_t out[12];
    struct error err = {0};
    plan.height = 1;
    four_are = PICTURE_SAMPLES_RGBA;
    assert_int_equal(picture_decode(&four_part, 12, &plan, file, out, &err), ST_OK);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(out + i * 3, four[i], 3);
    }
}

static void picture_decode_decoder_gets_stripped_file(void **state) {
    (void)state;
    uint8_t out[36];
    struct error err = {0};
    struct str file = STR(
        FIXTURE_PNG_BEGIN FIXTURE_IHDR("\0\0\0\4", "\0\0\0\3") "\0\0\0\2tEXtabCRC!" FIXTURE_IEND);
    script.n_rows = 3;
    script.result = PICTURE_PART_OK;
    assert_int_equal(picture_decode(&scripted_part, 12, &plan_4x3, file, out, &err), ST_OK);
    assert_true(str_eq(str_make(script.file, script.n_bytes), PNG_4X3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picture_decode_size_limits_apply_before_decoder),
        cmocka_unit_test(picture_decode_decoder_failure_is_an_error),
        cmocka_unit_test(picture_decode_unknown_format_skips_decoder),
        cmocka_unit_test(picture_decode_pixels_are_stored),
        cmocka_unit_test(picture_decode_pad_fills_around_picture),
        cmocka_unit_test(picture_decode_partial_gif_frame_is_filled),
        cmocka_unit_test(picture_decode_auto_filter_follows_file_samples),
        cmocka_unit_test(picture_decode_same_size_keeps_colors),
        cmocka_unit_test(picture_decode_decoder_gets_stripped_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
