/* The messages of tests/vectors/ext_proc, both ways: their meaning, encoding to the same bytes,
 * and that no prefix has the same meaning. Each prefix is in memory of exactly its size, so that
 * the address sanitizer detects reads past it. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/ext_proc/client.h"

#define FOLDER "tests/vectors/ext_proc/"
#define SUBSET "x-gateway-destination-endpoint-subset"
#define PICK "x-gateway-destination-endpoint"
#define SMALL "{\"model\":\"m\",\"prompt\":\"hi\",\"max_tokens\":8}"
#define GET                                                                                        \
    ":authority=127.0.0.1:18081|:path=/v1/models|:method=GET|:scheme=http|accept=*/"               \
    "*|user-agent=curl"
#define POST                                                                                       \
    ":authority=127.0.0.1:18081|:path=/v1/completions|:method=POST|:scheme=http|accept=*/*|"       \
    "user-agent=curl|content-type=application/json|content-length=42"
#define FROM_BASE ":status=200|server=BaseHTTP/0.6 Python/3.11.7|date=Fri, 20 Nov 2026 "

static const struct ext_proc_config duplex = {EXT_PROC_BODY_FULL_DUPLEX, EXT_PROC_BODY_FULL_DUPLEX,
                                              false};
static const struct ext_proc_config none = {EXT_PROC_BODY_NONE, EXT_PROC_BODY_NONE, false};

#define ENTRY(key, text)                                                                           \
    { {(key), sizeof(key) - 1}, {(text), sizeof(text) - 1}, NULL, 0, NULL }
#define LISTED(key, list, n)                                                                       \
    { {(key), sizeof(key) - 1}, {NULL, 0}, (list), (n), NULL }
#define SPACE(name, entries)                                                                       \
    { {(name), sizeof(name) - 1}, (entries), sizeof(entries) / sizeof((entries)[0]) }

static const struct str two[] = {{"127.0.0.1:18101", 15}, {"127.0.0.1:18102", 15}};
static const struct ext_proc_entry as_string[] = {ENTRY(SUBSET, "127.0.0.1:18101,127.0.0.1:18102")};
static const struct ext_proc_entry as_list[] = {LISTED(SUBSET, two, 2)};
static const struct ext_proc_entry as_empty[] = {LISTED(SUBSET, two, 0)};
static const struct ext_proc_entry served[] = {ENTRY(PICK "-served", "127.0.0.1:18101"),
                                               ENTRY(PICK, "127.0.0.1:18101")};
static const struct ext_proc_entry picked[] = {ENTRY(PICK, "127.0.0.1:18101")};
static const struct ext_proc_entry asked[] = {
    ENTRY("request.id", "2bc60a9f-73c4-4271-ad96-0f43a06b0bfe"),
    ENTRY("request.path", "/v1/completions"), ENTRY("source.address", "127.0.0.1:40352"),
    ENTRY("xds.route_name", "")};

static const struct ext_proc_namespace hint_string[] = {SPACE("envoy.lb.subset_hint", as_string)};
static const struct ext_proc_namespace hint_list[] = {SPACE("envoy.lb.subset_hint", as_list)};
static const struct ext_proc_namespace hint_empty[] = {SPACE("envoy.lb.subset_hint", as_empty)};
static const struct ext_proc_namespace lb_served[] = {SPACE("envoy.lb.subset_hint", as_string),
                                                      SPACE("envoy.lb", served)};
static const struct ext_proc_namespace lb_picked[] = {SPACE("envoy.lb", picked)};
static const struct ext_proc_namespace attributes[] = {SPACE("envoy.filters.http.ext_proc", asked)};

static const struct request_row {
    const char *name;
    enum ext_proc_kind kind;
    const char *headers; /* "key=value|…" */
    const char *body;
    bool end;
    const struct ext_proc_config *config;
    const struct ext_proc_namespace *metadata; /* all of them have a metadata_context */
    size_t n_metadata;
    const struct ext_proc_namespace *attributes;
} requests[] = {
    {"get-headers-request", EXT_PROC_REQUEST_HEADERS,
     GET "|x-forwarded-proto=http|x-request-id=0f4e87c5-8bf8-40a7-8755-320fc1ae6128", "", true,
     &duplex, NULL, 0, NULL},
    {"post-headers-request", EXT_PROC_REQUEST_HEADERS,
     POST "|x-forwarded-proto=http|x-request-id=51d86f08-5953-43fc-87a8-67464b1ccd7f", "", false,
     &duplex, NULL, 0, NULL},
    {"headers-only-request", EXT_PROC_REQUEST_HEADERS,
     GET "|x-forwarded-proto=http|x-request-id=81abcae6-f45f-4db7-a154-dd50d0b054b6", "", true,
     &none, NULL, 0, NULL},
    {"body-request", EXT_PROC_REQUEST_BODY, "", SMALL, false, NULL, NULL, 0, NULL},
    {"body-end-request", EXT_PROC_REQUEST_BODY, "", "", true, NULL, NULL, 0, NULL},
    {"body-with-end-request", EXT_PROC_REQUEST_BODY, "", SMALL, true, NULL, NULL, 0, NULL},
    {"trailers-request", EXT_PROC_REQUEST_TRAILERS, "x-trailer=t1", "", false, NULL, NULL, 0, NULL},
    {"subset-string-request", EXT_PROC_REQUEST_HEADERS,
     POST "|x-forwarded-proto=http|x-request-id=5438a7eb-e164-4918-a94b-3acffcf7b7d0", "", false,
     &duplex, hint_string, 1, NULL},
    {"subset-list-request", EXT_PROC_REQUEST_HEADERS,
     POST "|x-forwarded-proto=http|x-request-id=34788070-ae13-48b5-a44b-6a6c113ea35e", "", false,
     &duplex, hint_list, 1, NULL},
    {"subset-empty-request", EXT_PROC_REQUEST_HEADERS,
     POST "|x-forwarded-proto=http|x-request-id=1541f698-97fb-4df6-9d8f-60516b108e62", "", false,
     &duplex, hint_empty, 1, NULL},
    {"attributes-request", EXT_PROC_REQUEST_HEADERS,
     POST "|x-forwarded-proto=http|x-request-id=2bc60a9f-73c4-4271-ad96-0f43a06b0bfe", "", false,
     &duplex, NULL, 0, attributes},
    {"answer-headers-request", EXT_PROC_RESPONSE_HEADERS,
     FROM_BASE "23:43:37 GMT|content-type=application/json|transfer-encoding=chunked|"
               "trailer=x-end|x-envoy-upstream-service-time=1",
     "", false, NULL, NULL, 0, NULL},
    {"answer-trailers-request", EXT_PROC_RESPONSE_TRAILERS, "x-end=yes", "", false, NULL, NULL, 0,
     NULL},
    {"served-request", EXT_PROC_RESPONSE_HEADERS,
     FROM_BASE "23:43:41 GMT|content-type=application/json|content-length=678|"
               "x-envoy-upstream-service-time=1",
     "", false, NULL, lb_served, 2, NULL},
};

static const struct response_row {
    const char *name;
    enum ext_proc_kind kind; /* EXT_PROC_NONE: immediate */
    const char *headers;
    bool clear_route_cache;
    enum ext_proc_body_mutation change;
    const char *body;
    bool end;
    uint32_t http_status, grpc_status;
    const struct ext_proc_namespace *metadata;
} responses[] = {
    {"pick-response", EXT_PROC_REQUEST_HEADERS, PICK "=127.0.0.1:18101", true,
     EXT_PROC_BODY_UNCHANGED, "", false, 0, 0, lb_picked},
    {"pick-with-length-response", EXT_PROC_REQUEST_HEADERS,
     PICK "=127.0.0.1:18101|Content-Length=42", true, EXT_PROC_BODY_UNCHANGED, "", false, 0, 0,
     lb_picked},
    {"body-response", EXT_PROC_REQUEST_BODY, "", false, EXT_PROC_BODY_STREAMED_RESPONSE, SMALL,
     true, 0, 0, NULL},
    {"body-kept-response", EXT_PROC_REQUEST_BODY, "", false, EXT_PROC_BODY_UNCHANGED, "", false, 0,
     0, NULL},
    {"answer-headers-response", EXT_PROC_RESPONSE_HEADERS, "x-went-into-resp-headers=true", false,
     EXT_PROC_BODY_UNCHANGED, "", false, 0, 0, NULL},
    {"answer-trailers-response", EXT_PROC_RESPONSE_TRAILERS, "", false, EXT_PROC_BODY_UNCHANGED, "",
     false, 0, 0, NULL},
    {"immediate-503-response", EXT_PROC_NONE,
     "x-llm-d-request-dropped-reason=rejected-no-endpoints", false, EXT_PROC_BODY_UNCHANGED,
     "inference error: test", false, 503, 0, NULL},
    {"immediate-429-response", EXT_PROC_NONE, "", false, EXT_PROC_BODY_UNCHANGED,
     "request evicted by flow control", false, 429, 0, NULL},
    {"immediate-grpc-response", EXT_PROC_NONE, "", false, EXT_PROC_BODY_UNCHANGED, "no endpoints",
     false, 503, 14, NULL},
};

enum {
    N_REQUESTS = sizeof(requests) / sizeof(requests[0]),
    N_RESPONSES = sizeof(responses) / sizeof(responses[0]),
    MOST_HEADERS = 16,
};

/* ---- files ----------------------------------------------------------------------------------- */

static int digit(int c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static struct str load(struct arena *arena, const char *name) {
    char path[128];
    struct buf bytes;
    snprintf(path, sizeof(path), FOLDER "%s.hex", name);
    FILE *file = fopen(path, "r");
    if (!file) {
        fail_msg("%s can't be opened", path);
    }
    buf_init(&bytes, arena, 64);
    for (int high = -1, c = getc(file); c != EOF; c = getc(file)) {
        if (digit(c) >= 0) {
            if (high >= 0) {
                buf_add_char(&bytes, (char)(high * 16 + digit(c)));
            }
            high = high >= 0 ? -1 : digit(c);
        } else {
            assert_true(c == ' ' || c == '\n');
        }
    }
    fclose(file);
    return buf_str(&bytes);
}

static bool is_named(const char *name, struct str file) {
    return str_eq(str_of(name), str_make(file.ptr, file.len - strlen(".hex")));
}

static void ext_proc_vectors_each_file_has_a_row(void **state) {
    DIR *folder = opendir(FOLDER);
    size_t n = 0;
    (void)state;
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        struct str file = str_of(entry->d_name);
        size_t found = 0;
        if (!str_ends_with(file, STR(".hex"))) {
            continue;
        }
        for (size_t i = 0; i < N_REQUESTS; i++) {
            found += is_named(requests[i].name, file);
        }
        for (size_t i = 0; i < N_RESPONSES; i++) {
            found += is_named(responses[i].name, file);
        }
        if (found != 1) {
            fail_msg("%s has %zu rows", entry->d_name, found);
        }
        n++;
    }
    closedir(folder);
    assert_int_equal(n, N_REQUESTS + N_RESPONSES);
}

/* ---- meanings -------------------------------------------------------------------------------- */

/* "key=value|…" Returns: the number of headers. */
static size_t split(const char *text, struct ext_proc_header out[MOST_HEADERS]) {
    struct str rest = str_of(text);
    size_t n = 0;
    while (rest.len > 0) {
        struct str one = str_cut(&rest, '|');
        assert_true(n < MOST_HEADERS);
        out[n].key = str_cut(&one, '=');
        out[n++].value = one;
    }
    return n;
}

static void check_value(struct ext_proc_value got, const struct ext_proc_entry *want) {
    if (!want->list) {
        assert_int_equal(got.kind, EXT_PROC_STRING);
        assert_true(str_eq(got.text, want->text));
        return;
    }
    assert_int_equal(got.kind, EXT_PROC_LIST);
    struct pb_reader list = pb_read(got.list);
    struct ext_proc_value value;
    for (size_t i = 0; i < want->n_list; i++) {
        assert_true(ext_proc_list_next(&list, &value));
        assert_int_equal(value.kind, EXT_PROC_STRING);
        assert_true(str_eq(value.text, want->list[i]));
    }
    assert_false(ext_proc_list_next(&list, &value));
}

static void check_request(struct str bytes, const struct request_row *want) {
    struct ext_proc_request got;
    struct ext_proc_header headers[MOST_HEADERS], header;
    struct error err = {0};
    assert_int_equal(ext_proc_request_decode(bytes, &got, &err), ST_OK);
    assert_int_equal(got.kind, want->kind);
    size_t n = split(want->headers, headers);
    struct ext_proc_header_iter walk = ext_proc_header_iter(&got.fields);
    for (size_t i = 0; i < n; i++) {
        assert_true(ext_proc_header_next(&walk, &header));
        assert_true(str_eq(header.key, headers[i].key) && str_eq(header.value, headers[i].value));
        assert_true(str_eq(ext_proc_header_find(&got.fields, header.key), header.value));
    }
    assert_false(ext_proc_header_next(&walk, &header));
    assert_null(ext_proc_header_find(&got.fields, STR("x-other")).ptr);
    assert_true(str_is(got.body, want->body));
    assert_true(got.end_of_stream == want->end && !got.observability_mode);
    assert_int_equal(got.has_config, want->config != NULL);
    if (want->config) {
        assert_int_equal(got.config.request_body, want->config->request_body);
        assert_int_equal(got.config.response_body, want->config->response_body);
        assert_int_equal(got.config.send_body_without_waiting,
                         want->config->send_body_without_waiting);
    }
    for (size_t i = 0; i < want->n_metadata; i++) {
        const struct ext_proc_namespace *space = &want->metadata[i];
        for (size_t j = 0; j < space->n_entries; j++) {
            struct str key = space->entries[j].key;
            check_value(ext_proc_metadata_find(&got, space->name, key), &space->entries[j]);
            assert_int_equal(ext_proc_metadata_find(&got, key, key).kind, EXT_PROC_ABSENT);
        }
    }
    for (size_t i = 0; want->attributes && i < want->attributes->n_entries; i++) {
        const struct ext_proc_entry *entry = &want->attributes->entries[i];
        check_value(ext_proc_attribute_find(&got, want->attributes->name, entry->key), entry);
    }
}

static void ext_proc_vectors_requests_decode_to_meaning(void **state) {
    (void)state;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        struct arena *arena = arena_new(NULL, 0);
        check_request(load(arena, requests[i].name), &requests[i]);
        arena_free(arena);
    }
}

static void ext_proc_vectors_requests_encode_to_same_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        const struct request_row *row = &requests[i];
        struct arena *arena = arena_new(NULL, 0);
        struct ext_proc_header headers[MOST_HEADERS];
        struct ext_proc_client_request question = {.kind = row->kind,
                                                   .headers = headers,
                                                   .n_headers = split(row->headers, headers),
                                                   .body = str_of(row->body),
                                                   .end_of_stream = row->end,
                                                   .config = row->config,
                                                   .has_metadata = true,
                                                   .metadata = row->metadata,
                                                   .n_metadata = row->n_metadata,
                                                   .attributes = row->attributes,
                                                   .n_attributes = row->attributes != NULL};
        struct buf out;
        buf_init(&out, arena, 0);
        ext_proc_client_request_encode(&out, &question);
        if (!str_eq(buf_str(&out), load(arena, row->name))) {
            fail_msg("%s is written otherwise", row->name);
        }
        arena_free(arena);
    }
}

static void ext_proc_vectors_responses_decode_to_meaning(void **state) {
    (void)state;
    for (size_t i = 0; i < N_RESPONSES; i++) {
        const struct response_row *want = &responses[i];
        struct arena *arena = arena_new(NULL, 0);
        struct ext_proc_client_response got;
        struct ext_proc_header headers[MOST_HEADERS], header;
        struct error err = {0};
        assert_int_equal(ext_proc_client_response_decode(load(arena, want->name), &got, &err),
                         ST_OK);
        assert_int_equal(got.kind, want->kind);
        assert_int_equal(got.is_immediate, want->kind == EXT_PROC_NONE);
        size_t n = split(want->headers, headers);
        struct pb_reader reader = pb_read(got.mutation);
        for (size_t j = 0; j < n; j++) {
            assert_true(ext_proc_set_header_next(&reader, &header));
            assert_true(str_eq(header.key, headers[j].key));
            assert_true(str_eq(header.value, headers[j].value));
        }
        assert_false(ext_proc_set_header_next(&reader, &header));
        assert_int_equal(got.clear_route_cache, want->clear_route_cache);
        assert_int_equal(got.body_mutation, want->change);
        assert_true(str_is(got.body, want->body));
        assert_int_equal(got.end_of_stream, want->end);
        assert_int_equal(got.http_status, want->http_status);
        assert_int_equal(got.grpc_status, want->grpc_status);
        assert_true(str_is(got.details, got.is_immediate ? "test_details" : ""));
        if (want->metadata) {
            struct str key = want->metadata->entries[0].key;
            check_value(ext_proc_client_response_metadata_find(&got, want->metadata->name, key),
                        &want->metadata->entries[0]);
        }
        arena_free(arena);
    }
}

static enum status write_response(struct arena *arena, const struct response_row *row,
                                  struct ext_proc_message *out) {
    struct ext_proc_header headers[MOST_HEADERS];
    struct ext_proc_mutation mutation = {.set = headers, .n_set = split(row->headers, headers)};
    struct piece piece = {row->body, strlen(row->body)};
    struct ext_proc_response answer = {.kind = row->kind,
                                       .headers = mutation,
                                       .clear_route_cache = row->clear_route_cache,
                                       .body_mutation = row->change,
                                       .body = &piece,
                                       .n_body = 1,
                                       .end_of_stream = row->end,
                                       .metadata = row->metadata,
                                       .n_metadata = row->metadata != NULL};
    struct ext_proc_immediate immediate = {.http_status = row->http_status,
                                           .grpc_status = row->grpc_status,
                                           .headers = mutation,
                                           .body = str_of(row->body),
                                           .details = STR("test_details")};
    return row->kind == EXT_PROC_NONE ? ext_proc_immediate_encode(arena, &immediate, out, NULL)
                                      : ext_proc_response_encode(arena, &answer, out, NULL);
}

static void ext_proc_vectors_responses_encode_to_same_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_RESPONSES; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct ext_proc_message bytes;
        struct buf all;
        buf_init(&all, arena, 0);
        assert_int_equal(write_response(arena, &responses[i], &bytes), ST_OK);
        for (size_t j = 0; j < bytes.n_pieces; j++) {
            buf_add(&all, bytes.pieces[j].data, bytes.pieces[j].n_bytes);
        }
        if (bytes.n_bytes != all.len || !str_eq(buf_str(&all), load(arena, responses[i].name))) {
            fail_msg("%s is written otherwise", responses[i].name);
        }
        arena_free(arena);
    }
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* A prefix may be a valid message if it ends between two fields, but it never has all of the
 * meaning; it is not read past its end. */
static void check_prefixes(const char *name, bool asks) {
    struct arena *arena = arena_new(NULL, 0);
    struct str bytes = load(arena, name);
    size_t n_whole = 0;
    for (size_t n = 0; n < bytes.len; n++) {
        char *part = malloc(n + (n == 0));
        struct error err = {0};
        struct ext_proc_request request;
        struct ext_proc_client_response reply;
        memcpy(part, bytes.ptr, n);
        enum status status = asks
                                 ? ext_proc_request_decode(str_make(part, n), &request, &err)
                                 : ext_proc_client_response_decode(str_make(part, n), &reply, &err);
        assert_true(status == ST_OK || status == ST_BAD_REQUEST);
        assert_int_equal(status, err.status);
        n_whole += status == ST_OK;
        free(part);
    }
    if (n_whole > 4) { /* the empty prefix, and one after each top-level field but the last */
        fail_msg("%s: %zu parts were taken for messages", name, n_whole);
    }
    arena_free(arena);
}

static void ext_proc_vectors_each_prefix_is_not_misread(void **state) {
    (void)state;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        check_prefixes(requests[i].name, true);
    }
    for (size_t i = 0; i < N_RESPONSES; i++) {
        check_prefixes(responses[i].name, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ext_proc_vectors_each_file_has_a_row),
        cmocka_unit_test(ext_proc_vectors_requests_decode_to_meaning),
        cmocka_unit_test(ext_proc_vectors_requests_encode_to_same_bytes),
        cmocka_unit_test(ext_proc_vectors_responses_decode_to_meaning),
        cmocka_unit_test(ext_proc_vectors_responses_encode_to_same_bytes),
        cmocka_unit_test(ext_proc_vectors_each_prefix_is_not_misread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
