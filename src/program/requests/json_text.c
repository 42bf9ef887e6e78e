/* JSON text: the check is the parser's; printing and the shape of an array are passes over the text
 * that skip strings. */
#include "program/requests/json_text.h"

#include <inttypes.h>
#include <stdbool.h>

#include "codec/json/tree.h"

enum status json_line_check(struct arena *arena, struct str text, struct error *err) {
    struct json_tree tree;
    /* Depth and size are limited by the text that was read. */
    struct json_limits limits = {.max_json_size = UINT64_MAX,
                                 .max_json_depth = UINT64_MAX,
                                 .max_tensor_elements = UINT64_MAX};
    enum status status = json_tree_parse(&tree, "the value", arena, text, &limits, err);
    if (status == ST_OK) {
        json_tree_free_values(&tree);
    }
    return status;
}

/* Returns: the index after the string that begins at `at`. */
static size_t string_end(struct str text, size_t at) {
    for (at++; at < text.len && text.ptr[at] != '"'; at++) {
        at += text.ptr[at] == '\\';
    }
    return at < text.len ? at + 1 : text.len;
}

void json_line_print(struct buf *out, struct str text) {
    for (size_t i = 0; i < text.len;) {
        switch (text.ptr[i]) {
        case ' ':
        case '\t':
        case '\r':
        case '\n':
            i++;
            break;
        case '"': {
            size_t end = string_end(text, i);
            buf_add(out, text.ptr + i, end - i);
            i = end;
            break;
        }
        case ',':
        case ':':
            buf_add_char(out, text.ptr[i++]);
            buf_add_char(out, ' ');
            break;
        default:
            buf_add_char(out, text.ptr[i++]);
        }
    }
}

/* ---- the shape of an array ------------------------------------------------------------------- */

struct walk {
    size_t depth;
    size_t rank;                    /* set by the first scalar or empty array; 0: unknown */
    int64_t dims[SHAPE_MAX_RANK];   /* of the first row of each level; -1: unknown */
    int64_t counts[SHAPE_MAX_RANK]; /* elements so far in the open array of each level */
    bool element;                   /* the current element has begun */
    struct error *err;
};

static enum status ragged_error(const struct walk *walk) {
    return error_set(
        walk->err, ST_BAD_SHAPE,
        "the nested arrays differ in length or depth at level %zu: every row must have "
        "as many elements as the first",
        walk->depth);
}

/* The first scalar, or the first empty array, sets the rank. */
static enum status read_leaf(struct walk *walk, size_t rank) {
    if (walk->rank == 0) {
        walk->rank = rank;
    }
    return walk->rank == rank ? ST_OK : ragged_error(walk);
}

static void begin_element(struct walk *walk) {
    if (!walk->element && walk->depth > 0) {
        walk->counts[walk->depth - 1]++;
    }
    walk->element = true;
}

static enum status open_array(struct walk *walk) {
    if (walk->depth == SHAPE_MAX_RANK) {
        return error_set(walk->err, ST_BAD_SHAPE, "arrays are nested more than %d deep",
                         SHAPE_MAX_RANK);
    }
    begin_element(walk);
    walk->counts[walk->depth++] = 0;
    walk->element = false;
    return ST_OK;
}

static enum status close_array(struct walk *walk) {
    if (walk->depth == 0) {
        return ST_OK; /* not JSON; the parser reports it */
    }
    size_t level = walk->depth - 1;
    enum status status = ST_OK;
    if (walk->counts[level] == 0) {
        status = read_leaf(walk, walk->depth);
    }
    if (status == ST_OK && walk->dims[level] < 0) {
        walk->dims[level] = walk->counts[level];
    } else if (status == ST_OK && walk->dims[level] != walk->counts[level]) {
        status = ragged_error(walk);
    }
    walk->depth--;
    walk->element = true;
    return status;
}

static enum status read_scalar(struct walk *walk) {
    bool first = !walk->element;
    begin_element(walk);
    return first && walk->depth > 0 ? read_leaf(walk, walk->depth) : ST_OK;
}

static enum status read_byte_at(struct walk *walk, struct str text, size_t *at) {
    switch (text.ptr[*at]) {
    case ' ':
    case '\t':
    case '\n':
    case '\r':
        ++*at;
        return ST_OK;
    case '[':
        ++*at;
        return open_array(walk);
    case ']':
        ++*at;
        return close_array(walk);
    case ',':
        ++*at;
        walk->element = false;
        return ST_OK;
    case '"':
        *at = string_end(text, *at);
        return read_scalar(walk);
    default:
        ++*at;
        return read_scalar(walk);
    }
}

enum status json_shape(struct arena *arena, struct str text, struct shape *out, struct error *err) {
    struct walk walk = {.err = err};
    for (size_t i = 0; i < SHAPE_MAX_RANK; i++) {
        walk.dims[i] = -1;
    }
    enum status status = ST_OK;
    for (size_t at = 0; at < text.len && status == ST_OK;) {
        status = read_byte_at(&walk, text, &at);
    }
    if (status != ST_OK) {
        return status;
    }
    int64_t *dims = arena_calloc(arena, walk.rank, sizeof(*dims));
    for (size_t i = 0; i < walk.rank; i++) {
        dims[i] = walk.dims[i] < 0 ? 0 : walk.dims[i];
    }
    *out = (struct shape){dims, walk.rank};
    return ST_OK;
}
