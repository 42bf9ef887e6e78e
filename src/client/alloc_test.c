/* Repeated calls of the same size allocate nothing: this program counts every allocation of the
 * calling thread. The sanitizers replace the allocator; with them the calls are made and nothing
 * is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <cmocka.h>

#include "client/test_server.h"
#include "sluice/client_mip.h"

/* ---- counting -------------------------------------------------------------------------------- */

static _Thread_local size_t n_allocations; /* and deallocations */

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif

#if !defined(SLUICE_ARENA_EMULATE) && !defined(__SANITIZE_THREAD__) &&                             \
    !HAS_FEATURE(thread_sanitizer)
#define COUNTS 1
/* malloc and free of libc itself. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *ptr, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *ptr);

void *malloc(size_t n) {
    n_allocations++;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    n_allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *ptr, size_t n) {
    n_allocations++;
    return __libc_realloc(ptr, n);
}

void *aligned_alloc(size_t alignment, size_t n) {
    n_allocations++;
    return __libc_memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n) {
    n_allocations++;
    *out = __libc_memalign(alignment, n);
    return *out ? 0 : 12;
}

void free(void *ptr) {
    n_allocations += ptr != NULL;
    __libc_free(ptr);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    n_allocations++;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
#else
#define COUNTS 0
#endif

/* ---- the calls ------------------------------------------------------------------------------- */

enum { WARM_UP = 3, ROUNDS = 100, N_LARGE = 4000 };

static sluice_client_error error = {.size = sizeof(error)};

static sluice_client_status ping(sluice_client *client) {
    return sluice_client_ping(client, NULL, &error);
}

static sluice_client_status health(sluice_client *client) {
    int32_t yes;
    return sluice_client_model_is_ready(client, "m", "1", NULL, &yes, &error);
}

static sluice_client_status metadata(sluice_client *client) {
    sluice_call *call;
    sluice_client_status status =
        sluice_client_model_metadata(client, "m", NULL, NULL, &call, &error);
    sluice_call_free(call);
    return status;
}

static char room[1 << 20];
static float values[N_LARGE];

static sluice_client_status infer(sluice_client *client, sluice_form form, int64_t n, bool own) {
    const int64_t dims[] = {n};
    const sluice_tensor input = {.size = sizeof(sluice_tensor),
                                 .name = "x",
                                 .datatype = SLUICE_FP32,
                                 .dims = dims,
                                 .rank = 1,
                                 .data = values,
                                 .n_bytes = (size_t)n * sizeof(*values)};
    const sluice_parameter param = {
        .size = sizeof(param), .name = "k", .kind = SLUICE_PARAM_INT64, .int64 = 1};
    const sluice_wanted wanted = {.size = sizeof(wanted), .data = room, .n_bytes = sizeof(room)};
    const sluice_infer_request request = {.size = sizeof(request),
                                          .model = "m",
                                          .id = "7",
                                          .inputs = &input,
                                          .n_inputs = 1,
                                          .params = form == SLUICE_FORM_RAW ? NULL : &param,
                                          .n_params = form != SLUICE_FORM_RAW,
                                          .form = form,
                                          .wanted = &wanted,
                                          .n_wanted = own};
    sluice_call *call;
    sluice_client_status status = sluice_client_infer(client, &request, NULL, &call, &error);
    sluice_call_free(call);
    return status;
}

static sluice_client_status infer_binary(sluice_client *client) {
    return infer(client, SLUICE_FORM_BINARY, 2, false);
}

static sluice_client_status infer_into_buffer(sluice_client *client) {
    return infer(client, SLUICE_FORM_BINARY, 2, true);
}

static sluice_client_status infer_json(sluice_client *client) {
    return infer(client, SLUICE_FORM_JSON, 2, false);
}

static sluice_client_status infer_large_json(sluice_client *client) {
    return infer(client, SLUICE_FORM_JSON, N_LARGE, false);
}

static sluice_client_status infer_raw(sluice_client *client) {
    return infer(client, SLUICE_FORM_RAW, N_LARGE, false);
}

static sluice_client_status infer_mip(sluice_client *client, sluice_mip_type type, uint32_t batch,
                                      size_t n_room) {
    static sluice_mip_item items[N_LARGE];
    for (uint32_t i = 0; i < batch; i++) {
        items[i] =
            (sluice_mip_item){.size = sizeof(*items), .type = type, .data = "[1, 2]", .n_bytes = 6};
    }
    const sluice_mip_request request = {.size = sizeof(request),
                                        .items = items,
                                        .n_inputs = 1,
                                        .batch = batch,
                                        .buffer = n_room > 0 ? room : NULL,
                                        .buffer_bytes = n_room};
    sluice_call *call;
    sluice_client_status status = sluice_client_mip_infer(client, &request, NULL, &call, &error);
    sluice_call_free(call);
    return status;
}

static sluice_client_status infer_text(sluice_client *client) {
    return infer_mip(client, SLUICE_MIP_TEXT, 1, 0);
}

static sluice_client_status infer_mip_json(sluice_client *client) {
    return infer_mip(client, SLUICE_MIP_JSON, 1, sizeof(room));
}

static sluice_client_status infer_many(sluice_client *client) {
    return infer_mip(client, SLUICE_MIP_JSON, N_LARGE, 0);
}

/* ---- the answers ----------------------------------------------------------------------------- */

static char text[1 << 18];

/* Writes an HTTP answer. Returns: its size. */
static size_t http(const char *body, size_t n_body, size_t n_json) {
    int n = n_json == 0 ? snprintf(text, sizeof(text),
                                   "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", n_body)
                        : snprintf(text, sizeof(text),
                                   "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n"
                                   "Inference-Header-Content-Length: %zu\r\n\r\n",
                                   n_body, n_json);
    memcpy(text + n, body, n_body);
    return (size_t)n + n_body;
}

static size_t http_metadata(void) {
    static const char body[] =
        "{\"name\":\"m\",\"versions\":[\"1\"],\"platform\":\"p\",\"inputs\":[{\"name\":\"x\","
        "\"datatype\":\"FP32\",\"shape\":[-1]}],\"outputs\":[]}";
    return http(body, sizeof(body) - 1, 0);
}

static size_t http_ok(void) {
    return http("{}", 2, 0);
}

#define HEAD "{\"model_name\":\"m\",\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\","

static size_t http_binary(void) {
    static const char body[] =
        HEAD "\"shape\":[2],\"parameters\":{\"binary_data_size\":8}}]}\0\0\x80\x3f\0\0\0";
    return http(body, sizeof(body), sizeof(body) - 8);
}

static size_t http_json(void) {
    static const char body[] = HEAD "\"shape\":[2],\"data\":[1.5,2.5]}]}";
    return http(body, sizeof(body) - 1, 0);
}

static size_t http_large_json(void) {
    static char body[1 << 17];
    int n = snprintf(body, sizeof(body), HEAD "\"shape\":[%d],\"data\":[0.25", N_LARGE);
    for (int i = 1; i < N_LARGE; i++) {
        n += snprintf(body + n, sizeof(body) - (size_t)n, ",%d.25", i);
    }
    n += snprintf(body + n, sizeof(body) - (size_t)n, "]}]}");
    return http(body, (size_t)n, 0);
}

static size_t mip_ping(void) {
    const struct mip_header header = {.kind = MIP_PING, .subtype = MIP_RESPONSE};
    mip_header_encode(&header, text);
    return MIP_HEADER_BYTES;
}

static size_t mip_items(uint16_t batch) {
    static struct mip_item items[N_LARGE];
    struct mip_infer answer = {
        .n_inputs = 1, .n_outputs = 1, .batch = batch, .items = items, .n_items = batch};
    uint32_t n_bytes;
    char *at = text + MIP_HEADER_BYTES + MIP_COUNTS_BYTES;
    for (size_t i = 0; i < batch; i++) {
        items[i] = (struct mip_item){MIP_JSON, {"[3.5, 4]", 8}};
    }
    assert_int_equal(mip_infer_size(&answer, true, &n_bytes, NULL), ST_OK);
    mip_infer_head_encode(&answer, true, n_bytes, text);
    for (size_t i = 0; i < batch; i++) {
        mip_item_head_encode(&items[i], at);
        memcpy(at + MIP_ITEM_HEAD_BYTES, "[3.5, 4]", 8);
        at += MIP_ITEM_HEAD_BYTES + 8;
    }
    return (size_t)(at - text);
}

static size_t mip_one(void) {
    return mip_items(1);
}

static size_t mip_many(void) {
    return mip_items(N_LARGE);
}

/* ---- the test -------------------------------------------------------------------------------- */

static const struct row {
    const char *name;
    bool mip;
    sluice_client_status (*call)(sluice_client *client);
    size_t (*answer)(void);
} rows[] = {
    {"ping", false, ping, http_ok},
    {"health", false, health, http_ok},
    {"metadata", false, metadata, http_metadata},
    {"infer binary", false, infer_binary, http_binary},
    {"infer into a buffer", false, infer_into_buffer, http_binary},
    {"infer JSON", false, infer_json, http_json},
    {"infer large JSON", false, infer_large_json, http_large_json},
    {"infer raw", false, infer_raw, http_binary},
    {"MIP ping", true, ping, mip_ping},
    {"MIP text", true, infer_text, mip_one},
    {"MIP JSON into a buffer", true, infer_mip_json, mip_one},
    {"MIP JSON, many", true, infer_many, mip_many},
};

static void check(sluice_client *client, const struct row *row) {
    size_t before = 0;
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        before = i == WARM_UP ? n_allocations : before;
        if (row->call(client) != SLUICE_CLIENT_OK) {
            fail_msg("%s: %s", row->name, error.text);
        }
    }
    if (n_allocations != before) {
        fail_msg("%s: %zu allocations in %d calls", row->name, n_allocations - before, ROUNDS);
    }
}

static void client_repeated_call_does_not_allocate(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct script script = {.mip = rows[i].mip, .forever = true, .texts = {text}};
        struct test_server server;
        char url[URL_BYTES];
        script.n_bytes[0] = rows[i].answer();
        test_server_start(&server, url, &script, 1);
        const sluice_client_options options = {.size = sizeof(options), .url = url};
        sluice_client *client;
        assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
        check(client, &rows[i]);
        sluice_client_close(client);
        test_server_stop(&server);
        assert_int_equal(server.n_requests, WARM_UP + ROUNDS);
    }
}

/* Checks the counter itself. */
static void alloc_counter_counts_malloc_and_free(void **state) {
    (void)state;
    size_t before = n_allocations;
    void *volatile block = malloc(10);
    free(block);
    assert_int_equal(n_allocations - before, COUNTS * 2);
    sluice_client *client;
    const sluice_client_options options = {.size = sizeof(options), .url = "tcp://127.0.0.1:1"};
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
    sluice_client_close(client);
    assert_true(n_allocations - before > 5 || !COUNTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_counter_counts_malloc_and_free),
        cmocka_unit_test(client_repeated_call_does_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
