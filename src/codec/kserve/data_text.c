/* Data without a request around it: the reader of `inputs[].data` over a text of its own. */
#include "codec/kserve/data_text.h"

#include "codec/kserve/data.h"

static enum status read_data(struct json_tree *tree, const struct json_limits *limits,
                             struct tensor *tensor, struct error *err) {
    uint64_t n_elements;
    tree->path_has_root_name = true;
    enum status status = v2_shape_count(tree, tree->root, tensor->shape, limits, &n_elements, err);
    if (status == ST_OK) {
        status = v2_data_read(tree, tree->root, n_elements, tensor, err);
    }
    return status;
}

enum status v2_data_text_parse(struct arena *arena, struct str text,
                               const struct json_limits *limits, struct tensor *tensor,
                               struct error *err) {
    struct json_tree tree;
    enum status status = json_tree_parse(&tree, "data", arena, text, limits, err);
    if (status == ST_OK) {
        status = read_data(&tree, limits, tensor, err);
        json_tree_free_values(&tree);
    }
    return status;
}
