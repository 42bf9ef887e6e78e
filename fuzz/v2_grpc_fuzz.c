/* Messages of KServe v2 over gRPC; the first byte selects which. Every byte of a decoded
 * request's tensors and names is readable, and every error has a text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json/tree.h"
#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/json_elements_print.h"
#include "core/tensor/infer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_JSON = 1 << 20 };

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

/* The inputs as outputs with typed contents are the same bytes again. */
static void check_typed(struct arena *arena, const struct infer_request *request) {
    static const struct model_spec model = {.name = STR("m"), .version_text = STR("1")};
    struct tensor *outputs = arena_calloc(arena, request->n_inputs, sizeof(*outputs));
    struct infer_response response = {.outputs = outputs, .n_outputs = request->n_inputs};
    struct v2_grpc_message out;
    struct v2_grpc_client_response answer;
    struct error err = {0};
    struct buf whole;
    for (size_t i = 0; i < request->n_inputs; i++) {
        outputs[i] = request->inputs[i].tensor;
        size_t size = datatype_size(outputs[i].datatype);
        if (outputs[i].datatype == DT_BOOL || (size > 0 && outputs[i].n_bytes % size != 0)) {
            return; /* infer_check has not seen them */
        }
    }
    if (v2_grpc_response_encode(arena, &model, STR(""), &response,
                                (struct v2_grpc_response_form){.typed = true, .final = -1}, &out,
                                &err) != ST_OK) {
        check(err.text[0] != '\0', &err);
        return;
    }
    buf_init(&whole, arena, 64);
    for (size_t i = 0; i < out.n_pieces; i++) {
        buf_add(&whole, out.pieces[i].data, out.pieces[i].n_bytes);
    }
    check(v2_grpc_client_response_decode(arena, buf_str(&whole), false, &answer, &err) == ST_OK,
          &err);
    check(answer.n_outputs == response.n_outputs, &err);
    for (size_t i = 0; i < answer.n_outputs; i++) {
        check(str_eq(element_gather(arena, &answer.outputs[i]), element_gather(arena, &outputs[i])),
              &err);
    }
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
    check_typed(arena, &request.infer);
    return infer_align_copy(&request.infer, err);
}

/* What is printed is JSON. */
static enum status print_document(struct arena *arena, int document, struct str message,
                                  struct error *err) {
    struct json_limits all = {
        .max_json_size = MAX_JSON, .max_json_depth = 100, .max_tensor_elements = MAX_JSON};
    struct json_tree tree;
    struct str json;
    enum status st = v2_grpc_document_print(arena, (enum v2_grpc_document)document, message,
                                            MAX_JSON, &json, err);
    if (st == ST_OK) {
        check(json_tree_parse(&tree, "the document", arena, json, &all, err) == ST_OK, err);
    }
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error err = {0};
    struct str name, version;
    struct v2_grpc_client_response answer;
    struct v2_grpc_model_metadata metadata;
    struct v2_server_metadata server;
    bool yes;
    enum status st;
    if (size == 0) {
        return 0;
    }
    struct arena *arena = arena_new(NULL, 0);
    size_t n_bytes = size - 1;
    char *copy = malloc(n_bytes + (n_bytes == 0)); /* exact size, for the address sanitizer */
    memcpy(copy, data + 1, n_bytes);
    struct str message = str_make(copy, n_bytes);
    switch (data[0] < 128 ? data[0] % 6 : 6 + data[0] % 5) {
    case 0:
    case 2:
        st = decode_request(arena, message, &err);
        break;
    case 1:
        st = v2_grpc_named_decode(arena, message, &name, &version, &err);
        break;
    case 3:
        st = v2_grpc_client_response_decode(arena, message, data[0] & 64, &answer, &err);
        break;
    case 4:
        st = v2_grpc_model_metadata_decode(arena, message, &metadata, &err);
        break;
    case 5:
        st = v2_grpc_empty_decode(message, &err);
        break;
    case 6:
        st = v2_grpc_server_metadata_decode(arena, message, &server, &err);
        break;
    case 7:
        st = v2_grpc_bool_decode(message, &yes, &err);
        break;
    default:
        st = print_document(arena, data[0] % 5 - 2, message, &err);
        break;
    }
    check(st == ST_OK || err.text[0] != '\0', &err);
    arena_free(arena);
    free(copy);
    return 0;
}
