/* Reads an IR model's XML as text: the attribute `type` of each layer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openvino/model.h"

enum { OPERATOR_BYTES = 40 };

/* Those whose time follows from the shapes of their tensors, sorted. Whether a shape follows from
 * the shapes of the inputs, the library knows. */
static const char *const operators[] = {
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "AvgPool",
    "BatchNormInference",
    "Broadcast",
    "Ceiling",
    "Clamp",
    "Concat",
    "Const",
    "Convert",
    "ConvertLike",
    "Convolution",
    "ConvolutionBackpropData",
    "Cos",
    "Cosh",
    "CumSum",
    "DepthToSpace",
    "Divide",
    "Einsum",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Eye",
    "FakeConvert",
    "FakeQuantize",
    "Floor",
    "FloorMod",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Greater",
    "GreaterEqual",
    "GridSample",
    "GroupConvolution",
    "GroupConvolutionBackpropData",
    "GroupNormalization",
    "HSigmoid",
    "HSwish",
    "HardSigmoid",
    "Identity",
    "Interpolate",
    "IsFinite",
    "IsInf",
    "IsNaN",
    "LRN",
    "Less",
    "LessEqual",
    "Log",
    "LogSoftmax",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "LogicalXor",
    "MVN",
    "MatMul",
    "MaxPool",
    "Maximum",
    "Minimum",
    "Mish",
    "Mod",
    "Multiply",
    "Negative",
    "NormalizeL2",
    "NotEqual",
    "OneHot",
    "PReLU",
    "Pad",
    "Parameter",
    "Power",
    "Range",
    "ReLU",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogicalAnd",
    "ReduceLogicalOr",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Reshape",
    "Result",
    "Round",
    "ScatterElementsUpdate",
    "ScatterNDUpdate",
    "ScatterUpdate",
    "Select",
    "Selu",
    "ShapeOf",
    "ShuffleChannels",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Slice",
    "SoftMax",
    "SoftPlus",
    "SoftSign",
    "Softmax",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "SquaredDifference",
    "Squeeze",
    "StridedSlice",
    "Subtract",
    "Swish",
    "Tan",
    "Tanh",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
    "VariadicSplit",
};

static int compare_name(const void *name, const void *row) {
    return strcmp(name, *(const char *const *)row);
}

/* Reads an attribute's value up to its `quote`; what is longer than `out` is cut. */
static void read_value(FILE *file, int quote, char out[OPERATOR_BYTES]) {
    size_t n = 0;
    for (int byte = getc(file); byte != EOF && byte != quote; byte = getc(file)) {
        if (n + 1 < OPERATOR_BYTES) {
            out[n++] = (char)byte;
        }
    }
    out[n] = '\0';
}

/* Reads up to the value of the next attribute `type`. Returns: its first quote; EOF: there is
 * none. */
static int find_type(FILE *file) {
    static const char attribute[] = " type=";
    size_t n_matched = 0;
    int byte = ' ';
    while (attribute[n_matched] != '\0' && (byte = getc(file)) != EOF) {
        byte = byte == '\n' || byte == '\t' ? ' ' : byte;
        n_matched = byte == attribute[n_matched] ? n_matched + 1 : byte == ' ';
    }
    return byte == EOF ? EOF : getc(file);
}

static int scan(FILE *file) {
    char name[OPERATOR_BYTES];
    for (int quote = find_type(file); quote != EOF; quote = find_type(file)) {
        read_value(file, quote, name);
        if (!bsearch(name, operators, sizeof(operators) / sizeof(operators[0]),
                     sizeof(operators[0]), compare_name)) {
            return 0;
        }
    }
    return ferror(file) == 0;
}

int ir_follows_shapes(const char *path) {
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return 0;
    }
    int follows = scan(file);
    (void)fclose(file);
    return follows;
}
