/* The messages of an ONNX file (onnx.proto) that our walks look into, and a check of the file as a
 * whole: that these walks and the library read the same. */
#ifndef SLUICE_COMMON_ONNX_MESSAGE_H
#define SLUICE_COMMON_ONNX_MESSAGE_H

#include "common/protobuf.h"

/* Messages, and the leaves that have a type. */
enum onnx_message {
    ONNX_MODEL,
    ONNX_TRAINING,
    ONNX_FUNCTION,
    ONNX_GRAPH,
    ONNX_NODE,
    ONNX_ATTRIBUTE,
    ONNX_SPARSE_TENSOR,
    ONNX_TENSOR,
    ONNX_ENTRY, /* StringStringEntryProto of external data */
    ONNX_MESSAGES,
    ONNX_TEXT = ONNX_MESSAGES, /* a string or bytes */
    ONNX_NUMBER,               /* a varint */
};

enum { ONNX_MAX_DEPTH = 100 /* of messages in messages, as protobuf's own */ };

/* Numbers of fields. */
enum { ONNX_MODEL_GRAPH = 7 };
enum { ONNX_GRAPH_INITIALIZER = 5 };
enum { ONNX_TENSOR_RAW_DATA = 9, ONNX_TENSOR_EXTERNAL_DATA = 13, ONNX_TENSOR_DATA_LOCATION = 14 };
enum { ONNX_ENTRY_KEY = 1, ONNX_ENTRY_VALUE = 2 };

/* A field that is looked into, or whose value is used. */
struct onnx_member {
    enum onnx_message parent;
    uint32_t number;
    enum onnx_message type;
    int repeated;
    const char *name;
};

/* Returns: NULL for a field that is skipped. */
const struct onnx_member *onnx_member_find(enum onnx_message parent, uint32_t number);

/* Checks all messages of the file: fields are well-formed (field_take), have the wire type of their
 * member, and a member that is not repeated is there once: protobuf would merge the pieces of a
 * message. Messages are at most ONNX_MAX_DEPTH deep.
 * Returns: 1: it is well-formed; a walk can ignore errors then; 0: `out` is a sentence with the
 * byte where it is not. */
int onnx_check(struct bytes model, char *out, size_t n_bytes);

#endif
