/* One allocation per block: there are few, made when a model is loaded. */
#include "common/signature.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

struct block {
    struct block *next;
    max_align_t bytes[];
};

void *signature_alloc(struct signature *signature, size_t n, size_t n_bytes, sluice_error *error) {
    struct block *block = NULL;
    if (n_bytes == 0 || n <= (SIZE_MAX - sizeof(*block)) / n_bytes) {
        block = calloc(1, sizeof(*block) + n * n_bytes);
    }
    if (!block) {
        error_no_memory(error, "the model's signature");
        return NULL;
    }
    block->next = signature->blocks;
    signature->blocks = block;
    return block->bytes;
}

char *signature_strdup(struct signature *signature, const char *text, sluice_error *error) {
    size_t n_bytes = strlen(text) + 1;
    char *copy = signature_alloc(signature, n_bytes, 1, error);
    return copy ? memcpy(copy, text, n_bytes) : NULL;
}

void signature_fini(struct signature *signature) {
    for (struct block *block = signature->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *signature = (struct signature){0};
}

sluice_status signature_refuse_type(sluice_error *error, const char *word, const char *name,
                                    const char *type) {
    return error_set(error, SLUICE_UNSUPPORTED,
                     "%s \"%.100s\" has elements of type %s, which the protocols have no datatype "
                     "for: cast it inside the model",
                     word, name, type);
}

void signature_describe(const struct signature *signature, const char *platform, int follows_shapes,
                        sluice_model_info *info) {
    info->platform = platform;
    info->inputs = signature->inputs;
    info->n_inputs = signature->n_inputs;
    info->outputs = signature->outputs;
    info->n_outputs = signature->n_outputs;
    /* An older server has no such members. */
    if (info->size >= offsetof(sluice_model_info, data_dependent) + sizeof(info->data_dependent)) {
        info->data_dependent = !follows_shapes;
    }
    if (info->size >=
        offsetof(sluice_model_info, time_follows_shapes) + sizeof(info->time_follows_shapes)) {
        info->time_follows_shapes = follows_shapes;
    }
}
