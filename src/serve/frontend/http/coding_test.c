/* Content-Encoding and Accept-Encoding: parsing and the choice of a coding. */
#include "serve/frontend/http/coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct http_head head_with(struct http_field *field, const char *name, const char *value) {
    *field = (struct http_field){str_of(name), str_of(value)};
    return (struct http_head){.fields = field, .n_fields = value ? 1 : 0};
}

static void coding_accept_encoding_selects_best(void **state) {
    (void)state;
    static const struct {
        const char *accept;
        enum http_coding coding;
    } cases[] = {
        {NULL, HTTP_IDENTITY},
        {"", HTTP_IDENTITY},
        {"gzip", HTTP_GZIP},
        {"GZIP", HTTP_GZIP},
        {"x-gzip", HTTP_GZIP},
        {"deflate", HTTP_DEFLATE},
        {"gzip, deflate", HTTP_GZIP},
        {"deflate, gzip", HTTP_DEFLATE},
        {"deflate,gzip", HTTP_DEFLATE},
        {"gzip;q=0.5, deflate;q=0.8", HTTP_DEFLATE},
        {"gzip ; q=0.5 , deflate ; q=0.8", HTTP_DEFLATE},
        {"gzip;q=0, deflate;q=0", HTTP_IDENTITY},
        {"gzip;q=0", HTTP_IDENTITY},
        {"identity, gzip;q=0.5", HTTP_IDENTITY},
        {"identity;q=0.5, gzip", HTTP_GZIP},
        {"*", HTTP_GZIP},
        {"*;q=0.1", HTTP_GZIP},
        {"*;q=0", HTTP_IDENTITY},
        {"gzip;q=0, *", HTTP_DEFLATE},
        {"br", HTTP_IDENTITY},
        {"br, gzip;q=0.1", HTTP_GZIP},
        {"gzip;q=2", HTTP_IDENTITY},
        {"gzip;q=abc", HTTP_IDENTITY},
        {",,gzip,,", HTTP_GZIP},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct http_field field;
        struct http_head head = head_with(&field, "accept-encoding", cases[i].accept);
        if (http_coding_of_answer(&head) != cases[i].coding) {
            fail_msg("Accept-Encoding: %s", cases[i].accept ? cases[i].accept : "(none)");
        }
    }
}

static void coding_content_encoding_is_parsed(void **state) {
    (void)state;
    static const struct {
        const char *encoding;
        enum status status;
        enum http_coding coding;
    } cases[] = {
        {NULL, ST_OK, HTTP_IDENTITY},
        {"", ST_OK, HTTP_IDENTITY},
        {"identity", ST_OK, HTTP_IDENTITY},
        {"gzip", ST_OK, HTTP_GZIP},
        {"Gzip", ST_OK, HTTP_GZIP},
        {"deflate", ST_OK, HTTP_DEFLATE},
        {"br", ST_UNKNOWN_ENCODING, 0},
        {"gzip, gzip", ST_UNKNOWN_ENCODING, 0},
        {"gzip, deflate", ST_UNKNOWN_ENCODING, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct http_field field;
        struct http_head head = head_with(&field, "CONTENT-ENCODING", cases[i].encoding);
        enum http_coding coding = HTTP_IDENTITY;
        struct error err;
        assert_int_equal(http_coding_of_body(&head, &coding, &err), cases[i].status);
        if (cases[i].status == ST_OK) {
            assert_int_equal(coding, cases[i].coding);
        } else {
            assert_non_null(strstr(err.text, cases[i].encoding));
        }
    }
}

static void coding_two_content_encodings_are_refused(void **state) {
    (void)state;
    struct http_field fields[2] = {{STR("Content-Encoding"), STR("gzip")},
                                   {STR("Content-Encoding"), STR("gzip")}};
    struct http_head head = {.fields = fields, .n_fields = 2};
    enum http_coding coding;
    struct error err;
    assert_int_equal(http_coding_of_body(&head, &coding, &err), ST_UNKNOWN_ENCODING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coding_accept_encoding_selects_best),
        cmocka_unit_test(coding_content_encoding_is_parsed),
        cmocka_unit_test(coding_two_content_encodings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
