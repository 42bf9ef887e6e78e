/* Paths: a name that is taken can mean nothing to a file system, and escaping every byte of it
 * gives the same name again. What names no model is one of a few paths, letter by letter. */
#include <stdio.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "wire/v2_path.h"

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

/* The same name with every byte escaped is the same model's. */
static void check_model(struct arena *arena, const struct v2_path *path) {
    static const char *const verbs[] = {
        [V2_MODEL] = "",
        [V2_MODEL_READY] = "/ready",
        [V2_MODEL_INFER] = "/infer",
        [V2_STATISTICS] = "/stats",
    };
    struct v2_path again;
    struct error err = {0};
    struct buf text;
    check(path->resource >= V2_MODEL && path->resource <= V2_STATISTICS);
    check_name(path->model);
    buf_init(&text, arena, 256);
    buf_printf(&text, "/v2/models/");
    add_escaped(&text, path->model);
    if (path->version.ptr) {
        check_name(path->version);
        buf_printf(&text, "/versions/");
        add_escaped(&text, path->version);
    }
    buf_printf(&text, "%s", verbs[path->resource]);
    check(v2_path_parse(arena, buf_str(&text), &again, &err) == ST_OK);
    check(again.resource == path->resource && str_eq(again.model, path->model));
    check(str_eq(again.version, path->version));
}

/* What is the whole server's has no escapes, no version and nothing behind it. */
static void check_fixed(struct str text, const struct v2_path *path) {
    static const char *const texts[] = {
        [V2_SERVER] = "/v2",
        [V2_LIVE] = "/v2/health/live",
        [V2_READY] = "/v2/health/ready",
        [V2_STATISTICS] = "/v2/models/stats",
        [V2_LOAD] = "/v2/load",
    };
    check(path->resource < V2_OTHER && texts[path->resource] && !path->version.ptr);
    check(str_is(text, texts[path->resource]) ||
          (path->resource == V2_SERVER && str_is(text, "/v2/")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct str text = str_make((const char *)data, size);
    struct v2_path path;
    struct error err = {0};
    enum status status = v2_path_parse(arena, text, &path, &err);
    if (status != ST_OK) {
        check(status == ST_NOT_FOUND || status == ST_BAD_REQUEST);
        check(err.text[0] != '\0' && path.resource == V2_OTHER);
    } else if (path.model.ptr) {
        check_model(arena, &path);
    } else {
        check_fixed(text, &path);
    }
    arena_free(arena);
    return 0;
}
