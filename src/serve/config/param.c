/* The parameters of a model: from config.pbtxt, and from the server's own settings, which win.
 * Those that begin with "sluice." are read here; the rest is kept for the backend, and for a front
 * end where the prefix is its own. */
#include "serve/config/read.h"

static const char own_prefix[] = "sluice.";
static const char front_end_prefix[] = "mip.";

bool model_config_param_is_for_backend(const struct model_config_param *param) {
    return !str_starts_with(param->name, str_of(front_end_prefix));
}

static enum status read_run_on(struct str value, enum model_run_on *out, struct error *err) {
    static const char *const names[] = {
        [RUN_AUTO] = "auto", [RUN_ON_WORKER] = "worker", [RUN_ON_INSTANCE] = "instance"};
    for (int i = RUN_AUTO; i <= RUN_ON_INSTANCE; i++) {
        if (str_is(value, names[i])) {
            *out = (enum model_run_on)i;
            return ST_OK;
        }
    }
    return error_set(err, ST_BAD_CONFIG, "sluice.run_on is auto, worker or instance, not \"%.*s\"",
                     STR_ARG(value));
}

static enum status set_server_param(const struct model_config_param *param,
                                    struct model_config *config, struct error *err) {
    if (str_is(param->name, "sluice.run_on")) {
        return read_run_on(param->value, &config->run_on, err);
    }
    return error_set(err, ST_BAD_CONFIG, "unknown parameter \"%.*s\"; known is sluice.run_on",
                     STR_ARG(param->name));
}

static size_t find_param(const struct model_config *config, struct str name) {
    size_t i = 0;
    while (i < config->n_params && !str_eq(config->params[i].name, name)) {
        i++;
    }
    return i;
}

enum status model_config_set_param(struct arena *arena, struct model_config *config,
                                   const struct model_config_param *param, struct error *err) {
    if (str_starts_with(param->name, str_of(own_prefix))) {
        return set_server_param(param, config, err);
    }
    size_t at = find_param(config, param->name);
    size_t n = at < config->n_params ? config->n_params : config->n_params + 1;
    /* The array may be shared with another copy of the configuration: never changed in place. */
    struct model_config_param *params = arena_calloc(arena, n, sizeof(*params));
    if (!params) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < config->n_params; i++) {
        params[i] = config->params[i];
    }
    params[at] = *param;
    params[at].name = arena_dup(arena, param->name);
    params[at].value = arena_dup(arena, param->value);
    if (!params[at].name.ptr || !params[at].value.ptr) {
        return config_no_memory(err);
    }
    config->params = params;
    config->n_params = n;
    return ST_OK;
}

static enum status read_param(struct arena *arena, const struct doc_node *node,
                              struct model_config_param *out, struct error *err) {
    struct doc_node value = doc_get(node, "value");
    out->value = STR("");
    enum status st = config_read_text(arena, node, "key", &out->name, err);
    if (st == ST_OK && out->name.len == 0) {
        st = doc_error(node, err, "has no key");
    }
    if (st == ST_OK) {
        st = config_read_text(arena, &value, "string_value", &out->value, err);
    }
    return st;
}

static enum status add_param(struct arena *arena, const struct doc_node *node,
                             struct model_config *out, struct error *err) {
    struct model_config_param param = {{NULL, 0}, {NULL, 0}, false};
    enum status st = read_param(arena, node, &param, err);
    if (st != ST_OK) {
        return st;
    }
    if (find_param(out, param.name) < out->n_params) {
        return doc_error(node, err, "\"%.*s\" is given twice", STR_ARG(param.name));
    }
    st = model_config_set_param(arena, out, &param, err);
    if (st == ST_BAD_CONFIG) { /* said without its place */
        struct error why = *err;
        st = doc_error(node, err, "%s", why.text);
    }
    return st;
}

enum status config_read_params(struct arena *arena, const struct doc_node *root,
                               struct model_config *out, struct error *err) {
    struct doc_node list = doc_get(root, "parameters");
    for (size_t i = 0; i < doc_count(&list); i++) {
        struct doc_node node = doc_at(&list, i);
        enum status st = add_param(arena, &node, out, err);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}
