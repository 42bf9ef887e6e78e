/* The server finds the largest values (classification extension); this prints them for people. */
#include "program/commands/infer_answer.h"

#include "core/base/num.h"
#include "core/tensor/bytes.h"
#include "program/requests/file.h"

enum { MAX_LABELS_BYTES = 1 << 24 };

/* Returns: line number `index`; empty when the file has fewer. */
static struct str find_label(struct str labels, uint64_t index) {
    struct str line = {NULL, 0};
    for (uint64_t i = 0; i <= index; i++) {
        if (labels.len == 0) {
            return STR("");
        }
        line = str_cut(&labels, '\n');
    }
    return str_trim(line);
}

/* "VALUE:INDEX" or "VALUE:INDEX:LABEL" */
static void print_class(struct str text, struct str labels, struct buf *out) {
    struct str rest = text;
    struct str value = str_cut(&rest, ':');
    struct str index = str_cut(&rest, ':');
    uint64_t number;
    buf_printf(out, "%*s", value.len < 10 ? (int)(10 - value.len) : 0, "");
    buf_add_printable(out, value);
    buf_printf(out, "  %*s", index.len < 5 ? (int)(5 - index.len) : 0, "");
    buf_add_printable(out, index);
    if (labels.ptr && num_parse_u64(index, &number)) {
        struct str label = find_label(labels, number);
        buf_printf(out, "%s%.*s", label.len > 0 ? "  " : "", STR_ARG(label));
    } else if (rest.len > 0) {
        buf_add_str(out, STR("  "));
        buf_add_printable(out, rest);
    }
    buf_add_char(out, '\n');
}

static enum status print_output(const struct tensor *output, bool named, struct str labels,
                                struct buf *out, struct error *err) {
    if (output->datatype != DT_BYTES || output->n_pieces != 1) {
        return error_set(err, ST_BAD_ANSWER,
                         "output \"%.*s\": the server did not classify it (--top needs the "
                         "classification extension)",
                         STR_ARG(output->name));
    }
    struct str data = str_make(output->pieces[0].data, output->pieces[0].n_bytes), element;
    if (named) {
        buf_add_printable(out, output->name);
        buf_add_char(out, '\n');
    }
    while (data.len > 0 && bytes_next(&data, &element)) {
        print_class(element, labels, out);
    }
    return ST_OK;
}

enum status infer_top_or_all_print(const struct infer_settings *settings,
                                   const struct v2_client_response *answer, struct buf *out,
                                   struct error *err) {
    struct str labels = {NULL, 0};
    enum status st = ST_OK;
    if (settings->top == 0) {
        return infer_answer_print(out, answer, err);
    }
    if (settings->labels) {
        st = file_read(out->arena, settings->labels, MAX_LABELS_BYTES, &labels, err);
    }
    for (size_t i = 0; i < answer->infer.n_outputs && st == ST_OK; i++) {
        st = print_output(&answer->infer.outputs[i], answer->infer.n_outputs > 1, labels, out, err);
    }
    return st;
}
