/* Responses as readable JSON. The codec prints the numbers, so that they have the server's form. */
#include "program/commands/infer_answer.h"

#include <inttypes.h>

#include "codec/kserve/data_print.h"
#include "codec/kserve/json.h"

static void new_line(struct buf *out, unsigned indent) {
    buf_add_char(out, '\n');
    for (unsigned i = 0; i < indent; i++) {
        buf_add_char(out, ' ');
    }
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Cuts the next element off a flat JSON array without its brackets. */
static struct str next_element(struct str *rest) {
    size_t i = 0;
    bool quoted = false;
    for (; i < rest->len && (quoted || rest->ptr[i] != ','); i++) {
        if (rest->ptr[i] == '"') {
            quoted = !quoted;
        } else if (rest->ptr[i] == '\\') {
            i++; /* skips an escaped character */
        }
    }
    i = i < rest->len ? i : rest->len;
    struct str element = str_make(rest->ptr, i);
    size_t skip = i < rest->len ? i + 1 : i;
    *rest = str_make(rest->ptr + skip, rest->len - skip);
    return element;
}

/* The number of elements of an array at level `level`. */
static uint64_t array_stride(struct shape shape, size_t level) {
    uint64_t n = 1;
    for (size_t i = level; i < shape.rank; i++) {
        n *= (uint64_t)shape.dims[i];
    }
    return n;
}

/* Prints the brackets, commas and line breaks between elements i - 1 and i. */
static void print_separator(struct buf *out, struct shape shape, uint64_t i, unsigned indent) {
    size_t closed = shape.rank;
    while (closed > 0 && i % array_stride(shape, closed - 1) == 0) {
        closed--;
    }
    size_t n = shape.rank - closed;
    for (size_t k = 0; k < n; k++) {
        if (k > 0) {
            new_line(out, indent + 2 * (unsigned)(shape.rank - 1 - k));
        }
        buf_add_char(out, ']');
    }
    buf_add_str(out, n > 0 ? STR(",") : STR(", "));
    for (size_t k = closed; k < shape.rank; k++) {
        new_line(out, indent + 2 * (unsigned)k);
        buf_add_char(out, '[');
    }
}

void infer_data_print(struct buf *out, struct str flat, struct shape shape, unsigned indent) {
    uint64_t n = array_stride(shape, 0);
    static const int64_t one = 1;
    if (shape.rank == 0) { /* data is an array also for rank 0 */
        shape = (struct shape){&one, 1};
    }
    if (n == 0 || flat.len < 2) {
        buf_add_str(out, STR("[]"));
        return;
    }
    struct str rest = str_make(flat.ptr + 1, flat.len - 2);
    for (size_t k = 0; k < shape.rank; k++) {
        if (k > 0) {
            new_line(out, indent + 2 * (unsigned)k);
        }
        buf_add_char(out, '[');
    }
    for (uint64_t i = 0; i < n; i++) {
        if (i > 0) {
            print_separator(out, shape, i, indent);
        }
        buf_add_str(out, next_element(&rest));
    }
    for (size_t k = 0; k < shape.rank; k++) {
        if (k > 0) {
            new_line(out, indent + 2 * (unsigned)(shape.rank - 1 - k));
        }
        buf_add_char(out, ']');
    }
}

/* ---- the response ---------------------------------------------------------------------------- */

static void print_member(struct buf *out, const char *key, struct str value, unsigned indent) {
    new_line(out, indent);
    buf_printf(out, "\"%s\": ", key);
    buf_add_json_string(out, value);
    buf_add_char(out, ',');
}

static enum status print_params(struct buf *out, struct params params, struct error *err) {
    enum status status = ST_OK;
    if (params.n == 0) {
        return ST_OK;
    }
    new_line(out, 2);
    buf_add_str(out, STR("\"parameters\": {"));
    for (size_t i = 0; i < params.n && status == ST_OK; i++) {
        buf_add_str(out, i > 0 ? STR(", ") : STR(""));
        buf_add_json_string(out, params.items[i].name);
        buf_add_str(out, STR(": "));
        status = v2_json_param_value(out, &params.items[i], err);
    }
    buf_add_str(out, STR("},"));
    return status;
}

static enum status print_output(struct buf *out, const struct tensor *tensor, struct error *err) {
    struct buf flat;
    buf_init(&flat, out->arena, 0);
    if (v2_data_print(&flat, tensor, err) != ST_OK) {
        struct error why = *err;
        return error_set(err, why.status, "%s (write it with --format raw)", why.text);
    }
    new_line(out, 4);
    buf_add_char(out, '{');
    print_member(out, "name", tensor->name, 6);
    print_member(out, "datatype", str_of(datatype_name(tensor->datatype)), 6);
    new_line(out, 6);
    buf_add_str(out, STR("\"shape\": ["));
    for (size_t i = 0; i < tensor->shape.rank; i++) {
        buf_printf(out, i > 0 ? ", %" PRId64 : "%" PRId64, tensor->shape.dims[i]);
    }
    buf_add_str(out, STR("],"));
    new_line(out, 6);
    buf_add_str(out, STR("\"data\": "));
    infer_data_print(out, buf_str(&flat), tensor->shape, 6);
    new_line(out, 4);
    buf_add_char(out, '}');
    return ST_OK;
}

enum status infer_answer_print(struct buf *out, const struct v2_client_response *answer,
                               struct error *err) {
    buf_add_char(out, '{');
    if (answer->id.len > 0) {
        print_member(out, "id", answer->id, 2);
    }
    print_member(out, "model_name", answer->model_name, 2);
    if (answer->model_version.len > 0) {
        print_member(out, "model_version", answer->model_version, 2);
    }
    enum status status = print_params(out, answer->infer.params, err);
    new_line(out, 2);
    buf_add_str(out, STR("\"outputs\": ["));
    for (size_t i = 0; i < answer->infer.n_outputs && status == ST_OK; i++) {
        buf_add_str(out, i > 0 ? STR(",") : STR(""));
        status = print_output(out, &answer->infer.outputs[i], err);
    }
    new_line(out, 2);
    buf_add_str(out, STR("]\n}\n"));
    if (status == ST_OK && out->failed) {
        status = error_no_memory(err, "printing the answer");
    }
    return status;
}
