/* Finding a tensor by name, printing a name or an origin in a message, and copying pieces. */
#include "core/tensor/tensor.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

size_t tensor_spec_find(const struct tensor_spec *specs, size_t n, struct str name) {
    for (size_t i = 0; i < n; i++) {
        if (str_eq(specs[i].name, name)) {
            return i;
        }
    }
    return SIZE_MAX;
}

const char *tensor_origin_print(const struct model_spec *model, struct str origin,
                                char out[ORIGIN_TEXT_BYTES]) {
    char name[QUOTED_NAME_BYTES];
    quote_name(model->name, name);
    if (origin.len == 0) {
        snprintf(out, ORIGIN_TEXT_BYTES, " (model %s)", name);
    } else {
        snprintf(out, ORIGIN_TEXT_BYTES, " (model %s: %.*s)", name, STR_ARG(origin));
    }
    return out;
}
