/* The value of Inference-Header-Content-Length: digits, once, within 63 bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/request.h"

static void v2_header_length_parse_rows_match(void **state) {
    static const struct {
        size_t n_fields;
        const char *value;
        enum status status;
        enum v2_header_kind kind;
        uint64_t json_bytes;
    } rows[] = {
        {0, "", ST_OK, V2_HEADER_ABSENT, 0},
        {1, "0", ST_OK, V2_HEADER_RAW, 0},
        {1, "00", ST_OK, V2_HEADER_RAW, 0},
        {1, "1", ST_OK, V2_HEADER_JSON, 1},
        {1, "007", ST_OK, V2_HEADER_JSON, 7},
        {1, "2147483648", ST_OK, V2_HEADER_JSON, UINT64_C(2147483648)},
        {1, "9223372036854775807", ST_OK, V2_HEADER_JSON, INT64_MAX},
        {1, "9223372036854775808", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "18446744073709551616", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "-1", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "+5", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "0x10", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "79 ", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "79, 79", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "1e2", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {1, "abc", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
        {2, "5", ST_BAD_FRAMING, V2_HEADER_ABSENT, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum v2_header_kind kind;
        uint64_t json_bytes;
        struct error err = {0};
        enum status status = v2_header_length_parse(rows[i].n_fields, str_of(rows[i].value), &kind,
                                                    &json_bytes, &err);
        if (status != rows[i].status || kind != rows[i].kind || json_bytes != rows[i].json_bytes) {
            fail_msg("%zu x \"%s\": %s %s", rows[i].n_fields, rows[i].value, status_name(status),
                     err.text);
        }
        if (status != ST_OK) {
            assert_non_null(strstr(err.text, "Inference-Header-Content-Length"));
            assert_non_null(strstr(err.text, rows[i].n_fields > 1 ? "got 2" : rows[i].value));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(v2_header_length_parse_rows_match)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
