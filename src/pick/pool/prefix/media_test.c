/* Tokens of pictures and videos. */
#include "pick/pool/prefix/media.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void media_image_counts_its_pixels(void **state) {
    struct media_estimate estimate = MEDIA_ESTIMATE_DEFAULT;
    (void)state;
    assert_int_equal(media_image_tokens(&estimate), 225);
    estimate.image = (struct picture_tokens){.width = 1280, .height = 720, .factor = 1024};
    assert_int_equal(media_image_tokens(&estimate), 900);
    estimate.image.width = estimate.image.height = 1;
    assert_int_equal(media_image_tokens(&estimate), 1);
    estimate.image = (struct picture_tokens){.is_constant = true, .constant = 256};
    assert_int_equal(media_image_tokens(&estimate), 256);
    estimate.image.constant = 0;
    assert_int_equal(media_image_tokens(&estimate), 1);
}

static void media_video_counts_its_pictures(void **state) {
    struct media_estimate estimate = MEDIA_ESTIMATE_DEFAULT;
    struct video_size none = {.width = 0};
    (void)state;
    assert_int_equal(media_video_tokens(&estimate, &none), 10 * 2 * 225);
    struct video_size said = {.width = 1280, .height = 720, .duration_s = 3.5, .fps = 30};
    assert_int_equal(media_video_tokens(&estimate, &said), 7 * 900);
    estimate.patch = 2;
    assert_int_equal(media_video_tokens(&estimate, &said), 3 * 900);
    estimate.min_frames = 8;
    assert_int_equal(media_video_tokens(&estimate, &said), 4 * 900);
    estimate.min_frames = 0;
    estimate.max_frames = 4;
    assert_int_equal(media_video_tokens(&estimate, &said), 2 * 900);
    estimate.max_video_tokens = 1000;
    assert_int_equal(media_video_tokens(&estimate, &said), 1000);
    /* Each n-th picture. */
    estimate = MEDIA_ESTIMATE_DEFAULT;
    estimate.is_strided = true;
    estimate.frame = (struct picture_tokens){.is_constant = true, .constant = 70};
    assert_int_equal(media_video_tokens(&estimate, &none), 240 * 70);
    estimate.stride = 24;
    assert_int_equal(media_video_tokens(&estimate, &none), 10 * 70);
    assert_int_equal(media_video_tokens(&estimate, &said), 4 * 70);
    estimate.max_frames = 3;
    assert_int_equal(media_video_tokens(&estimate, &said), 3 * 70);
    said.duration_s = 1e300;
    estimate.max_frames = 0;
    assert_int_equal(media_video_tokens(&estimate, &said), 1 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(media_image_counts_its_pixels),
        cmocka_unit_test(media_video_counts_its_pictures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
