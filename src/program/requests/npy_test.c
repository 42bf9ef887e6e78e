/* .npy files: headers as NumPy and others write them, and invalid ones. */
#include "program/requests/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Makes a file: magic, version, header and `n_data` bytes, in a block of its own. */
static struct str make(unsigned version, const char *header, size_t n_data) {
    size_t n = strlen(header), n_size = version == 1 ? 2 : 4;
    struct arena *arena = arena_new(NULL, 0);
    struct buf buf;
    buf_init(&buf, arena, 0);
    buf_add_str(&buf, STR("\x93NUMPY"));
    buf_add_char(&buf, (char)version);
    buf_add_char(&buf, '\0');
    buf_add_char(&buf, (char)(n & 0xff));
    buf_add_char(&buf, (char)(n >> 8));
    buf_add(&buf, "\0\0", n_size - 2);
    buf_add_str(&buf, str_of(header));
    char *file = calloc(1, buf.len + n_data);
    assert_non_null(file);
    memcpy(file, buf.data, buf.len);
    size_t n_file = buf.len + n_data;
    arena_free(arena);
    return str_make(file, n_file);
}

static void npy_valid_is_decoded(void **state) {
    (void)state;
    static const struct {
        unsigned version;
        const char *header;
        size_t n_data;
        enum datatype datatype;
        size_t rank;
        int64_t dims[3];
    } rows[] = {
        {1,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    \n",
         24,
         DT_FP32,
         2,
         {2, 3}},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }\n", 5, DT_UINT8, 1, {5}},
        {1, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }\n", 8, DT_INT64, 0, {0}},
        {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 7), }\n", 0, DT_FP16, 2, {0, 7}},
        {2,
         "{\"shape\":(1,2,3),\"fortran_order\":False,\"descr\":\"|b1\"}",
         6,
         DT_BOOL,
         3,
         {1, 2, 3}},
        {3, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,1)}", 8, DT_FP64, 2, {1, 1}},
        {1, "{'descr': '=i4', 'fortran_order': False, 'shape': (1,)}", 4, DT_INT32, 1, {1}},
        {1, "{'descr': '<i1', 'fortran_order': False, 'shape': (1,)}", 1, DT_INT8, 1, {1}},
        {1, "{'descr': '>u1', 'fortran_order': False, 'shape': (1,)}", 1, DT_UINT8, 1, {1}},
        {1, "{'descr': '<u2', 'fortran_order': False, 'shape': (1,)}", 2, DT_UINT16, 1, {1}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str file = make(rows[i].version, rows[i].header, rows[i].n_data);
        struct npy npy;
        struct error err = {0};
        if (npy_decode(arena, file, "a.npy", &npy, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].header, err.text);
        }
        assert_int_equal(npy.datatype, rows[i].datatype);
        assert_int_equal(npy.shape.rank, rows[i].rank);
        for (size_t k = 0; k < rows[i].rank; k++) {
            assert_int_equal(npy.shape.dims[k], rows[i].dims[k]);
        }
        assert_int_equal(npy.data.len, rows[i].n_data);
        assert_ptr_equal(npy.data.ptr + npy.data.len, file.ptr + file.len);
        /* every prefix is an error */
        for (size_t n = 0; n < file.len; n++) {
            char *part = malloc(n + (n == 0));
            memcpy(part, file.ptr, n);
            assert_int_not_equal(npy_decode(arena, str_make(part, n), "a.npy", &npy, &err), ST_OK);
            free(part);
        }
        free((char *)(uintptr_t)file.ptr);
        arena_free(arena);
    }
}

static void npy_invalid_refused(void **state) {
    (void)state;
    static const struct {
        unsigned version;
        const char *header, *says;
    } rows[] = {
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "ascontiguousarray"},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "big-endian"},
        {1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "|O"},
        {1, "{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }", "<U3"},
        {1, "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "<c8"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "records"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "takes 8 bytes, and 4"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "whole numbers"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,), }", "tuple"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': 4, }", "not a tuple"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }",
         "whole numbers"},
        {1,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}",
         "bytes"},
        {1, "{'descr': '<f4', 'fortran_order': False, }", "malformed"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "a key"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "malformed"},
        {1, "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", "malformed"},
        {1, "{'descr': '<f4', 'fortran_order': None, 'shape': (1,)}", "True or False"},
        {1, "", "not a dictionary"},
        {4, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "version"},
        {0, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "version"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str file = make(rows[i].version, rows[i].header, 4);
        struct npy npy;
        struct error err = {0};
        assert_int_not_equal(npy_decode(arena, file, "a.npy", &npy, &err), ST_OK);
        if (!strstr(err.text, rows[i].says) || !strstr(err.text, "a.npy")) {
            fail_msg("%s: \"%s\" without \"%s\"", rows[i].header, err.text, rows[i].says);
        }
        free((char *)(uintptr_t)file.ptr);
        arena_free(arena);
    }
}

static void write_and_read(struct arena *arena, enum datatype datatype, struct shape shape) {
    static const char data[48];
    struct buf file;
    struct error err = {0};
    struct npy npy;
    uint64_t n_bytes;
    buf_init(&file, arena, 0);
    enum status status = npy_encode_head(&file, datatype, shape, &err);
    if (datatype == DT_BYTES || datatype == DT_BF16) {
        assert_int_equal(status, ST_BAD_DATATYPE);
        return;
    }
    assert_int_equal(status, ST_OK);
    assert_int_equal(file.len % 64, 0);
    assert_true(shape_bytes(shape, datatype, &n_bytes));
    buf_add(&file, data, n_bytes);
    if (npy_decode(arena, buf_str(&file), "w.npy", &npy, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(npy.datatype, datatype);
    assert_true(shape_eq(npy.shape, shape));
}

static void npy_round_trip_is_equal(void **state) {
    (void)state;
    static const int64_t dims[] = {2, 1, 3};
    for (int datatype = DT_BOOL; datatype < DT_COUNT_; datatype++) {
        for (size_t rank = 0; rank <= 3; rank++) {
            struct arena *arena = arena_new(NULL, 0);
            write_and_read(arena, (enum datatype)datatype, (struct shape){dims, rank});
            arena_free(arena);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_valid_is_decoded),
        cmocka_unit_test(npy_invalid_refused),
        cmocka_unit_test(npy_round_trip_is_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
