/* From proto3's JSON mapping to the form of protobuf's text format, value by value. Fields are
 * recognized by name alone: no name has two types in ModelConfig. */
#include "codec/kserve/model_config_json.h"

#include <string.h>

#include "codec/json/tree.h"
#include "core/base/json_writer.h"
#include "core/base/num.h"

enum { MAX_DEPTH = 60 }; /* core/base/doc/doc.h allows 64, and maps gain a level */

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

static const char *const MAPS[] = {"parameters", "inputs", "priority_queue_policy", NULL};

static const char *const NUMBERS[] = {"dims",
                                      "shape",
                                      "versions",
                                      "max_queue_delay_microseconds",
                                      "max_sequence_idle_microseconds",
                                      "priority_levels",
                                      "default_priority_level",
                                      "default_timeout_microseconds",
                                      NULL};

/* Writes the value of the field `name`, NULL for values of maps, in the other form. `depth` is that
 * of the value. Returns: false when nested too deep. */
static bool rewrite(struct json_writer *to, yyjson_val *val, const char *name, unsigned depth);

/* Text that is a whole number becomes a number. */
static void rewrite_number(struct json_writer *to, const char *name, yyjson_val *val) {
    int64_t number;
    if (num_parse_i64(json_text(val), &number)) {
        json_write_i64(to, name, number);
    } else {
        json_write_value(to, name, val);
    }
}

/* {"NAME": VALUE} becomes [{"key": "NAME", "value": VALUE}]. */
static bool rewrite_map(struct json_writer *to, yyjson_val *map, bool is_numbered, unsigned depth) {
    struct json_iter entry = json_members(map);
    bool good = true;
    json_write_open(to, JSON_ELEMENT, '[');
    while (good && json_iter_next(&entry)) {
        json_write_open(to, JSON_ELEMENT, '{');
        if (is_numbered) {
            rewrite_number(to, "key", json_key(entry.value));
        } else {
            json_write_string(to, "key", entry.name);
        }
        json_write_key(to, "value");
        good = rewrite(to, entry.value, NULL, depth);
        json_write_close(to, '}');
    }
    json_write_close(to, ']');
    return good;
}

static bool rewrite_object(struct json_writer *to, yyjson_val *object, unsigned depth) {
    struct json_iter member = json_members(object);
    bool good = true;
    json_write_open(to, JSON_ELEMENT, '{');
    while (good && json_iter_next(&member)) {
        json_write_key_str(to, member.name);
        good = rewrite(to, member.value, member.name.ptr, depth);
    }
    json_write_close(to, '}');
    return good;
}

static bool rewrite_list(struct json_writer *to, yyjson_val *list, const char *name,
                         unsigned depth) {
    struct json_iter element = json_elements(list);
    bool good = true;
    json_write_open(to, JSON_ELEMENT, '[');
    while (good && json_iter_next(&element)) {
        good = rewrite(to, element.value, name, depth);
    }
    json_write_close(to, ']');
    return good;
}

static bool rewrite(struct json_writer *to, yyjson_val *val, const char *name, unsigned depth) {
    if (depth > MAX_DEPTH) {
        return false;
    }
    if (json_is_object(val)) {
        return name && is_one_of(name, MAPS)
                   ? rewrite_map(to, val, strcmp(name, "priority_queue_policy") == 0, depth + 1)
                   : rewrite_object(to, val, depth + 1);
    }
    if (json_is_array(val)) {
        return rewrite_list(to, val, name, depth + 1);
    }
    if (name && is_one_of(name, NUMBERS)) {
        rewrite_number(to, JSON_ELEMENT, val);
    } else {
        json_write_value(to, JSON_ELEMENT, val);
    }
    return true;
}

enum status model_config_json_rewrite(struct arena *arena, struct str json, struct str *out,
                                      struct error *err) {
    static const struct json_limits none = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    struct json_tree tree;
    struct error why;
    struct buf text;
    struct json_writer writer = {.out = &text};
    enum status st = json_tree_parse_request(&tree, arena, json, &none, &why);
    if (st != ST_OK && st != ST_NO_MEMORY) {
        return error_set(err, ST_BAD_CONFIG,
                         "the configuration given: expected a JSON object with the fields of a "
                         "ModelConfig: %s",
                         why.text);
    }
    buf_init(&text, arena, json.len);
    bool good = st == ST_OK && rewrite(&writer, tree.root, NULL, 0);
    buf_add_char(&text, '\0');
    if (st == ST_OK && !good) {
        return error_set(err, ST_BAD_CONFIG,
                         "the configuration given: nested deeper than %d levels", MAX_DEPTH);
    }
    if (st != ST_OK || text.failed) {
        return error_no_memory(err, "the model's configuration");
    }
    *out = str_make(text.data, text.len - 1);
    return ST_OK;
}
