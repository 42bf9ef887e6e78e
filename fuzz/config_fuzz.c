/* config.pbtxt as a model's configuration: valid ones are within the limits that the scheduler
 * and the backends rely on; errors contain the file's name. */
#include "core/base/log.h"
#include "serve/config/config.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* Of dims and reshapes: at least -1, and not too many. */
static void check_dims(struct shape shape) {
    check(shape.rank < SHAPE_MAX_RANK);
    for (size_t i = 0; i < shape.rank; i++) {
        check(shape.dims[i] >= -1);
    }
}

static void check_tensors(const struct model_config_tensor *tensors, size_t n) {
    for (size_t i = 0; i < n; i++) {
        check(tensors[i].name.len > 0 && (int)tensors[i].datatype < DT_COUNT_);
        check_dims(tensors[i].dims);
        check_dims(tensors[i].reshape);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    log_configure(LOG_ERROR, LOG_TEXT); /* suppress warnings about ignored tuning settings */
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_config config = {0};
    struct doc *doc = NULL;
    struct error err = {0};
    enum status status =
        doc_parse(DOC_PBTXT, "config", str_make((const char *)data, size), &doc, &err);
    if (status == ST_OK) {
        status = model_config_read(arena, doc, NULL, &config, &err);
        doc_free(doc); /* the configuration must not depend on it */
    }
    if (status == ST_OK) {
        check_tensors(config.inputs, config.n_inputs);
        check_tensors(config.outputs, config.n_outputs);
        check(config.max_batch_size <= INT64_MAX);
    } else {
        check(strncmp(err.text, "config", 6) == 0);
    }
    arena_free(arena);
    return 0;
}
