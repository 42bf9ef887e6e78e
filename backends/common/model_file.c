/* A mapped file would be shorter to write, but the process is killed by SIGBUS when such a file is
 * truncated or its volume fails. */
#include "common/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/protobuf.h"
#include "common/text.h"

const char *model_file_path(const char *path, const char *name, char *text, size_t n_bytes) {
    struct stat found;
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode)) {
        return path;
    }
    int n = snprintf(text, n_bytes, "%s/%s", path, name);
    return n > 0 && (size_t)n < n_bytes ? text : path;
}

/* ---- reading --------------------------------------------------------------------------------- */

static sluice_status error_io(sluice_error *error, const char *path) {
    sluice_status status = errno == ENOENT || errno == ENOTDIR ? SLUICE_NOT_FOUND
                           : errno == ELOOP                    ? SLUICE_INVALID_ARGUMENT
                           : errno == EMFILE || errno == ENFILE || errno == ENOMEM
                               ? SLUICE_UNAVAILABLE
                               : SLUICE_INTERNAL;
    return error_set(error, status, "%s: cannot be read: %s", path, strerror(errno));
}

/* The path of the opened file, which has no symbolic links. Returns: 0 when it is not known. */
static int opened_path(int fd, char opened[PATH_MAX]) {
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, opened, PATH_MAX - 1);
    opened[n < 0 ? 0 : n] = '\0';
    return n > 0 && opened[0] == '/';
}

static int is_allowed(const char *opened, const struct file_rules *rules) {
    for (size_t i = 0; i < rules->n_inside; i++) {
        const char *directory = rules->inside[i];
        size_t length = strcmp(directory, "/") == 0 ? 0 : strlen(directory);
        if (strncmp(opened, directory, length) == 0 && opened[length] == '/') {
            return 1;
        }
    }
    return rules->n_inside == 0;
}

static sluice_status read_all(struct file *file, int fd, const char *path, sluice_error *error) {
    for (size_t at = 0; at < file->n_bytes;) {
        ssize_t n = read(fd, file->data + at, file->n_bytes - at);
        if (n < 0 && errno != EINTR) {
            return error_io(error, path);
        }
        if (n == 0) {
            return error_set(error, SLUICE_INVALID_ARGUMENT,
                             "%s: became shorter while it was being read", path);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return SLUICE_OK;
}

static int is_unchanged(const struct stat *before, int fd) {
    struct stat after;
    return fstat(fd, &after) == 0 && after.st_size == before->st_size &&
           after.st_mtim.tv_sec == before->st_mtim.tv_sec &&
           after.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static sluice_status error_not_regular(sluice_error *error, const char *path) {
    return error_set(error, SLUICE_INVALID_ARGUMENT, "%s: expected a regular file", path);
}

static sluice_status read_open(struct file *file, int fd, const char *path,
                               const struct file_rules *rules, sluice_error *error) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return error_io(error, path);
    }
    if (!S_ISREG(info.st_mode)) {
        return error_not_regular(error, path);
    }
    file->n_bytes = (size_t)info.st_size;
    if (rules->max_bytes > 0 && file->n_bytes > rules->max_bytes) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%s %s", path, rules->too_large);
    }
    file->data = malloc(file->n_bytes + 1);
    if (!file->data) {
        return error_no_memory(error, "%s: %zu bytes", path, file->n_bytes);
    }
    sluice_status status = read_all(file, fd, path, error);
    if (status == SLUICE_OK && !is_unchanged(&info, fd)) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%s: changed while it was being read",
                         path);
    }
    return status;
}

sluice_status file_read(struct file *file, const char *path, const struct file_rules *rules,
                        char **real, sluice_error *error) {
    struct stat info;
    char opened[PATH_MAX] = "";
    *file = (struct file){0};
    if (stat(path, &info) != 0) {
        return error_io(error, path);
    }
    if (!S_ISREG(info.st_mode)) { /* opening a device may change it */
        return error_not_regular(error, path);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_io(error, path);
    }
    int known = opened_path(fd, opened);
    sluice_status status =
        is_allowed(opened, rules)
            ? read_open(file, fd, path, rules, error)
            : error_set(error, SLUICE_INVALID_ARGUMENT,
                        "%s: external data must be in the directory of the model's file, or of "
                        "the file that it links to",
                        path);
    close(fd);
    if (real) {
        *real = known ? strdup(opened) : NULL;
    }
    return status;
}

/* ---- what is wrong with a file --------------------------------------------------------------- */

enum { HEAD_BYTES = 256 };

static int begins(const char *head, const char *with) {
    return strncasecmp(head, with, strlen(with)) == 0;
}

/* The kinds of files that are given in place of a model, told apart by their first bytes. Returns:
 * why a file that begins so is no model; NULL: not recognised. */
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

/* Is it an outermost field of an ONNX file, of ModelProto in onnx.proto? Bits: 1 ir_version, 5
 * model_version; 2, 3, 4, 6 texts; 7 graph; 8 opset_import; 14 metadata; 20 training; 25 functions;
 * 26 configuration. */
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
