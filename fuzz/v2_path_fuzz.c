/* Paths: an accepted name has no meaning for a file system, and escaping every byte of it gives
 * the same name. Paths without a model are one of a few, byte for byte. */
#include <stdio.h>

#include "codec/kserve/path.h"
#include "core/base/buf.h"
#include "core/base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void check_name(struct str name) {
    check(name.len > 0 && !str_is(name, ".") && !str_is(name, ".."));
    check(utf8_is_valid(name.ptr, name.len));
    for (size_t i = 0; i < name.len; i++) {
        check(name.ptr[i] != '/' && ((unsigned char)name.ptr[i] >= 0x20));
    }
}

static void add_escaped(struct buf *out, struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        buf_printf(out, "%%%02x", (unsigned char)name.ptr[i]);
    }
}

static void check_same(struct arena *arena, const struct buf *text, const struct v2_path *path) {
    struct v2_path again;
    struct error err = {0};
    check(v2_path_parse(arena, buf_str(text), &again, &err) == ST_OK);
    check(again.resource == path->resource && str_eq(again.model, path->model));
    check(str_eq(again.version, path->version) && str_eq(again.repository, path->repository));
    check(str_eq(again.region, path->region));
}

/* The name with every byte escaped is the same model. */
static void check_model(struct arena *arena, const struct v2_path *path) {
    static const char *const verbs[V2_OTHER] = {
        [V2_MODEL] = "",
        [V2_MODEL_READY] = "/ready",
        [V2_MODEL_INFER] = "/infer",
        [V2_GENERATE] = "/generate",
        [V2_GENERATE_STREAM] = "/generate_stream",
        [V2_STATISTICS] = "/stats",
        [V2_MODEL_CONFIG] = "/config",
        [V2_REPOSITORY_LOAD] = "/load",
        [V2_REPOSITORY_UNLOAD] = "/unload",
        [V2_TRACE] = "/trace/setting",
    };
    struct buf text;
    check(path->resource < V2_OTHER && verbs[path->resource]);
    bool changes = path->resource == V2_REPOSITORY_LOAD || path->resource == V2_REPOSITORY_UNLOAD;
    check_name(path->model);
    buf_init(&text, arena, 256);
    buf_add_str(&text, changes ? STR("/v2/repository") : STR("/v2"));
    if (path->repository.ptr) {
        check(changes);
        buf_add_char(&text, '/');
        buf_add_str(&text, path->repository);
    }
    buf_add_str(&text, STR("/models/"));
    add_escaped(&text, path->model);
    if (path->version.ptr) {
        check(!changes && path->resource != V2_TRACE);
        check_name(path->version);
        buf_add_str(&text, STR("/versions/"));
        add_escaped(&text, path->version);
    }
    buf_add_str(&text, str_of(verbs[path->resource]));
    check_same(arena, &text, path);
}

/* The same for a shared-memory region, which may have any name. */
static void check_shared_memory(struct arena *arena, const struct v2_path *path) {
    bool is_cuda = path->resource >= V2_CUDA_MEMORY_STATUS;
    struct buf text;
    check(utf8_is_valid(path->region.ptr, path->region.len));
    buf_init(&text, arena, 256);
    buf_add_str(&text, is_cuda ? STR("/v2/cudasharedmemory") : STR("/v2/systemsharedmemory"));
    if (path->region.len > 0) {
        buf_add_str(&text, STR("/region/"));
        add_escaped(&text, path->region);
    }
    bool is_status =
        path->resource == V2_SHARED_MEMORY_STATUS || path->resource == V2_CUDA_MEMORY_STATUS;
    buf_add_str(&text, is_status                                     ? STR("/status")
                       : path->resource == V2_SHARED_MEMORY_REGISTER ? STR("/register")
                                                                     : STR("/unregister"));
    check_same(arena, &text, path);
}

/* A path of the whole server has no escapes, no version and no suffix. */
static void check_fixed(struct str text, const struct v2_path *path) {
    static const char *const texts[V2_OTHER] = {
        [V2_SERVER] = "/v2",
        [V2_LIVE] = "/v2/health/live",
        [V2_READY] = "/v2/health/ready",
        [V2_STATISTICS] = "/v2/models/stats",
        [V2_MODELS] = "/v2/models",
        [V2_LOAD] = "/v2/load",
        [V2_LOGGING] = "/v2/logging",
        [V2_TRACE] = "/v2/trace/setting",
    };
    check(path->resource < V2_OTHER && texts[path->resource] && !path->version.ptr);
    check(str_is(text, texts[path->resource]) ||
          (path->resource == V2_SERVER && str_is(text, "/v2/")) ||
          (path->resource == V2_MODELS && str_is(text, "/v2/models/")));
}

static void check_parsed(struct arena *arena, struct str text, const struct v2_path *path) {
    if (path->model.ptr) {
        check_model(arena, path);
    } else if (path->resource == V2_REPOSITORY_INDEX) {
        check(str_starts_with(text, STR("/v2/repository/")) && str_ends_with(text, STR("/index")));
    } else if (path->resource >= V2_SHARED_MEMORY_STATUS &&
               path->resource <= V2_CUDA_MEMORY_UNREGISTER) {
        check_shared_memory(arena, path);
    } else {
        check_fixed(text, path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct str text = str_make((const char *)data, size);
    struct v2_path path;
    struct error err = {0};
    enum status status = v2_path_parse(arena, text, &path, &err);
    if (status != ST_OK) {
        bool cuda = str_starts_with(text, STR("/v2/cudasharedmemory/"));
        check(status == ST_NOT_FOUND || status == ST_BAD_REQUEST ||
              (cuda && status == ST_UNSUPPORTED)); /* no region can be registered */
        check(err.text[0] != '\0' && path.resource == V2_OTHER);
    } else {
        check_parsed(arena, text, &path);
    }
    arena_free(arena);
    return 0;
}
