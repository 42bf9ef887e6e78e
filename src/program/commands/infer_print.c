/* Responses as readable JSON. The codec prints the numbers, so that they have the server's form. */
#include "program/commands/infer_answer.h"

#include "codec/kserve/encode.h"
#include "codec/kserve/json_elements_print.h"

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

/* Writes the rows of `level` and of the levels below it; those of the last are lines. */
static void print_rows(struct json_writer *json, struct str *rest, struct shape shape,
                       size_t level) {
    bool is_line = level + 1 == shape.rank;
    json_write_open(json, JSON_ELEMENT, '[');
    json->layout = is_line ? JSON_SPACED : JSON_LINES;
    for (int64_t i = 0; i < shape.dims[level]; i++) {
        if (is_line) {
            json_write_raw(json, JSON_ELEMENT, next_element(rest));
        } else {
            print_rows(json, rest, shape, level + 1);
        }
    }
    json_write_close(json, ']');
    json->layout = JSON_LINES;
}

void infer_data_write(struct json_writer *json, struct str flat, struct shape shape) {
    static const int64_t one = 1;
    uint64_t n = 1;
    for (size_t i = 0; i < shape.rank; i++) {
        n *= (uint64_t)shape.dims[i];
    }
    if (shape.rank == 0) { /* data is an array also for rank 0 */
        shape = (struct shape){&one, 1};
    }
    if (n == 0 || flat.len < 2) {
        json_write_open(json, JSON_ELEMENT, '[');
        json_write_close(json, ']');
        return;
    }
    struct str rest = str_make(flat.ptr + 1, flat.len - 2);
    print_rows(json, &rest, shape, 0);
}

/* ---- the response ---------------------------------------------------------------------------- */

static enum status print_params(struct json_writer *json, struct params params, struct error *err) {
    if (params.n == 0) {
        return ST_OK;
    }
    json_write_open(json, "parameters", '{');
    json->layout = JSON_SPACED;
    enum status status = v2_params_write(json, params, err);
    json_write_close(json, '}');
    json->layout = JSON_LINES;
    return status;
}

static enum status print_output(struct json_writer *json, const struct tensor *tensor,
                                struct error *err) {
    struct buf flat;
    buf_init(&flat, json->out->arena, 0);
    if (v2_data_print(&flat, tensor, V2_NON_FINITE_WORDS, err) != ST_OK) {
        struct error why = *err;
        return error_set(err, why.status, "%s (write it with --format raw)", why.text);
    }
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "name", tensor->name);
    json_write_string(json, "datatype", str_of(datatype_name(tensor->datatype)));
    json_write_i64s(json, "shape", tensor->shape.dims, tensor->shape.rank);
    json_write_key(json, "data");
    infer_data_write(json, buf_str(&flat), tensor->shape);
    json_write_close(json, '}');
    return ST_OK;
}

enum status infer_answer_print(struct buf *out, const struct v2_client_response *answer,
                               struct error *err) {
    struct json_writer json = {.out = out, .layout = JSON_LINES};
    json_write_open(&json, JSON_ELEMENT, '{');
    if (answer->id.len > 0) {
        json_write_string(&json, "id", answer->id);
    }
    json_write_string(&json, "model_name", answer->model_name);
    if (answer->model_version.len > 0) {
        json_write_string(&json, "model_version", answer->model_version);
    }
    enum status status = print_params(&json, answer->infer.params, err);
    json_write_open(&json, "outputs", '[');
    for (size_t i = 0; i < answer->infer.n_outputs && status == ST_OK; i++) {
        status = print_output(&json, &answer->infer.outputs[i], err);
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    buf_add_char(out, '\n');
    return status;
}
