/* Shared memory: the objects, their registration, tensors in them and what is wrong about them; and
 * classes. */
#include "sluice/client.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/test_expect.h"
#include "client/test_server.h"

static sluice_client_error error = {.size = sizeof(error)};

static void expect(sluice_client_status is, sluice_client_status status, const char *says) {
    test_expect(&error, is, status, says);
}

/* ---- objects --------------------------------------------------------------------------------- */

static void shm_object_is_mapped_and_removed(void **state) {
    (void)state;
    sluice_shm *shm, *other;
    struct stat is;
    expect(sluice_shm_create(NULL, 5000, &shm, &error), SLUICE_CLIENT_OK, "");
    expect(sluice_shm_create(NULL, 1, &other, &error), SLUICE_CLIENT_OK, "");
    assert_string_not_equal(sluice_shm_key(shm), sluice_shm_key(other));
    sluice_shm_free(other);
    int fd = shm_open(sluice_shm_key(shm), O_RDWR, 0);
    assert_true(fd >= 0 && fstat(fd, &is) == 0);
    assert_true(is.st_size == 5000 && (is.st_mode & 0777) == 0600);
    char *data = sluice_shm_data(shm), byte;
    assert_true(data[0] == 0 && data[4999] == 0);
    data[4999] = 'x';
    assert_true(pread(fd, &byte, 1, 4999) == 1 && byte == 'x');
    close(fd);
    char key[64];
    snprintf(key, sizeof(key), "%s", sluice_shm_key(shm));
    expect(sluice_shm_create(key, 1, &other, &error), SLUICE_CLIENT_INVALID, "File exists");
    assert_null(other);
    sluice_shm_free(shm);
    assert_true(shm_open(key, O_RDWR, 0) < 0 && errno == ENOENT);
    expect(sluice_shm_create(key, 1, &shm, &error), SLUICE_CLIENT_OK, "");
    assert_string_equal(sluice_shm_key(shm), key);
    sluice_shm_free(shm);
    sluice_shm_free(NULL);
}

static void shm_bad_objects_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        size_t n_bytes;
        sluice_client_status status;
        const char *says;
    } rows[] = {
        {"no-slash", 1, SLUICE_CLIENT_INVALID, "expected /NAME"},
        {"/", 1, SLUICE_CLIENT_INVALID, "expected /NAME"},
        {"/a/b", 1, SLUICE_CLIENT_INVALID, "expected /NAME"},
        {NULL, 0, SLUICE_CLIENT_INVALID, "1 byte or more"},
        {NULL, SIZE_MAX, SLUICE_CLIENT_INVALID, "1 byte or more"},
        {NULL, SIZE_MAX / 4, SLUICE_CLIENT_NO_MEMORY, "of shared memory"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        sluice_shm *shm;
        expect(sluice_shm_create(rows[i].key, rows[i].n_bytes, &shm, &error), rows[i].status,
               rows[i].says);
        assert_null(shm);
    }
}

/* ---- requests and answers over HTTP ---------------------------------------------------------- */

#define ANSWER(length, body) "HTTP/1.1 200 OK\r\nContent-Length: " length "\r\n\r\n" body

static struct test_server server;

static sluice_client *open_at(const struct script *script) {
    char url[URL_BYTES];
    sluice_client *client;
    test_server_start(&server, url, script, 1);
    const sluice_client_options options = {.size = sizeof(options), .url = url};
    expect(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK, "");
    return client;
}

static void expect_request(const char *text) {
    if (!memmem(server.request, server.n_request, text, strlen(text))) {
        fail_msg("%s lacks %s", server.request, text);
    }
}

static void shm_registration_over_http(void **state) {
    (void)state;
    static const struct script good = {.texts = {ANSWER("0", "")}};
    sluice_client *client = open_at(&good);
    expect(sluice_client_register_shm(client, "a/b", "/key", 3, 100, NULL, &error),
           SLUICE_CLIENT_OK, "");
    sluice_client_close(client);
    test_server_stop(&server);
    expect_request("POST /v2/systemsharedmemory/region/a%2Fb/register HTTP/1.1\r\n");
    expect_request("{\"key\":\"/key\",\"offset\":3,\"byte_size\":100}");
    client = open_at(&good);
    expect(sluice_client_unregister_shm(client, "a", NULL, &error), SLUICE_CLIENT_OK, "");
    sluice_client_close(client);
    test_server_stop(&server);
    expect_request("POST /v2/systemsharedmemory/region/a/unregister HTTP/1.1\r\n");
    client = open_at(&good);
    expect(sluice_client_unregister_shm(client, NULL, NULL, &error), SLUICE_CLIENT_OK, "");
    expect(sluice_client_register_shm(client, "", "/key", 0, 1, NULL, &error),
           SLUICE_CLIENT_INVALID, "name and a key");
    expect(sluice_client_register_shm(client, "a", NULL, 0, 1, NULL, &error), SLUICE_CLIENT_INVALID,
           "name and a key");
    sluice_client_close(client);
    test_server_stop(&server);
    expect_request("POST /v2/systemsharedmemory/unregister HTTP/1.1\r\n");
}

static const int64_t two[] = {2};

static void shm_output_has_its_place_and_no_data(void **state) {
    (void)state;
    static const struct script script = {
        .texts = {ANSWER("69", "{\"outputs\":[{\"name\":\"O\",\"datatype\":\"FP32\",\"shape\":[2]}]"
                               "             }"),
                  ANSWER("69", "{\"outputs\":[{\"name\":\"O\",\"datatype\":\"FP32\",\"shape\":[9]}]"
                               "             }"),
                  ANSWER("69", "{\"outputs\":[{\"name\":\"P\",\"datatype\":\"FP32\",\"shape\":[2]}]"
                               "             }")}};
    sluice_client *client = open_at(&script);
    const sluice_tensor input = {.size = sizeof(input),
                                 .name = "I",
                                 .datatype = SLUICE_FP32,
                                 .dims = two,
                                 .rank = 1,
                                 .n_bytes = 8,
                                 .shm_region = "r"};
    const sluice_wanted wanted = {
        .size = sizeof(wanted), .name = "O", .shm_region = "q", .shm_offset = 16, .shm_bytes = 12};
    const sluice_infer_request request = {.size = sizeof(request),
                                          .model = "m",
                                          .inputs = &input,
                                          .n_inputs = 1,
                                          .wanted = &wanted,
                                          .n_wanted = 1};
    sluice_tensor output = {.size = sizeof(output)};
    sluice_call *call;
    float numbers[2];
    expect(sluice_client_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_OK, "");
    assert_int_equal(sluice_call_output(call, 0, &output), SLUICE_CLIENT_OK);
    assert_string_equal(output.shm_region, "q");
    assert_true(output.shm_offset == 16 && output.n_bytes == 8 && !output.data);
    assert_int_equal(sluice_tensor_read(&output, SLUICE_FP32, numbers, 2), SLUICE_CLIENT_INVALID);
    sluice_call_free(call);
    expect(sluice_client_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_PROTOCOL,
           "does not fit its 12 bytes");
    sluice_call_free(call);
    expect(sluice_client_infer(client, &request, NULL, &call, &error), SLUICE_CLIENT_PROTOCOL,
           "output \"P\" has no data");
    sluice_call_free(call);
    sluice_client_close(client);
    test_server_stop(&server);
    expect_request("\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":8");
    expect_request("\"shared_memory_region\":\"q\",\"shared_memory_byte_size\":12,"
                   "\"shared_memory_offset\":16");
}

static void shm_bad_requests_are_refused(void **state) {
    (void)state;
    static const float numbers[2];
    static char scratch[8];
    static const struct {
        size_t n_bytes;
        const void *data;
        sluice_wanted wanted;
        const char *says;
    } rows[] = {
        {7, NULL, {.name = "O"}, "7 bytes don't fit"},
        {8, numbers, {.name = "O"}, "both data and shm_region"},
        {8, NULL, {.shm_region = "q"}, "need a name"},
        {8, NULL, {.n_classes = 2}, "need a name"},
        {8, NULL, {.name = "O", .shm_region = "q", .n_classes = 2}, "excludes"},
        {8, NULL, {.name = "O", .shm_region = "q", .data = scratch, .n_bytes = 8}, "excludes"},
    };
    static const char *const URLS[] = {"http+unix:/nowhere", "grpc+unix:/nowhere"};
    for (size_t u = 0; u < 2; u++) {
        const sluice_client_options options = {.size = sizeof(options), .url = URLS[u]};
        sluice_client *client;
        expect(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK, "");
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
            sluice_wanted wanted = rows[i].wanted;
            wanted.size = sizeof(wanted);
            const sluice_tensor input = {.size = sizeof(input),
                                         .name = "I",
                                         .datatype = SLUICE_FP32,
                                         .dims = two,
                                         .rank = 1,
                                         .data = rows[i].data,
                                         .n_bytes = rows[i].n_bytes,
                                         .shm_region = "r"};
            const sluice_infer_request request = {.size = sizeof(request),
                                                  .model = "m",
                                                  .inputs = &input,
                                                  .n_inputs = 1,
                                                  .wanted = &wanted,
                                                  .n_wanted = 1};
            sluice_call *call;
            expect(sluice_client_infer(client, &request, NULL, &call, &error),
                   SLUICE_CLIENT_INVALID, rows[i].says);
            assert_null(call);
        }
        sluice_client_close(client);
    }
}

/* ---- classes --------------------------------------------------------------------------------- */

static void classes_are_read_in_order(void **state) {
    (void)state;
    static const char data[] = "\x0e\0\0\0"
                               "0.5:7:a long c"
                               "\3\0\0\0"
                               "-1:"
                               "\6\0\0\0"
                               "1e3:42";
    const int64_t dims[] = {3};
    const sluice_tensor tensor = sluice_tensor_strings("O", data, sizeof(data) - 1, dims, 1);
    sluice_class class = {.size = sizeof(class)};
    size_t at = 0;
    assert_int_equal(sluice_classes_next(&tensor, &at, &class), SLUICE_CLIENT_OK);
    assert_true(class.value > 0.49 && class.value < 0.51 && class.index == 7);
    assert_int_equal(class.label_bytes, 8);
    assert_memory_equal(class.label, "a long c", 8);
    size_t second = at;
    assert_int_equal(sluice_classes_next(&tensor, &at, &class), SLUICE_CLIENT_PROTOCOL);
    assert_int_equal(at, second);
    at += 4 + 3;
    assert_int_equal(sluice_classes_next(&tensor, &at, &class), SLUICE_CLIENT_OK);
    assert_true(class.value > 999 && class.index == 42 && !class.label);
    assert_int_equal(sluice_classes_next(&tensor, &at, &class), SLUICE_CLIENT_NOT_FOUND);
    class.size = 0;
    at = 0;
    assert_int_equal(sluice_classes_next(&tensor, &at, &class), SLUICE_CLIENT_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shm_object_is_mapped_and_removed),
        cmocka_unit_test(shm_bad_objects_are_refused),
        cmocka_unit_test(shm_registration_over_http),
        cmocka_unit_test(shm_output_has_its_place_and_no_data),
        cmocka_unit_test(shm_bad_requests_are_refused),
        cmocka_unit_test(classes_are_read_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
