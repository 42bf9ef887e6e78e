/* The places where ONNX Runtime may be and dlopen of what is there, the memory of its runs, and its
 * environment. */
#include "onnxruntime/ort.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/text.h"

/* ---- finding and loading --------------------------------------------------------------------- */

#define SETTING "SLUICE_ONNXRUNTIME"

static const char remedy[] =
    "run `pip install onnxruntime`, or set " SETTING " to a libonnxruntime.so or its directory";
static const char library_name[] = "libonnxruntime.so.1";

struct search {
    struct ort *ort;  /* where the library goes */
    char reason[320]; /* of the first file that could not be loaded; "": none was there */
};

static void note_failure(struct search *search, const char *path, const char *reason) {
    char text[sizeof(search->reason)];
    snprintf(text, sizeof(text), "%s: %s", path, reason);
    search->ort->host->log(SLUICE_LOG_WARNING, "", text);
    if (search->reason[0] == '\0') {
        memcpy(search->reason, text, sizeof(text));
    }
}

/* dlerror begins with the file's name where it can. */
static const char *dl_reason(const char *path) {
    const char *text = dlerror();
    size_t n = strlen(path);
    if (!text) {
        return "not loaded";
    }
    return strncmp(text, path, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

/* Returns: the library's entry. Its symbol has the library's version; dlsym takes any. */
static const OrtApiBase *base_of(void *handle) {
    const OrtApiBase *(*entry)(void);
    void *symbol = dlsym(handle, "OrtGetApiBase");
    if (!symbol) {
        return NULL;
    }
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C forbids the cast */
    return entry();
}

/* Returns: whether the library at `path` was taken. */
static int try_file(struct search *search, const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        note_failure(search, path, dl_reason(path));
        return 0;
    }
    const OrtApiBase *base = base_of(handle);
    const OrtApi *api = base ? base->GetApi(ORT_API_VERSION) : NULL;
    if (!api) {
        char text[128] = "has no OrtGetApiBase";
        if (base) {
            snprintf(text, sizeof(text), "is version %s; 1.%d or newer is needed",
                     base->GetVersionString(), ORT_API_VERSION);
        }
        note_failure(search, path, text);
        dlclose(handle);
        return 0;
    }
    Dl_info info;
    char text[PATH_MAX + 64];
    search->ort->api = api;
    search->ort->version = base->GetVersionString();
    snprintf(text, sizeof(text), "ONNX Runtime %s: %s", search->ort->version,
             dladdr(base, &info) != 0 && info.dli_fname ? info.dli_fname : "");
    search->ort->host->log(SLUICE_LOG_INFO, "", text);
    return 1;
}

/* Appends `text` to the pattern `out` as itself. Returns: 0 when it does not fit. */
static int append_escaped(char *out, size_t n_bytes, const char *text) {
    size_t n = strlen(out);
    for (; *text; text++) {
        if (n + 3 > n_bytes) {
            return 0;
        }
        if (strchr("\\*?[", *text)) {
            out[n++] = '\\';
        }
        out[n++] = *text;
    }
    out[n] = '\0';
    return 1;
}

/* Tries the files that match the pattern `below` in `directory`. */
static int try_directory(struct search *search, const char *directory, const char *below) {
    char pattern[2 * PATH_MAX] = "";
    glob_t found = {0};
    int taken = 0;
    if (!append_escaped(pattern, PATH_MAX + PATH_MAX / 2, directory)) {
        return 0;
    }
    strncat(pattern, below, sizeof(pattern) - strlen(pattern) - 1);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !taken; i++) {
            taken = try_file(search, found.gl_pathv[i]);
        }
        globfree(&found);
    }
    return taken;
}

/* Only what the operator named: another library in its place would be a surprise. */
static int try_setting(struct search *search, const char *path) {
    struct stat found;
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode)) {
        return try_file(search, path);
    }
    int taken = try_directory(search, path, "/libonnxruntime.so*");
    if (!taken && search->reason[0] == '\0') {
        note_failure(search, path, "has no libonnxruntime.so*");
    }
    return taken;
}

/* The directory of this backend, and of the Python packages that it may be installed among. */
static int try_beside(struct search *search) {
    Dl_info info;
    char directory[PATH_MAX];
    if (dladdr(remedy, &info) == 0 || !info.dli_fname || !realpath(info.dli_fname, directory)) {
        return 0;
    }
    *strrchr(directory, '/') = '\0';
    if (try_directory(search, directory, "/libonnxruntime.so*")) {
        return 1;
    }
    for (char *end = strrchr(directory, '/'); end; end = strrchr(directory, '/')) {
        if (strcmp(end, "/site-packages") == 0 || strcmp(end, "/dist-packages") == 0) {
            return try_directory(search, directory, "/onnxruntime/capi/libonnxruntime.so*");
        }
        *end = '\0';
    }
    return 0;
}

static int try_virtual_env(struct search *search) {
    const char *root = getenv("VIRTUAL_ENV");
    return root && root[0] &&
           try_directory(search, root,
                         "/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so*");
}

/* Whether the loader knows one. That it does not is no failure. */
static int try_system(struct search *search) {
    void *handle = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    int taken = handle && try_file(search, library_name);
    if (handle && !taken) {
        dlclose(handle);
    }
    return taken;
}

/* Returns: SLUICE_UNAVAILABLE with what to install, or with the reason of the first file that could
 * not be loaded. */
static sluice_status library_load(struct ort *ort, sluice_error *error) {
    struct search search = {.ort = ort};
    const char *setting = getenv(SETTING);
    int taken = setting && setting[0]
                    ? try_setting(&search, setting)
                    : try_beside(&search) || try_virtual_env(&search) || try_system(&search);
    if (taken) {
        return SLUICE_OK;
    }
    if (search.reason[0] != '\0') {
        return error_set(error, SLUICE_UNAVAILABLE, "%s; %s", search.reason, remedy);
    }
    return error_set(error, SLUICE_UNAVAILABLE,
                     "no ONNX Runtime is beside the backend, in the Python environment or among "
                     "the system's libraries; %s",
                     remedy);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* An allocator over the library's own. ONNX Runtime does not check the pointer that an allocator
 * returns; it expects an exception, which C cannot throw. So a size over the limit becomes a
 * request to the library's allocator that no heap can satisfy, and that one throws std::bad_alloc
 * through this file, which has nothing to clean up. */

enum { TENSOR_ALIGNMENT = 256 }; /* ONNX Runtime rounds the size of a tensor up */

static const size_t IMPOSSIBLE_BYTES = SIZE_MAX / 4;

/* The allocator's functions get no argument that identifies the run. */
static _Thread_local struct run_limit {
    size_t max_bytes; /* 0: no limit */
    size_t rounded_bytes;
    size_t refused_bytes;
} run_limit;

static void *memory_alloc(OrtAllocator *allocator, size_t n_bytes) {
    const struct memory *memory = (const struct memory *)(void *)allocator;
    struct run_limit *limit = &run_limit;
    if (limit->max_bytes > 0 && n_bytes > limit->rounded_bytes) {
        limit->refused_bytes = n_bytes;
        return memory->heap->Alloc(memory->heap, IMPOSSIBLE_BYTES);
    }
    return memory->heap->Alloc(memory->heap, n_bytes);
}

/* Weights: the size of a model is not a client's choice. */
static void *memory_reserve(OrtAllocator *allocator, size_t n_bytes) {
    const struct memory *memory = (const struct memory *)(void *)allocator;
    return memory->heap->Alloc(memory->heap, n_bytes);
}

static void memory_free(OrtAllocator *allocator, void *ptr) {
    const struct memory *memory = (const struct memory *)(void *)allocator;
    memory->heap->Free(memory->heap, ptr);
}

static const OrtMemoryInfo *memory_info(const OrtAllocator *allocator) {
    return ((const struct memory *)(const void *)allocator)->info;
}

static void memory_init(struct memory *memory, OrtAllocator *heap, const OrtMemoryInfo *info) {
    *memory = (struct memory){
        .allocator = {.version = ORT_API_VERSION,
                      .Alloc = memory_alloc,
                      .Free = memory_free,
                      .Info = memory_info,
                      .Reserve = memory_reserve},
        .heap = heap,
        .info = info,
    };
}

void memory_begin_run(size_t max_bytes) {
    size_t rounded = max_bytes > SIZE_MAX - TENSOR_ALIGNMENT
                         ? max_bytes
                         : (max_bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
    run_limit = (struct run_limit){.max_bytes = max_bytes, .rounded_bytes = rounded};
}

void memory_end_run(void) {
    run_limit.rounded_bytes = SIZE_MAX;
}

size_t memory_refused_bytes(size_t *max_bytes) {
    *max_bytes = run_limit.max_bytes;
    return run_limit.refused_bytes;
}

/* ---- environment ----------------------------------------------------------------------------- */

static sluice_status environment_make(struct ort *ort, sluice_error *error) {
    static const char doing[] = "ONNX Runtime could not be started";
    const OrtApi *api = ort->api;
    sluice_status status = ort_check(
        ort, api->CreateEnvWithCustomLogger(ort_log, ort, ORT_LOGGING_LEVEL_WARNING, "", &ort->env),
        doing, error);
    if (status == SLUICE_OK) {
        status = ort_check(
            ort, api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &ort->cpu), doing,
            error);
    }
    if (status == SLUICE_OK) {
        status = ort_check(ort, api->GetAllocatorWithDefaultOptions(&ort->allocator), doing, error);
    }
    if (status == SLUICE_OK) {
        memory_init(&ort->memory, ort->allocator, ort->cpu);
        status =
            ort_check(ort, api->RegisterAllocator(ort->env, &ort->memory.allocator), doing, error);
    }
    return status;
}

void ort_prepare(struct ort *ort, const sluice_host *host) {
    *ort = (struct ort){.host = host};
    /* Since version 1.29 the library sends telemetry unless disabled: it stores an identifier in
     * the user's home and sends events about models over the network, which a server of other
     * people's models must not do. It can be disabled by an environment variable only, before the
     * environment reports for the first time; a value set by the operator is kept. It is the
     * process's only change of the environment, made before other threads could read it. */
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
}

sluice_status ort_init(struct ort *ort, sluice_error *error) {
    sluice_status status = library_load(ort, error);
    if (status != SLUICE_OK) {
        return status;
    }
    status = environment_make(ort, error);
    if (status != SLUICE_OK) {
        ort->api->ReleaseMemoryInfo(ort->cpu);
        if (ort->env) {
            ort->api->ReleaseEnv(ort->env);
        }
        *ort = (struct ort){.host = ort->host};
    }
    return status;
}
