/* Reads an IR model's XML as text: the attribute `type` of each layer. */
#include "openvino/ir.h"

#include <stdio.h>
#include <string.h>

enum { OPERATOR_BYTES = 40 };

/* Those with an output whose size is a value of an input have a bounded time where that input is a
 * constant; it is not worth following it. */
static const char *const operators[] = {
    "Loop",
    "TensorIterator",
    "If",
    "NonZero",
    "Unique",
    "Range",
    "Broadcast",
    "Tile",
    "Pad",
    "Interpolate",
    "OneHot",
    "Eye",
    "RandomUniform",
    "Multinomial",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "BatchToSpace",
    "SpaceToBatch",
    "Col2Im",
    "DFT",
    "IDFT",
    "RDFT",
    "IRDFT",
    "STFT",
    "ISTFT",
    "NonMaxSuppression",
    "NonMaxSuppressionIEInternal",
    "NMSRotated",
    "MatrixNms",
    "MulticlassNms",
    "Proposal",
    "DetectionOutput",
    "GenerateProposals",
    "ExperimentalDetectronDetectionOutput",
    "CTCGreedyDecoderSeqLen",
};

static int is_data_dependent(const char *name) {
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        if (strcmp(name, operators[i]) == 0) {
            return 1;
        }
    }
    return 0;
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
        if (is_data_dependent(name)) {
            return 1;
        }
    }
    return ferror(file) != 0;
}

int ir_is_data_dependent(const char *path) {
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return 1;
    }
    int found = scan(file);
    (void)fclose(file);
    return found;
}
