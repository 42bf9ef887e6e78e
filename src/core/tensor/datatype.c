/* The rows of datatype.def by name and by number. Names are case-sensitive and have no aliases. */
#include "core/tensor/datatype.h"

#include <assert.h>
#include <stdint.h>

struct datatype_row {
    struct str name;
    struct str config_name;
    size_t size;
};

#define DATATYPE(name, id, bytes, config)                                                          \
    [DT_##name] = {{#name, sizeof(#name) - 1}, {config, sizeof(config) - 1}, bytes},
static const struct datatype_row datatype_rows[DT_COUNT_] = {
    [DT_INVALID] = {{"INVALID", 7}, {"TYPE_INVALID", 12}, 0},
#include "core/tensor/datatype.def"
};
#undef DATATYPE

static const struct datatype_row *datatype_row(enum datatype datatype) {
    assert((unsigned)datatype < DT_COUNT_);
    return &datatype_rows[datatype];
}

enum datatype datatype_parse(struct str name) {
    for (int i = DT_INVALID + 1; i < DT_COUNT_; i++) {
        if (str_eq(name, datatype_rows[i].name)) {
            return (enum datatype)i;
        }
    }
    return DT_INVALID;
}

enum datatype datatype_parse_config(struct str name) {
    for (int i = DT_INVALID + 1; i < DT_COUNT_; i++) {
        if (str_eq(name, datatype_rows[i].config_name)) {
            return (enum datatype)i;
        }
    }
    return DT_INVALID;
}

const char *datatype_name(enum datatype datatype) {
    return datatype_row(datatype)->name.ptr;
}

const char *datatype_config_name(enum datatype datatype) {
    return datatype_row(datatype)->config_name.ptr;
}

size_t datatype_size(enum datatype datatype) {
    return datatype_row(datatype)->size;
}

bool datatype_is_float(enum datatype datatype) {
    return datatype == DT_FP16 || datatype == DT_BF16 || datatype == DT_FP32 || datatype == DT_FP64;
}
