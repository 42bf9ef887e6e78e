/* Reading config.pbtxt: which fields there are is field.def's business, what they say is
 * read here and by the neighbours named in read.h. */
#include "serve/config/read.h"

#include "serve/config/field.h"

enum { MAX_BATCH_SIZE = 2147483647 /* an int32 in ModelConfig */ };

enum status config_no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory for the model's configuration");
}

enum status config_read_text(struct arena *arena, const struct doc_node *parent, const char *key,
                             struct str *out, struct error *err) {
    struct doc_node node = doc_get(parent, key);
    struct str text = {NULL, 0};
    enum status st = doc_read_str(&node, &text, err);
    if (st != ST_OK || !text.ptr) {
        return st;
    }
    *out = arena_dup(arena, text);
    if (!out->ptr) {
        return config_no_memory(err);
    }
    /* Names go to backends and files as C strings. */
    return memchr(text.ptr, '\0', text.len) ? doc_error(&node, err, "holds a NUL byte") : ST_OK;
}

enum status config_read_filename(struct arena *arena, const struct doc_node *parent,
                                 const char *key, struct str *out, struct error *err) {
    enum status st = config_read_text(arena, parent, key, out, err);
    if (st != ST_OK || out->len == 0) {
        return st;
    }
    struct doc_node node = doc_get(parent, key);
    if (out->ptr[0] == '/') {
        return doc_error(&node, err,
                         "\"%.*s\" must not begin with /: it is a file of the model's own",
                         STR_ARG(*out));
    }
    struct str rest = *out;
    while (rest.ptr) {
        if (str_is(str_cut(&rest, '/'), "..")) {
            return doc_error(&node, err, "\"%.*s\" must not lead out of the model's directory",
                             STR_ARG(*out));
        }
    }
    return ST_OK;
}

enum status config_read_numbers(struct arena *arena, const struct doc_node *node, int64_t min,
                                const uint64_t **out, size_t *n, struct error *err) {
    size_t count = doc_count(node);
    uint64_t *numbers = arena_calloc(arena, count, sizeof(*numbers));
    if (!numbers) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        struct doc_node element = doc_at(node, i);
        int64_t number = min;
        enum status st = doc_read_i64(&element, min, INT64_MAX, &number, err);
        if (st != ST_OK) {
            return st;
        }
        numbers[i] = (uint64_t)number;
    }
    *out = numbers;
    *n = count;
    return ST_OK;
}

enum status config_read_count(const struct doc_node *parent, const char *key, uint64_t *out,
                              struct error *err) {
    struct doc_node node = doc_get(parent, key);
    int64_t value = (int64_t)*out;
    enum status st = doc_read_i64(&node, 0, INT64_MAX, &value, err);
    *out = (uint64_t)value;
    return st;
}

/* ---- which backend --------------------------------------------------------------------------- */

struct platform {
    const char *name;
    const char *backend;
};

static const struct platform platforms[] = {
    {"onnxruntime_onnx", "onnxruntime"},     {"openvino", "openvino"},
    {"tensorrt_plan", "tensorrt"},           {"tensorflow_graphdef", "tensorflow"},
    {"tensorflow_savedmodel", "tensorflow"}, {"pytorch_libtorch", "pytorch"},
};

static enum status backend_of_platform(const struct doc_node *root, struct model_config *out,
                                       struct error *err) {
    struct doc_node node = doc_get(root, "platform");
    if (str_is(out->platform, "ensemble")) {
        return doc_error(&node, err, "models made of other models are not supported");
    }
    for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++) {
        if (!str_is(out->platform, platforms[i].name)) {
            continue;
        }
        if (out->backend.len > 0 && !str_is(out->backend, platforms[i].backend)) {
            return doc_error(&node, err, "belongs to backend \"%s\", but backend is \"%.*s\"",
                             platforms[i].backend, STR_ARG(out->backend));
        }
        out->backend = str_of(platforms[i].backend);
        return ST_OK;
    }
    if (out->backend.len > 0) {
        return ST_OK;
    }
    return doc_error(
        &node, err,
        "\"%.*s\" is no known platform (onnxruntime_onnx is one); name the backend with "
        "`backend:` instead",
        STR_ARG(out->platform));
}

bool backend_name_is_valid(struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!ok) {
            return false;
        }
    }
    return name.len > 0 && name.len <= BACKEND_NAME_MAX;
}

static enum status read_backend(struct arena *arena, const struct doc_node *root,
                                struct model_config *out, struct error *err) {
    enum status st = config_read_text(arena, root, "backend", &out->backend, err);
    if (st == ST_OK) {
        st = config_read_text(arena, root, "platform", &out->platform, err);
    }
    if (st == ST_OK && out->backend.len > 0 && !backend_name_is_valid(out->backend)) {
        struct doc_node node = doc_get(root, "backend");
        st = doc_error(&node, err,
                       "\"%.*s\" is not the name of a backend: those are made of a-z, 0-9, _ and -",
                       STR_ARG(out->backend));
    }
    if (st == ST_OK && out->platform.len > 0) {
        st = backend_of_platform(root, out, err);
    }
    return st;
}

static enum status read_max_batch_size(const struct doc_node *root, struct model_config *out,
                                       struct error *err) {
    struct doc_node node = doc_get(root, "max_batch_size");
    int64_t value = 0;
    enum status st = doc_read_i64(&node, 0, MAX_BATCH_SIZE, &value, err);
    out->has_max_batch_size = node.val != NULL;
    out->max_batch_size = (uint64_t)value;
    return st;
}

enum status model_config_read(struct arena *arena, const struct doc *doc, struct model_config *out,
                              struct error *err) {
    *out = (struct model_config){.policy = VERSIONS_LATEST, .latest_count = 1};
    struct doc_node root = doc_root(doc);
    enum status st = config_fields_check(&root, CONFIG_MODEL, err);
    if (st == ST_OK) {
        st = config_read_text(arena, &root, "name", &out->name, err);
    }
    if (st == ST_OK) {
        st = read_backend(arena, &root, out, err);
    }
    if (st == ST_OK) {
        st = read_max_batch_size(&root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_filename(arena, &root, "default_model_filename", &out->default_filename,
                                  err);
    }
    if (st == ST_OK) {
        st = config_read_tensors(arena, &root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_serving(arena, &root, out, err);
    }
    return st;
}
