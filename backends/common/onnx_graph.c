/* Walks the protobuf messages of an ONNX file (onnx.proto) as far as the operator names of nodes;
 * weights are skipped without being read. */
#include "common/onnx_graph.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 100, OPERATOR_BYTES = 32, SEEK_MIN_BYTES = 8192 };
enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* The messages that lead to an operator's name. */
enum message { MODEL, FUNCTION, GRAPH, NODE, ATTRIBUTE, OPERATOR_NAME };

static const struct {
    enum message message;
    uint64_t field;
    enum message child;
} children[] = {
    {MODEL, 7, GRAPH},        {MODEL, 25, FUNCTION}, {FUNCTION, 7, NODE},   {GRAPH, 1, NODE},
    {NODE, 4, OPERATOR_NAME}, {NODE, 5, ATTRIBUTE},  {ATTRIBUTE, 6, GRAPH}, {ATTRIBUTE, 11, GRAPH},
};

/* Operators that loop or branch, and those with an output whose size is a value of an input. The
 * latter have a bounded time where that input is a constant; it is not worth following it. */
static const char *const operators[] = {
    "Loop",
    "Scan",
    "If",
    "SequenceMap",
    "NonZero",
    "Unique",
    "Compress",
    "Range",
    "ConstantOfShape",
    "NonMaxSuppression",
    "Expand",
    "Tile",
    "Pad",
    "CenterCropPad",
    "Resize",
    "Upsample",
    "OneHot",
    "MaxUnpool",
    "StringSplit",
    "HannWindow",
    "DFT",
    "STFT",
    "AffineGrid",
    "MelWeightMatrix",
    "HammingWindow",
    "Col2Im",
    "BeamSearch",
    "GreedySearch",
    "BlackmanWindow",
    "Sampling",
    "CropAndResize",
    "Tokenizer",
    "WhisperBeamSearch",
};

/* A file position: `left` bytes of the message remain. */
struct reader {
    FILE *file;
    uint64_t left;
};

static int read_byte(struct reader *reader) {
    int byte = reader->left > 0 ? getc(reader->file) : EOF;
    reader->left -= byte != EOF;
    return byte;
}

/* Returns: 0 at the end of the message or for a number of more than 64 bits. */
static int read_varint(struct reader *reader, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        int byte = read_byte(reader);
        if (byte == EOF) {
            return 0;
        }
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return 1;
        }
    }
    return 0;
}

/* Returns: 0 when the message is shorter. */
static int skip(struct reader *reader, uint64_t n_bytes) {
    if (n_bytes > reader->left) {
        return 0;
    }
    if (n_bytes >= SEEK_MIN_BYTES) { /* a seek drops what the stream has buffered */
        reader->left -= n_bytes;
        return fseeko(reader->file, (off_t)n_bytes, SEEK_CUR) == 0;
    }
    while (n_bytes > 0 && read_byte(reader) != EOF) {
        n_bytes--;
    }
    return n_bytes == 0;
}

static int is_data_dependent(const char *name) {
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        if (strcmp(name, operators[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Reads a whole message. Returns: whether it has such an operator, or is malformed. */
static int scan_message(struct reader *reader, enum message message, int depth);

static int scan_name(struct reader *reader) {
    char name[OPERATOR_BYTES] = "";
    if (reader->left >= sizeof(name)) {
        return !skip(reader, reader->left);
    }
    size_t n_bytes = (size_t)reader->left;
    reader->left = 0;
    return fread(name, 1, n_bytes, reader->file) != n_bytes || is_data_dependent(name);
}

static int scan_bytes(struct reader *reader, enum message message, uint64_t field, int depth) {
    uint64_t n_bytes;
    if (!read_varint(reader, &n_bytes) || n_bytes > reader->left) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++) {
        if (children[i].message == message && children[i].field == field) {
            struct reader child = {reader->file, n_bytes};
            reader->left -= n_bytes;
            return children[i].child == OPERATOR_NAME
                       ? scan_name(&child)
                       : scan_message(&child, children[i].child, depth + 1);
        }
    }
    return !skip(reader, n_bytes);
}

static int scan_field(struct reader *reader, enum message message, int depth) {
    uint64_t key, value;
    if (!read_varint(reader, &key)) {
        return 1;
    }
    switch (key & 7) {
    case WIRE_VARINT:
        return !read_varint(reader, &value);
    case WIRE_FIXED64:
        return !skip(reader, 8);
    case WIRE_BYTES:
        return scan_bytes(reader, message, key >> 3, depth);
    case WIRE_FIXED32:
        return !skip(reader, 4);
    default:
        return 1;
    }
}

static int scan_message(struct reader *reader, enum message message, int depth) {
    if (depth > MAX_DEPTH) {
        return 1;
    }
    while (reader->left > 0) {
        if (scan_field(reader, message, depth)) {
            return 1;
        }
    }
    return 0;
}

int onnx_graph_is_data_dependent(const char *path) {
    struct reader reader = {.file = fopen(path, "rbe")};
    int found = 1;
    if (reader.file && fseeko(reader.file, 0, SEEK_END) == 0) {
        off_t n_bytes = ftello(reader.file);
        reader.left = n_bytes > 0 ? (uint64_t)n_bytes : 0;
        rewind(reader.file);
        found = reader.left == 0 || scan_message(&reader, MODEL, 0);
    }
    if (reader.file) {
        (void)fclose(reader.file);
    }
    return found;
}
