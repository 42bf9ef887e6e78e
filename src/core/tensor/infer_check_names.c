/* Which of a model's tensors does a request name? Finds each, and refuses names that are unknown,
 * repeated or missing with a sentence that lists the right ones. It refuses to look at anything but
 * names. */
#include "core/tensor/infer_check_names.h"

#include <string.h>

/* A set of indices: in `few` up to 64 of them, else in the request's arena. */
struct index_set {
    uint64_t inline_bits;
    uint64_t *arena_bits;
};

static bool index_set_init(struct index_set *set, struct arena *arena, size_t n) {
    *set = (struct index_set){0};
    if (n > 64) {
        set->arena_bits = arena_calloc(arena, n / 64 + 1, sizeof(uint64_t));
        return set->arena_bits != NULL;
    }
    return true;
}

static bool index_set_has(const struct index_set *set, size_t index) {
    const uint64_t *words = set->arena_bits ? set->arena_bits : &set->inline_bits;
    return (words[index / 64] >> index % 64 & 1) != 0;
}

static void index_set_add(struct index_set *set, size_t index) {
    uint64_t *words = set->arena_bits ? set->arena_bits : &set->inline_bits;
    words[index / 64] |= UINT64_C(1) << index % 64;
}

/* A list of names for a message: "a", "b", and "…" where there are more than it holds. */
enum { NAME_LIST_BYTES = 256 };
struct name_list {
    char text[NAME_LIST_BYTES];
    size_t len;
    size_t n;
    bool full;
};

static void name_list_add(struct name_list *list, struct str name) {
    static const char more[] = "…";
    char quoted[TENSOR_NAME_TEXT_BYTES];
    const char *text = tensor_name_print(name, quoted);
    list->n++;
    if (list->full) {
        return;
    }
    if (list->len + strlen(text) + 2 * strlen(", ") + sizeof(more) > NAME_LIST_BYTES) {
        list->full = true;
        text = more;
    }
    if (list->n > 1) {
        memcpy(list->text + list->len, ", ", 2);
        list->len += 2;
    }
    memcpy(list->text + list->len, text, strlen(text) + 1);
    list->len += strlen(text);
}

static enum status unknown_tensor(const struct model_spec *model, const char *kind, struct str name,
                                  const struct tensor_spec *specs, size_t n, struct error *err) {
    char quoted[TENSOR_NAME_TEXT_BYTES], model_name[TENSOR_NAME_TEXT_BYTES];
    struct name_list list = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        name_list_add(&list, specs[i].name);
    }
    return error_set(err, ST_BAD_INPUTS, "unknown %s %s; model %s has %s%s%s%s%s", kind,
                     tensor_name_print(name, quoted), tensor_name_print(model->name, model_name),
                     n == 0 ? "no " : "", kind, n == 1 ? "" : "s", n == 0 ? "" : " ", list.text);
}

static enum status missing_inputs(const struct model_spec *model, const struct index_set *seen,
                                  struct error *err) {
    char model_name[TENSOR_NAME_TEXT_BYTES];
    struct name_list list = {.n = 0};
    for (size_t i = 0; i < model->n_inputs; i++) {
        if (!model->inputs[i].optional && !index_set_has(seen, i)) {
            name_list_add(&list, model->inputs[i].name);
        }
    }
    return error_set(err, ST_BAD_INPUTS, "missing input%s %s of model %s", list.n == 1 ? "" : "s",
                     list.text, tensor_name_print(model->name, model_name));
}

static enum status repeated_tensor(const char *kind, struct str name, struct error *err) {
    char quoted[TENSOR_NAME_TEXT_BYTES];
    return error_set(err, ST_BAD_INPUTS, "%s %s is given more than once", kind,
                     tensor_name_print(name, quoted));
}

enum status infer_check_input_names(struct infer_request *request, const struct model_spec *model,
                                    struct error *err) {
    struct index_set seen;
    size_t required = 0;
    if (!index_set_init(&seen, request->arena, model->n_inputs)) {
        return error_set(err, ST_NO_MEMORY, "out of memory while checking the request");
    }
    for (size_t i = 0; i < request->n_inputs; i++) {
        struct infer_input *input = &request->inputs[i];
        input->spec = tensor_spec_find(model->inputs, model->n_inputs, input->tensor.name);
        if (input->spec == SIZE_MAX) {
            return unknown_tensor(model, "input", input->tensor.name, model->inputs,
                                  model->n_inputs, err);
        }
        if (index_set_has(&seen, input->spec)) {
            return repeated_tensor("input", input->tensor.name, err);
        }
        index_set_add(&seen, input->spec);
    }
    for (size_t i = 0; i < model->n_inputs; i++) {
        required += !model->inputs[i].optional && !index_set_has(&seen, i);
    }
    return required == 0 ? ST_OK : missing_inputs(model, &seen, err);
}

enum status infer_check_output_names(struct infer_request *request, const struct model_spec *model,
                                     struct error *err) {
    struct index_set seen;
    if (!index_set_init(&seen, request->arena, model->n_outputs)) {
        return error_set(err, ST_NO_MEMORY, "out of memory while checking the request");
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        struct infer_requested_output *wanted = &request->wanted[i];
        wanted->spec = tensor_spec_find(model->outputs, model->n_outputs, wanted->name);
        if (wanted->spec == SIZE_MAX) {
            return unknown_tensor(model, "output", wanted->name, model->outputs, model->n_outputs,
                                  err);
        }
        if (index_set_has(&seen, wanted->spec)) {
            return repeated_tensor("output", wanted->name, err);
        }
        index_set_add(&seen, wanted->spec);
    }
    return ST_OK;
}
