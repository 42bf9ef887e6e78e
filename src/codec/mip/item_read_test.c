/* Items as tensors: JSON and TEXT in each datatype and shape, to the bit, and errors with their
 * path. Each text is in memory of exactly its size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"
#include "codec/mip/item.h"

enum { MAX_RANK = 4 };

/* A row's shape: DIMS(2, -1), SCALAR. */
struct dims {
    size_t rank;
    int64_t dims[MAX_RANK];
};
#define DIMS(...)                                                                                  \
    {                                                                                              \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {                                      \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SCALAR                                                                                     \
    { .rank = 0 }

static enum status read_item(struct arena *arena, enum mip_item_type type, struct str text,
                             enum datatype datatype, const struct dims *dims,
                             const struct json_limits *limits, struct tensor *out,
                             struct error *err) {
    struct shape shape = {dims->dims, dims->rank};
    char *exact = malloc(text.len + (text.len == 0));
    memcpy(exact, text.ptr, text.len);
    text.ptr = exact;
    *out = (struct tensor){.name = STR("x")};
    enum status status =
        type == MIP_TEXT
            ? mip_item_read_text(arena, text, "item 7", datatype, shape, limits, out, err)
            : mip_item_read_json(arena, text, "item 7", datatype, shape, limits, out, err);
    free(exact); /* the tensor has no view of it */
    return status;
}

static void check_taken(enum mip_item_type type, struct str text, enum datatype datatype,
                        const struct dims *dims, const char *expected) {
    struct arena *arena = arena_new(NULL, 0);
    struct tensor tensor;
    struct error err = {0};
    struct buf got;
    enum status status =
        read_item(arena, type, text, datatype, dims, &fixture_limits, &tensor, &err);
    if (status != ST_OK) {
        fail_msg("%s %.*s: %s", datatype_name(datatype), STR_ARG(text), err.text);
    }
    assert_true(str_is(tensor.name, "x"));
    assert_int_equal(tensor.datatype, datatype);
    assert_int_equal(tensor.n_pieces, 1);
    assert_int_equal(tensor.pieces[0].n_bytes, tensor.n_bytes);
    assert_int_equal((uintptr_t)tensor.pieces[0].data % 16, 0);
    buf_init(&got, arena, 0);
    fixture_tensor(&got, &tensor);
    buf_add_char(&got, '\0');
    const char *from_shape = strchr(got.data, '[');
    if (strcmp(from_shape, expected) != 0) {
        fail_msg("%s %.*s: expected %s, got %s", datatype_name(datatype), STR_ARG(text), expected,
                 from_shape);
    }
    arena_free(arena);
}

static void check_refused(enum mip_item_type type, struct str text, enum datatype datatype,
                          const struct dims *dims, enum status expected, const char *sentence) {
    struct arena *arena = arena_new(NULL, 0);
    struct tensor tensor;
    struct error err = {0};
    enum status status =
        read_item(arena, type, text, datatype, dims, &fixture_limits, &tensor, &err);
    if (status != expected || err.status != status || !strstr(err.text, sentence)) {
        fail_msg("%s %.*s: %s %s", datatype_name(datatype), STR_ARG(text), status_name(status),
                 err.text);
    }
    arena_free(arena);
}

/* ---- elements -------------------------------------------------------------------------------- */

static void mip_item_read_json_each_datatype_is_decoded(void **state) {
    static const struct {
        enum datatype datatype;
        const char *text; /* for a shape of [-1] */
        const char *expected;
    } rows[] = {
        {DT_BOOL, "[true,false,true]", "[3] 010001"},
        {DT_UINT8, "[0,128,255]", "[3] 0080ff"},
        {DT_UINT16, "[0,65535]", "[2] 0000ffff"},
        {DT_UINT32, "[0,4294967295]", "[2] 00000000ffffffff"},
        {DT_UINT64, "[0,18446744073709551615]", "[2] 0000000000000000ffffffffffffffff"},
        {DT_INT8, "[-128,127]", "[2] 807f"},
        {DT_INT16, "[-32768,32767]", "[2] 0080ff7f"},
        {DT_INT32, "[-2147483648,2147483647]", "[2] 00000080ffffff7f"},
        {DT_INT64, "[-9223372036854775808,9223372036854775807]",
         "[2] 0000000000000080ffffffffffffff7f"},
        {DT_FP16, "[1,-2.5,65504,6e-8,NaN,-Infinity]", "[6] 003c00c1ff7b0100007e00fc"},
        {DT_BF16, "[1,-2.5,3.3895e38,Infinity]", "[4] 803f20c07f7f807f"},
        {DT_FP32, "[0.1,-0.0,1e-45,3.4028235e38,NaN,Infinity,-Infinity]",
         "[7] cdcccc3d0000008001000000ffff7f7f0000c07f0000807f000080ff"},
        {DT_FP64, "[0.1,5e-324,NaN,-Infinity]",
         "[4] 9a9999999999b93f0100000000000000000000000000f87f000000000000f0ff"},
        {DT_BYTES, "[\"a\",\"\",\"\\u00e9\\u0000\"]", "[3] 01000000610000000003000000c3a900"},
    };
    static const struct dims any = DIMS(-1);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_taken(MIP_JSON, str_of(rows[i].text), rows[i].datatype, &any, rows[i].expected);
    }
}

static void mip_item_read_json_invalid_element_is_refused(void **state) {
    static const struct {
        enum datatype datatype;
        const char *text;
        const char *sentence;
    } rows[] = {
        {DT_BOOL, "[1]", "item 7[0]: expected true or false, got 1"},
        {DT_BOOL, "0", "item 7: expected true or false, got 0"},
        {DT_UINT8, "[0,256]", "item 7[1]: expected a whole number from 0 to 255, got 256"},
        {DT_UINT8, "[-1]", "got -1"},
        {DT_UINT16, "65536", "item 7: expected a whole number from 0 to 65535, got 65536"},
        {DT_UINT32, "[4294967296]", "got 4294967296"},
        {DT_UINT64, "[18446744073709551616]", "got 18446744073709551616"},
        {DT_INT8, "[128]", "got 128"},
        {DT_INT8, "-129", "got -129"},
        {DT_INT16, "[32768]", "got 32768"},
        {DT_INT32, "[2147483648]", "got 2147483648"},
        {DT_INT64, "[9223372036854775808]", "got 9223372036854775808"},
        {DT_INT64, "[-9223372036854775809]", "got -9223372036854775809"},
        {DT_INT32, "1.5", "item 7: expected a whole number from -2147483648 to 2147483647"},
        {DT_INT32, "1.0", "got 1.0"},
        {DT_INT32, "NaN", "got NaN"},
        {DT_BOOL, "[Infinity]", "got Infinity"},
        {DT_BYTES, "[NaN]", "got NaN"},
        {DT_INT32, "\"1\"", "got a string \"1\""},
        {DT_INT32, "null", "got null"},
        {DT_INT32, "{\"a\":1}",
         "item 7: expected a whole number from -2147483648 to 2147483647, "
         "got an object of 1"},
        {DT_FP32, "[1,{}]", "item 7[1]: expected a number within the range of FP32, got an object"},
        {DT_FP32, "1e39", "item 7: expected a number within the range of FP32, got 1e39"},
        {DT_FP32, "[true]", "got true"},
        {DT_FP16, "65520", "within the range of FP16"},
        {DT_BF16, "3.4e38", "within the range of BF16"},
        {DT_FP64, "1e400", "within the range of FP64"},
        {DT_BYTES, "1", "item 7: expected a string, got 1"},
        {DT_BYTES, "[\"a\",{}]", "item 7[1]: expected a string, got an object of 0"},
        {DT_BYTES, "null", "got null"},
    };
    static const struct dims any = DIMS(-1);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_refused(MIP_JSON, str_of(rows[i].text), rows[i].datatype, &any, ST_BAD_FIELD,
                      rows[i].sentence);
    }
}

/* ---- nesting --------------------------------------------------------------------------------- */

static void mip_item_read_json_nesting_matches_dims(void **state) {
    static const struct {
        struct dims dims;
        const char *text;
        const char *expected; /* of UINT8 */
    } rows[] = {
        /* one element */
        {SCALAR, "7", "[] 07"},
        {DIMS(1), "7", "[1] 07"},
        {DIMS(-1), "7", "[1] 07"},
        {DIMS(-1, 1, -1), "7", "[1,1,1] 07"},
        {SCALAR, "[[7]]", "[] 07"},
        {DIMS(1), "[7]", "[1] 07"},
        {DIMS(1), "[[[7]]]", "[1] 07"},
        /* nested as the shape */
        {DIMS(3), "[1,2,3]", "[3] 010203"},
        {DIMS(-1), "[1,2,3]", "[3] 010203"},
        {DIMS(2, 3), "[[1,2,3],[4,5,6]]", "[2,3] 010203040506"},
        {DIMS(-1, 3), "[[1,2,3],[4,5,6]]", "[2,3] 010203040506"},
        {DIMS(-1, -1), "[[1,2,3],[4,5,6]]", "[2,3] 010203040506"},
        {DIMS(2, 1, 2), "[[[1,2]],[[3,4]]]", "[2,1,2] 01020304"},
        {DIMS(-1, -1, -1), " [ [ [ 1 ] , [ 2 ] ] ]\n", "[1,2,1] 0102"},
        /* more or fewer ones at the front */
        {DIMS(3), "[[1,2,3]]", "[3] 010203"},
        {DIMS(-1), "[[[1,2,3]]]", "[3] 010203"},
        {DIMS(2, 2), "[[[1,2],[3,4]]]", "[2,2] 01020304"},
        {DIMS(1, 2, 2), "[[1,2],[3,4]]", "[1,2,2] 01020304"},
        {DIMS(-1, 2, 2), "[[1,2],[3,4]]", "[1,2,2] 01020304"},
        {DIMS(-1, -1), "[1,2,3]", "[1,3] 010203"},
        {DIMS(1, -1, 1, 3), "[1,2,3]", "[1,1,1,3] 010203"},
        /* flat */
        {DIMS(2, 2), "[1,2,3,4]", "[2,2] 01020304"},
        {DIMS(2, 2), "[[1,2,3,4]]", "[2,2] 01020304"},
        {DIMS(-1, 2), "[1,2,3,4]", "[2,2] 01020304"},
        {DIMS(2, -1), "[1,2,3,4]", "[2,2] 01020304"},
        {DIMS(2, 1), "[1,2]", "[2,1] 0102"},
        {DIMS(2, -1, 1), "[1,2,3,4,5,6]", "[2,3,1] 010203040506"},
        /* empty */
        {DIMS(0), "[]", "[0] "},
        {DIMS(-1), "[]", "[0] "},
        {DIMS(-1), "[[]]", "[0] "},
        {DIMS(2, 0), "[[],[]]", "[2,0] "},
        {DIMS(2, -1), "[[],[]]", "[2,0] "},
        {DIMS(2, 0, 3), "[[],[]]", "[2,0,3] "},
        {DIMS(-1, -1, -1), "[[],[]]", "[2,0,0] "},
        {DIMS(-1, 3), "[]", "[0,3] "},
        {DIMS(-1, -1), "[]", "[0,0] "},
        {DIMS(1, 0), "[]", "[1,0] "},
        {DIMS(0, -1), "[]", "[0,0] "},
        {DIMS(2, -1), "[]", "[2,0] "},
        {DIMS(2, 0), "[]", "[2,0] "},
        {DIMS(0, INT64_MAX, INT64_MAX), "[]", "[0,9223372036854775807,9223372036854775807] "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_taken(MIP_JSON, str_of(rows[i].text), DT_UINT8, &rows[i].dims, rows[i].expected);
    }
}

static void mip_item_read_json_wrong_nesting_is_refused(void **state) {
    static const struct {
        struct dims dims;
        const char *text;
        const char *sentence;
    } rows[] = {
        {SCALAR, "[1,2]", "item 7: expected a single value, got an array of shape [2]"},
        {SCALAR, "[]", "item 7: expected a single value, got an array of shape [0]"},
        {DIMS(1), "[]", "item 7: expected an array of 1 for shape [1], got an array of 0"},
        {DIMS(1), "[1,2]", "item 7: expected an array of 1 for shape [1], got an array of 2"},
        {DIMS(2), "7", "item 7: expected an array of shape [2], got 7"},
        {DIMS(0), "7", "item 7: expected an array of shape [0], got 7"},
        {DIMS(-1, 2), "7", "item 7: expected an array of shape [-1,2], got 7"},
        {DIMS(3), "[1,2]", "item 7: expected an array of 3 for shape [3], got an array of 2"},
        {DIMS(2, 3), "[[1,2],[3,4]]",
         "item 7[0]: expected an array of 3 for shape [2,3], got an array of 2"},
        {DIMS(-1, 3), "[[1,2],[3,4,5]]",
         "item 7[0]: expected an array of 3 for shape [-1,3], got an array of 2"},
        {DIMS(3, 2), "[[1,2],[3,4]]",
         "item 7: expected an array of 3 for shape [3,2], got an array of 2"},
        {DIMS(2, 2), "[1,2,3]", "item 7: expected an array of shape [2,2], got one of shape [3]"},
        {DIMS(2, 2), "[[[1],[2]],[[3],[4]]]",
         "item 7: expected an array of shape [2,2], got one of shape [2,2,1]"},
        {DIMS(4), "[[1,2],[3,4]]",
         "item 7: expected an array of shape [4], got one of shape [2,2]"},
        {DIMS(-1), "[[1],[2]]", "item 7: expected an array of shape [-1], got one of shape [2,1]"},
        {DIMS(2, -1), "[1,2,3]", "item 7: expected an array of shape [2,-1], got one of shape [3]"},
        {DIMS(2, -1, -1), "[1,2,3,4]",
         "item 7: expected an array of shape [2,-1,-1], got one of shape [4]"},
        {DIMS(0, -1), "[1]", "item 7: expected an array of shape [0,-1], got one of shape [1]"},
        {DIMS(2, 3), "[]", "item 7: expected an array of shape [2,3], got one of shape [0]"},
        {DIMS(2, 1), "[[],[]]", "item 7[0]: expected an array of 1 for shape [2,1]"},
        {DIMS(INT64_MAX, INT64_MAX), "[1]", "expected an array of shape [9223372036854775807,"},
        /* rows of different sizes */
        {DIMS(-1, -1), "[[1,2],[3]]",
         "item 7[1]: expected an array of 2, like the first at this depth, got an array of 1"},
        {DIMS(-1, -1), "[[1],[2,3]]", "item 7[1]: expected an array of 1"},
        {DIMS(2, 2), "[[1,2],3]",
         "item 7[1]: expected an array of 2, like the first at this depth, got 3"},
        {DIMS(2, 2), "[[1,2],{}]", "item 7[1]: expected an array of 2"},
        {DIMS(2, 2), "[[1,2],[3,[4]]]",
         "item 7[1][1]: expected an element, like the first at this depth, got an array of 1"},
        {DIMS(4), "[1,2,[],4]", "item 7[2]: expected an element"},
        {DIMS(2, 2), "[1,2,3,[4]]", "item 7[3]: expected an element"},
        {DIMS(-1, -1), "[[],[1]]", "item 7[1]: expected an array of 0"},
        {DIMS(-1, -1, -1), "[[[1]],[[]]]", "item 7[1][0]: expected an array of 1"},
        {DIMS(-1, -1), "[{\"a\":[1,2]},[]]", "item 7[1]: expected an element"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_refused(MIP_JSON, str_of(rows[i].text), DT_UINT8, &rows[i].dims, ST_BAD_SHAPE,
                      rows[i].sentence);
    }
}

/* Nested as deep as a shape can be, and deeper. */
static void mip_item_read_json_over_max_rank_is_refused(void **state) {
    (void)state;
    for (size_t depth = SHAPE_MAX_RANK - 1; depth <= SHAPE_MAX_RANK + 1; depth++) {
        struct arena *arena = arena_new(NULL, 0);
        int64_t dims[SHAPE_MAX_RANK];
        char text[2 * (SHAPE_MAX_RANK + 1) + 1];
        struct tensor tensor;
        struct error err = {0};
        for (size_t i = 0; i < SHAPE_MAX_RANK; i++) {
            dims[i] = -1;
        }
        memset(text, '[', depth);
        text[depth] = '7';
        memset(text + depth + 1, ']', depth);
        enum status status = mip_item_read_json(arena, str_make(text, 2 * depth + 1), "x", DT_UINT8,
                                                (struct shape){dims, SHAPE_MAX_RANK},
                                                &fixture_limits, &tensor, &err);
        if (depth <= SHAPE_MAX_RANK) {
            assert_int_equal(status, ST_OK);
            assert_int_equal(tensor.shape.rank, SHAPE_MAX_RANK);
            assert_int_equal(tensor.n_bytes, 1);
        } else {
            assert_int_equal(status, ST_BAD_SHAPE);
            assert_non_null(strstr(err.text, "expected at most 64 arrays nested"));
        }
        arena_free(arena);
    }
}

/* ---- texts and objects ----------------------------------------------------------------------- */

static void mip_item_read_json_strings_and_objects_become_bytes(void **state) {
    static const struct {
        struct dims dims;
        const char *text;
        const char *expected;
    } rows[] = {
        {SCALAR, "\"ab\"", "[] 020000006162"},
        {DIMS(1), "\"\"", "[1] 00000000"},
        {DIMS(-1), "\"\\u0000\"", "[1] 0100000000"},
        {DIMS(2, 1), "[[\"a\"],[\"b\"]]", "[2,1] 01000000610100000062"},
        /* an object is its own text, without whitespace and arrays around it */
        {SCALAR, "{}", "[] 020000007b7d"},
        {DIMS(1), " {\"a\": [1]} \n", "[1] 0a0000007b2261223a205b315d7d"},
        {DIMS(1), "[ {\"]\":{}} ]", "[1] 080000007b225d223a7b7d7d"},
        {DIMS(-1), "[[{\"[\":1}]]", "[1] 070000007b225b223a317d"},
        {DIMS(-1, 1), "{\"x\":NaN}", "[1,1] 090000007b2278223a4e614e7d"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_taken(MIP_JSON, str_of(rows[i].text), DT_BYTES, &rows[i].dims, rows[i].expected);
    }
    static const struct dims two = DIMS(2), any = DIMS(-1), pair = DIMS(2, -1);
    check_refused(MIP_JSON, STR("[{},{}]"), DT_BYTES, &two, ST_BAD_FIELD,
                  "item 7[0]: expected a string, got an object of 0");
    check_refused(MIP_JSON, STR("[{},{}]"), DT_BYTES, &any, ST_BAD_FIELD,
                  "item 7[0]: expected a string, got an object of 0");
    check_refused(MIP_JSON, STR("{}"), DT_BYTES, &pair, ST_BAD_SHAPE,
                  "item 7: expected an array of shape [2,-1], got an object of 0");
    check_refused(MIP_JSON, STR("{\"a\":\"\xff\"}"), DT_BYTES, &any, ST_BAD_JSON, "UTF-8");
}

static void mip_item_read_text_single_element_is_framed(void **state) {
    static const struct {
        struct dims dims;
        struct str text;
        const char *expected;
    } rows[] = {
        {SCALAR, {"kubemo", 6}, "[] 060000006b7562656d6f"},
        {DIMS(1), {"", 0}, "[1] 00000000"},
        {DIMS(-1), {"a\0b", 3}, "[1] 03000000610062"},
        {DIMS(1, 1), {"\xc3\xa9", 2}, "[1,1] 02000000c3a9"},
        {DIMS(-1, 1, -1), {"\xf0\x9f\x98\x80", 4}, "[1,1,1] 04000000f09f9880"},
        {DIMS(1), {"\"not\" [JSON", 11}, "[1] 0b000000226e6f7422205b4a534f4e"},
        {DIMS(1), {"\xef\xbb\xbf", 3}, "[1] 03000000efbbbf"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_taken(MIP_TEXT, rows[i].text, DT_BYTES, &rows[i].dims, rows[i].expected);
    }
}

static void mip_item_read_text_not_utf8_is_refused(void **state) {
    static const struct {
        struct str text;
        const char *sentence;
    } rows[] = {
        {{"\xff", 1}, "item 7: expected text in UTF-8, byte 0 of 1 is not"},
        {{"ab\xc3", 3}, "byte 2 of 3"},
        {{"ab\xc3(", 4}, "byte 2 of 4"},
        {{"\xc0\x80", 2}, "byte 0 of 2"},         /* an overlong NUL */
        {{"\xed\xa0\x80", 3}, "byte 0 of 3"},     /* a surrogate */
        {{"\xf4\x90\x80\x80", 4}, "byte 0 of 4"}, /* above U+10FFFF */
    };
    static const struct dims one = DIMS(1);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_refused(MIP_TEXT, rows[i].text, DT_BYTES, &one, ST_BAD_FIELD, rows[i].sentence);
    }
}

/* The protocol's reference implementation reads a text as JSON where no text is expected. */
static void mip_item_read_text_other_datatype_is_read_as_json(void **state) {
    static const struct dims one = DIMS(1), two = DIMS(2), any = DIMS(-1), none = DIMS(0);
    (void)state;
    check_taken(MIP_TEXT, STR("[1, 2.5]"), DT_FP32, &any, "[2] 0000803f00002040");
    check_taken(MIP_TEXT, STR("7"), DT_INT32, &one, "[1] 07000000");
    check_taken(MIP_TEXT, STR("[\"a\",\"b\"]"), DT_BYTES, &two, "[2] 01000000610100000062");
    check_taken(MIP_TEXT, STR("[]"), DT_BYTES, &none, "[0] ");
    check_refused(MIP_TEXT, STR("kubemo"), DT_INT32, &one, ST_BAD_JSON,
                  "item 7: malformed JSON at byte 0");
    check_refused(MIP_TEXT, STR(""), DT_INT32, &one, ST_BAD_JSON,
                  "item 7: expected JSON, got 0 bytes");
    check_refused(MIP_TEXT, STR("a"), DT_BYTES, &two, ST_BAD_JSON, "item 7: malformed JSON");
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void mip_item_read_json_malformed_is_refused(void **state) {
    static const struct dims any = DIMS(-1);
    static const struct {
        const char *text;
        const char *sentence;
    } rows[] = {
        {"", "item 7: expected JSON, got 0 bytes"}, {" ", "item 7: malformed JSON"},
        {"[1", "item 7: malformed JSON at byte 2"}, {"[1,]", "item 7: malformed JSON"},
        {"[nan]", "item 7: malformed JSON"},        {"\xef\xbb\xbf[1]", "BOM"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_refused(MIP_JSON, str_of(rows[i].text), DT_INT8, &any, ST_BAD_JSON, rows[i].sentence);
    }
    struct arena *arena = arena_new(NULL, 0);
    struct tensor tensor;
    struct error err = {0};
    assert_int_equal(
        read_item(arena, MIP_JSON, STR("[1]tail"), DT_INT8, &any, &fixture_limits, &tensor, &err),
        ST_BAD_JSON);
    assert_string_equal(err.text, "item 7: the JSON ends at byte 3 and 4 bytes follow it");
    arena_free(arena);
}

static void mip_item_read_json_over_limits_is_refused(void **state) {
    static const struct {
        struct json_limits limits;
        struct dims dims;
        const char *text;
        enum status status;
        const char *sentence;
    } rows[] = {
        {{7, 2, 2}, DIMS(-1, -1), "[[1,2]]", ST_OK, ""},
        {{6, 2, 2},
         DIMS(-1, -1),
         "[[1,2]]",
         ST_BODY_TOO_LARGE,
         "item 7: the JSON is 7 bytes long; the limit is 6 (--max-json-size)"},
        {{7, 1, 2},
         DIMS(-1, -1),
         "[[1,2]]",
         ST_TOO_DEEP,
         "item 7: JSON nesting depth exceeds maximum allowed limit (1): it is 2 levels deep "
         "(--max-json-depth)"},
        {{7, 2, 1},
         DIMS(-1, -1),
         "[[1,2]]",
         ST_TOO_MANY_ELEMENTS,
         "item 7: shape [1,2] has 2 elements; the limit is 1 (--max-tensor-elements)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct tensor tensor;
        struct error err = {0};
        enum status status = read_item(arena, MIP_JSON, str_of(rows[i].text), DT_UINT8,
                                       &rows[i].dims, &rows[i].limits, &tensor, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].sentence)) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

/* Depth and count limits are checked without memory for a tree; a tree and its elements fail
 * when memory is exhausted. */
static void mip_item_read_json_out_of_memory_is_reported(void **state) {
    enum { N = 200000 };
    static const struct dims any = DIMS(-1), one = DIMS(1);
    struct arena *arena = arena_new(NULL, 8192);
    struct json_limits limits = {N, 100, 10};
    struct tensor tensor;
    struct error err = {0};
    char *text = malloc(N);
    (void)state;
    memset(text, '[', N);
    assert_int_equal(
        read_item(arena, MIP_JSON, str_make(text, N), DT_UINT8, &any, &limits, &tensor, &err),
        ST_TOO_DEEP);
    for (size_t i = 1; i + 1 < N; i += 2) {
        text[i] = '1';
        text[i + 1] = ',';
    }
    text[N - 1] = ']';
    text[N - 2] = ' ';
    text[N - 3] = '1';
    assert_int_equal(
        read_item(arena, MIP_JSON, str_make(text, N), DT_UINT8, &any, &limits, &tensor, &err),
        ST_TOO_MANY_ELEMENTS);
    limits.max_tensor_elements = N;
    assert_int_equal(
        read_item(arena, MIP_JSON, str_make(text, N), DT_UINT8, &any, &limits, &tensor, &err),
        ST_NO_MEMORY);
    assert_int_equal(
        read_item(arena, MIP_TEXT, str_make(text, N), DT_BYTES, &one, &limits, &tensor, &err),
        ST_NO_MEMORY);
    assert_string_equal(err.text, "out of memory for the elements of item 7");
    arena_free(arena);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_item_read_json_each_datatype_is_decoded),
        cmocka_unit_test(mip_item_read_json_invalid_element_is_refused),
        cmocka_unit_test(mip_item_read_json_nesting_matches_dims),
        cmocka_unit_test(mip_item_read_json_wrong_nesting_is_refused),
        cmocka_unit_test(mip_item_read_json_over_max_rank_is_refused),
        cmocka_unit_test(mip_item_read_json_strings_and_objects_become_bytes),
        cmocka_unit_test(mip_item_read_text_single_element_is_framed),
        cmocka_unit_test(mip_item_read_text_not_utf8_is_refused),
        cmocka_unit_test(mip_item_read_text_other_datatype_is_read_as_json),
        cmocka_unit_test(mip_item_read_json_malformed_is_refused),
        cmocka_unit_test(mip_item_read_json_over_limits_is_refused),
        cmocka_unit_test(mip_item_read_json_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
