/* The table of the messages, and the check. */
#include "common/onnx_message.h"

#include <stdio.h>

enum { MAX_NUMBER = 64 /* of a member, as bits */ };

static const struct onnx_member members[] = {
    {ONNX_MODEL, ONNX_MODEL_GRAPH, ONNX_GRAPH, 0, "graph"},
    {ONNX_MODEL, 20, ONNX_TRAINING, 1, "training_info"},
    {ONNX_MODEL, 25, ONNX_FUNCTION, 1, "functions"},
    {ONNX_TRAINING, 1, ONNX_GRAPH, 0, "initialization"},
    {ONNX_TRAINING, 2, ONNX_GRAPH, 0, "algorithm"},
    {ONNX_FUNCTION, 7, ONNX_NODE, 1, "node"},
    {ONNX_FUNCTION, 11, ONNX_ATTRIBUTE, 1, "attribute_proto"},
    {ONNX_GRAPH, 1, ONNX_NODE, 1, "node"},
    {ONNX_GRAPH, ONNX_GRAPH_INITIALIZER, ONNX_TENSOR, 1, "initializer"},
    {ONNX_GRAPH, 15, ONNX_SPARSE_TENSOR, 1, "sparse_initializer"},
    {ONNX_NODE, 4, ONNX_TEXT, 0, "op_type"},
    {ONNX_NODE, 5, ONNX_ATTRIBUTE, 1, "attribute"},
    {ONNX_ATTRIBUTE, 5, ONNX_TENSOR, 0, "t"},
    {ONNX_ATTRIBUTE, 6, ONNX_GRAPH, 0, "g"},
    {ONNX_ATTRIBUTE, 10, ONNX_TENSOR, 1, "tensors"},
    {ONNX_ATTRIBUTE, 11, ONNX_GRAPH, 1, "graphs"},
    {ONNX_ATTRIBUTE, 22, ONNX_SPARSE_TENSOR, 0, "sparse_tensor"},
    {ONNX_ATTRIBUTE, 23, ONNX_SPARSE_TENSOR, 1, "sparse_tensors"},
    {ONNX_SPARSE_TENSOR, 1, ONNX_TENSOR, 0, "values"},
    {ONNX_SPARSE_TENSOR, 2, ONNX_TENSOR, 0, "indices"},
    {ONNX_TENSOR, ONNX_TENSOR_RAW_DATA, ONNX_TEXT, 0, "raw_data"},
    {ONNX_TENSOR, ONNX_TENSOR_EXTERNAL_DATA, ONNX_ENTRY, 1, "external_data"},
    {ONNX_TENSOR, ONNX_TENSOR_DATA_LOCATION, ONNX_NUMBER, 0, "data_location"},
    {ONNX_ENTRY, ONNX_ENTRY_KEY, ONNX_TEXT, 0, "key"},
    {ONNX_ENTRY, ONNX_ENTRY_VALUE, ONNX_TEXT, 0, "value"},
};

const struct onnx_member *onnx_member_find(enum onnx_message parent, uint32_t number) {
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (members[i].parent == parent && members[i].number == number) {
            return &members[i];
        }
    }
    return NULL;
}

struct check {
    const char *begin; /* of the file */
    char *out;
    size_t n_bytes;
};

static int fail(const struct check *check, const char *at, const char *why, const char *name) {
    snprintf(check->out, check->n_bytes, "byte %zu: %s%s%s", (size_t)(at - check->begin), why,
             name ? " " : "", name ? name : "");
    return 0;
}

static int member_check(const struct check *check, const struct onnx_member *member,
                        const struct field *field, uint64_t *seen) {
    unsigned wire_type = member->type == ONNX_NUMBER ? WIRE_VARINT : WIRE_BYTES;
    const char *at = field->whole.data;
    uint64_t bit = member->number < MAX_NUMBER ? UINT64_C(1) << member->number : 0;
    if (field->wire_type != wire_type) {
        return fail(check, at, "another wire type than that of the field", member->name);
    }
    if (!member->repeated && (*seen & bit)) {
        return fail(check, at, "there a second time: the field", member->name);
    }
    *seen |= bit;
    return 1;
}

static int message_check(const struct check *check, enum onnx_message kind, struct bytes rest,
                         int depth) {
    struct field field;
    const char *why = NULL;
    uint64_t seen = 0;
    int taken;
    if (depth > ONNX_MAX_DEPTH) {
        return fail(check, rest.data, "messages are nested too deeply", NULL);
    }
    while ((taken = field_take(&rest, &field, &why)) > 0) {
        const struct onnx_member *member = onnx_member_find(kind, field.number);
        if (member && !member_check(check, member, &field, &seen)) {
            return 0;
        }
        if (member && member->type < ONNX_MESSAGES &&
            !message_check(check, member->type, field.bytes, depth + 1)) {
            return 0;
        }
    }
    return taken == 0 || fail(check, field.whole.data, why, NULL);
}

int onnx_check(struct bytes model, char *out, size_t n_bytes) {
    const struct check check = {model.data, out, n_bytes};
    return message_check(&check, ONNX_MODEL, model, 0);
}
