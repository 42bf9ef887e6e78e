/* The scan compared with the parser: where the parser makes a tree, the scan reports at least as
 * many values and the exact depth, and finds every NaN and infinity; a scan of any bytes stays
 * within them. */
#include "codec/json/scan.h"
#include "codec/json/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* Nesting depth of the values from `val` to `end`, by an independent walk. */
static uint64_t depth_of(yyjson_val *val, const yyjson_val *end) {
    yyjson_val *ends[1024];
    uint64_t n = 0, deepest = 0;
    for (; val < end; val++) {
        while (n > 0 && val >= ends[n - 1]) {
            n--;
        }
        if (yyjson_is_ctn(val)) {
            check(n < 1024);
            ends[n++] = json_next(val);
            deepest = n > deepest ? n : deepest;
        }
    }
    return deepest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct json_limits limits = {
        .max_json_size = 1 << 20, .max_json_depth = 1000, .max_tensor_elements = 1 << 20};
    struct str text = str_make((const char *)data, size);
    struct json_scan scan;
    json_scan(text, &scan);
    check(scan.end <= size && scan.depth <= size && scan.n_values <= size + 1);
    check(!scan.has_unknown_word || scan.unknown_word_offset + scan.unknown_word_bytes <= scan.end);
    struct arena *arena = arena_new(NULL, 0);
    struct json_tree tree;
    struct error err;
    double number;
    if (json_tree_parse(&tree, "x", arena, text, &limits, &err) == ST_OK) {
        bool non_finite = false;
        check((uint64_t)(tree.end - tree.root) <= scan.n_values);
        check(depth_of(tree.root, tree.end) == scan.depth);
        for (yyjson_val *val = tree.root; val < tree.end; val++) {
            non_finite |= json_non_finite(val, &number);
        }
        check(non_finite == scan.non_finite);
        check(scan.end == size || yyjson_is_ctn(tree.root));
        json_tree_free_values(&tree);
    } else {
        check(err.text[0] != '\0');
    }
    arena_free(arena);
    return 0;
}
