/* When a pool is full, and who waits then. */
#include "core/base/num.h"
#include "pick/config/reader.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_S = 1000000000;
static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);

/* ---- saturation ------------------------------------------------------------------------------ */

static enum status read_share(const struct doc_node *node, double *out, struct error *err) {
    double share = *out;
    enum status st = doc_read_f64(node, &share, err);
    if (st == ST_OK && !(share >= 0 && share <= 1)) {
        return doc_error(node, err, "expected a share from 0 to 1, got %g", share);
    }
    *out = share;
    return st;
}

static enum status read_saturation(struct pool_spec *spec, const struct doc_node *node,
                                   struct error *err) {
    static const char *const names[] = {"max_in_flight", "queue_depth", "kv_cache", "retry_after",
                                        NULL};
    struct doc_node most = doc_get(node, "max_in_flight"), after = doc_get(node, "retry_after");
    struct doc_node depth = doc_get(node, "queue_depth"), used = doc_get(node, "kv_cache");
    uint64_t retry_ns = spec->retry_after_s * NS_PER_S;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&most, 0, INT32_MAX, &spec->max_in_flight, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&depth, 0, INT32_MAX, &spec->queue_depth, err);
    }
    if (st == ST_OK) {
        st = read_share(&used, &spec->kv_cache, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&after, NS_PER_S, NS_PER_HOUR, &retry_ns, err);
    }
    spec->retry_after_s = (retry_ns + NS_PER_S - 1) / NS_PER_S;
    return st;
}

/* ---- flow control ---------------------------------------------------------------------------- */

/* "256MiB", or a number of bytes. */
static enum status read_bytes(const struct doc_node *node, uint64_t *out, struct error *err) {
    struct str text = {NULL, 0};
    uint64_t n_bytes;
    if (!node->val) {
        return ST_OK;
    }
    if (yyjson_is_int(node->val)) {
        return pool_config_read_unsigned(node, (int64_t)POOL_CONFIG_MIN_BYTES,
                                         (int64_t)POOL_CONFIG_MAX_BYTES, out, err);
    }
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK) {
        return st;
    }
    if (!num_parse_bytes(text, &n_bytes) || n_bytes < POOL_CONFIG_MIN_BYTES ||
        n_bytes > POOL_CONFIG_MAX_BYTES) {
        return doc_error(node, err, "expected a size from 64KiB to 1024GiB, got \"%.*s\"",
                         STR_ARG(text));
    }
    *out = n_bytes;
    return ST_OK;
}

static enum status read_band(const struct doc_node *node, struct flow_band_limits *out,
                             struct error *err) {
    static const char *const names[] = {"priority", "max_requests", NULL};
    struct doc_node priority = doc_get(node, "priority"), most = doc_get(node, "max_requests");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK && (!priority.val || !most.val)) {
        return doc_error(node, err, "expected a priority and its max_requests");
    }
    if (st == ST_OK) {
        st = doc_read_i64(&priority, 0, INT32_MAX, &out->priority, err);
    }
    return st == ST_OK ? pool_config_read_unsigned(&most, 0, POOL_CONFIG_MAX_WAITING,
                                                   &out->max_requests, err)
                       : st;
}

static enum status read_bands(struct pool_config_reader *reader, const struct doc_node *list,
                              struct flow_limits *out, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (n > POOL_CONFIG_MAX_BANDS) {
        return doc_error(list, err, "expected at most %d priorities, got %zu",
                         POOL_CONFIG_MAX_BANDS, n);
    }
    struct flow_band_limits *bands = arena_calloc(reader->spec->arena, n, sizeof(*bands));
    enum status st = ST_OK;
    if (!bands) {
        return pool_config_no_memory(reader, err);
    }
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_next(list, &item);) {
        struct flow_band_limits *band = &bands[out->n_bands];
        st = read_band(&item, band, err);
        for (size_t i = 0; i < out->n_bands && st == ST_OK; i++) {
            if (bands[i].priority == band->priority) {
                st = doc_error(&item, err, "the priority %lld is there twice",
                               (long long)band->priority);
            }
        }
        out->n_bands++;
    }
    out->bands = bands;
    return st;
}

static enum status read_flow_control(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) {
    static const char *const names[] = {"max_requests", "max_bytes", "max_wait", "bands", NULL};
    struct pool_flow_control *flow = &reader->spec->flow_control;
    struct doc_node most = doc_get(node, "max_requests"), bytes = doc_get(node, "max_bytes");
    struct doc_node wait = doc_get(node, "max_wait"), bands = doc_get(node, "bands");
    if (!node->val) {
        return ST_OK;
    }
    flow->on = true;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&most, 1, POOL_CONFIG_MAX_WAITING,
                                       &flow->limits.max_requests, err);
    }
    if (st == ST_OK) {
        st = read_bytes(&bytes, &flow->limits.max_bytes, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&wait, NS_PER_MS, NS_PER_HOUR, &flow->max_wait_ns, err);
    }
    return st == ST_OK ? read_bands(reader, &bands, &flow->limits, err) : st;
}

enum status pool_config_read_flow_control(struct pool_config_reader *reader,
                                          const struct doc_node *node, struct error *err) {
    struct doc_node saturation = doc_get(node, "saturation");
    struct doc_node flow = doc_get(node, "flow_control");
    struct doc_node most = doc_get(&saturation, "max_in_flight");
    struct doc_node depth = doc_get(&saturation, "queue_depth");
    struct doc_node used = doc_get(&saturation, "kv_cache");
    reader->saturation_limits_given = most.val || depth.val || used.val;
    reader->flow_control_given = flow.val != NULL;
    enum status st = read_saturation(reader->spec, &saturation, err);
    return st == ST_OK ? read_flow_control(reader, &flow, err) : st;
}
