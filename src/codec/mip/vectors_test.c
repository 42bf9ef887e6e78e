/* The packets of tests/vectors/mip, both ways: their meaning, that no prefix is a whole packet,
 * that encoding the meaning gives the bytes, and which packet answers which. Each prefix is in
 * memory of exactly its size, so that the address sanitizer detects reads past it. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/mip/packet.h"
#include "core/base/buf.h"

#define FOLDER "tests/vectors/mip/"

static const struct vector {
    const char *name;
    enum status status;  /* of a request; ST_OK for packets that servers don't receive */
    const char *meaning; /* of a valid packet */
    const char *answer;  /* the error packet for it */
} vectors[] = {
    {"ping-request", ST_OK, "ping 0", NULL},
    {"ping-response", ST_OK, "ping 1", NULL},
    {"infer-text-request", ST_OK, "inference 0: 1 in, 0 out, batch 1: 1'kubemo'", NULL},
    {"infer-text-response", ST_OK, "inference 1: 1 in, 1 out, batch 1: 1'KUBEMO'", NULL},
    {"infer-json-2x2-request", ST_OK,
     "inference 0: 2 in, 0 out, batch 2: 2'[1, 2]' 2'[3, 4]' 2'[5, 6]' 2'[7, 8]'", NULL},
    {"infer-json-2x2-response", ST_OK, "inference 1: 2 in, 1 out, batch 2: 2'[4, 6]' 2'[12, 14]'",
     NULL},
    {"bad-version-request", ST_BAD_VERSION, NULL, "error-protocol"},
    {"bad-subtype-request", ST_BAD_SUBTYPE, NULL, "error-subtype"},
    {"bad-kind-request", ST_BAD_KIND, NULL, "error-method"},
    {"bad-shape-item-overruns-request", ST_BAD_FRAMING, NULL, "error-shape"},
    {"bad-shape-missing-item-request", ST_BAD_FRAMING, NULL, "error-shape"},
    {"bad-shape-trailing-bytes-request", ST_BAD_FRAMING, NULL, "error-shape"},
    {"error-protocol", ST_OK, "error PROTOCOL", NULL},
    {"error-subtype", ST_OK, "error SUBTYPE", NULL},
    {"error-method", ST_OK, "error METHOD", NULL},
    {"error-memory", ST_OK, "error MEMORY", NULL},
    {"error-shape", ST_OK, "error SHAPE", NULL},
    {"error-internal", ST_OK, "error INTERNAL", NULL},
};

enum { N_VECTORS = sizeof(vectors) / sizeof(vectors[0]) };

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
    assert_true(bytes.len >= MIP_HEADER_BYTES);
    return buf_str(&bytes);
}

/* ---- decoding -------------------------------------------------------------------------------- */

enum { MORE = ST_COUNT_ };

struct packet {
    struct mip_header header;
    struct mip_infer infer;
};

/* Decodes received bytes as a connection would. Returns: also MORE. */
static int decode(struct arena *arena, struct str bytes, bool request, struct packet *out) {
    struct error err = {0};
    *out = (struct packet){.infer.batch = 0};
    if (bytes.len < MIP_HEADER_BYTES) {
        return MORE;
    }
    mip_header_decode(bytes.ptr, &out->header);
    enum status status = request ? mip_header_check_request(&out->header, &err) : ST_OK;
    if (status == ST_OK && bytes.len < MIP_HEADER_BYTES + (size_t)out->header.n_bytes) {
        return MORE;
    }
    if (status == ST_OK && out->header.kind == MIP_INFER) {
        struct str payload = str_make(bytes.ptr + MIP_HEADER_BYTES, out->header.n_bytes);
        status = mip_infer_decode(arena, payload, !request, &out->infer, &err);
    }
    assert_int_equal(status, err.status);
    assert_int_equal(status != ST_OK, err.text[0] != '\0');
    return (int)status;
}

static void print(struct buf *out, const struct packet *packet) {
    const struct mip_header *header = &packet->header;
    assert_int_equal(header->version, MIP_VERSION);
    assert_int_equal(header->reserved, 0);
    switch ((enum mip_kind)header->kind) {
    case MIP_ERROR:
        buf_printf(out, "error %s", mip_error_name(header->subtype));
        break;
    case MIP_PING:
        buf_printf(out, "ping %u", header->subtype);
        break;
    case MIP_INFER:
        buf_printf(out, "inference %u: %u in, %u out, batch %u:", header->subtype,
                   packet->infer.n_inputs, packet->infer.n_outputs, packet->infer.batch);
        for (size_t i = 0; i < packet->infer.n_items; i++) {
            buf_printf(out, " %u'%.*s'", packet->infer.items[i].type,
                       STR_ARG(packet->infer.items[i].data));
        }
        break;
    }
    buf_add_char(out, '\0');
}

static bool is_request(const struct vector *vector) {
    return str_ends_with(str_of(vector->name), STR("-request"));
}

static void mip_vectors_decode_to_meaning(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VECTORS; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct packet packet;
        struct buf got;
        struct str bytes = load(arena, vectors[i].name);
        int status = decode(arena, bytes, is_request(&vectors[i]), &packet);
        if (status != (int)vectors[i].status) {
            fail_msg("%s: %d", vectors[i].name, status);
        }
        if (status == ST_OK) {
            buf_init(&got, arena, 0);
            print(&got, &packet);
            assert_string_equal(got.data, vectors[i].meaning);
            assert_int_equal(bytes.len, MIP_HEADER_BYTES + packet.header.n_bytes);
        }
        arena_free(arena);
    }
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* A prefix of a valid packet is incomplete, or invalid. */
static void mip_vectors_each_prefix_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VECTORS; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str bytes = load(arena, vectors[i].name);
        for (size_t n = 0; n < bytes.len; n++) {
            struct packet packet;
            char *part = malloc(n + (n == 0));
            memcpy(part, bytes.ptr, n);
            int status = decode(arena, str_make(part, n), is_request(&vectors[i]), &packet);
            if (status != MORE && status != (int)vectors[i].status) {
                fail_msg("%s: of %zu bytes: %d", vectors[i].name, n, status);
            }
            assert_int_not_equal(status, ST_OK);
            free(part);
        }
        arena_free(arena);
    }
}

/* A header that announces less than its payload. */
static void mip_vectors_each_payload_prefix_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VECTORS; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str bytes = load(arena, vectors[i].name);
        for (size_t n = 0; bytes.len > MIP_HEADER_BYTES && n <= bytes.len - MIP_HEADER_BYTES; n++) {
            struct mip_infer infer;
            struct error err = {0};
            char *part = malloc(n + (n == 0));
            memcpy(part, bytes.ptr + MIP_HEADER_BYTES, n);
            enum status status =
                mip_infer_decode(arena, str_make(part, n), !is_request(&vectors[i]), &infer, &err);
            bool whole = vectors[i].status == ST_OK
                             ? n == bytes.len - MIP_HEADER_BYTES
                             : !strcmp(vectors[i].name, "bad-shape-trailing-bytes-request") &&
                                   n == bytes.len - MIP_HEADER_BYTES - 4;
            if (status != (whole ? ST_OK : ST_BAD_FRAMING)) {
                fail_msg("%s: %zu bytes of payload: %s", vectors[i].name, n, status_name(status));
            }
            free(part);
        }
        arena_free(arena);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void encode(struct buf *out, const struct packet *packet) {
    char head[MIP_HEADER_BYTES + MIP_COUNTS_BYTES];
    struct error err;
    uint32_t n_bytes;
    if (packet->header.kind != MIP_INFER) {
        mip_header_encode(&packet->header, head);
        buf_add(out, head, MIP_HEADER_BYTES);
        return;
    }
    bool response = packet->header.subtype == MIP_RESPONSE;
    assert_int_equal(mip_infer_size(&packet->infer, response, &n_bytes, &err), ST_OK);
    mip_infer_head_encode(&packet->infer, response, n_bytes, head);
    buf_add(out, head, sizeof(head));
    for (size_t i = 0; i < packet->infer.n_items; i++) {
        char item[MIP_ITEM_HEAD_BYTES];
        mip_item_head_encode(&packet->infer.items[i], item);
        buf_add(out, item, sizeof(item));
        buf_add_str(out, packet->infer.items[i].data);
    }
}

static void mip_vectors_encode_to_same_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VECTORS; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str bytes = load(arena, vectors[i].name);
        struct packet packet;
        struct buf got;
        if (decode(arena, bytes, is_request(&vectors[i]), &packet) == ST_OK) {
            buf_init(&got, arena, 0);
            encode(&got, &packet);
            assert_true(str_eq(buf_str(&got), bytes));
        }
        arena_free(arena);
    }
}

/* The error of an invalid request is sent as the error packet of its directory. */
static void mip_vectors_bad_request_maps_to_error_packet(void **state) {
    (void)state;
    for (size_t i = 0; i < N_VECTORS; i++) {
        if (!vectors[i].answer) {
            continue;
        }
        struct arena *arena = arena_new(NULL, 0);
        struct mip_header header = {.kind = MIP_ERROR,
                                    .subtype = (uint8_t)status_mip(vectors[i].status)};
        char bytes[MIP_HEADER_BYTES];
        mip_header_encode(&header, bytes);
        assert_true(str_eq(load(arena, vectors[i].answer), str_make(bytes, sizeof(bytes))));
        arena_free(arena);
    }
}

static void mip_vectors_each_file_has_a_row(void **state) {
    DIR *folder = opendir(FOLDER);
    size_t n = 0;
    (void)state;
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        struct str name = str_of(entry->d_name);
        size_t i = 0;
        if (!str_ends_with(name, STR(".hex"))) {
            continue;
        }
        while (i < N_VECTORS &&
               !str_eq(str_of(vectors[i].name), str_make(name.ptr, name.len - 4))) {
            i++;
        }
        if (i == N_VECTORS) {
            fail_msg("%s has no row", entry->d_name);
        }
        n++;
    }
    closedir(folder);
    assert_int_equal(n, N_VECTORS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_vectors_decode_to_meaning),
        cmocka_unit_test(mip_vectors_each_prefix_is_refused),
        cmocka_unit_test(mip_vectors_each_payload_prefix_is_refused),
        cmocka_unit_test(mip_vectors_encode_to_same_bytes),
        cmocka_unit_test(mip_vectors_bad_request_maps_to_error_packet),
        cmocka_unit_test(mip_vectors_each_file_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
