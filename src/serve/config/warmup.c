/* model_warmup: samples to be run before the model is ready. Whether they fit the model is seen
 * when they are run. */
#include "core/base/log.h"
#include "serve/config/read.h"

/* ---- one input ------------------------------------------------------------------------------- */

static enum status read_shape(struct arena *arena, const struct doc_node *node, struct shape *out,
                              struct error *err) {
    struct doc_node dims = doc_get(node, "dims");
    enum status st = config_read_dims(arena, &dims, out, err);
    for (size_t i = 0; i < out->rank && st == ST_OK; i++) {
        if (out->dims[i] < 0) {
            struct doc_node element = doc_at(&dims, i);
            st = doc_error(&element, err, "a sample's dimensions are fixed: -1 is none");
        }
    }
    return st;
}

/* Exactly one of the three says where the bytes come from. */
static enum status read_data(struct arena *arena, const struct doc_node *node,
                             struct model_warmup_input *out, struct error *err) {
    struct doc_node zero = doc_get(node, "zero_data"), random = doc_get(node, "random_data");
    bool is_zero = false, is_random = false;
    enum status st = doc_read_bool(&zero, &is_zero, err);
    if (st == ST_OK) {
        st = doc_read_bool(&random, &is_random, err);
    }
    if (st == ST_OK) {
        st = config_read_filename(arena, node, "input_data_file", &out->filename, err);
    }
    bool is_file = out->filename.len > 0;
    if (st == ST_OK && (int)is_zero + (int)is_random + (int)is_file != 1) {
        st = doc_error(node, err,
                       "expected one of zero_data: true, random_data: true and input_data_file");
    }
    out->data = is_file ? WARMUP_FILE : is_random ? WARMUP_RANDOM : WARMUP_ZERO;
    return st;
}

static enum status read_input(struct arena *arena, const struct doc_node *entry,
                              struct model_warmup_input *out, struct error *err) {
    struct doc_node value = doc_get(entry, "value");
    enum status st = config_read_text(arena, entry, "key", &out->name, err);
    if (st == ST_OK && out->name.len == 0) {
        st = doc_error(entry, err, "has no key: the name of the input");
    }
    if (st == ST_OK && !value.val) {
        st = doc_error(entry, err, "has no value");
    }
    if (st == ST_OK) {
        st = config_read_datatype(&value, &out->datatype, err);
    }
    if (st == ST_OK && out->datatype == DT_INVALID) {
        st = doc_error(&value, err, "has no data_type");
    }
    if (st == ST_OK) {
        st = read_shape(arena, &value, &out->dims, err);
    }
    return st == ST_OK ? read_data(arena, &value, out, err) : st;
}

/* ---- samples --------------------------------------------------------------------------------- */

static enum status read_inputs(struct arena *arena, const struct doc_node *sample,
                               struct model_warmup *out, struct error *err) {
    struct doc_node list = doc_get(sample, "inputs");
    size_t n = doc_count(&list);
    struct model_warmup_input *inputs = arena_calloc(arena, n, sizeof(*inputs));
    if (!inputs) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        struct doc_node entry = doc_at(&list, i);
        enum status st = read_input(arena, &entry, &inputs[i], err);
        if (st != ST_OK) {
            return st;
        }
    }
    out->inputs = inputs;
    out->n_inputs = n;
    return ST_OK;
}

static enum status read_number(const struct doc_node *parent, const char *key, uint64_t *out,
                               struct error *err) {
    struct doc_node node = doc_get(parent, key);
    int64_t value = 0;
    enum status st = doc_read_i64(&node, 0, INT32_MAX, &value, err);
    *out = (uint64_t)value;
    return st;
}

static enum status read_sample(struct arena *arena, const struct doc_node *node,
                               struct model_warmup *out, struct error *err) {
    enum status st = config_read_text(arena, node, "name", &out->name, err);
    if (st == ST_OK) {
        st = read_number(node, "batch_size", &out->batch_size, err);
    }
    if (st == ST_OK) {
        st = read_number(node, "count", &out->count, err);
    }
    if (st == ST_OK) {
        st = read_inputs(arena, node, out, err);
    }
    if (out->count == 0) {
        out->count = 1;
    }
    return st;
}

/* The reference server takes a sample without a batch size too, and does not run it. */
static bool sample_is_run(const struct doc_node *node, const struct model_warmup *sample) {
    struct error where;
    if (sample->batch_size == 0) {
        doc_error(node, &where, "is not run: it has no batch_size");
        log_event(LOG_WARNING, "configuration", LOG_CSTR("text", where.text));
    }
    return sample->batch_size > 0;
}

enum status config_read_warmups(struct arena *arena, const struct doc_node *root,
                                struct model_config *out, struct error *err) {
    struct doc_node list = doc_get(root, "model_warmup");
    size_t n = doc_count(&list), n_run = 0;
    struct model_warmup *samples = arena_calloc(arena, n, sizeof(*samples));
    if (!samples) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        struct doc_node node = doc_at(&list, i);
        enum status st = read_sample(arena, &node, &samples[n_run], err);
        if (st != ST_OK) {
            return st;
        }
        n_run += sample_is_run(&node, &samples[n_run]);
    }
    out->warmups = samples;
    out->n_warmups = n_run;
    return ST_OK;
}
