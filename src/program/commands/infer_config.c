/* The model configuration extension, as far as pictures need it. */
#include "program/commands/infer_config.h"

#include "codec/json/tree.h"

enum status infer_config_parse(struct arena *arena, struct str text, struct model_config *out,
                               struct error *err) {
    static const struct json_limits limits = {
        .max_json_size = 1 << 28, .max_json_depth = 32, .max_tensor_elements = 1 << 24};
    struct json_tree tree;
    *out = (struct model_config){0};
    if (json_tree_parse(&tree, "the model's configuration", arena, text, &limits, err) != ST_OK) {
        err->status = ST_BAD_ANSWER;
        return ST_BAD_ANSWER;
    }
    yyjson_val *batch = json_member(tree.root, "max_batch_size");
    yyjson_val *params = json_member(tree.root, "parameters");
    int64_t max_batch_size = 0;
    out->has_max_batch_size = json_get_i64(batch, 0, INT32_MAX, &max_batch_size);
    out->max_batch_size = (uint64_t)max_batch_size;
    struct json_iter param = json_members(params);
    struct model_config_param *items = arena_calloc(arena, param.left, sizeof(*items));
    while (json_iter_next(&param)) {
        struct str value = json_text(json_member(param.value, "string_value"));
        items[out->n_params++] =
            (struct model_config_param){.name = param.name, .value = value, .by_server = true};
    }
    out->params = items;
    return ST_OK;
}
