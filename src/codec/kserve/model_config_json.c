/* From proto3's JSON mapping to the tree of protobuf's text format. Fields are recognized by
 * name alone: no name has two types in ModelConfig. */
#include "codec/kserve/model_config_json.h"

#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

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

/* The tree under construction. */
struct rewriting {
    yyjson_mut_doc *doc;
    int depth;
};

/* `name` is the field of the value; NULL for values of maps. Returns: NULL when nested too deep,
 * or out of memory. */
static yyjson_mut_val *rewrite(struct rewriting *to, yyjson_val *val, const char *name);

/* Converts text that is a whole number to a number. */
static yyjson_mut_val *number_of(struct rewriting *to, yyjson_val *val) {
    struct str text = str_make(yyjson_get_str(val), yyjson_get_len(val));
    int64_t number;
    return text.ptr && num_parse_i64(text, &number) ? yyjson_mut_sint(to->doc, number)
                                                    : yyjson_val_mut_copy(to->doc, val);
}

/* {"NAME": VALUE} becomes [{"key": "NAME", "value": VALUE}]. */
static yyjson_mut_val *entries_of(struct rewriting *to, yyjson_val *map, bool numbered) {
    yyjson_mut_val *list = yyjson_mut_arr(to->doc);
    yyjson_val *key, *value;
    size_t i, n;
    yyjson_obj_foreach(map, i, n, key, value) {
        yyjson_mut_val *entry = yyjson_mut_arr_add_obj(to->doc, list);
        yyjson_mut_val *name = numbered ? number_of(to, key) : yyjson_val_mut_copy(to->doc, key);
        yyjson_mut_val *inner = rewrite(to, value, NULL);
        if (!yyjson_mut_obj_add_val(to->doc, entry, "key", name) ||
            !yyjson_mut_obj_add_val(to->doc, entry, "value", inner)) {
            return NULL;
        }
    }
    return list;
}

static yyjson_mut_val *object_of(struct rewriting *to, yyjson_val *val) {
    yyjson_mut_val *object = yyjson_mut_obj(to->doc);
    yyjson_val *key, *value;
    size_t i, n;
    yyjson_obj_foreach(val, i, n, key, value) {
        yyjson_mut_val *inner = rewrite(to, value, yyjson_get_str(key));
        if (!inner || !yyjson_mut_obj_add(object, yyjson_val_mut_copy(to->doc, key), inner)) {
            return NULL;
        }
    }
    return object;
}

static yyjson_mut_val *list_of(struct rewriting *to, yyjson_val *val, const char *name) {
    yyjson_mut_val *list = yyjson_mut_arr(to->doc);
    yyjson_val *element;
    size_t i, n;
    yyjson_arr_foreach(val, i, n, element) {
        if (!yyjson_mut_arr_append(list, rewrite(to, element, name))) {
            return NULL;
        }
    }
    return list;
}

static yyjson_mut_val *rewrite(struct rewriting *to, yyjson_val *val, const char *name) {
    yyjson_mut_val *out = NULL;
    if (to->depth++ > MAX_DEPTH) {
        return NULL;
    }
    if (yyjson_is_obj(val)) {
        out = name && is_one_of(name, MAPS)
                  ? entries_of(to, val, strcmp(name, "priority_queue_policy") == 0)
                  : object_of(to, val);
    } else if (yyjson_is_arr(val)) {
        out = list_of(to, val, name);
    } else {
        out = name && is_one_of(name, NUMBERS) ? number_of(to, val)
                                               : yyjson_val_mut_copy(to->doc, val);
    }
    to->depth--;
    return out;
}

static enum status print(struct arena *arena, yyjson_mut_val *root, struct str *out,
                         struct error *err) {
    size_t len = 0;
    char *text = root ? yyjson_mut_val_write(root, 0, &len) : NULL;
    if (!text) {
        return error_set(err, ST_BAD_CONFIG,
                         "the configuration given: nested deeper than %d levels, or out of memory",
                         MAX_DEPTH);
    }
    *out = arena_dup(arena, str_make(text, len));
    free(text);
    return out->ptr ? ST_OK : error_no_memory(err, "the model's configuration");
}

enum status model_config_json_rewrite(struct arena *arena, struct str json, struct str *out,
                                      struct error *err) {
    yyjson_read_err problem = {0};
    /* Not modified without YYJSON_READ_INSITU; yyjson's signature lacks const. */
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)json.ptr, json.len, 0, NULL, &problem);
    struct rewriting to = {.doc = yyjson_mut_doc_new(NULL)};
    enum status st;
    if (!to.doc) {
        st = error_no_memory(err, "the model's configuration");
    } else if (!doc || !yyjson_is_obj(yyjson_doc_get_root(doc))) {
        st = error_set(err, ST_BAD_CONFIG,
                       "the configuration given: expected a JSON object with the fields of a "
                       "ModelConfig: %s at byte %zu",
                       doc ? "something else" : problem.msg, problem.pos);
    } else {
        st = print(arena, rewrite(&to, yyjson_doc_get_root(doc), NULL), out, err);
    }
    yyjson_mut_doc_free(to.doc);
    yyjson_doc_free(doc);
    return st;
}
