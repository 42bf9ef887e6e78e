/* The repository: loading, lookup by name and version, readiness, failures, stopping. */
#include "serve/repository/repository.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"

/* ---- backend --------------------------------------------------------------------------------- */

/* Fails for a model file that begins with "bad"; the rest of it is the reason. */
static sluice_status open_file(const sluice_model_args *args, sluice_model **model,
                               sluice_error *error) {
    char text[64] = "";
    FILE *file = fopen(args->path, "r");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[n] = '\0';
    if (file) {
        fclose(file);
    }
    if (strncmp(text, "bad", 3) == 0) {
        snprintf(error->text, sizeof(error->text), "%s", text + 5);
        return SLUICE_INTERNAL;
    }
    return rig_model_open(args, model, error);
}

static sluice_status no_instance(sluice_model *model, uint32_t index, sluice_instance **instance,
                                 sluice_error *error) {
    if (index == 2) {
        snprintf(error->text, sizeof(error->text), "no third one");
        return SLUICE_UNAVAILABLE;
    }
    return rig_instance_open(model, index, instance, error);
}

static sluice_backend backend_of_files(void) {
    sluice_backend backend = rig_backend;
    backend.model_open = open_file;
    backend.instance_open = no_instance;
    return backend;
}

struct served {
    struct test_dir dir;
    sluice_backend backend;
    const sluice_backend *builtin[1];
    struct repository *repository;
    struct error err;
};

static void add(struct served *served, const char *name, const char *text) {
    test_dir_add(&served->dir, name, text);
}

static void begin(struct served *served) {
    memset(served, 0, sizeof(*served));
    test_dir_make(&served->dir);
    served->backend = backend_of_files();
    served->builtin[0] = &served->backend;
}

static void make(struct served *served, bool strict) {
    char path[PATH_MAX];
    const char *const paths[] = {test_dir_path(&served->dir, "r", path)};
    struct repository_options options = {.model_load_thread_count = 1,
                                         .paths = paths,
                                         .n_paths = 1,
                                         .builtin = served->builtin,
                                         .n_builtin = 1,
                                         .default_max_batch_size = 64,
                                         .strict_readiness = strict};
    if (repository_new(&options, &served->repository, &served->err) != ST_OK ||
        repository_scan(served->repository, &served->err) != ST_OK) {
        fail_msg("%s", served->err.text);
    }
}

static void end(struct served *served) {
    repository_stop(served->repository);
    repository_free(served->repository);
    test_dir_remove(&served->dir);
}

/* Returns: the version found; 0 with served->err filled. */
static uint64_t find(struct served *served, const char *name, const char *version) {
    struct model_version *found = NULL;
    served->err = (struct error){.status = ST_OK};
    if (repository_find(served->repository, str_of(name), str_of(version), &found, &served->err) !=
        ST_OK) {
        return 0;
    }
    uint64_t number = model_version_spec(found)->version;
    model_version_unref(found);
    return number;
}

static void assert_not_found(struct served *served, const char *name, const char *version,
                             enum status status, const char *says) {
    assert_int_equal(find(served, name, version), 0);
    assert_int_equal(served->err.status, status);
    if (!strstr(served->err.text, says)) {
        fail_msg("\"%s\" lacks \"%s\"", served->err.text, says);
    }
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static void repository_find_by_name_and_version(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "");
    add(&served, "r/a/2/model.fake", "");
    add(&served, "r/a/10/model.fake", "");
    add(&served, "r/a/config.pbtxt", "version_policy { specific { versions: [ 2, 10 ] } }");
    add(&served, "r/b/7/model.fake", "");
    add(&served, "r/c/1/other.fake", "");
    add(&served, "r/c/config.pbtxt", "default_model_filename: \"other.fake\"");
    make(&served, true);
    assert_not_found(&served, "a", NULL, ST_NOT_READY, "still being loaded");
    assert_false(repository_is_ready(served.repository));
    assert_int_equal(repository_load(served.repository, &served.err), ST_OK);
    assert_true(repository_is_ready(served.repository));
    assert_int_equal(find(&served, "a", NULL), 10);
    assert_int_equal(find(&served, "a", "2"), 2);
    assert_int_equal(find(&served, "a", "10"), 10);
    assert_int_equal(find(&served, "b", NULL), 7);
    assert_int_equal(find(&served, "c", "1"), 1);
    assert_not_found(&served, "a", "1", ST_UNKNOWN_VERSION, "it serves 2, 10");
    const char *const wrong[] = {"", "02", "+2", "2 ", "-1", "0", "x", "18446744073709551618"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_not_found(&served, "a", wrong[i], ST_UNKNOWN_VERSION, "it serves 2, 10");
    }
    const char *const unknown[] = {"", "A", "a ", "aa", "../a"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_not_found(&served, unknown[i], NULL, ST_UNKNOWN_MODEL,
                         "Request for unknown model: '");
    }
    end(&served);
}

static void repository_find_arbitrary_bytes_is_unknown_model(void **state) {
    static char name[65536];
    struct served served;
    struct model_version *found = NULL;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "");
    make(&served, true);
    memset(name, 'a', sizeof(name));
    assert_int_equal(repository_find(served.repository, str_make(name, sizeof(name)),
                                     str_make(NULL, 0), &found, &served.err),
                     ST_UNKNOWN_MODEL);
    assert_int_equal(repository_find(served.repository, str_make("a\0b", 3), str_make(NULL, 0),
                                     &found, &served.err),
                     ST_UNKNOWN_MODEL);
    assert_int_equal(repository_find(served.repository, str_make(NULL, 0), str_make(NULL, 0),
                                     &found, &served.err),
                     ST_UNKNOWN_MODEL);
    end(&served);
}

static void model_version_siblings_lists_served_versions(void **state) {
    struct served served;
    struct model_version *found = NULL;
    size_t n = 0;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "");
    add(&served, "r/a/3/model.fake", "bad: burnt");
    add(&served, "r/a/5/model.fake", "");
    add(&served, "r/a/config.pbtxt", "version_policy { all { } }");
    make(&served, false);
    assert_int_equal(repository_load(served.repository, &served.err), ST_BAD_MODEL);
    assert_int_equal(
        repository_find(served.repository, STR("a"), str_make(NULL, 0), &found, &served.err),
        ST_OK);
    const uint64_t *siblings = model_version_siblings(found, &n);
    assert_int_equal(n, 2);
    assert_int_equal(siblings[0], 1);
    assert_int_equal(siblings[1], 5);
    model_version_unref(found);
    assert_not_found(&served, "a", "3", ST_NOT_READY,
                     "'a' version 3 is not at ready state: it failed to load: burnt");
    end(&served);
}

static void repository_find_hundred_names(void **state) {
    struct served served;
    char name[64];
    (void)state;
    begin(&served);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "r/m%d/%d/model.fake", i, i + 1);
        add(&served, name, "");
    }
    make(&served, true);
    assert_int_equal(repository_load(served.repository, &served.err), ST_OK);
    for (uint64_t i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "m%d", (int)i);
        assert_int_equal(find(&served, name, NULL), i + 1);
    }
    assert_not_found(&served, "m100", NULL, ST_UNKNOWN_MODEL, "m100");
    end(&served);
}

/* ---- failures -------------------------------------------------------------------------------- */

struct failing {
    const char *files[3]; /* name, config.pbtxt, model text; NULL: absent */
    const char *says;
};

static const struct failing failings[] = {
    {{"r/x/1/model.fake", NULL, "bad: not a model"}, "version 1: not a model"},
    {{"r/x/1/model.fake", "instance_group { count: 3 }", ""}, "instance 2: no third one"},
    {{"r/x/1/model.fake", "backend: \"nonesuch\"", ""}, "no backend nonesuch is installed"},
    {{"r/x/1/model.fake", "platform: \"tensorrt_plan\"", ""}, "installed: none"},
    {{"r/x/1/model.onnx", NULL, ""}, "no file that one of the installed backends (none)"},
    {{"r/x/1/model.onnx", "backend: \"fake\"", ""}, "r/x/1/model.fake: No such file"},
    {{"r/x/1/model.fake", "default_model_filename: \"b.fake\"", ""}, "r/x/1/b.fake: No such file"},
    {{"r/x/1/model.fake", "input { name: \"q\" }", ""}, "no input of that name; it has \"x\""},
    {{"r/x/1/model.fake", "max_batch_size: -1", ""}, "config.pbtxt:1: max_batch_size"},
    {{"r/x/y/model.fake", "", ""}, "r/x has no version"},
    {{"r/x/01/model.fake", "", ""}, "without leading zeros"},
    {{"r/x/5/model.fake", "version_policy { specific { versions: 7 } }", ""},
     "none of the versions that version_policy names, but 5"},
};

static void repository_failed_model_leaves_others_served(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(failings) / sizeof(failings[0]); i++) {
        const struct failing *row = &failings[i / 2];
        bool strict = i % 2 == 0;
        struct served served;
        begin(&served);
        add(&served, "r/good/1/model.fake", "");
        add(&served, row->files[0], row->files[2]);
        if (row->files[1]) {
            add(&served, "r/x/config.pbtxt", row->files[1]);
        }
        make(&served, strict);
        assert_int_equal(repository_load(served.repository, &served.err), ST_BAD_MODEL);
        assert_non_null(strstr(served.err.text, "1 of 2 models"));
        assert_int_equal(find(&served, "good", NULL), 1);
        assert_not_found(&served, "x", NULL, ST_NOT_READY,
                         "'x' has no available versions: it failed to load");
        if (!strstr(served.err.text, row->says)) {
            fail_msg("\"%s\" lacks \"%s\"", served.err.text, row->says);
        }
        assert_int_equal(repository_is_ready(served.repository), !strict);
        end(&served);
    }
}

static void repository_without_models_is_ready(void **state) {
    struct repository_options options = {.model_load_thread_count = 1, .strict_readiness = true};
    struct repository *repository;
    struct error err;
    (void)state;
    assert_int_equal(repository_new(&options, &repository, &err), ST_OK);
    assert_int_equal(repository_scan(repository, &err), ST_OK);
    assert_true(repository_is_ready(repository));
    assert_int_equal(repository_load(repository, &err), ST_OK);
    repository_free(repository);
}

/* ---- printing -------------------------------------------------------------------------------- */

static void repository_print_lists_resolved_models(void **state) {
    struct served served;
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    const char *const lines[] = {
        "good  ready  ",
        "  version    1: ",
        "/r/good/1/model.fake\n",
        "  platform   fake (backend fake)\n",
        "  inputs     x  FP32  [-1,4]\n",
        "  outputs    y  FP32  [-1,4]\n             rows  INT64  [-1]\n",
        "  batching   up to 64 in the first dimension: the first dimension of every input and "
        "output "
        "is dynamic and named \"N\"; 64 is --default-max-batch-size\n",
        "  instances  1 with ",
        "shaped  ready  ",
        "/r/shaped with config.pbtxt\n",
        "  inputs     x  FP32  [-1,2,2], the model sees [-1,4]\n",
        "  outputs    y  FP32  [-1,4], labels in l.txt\n",
        "\n  preferred  batches of 2, 4\n  delay      up to 100 us, to fill batches\n",
        "  queue      at most 7 waiting\n",
        "  instances  2 with ",
        " each, on threads of their own\n",
        "told  ready  ",
        "  sequences  oldest: 9 per instance, closed after 1000000 us without a request\n",
        "  answers    any number to a request (decoupled)\n",
        "\nx  FAILED  ",
        "  error      version 1: burnt\n",
    };
    (void)state;
    begin(&served);
    add(&served, "r/good/1/model.fake", "");
    add(&served, "r/x/1/model.fake", "bad: burnt");
    add(&served, "r/shaped/1/model.fake", "");
    add(&served, "r/shaped/config.pbtxt",
        "max_batch_size: 4 input { name: \"x\" dims: [ 2, 2 ] reshape { shape: 4 } }"
        "output { name: \"y\" label_filename: \"l.txt\" } instance_group { count: 2 }"
        "dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100"
        " default_queue_policy { max_queue_size: 7 } }");
    add(&served, "r/told/1/model.fake", "");
    add(&served, "r/told/config.pbtxt",
        "max_batch_size: 4 model_transaction_policy { decoupled: true }"
        "sequence_batching { oldest { max_candidate_sequences: 9 } }");
    make(&served, true);
    assert_int_equal(repository_load(served.repository, &served.err), ST_BAD_MODEL);
    buf_init(&out, arena, 0);
    repository_print(served.repository, &out);
    buf_add_char(&out, '\0');
    const char *at = out.data;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        const char *found = strstr(at, lines[i]);
        if (!found) {
            fail_msg("line %zu, \"%s\", is not in its place of:\n%s", i, lines[i], out.data);
        }
        at = found + strlen(lines[i]);
    }
    arena_free(arena);
    end(&served);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct finder {
    struct served *served;
    atomic_bool loaded;
    atomic_int n_found;
};

struct listed {
    char text[1024];
};

static void list_one(void *user, const struct repository_entry *entry) {
    struct listed *listed = user;
    size_t n = strlen(listed->text);
    bool served = entry->version && model_version_spec(entry->version)->version == entry->number;
    assert_int_equal(served, entry->phase == REPOSITORY_READY);
    snprintf(listed->text + n, sizeof(listed->text) - n, "%.*s %d %s %s\n", STR_ARG(entry->model),
             (int)entry->number, repository_phase_name(entry->phase), entry->reason);
}

static void count_one(void *user, struct model_version *version) {
    ++*(int *)user;
    assert_non_null(version);
}

/* Returns: the number of ready versions visited; the negative status on refusal. */
static int count_ready(struct served *served, const char *name, const char *version) {
    int n = 0;
    enum status st = repository_visit_ready(served->repository, str_of(name), str_of(version),
                                            count_one, &n, &served->err);
    return st == ST_OK ? n : -(int)st;
}

static void repository_visit_lists_every_version(void **state) {
    struct served served;
    struct listed before = {""}, after = {""};
    struct error err;
    (void)state;
    begin(&served);
    add(&served, "r/b/1/model.fake", "");
    add(&served, "r/b/3/model.fake", "bad: torn");
    add(&served, "r/b/config.pbtxt", "version_policy { all { } }");
    add(&served, "r/a/config.pbtxt", "max_batch_sise: 3");
    make(&served, false);
    repository_visit(served.repository, list_one, &before);
    assert_string_equal(before.text, "a 0 loading \nb 0 loading \n");
    assert_int_equal(repository_load(served.repository, &err), ST_BAD_MODEL);
    repository_visit(served.repository, list_one, &after);
    assert_non_null(strstr(after.text, "a 0 failed "));
    assert_non_null(strstr(after.text, "max_batch_sise"));
    assert_non_null(strstr(after.text, "\nb 1 ready \nb 3 failed "));
    assert_non_null(strstr(after.text, "torn\n"));
    assert_int_equal(count_ready(&served, "", NULL), 1);
    assert_int_equal(count_ready(&served, "b", NULL), 1);
    assert_int_equal(count_ready(&served, "b", "1"), 1);
    assert_int_equal(count_ready(&served, "b", "3"), -ST_NOT_READY);
    assert_int_equal(count_ready(&served, "b", "2"), -ST_UNKNOWN_VERSION);
    assert_int_equal(count_ready(&served, "a", NULL), -ST_NOT_READY);
    assert_int_equal(count_ready(&served, "c", NULL), -ST_UNKNOWN_MODEL);
    end(&served);
}

static void note_loaded(void *user) {
    atomic_store(&((struct finder *)user)->loaded, true);
}

static void *find_all_the_time(void *arg) {
    struct finder *finder = arg;
    struct error err;
    struct model_version *found;
    bool last = false;
    while (!last) {
        last = atomic_load(&finder->loaded);
        if (repository_find(finder->served->repository, STR("m19"), str_make(NULL, 0), &found,
                            &err) == ST_OK) {
            assert_int_equal(model_version_spec(found)->version, 1);
            model_version_unref(found);
            atomic_fetch_add(&finder->n_found, 1);
        } else {
            assert_int_equal(err.status, ST_NOT_READY);
        }
    }
    return NULL;
}

static void repository_find_during_load_is_safe(void **state) {
    struct served served;
    struct finder finder = {.served = &served};
    pthread_t threads[2];
    (void)state;
    begin(&served);
    for (int i = 0; i < 20; i++) {
        char name[64];
        snprintf(name, sizeof(name), "r/m%02d/1/model.fake", i);
        add(&served, name, "");
    }
    make(&served, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, find_all_the_time, &finder), 0);
    }
    assert_int_equal(repository_load_start(served.repository, note_loaded, &finder, &served.err),
                     ST_OK);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(atomic_load(&finder.n_found) >= 2); /* each thread looked up once after the stop */
    assert_true(repository_is_ready(served.repository));
    end(&served);
}

/* ---- front end ------------------------------------------------------------------------------- */

/* Records the model's directory, and refuses versions above 5. */
static enum status look_at_version(void *user, struct model_version *version, struct error *err) {
    atomic_int *n_seen = user;
    atomic_fetch_add(n_seen, 1);
    if (model_version_spec(version)->version > 5) {
        return error_set(err, ST_BAD_CONFIG, "not for a front end");
    }
    struct str kept = arena_dup(model_version_arena(version), model_version_directory(version));
    assert_non_null(kept.ptr);
    model_version_set_user_data(version, MODEL_VERSION_MIP, kept.ptr);
    return ST_OK;
}

/* Fails when the backend receives a front end's parameter. */
static sluice_status open_without_mip(const sluice_model_args *args, sluice_model **model,
                                      sluice_error *error) {
    bool right = args->n_params == 1 && strcmp(args->params[0].name, "threads") == 0;
    return right ? rig_model_open(args, model, error) : SLUICE_INTERNAL;
}

static void repository_on_version_opened_may_refuse_version(void **state) {
    struct served served;
    atomic_int n_seen = 0;
    char path[PATH_MAX];
    (void)state;
    begin(&served);
    served.backend.model_open = open_without_mip;
    add(&served, "r/a/5/model.fake", "");
    add(&served, "r/a/6/model.fake", "");
    add(&served, "r/a/config.pbtxt",
        "version_policy { all { } }\n"
        "parameters { key: \"mip.scale\" value { string_value: \"2\" } }\n"
        "parameters { key: \"threads\" value { string_value: \"3\" } }\n");
    const char *const paths[] = {test_dir_path(&served.dir, "r", path)};
    struct repository_options options = {.model_load_thread_count = 1,
                                         .paths = paths,
                                         .n_paths = 1,
                                         .builtin = served.builtin,
                                         .n_builtin = 1,
                                         .default_max_batch_size = 64,
                                         .on_version_opened = look_at_version,
                                         .on_version_opened_user = &n_seen};
    assert_int_equal(repository_new(&options, &served.repository, &served.err), ST_OK);
    assert_int_equal(repository_scan(served.repository, &served.err), ST_OK);
    assert_int_equal(repository_load(served.repository, &served.err), ST_BAD_MODEL);
    assert_int_equal(atomic_load(&n_seen), 2);
    struct model_version *version;
    assert_int_equal(
        repository_find(served.repository, STR("a"), str_make(NULL, 0), &version, &served.err),
        ST_OK);
    assert_int_equal(model_version_spec(version)->version, 5);
    assert_string_equal(model_version_user_data(version, MODEL_VERSION_MIP),
                        test_dir_path(&served.dir, "r/a", path));
    assert_null(model_version_user_data(version, MODEL_VERSION_LABELS));
    assert_int_equal(model_version_config(version)->n_params, 2);
    model_version_unref(version);
    assert_not_found(&served, "a", "6", ST_NOT_READY, "not for a front end");
    end(&served);
}

/* ---- shutdown -------------------------------------------------------------------------------- */

static void repository_stopped_finds_nothing(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "");
    make(&served, true);
    assert_int_equal(repository_load_start(served.repository, NULL, NULL, &served.err), ST_OK);
    repository_stop(served.repository); /* may run before, during or after loading */
    assert_int_equal(find(&served, "a", NULL), 0);
    assert_int_equal(served.err.status, ST_NOT_READY);
    assert_false(repository_is_ready(served.repository));
    repository_stop(served.repository);
    end(&served);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repository_find_by_name_and_version),
        cmocka_unit_test(repository_find_arbitrary_bytes_is_unknown_model),
        cmocka_unit_test(model_version_siblings_lists_served_versions),
        cmocka_unit_test(repository_find_hundred_names),
        cmocka_unit_test(repository_failed_model_leaves_others_served),
        cmocka_unit_test(repository_without_models_is_ready),
        cmocka_unit_test(repository_print_lists_resolved_models),
        cmocka_unit_test(repository_visit_lists_every_version),
        cmocka_unit_test(repository_find_during_load_is_safe),
        cmocka_unit_test(repository_on_version_opened_may_refuse_version),
        cmocka_unit_test(repository_stopped_finds_nothing),
    };
    log_configure(LOG_ERROR, LOG_TEXT);
    return cmocka_run_group_tests_name("serve/repository/repository", tests, NULL, NULL);
}
