/* Checks that a request fits its model (everything that a backend relies on is established here,
 * once, for all protocols), aligns its inputs, and releases a response. */
#include "core/tensor/infer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/metric/metric.h"
#include "core/base/plural.h"
#include "core/tensor/bytes.h"

/* ---- names ----------------------------------------------------------------------------------- */

/* A set of indices: up to 64 in `inline_bits`, else in the request's arena. */
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

/* A list of names for a message: "a", "b", and "…" where more do not fit. */
enum { NAME_LIST_BYTES = 256 };
struct name_list {
    bool single; /* 'a','b', as the reference server writes it */
    char text[NAME_LIST_BYTES];
    size_t len;
    size_t n;
    bool full;
};

static void name_list_add(struct name_list *list, struct str name) {
    static const char more[] = "…";
    char quoted[QUOTED_NAME_BYTES];
    const char *text = list->single ? quote_name_single(name, quoted) : quote_name(name, quoted);
    size_t n_between = list->single ? 1 : 2;
    list->n++;
    if (list->full) {
        return;
    }
    if (list->len + strlen(text) + 2 * strlen(", ") + sizeof(more) > NAME_LIST_BYTES) {
        list->full = true;
        text = more;
    }
    if (list->n > 1) {
        memcpy(list->text + list->len, ", ", n_between);
        list->len += n_between;
    }
    memcpy(list->text + list->len, text, strlen(text) + 1);
    list->len += strlen(text);
}

/* Clients compare how this text begins with the reference server's. */
static enum status unknown_tensor(const struct model_spec *model, const char *kind, struct str name,
                                  const struct tensor_spec *specs, size_t n, struct error *err) {
    char quoted[QUOTED_NAME_BYTES], model_name[QUOTED_NAME_BYTES];
    struct name_list list = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        name_list_add(&list, specs[i].name);
    }
    return error_set(err, ST_BAD_INPUTS,
                     "unexpected inference %s %s for model %s, which has %s%s%s%s%s", kind,
                     quote_name_single(name, quoted), quote_name_single(model->name, model_name),
                     n == 0 ? "no " : "", kind, plural_s(n), n == 0 ? "" : " ", list.text);
}

/* Clients compare this text with the reference server's. */
static enum status missing_inputs(const struct model_spec *model, const struct index_set *seen,
                                  const struct infer_request *request, struct error *err) {
    enum { EXPECTED_TEXT_BYTES = 80 };
    char model_name[QUOTED_NAME_BYTES], expected[EXPECTED_TEXT_BYTES];
    struct name_list missing = {.single = true}, got = {.single = true};
    size_t required = 0;
    for (size_t i = 0; i < model->n_inputs; i++) {
        required += !model->inputs[i].optional;
        if (!model->inputs[i].optional && !index_set_has(seen, i)) {
            name_list_add(&missing, model->inputs[i].name);
        }
    }
    for (size_t i = 0; i < request->n_inputs; i++) {
        name_list_add(&got, request->inputs[i].tensor.name);
    }
    if (required == model->n_inputs) {
        snprintf(expected, sizeof(expected), "%zu inputs", required);
    } else {
        snprintf(expected, sizeof(expected), "number of inputs between %zu and %zu", required,
                 model->n_inputs);
    }
    return error_set(err, ST_BAD_INPUTS,
                     "expected %s but got %zu inputs for model %s. Got input(s) [%s], but missing "
                     "required input(s) [%s]. Please provide all required input(s).",
                     expected, request->n_inputs, quote_name_single(model->name, model_name),
                     got.text, missing.text);
}

static enum status repeated_tensor(const char *kind, struct str name, struct error *err) {
    char quoted[QUOTED_NAME_BYTES];
    return error_set(err, ST_BAD_INPUTS, "%s %s already exists in request", kind,
                     quote_name_single(name, quoted)); /* clients compare this text */
}

/* Sets `spec` of every input. Unknown, repeated and missing names are errors. */
static enum status check_input_names(struct infer_request *request, const struct model_spec *model,
                                     struct error *err) {
    struct index_set seen;
    size_t required = 0;
    if (!index_set_init(&seen, request->arena, model->n_inputs)) {
        return error_no_memory(err, "checking the request");
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
    return required == 0 ? ST_OK : missing_inputs(model, &seen, request, err);
}

/* Sets `spec` of every wanted output. Unknown and repeated names are errors. */
static enum status check_output_names(struct infer_request *request, const struct model_spec *model,
                                      struct error *err) {
    struct index_set seen;
    if (!index_set_init(&seen, request->arena, model->n_outputs)) {
        return error_no_memory(err, "checking the request");
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

/* ---- datatype and shape ---------------------------------------------------------------------- */

static enum status check_datatype(const struct tensor *tensor, const struct tensor_spec *spec,
                                  struct error *err) {
    if (tensor->datatype == spec->datatype) {
        return ST_OK;
    }
    char name[QUOTED_NAME_BYTES];
    return error_set(err, ST_BAD_DATATYPE, "input %s: expected datatype %s, got %s",
                     quote_name(tensor->name, name), datatype_name(spec->datatype),
                     datatype_name(tensor->datatype));
}

/* Where only the batch dimension is missing from `got`, or was sent to a model that has none:
 * sets `dims` to the shape that the client should send instead. Returns: its rank; SIZE_MAX: the
 * shape is wrong in another way. */
static size_t suggest_shape(const struct model_spec *model, struct shape want, struct shape got,
                            int64_t dims[SHAPE_MAX_RANK]) {
    bool batches = model->max_batch_size > 0;
    dims[0] = 1;
    if (batches && got.rank + 1 == want.rank) {
        for (size_t i = 0; i < got.rank; i++) { /* an empty shape may have no address */
            dims[i + 1] = got.dims[i];
        }
    } else if (!batches && got.rank == want.rank + 1 && got.dims[0] == 1) {
        for (size_t i = 0; i < want.rank; i++) {
            dims[i] = got.dims[i + 1];
        }
    } else {
        return SIZE_MAX;
    }
    return shape_matches((struct shape){dims, want.rank}, want) ? want.rank : SIZE_MAX;
}

static enum status shape_mismatch_error(const struct tensor *tensor, const struct tensor_spec *spec,
                                        const struct model_spec *model, struct error *err) {
    char name[QUOTED_NAME_BYTES], want[SHAPE_TEXT_BYTES], got[SHAPE_TEXT_BYTES];
    char origin[ORIGIN_TEXT_BYTES], suggested[SHAPE_TEXT_BYTES] = "";
    const char *advice = "";
    int64_t dims[SHAPE_MAX_RANK];
    size_t rank = suggest_shape(model, spec->shape, tensor->shape, dims);
    if (rank != SIZE_MAX) {
        advice = model->max_batch_size > 0 ? ": the batch dimension is missing, send "
                                           : ": the model has no batch dimension, send ";
        shape_print((struct shape){dims, rank}, suggested);
    }
    return error_set(err, ST_BAD_SHAPE, "input %s: expected shape %s (-1: any size), got %s%s%s%s",
                     quote_name(tensor->name, name), shape_print(spec->shape, want),
                     shape_print(tensor->shape, got), advice, suggested,
                     tensor_origin_print(model, spec->origin, origin));
}

/* For a shape whose elements can't be counted: a negative dimension, or too many elements. */
static enum status invalid_shape_error(const struct tensor *tensor, struct error *err) {
    char name[QUOTED_NAME_BYTES], got[SHAPE_TEXT_BYTES];
    quote_name(tensor->name, name);
    shape_print(tensor->shape, got);
    for (size_t i = 0; i < tensor->shape.rank; i++) {
        if (tensor->shape.dims[i] < 0) {
            return error_set(err, ST_BAD_SHAPE,
                             "input %s: expected dimensions of 0 or more, got %" PRId64
                             " at index %zu of shape %s",
                             name, tensor->shape.dims[i], i, got);
        }
    }
    return error_set(err, ST_BAD_SHAPE,
                     "input %s: shape %s causes total element count to exceed maximum size of "
                     "9223372036854775807, or the byte size",
                     name, got);
}

static enum status check_batch(struct infer_request *request, size_t index,
                               const struct model_spec *model, struct error *err) {
    const struct tensor *tensor = &request->inputs[index].tensor;
    char name[QUOTED_NAME_BYTES], got[SHAPE_TEXT_BYTES], first[QUOTED_NAME_BYTES];
    char origin[ORIGIN_TEXT_BYTES];
    assert(tensor->shape.rank > 0); /* it fits a specification with a batch dimension */
    uint64_t batch = (uint64_t)tensor->shape.dims[0];
    if (batch < 1 || batch > model->max_batch_size) {
        return error_set(err, ST_BAD_SHAPE,
                         "input %s: expected a batch size (the first dimension) from 1 to %" PRIu64
                         ", the model's max_batch_size; got shape %s%s",
                         quote_name(tensor->name, name), model->max_batch_size,
                         shape_print(tensor->shape, got),
                         tensor_origin_print(model, model->batch_origin, origin));
    }
    if (index > 0 && batch != request->batch) {
        return error_set(err, ST_BAD_SHAPE,
                         "input %s: expected batch size %" PRIu64 " (the first dimension) as in "
                         "input %s, got shape %s",
                         quote_name(tensor->name, name), request->batch,
                         quote_name(request->inputs[0].tensor.name, first),
                         shape_print(tensor->shape, got));
    }
    request->batch = batch;
    return ST_OK;
}

static enum status check_shape(struct infer_request *request, size_t index,
                               const struct model_spec *model, struct error *err) {
    const struct infer_input *input = &request->inputs[index];
    const struct tensor_spec *spec = &model->inputs[input->spec];
    uint64_t elements;
    if (input->tensor.shape.rank > SHAPE_MAX_RANK) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_BAD_SHAPE, "input %s: expected at most %d dimensions, got %zu",
                         quote_name(input->tensor.name, name), SHAPE_MAX_RANK,
                         input->tensor.shape.rank);
    }
    if (!shape_elements(input->tensor.shape, &elements)) {
        return invalid_shape_error(&input->tensor, err);
    }
    if (!shape_matches(input->tensor.shape, spec->shape)) {
        return shape_mismatch_error(&input->tensor, spec, model, err);
    }
    return model->max_batch_size > 0 ? check_batch(request, index, model, err) : ST_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Returns: the index of the first byte that is neither 0 nor 1, or `n`. */
static size_t find_not_bool(const unsigned char *data, size_t n) {
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if ((word & 0xfefefefefefefefeu) != 0) {
            break;
        }
    }
    while (i < n && data[i] <= 1) {
        i++;
    }
    return i;
}

static enum status check_bools(const struct tensor *tensor, struct error *err) {
    size_t before = 0;
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        const unsigned char *data = tensor->pieces[i].data;
        size_t n = tensor->pieces[i].n_bytes;
        size_t at = find_not_bool(data, n);
        if (at < n) {
            char name[QUOTED_NAME_BYTES];
            return error_set(
                err, ST_BAD_DATA,
                "input %s: expected the byte 0 or 1 for each BOOL, got %u at element %zu",
                quote_name(tensor->name, name), data[at], before + at);
        }
        before += n;
    }
    return ST_OK;
}

/* Makes one piece of the pieces of a BYTES tensor, as elements may straddle them. */
static enum status gather_copy(struct infer_request *request, struct tensor *tensor,
                               struct error *err) {
    char *data = arena_alloc(request->arena, tensor->n_bytes);
    struct piece *piece = arena_alloc(request->arena, sizeof(*piece));
    if (!data || !piece) {
        return error_no_memory(err, "a BYTES input");
    }
    size_t n_bytes = pieces_copy(tensor->pieces, tensor->n_pieces, data, tensor->n_bytes);
    assert(n_bytes == tensor->n_bytes);
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)n_bytes);
    *piece = (struct piece){data, n_bytes};
    tensor->pieces = piece;
    tensor->n_pieces = 1;
    return ST_OK;
}

static enum status check_bytes_elements(struct infer_request *request, struct tensor *tensor,
                                        uint64_t n_checked, struct error *err) {
    uint64_t elements = 0;
    if (n_checked > 0 && tensor->n_pieces == 1 && shape_elements(tensor->shape, &elements) &&
        elements == n_checked) {
        return ST_OK;
    }
    if (tensor->n_pieces > 1) {
        enum status status = gather_copy(request, tensor, err);
        if (status != ST_OK) {
            return status;
        }
    }
    if (!shape_elements(tensor->shape, &elements)) {
        return invalid_shape_error(tensor, err);
    }
    struct str data = {0};
    if (tensor->n_pieces == 1) {
        data = str_make(tensor->pieces[0].data, tensor->pieces[0].n_bytes);
    }
    return bytes_check(data, elements, tensor->name, err);
}

static enum status check_data(struct infer_request *request, const struct model_spec *model,
                              struct infer_input *input, struct error *err) {
    struct tensor *tensor = &input->tensor;
    uint64_t expected;
    if (tensor->datatype == DT_BYTES) {
        return check_bytes_elements(request, tensor, input->n_checked, err);
    }
    if (!shape_bytes(tensor->shape, tensor->datatype, &expected)) {
        return invalid_shape_error(tensor, err);
    }
    if (expected != tensor->n_bytes) {
        char name[QUOTED_NAME_BYTES], shape[SHAPE_TEXT_BYTES];
        char model_name[QUOTED_NAME_BYTES]; /* clients compare the beginning */
        return error_set(err, ST_BAD_DATA,
                         "input byte size mismatch for input %s for model %s. Expected %" PRIu64
                         ", got %zu (shape %s of %s)",
                         quote_name_single(tensor->name, name),
                         quote_name_single(model->name, model_name), expected, tensor->n_bytes,
                         shape_print(tensor->shape, shape), datatype_name(tensor->datatype));
    }
    return tensor->datatype == DT_BOOL && input->n_checked != expected ? check_bools(tensor, err)
                                                                       : ST_OK;
}

/* ---- the request ----------------------------------------------------------------------------- */

static enum status check_id_and_params(const struct infer_request *request, struct error *err) {
    if (request->id.len > INFER_MAX_ID_BYTES) {
        return error_set(err, ST_BAD_FIELD, "id: expected at most %d bytes, got %zu",
                         INFER_MAX_ID_BYTES, request->id.len);
    }
    if (request->params.n > INFER_MAX_PARAMS) {
        return error_set(err, ST_BAD_FIELD, "parameters: expected at most %d, got %zu",
                         INFER_MAX_PARAMS, request->params.n);
    }
    return ST_OK;
}

enum status infer_check(struct infer_request *request, const struct model_spec *model,
                        struct error *err) {
    request->batch = 1;
    enum status status = check_id_and_params(request, err);
    if (status == ST_OK) {
        status = check_input_names(request, model, err);
    }
    if (status == ST_OK) {
        status = check_output_names(request, model, err);
    }
    for (size_t i = 0; status == ST_OK && i < request->n_inputs; i++) {
        struct infer_input *input = &request->inputs[i];
        status = check_datatype(&input->tensor, &model->inputs[input->spec], err);
        if (status == ST_OK) {
            status = check_shape(request, i, model, err);
        }
        if (status == ST_OK) {
            status = check_data(request, model, input, err);
        }
    }
    return status;
}

/* ---- alignment ------------------------------------------------------------------------------- */

/* Pieces first … first + n - 1 hold `n_bytes`, a whole number of elements. They are the fewest
 * pieces that do, except in the last run of a tensor of the wrong size, which infer_check
 * rejects. */
struct run {
    size_t first;
    size_t n;
    size_t n_bytes;
};

static struct run run_at(const struct tensor *tensor, size_t first, size_t element) {
    struct run run = {.first = first};
    do {
        run.n_bytes += tensor->pieces[first + run.n].n_bytes;
        run.n++;
    } while (run.n_bytes % element != 0 && first + run.n < tensor->n_pieces);
    return run;
}

static bool run_is_aligned(const struct tensor *tensor, struct run run, size_t element) {
    return run.n == 1 && (uintptr_t)tensor->pieces[run.first].data % element == 0;
}

static bool tensor_is_aligned(const struct tensor *tensor, size_t element) {
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        struct run run = run_at(tensor, i, element);
        if (run.n_bytes > 0 && !run_is_aligned(tensor, run, element)) {
            return false;
        }
        i += run.n - 1;
    }
    return true;
}

/* Returns: the bytes of the run in the arena, or NULL when out of memory. */
static void *run_copy(struct arena *arena, const struct tensor *tensor, struct run run) {
    char *data = arena_alloc(arena, run.n_bytes);
    if (data) {
        pieces_copy(tensor->pieces + run.first, run.n, data, run.n_bytes);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)run.n_bytes);
    }
    return data;
}

static bool tensor_align_copy(struct arena *arena, struct tensor *tensor, size_t element) {
    struct piece *pieces = arena_calloc(arena, tensor->n_pieces, sizeof(*pieces));
    size_t n = 0;
    if (!pieces) {
        return false;
    }
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        struct run run = run_at(tensor, i, element);
        if (run.n_bytes > 0) {
            const void *data = tensor->pieces[i].data;
            if (!run_is_aligned(tensor, run, element)) {
                data = run_copy(arena, tensor, run);
            }
            if (!data) {
                return false;
            }
            pieces[n++] = (struct piece){data, run.n_bytes};
        }
        i += run.n - 1;
    }
    metric_add(METRIC_MISALIGNED_TOTAL, 1);
    tensor->pieces = pieces;
    tensor->n_pieces = n;
    return true;
}

enum status infer_align_copy(struct infer_request *request, struct error *err) {
    for (size_t i = 0; i < request->n_inputs; i++) {
        struct tensor *tensor = &request->inputs[i].tensor;
        size_t element = datatype_size(tensor->datatype);
        if (element <= 1 || tensor_is_aligned(tensor, element)) {
            continue;
        }
        if (!tensor_align_copy(request->arena, tensor, element)) {
            char name[QUOTED_NAME_BYTES];
            return error_no_memory(err, "aligning input %s of %zu bytes",
                                   quote_name(tensor->name, name), tensor->n_bytes);
        }
    }
    return ST_OK;
}

/* ---- response -------------------------------------------------------------------------------- */

void infer_response_release(struct infer_response *response) {
    void (*release)(void *user) = response->release;
    response->release = NULL;
    if (release) {
        release(response->user);
    }
}
