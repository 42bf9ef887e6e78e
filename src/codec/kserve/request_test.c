/* Requests: each row is a JSON text, with or without tensor bytes after it, and its meaning in
 * one line or its error. */
#include "codec/kserve/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"

/* Decodes `json` followed by `binary`, in memory of exactly that size. */
static enum status decode(struct arena *arena, const char *json, struct str binary,
                          struct v2_request *request, struct error *err) {
    size_t json_bytes = strlen(json);
    char *body = arena_alloc(arena, json_bytes + binary.len);
    memcpy(body, json, json_bytes);
    if (binary.len > 0) {
        memcpy(body + json_bytes, binary.ptr, binary.len);
    }
    return v2_request_decode(arena, str_make(body, json_bytes + binary.len), json_bytes,
                             &fixture_limits, request, err);
}

#define INPUT(members) "{\"inputs\":[{\"name\":\"x\"," members "}]}"
#define ONE INPUT("\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[7]")
#define WITH(members)                                                                              \
    "{" members ",\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[7]}]" \
    "}"

static const struct {
    const char *json;
    struct str binary;
    const char *meaning;
} good[] = {
    {ONE, {"", 0}, "; x UINT8[1] 07"},
    {WITH("\"id\":\"a\\u0000b\""), {"", 0}, "id=a"}, /* %.*s stops at the NUL */
    {WITH("\"id\":\"\""), {"", 0}, "; x UINT8[1] 07"},
    {WITH("\"model_name\":\"m\",\"model_version\":[],\"x\":{\"inputs\":1}"),
     {"", 0},
     "; x UINT8[1] 07"},
    {"{\"inputs\":[]}", {"", 0}, ""},
    {"{\"inputs\":[],\"outputs\":[]}", {"", 0}, ""},
    /* parameters */
    {WITH("\"parameters\":{}"), {"", 0}, "; x UINT8[1] 07"},
    {WITH("\"parameters\":{\"a\":\"t\",\"b\":-3,\"c\":9223372036854775808,\"d\":1.5,\"e\":true}"),
     {"", 0},
     " a=\"t\" b=i-3 c=u9223372036854775808 d=d1.5 e=true; x UINT8[1] 07"},
    {WITH("\"parameters\":{\"binary_data\":1,\"binary_data_size\":-1,\"classification\":2}"),
     {"", 0},
     " binary_data=i1 binary_data_size=i-1 classification=i2; x UINT8[1] 07"},
    {WITH("\"parameters\":{\"binary_data_output\":true,\"p\":1}"),
     {"", 0},
     " binary p=i1; x UINT8[1] 07"},
    {WITH("\"parameters\":{\"binary_data_output\":false}"), {"", 0}, "; x UINT8[1] 07"},
    {INPUT("\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[7],\"parameters\":{\"q\":false}"),
     {"", 0},
     "; x UINT8[1] 07 q=false"},
    /* of equal keys the first counts */
    {WITH("\"id\":\"1\",\"id\":2"), {"", 0}, "id=1; x UINT8[1] 07"},
    {WITH("\"parameters\":{\"a\":1,\"b\":2,\"a\":3,\"b\":4,\"a\":5}"),
     {"", 0},
     " a=i1 b=i2; x UINT8[1] 07"},
    {WITH("\"parameters\":{\"binary_data_output\":false,\"binary_data_output\":true}"),
     {"", 0},
     "; x UINT8[1] 07"},
    {INPUT("\"shape\":[1],\"shape\":\"no\",\"name\":\"y\",\"datatype\":\"UINT8\",\"data\":[7],"
           "\"data\":null"),
     {"", 0},
     "; x UINT8[1] 07"},
    {ONE "    ", {"", 0}, "; x UINT8[1] 07"},
    /* null: as if absent */
    {WITH("\"id\":null,\"parameters\":null,\"outputs\":null"), {"", 0}, "; x UINT8[1] 07"},
    {WITH("\"id\":null,\"id\":\"1\",\"parameters\":{\"a\":null,\"a\":2,\"binary_data_output\":"
          "null}"),
     {"", 0},
     "id=1 a=i2; x UINT8[1] 07"},
    {INPUT("\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[7],\"parameters\":null"),
     {"", 0},
     "; x UINT8[1] 07"},
    {INPUT("\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[7],\"parameters\":{\"q\":null,"
           "\"binary_data_size\":null,\"shared_memory_region\":null,\"shared_memory_offset\":null,"
           "\"shared_memory_byte_size\":null}"),
     {"", 0},
     "; x UINT8[1] 07"},
    {INPUT("\"shape\":[1],\"datatype\":\"UINT8\",\"data\":null,\"parameters\":{\"binary_data_"
           "size\":1}"),
     {"\7", 1},
     "; x UINT8[1] 07"},
    {WITH("\"outputs\":[{\"name\":\"a\",\"parameters\":null},{\"name\":\"b\",\"parameters\":"
          "{\"binary_data\":null,\"classification\":null,\"r\":null}}]"),
     {"", 0},
     "; x UINT8[1] 07; a; b"},
    /* outputs */
    {WITH("\"outputs\":[{\"name\":\"a\"},{\"name\":\"b\",\"parameters\":{\"binary_data\":true}},"
          "{\"name\":\"c\",\"parameters\":{\"binary_data\":false,\"r\":1,\"classification\":0}}]"),
     {"", 0},
     "; x UINT8[1] 07; a; b binary; c json r=i1"},
    {WITH("\"outputs\":[{\"name\":\"a\",\"parameters\":{\"classification\":3,"
          "\"classification\":4}}]"),
     {"", 0},
     "; x UINT8[1] 07; a best=3"},
    {WITH("\"outputs\":[{\"name\":\"a\",\"name\":\"b\",\"x\":null}]"),
     {"", 0},
     "; x UINT8[1] 07; a"},
    /* binary */
    {INPUT("\"shape\":[2,2],\"datatype\":\"UINT32\",\"parameters\":{\"binary_data_size\":16}"),
     {"\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0", 16},
     "; x UINT32[2,2] 01000000020000000300000004000000"},
    {INPUT("\"shape\":[0],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":0}"),
     {"", 0},
     "; x FP32[0] "},
    {"{\"inputs\":["
     "{\"name\":\"a\",\"shape\":[2],\"datatype\":\"INT16\",\"parameters\":{\"binary_data_size\":4}}"
     ","
     "{\"name\":\"b\",\"shape\":[2],\"datatype\":\"INT16\",\"data\":[-1,[2]]},"
     "{\"name\":\"c\",\"shape\":[],\"datatype\":\"BOOL\",\"parameters\":{\"s\":1.0,"
     "\"binary_data_size\":1}}]}",
     {"\1\2\3\4\1", 5},
     "; a INT16[2] 01020304; b INT16[2] ffff0200; c BOOL[] 01 s=d1"},
    /* the document's own example */
    {"{ \"model_name\" : \"mymodel\", \"inputs\" : [ { \"name\" : \"input0\", \"shape\" : [ 2, 2 "
     "], "
     "\"datatype\" : \"UINT32\", \"parameters\" : { \"binary_data_size\" : 16 } }, { \"name\" : "
     "\"input1\", \"shape\" : [ 3 ], \"datatype\" : \"BOOL\", \"parameters\" : { "
     "\"binary_data_size\" : 3 } } ], \"outputs\" : [ { \"name\" : \"output0\", \"parameters\" : { "
     "\"binary_data\" : true } } ] }",
     {"\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\1\0\1", 19},
     "; input0 UINT32[2,2] 01000000020000000300000004000000; input1 BOOL[3] 010001; output0 "
     "binary"},
    /* non-finite words inside float data */
    {INPUT("\"shape\":[2],\"datatype\":\"FP32\",\"data\":[NaN,[-Infinity]]"),
     {"", 0},
     "; x FP32[2] 0000c07f000080ff"},
    {"{\"inputs\":[{\"name\":\"NaN\",\"shape\":[1],\"datatype\":\"FP16\",\"data\":[Infinity]},"
     "{\"name\":\"b\",\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[1]},"
     "{\"name\":\"c\",\"shape\":[1],\"datatype\":\"FP64\",\"data\":[NaN]}]}",
     {"", 0},
     "; NaN FP16[1] 007c; b UINT8[1] 01; c FP64[1] 000000000000f87f"},
};

static void v2_request_decode_rows_match(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request;
        struct error err = {0};
        if (decode(arena, good[i].json, good[i].binary, &request, &err) != ST_OK) {
            fail_msg("%s: %s", good[i].json, err.text);
        }
        const char *meaning = fixture_request(arena, &request);
        if (strncmp(meaning, good[i].meaning, strlen(good[i].meaning)) != 0 ||
            (strcmp(meaning, good[i].meaning) != 0 && request.infer.id.len != 3)) {
            fail_msg("%s:\n  expected %s\n  got      %s", good[i].json, good[i].meaning, meaning);
        }
        arena_free(arena);
    }
}

#define SIZED(shape, datatype, size)                                                               \
    INPUT("\"shape\":" shape ",\"datatype\":\"" datatype                                           \
          "\",\"parameters\":{\"binary_data_size\":" size "}")

static const struct {
    const char *json;
    struct str binary;
    enum status status;
    const char *sentence;
} bad[] = {
    {"[]", {"", 0}, ST_BAD_FIELD, "the request: expected an object, got an array of 0"},
    {"1", {"", 0}, ST_BAD_FIELD, "the request: expected an object, got 1"},
    {"null", {"", 0}, ST_BAD_FIELD, "expected an object, got null"},
    {"{}", {"", 0}, ST_BAD_FIELD, "inputs: missing; expected an array of tensors"},
    /* wrong values; tests/scenario/021 has wrong JSON types of all members */
    {INPUT("\"shape\":[1,\"4\"],\"datatype\":\"INT8\",\"data\":[1]"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].shape[1]: expected a whole number from 0 to 9223372036854775807, got a string "
     "\"4\""},
    {INPUT("\"shape\":[-1],\"datatype\":\"INT8\",\"data\":[1]"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].shape[0]: expected a whole number from 0 to 9223372036854775807, got -1"},
    {INPUT("\"shape\":[1.0],\"datatype\":\"INT8\",\"data\":[1]"), {"", 0}, ST_BAD_FIELD, "got 1.0"},
    {INPUT("\"shape\":[1e0],\"datatype\":\"INT8\",\"data\":[1]"), {"", 0}, ST_BAD_FIELD, "got 1.0"},
    {INPUT("\"shape\":[9223372036854775808],\"datatype\":\"INT8\",\"data\":[1]"),
     {"", 0},
     ST_BAD_FIELD,
     "got 9223372036854775808"},
    {INPUT("\"shape\":[18446744073709551620],\"datatype\":\"INT8\",\"data\":[1]"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].shape[0]: expected a whole number from 0 to 9223372036854775807, got "
     "18446744073709551620"},
    {SIZED("[4294967296,4294967297]", "INT8", "0"),
     {"", 0},
     ST_BAD_SHAPE,
     "inputs[0].shape: shape "
     "[4294967296,4294967297]"},
    {SIZED("[2147483648]", "INT8", "0"), {"", 0}, ST_TOO_MANY_ELEMENTS, "--max-tensor-elements"},
    {SIZED("[65536,65536]", "INT8", "0"),
     {"", 0},
     ST_TOO_MANY_ELEMENTS,
     "inputs[0].shape: shape [65536,65536] has 4294967296 elements; the limit is 100000"},
    {SIZED("[9223372036854775807]", "FP32", "0"),
     {"", 0},
     ST_TOO_MANY_ELEMENTS,
     "has 9223372036854775807 elements"},
    {SIZED("[4294967296,2147483648]", "FP32", "0"), {"", 0}, ST_BAD_SHAPE, "total element count"},
    {SIZED("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
           "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
           "INT8", "1"),
     {"x", 1},
     ST_BAD_SHAPE,
     "inputs[0].shape: expected at most 64 dimensions, got 65"},
    {INPUT("\"shape\":[1],\"datatype\":\"FP31\",\"data\":[1]"),
     {"", 0},
     ST_BAD_DATATYPE,
     "inputs[0].datatype: expected BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, "
     "FP16, FP32, FP64, BF16 or BYTES, got a string \"FP31\""},
    {INPUT("\"shape\":[1],\"datatype\":\"fp32\",\"data\":[1]"), {"", 0}, ST_BAD_DATATYPE, "fp32"},
    {INPUT("\"shape\":[1],\"datatype\":\"INVALID\",\"data\":[1]"), {"", 0}, ST_BAD_DATATYPE, ""},
    {"{\"inputs\":[{\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}]}",
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].name: missing; expected a string"},
    {INPUT("\"shape\":[1],\"data\":[1]"), {"", 0}, ST_BAD_FIELD, "inputs[0].datatype: missing"},
    {INPUT("\"datatype\":\"INT8\",\"data\":[1]"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].shape: missing; expected an array of whole numbers"},
    {INPUT("\"shape\":[1],\"datatype\":\"INT8\""),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].data: missing; expected an array of the elements here, or their bytes after the "
     "JSON and the parameter \"binary_data_size\""},
    {INPUT("\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1],\"parameters\":{\"binary_data_size\":"
           "1}"),
     {"x", 1},
     ST_BAD_FIELD,
     "inputs[0]: expected one of \"data\" and the parameter \"binary_data_size\", got both"},
    {WITH("\"outputs\":[{}]"),
     {"", 0},
     ST_BAD_FIELD,
     "outputs[0].name: missing; expected a string"},
    /* parameters */
    {WITH("\"parameters\":{\"a\":[1]}"), {"", 0}, ST_BAD_FIELD, "got an array of 1"},
    {WITH("\"parameters\":{\"a\":{}}"), {"", 0}, ST_BAD_FIELD, "got an object of 0"},
    {WITH("\"parameters\":{\"a\":1e400}"),
     {"", 0},
     ST_BAD_FIELD,
     "parameters.a: expected a finite number that fits 64 bits, got 1e400"},
    {WITH("\"parameters\":{\"a\":18446744073709551616}"), {"", 0}, ST_BAD_FIELD, "fits 64 bits"},
    {WITH("\"parameters\":{\"a\":NaN}"), {"", 0}, ST_BAD_FIELD, "finite number"},
    {WITH("\"parameters\":{\"triton_x\":1}"),
     {"", 0},
     ST_BAD_FIELD,
     "parameters.triton_x: parameters whose names begin with \"triton_\" are reserved"},
    {WITH("\"parameters\":{\"binary_data_output\":1}"),
     {"", 0},
     ST_BAD_FIELD,
     "parameters.binary_data_output: expected true or false, got 1"},
    {WITH("\"outputs\":[{\"name\":\"a\",\"parameters\":{\"binary_data\":\"true\"}}]"),
     {"", 0},
     ST_BAD_FIELD,
     "outputs[0].parameters.binary_data: expected true or false, got a string"},
    {WITH("\"outputs\":[{\"name\":\"a\",\"parameters\":{\"classification\":\"3\"}}]"),
     {"", 0},
     ST_BAD_FIELD,
     "outputs[0].parameters.classification: expected a whole number from 0 to"},
    {WITH("\"outputs\":[{\"name\":\"a\",\"parameters\":{\"classification\":-1}}]"),
     {"", 0},
     ST_BAD_FIELD,
     "whole number"},
    {WITH("\"outputs\":[{\"name\":\"a\",\"parameters\":{\"shared_memory_region\":\"r\"}}]"),
     {"", 0},
     ST_BAD_FIELD,
     "outputs[0].parameters.shared_memory_byte_size: missing"},
    {INPUT("\"shape\":[1],\"datatype\":\"INT8\",\"parameters\":{\"shared_memory_byte_size\":4}"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].parameters.shared_memory_region: missing"},
    /* sizes */
    {SIZED("[4]", "INT8", "-1"),
     {"abcd", 4},
     ST_BAD_FIELD,
     "inputs[0].parameters.binary_data_size: expected a whole number from 0 to "
     "9223372036854775807, got -1"},
    {SIZED("[4]", "INT8", "4.0"), {"abcd", 4}, ST_BAD_FIELD, "got 4.0"},
    {SIZED("[4]", "INT8", "\"4\""), {"abcd", 4}, ST_BAD_FIELD, "got a string \"4\""},
    {SIZED("[4]", "INT8", "true"), {"abcd", 4}, ST_BAD_FIELD, "got true"},
    {SIZED("[4]", "INT8", "9223372036854775808"), {"abcd", 4}, ST_BAD_FIELD, "got 92233"},
    {SIZED("[4]", "INT8", "9223372036854775807"),
     {"abcd", 4},
     ST_BAD_FRAMING,
     "expected 9223372036854775807 bytes of tensor data here, got 4"},
    {SIZED("[4]", "INT8", "4"),
     {"abc", 3},
     ST_BAD_FRAMING,
     "inputs[0].parameters.binary_data_size: expected 4 bytes of tensor data here, got 3 (3 follow "
     "the JSON, the tensors before this one take 0)"},
    {SIZED("[4]", "INT8", "4"),
     {"abcde", 5},
     ST_BAD_FRAMING,
     "the request: expected 4 bytes after the JSON (the sum of binary_data_size), got 5 (1 too "
     "many)"},
    {ONE, {"a", 1}, ST_BAD_FRAMING, "expected 0 bytes after the JSON"},
    {"{\"inputs\":["
     "{\"name\":\"a\",\"shape\":[2],\"datatype\":\"INT8\",\"parameters\":{\"binary_data_size\":2}},"
     "{\"name\":\"b\",\"shape\":[2],\"datatype\":\"INT8\",\"parameters\":{\"binary_data_size\":2}}]"
     "}",
     {"abc", 3},
     ST_BAD_FRAMING,
     "inputs[1].parameters.binary_data_size: expected 2 bytes of tensor data here, got 1 (3 follow "
     "the JSON, the tensors before this one take 2)"},
    {SIZED("[4]", "INT8", "4"),
     {"", 0},
     ST_BAD_FRAMING,
     "Inference-Header-Content-Length is missing"},
    {SIZED("[4]", "INT8", "4") "abcd",
     {"", 0},
     ST_BAD_JSON,
     "Inference-Header-Content-Length is missing"},
    {SIZED("[4]", "INT8", "4") "[[[[",
     {"", 0},
     ST_BAD_JSON,
     "Inference-Header-Content-Length is missing"},
    {SIZED("[4]", "INT8", "4") "    ",
     {"", 0},
     ST_BAD_FRAMING,
     "Inference-Header-Content-Length is missing"},
    /* NaN outside float data, unknown members included */
    {WITH("\"x\":[NaN]"), {"", 0}, ST_BAD_FIELD, "x[0]: expected a finite number"},
    {WITH("\"x\":{\"data\":-Infinity}"), {"", 0}, ST_BAD_FIELD, "x.data: expected a finite"},
    {INPUT("\"shape\":[1],\"datatype\":\"FP32\",\"data\":[NaN],\"y\":NaN"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].y: expected a finite number"},
    {INPUT("\"shape\":[1],\"datatype\":\"FP32\",\"data\":[NaN],\"data\":[NaN]"),
     {"", 0},
     ST_BAD_FIELD,
     "finite number"},
    {INPUT("\"shape\":[1],\"datatype\":\"INT32\",\"data\":[NaN]"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].data[0]: expected a whole number from -2147483648 to 2147483647, got NaN"},
    {INPUT("\"shape\":[NaN],\"datatype\":\"INT32\",\"data\":[1]"),
     {"", 0},
     ST_BAD_FIELD,
     "inputs[0].shape[0]: expected a whole number"},
    {INPUT("\"shape\":[1],\"datatype\":\"FP32\",\"data\":[nan]"), {"", 0}, ST_BAD_JSON, "at byte"},
};

static void v2_request_decode_invalid_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request;
        struct error err = {0};
        enum status status = decode(arena, bad[i].json, bad[i].binary, &request, &err);
        if (status != bad[i].status || err.status != status || !strstr(err.text, bad[i].sentence)) {
            fail_msg("%s:\n  expected %s %s\n  got      %s %s", bad[i].json,
                     status_name(bad[i].status), bad[i].sentence, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

/* Every member with every wrong JSON type; %s is replaced by the value. */
static void v2_request_decode_wrong_json_type_is_refused(void **state) {
    static const struct {
        const char *format;
        const char *path;
        const char *takes; /* the valid types: s n b a o */
    } rows[] = {
        {"{\"id\":%s,\"inputs\":[]}", "id", "s"},
        {"{\"parameters\":%s,\"inputs\":[]}", "parameters", "o"},
        {"{\"parameters\":{\"p\":%s},\"inputs\":[]}", "parameters.p", "snb"},
        {"{\"parameters\":{\"binary_data_output\":%s},\"inputs\":[]}",
         "parameters.binary_data_output", "b"},
        {"{\"inputs\":%s}", "inputs", "a"},
        {"{\"inputs\":[%s]}", "inputs[0]", ""},
        {"{\"inputs\":[{\"name\":%s,\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1]}]}",
         "inputs[0].name", "s"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":%s,\"datatype\":\"INT8\",\"data\":[1]}]}",
         "inputs[0].shape", "a"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[%s],\"datatype\":\"INT8\",\"data\":[1]}]}",
         "inputs[0].shape[0]", "n"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":%s,\"data\":[1]}]}",
         "inputs[0].datatype", ""},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":%s}]}",
         "inputs[0].data", "a"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[1],"
         "\"parameters\":%s}]}",
         "inputs[0].parameters", "o"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\","
         "\"parameters\":{\"binary_data_size\":%s}}]}",
         "inputs[0].parameters.binary_data_size", "n"},
        {"{\"inputs\":[],\"outputs\":%s}", "outputs", "a"},
        {"{\"inputs\":[],\"outputs\":[%s]}", "outputs[0]", ""},
        {"{\"inputs\":[],\"outputs\":[{\"name\":%s}]}", "outputs[0].name", "s"},
        {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":%s}]}",
         "outputs[0].parameters", "o"},
        {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":%s}}]}",
         "outputs[0].parameters.binary_data", "b"},
    };
    static const struct {
        char kind;
        const char *text;
    } values[] = {{'s', "\"s\""}, {'n', "1"},  {'f', "1.5"}, {'b', "true"},
                  {'a', "[]"},    {'o', "{}"}, {'-', "null"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
            char json[256], want[128];
            struct arena *arena = arena_new(NULL, 0);
            struct v2_request request;
            struct error err = {0};
            snprintf(json, sizeof(json), rows[i].format, values[k].text);
            snprintf(want, sizeof(want), "%s: expected", rows[i].path);
            enum status status = decode(arena, json, str_make("", 0), &request, &err);
            bool null = values[k].kind == '-'; /* absent: missing where the member is required */
            bool right = strchr(rows[i].takes, values[k].kind) ||
                         (null && (status == ST_OK || strstr(err.text, ": missing; expected"))) ||
                         (values[k].kind == 'f' && strcmp(rows[i].path, "parameters.p") == 0);
            bool object = strchr("o", values[k].kind) && strchr(rows[i].path, ']') &&
                          rows[i].path[strlen(rows[i].path) - 1] == ']' &&
                          !strstr(rows[i].path, "shape"); /* an empty object lacks its name */
            if (!right && !object &&
                (status_http(status) != 400 || strncmp(err.text, want, strlen(want)) != 0)) {
                fail_msg("%s: expected \"%s…\", got %s %s", json, want, status_name(status),
                         err.text);
            }
            arena_free(arena);
        }
    }
}

/* Binary data cut at every byte: each error reports the bytes present. */
static void v2_request_decode_truncated_body_is_refused(void **state) {
    static const char json[] = "{\"inputs\":["
                               "{\"name\":\"a\",\"shape\":[3],\"datatype\":\"INT16\","
                               "\"parameters\":{\"binary_data_size\":6}},"
                               "{\"name\":\"b\",\"shape\":[2],\"datatype\":\"BYTES\","
                               "\"parameters\":{\"binary_data_size\":9}}"
                               "]}";
    static const char binary[] = "\1\0\2\0\3\0\1\0\0\0x\0\0\0\0";
    (void)state;
    for (size_t n = 0; n < 15; n++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request;
        struct error err = {0};
        assert_int_equal(decode(arena, json, str_make(binary, n), &request, &err), ST_BAD_FRAMING);
        arena_free(arena);
    }
    for (size_t n = 0; n < sizeof(json) - 1; n++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_request request;
        struct error err = {0};
        enum status status = v2_request_decode(arena, str_make(json, sizeof(json) - 1), n,
                                               &fixture_limits, &request, &err);
        assert_int_equal(status, ST_BAD_JSON);
        arena_free(arena);
    }
    struct arena *arena = arena_new(NULL, 0);
    struct v2_request request;
    struct error err = {0};
    assert_int_equal(decode(arena, json, str_make(binary, 15), &request, &err), ST_OK);
    /* views of the body, no copies */
    const char *first = request.infer.inputs[0].tensor.pieces[0].data;
    const char *second = request.infer.inputs[1].tensor.pieces[0].data;
    assert_true(second == first + 6);
    assert_int_equal(
        v2_request_decode(arena, str_make(json, 10), 11, &fixture_limits, &request, &err),
        ST_BAD_FRAMING);
    assert_int_equal(
        v2_request_decode(arena, str_make(NULL, 0), 0, &fixture_limits, &request, &err),
        ST_BAD_JSON);
    arena_free(arena);
}

static void v2_request_decode_many_members_are_decoded(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf json;
    struct v2_request request;
    struct error err = {0};
    (void)state;
    buf_init(&json, arena, 0);
    buf_printf(&json, "{\"parameters\":{");
    for (int i = 0; i < 1000; i++) {
        buf_printf(&json, "%s\"p%d\":%d", i > 0 ? "," : "", i % 700, i);
    }
    buf_printf(&json, "},\"inputs\":[");
    for (int i = 0; i < 300; i++) {
        buf_printf(&json, "%s{\"name\":\"i%d\",\"shape\":[1],\"datatype\":\"INT32\",\"data\":[%d]}",
                   i > 0 ? "," : "", i, i);
    }
    buf_printf(&json, "],\"outputs\":[");
    for (int i = 0; i < 300; i++) {
        buf_printf(&json, "%s{\"name\":\"o%d\"}", i > 0 ? "," : "", i);
    }
    buf_printf(&json, "]}");
    assert_int_equal(
        v2_request_decode(arena, buf_str(&json), json.len, &fixture_limits, &request, &err), ST_OK);
    assert_int_equal(request.infer.params.n, 700);
    for (size_t i = 0; i < 700; i++) {
        assert_int_equal(request.infer.params.items[i].int64, i);
    }
    assert_int_equal(request.infer.n_inputs, 300);
    assert_int_equal(request.infer.n_wanted, 300);
    assert_true(str_is(request.infer.inputs[299].tensor.name, "i299"));
    assert_true(str_is(request.infer.wanted[299].name, "o299"));
    assert_int_equal(request.forms[299], V2_FORM_DEFAULT);
    arena_free(arena);
}

/* With less and less memory: every failure is an error with a text. */
static void v2_request_decode_out_of_memory_is_reported(void **state) {
    static const char json[] =
        WITH("\"id\":\"a\",\"parameters\":{\"a\":1,\"b\":2},\"outputs\":[{\"name\":\"y\"}]");
    bool failed = false, succeeded = false;
    (void)state;
    for (size_t limit = 4096; limit < 40000; limit += 16) {
        struct arena *arena = arena_new(NULL, limit);
        struct v2_request request;
        struct error err = {0};
        /* Nearly the whole first chunk of an arena. */
        bool filled = arena_alloc(arena, 1900) && arena_alloc(arena, 1900);
        enum status status = v2_request_decode(arena, str_make(json, sizeof(json) - 1),
                                               sizeof(json) - 1, &fixture_limits, &request, &err);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        failed |= !filled || status == ST_NO_MEMORY;
        succeeded |= filled && status == ST_OK;
        arena_free(arena);
    }
    assert_true(failed && succeeded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_request_decode_rows_match),
        cmocka_unit_test(v2_request_decode_invalid_is_refused),
        cmocka_unit_test(v2_request_decode_wrong_json_type_is_refused),
        cmocka_unit_test(v2_request_decode_truncated_body_is_refused),
        cmocka_unit_test(v2_request_decode_many_members_are_decoded),
        cmocka_unit_test(v2_request_decode_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
