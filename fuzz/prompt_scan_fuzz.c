/* The scan for a body's prompt: the first byte selects the splits, which make no difference, and
 * the format, the second the limit; a walk over a parser's tree finds the same text, where there
 * are no media. */
#include "codec/json/tree.h"
#include "codec/kserve/chunks_fixture.h"
#include "codec/kserve/v2_fixture.h"
#include "codec/prompt/prompt_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- with the tree --------------------------------------------------------------------------- */

struct walk {
    struct buf texts[2]; /* all else, system */
    bool in_system;
    bool unsure; /* a number whose digits the tree does not have, media, or too deep nesting */
    uint64_t max_tokens;
};

static void add_text(struct walk *walk, struct str text) {
    buf_add_str(&walk->texts[walk->in_system], text);
}

static void walk_prompt(struct walk *walk, yyjson_val *value, int depth) {
    yyjson_arr_iter items = yyjson_arr_iter_with(value);
    bool in_list = depth > 1;
    walk->unsure |= depth > PROMPT_SCAN_MAX_DEPTH;
    if (yyjson_is_str(value)) {
        add_text(walk, str_make(yyjson_get_str(value), yyjson_get_len(value)));
    } else if (in_list && yyjson_is_uint(value) && yyjson_get_uint(value) <= UINT32_MAX) {
        for (int shift = 0; shift < 32; shift += 8) {
            buf_add_char(&walk->texts[0], (char)(unsigned char)(yyjson_get_uint(value) >> shift));
        }
    } else if (in_list && yyjson_is_num(value)) {
        walk->unsure = true; /* 00 is one of its digits, and 1e0 is read */
    }
    if (in_list && yyjson_is_str(value)) {
        add_text(walk, STR("\x03"));
    }
    for (yyjson_val *item = yyjson_arr_iter_next(&items); item && depth <= PROMPT_SCAN_MAX_DEPTH;
         item = yyjson_arr_iter_next(&items)) {
        walk_prompt(walk, item, depth + 1);
    }
}

static bool is_media(yyjson_val *key) {
    static const char *const names[] = {"image_url", "source",  "input_audio", "audio_url",
                                        "video_url", "image",   "file",        "file_id",
                                        "file_data", "file_url"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (yyjson_equals_str(key, names[i])) {
            return true;
        }
    }
    return false;
}

static void walk_content(struct walk *walk, yyjson_val *value) {
    yyjson_arr_iter items = yyjson_arr_iter_with(value);
    if (yyjson_is_str(value)) {
        add_text(walk, str_make(yyjson_get_str(value), yyjson_get_len(value)));
    }
    for (yyjson_val *item = yyjson_arr_iter_next(&items); item;
         item = yyjson_arr_iter_next(&items)) {
        yyjson_obj_iter members = yyjson_obj_iter_with(item);
        if (yyjson_is_str(item)) {
            add_text(walk, str_make(yyjson_get_str(item), yyjson_get_len(item)));
        }
        for (yyjson_val *key = yyjson_obj_iter_next(&members); key;
             key = yyjson_obj_iter_next(&members)) {
            yyjson_val *text = yyjson_obj_iter_get_val(key);
            walk->unsure |= is_media(key);
            if (yyjson_equals_str(key, "text") && yyjson_is_str(text)) {
                add_text(walk, str_make(yyjson_get_str(text), yyjson_get_len(text)));
            }
        }
    }
}

static void walk_message(struct walk *walk, yyjson_val *message) {
    yyjson_obj_iter members = yyjson_obj_iter_with(message);
    struct str role = STR("");
    if (!yyjson_is_obj(message)) {
        return;
    }
    add_text(walk, STR("\x02"));
    for (yyjson_val *key = yyjson_obj_iter_next(&members); key;
         key = yyjson_obj_iter_next(&members)) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        if (yyjson_equals_str(key, "content")) {
            walk_content(walk, value);
        } else if (yyjson_equals_str(key, "role") && yyjson_is_str(value)) {
            role = str_make(yyjson_get_str(value), yyjson_get_len(value));
        }
    }
    add_text(walk, STR("\x03"));
    add_text(walk, str_make(role.ptr, role.len < 32 ? role.len : 32));
}

static void walk_member(struct walk *walk, yyjson_val *key, yyjson_val *value) {
    yyjson_arr_iter items = yyjson_arr_iter_with(value);
    walk->in_system = yyjson_equals_str(key, "system") || yyjson_equals_str(key, "instructions");
    if (walk->in_system) {
        walk_content(walk, value);
    } else if (yyjson_equals_str(key, "prompt")) {
        walk_prompt(walk, value, 1);
    } else if (yyjson_equals_str(key, "messages") || yyjson_equals_str(key, "input") ||
               yyjson_equals_str(key, "items")) {
        if (yyjson_is_str(value)) {
            add_text(walk, str_make(yyjson_get_str(value), yyjson_get_len(value)));
        }
        for (yyjson_val *item = yyjson_arr_iter_next(&items); item;
             item = yyjson_arr_iter_next(&items)) {
            walk_message(walk, item);
        }
    } else if ((yyjson_equals_str(key, "max_tokens") ||
                yyjson_equals_str(key, "max_completion_tokens") ||
                yyjson_equals_str(key, "max_output_tokens")) &&
               yyjson_is_uint(value) && yyjson_get_uint(value) < UINT32_MAX) {
        walk->max_tokens = yyjson_get_uint(value);
    }
}

static void check_text(const struct buf *kept, const struct buf *all, size_t max_bytes) {
    size_t n = all->len < max_bytes ? all->len : max_bytes;
    check(str_eq(buf_str(kept), str_make(all->data, n)));
}

static void check_tree(struct arena *arena, yyjson_val *root, const struct prompt_scan *scan) {
    struct walk walk = {.max_tokens = 0};
    yyjson_obj_iter members = yyjson_obj_iter_with(root);
    check(scan->result == (yyjson_is_obj(root) ? PROMPT_SCAN_END : PROMPT_SCAN_NONE));
    buf_init(&walk.texts[0], arena, 0);
    buf_init(&walk.texts[1], arena, 0);
    for (yyjson_val *key = yyjson_obj_iter_next(&members); key;
         key = yyjson_obj_iter_next(&members)) {
        walk_member(&walk, key, yyjson_obj_iter_get_val(key));
    }
    if (!walk.unsure) {
        check_text(&scan->text, &walk.texts[0], scan->max_bytes);
        check_text(&scan->system, &walk.texts[1], scan->max_bytes);
    }
    check(scan->max_tokens >= UINT32_MAX || scan->max_tokens == walk.max_tokens);
}

/* ---- with the scan --------------------------------------------------------------------------- */

static void scan(struct arena *arena, struct str text, uint32_t choice, size_t max_bytes,
                 enum prompt_format format, struct prompt_scan *out) {
    prompt_scan_init(out, arena, max_bytes);
    out->format = format;
    out->lists_items = true;
    while (text.len > 0 && choice != 0) {
        struct str part = next_chunk(&text, &choice);
        prompt_scan_feed(out, part);
        free((char *)part.ptr);
    }
    prompt_scan_feed(out, text);
    check(out->text.len <= max_bytes && out->system.len <= max_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    struct arena *arena = arena_new(NULL, 0);
    struct str text = str_make((const char *)data + 2, size - 2);
    struct prompt_scan whole, parts;
    struct json_tree tree;
    enum prompt_format format = (enum prompt_format)(data[0] % 3); /* those of JSON */
    struct error one = {0}, other = {0};
    scan(arena, text, 0, data[1], format, &whole);
    scan(arena, text, (uint32_t)data[0] + 1, data[1], format, &parts);
    check(prompt_scan_check(&whole, true, &one) == prompt_scan_check(&parts, true, &other));
    check(strcmp(one.text, other.text) == 0 && whole.n_items == parts.n_items);
    check(whole.salt == parts.salt && whole.is_streamed == parts.is_streamed);
    check(whole.result == parts.result && whole.n_bytes == parts.n_bytes);
    check(whole.n_tokens == parts.n_tokens && whole.max_tokens == parts.max_tokens);
    check(str_eq(buf_str(&whole.text), buf_str(&parts.text)));
    check(str_eq(buf_str(&whole.system), buf_str(&parts.system)));
    if (json_tree_parse(&tree, "x", arena, text, &fixture_limits, NULL) == ST_OK) {
        if (!tree.non_finite && format == PROMPT_OF_TEXT) {
            check_tree(arena, tree.root, &whole);
        }
        json_tree_free_values(&tree);
    }
    arena_free(arena);
    return 0;
}
