/* ONNX Runtime's reasons are written for its own engineers: some name a C++ function and a limit, a
 * file of any other kind is one that "protobuf" could not parse. Those that people meet with a
 * first model are rewritten here; the others keep the library's words. */
#include "onnxruntime/load_check.h"

#include <stdio.h>
#include <string.h>

#include "common/load_error.h"

enum { NAME_BYTES = 64 };

/* Copies what is between `before` and one of the characters `until`. Returns: 0 when the text has
 * none. */
static int word_after(const char *text, const char *before, const char *until,
                      char out[NAME_BYTES]) {
    const char *at = strstr(text, before);
    if (!at) {
        return 0;
    }
    at += strlen(before);
    size_t n = strcspn(at, until);
    n = n < NAME_BYTES ? n : NAME_BYTES - 1;
    memcpy(out, at, n);
    out[n] = '\0';
    return n > 0;
}

/* The number after `before`. Returns: 0 when the text has none. */
static int number_after(const char *text, const char *before, int *number) {
    char word[NAME_BYTES];
    return word_after(text, before, " ,.;\n", word) && text_number(word, 9999, number);
}

static int explain_ir_version(const struct ort *ort, const char *message, const char *path,
                              char *out, size_t n_bytes) {
    int has, most;
    if (!number_after(message, "Unsupported model IR version: ", &has) ||
        !number_after(message, "max supported IR version: ", &most)) {
        return 0;
    }
    snprintf(out, n_bytes,
             "%s was written by a newer ONNX than this ONNX Runtime (%s) knows: its IR version is "
             "%d, at most %d is known; set model.ir_version = %d before onnx.save, or install a "
             "newer ONNX Runtime",
             path, ort->version, has, most, most);
    return 1;
}

static int explain_opset(const struct ort *ort, const char *message, const char *path, char *out,
                         size_t n_bytes) {
    int has, most;
    char domain[NAME_BYTES];
    if (!number_after(message, "Opset ", &has) || !number_after(message, "is till opset ", &most) ||
        !word_after(message, "support for domain ", " ", domain)) {
        return 0;
    }
    snprintf(out, n_bytes,
             "%s needs opset %d of %s; this ONNX Runtime (%s) knows up to %d: export it with "
             "opset_version=%d, or install a newer ONNX Runtime",
             path, has, domain, ort->version, most, most);
    return 1;
}

static int explain_operator(const struct ort *ort, const char *message, const char *path, char *out,
                            size_t n_bytes) {
    int opset;
    char name[NAME_BYTES], domain[NAME_BYTES], node[NAME_BYTES];
    if (word_after(message, "No Op registered for ", " ", name) &&
        number_after(message, "with domain_version of ", &opset)) {
        int has_node = word_after(message, "In Node, (\"", "\"", node);
        snprintf(out, n_bytes,
                 "%s needs the operator %s%s%s%s, which opset %d does not have (ONNX Runtime %s)",
                 path, name, has_node ? " (node \"" : "", has_node ? node : "",
                 has_node ? "\")" : "", opset, ort->version);
        return 1;
    }
    if (strstr(message, "is not a registered function/op") &&
        word_after(message, "Fatal error: ", ":", domain) &&
        word_after(strstr(message, domain) + strlen(domain), ":", "(", name)) {
        snprintf(
            out, n_bytes,
            "%s needs the operator %s of the domain %s, which ONNX Runtime (%s) does not have: "
            "custom operators are not supported",
            path, name, domain, ort->version);
        return 1;
    }
    return 0;
}

static int explain_element_type(const char *message, const char *path, char *out, size_t n_bytes) {
    int type;
    if (!number_after(message, "Invalid tensor data type ", &type)) {
        return 0;
    }
    snprintf(out, n_bytes,
             "%s has a tensor of element type %d, which ONNX does not define: the file is damaged, "
             "or newer than this ONNX Runtime",
             path, type);
    return 1;
}

static int is_unreadable(const char *message) {
    return strstr(message, "Protobuf parsing failed") ||
           strstr(message, "No graph was found in the protobuf");
}

sluice_status ort_check_load(const struct ort *ort, OrtStatus *result, const char *path,
                             sluice_error *error) {
    if (!result) {
        return SLUICE_OK;
    }
    char text[sizeof(error->text)];
    const char *message = ort->api->GetErrorMessage(result);
    int explained = explain_ir_version(ort, message, path, text, sizeof(text)) ||
                    explain_opset(ort, message, path, text, sizeof(text)) ||
                    explain_operator(ort, message, path, text, sizeof(text)) ||
                    explain_element_type(message, path, text, sizeof(text)) ||
                    (is_unreadable(message) && load_error_explain(path, 1, text, sizeof(text)));
    if (!explained) {
        return ort_check(ort, result, "ONNX Runtime can't load the model", error);
    }
    sluice_status status = ort_check(ort, result, "", error);
    return error_set(error, status, "%s", text);
}
