/* Answers of generate. The members are few, and sorted before they are printed. */
#include <stdlib.h>
#include <string.h>

#include "codec/kserve/element_print.h"
#include "codec/kserve/generate.h"
#include "codec/kserve/json.h"
#include "core/base/utf8.h"

/* Of equal names the first of these counts. */
enum kind { OUTPUT, PARAM, TEXT };

struct member {
    struct str name;
    enum kind kind;
    const struct tensor *output;
    const struct param *param;
    struct str text;
};

static int compare_members(const void *left, const void *right) {
    const struct member *a = left, *b = right;
    size_t n = a->name.len < b->name.len ? a->name.len : b->name.len;
    int order = n > 0 ? memcmp(a->name.ptr, b->name.ptr, n) : 0;
    if (order == 0 && a->name.len != b->name.len) {
        order = a->name.len < b->name.len ? -1 : 1;
    }
    return order != 0 ? order : (int)a->kind - (int)b->kind;
}

static size_t list_members(struct member *members, const struct model_spec *model, struct str id,
                           const struct infer_response *response) {
    size_t n = 0;
    if (id.len > 0) {
        members[n++] = (struct member){.name = STR("id"), .kind = TEXT, .text = id};
    }
    members[n++] = (struct member){.name = STR("model_name"), .kind = TEXT, .text = model->name};
    members[n++] =
        (struct member){.name = STR("model_version"), .kind = TEXT, .text = model->version_text};
    for (size_t i = 0; i < response->params.n; i++) {
        const struct param *param = &response->params.items[i];
        members[n++] = (struct member){.name = param->name, .kind = PARAM, .param = param};
    }
    for (size_t i = 0; i < response->n_outputs; i++) {
        const struct tensor *output = &response->outputs[i];
        members[n++] = (struct member){.name = output->name, .kind = OUTPUT, .output = output};
    }
    qsort(members, n, sizeof(*members), compare_members);
    return n;
}

/* One element as it is, others as an array. */
static enum status print_output(struct buf *out, const struct tensor *output, struct error *err) {
    struct element_print print;
    uint64_t n;
    enum status st = element_print_start(&print, out->arena, output, "", err);
    if (st != ST_OK) {
        return st;
    }
    if (!shape_elements(output->shape, &n)) {
        n = UINT64_MAX; /* BYTES of an impossible shape: so many are not there */
    }
    if (n != 1) {
        buf_add_char(out, '[');
    }
    st = element_print_next(&print, out, n, err);
    if (st == ST_OK) {
        st = element_print_finish(&print, err);
    }
    if (st == ST_OK && n > 0 && !out->failed) {
        out->len--; /* the last comma */
    }
    if (n != 1) {
        buf_add_char(out, ']');
    }
    return st;
}

static enum status print_value(struct buf *out, const struct member *member, struct error *err) {
    switch (member->kind) {
    case OUTPUT:
        return print_output(out, member->output, err);
    case PARAM:
        return v2_json_param_value(out, member->param, err);
    case TEXT:
        break;
    }
    buf_add_json_string(out, member->text);
    return ST_OK;
}

enum status v2_generate_print(struct buf *out, const struct model_spec *model, struct str id,
                              const struct infer_response *response, struct error *err) {
    enum { OTHERS = 3 };
    size_t most = OTHERS + response->params.n + response->n_outputs;
    struct member *members = arena_calloc(out->arena, most, sizeof(*members));
    if (!members) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the answer");
    }
    enum status st = ST_OK;
    size_t n = list_members(members, model, id, response);
    buf_add_char(out, '{');
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        if (i > 0 && str_eq(members[i].name, members[i - 1].name)) {
            continue;
        }
        if (!utf8_is_valid(members[i].name.ptr, members[i].name.len)) {
            return error_set(err, ST_BAD_OUTPUT, "the name of a parameter is not UTF-8");
        }
        if (i > 0) {
            buf_add_char(out, ',');
        }
        buf_add_json_string(out, members[i].name);
        buf_add_char(out, ':');
        st = print_value(out, &members[i], err);
    }
    buf_add_char(out, '}');
    if (st != ST_OK) {
        return v2_json_output_error(st, err);
    }
    return out->failed ? error_set(err, ST_NO_MEMORY, "out of memory for the answer") : ST_OK;
}
