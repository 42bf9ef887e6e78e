/* Messages of KServe v2 over gRPC; the first byte selects which. Every byte of a decoded
 * request's tensors and names is readable, and every error has a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/kserve/grpc/decode_cache.h"
#include "core/tensor/infer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json_limits limits = {.max_tensor_elements = 1 << 20};

static void check(bool holds, const struct error *err) {
    if (!holds) {
        fprintf(stderr, "%s\n", err->text);
        __builtin_trap();
    }
}

/* Reads every byte. */
static unsigned sum_of(struct str bytes) {
    unsigned sum = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        sum += (unsigned char)bytes.ptr[i];
    }
    return sum;
}

static enum status decode_request(struct arena *arena, struct str message, struct error *err) {
    struct v2_grpc_request request;
    struct str beginning = str_make(message.ptr, message.len / 2);
    volatile unsigned sum =
        (unsigned)v2_grpc_raw_offset(message) + (unsigned)v2_grpc_raw_offset(beginning);
    enum status st = v2_grpc_request_decode(arena, message, &limits, &request, err);
    if (st != ST_OK) {
        return st;
    }
    for (size_t i = 0; i < request.infer.n_inputs; i++) {
        const struct tensor *tensor = &request.infer.inputs[i].tensor;
        for (size_t j = 0; j < tensor->n_pieces; j++) {
            sum += sum_of(str_make(tensor->pieces[j].data, tensor->pieces[j].n_bytes));
        }
    }
    sum += sum_of(request.model) + sum_of(request.version) + sum_of(request.infer.id);
    (void)sum;
    return infer_align_copy(&request.infer, err);
}

static void check_same(const struct v2_grpc_request *one, const struct v2_grpc_request *other) {
    const struct infer_request *infer = &one->infer, *others = &other->infer;
    struct error err = {.text = "is another request when it comes again"};
    check(str_eq(one->model, other->model) && str_eq(one->version, other->version), &err);
    check(one->empty_final == other->empty_final && str_eq(infer->id, others->id), &err);
    check(infer->n_inputs == others->n_inputs && infer->n_wanted == others->n_wanted, &err);
    check(infer->params.n == others->params.n && infer->batch == others->batch, &err);
    for (size_t i = 0; i < infer->n_inputs; i++) {
        const struct tensor *a = &infer->inputs[i].tensor, *b = &others->inputs[i].tensor;
        check(str_eq(a->name, b->name) && shape_eq(a->shape, b->shape), &err);
        check(a->datatype == b->datatype && a->n_bytes == b->n_bytes, &err);
        check(a->n_pieces == b->n_pieces, &err);
        check(infer->inputs[i].params.n == others->inputs[i].params.n, &err);
        check(str_eq(infer->inputs[i].region.name, others->inputs[i].region.name), &err);
        for (size_t k = 0; k < a->n_pieces; k++) {
            check(a->pieces[k].n_bytes == b->pieces[k].n_bytes, &err);
            check(memcmp(a->pieces[k].data, b->pieces[k].data, a->pieces[k].n_bytes) == 0, &err);
        }
    }
    for (size_t i = 0; i < infer->n_wanted; i++) {
        check(str_eq(infer->wanted[i].name, others->wanted[i].name), &err);
        check(infer->wanted[i].n_classes == others->wanted[i].n_classes, &err);
        check(infer->wanted[i].params.n == others->wanted[i].params.n, &err);
        check(str_eq(infer->wanted[i].region.name, others->wanted[i].region.name), &err);
    }
}

/* Decodes repeatedly with the cache, each time from its own allocation, once with the last byte
 * changed, which mostly is a tensor's. */
static void check_cached_decode(struct str message) {
    static struct v2_grpc_decode_cache cache;
    cache = (struct v2_grpc_decode_cache){0};
    for (int i = 0; i < 5; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_grpc_request plain, again;
        struct error err = {0}, again_err = {0};
        char *own = malloc(message.len + (message.len == 0));
        memcpy(own, message.ptr, message.len);
        if (i == 3 && message.len > 0) {
            own[message.len - 1] ^= 1;
        }
        struct str all = str_make(own, message.len);
        enum status st = v2_grpc_request_decode(arena, all, &limits, &plain, &err);
        check(v2_grpc_request_decode_cached(&cache, arena, all, &limits, &again, &again_err) == st,
              &again_err);
        if (st == ST_OK) {
            check_same(&plain, &again);
        } else {
            check(strcmp(err.text, again_err.text) == 0, &again_err);
        }
        free(own);
        arena_free(arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error err = {0};
    struct str name, version, id;
    struct v2_grpc_client_response answer;
    struct v2_grpc_model_metadata metadata;
    enum status st;
    if (size == 0) {
        return 0;
    }
    struct arena *arena = arena_new(NULL, 0);
    size_t n_bytes = size - 1;
    char *copy = malloc(n_bytes + (n_bytes == 0)); /* exact size, for the address sanitizer */
    memcpy(copy, data + 1, n_bytes);
    struct str message = str_make(copy, n_bytes);
    switch (data[0] % 6) {
    case 0:
        st = decode_request(arena, message, &err);
        check_cached_decode(message);
        break;
    case 1:
        st = v2_grpc_named_decode(arena, message, &name, &version, &err);
        break;
    case 2:
        st = v2_grpc_request_peek(message, &name, &version, &id, &err);
        break;
    case 3:
        st = v2_grpc_client_response_decode(arena, message, data[0] & 64, &answer, &err);
        break;
    case 4:
        st = v2_grpc_model_metadata_decode(arena, message, &metadata, &err);
        break;
    default:
        st = v2_grpc_empty_decode(message, &err);
        break;
    }
    check(st == ST_OK || err.text[0] != '\0', &err);
    arena_free(arena);
    free(copy);
    return 0;
}
