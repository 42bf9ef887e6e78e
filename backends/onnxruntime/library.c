/* The places where ONNX Runtime may be, and dlopen of what is there. */
#include "onnxruntime/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/text.h"

#define SETTING "SLUICE_ONNXRUNTIME"

static const char remedy[] =
    "run `pip install onnxruntime`, or set " SETTING " to a libonnxruntime.so or its directory";
static const char library_name[] = "libonnxruntime.so.1";

struct search {
    const sluice_host *host;
    struct library *library;
    char reason[320]; /* of the first file that could not be loaded; "": none was there */
};

static void note_failure(struct search *search, const char *path, const char *reason) {
    char text[sizeof(search->reason)];
    snprintf(text, sizeof(text), "%s: %s", path, reason);
    search->host->log(SLUICE_LOG_WARNING, "", text);
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

static void log_loaded(const struct search *search, const OrtApiBase *base) {
    char text[PATH_MAX + 64];
    Dl_info info;
    snprintf(text, sizeof(text), "ONNX Runtime %s: %s", search->library->version,
             dladdr(base, &info) != 0 && info.dli_fname ? info.dli_fname : "");
    search->host->log(SLUICE_LOG_INFO, "", text);
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
    *search->library = (struct library){.api = api, .version = base->GetVersionString()};
    log_loaded(search, base);
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

sluice_status library_load(const sluice_host *host, struct library *library, sluice_error *error) {
    struct search search = {.host = host, .library = library};
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
