/* Sizes come first: all shapes of the joint request are computed and their bytes limited before
 * memory is taken. Then each input is written by its layout. */
#include "serve/scheduler/joint/joint_inputs.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/checked.h"

enum { JOINT_ALIGNMENT = 64 };

static const sluice_input *find_input(const sluice_input *inputs, size_t n, uint32_t index) {
    for (size_t i = 0; i < n; i++) {
        if (inputs[i].index == index) {
            return &inputs[i];
        }
    }
    return NULL;
}

const sluice_input *joint_input_find(const sluice_request *request, uint32_t index) {
    const sluice_input *input = find_input(request->inputs, request->n_inputs, index);
    assert(input);
    return input;
}

size_t joint_free_dim(struct shape shape, size_t k) {
    size_t i = 1;
    for (; i < shape.rank; i++) {
        if (shape.dims[i] < 0 && k-- == 0) {
            break;
        }
    }
    return i < shape.rank ? i : shape.rank;
}

static struct shape input_shape(const sluice_input *input) {
    return (struct shape){input->dims, input->rank};
}

static bool size_of(struct shape shape, sluice_datatype datatype, size_t *n_bytes) {
    uint64_t wide;
    bool ok = shape_bytes(shape, (enum datatype)datatype, &wide) && wide <= SIZE_MAX;
    *n_bytes = ok ? (size_t)wide : 0;
    return ok;
}

/* Returns: whether the server writes the bytes of the input. */
static bool is_filled(const sluice_input *input) {
    return input->n_pieces == 0 && input->n_bytes > 0;
}

/* ---- inputs that a request leaves out -------------------------------------------------------- */

/* A mask has the source's sizes in its free dimensions; a length has no free dimension. */
static bool describe_fill(struct arena *arena, const struct layout_input *layout,
                          const struct layout_input *source_layout, const sluice_input *source,
                          sluice_input *out) {
    int64_t *dims = arena_calloc(arena, layout->shape.rank, sizeof(*dims));
    size_t n_free = 0;
    if (!dims) {
        return false;
    }
    dims[0] = source->dims[0];
    for (size_t i = 1; i < layout->shape.rank; i++) {
        dims[i] = layout->shape.dims[i];
        if (dims[i] < 0) {
            dims[i] = source->dims[joint_free_dim(source_layout->shape, n_free++)];
        }
    }
    out->dims = dims;
    out->rank = layout->shape.rank;
    return size_of(input_shape(out), out->datatype, &out->n_bytes);
}

static void insert_input(sluice_input *inputs, size_t *n, const sluice_input *input) {
    size_t at = (*n)++;
    for (; at > 0 && inputs[at - 1].index > input->index; at--) {
        inputs[at] = inputs[at - 1];
    }
    inputs[at] = *input;
}

bool joint_inputs_describe(struct arena *arena, const struct model_plan *plan, sluice_input *inputs,
                           size_t *n) {
    for (size_t i = 0; i < plan->spec.n_inputs; i++) {
        uint32_t index = plan->inputs[i].index;
        const struct layout_input *layout = &plan->layout->inputs[index];
        if (layout->fill == FILL_NOTHING || find_input(inputs, *n, index)) {
            continue;
        }
        sluice_input input = {.index = index,
                              .datatype = (sluice_datatype)plan->spec.inputs[i].datatype,
                              .name = plan->spec.inputs[i].name.ptr};
        if (!describe_fill(arena, layout, &plan->layout->inputs[layout->source],
                           find_input(inputs, *n, layout->source), &input)) {
            return false;
        }
        insert_input(inputs, n, &input);
    }
    return true;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The joint request while it is made. */
struct joint {
    struct arena *arena;
    const struct batch_layout *layout;
    const sluice_request *const *requests;
    size_t n;
    struct error *err;
};

static const sluice_input *input_of(const struct joint *joint, size_t request, size_t k) {
    return &joint->requests[request]->inputs[k];
}

static enum status fail_size(const struct joint *joint, const char *name) {
    return error_set(joint->err, ST_BAD_SHAPE, "input \"%s\" of %zu %s in one batch is too large",
                     name, joint->n, joint->n == 1 ? "request" : "requests");
}

/* Rows add up; a row that is not there makes no other longer. */
static bool pad_dims(const struct joint *joint, size_t k, const struct layout_input *layout,
                     int64_t *dims) {
    uint64_t multiple = joint->layout->pad_multiple;
    size_t rank = input_of(joint, 0, k)->rank;
    for (size_t d = 1; d < rank; d++) {
        uint64_t longest = 0;
        if (layout->shape.dims[d] >= 0) {
            continue;
        }
        for (size_t i = 0; i < joint->n; i++) {
            const sluice_input *input = input_of(joint, i, k);
            bool counts = input->dims[0] > 0 || dims[0] == 0;
            longest =
                counts && (uint64_t)input->dims[d] > longest ? (uint64_t)input->dims[d] : longest;
        }
        uint64_t rest = longest % multiple;
        longest += rest > 0 ? multiple - rest : 0; /* a dimension has 63 bits: no overflow */
        dims[d] = (int64_t)longest;
        if (dims[d] < 0) {
            return false;
        }
    }
    return true;
}

static bool add_dim(int64_t *sum, uint64_t n) {
    return n <= INT64_MAX && !__builtin_add_overflow(*sum, (int64_t)n, sum);
}

static bool ragged_dims(const struct joint *joint, size_t k, sluice_input *out, int64_t *dims) {
    uint64_t elements = 0;
    bool fits = true;
    dims[0] = 0;
    out->rank = 1;
    for (size_t i = 0; fits && i < joint->n; i++) {
        fits = shape_elements(input_shape(input_of(joint, i, k)), &elements) &&
               add_dim(&dims[0], elements);
    }
    return fits;
}

/* Fills datatype, name, dims and size. */
static enum status shape_input(const struct joint *joint, size_t k, sluice_input *out) {
    const sluice_input *first = input_of(joint, 0, k);
    const struct layout_input *layout = &joint->layout->inputs[first->index];
    int64_t *dims = arena_calloc(joint->arena, first->rank + 1, sizeof(*dims));
    bool fits = true;
    *out = (sluice_input){.index = first->index,
                          .datatype = first->datatype,
                          .name = first->name,
                          .dims = dims,
                          .rank = first->rank};
    if (!dims) {
        return error_no_memory(joint->err, "the inputs of a batch");
    }
    memcpy(dims, first->dims, first->rank * sizeof(*dims));
    for (size_t i = 0; i < joint->n; i++) {
        const sluice_input *input = input_of(joint, i, k);
        fits = fits && checked_add(out->n_bytes, input->n_bytes, &out->n_bytes);
        fits = fits && (i == 0 || add_dim(&dims[0], (uint64_t)input->dims[0]));
    }
    if (layout->kind == INPUT_RAGGED) {
        fits = fits && ragged_dims(joint, k, out, dims);
    } else if (layout->kind == INPUT_PADDED) {
        fits = fits && pad_dims(joint, k, layout, dims) &&
               size_of(input_shape(out), out->datatype, &out->n_bytes);
    }
    return fits ? ST_OK : fail_size(joint, out->name);
}

/* ---- shapes of what the server makes --------------------------------------------------------- */

static enum status shape_made(const struct joint *joint, const struct layout_made *made,
                              sluice_input *out) {
    int64_t *dims = arena_calloc(joint->arena, 2, sizeof(*dims));
    bool fits = true;
    *out = (sluice_input){.index = made->index,
                          .datatype = (sluice_datatype)made->datatype,
                          .name = made->name,
                          .dims = dims,
                          .rank = 1};
    if (!dims) {
        return error_no_memory(joint->err, "the inputs of a batch");
    }
    if (made->kind != BATCH_MAX_ELEMENT_COUNT_AS_SHAPE && made->kind != BATCH_ITEM_SHAPE &&
        made->kind != BATCH_ITEM_SHAPE_FLATTEN) {
        dims[0] =
            (int64_t)joint->n + (made->kind == BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO ? 1 : 0);
        return size_of(input_shape(out), out->datatype, &out->n_bytes)
                   ? ST_OK
                   : fail_size(joint, made->name);
    }
    for (size_t i = 0; fits && i < joint->n; i++) {
        const sluice_input *source = joint_input_find(joint->requests[i], made->source);
        uint64_t elements = 0;
        dims[1] = (int64_t)source->rank - 1;
        if (made->kind != BATCH_MAX_ELEMENT_COUNT_AS_SHAPE) {
            fits = add_dim(&dims[0], (uint64_t)source->dims[0]);
        } else {
            fits = shape_elements(input_shape(source), &elements);
            dims[0] = (int64_t)elements > dims[0] ? (int64_t)elements : dims[0];
        }
    }
    if (made->kind == BATCH_ITEM_SHAPE) {
        out->rank = 2;
    } else if (made->kind == BATCH_ITEM_SHAPE_FLATTEN) {
        fits = fits && !__builtin_mul_overflow(dims[0], dims[1], &dims[0]);
    }
    return fits && size_of(input_shape(out), out->datatype, &out->n_bytes)
               ? ST_OK
               : fail_size(joint, made->name);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Repeats an element. */
static unsigned char *put_elements(unsigned char *to, size_t n_bytes, const unsigned char *element,
                                   size_t size) {
    for (size_t i = 0; i < n_bytes; i += size) {
        memcpy(to + i, element, size);
    }
    return to + n_bytes;
}

/* The read position in the bytes of an input; of one that the server fills, ones. */
struct cursor {
    const sluice_piece *piece;
    size_t at; /* in the piece */
    const unsigned char *ones;
    size_t size; /* of an element */
};

static void cursor_read(struct cursor *cursor, unsigned char *to, size_t n_bytes) {
    if (cursor->ones) {
        put_elements(to, n_bytes, cursor->ones, cursor->size);
        return;
    }
    while (n_bytes > 0) {
        size_t left = cursor->piece->n_bytes - cursor->at;
        size_t n = left < n_bytes ? left : n_bytes;
        if (n > 0) { /* an empty piece may have no address */
            memcpy(to, (const unsigned char *)cursor->piece->data + cursor->at, n);
        }
        to += n;
        n_bytes -= n;
        cursor->at += n;
        if (cursor->at == cursor->piece->n_bytes) {
            cursor->piece++;
            cursor->at = 0;
        }
    }
}

/* The rows of one request that are padded. */
struct padding {
    struct cursor cursor;
    const int64_t *own, *joint; /* sizes; those of the batch dimension are the request's in both */
    size_t last;                /* the last dimension that is padded */
    size_t strides[SHAPE_MAX_RANK]; /* bytes of an index of each dimension in the joint input */
    const unsigned char *pad;
};

/* Recursion: as deep as the rank. */
static unsigned char *pad_dim(struct padding *padding, size_t d, unsigned char *to) {
    size_t stride = padding->strides[d];
    size_t n = (size_t)padding->own[d];
    if (d == padding->last) {
        cursor_read(&padding->cursor, to, n * stride);
        to += n * stride;
    } else {
        for (size_t i = 0; i < n; i++) {
            to = pad_dim(padding, d + 1, to);
        }
    }
    size_t n_more = d > 0 ? (size_t)padding->joint[d] - n : 0;
    return put_elements(to, n_more * stride, padding->pad, padding->cursor.size);
}

/* Writes the rows of one request. Returns: the address after them. */
static unsigned char *pad_rows(const sluice_input *own, const sluice_input *joint,
                               const unsigned char *pad, unsigned char *to) {
    unsigned char one[ELEMENT_MAX_BYTES];
    struct padding padding = {
        .cursor = {.piece = own->pieces, .size = datatype_size((enum datatype)own->datatype)},
        .own = own->dims,
        .joint = joint->dims,
        .pad = pad};
    bool is_number = element_put((enum datatype)own->datatype, 1, one);
    padding.cursor.ones = is_filled(own) && is_number ? one : NULL;
    size_t stride = padding.cursor.size;
    for (size_t d = own->rank; d > 0; d--) {
        padding.strides[d - 1] = stride;
        stride *= d > 1 ? (size_t)joint->dims[d - 1] : 1; /* size_of has checked the product */
    }
    for (size_t d = 1; d < own->rank; d++) {
        padding.last = own->dims[d] != joint->dims[d] ? d : padding.last;
    }
    return pad_dim(&padding, 0, to);
}

/* The sizes of the source for each row. */
static enum status put_lengths(const struct joint *joint, const sluice_request *request,
                               const sluice_input *own, unsigned char **to) {
    const struct layout_input *layout = &joint->layout->inputs[own->index];
    const sluice_input *source = joint_input_find(request, layout->source);
    struct shape shape = joint->layout->inputs[layout->source].shape;
    size_t size = datatype_size((enum datatype)own->datatype);
    for (int64_t row = 0; row < own->dims[0]; row++) {
        size_t d = joint_free_dim(shape, 0);
        for (size_t k = 1; d < shape.rank; d = joint_free_dim(shape, k++)) {
            unsigned char element[ELEMENT_MAX_BYTES];
            if (!element_put((enum datatype)own->datatype, source->dims[d], element)) {
                return error_set(joint->err, ST_BAD_SHAPE,
                                 "the length %" PRId64 " of input \"%s\" is no %s", source->dims[d],
                                 source->name, datatype_name((enum datatype)own->datatype));
            }
            memcpy(*to, element, size);
            *to += size;
        }
    }
    return ST_OK;
}

static void copy_pieces(const sluice_input *own, unsigned char **to) {
    struct cursor cursor = {.piece = own->pieces};
    cursor_read(&cursor, *to, own->n_bytes);
    *to += own->n_bytes;
}

/* A request that is alone, and has the bytes as the model gets them. */
static bool is_in_place(const struct joint *joint, const sluice_input *own,
                        const sluice_input *input) {
    return joint->n == 1 && !is_filled(own) && own->n_bytes == input->n_bytes;
}

static enum status write_input(const struct joint *joint, size_t k, sluice_input *input,
                               unsigned char *to) {
    const struct layout_input *layout = &joint->layout->inputs[input->index];
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < joint->n; i++) {
        const sluice_input *own = input_of(joint, i, k);
        if (layout->kind == INPUT_PADDED) {
            to = pad_rows(own, input, layout->pad, to);
        } else if (is_filled(own)) {
            st = put_lengths(joint, joint->requests[i], own, &to);
        } else {
            copy_pieces(own, &to);
        }
    }
    return st;
}

/* ---- bytes of what the server makes ---------------------------------------------------------- */

struct made_values {
    const struct joint *joint;
    const struct layout_made *made;
    unsigned char *to;
    enum status status;
};

static void put_value(struct made_values *values, uint64_t value) {
    unsigned char element[ELEMENT_MAX_BYTES];
    size_t size = datatype_size(values->made->datatype);
    if (values->status != ST_OK) {
        return;
    }
    if (value > INT64_MAX || !element_put(values->made->datatype, (int64_t)value, element)) {
        values->status =
            error_set(values->joint->err, ST_BAD_SHAPE,
                      "input \"%s\" of a batch would contain %" PRIu64 ", which is no %s",
                      values->made->name, value, datatype_name(values->made->datatype));
        return;
    }
    memcpy(values->to, element, size);
    values->to += size;
}

static void put_counts(struct made_values *values) {
    uint64_t sum = 0;
    bool accumulated = values->made->kind != BATCH_ELEMENT_COUNT;
    if (values->made->kind == BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO) {
        put_value(values, 0);
    }
    for (size_t i = 0; i < values->joint->n; i++) {
        uint64_t elements = 0;
        (void)shape_elements(
            input_shape(joint_input_find(values->joint->requests[i], values->made->source)),
            &elements); /* infer_check has multiplied them */
        sum = accumulated ? sum + elements : elements;
        put_value(values, sum);
    }
}

static void put_shapes(struct made_values *values) {
    for (size_t i = 0; i < values->joint->n; i++) {
        const sluice_input *source =
            joint_input_find(values->joint->requests[i], values->made->source);
        for (int64_t row = 0; row < source->dims[0]; row++) {
            for (size_t d = 1; d < source->rank; d++) {
                put_value(values, (uint64_t)source->dims[d]);
            }
        }
    }
}

static enum status write_made(const struct joint *joint, const struct layout_made *made,
                              const sluice_input *input, unsigned char *to) {
    struct made_values values = {.joint = joint, .made = made, .to = to};
    switch (made->kind) {
    case BATCH_ELEMENT_COUNT:
    case BATCH_ACCUMULATED_ELEMENT_COUNT:
    case BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
        put_counts(&values);
        break;
    case BATCH_MAX_ELEMENT_COUNT_AS_SHAPE: /* only its shape matters */
        memset(to, 0, input->n_bytes);
        break;
    case BATCH_ITEM_SHAPE:
    case BATCH_ITEM_SHAPE_FLATTEN:
        put_shapes(&values);
        break;
    }
    return values.status;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The bytes that are sent, and those of the joint request. */
static enum status check_sizes(const struct joint *joint, const sluice_input *inputs, size_t n) {
    size_t sent = 0, total = 0, limit = 0;
    bool fits = true;
    for (size_t i = 0; i < joint->n; i++) {
        for (size_t k = 0; k < joint->requests[i]->n_inputs; k++) {
            const sluice_input *own = input_of(joint, i, k);
            fits = fits && checked_add(sent, is_filled(own) ? 0 : own->n_bytes, &sent);
        }
    }
    for (size_t i = 0; i < n; i++) {
        fits = fits && checked_add(total, inputs[i].n_bytes, &total);
    }
    fits = fits && checked_mul(sent, JOINT_EXTRA_FACTOR, &limit) &&
           checked_add(limit, JOINT_EXTRA_BYTES, &limit);
    if (!fits || total > limit) {
        return error_set(joint->err, ST_BAD_SHAPE,
                         "the inputs that the server pads and makes are %zu bytes, of %zu that "
                         "were sent; at most %d times as many and %d are allowed",
                         total, sent, JOINT_EXTRA_FACTOR, JOINT_EXTRA_BYTES);
    }
    return ST_OK;
}

/* Gives the input memory for its bytes. Returns: NULL when out of memory. */
static unsigned char *reserve(const struct joint *joint, sluice_input *input) {
    sluice_piece *piece = arena_alloc(joint->arena, sizeof(*piece));
    unsigned char *bytes = arena_alloc_aligned(joint->arena, input->n_bytes, JOINT_ALIGNMENT);
    if (!piece || !bytes) {
        error_no_memory(joint->err, "the inputs of a batch");
        return NULL;
    }
    *piece = (sluice_piece){bytes, input->n_bytes};
    input->pieces = piece;
    input->n_pieces = input->n_bytes > 0 ? 1 : 0;
    return bytes;
}

static enum status write_inputs(const struct joint *joint, sluice_input *inputs) {
    size_t n_inputs = joint->requests[0]->n_inputs;
    enum status st = ST_OK;
    for (size_t k = 0; st == ST_OK && k < n_inputs; k++) {
        const sluice_input *own = input_of(joint, 0, k);
        if (is_in_place(joint, own, &inputs[k])) {
            inputs[k].pieces = own->pieces;
            inputs[k].n_pieces = own->n_pieces;
            continue;
        }
        unsigned char *to = reserve(joint, &inputs[k]);
        st = to ? write_input(joint, k, &inputs[k], to) : ST_NO_MEMORY;
    }
    for (size_t i = 0; st == ST_OK && i < joint->layout->n_made; i++) {
        sluice_input *input = &inputs[n_inputs + i];
        unsigned char *to = reserve(joint, input);
        st = to ? write_made(joint, &joint->layout->made[i], input, to) : ST_NO_MEMORY;
    }
    return st;
}

enum status joint_inputs_make(struct arena *arena, const struct batch_layout *layout,
                              const sluice_request *const *requests, size_t n, sluice_input **out,
                              size_t *n_out, struct error *err) {
    struct joint joint = {
        .arena = arena, .layout = layout, .requests = requests, .n = n, .err = err};
    size_t n_inputs = requests[0]->n_inputs, n_all = n_inputs + layout->n_made, n_sorted = 0;
    sluice_input *inputs = arena_alloc_array(arena, n_all + 1, sizeof(*inputs));
    sluice_input *sorted = arena_alloc_array(arena, n_all + 1, sizeof(*sorted));
    enum status st = ST_OK;
    if (!inputs || !sorted) {
        return error_no_memory(err, "the inputs of a batch");
    }
    for (size_t k = 0; st == ST_OK && k < n_inputs; k++) {
        st = shape_input(&joint, k, &inputs[k]);
    }
    for (size_t i = 0; st == ST_OK && i < layout->n_made; i++) {
        st = shape_made(&joint, &layout->made[i], &inputs[n_inputs + i]);
    }
    if (st == ST_OK) {
        st = check_sizes(&joint, inputs, n_all);
    }
    if (st == ST_OK) {
        st = write_inputs(&joint, inputs);
    }
    if (st != ST_OK) {
        return st;
    }
    for (size_t i = 0; i < n_all; i++) {
        insert_input(sorted, &n_sorted, &inputs[i]);
    }
    *out = sorted;
    *n_out = n_all;
    return ST_OK;
}
