/* The kinds of files that are given in place of a model, told apart by their first bytes, and the
 * outermost fields of an ONNX file (ModelProto in onnx.proto). */
#include "common/load_error.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { HEAD_BYTES = 256 };
enum wire_type { WIRE_VARINT = 0, WIRE_BYTES = 2 };

static int begins(const char *head, const char *with) {
    return strncasecmp(head, with, strlen(with)) == 0;
}

/* Returns: why a file that begins so is no model; NULL: not recognised. */
static const char *explain_head(const char *head, size_t n) {
    const char *text = head;
    if (begins(text, "\xef\xbb\xbf")) { /* a byte order mark */
        text += 3;
    }
    text += strspn(text, " \t\r\n");
    if (begins(text, "version https://git-lfs.github.com/spec/")) {
        return "is a Git LFS pointer, not the model itself: run `git lfs pull` where it was cloned";
    }
    if (begins(text, "<!doctype html") || begins(text, "<html") || begins(text, "<head")) {
        return "is a web page, not a model: the download went wrong";
    }
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0) {
        return "is a ZIP archive, as PyTorch and Keras write them, not an ONNX model: export the "
               "model to ONNX (torch.onnx.export)";
    }
    return n >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5
               ? "is a Python pickle, not an ONNX model: export the model to ONNX"
               : NULL;
}

static int read_varint(FILE *file, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        int byte = getc(file);
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

/* Is it a field of ModelProto? Bits: 1 ir_version, 5 model_version; 2, 3, 4, 6 texts; 7 graph; 8
 * opset_import; 14 metadata; 20 training; 25 functions; 26 configuration. */
static int is_field(uint64_t number, unsigned wire) {
    uint64_t varints = UINT64_C(1) << 1 | UINT64_C(1) << 5;
    uint64_t bytes = UINT64_C(1) << 2 | UINT64_C(1) << 3 | UINT64_C(1) << 4 | UINT64_C(1) << 6 |
                     UINT64_C(1) << 7 | UINT64_C(1) << 8 | UINT64_C(1) << 14 | UINT64_C(1) << 20 |
                     UINT64_C(1) << 25 | UINT64_C(1) << 26;
    uint64_t of_wire = wire == WIRE_VARINT ? varints : wire == WIRE_BYTES ? bytes : 0;
    return number < 64 && (of_wire >> number & 1);
}

static void explain_onnx(FILE *file, const char *path, uint64_t n_file, char *out, size_t n_bytes) {
    int has_graph = 0;
    uint64_t at = 0;
    while (at < n_file) {
        uint64_t tag, value;
        if (!read_varint(file, &tag) || !is_field(tag >> 3, tag & 7)) {
            snprintf(out, n_bytes,
                     at == 0 ? "%s is not an ONNX model"
                             : "%s is damaged, or no ONNX model: byte %llu begins no field of one",
                     path, (unsigned long long)at);
            return;
        }
        has_graph = has_graph || tag >> 3 == 7;
        if (!read_varint(file, &value)) {
            snprintf(out, n_bytes, "%s ends in the middle: it is incomplete; copy it again", path);
            return;
        }
        at = (uint64_t)ftello(file);
        if ((tag & 7) == WIRE_BYTES) {
            if (value > n_file - at) {
                snprintf(out, n_bytes,
                         "%s ends in the middle: it has %llu bytes and needs at least %llu; copy "
                         "it again",
                         path, (unsigned long long)n_file, (unsigned long long)(at + value));
                return;
            }
            at += value;
            if (fseeko(file, (off_t)at, SEEK_SET) != 0) {
                return;
            }
        }
    }
    snprintf(out, n_bytes,
             has_graph ? "%s is damaged: its graph is not readable; copy it again"
                       : "%s is not an ONNX model: it has no graph",
             path);
}

int load_error_explain(const char *path, int onnx, char *out, size_t n_bytes) {
    struct stat info;
    char head[HEAD_BYTES + 1] = "";
    out[0] = '\0';
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return 0;
    }
    if (info.st_size == 0) {
        snprintf(out, n_bytes, "%s is empty", path);
        return 1;
    }
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return 0;
    }
    const char *why = explain_head(head, fread(head, 1, HEAD_BYTES, file));
    if (why) {
        snprintf(out, n_bytes, "%s %s", path, why);
    } else if (onnx && info.st_size > INT_MAX) {
        snprintf(out, n_bytes,
                 "%s is larger than 2 GiB, which an ONNX file cannot be: save its weights as "
                 "external data",
                 path);
    } else if (onnx && fseeko(file, 0, SEEK_SET) == 0) {
        explain_onnx(file, path, (uint64_t)info.st_size, out, n_bytes);
    }
    fclose(file);
    return out[0] != '\0';
}
