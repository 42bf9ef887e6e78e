/* The index of the model repository extension. It lists the versions that are in a repository,
 * named at the start, or served; a replaced version that is still in use is not listed. */
#include "serve/frontend/repository_index.h"

#include "codec/protobuf/pb.h"
#include "core/base/num.h"

/* The state names of the extension; "" for a version that was never loaded. */
static const char *state_of(enum repository_phase phase) {
    static const char *const states[REPOSITORY_PHASES] = {
        [REPOSITORY_LOADING] = "LOADING",      [REPOSITORY_READY] = "READY",
        [REPOSITORY_FAILED] = "UNAVAILABLE",   [REPOSITORY_UNLOADING] = "UNLOADING",
        [REPOSITORY_UNLOADED] = "UNAVAILABLE", [REPOSITORY_UNTOUCHED] = "",
    };
    return states[phase];
}

static const char *reason_of(const struct repository_entry *entry) {
    return entry->phase == REPOSITORY_UNLOADED ? "unloaded" : entry->reason;
}

struct index {
    struct buf *out;
    bool ready;
};

/* A model that was loaded with files of a request, or whose files were removed, is in no directory
 * while it is served. */
static bool is_in(const struct index *index, const struct repository_entry *entry) {
    bool known =
        entry->listed || entry->phase == REPOSITORY_READY || entry->phase == REPOSITORY_LOADING;
    return known && !entry->replaced && (!index->ready || entry->phase == REPOSITORY_READY);
}

enum { MODELS = 1, NAME = 1, VERSION = 2, STATE = 3, REASON = 4 };

static void add_entry(void *user, const struct repository_entry *entry) {
    struct index *index = user;
    char number[20];
    if (!is_in(index, entry)) {
        return;
    }
    size_t begun = pb_begin(index->out, MODELS);
    size_t len = entry->number > 0 ? num_print_u64(number, entry->number) : 0;
    pb_add_string(index->out, NAME, entry->model);
    pb_add_string(index->out, VERSION, str_make(number, len));
    pb_add_string(index->out, STATE, str_of(state_of(entry->phase)));
    pb_add_string(index->out, REASON, str_of(reason_of(entry)));
    pb_end(index->out, begun);
}

void repository_index_encode(struct repository *repository, bool ready, struct buf *out) {
    struct index index = {.out = out, .ready = ready};
    repository_visit(repository, add_entry, &index);
}

/* ---- load requests --------------------------------------------------------------------------- */

enum status repository_change_from_request(struct arena *arena,
                                           const struct v2_repository_request *request,
                                           struct repository_change *out, struct error *err) {
    struct repository_file *files = arena_calloc(arena, request->n_files, sizeof(*files));
    if (!files) {
        return error_no_memory(err, "the parameters");
    }
    for (size_t i = 0; i < request->n_files; i++) {
        files[i] = (struct repository_file){request->files[i].path, request->files[i].data};
    }
    out->config = request->config;
    out->files = files;
    out->n_files = request->n_files;
    return ST_OK;
}
