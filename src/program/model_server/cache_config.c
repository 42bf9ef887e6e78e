/* "local,size=1048576" */
#include "program/model_server/cache_config.h"

#include "core/base/num.h"

static enum status read_one(struct str text, uint64_t *out, struct error *err) {
    uint64_t n_bytes;
    struct str value = text;
    struct str name = str_cut(&value, ',');
    struct str key = str_cut(&value, '=');
    if (!str_is(name, "local")) {
        return error_set(err, ST_BAD_CONFIG,
                         "--cache-config: there is one cache, local: write local,size=BYTES");
    }
    if (!str_is(key, "size") || !num_parse_bytes(value, &n_bytes)) {
        return error_set(err, ST_BAD_CONFIG,
                         "--cache-config: expected local,size=BYTES, got \"%.*s\"", STR_ARG(text));
    }
    if (*out > 0 && *out != n_bytes) {
        return error_set(err, ST_BAD_CONFIG,
                         "--cache-config and --cache-size (or two of the first) say different "
                         "sizes");
    }
    *out = n_bytes;
    return ST_OK;
}

enum status cache_config_read(const struct option_texts *texts, uint64_t *out, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < texts->n && st == ST_OK; i++) {
        st = read_one(str_of(texts->items[i]), out, err);
    }
    return st;
}
