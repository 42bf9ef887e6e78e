/* Pictures through all stages: head, metadata removal, each part's decoders, resizing,
 * normalisation. The first three bytes select the target, the rest is the file. Sizes are small:
 * the code is the target, not throughput. */
#include <stdlib.h>

#include "serve/picture/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* sluice_pictures_entry of parts/pictures and of parts/codecs (cmake/part.cmake). */
const struct picture_part *sluice_pictures_entry_of_pictures(void);
const struct picture_part *sluice_pictures_entry_of_codecs(void);

enum {
    MAX_PIXELS = 1 << 16,
    CHOICE_BYTES = 3,
    MARGIN = 64,
    MARK = 0xa5,
    MOST_HELD_BYTES = 1 << 20
};

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

enum { N_PARTS = 2 };

/* A part is loaded once per process. */
static const struct picture_part *load_part(int i) {
    static const struct picture_part *parts[N_PARTS];
    if (!parts[i]) {
        parts[i] = i == 0 ? sluice_pictures_entry_of_pictures() : sluice_pictures_entry_of_codecs();
        check(parts[i] != NULL);
    }
    return parts[i];
}

static struct picture_plan plan_of(const uint8_t choice[CHOICE_BYTES]) {
    static const enum datatype datatypes[] = {DT_UINT8, DT_INT16, DT_FP32, DT_FP64, DT_FP16};
    return (struct picture_plan){
        .width = choice[0] % 40u + 1,
        .height = choice[0] / 40u * 9 + 1,
        .color = (enum picture_color)(choice[1] % 3),
        .fit = (enum picture_fit)(choice[1] / 3 % 3),
        .filter = (enum picture_filter)(choice[1] / 9 % 5),
        .layout = (enum picture_layout)(choice[1] / 45 % 2),
        .datatype = datatypes[choice[2] % 5],
        .scale = choice[2] / 5 - 20.0,
        .mean = {0, 1, -300},
        .std = {1, 0.5, 2},
        .pad = choice[2],
    };
}

static void decode(const struct picture_part *part, const uint8_t *data, size_t size) {
    struct picture_plan plan = plan_of(data);
    struct str file = str_make((const char *)data + CHOICE_BYTES, size - CHOICE_BYTES);
    struct error err = {0};
    size_t n_out = 0;
    check(picture_plan_bytes(&plan, &n_out));
    uint8_t *out = malloc(n_out + MARGIN);
    check(out != NULL);
    memset(out + n_out, MARK, MARGIN);
    enum status st = picture_decode(part, MAX_PIXELS, &plan, file, out, &err);
    check(st == ST_OK || st == ST_BAD_PICTURE || st == ST_BODY_TOO_LARGE);
    check(st == ST_OK || err.text[0] != '\0');
    check(part->held_bytes() < MOST_HELD_BYTES); /* memory left by a run accumulates */
    for (size_t i = n_out; i < n_out + MARGIN; i++) {
        check(out[i] == MARK); /* detects writes by decoders without instrumentation */
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int i = 0; size >= CHOICE_BYTES && i < N_PARTS; i++) {
        decode(load_part(i), data, size);
    }
    return 0;
}
