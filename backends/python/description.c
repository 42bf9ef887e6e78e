/* What auto_complete_config has made of a configuration. It is checked by the host, as the
 * description of every model. */
#include <stdlib.h>
#include <string.h>

#include "python/model.h"
#include "python/wire.h"

/* Name and dimensions are in memory of their own. */
static int tensor_read(struct wire_reader *reader, sluice_tensor_info *info) {
    struct wire_tensor tensor;
    wire_read_tensor(reader, &tensor);
    if (reader->failed || memchr(tensor.name.ptr, 0, tensor.name.n_bytes)) {
        reader->failed = 1;
        return 0;
    }
    int64_t *dims = calloc(tensor.rank + 1, sizeof(*dims));
    info->name = wire_text_copy(tensor.name);
    info->dims = dims;
    info->datatype = tensor.datatype;
    info->optional = tensor.optional != 0;
    if (!dims || !info->name) {
        return 0;
    }
    if (tensor.rank > 0) {
        memcpy(dims, tensor.dims, tensor.rank * sizeof(*dims));
    }
    info->rank = tensor.rank;
    return 1;
}

static int tensors_read(struct wire_reader *reader, sluice_tensor_info **infos, size_t *n) {
    uint32_t n_infos = wire_read_count(reader, WIRE_TENSOR_LEAST);
    *infos = calloc((size_t)n_infos + 1, sizeof(**infos));
    if (!*infos) {
        return 0;
    }
    *n = n_infos; /* all can be freed */
    for (uint32_t i = 0; i < n_infos; i++) {
        if (!tensor_read(reader, &(*infos)[i])) {
            return 0;
        }
    }
    return 1;
}

int description_read(struct description *description, struct wire_reader *reader) {
    description_fini(description);
    description->max_batch_size = wire_read_u64(reader);
    description->decoupled = wire_read_u8(reader);
    description->dynamic_batching = wire_read_u8(reader);
    description->is_set = tensors_read(reader, &description->inputs, &description->n_inputs) &&
                          tensors_read(reader, &description->outputs, &description->n_outputs) &&
                          !reader->failed;
    return description->is_set;
}

static void tensors_free(sluice_tensor_info *infos, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free((void *)infos[i].name);
        free((void *)infos[i].dims);
    }
    free(infos);
}

void description_fini(struct description *description) {
    tensors_free(description->inputs, description->n_inputs);
    tensors_free(description->outputs, description->n_outputs);
    *description = (struct description){0};
}
