/* Validates the description that a backend gives of its model. It is checked once per load, so the
 * rest of the server can rely on names, ranks and dimensions. */
#include "core/base/utf8.h"
#include "serve/config/resolve_config.h"

static bool is_duplicate_name(const sluice_tensor_info *infos, size_t i) {
    for (size_t j = 0; j < i; j++) {
        if (strcmp(infos[j].name, infos[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static enum status check_tensor(const sluice_tensor_info *infos, size_t i, struct error *err) {
    const sluice_tensor_info *info = &infos[i];
    if (info->rank > SHAPE_MAX_RANK || (info->rank > 0 && !info->dims)) {
        return error_set(err, ST_BACKEND_FAILED, "expected at most %d dimensions, got %zu%s",
                         SHAPE_MAX_RANK, info->rank, info->dims ? "" : " without their sizes");
    }
    for (size_t k = 0; k < info->rank; k++) {
        if (info->dims[k] < -1) {
            return error_set(err, ST_BACKEND_FAILED,
                             "dimension %zu is %lld, expected -1 (any size) or at least 0", k,
                             (long long)info->dims[k]);
        }
    }
    if ((int)info->datatype <= DT_INVALID || (int)info->datatype >= DT_COUNT_) {
        return error_set(err, ST_BACKEND_FAILED, "datatype number %d is unknown",
                         (int)info->datatype);
    }
    return is_duplicate_name(infos, i)
               ? error_set(err, ST_BACKEND_FAILED, "there are two of that name")
               : ST_OK;
}

static enum status check_tensors(const char *kind, const sluice_tensor_info *infos, size_t n,
                                 struct error *err) {
    for (size_t i = 0; i < n; i++) {
        const char *name = infos[i].name;
        size_t len = name ? strlen(name) : 0;
        if (len == 0 || !utf8_is_valid(name, len)) {
            return error_set(err, ST_BACKEND_FAILED, "%s %zu of the model has no proper name", kind,
                             i);
        }
        if (check_tensor(infos, i, err) != ST_OK) {
            return error_prefix(err, "%s \"%s\" of the model", kind, name);
        }
    }
    return ST_OK;
}

enum status model_info_check(const sluice_model_info *info, struct error *err) {
    if (info->takes_any) {
        return ST_OK;
    }
    enum status st = check_tensors("input", info->inputs, info->n_inputs, err);
    if (st == ST_OK) {
        st = check_tensors("output", info->outputs, info->n_outputs, err);
    }
    if (st == ST_OK && info->n_outputs == 0) {
        st = error_set(err, ST_BACKEND_FAILED, "the model has no outputs");
    }
    return st;
}
