/* Scanning a gRPC body for the model: rows, each cut at every byte and fed byte by byte; then
 * random messages, damaged and cut at random, compared with a decoder of whole messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/prompt/model_scan_grpc.h"
#include "codec/protobuf/pb.h"
#include "core/base/arena_fixture.h"

/* Feeds `body` in parts that end at `cuts`, each in its own allocation. */
static void scan_parts(struct str body, bool prefixed, const size_t *cuts, size_t n_cuts,
                       struct model_scan_grpc *scan) {
    size_t at = 0;
    model_scan_grpc_init(scan, arena, prefixed);
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t end = i < n_cuts ? cuts[i] : body.len;
        char *part = malloc(end - at + (end == at));
        memcpy(part, body.ptr + at, end - at);
        model_scan_grpc_feed(scan, str_make(part, end - at));
        free(part);
        at = end;
    }
    model_scan_grpc_finish(scan);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const struct row {
    const char *text; /* "~" stands for a NUL */
    bool prefixed;
    enum model_scan_result result;
    const char *name;
    size_t field_at, field_bytes;
} rows[] = {
    {"~~~~\x05\x0a\x03"
     "abc",
     true, MODEL_SCAN_FOUND, "abc", 5, 5},
    {"\x0a\x03"
     "abc",
     false, MODEL_SCAN_FOUND, "abc", 0, 5},
    {"~~~~\x07\x0a\x03"
     "abc\x12\x01", /* bytes after the name are not read */
     true, MODEL_SCAN_FOUND, "abc", 5, 5},
    {"~~~~\x18\x12\x01"
     "1\x20\xac\x02\x2d"
     "1234\x31"
     "12345678\x0a\x01m",
     true, MODEL_SCAN_FOUND, "m", 25, 3},
    {"~~~~\x02\x0a~", true, MODEL_SCAN_FOUND, "", 5, 2},
    {"~~~~\x04\x0a\x02\xc3\xa9", true, MODEL_SCAN_FOUND, "\xc3\xa9", 5, 4},
    {"~~~~\x05\x0a\x83~abc", true, MODEL_SCAN_MALFORMED, NULL, 0, 0}, /* truncated by the prefix */
    {"~~~~\x06\x0a\x83~abc", true, MODEL_SCAN_FOUND, "abc", 5, 6},
    {"~~~~~", true, MODEL_SCAN_ABSENT, NULL, 0, 0},
    {"", false, MODEL_SCAN_ABSENT, NULL, 0, 0},
    {"~~~~\x05\x12\x03"
     "abc",
     true, MODEL_SCAN_ABSENT, NULL, 0, 0},
    {"~~~~\x02\x12~~~~~\x03\x0a\x01m", true, MODEL_SCAN_ABSENT, NULL, 0,
     0}, /* only the first message */
    {"\x12\x03"
     "abc",
     false, MODEL_SCAN_ABSENT, NULL, 0, 0},
    {"\x01~~~\x05xxxxx", true, MODEL_SCAN_COMPRESSED, NULL, 0, 0},
    {"~~~~\x02\x08\x05", true, MODEL_SCAN_OTHER_TYPE, NULL, 0, 0},
    {"~~~~\x05\x0d"
     "1234",
     true, MODEL_SCAN_OTHER_TYPE, NULL, 0, 0},
    {"", true, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"~~~", true, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"~~~~\x05\x0a\x03"
     "ab",
     true, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"\x0a\x03"
     "ab",
     false, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"\x12", false, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"\x02~~~\x05\x0a\x03"
     "abc",
     true, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"~~~~\x04\x0a\x03"
     "abc",
     true, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"~~~~\x04\x12\x7f"
     "ab",
     true, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"~~~~\x02\x22\x85", true, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"\x13\x0a\x01m\x14", false, MODEL_SCAN_MALFORMED, NULL, 0, 0}, /* a group */
    {"\x17\x01", false, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"~\x01", false, MODEL_SCAN_MALFORMED, NULL, 0, 0}, /* number 0 */
    {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", false, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", false, MODEL_SCAN_MALFORMED, NULL, 0, 0},
    {"\x0a\x02\xff\xff", false, MODEL_SCAN_MALFORMED, NULL, 0, 0},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]), MOST_BYTES = 64 };

static void check_row(const struct row *row, size_t i, const struct model_scan_grpc *scan) {
    struct error err = {0};
    if (scan->result != row->result) {
        fail_msg("row %zu: %d", i, scan->result);
    }
    enum status status = model_scan_grpc_check(scan, &err);
    assert_int_equal(status, err.status);
    assert_int_equal(status == ST_OK, row->result == MODEL_SCAN_FOUND);
    assert_int_equal(err.text[0] == '\0', row->result == MODEL_SCAN_FOUND);
    if (row->result == MODEL_SCAN_FOUND) {
        assert_true(str_is(buf_str(&scan->name), row->name));
        assert_int_equal(scan->field_at, row->field_at);
        assert_int_equal(scan->field_bytes, row->field_bytes);
        assert_int_equal(scan->message_at, row->prefixed ? 5 : 0);
    }
}

static void model_scan_grpc_rows_at_each_split_match(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t n = strlen(rows[i].text), all[MOST_BYTES];
        char bytes[MOST_BYTES];
        struct model_scan_grpc scan;
        assert_true(n <= MOST_BYTES);
        for (size_t k = 0; k < n; k++) {
            bytes[k] = (char)(rows[i].text[k] == '~' ? 0 : rows[i].text[k]);
            all[k] = k;
        }
        struct str body = str_make(bytes, n);
        for (size_t cut = 0; cut <= n; cut++) {
            scan_parts(body, rows[i].prefixed, &cut, 1, &scan);
            check_row(&rows[i], i, &scan);
        }
        scan_parts(body, rows[i].prefixed, all, n, &scan);
        check_row(&rows[i], i, &scan);
    }
}

/* A name over the limit is rejected by its length, before its bytes come. */
static void model_scan_grpc_name_over_max_is_refused_early(void **state) {
    struct model_scan_grpc scan;
    struct error err;
    struct buf head;
    (void)state;
    buf_init(&head, arena, 0);
    pb_add_head(&head, 1, MODEL_SCAN_MAX_BYTES + 1);
    model_scan_grpc_init(&scan, arena, false);
    assert_int_equal(model_scan_grpc_feed(&scan, buf_str(&head)), MODEL_SCAN_TOO_LONG);
    assert_int_equal(model_scan_grpc_check(&scan, &err), ST_BAD_FIELD);
    assert_non_null(strstr(err.text, "4096"));
    head.len = 0;
    pb_add_head(&head, 1, MODEL_SCAN_MAX_BYTES);
    model_scan_grpc_init(&scan, arena, false);
    model_scan_grpc_feed(&scan, buf_str(&head));
    for (size_t i = 0; i < MODEL_SCAN_MAX_BYTES; i++) {
        assert_int_equal(scan.result, MODEL_SCAN_MORE);
        model_scan_grpc_feed(&scan, STR("x"));
    }
    assert_int_equal(scan.result, MODEL_SCAN_FOUND);
}

/* ---- compared with a decoder of whole messages ----------------------------------------------- */

static uint64_t seed = 0x9e3779b97f4a7c15u;

static size_t below(size_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(seed >> 11) % n;
}

static void add_message(struct buf *out) {
    static const char bytes[300];
    for (size_t n = below(6); n > 0; n--) {
        uint32_t number = (uint32_t)(below(4) == 0 ? 1 : 2 + below(600));
        size_t what = number == 1 ? 0 : below(4);
        if (what == 0) {
            pb_add_bytes(out, number, str_make(bytes, below(sizeof(bytes))));
        } else if (what == 1) {
            pb_add_varint(out, number, (uint64_t)below(SIZE_MAX) << below(3));
        } else if (what == 2) {
            pb_add_fixed64(out, number, 7);
        } else {
            pb_add_fixed32(out, number, 7);
        }
    }
}

/* The result of decoding the whole message: the first model_name, if the fields before it are
 * valid. */
static enum model_scan_result read_whole(struct str message, struct str *name) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        if (field.number == 1) {
            *name = field.bytes;
            return field.type == PB_BYTES ? MODEL_SCAN_FOUND : MODEL_SCAN_OTHER_TYPE;
        }
    }
    return reader.error_text ? MODEL_SCAN_MALFORMED : MODEL_SCAN_ABSENT;
}

static void damage(struct buf *body) {
    if (below(2) == 0) {
        body->len = below(body->len + 1);
    } else if (body->len > 0) {
        body->data[below(body->len)] ^= (char)(1 << below(7));
    }
}

static void check_random(bool damaged) {
    struct buf message, body;
    struct model_scan_grpc whole, parts;
    struct str name = STR("");
    size_t cuts[4], n_cuts = below(5);
    buf_init(&message, arena, 256);
    buf_init(&body, arena, 256);
    add_message(&message);
    buf_add(&body, "\0\0\0", 3);
    buf_add_char(&body, (char)(message.len >> 8));
    buf_add_char(&body, (char)message.len);
    buf_add_str(&body, buf_str(&message));
    if (damaged) {
        damage(&body);
    }
    for (size_t i = 0, at = 0; i < n_cuts; i++) {
        at += below(body.len - at + 1);
        cuts[i] = at;
    }
    scan_parts(buf_str(&body), true, NULL, 0, &whole);
    scan_parts(buf_str(&body), true, cuts, n_cuts, &parts);
    assert_int_equal(whole.result, parts.result);
    assert_int_equal(whole.at, parts.at);
    assert_true(str_eq(buf_str(&whole.name), buf_str(&parts.name)));
    if (!damaged) {
        assert_int_equal(read_whole(buf_str(&message), &name), whole.result);
        assert_true(whole.result != MODEL_SCAN_FOUND || str_eq(buf_str(&whole.name), name));
        assert_int_equal(whole.message_bytes, message.len);
    }
}

static void model_scan_grpc_random_messages_match_full_reader(void **state) {
    (void)state;
    for (size_t round = 0; round < 20000; round++) {
        struct arena *outer = arena;
        arena = arena_new(NULL, 0);
        check_random(round % 3 == 0);
        arena_free(arena);
        arena = outer;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(model_scan_grpc_rows_at_each_split_match, setup, teardown),
        cmocka_unit_test_setup_teardown(model_scan_grpc_name_over_max_is_refused_early, setup,
                                        teardown),
        cmocka_unit_test(model_scan_grpc_random_messages_match_full_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
