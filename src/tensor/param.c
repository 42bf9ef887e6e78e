/* Finding a parameter by name. Lists are short: it refuses to be a hash table. */
#include "tensor/param.h"

const struct param *params_find(struct params params, const char *name) {
    struct str wanted = str_of(name);
    for (size_t i = 0; i < params.n; i++) {
        if (str_eq(params.items[i].name, wanted)) {
            return &params.items[i];
        }
    }
    return NULL;
}
