/* The scan for the prompt in a gRPC body: the first byte selects the splits, which make no
 * difference, and the format; a reader of the whole message finds as many tokens. */
#include "codec/kserve/chunks_fixture.h"
#include "codec/kserve/v2_fixture.h"
#include "codec/prompt/prompt_grpc.h"
#include "codec/protobuf/pb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct scanned {
    struct prompt_scan scan;
    struct prompt_grpc grpc;
};

static void scan(struct arena *arena, struct str body, uint32_t choice, enum prompt_format format,
                 struct scanned *out) {
    prompt_scan_init(&out->scan, arena, 256);
    out->scan.format = format;
    out->scan.lists_items = true;
    prompt_grpc_init(&out->grpc, &out->scan, arena);
    while (body.len > 0 && choice != 0) {
        struct str part = next_chunk(&body, &choice);
        (void)prompt_grpc_feed(&out->grpc, part);
        free((char *)part.ptr);
    }
    (void)prompt_grpc_feed(&out->grpc, body);
    check(out->scan.text.len <= 256 && out->scan.n_items <= PROMPT_SCAN_MAX_ITEMS);
}

/* Of the lists of tokens in the first message. */
static uint64_t count_tokens(struct str message) {
    struct pb_reader request = pb_read(message);
    struct pb_field field;
    uint64_t n = 0, value;
    while (pb_next(&request, &field)) {
        struct pb_reader tokenized = pb_read(field.bytes);
        struct pb_field item;
        while (field.number == 2 && field.type == PB_BYTES && pb_next(&tokenized, &item)) {
            struct pb_reader list = pb_read(item.bytes);
            n += item.number == 2 && item.type == PB_VARINT;
            while (item.number == 2 && item.type == PB_BYTES && pb_next_varint(&list, &value)) {
                n++;
            }
        }
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) {
        return 0;
    }
    struct arena *arena = arena_new(NULL, 0);
    struct str body = str_make((const char *)data + 1, size - 1);
    enum prompt_format format = (enum prompt_format)(PROMPT_OF_VLLM_GENERATE + data[0] % 3);
    struct scanned whole, parts;
    struct error one = {0}, other = {0};
    scan(arena, body, 0, format, &whole);
    scan(arena, body, (uint32_t)data[0] + 1, format, &parts);
    check(whole.scan.result == parts.scan.result);
    check(whole.grpc.walk.result == parts.grpc.walk.result);
    check(whole.scan.n_tokens == parts.scan.n_tokens && whole.scan.n_items == parts.scan.n_items);
    check(str_eq(buf_str(&whole.scan.text), buf_str(&parts.scan.text)));
    check(prompt_grpc_check(&whole.grpc, true, &one) ==
          prompt_grpc_check(&parts.grpc, true, &other));
    check(strcmp(one.text, other.text) == 0);
    if (whole.grpc.walk.result == GRPC_WALK_END && format != PROMPT_OF_VERTEX) {
        uint64_t n = 0;
        for (int i = 1; i < 5; i++) {
            n = n << 8 | (unsigned char)body.ptr[i];
        }
        check(whole.scan.n_tokens == count_tokens(str_make(body.ptr + 5, (size_t)n)));
    }
    arena_free(arena);
    return 0;
}
