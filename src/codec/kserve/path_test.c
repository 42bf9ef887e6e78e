/* Paths: the resource, the decoded names, and invalid names. */
#include "codec/kserve/path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void v2_path_parse_known_paths_match(void **state) {
    static const struct {
        const char *path;
        enum v2_resource resource;
        const char *model;
        const char *version; /* NULL: none */
    } rows[] = {
        {"/v2", V2_SERVER, "", NULL},
        {"/v2/", V2_SERVER, "", NULL},
        {"/v2/health/live", V2_LIVE, "", NULL},
        {"/v2/health/ready", V2_READY, "", NULL},
        {"/v2/models/m", V2_MODEL, "m", NULL},
        {"/v2/models/m/ready", V2_MODEL_READY, "m", NULL},
        {"/v2/models/m/infer", V2_MODEL_INFER, "m", NULL},
        {"/v2/models/m/versions/1", V2_MODEL, "m", "1"},
        {"/v2/models/m/versions/1/ready", V2_MODEL_READY, "m", "1"},
        {"/v2/models/m/versions/1/infer", V2_MODEL_INFER, "m", "1"},
        {"/v2/models/m/versions/v10", V2_MODEL, "m",
         "v10"}, /* kept as text; the caller parses it */
        {"/v2/load", V2_LOAD, "", NULL},
        {"/v2/models", V2_MODELS, "", NULL},
        {"/v2/models/", V2_MODELS, "", NULL},
        {"/v2/logging", V2_LOGGING, "", NULL},
        {"/v2/trace/setting", V2_TRACE, "", NULL},
        {"/v2/models/m/trace/setting", V2_TRACE, "m", NULL},
        {"/v2/models/trace/trace/setting", V2_TRACE, "trace", NULL},
        {"/v2/models/stats", V2_STATISTICS, "", NULL},
        {"/v2/models/m/stats", V2_STATISTICS, "m", NULL},
        {"/v2/models/m/versions/1/stats", V2_STATISTICS, "m", "1"},
        {"/v2/models/stats/stats", V2_STATISTICS, "stats", NULL}, /* a model of that name */
        {"/v2/models/stats/infer", V2_MODEL_INFER, "stats", NULL},
        {"/v2/models/stats/versions/1", V2_MODEL, "stats", "1"},
        {"/v2/models/%73tats", V2_MODEL, "stats", NULL},
        {"/v2/models/ready", V2_MODEL, "ready", NULL},
        {"/v2/models/infer/infer", V2_MODEL_INFER, "infer", NULL},
        {"/v2/models/versions", V2_MODEL, "versions", NULL},
        {"/v2/models/versions/versions/2", V2_MODEL, "versions", "2"},
        {"/v2/models/my%20model", V2_MODEL, "my model", NULL},
        {"/v2/models/a%25b%c3%A9", V2_MODEL, "a%b\xc3\xa9", NULL},
        {"/v2/models/%2541", V2_MODEL, "%41", NULL}, /* decoded once */
        {"/v2/models/a.b..c/versions/%31", V2_MODEL, "a.b..c", "1"},
        {"/v2/models/...", V2_MODEL, "...", NULL},
        {"/v2/models/+", V2_MODEL, "+", NULL},
        {"/v2/models/m/config", V2_MODEL_CONFIG, "m", NULL},
        {"/v2/systemsharedmemory/status", V2_SHARED_MEMORY_STATUS, "", NULL},
        {"/v2/systemsharedmemory/region/r/status", V2_SHARED_MEMORY_STATUS, "", NULL},
        {"/v2/systemsharedmemory/region/r/register", V2_SHARED_MEMORY_REGISTER, "", NULL},
        {"/v2/systemsharedmemory/register", V2_SHARED_MEMORY_REGISTER, "", NULL},
        {"/v2/systemsharedmemory/unregister", V2_SHARED_MEMORY_UNREGISTER, "", NULL},
        {"/v2/cudasharedmemory/status", V2_CUDA_MEMORY_STATUS, "", NULL},
        {"/v2/cudasharedmemory/region/r/unregister", V2_CUDA_MEMORY_UNREGISTER, "", NULL},
        {"/v2/systemsharedmemory/region/status/unregister", V2_SHARED_MEMORY_UNREGISTER, "", NULL},
        {"/v2/models/m/versions/3/config", V2_MODEL_CONFIG, "m", "3"},
        {"/v2/repository/index", V2_REPOSITORY_INDEX, "", NULL},
        {"/v2/repository/r/index", V2_REPOSITORY_INDEX, "", NULL},
        {"/v2/repository/models/index", V2_REPOSITORY_INDEX, "", NULL},
        {"/v2/repository/models/m/load", V2_REPOSITORY_LOAD, "m", NULL},
        {"/v2/repository/models/m/unload", V2_REPOSITORY_UNLOAD, "m", NULL},
        {"/v2/repository/r/models/a%20b/load", V2_REPOSITORY_LOAD, "a b", NULL},
        {"/v2/repository/models/models/load/load", V2_REPOSITORY_LOAD, "load", NULL},
        {"/v2/repository/models/load/load", V2_REPOSITORY_LOAD, "load", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_path path;
        struct error err = {0};
        if (v2_path_parse(arena, str_of(rows[i].path), &path, &err) != ST_OK) {
            fail_msg("%s: %s", rows[i].path, err.text);
        }
        assert_int_equal(path.resource, rows[i].resource);
        assert_true(str_is(path.model, rows[i].model));
        assert_int_equal(path.version.ptr != NULL, rows[i].version != NULL);
        assert_true(str_is(path.version, rows[i].version ? rows[i].version : ""));
        arena_free(arena);
    }
}

static void v2_path_parse_unknown_paths_are_refused(void **state) {
    static const struct {
        const char *path;
        enum status status;
        const char *sentence;
    } rows[] = {
        {"", ST_NOT_FOUND, "no resource \"\""},
        {"/", ST_NOT_FOUND, "no resource \"/\"; there are /v2,"},
        {"/v1", ST_NOT_FOUND, "/v1"},
        {"/v1/models/m:predict", ST_NOT_FOUND, "not V1: POST /v2/models/MODEL/infer"},
        {"/v1/models", ST_NOT_FOUND, "not V1"},
        {"/v2x", ST_NOT_FOUND, "/v2x"},
        {"/V2", ST_NOT_FOUND, ""},
        {"/v2//", ST_NOT_FOUND, ""},
        {"/v2/health", ST_NOT_FOUND, ""},
        {"/v2/repository", ST_NOT_FOUND, ""},
        {"/v2/systemsharedmemory", ST_NOT_FOUND, ""},
        {"/v2/systemsharedmemory/", ST_NOT_FOUND, "no such resource"},
        {"/v2/systemsharedmemory/region/r", ST_NOT_FOUND, "no such resource"},
        {"/v2/systemsharedmemory/region/r/status/x", ST_NOT_FOUND, "no such resource"},
        {"/v2/systemsharedmemory/region/a/b/status", ST_NOT_FOUND, "no such resource"},
        {"/v2/systemsharedmemory/region/%ff/status", ST_BAD_REQUEST, "UTF-8"},
        {"/v2/systemsharedmemory/region/%f/status", ST_BAD_REQUEST, "hexadecimal"},
        {"/v2/cudasharedmemory/region/r/register", ST_UNSUPPORTED, "CUDA"},
        {"/v2/cudasharedmemory/other", ST_NOT_FOUND, "/v2/cudasharedmemory[/region/NAME]"},
        {"/v2/repository/", ST_NOT_FOUND, ""},
        {"/v2/repository/models", ST_NOT_FOUND, ""},
        {"/v2/repository/models/m", ST_NOT_FOUND, ""},
        {"/v2/repository/models/m/reload", ST_NOT_FOUND, ""},
        {"/v2/repository/models/m/load/", ST_NOT_FOUND, ""},
        {"/v2/repository/models/../load", ST_BAD_REQUEST, "a step in a file system"},
        {"/v2/repository/models/%2e%2e/unload", ST_BAD_REQUEST, "a step in a file system"},
        {"/v2/repository/models/a%2fb/load", ST_BAD_REQUEST, "a slash"},
        {"/v2/repository/models/%00/load", ST_BAD_REQUEST, "a control character"},
        {"/v2/repository/models//load", ST_BAD_REQUEST, "is empty"},
        {"/v2/repository/models/../../etc/load", ST_NOT_FOUND, ""},
        {"/v2/health/", ST_NOT_FOUND, ""},
        {"/v2/health/live/", ST_NOT_FOUND, ""},
        {"/v2/models//ready", ST_NOT_FOUND, "no model can have the name \"\": it is empty"},
        {"/v2/models//infer", ST_NOT_FOUND, "it is empty"},
        {"/v2/models/m/", ST_NOT_FOUND, "no resource"},
        {"/v2/models/m/infer/", ST_NOT_FOUND, "no resource"},
        {"/v2/models/m/configuration", ST_NOT_FOUND, "no resource"},
        {"/v2/models/m/versions", ST_NOT_FOUND, "no resource"},
        {"/v2/models/m/versions/", ST_NOT_FOUND, "no version can have the name \"\""},
        {"/v2/models/m/versions//infer", ST_NOT_FOUND, "no version can have the name \"\""},
        {"/v2/models/m/versions/1/infer/x", ST_NOT_FOUND, "no resource"},
        {"/v2/models/a/b/infer", ST_NOT_FOUND, "no resource"},
        {"/v2/models/.", ST_NOT_FOUND, "a step in a file system"},
        {"/v2/models/../infer", ST_NOT_FOUND, "no model can have the name \"..\""},
        {"/v2/models/%2e%2e/infer", ST_NOT_FOUND, "no model can have the name \"..\""},
        {"/v2/models/%2E", ST_NOT_FOUND, "a step in a file system"},
        {"/v2/models/a%2Fb/infer", ST_NOT_FOUND, "it has a slash in it"},
        {"/v2/models/%00", ST_NOT_FOUND, "it has a control character in it"},
        {"/v2/models/a%0ab", ST_NOT_FOUND, "control character"},
        {"/v2/models/a%7f", ST_NOT_FOUND, "control character"},
        {"/v2/models/%ff", ST_NOT_FOUND, "it is not UTF-8"},
        {"/v2/models/%ed%a0%80", ST_NOT_FOUND, "it is not UTF-8"},
        {"/v2/models/m/versions/%2e%2e", ST_NOT_FOUND, "no version can have the name"},
        {"/v2/models/%", ST_BAD_REQUEST, "expected two hexadecimal digits after '%', got \"%\""},
        {"/v2/models/a%4", ST_BAD_REQUEST, "got \"%4\""},
        {"/v2/models/%zz/infer", ST_BAD_REQUEST, "got \"%zz\""},
        {"/v2/models/%4g", ST_BAD_REQUEST, "got \"%4g\""},
        {"/v2/models/% 4", ST_BAD_REQUEST, "got \"% 4\""},
        {"/v2/models/m/versions/%+1", ST_BAD_REQUEST, "got \"%+1\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_path path;
        struct error err = {0};
        enum status status = v2_path_parse(arena, str_of(rows[i].path), &path, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].sentence)) {
            fail_msg("%s: %s %s", rows[i].path, status_name(status), err.text);
        }
        assert_int_equal(path.resource, V2_OTHER);
        arena_free(arena);
    }
}

/* Escaped names decode back, and only the necessary characters are escaped. */
static void v2_path_escape_roundtrips(void **state) {
    static const char plain[] = "ABCXYZabcxyz0189-._~";
    char all[255];
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct str back;
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof(all); i++) {
        all[i] = (char)(i + 1);
    }
    buf_init(&out, arena, 0);
    v2_path_escape(&out, str_of(plain));
    assert_true(str_is(buf_str(&out), plain));
    v2_path_escape(&out, STR("/ %\xc3\xa9@[`{"));
    assert_true(str_ends_with(buf_str(&out), STR("%2F%20%25%C3%A9%40%5B%60%7B")));
    buf_init(&out, arena, 0);
    v2_path_escape(&out, str_make(all, sizeof(all)));
    assert_int_equal(v2_path_unescape(arena, buf_str(&out), &back, &err), ST_OK);
    assert_true(str_eq(back, str_make(all, sizeof(all))));
    arena_free(arena);
}

static void v2_path_parse_long_name_is_accepted(void **state) {
    static const char head[] = "/v2/models/";
    size_t len = 65536;
    char *text = malloc(len);
    struct arena *arena = arena_new(NULL, 0);
    struct v2_path path;
    struct error err = {0};
    (void)state;
    memset(text, 'a', len);
    memcpy(text, head, sizeof(head) - 1);
    assert_int_equal(v2_path_parse(arena, str_make(text, len), &path, &err), ST_OK);
    assert_int_equal(path.model.len, len - (sizeof(head) - 1));
    text[len - 2] = '/';
    assert_int_equal(v2_path_parse(arena, str_make(text, len), &path, &err), ST_NOT_FOUND);
    assert_non_null(strstr(err.text, "aaaa…\""));
    arena_free(arena);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_path_parse_known_paths_match),
        cmocka_unit_test(v2_path_parse_unknown_paths_are_refused),
        cmocka_unit_test(v2_path_escape_roundtrips),
        cmocka_unit_test(v2_path_parse_long_name_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
