/* Models that are added, changed and removed while workers look them up: what is served, what is
 * reported, and that replaced models are closed. */
#include "serve/repository/repository.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "serve/repository/model.h"
#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"

enum { TRIES = 5000 };

/* ---- a directory that does not answer -------------------------------------------------------- */

static atomic_bool stuck_hangs; /* opendir of version 1 of the model "stuck" does not return */
static atomic_bool root_hangs;  /* opendir of the directory of models does not return */
static atomic_int n_hanging;
static atomic_int n_roots_opened; /* how often opendir of it was called */

static void hang(atomic_bool *hangs) {
    atomic_fetch_add(&n_hanging, 1);
    while (atomic_load(hangs)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_fetch_sub(&n_hanging, 1);
}

static bool ends_with(const char *path, const char *end) {
    return strlen(path) >= strlen(end) && strcmp(path + strlen(path) - strlen(end), end) == 0;
}

/* In place of libc's. */
DIR *opendir(const char *path) {
    DIR *(*theirs)(const char *path);
    void *symbol = dlsym(RTLD_NEXT, "opendir");
    memcpy(&theirs, &symbol, sizeof(theirs)); /* ISO C forbids the cast */
    if (ends_with(path, "/stuck/1") && atomic_load(&stuck_hangs)) {
        hang(&stuck_hangs);
    } else if (ends_with(path, "/r")) {
        atomic_fetch_add(&n_roots_opened, 1);
        if (atomic_load(&root_hangs)) {
            hang(&root_hangs);
        }
    }
    return theirs(path);
}

static atomic_int n_open;   /* models open in the backend */
static atomic_int n_opened; /* how many were opened */

/* Opens files that don't begin with "bad" or "busy". */
static sluice_status open_file(const sluice_model_args *args, sluice_model **model,
                               sluice_error *error) {
    char text[64] = "";
    FILE *file = fopen(args->path, "r");
    bool read = file && fgets(text, sizeof(text), file);
    if (file) {
        fclose(file);
    }
    if (!read || strncmp(text, "bad", 3) == 0) {
        snprintf(error->text, sizeof(error->text), "a torn file");
        return SLUICE_INVALID_ARGUMENT;
    }
    if (strncmp(text, "busy", 4) == 0) {
        snprintf(error->text, sizeof(error->text), "no more threads");
        return SLUICE_UNAVAILABLE;
    }
    sluice_status status = rig_backend.model_open(args, model, error);
    atomic_fetch_add(&n_open, status == SLUICE_OK);
    atomic_fetch_add(&n_opened, status == SLUICE_OK);
    return status;
}

static void close_file(sluice_model *model) {
    rig_backend.model_close(model);
    atomic_fetch_sub(&n_open, 1);
}

struct served {
    struct test_dir dir;
    sluice_backend backend;
    const sluice_backend *builtin[1];
    struct repository *repository;
    struct worker *worker;
    struct error err;
    void (*on_state_changed)(void *served);
    uint64_t load_timeout_ns;
};

static void pause_a_little(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void begin(struct served *served) {
    memset(served, 0, sizeof(*served));
    test_dir_make(&served->dir);
    served->backend = rig_backend;
    served->backend.model_open = open_file;
    served->backend.model_close = close_file;
    served->builtin[0] = &served->backend;
    atomic_store(&n_open, 0);
    atomic_store(&n_opened, 0);
    assert_int_equal(worker_new("test", &served->worker, &served->err), ST_OK);
    assert_int_equal(worker_start(served->worker, &served->err), ST_OK);
}

static void make_unscanned(struct served *served, enum repository_control control,
                           const char *load) {
    char path[PATH_MAX];
    const char *const directories[] = {test_dir_path(&served->dir, "r", path)};
    struct repository_options options = {.model_repositories = directories,
                                         .n_model_repositories = 1,
                                         .builtin = served->builtin,
                                         .n_builtin = 1,
                                         .default_max_batch_size = 8,
                                         .strict_readiness = true,
                                         .model_control_mode = control,
                                         .load_models = &load,
                                         .n_load_models = load != NULL,
                                         .repository_poll_ns = 1000000,
                                         .model_load_thread_count = 2,
                                         .model_load_timeout_ns = served->load_timeout_ns,
                                         .on_state_changed = served->on_state_changed,
                                         .on_state_changed_user = served,
                                         .workers = &served->worker,
                                         .n_workers = 1};
    if (repository_new(&options, &served->repository, &served->err) != ST_OK) {
        fail_msg("%s", served->err.text);
    }
}

static void make(struct served *served, enum repository_control control, const char *load) {
    make_unscanned(served, control, load);
    assert_int_equal(repository_scan(served->repository, &served->err), ST_OK);
    assert_int_equal(repository_load_start(served->repository, NULL, NULL, &served->err), ST_OK);
}

static void end(struct served *served) {
    repository_drain(served->repository);
    worker_stop(served->worker);
    worker_join(served->worker);
    repository_stop(served->repository);
    repository_free(served->repository);
    worker_free(served->worker);
    assert_int_equal(atomic_load(&n_open), 0);
    test_dir_remove(&served->dir);
}

/* ---- worker ---------------------------------------------------------------------------------- */

/* A function that a worker runs, and that the test waits for. */
struct task {
    struct worker_msg msg;
    struct served *served;
    void (*run)(struct task *task);
    atomic_bool done;
    const char *name;
    struct model_version *found;
    char text[1024];
};

static void run_task(struct worker_msg *msg) {
    struct task *task = (struct task *)(void *)msg;
    task->run(task);
    atomic_store(&task->done, true);
}

static void on_worker(struct served *served, struct task *task, void (*run)(struct task *task)) {
    task->msg = (struct worker_msg){.run = run_task};
    task->served = served;
    task->run = run;
    atomic_store(&task->done, false);
    worker_post(served->worker, &task->msg);
    while (!atomic_load(&task->done)) {
        pause_a_little();
    }
}

static void list_one(void *user, const struct repository_entry *entry) {
    char *text = user;
    size_t n = strlen(text);
    snprintf(text + n, 1024 - n, "%s%.*s %d %s%s%s%s", n > 0 ? ", " : "", STR_ARG(entry->model),
             (int)entry->number, repository_phase_name(entry->phase), entry->reason[0] ? ": " : "",
             entry->reason, entry->listed ? "" : " (gone)");
}

static void list_entries(struct task *task) {
    task->text[0] = '\0';
    repository_visit(task->served->repository, list_one, task->text);
}

static void hold_version(struct task *task) {
    struct error err;
    task->found = NULL;
    enum status st = repository_find(task->served->repository, str_of(task->name),
                                     str_make(NULL, 0), &task->found, &err);
    assert_int_equal(st, ST_OK);
}

static void release_version(struct task *task) {
    model_version_unref(task->found);
}

static void assert_listed(struct served *served, const char *expected) {
    struct task task;
    for (int i = 0; i < TRIES; i++) {
        on_worker(served, &task, list_entries);
        if (strcmp(task.text, expected) == 0) {
            return;
        }
        pause_a_little();
    }
    assert_string_equal(task.text, expected);
}

/* As long as a poll waits for the files of one model, and longer. */
static void await_listed(struct served *served, const char *expected) {
    struct task task = {.text = ""};
    for (int i = 0; i < 12 * TRIES && strcmp(task.text, expected) != 0; i++) {
        on_worker(served, &task, list_entries);
        pause_a_little();
    }
    assert_string_equal(task.text, expected);
}

static void await_open(int n) {
    for (int i = 0; i < TRIES && atomic_load(&n_open) != n; i++) {
        pause_a_little();
    }
    assert_int_equal(atomic_load(&n_open), n);
}

/* ---- changes --------------------------------------------------------------------------------- */

struct asked {
    struct repository_change change;
    char name[16];
    atomic_bool done;
};

static void note_done(struct repository_change *change) {
    atomic_store(&((struct asked *)(void *)change)->done, true);
}

static void ask_with(struct served *served, struct asked *asked, enum repository_action act,
                     const char *name, struct str config) {
    snprintf(asked->name, sizeof(asked->name), "%s", name);
    asked->change = (struct repository_change){.action = act,
                                               .model = str_of(asked->name),
                                               .config = config,
                                               .worker = served->worker,
                                               .done = note_done};
    atomic_store(&asked->done, false);
    repository_change(served->repository, &asked->change);
}

static void ask(struct served *served, struct asked *asked, enum repository_action act,
                const char *name) {
    ask_with(served, asked, act, name, str_make(NULL, 0));
}

static enum status await_change(struct served *served, struct asked *asked) {
    while (!atomic_load(&asked->done)) {
        pause_a_little();
    }
    served->err = asked->change.error;
    return asked->change.error.status;
}

static enum status change(struct served *served, enum repository_action act, const char *name) {
    struct asked asked;
    ask(served, &asked, act, name);
    return await_change(served, &asked);
}

static void add(struct served *served, const char *name, const char *text) {
    test_dir_add(&served->dir, name, text);
}

static void repository_explicit_mode_loads_and_unloads_models(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "r/b/1/model.fake", "one");
    add(&served, "r/c/2/model.fake", "bad");
    make(&served, REPOSITORY_EXPLICIT, "b");
    assert_listed(&served, "a 0 untouched, b 1 ready, c 0 untouched");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready, b 1 ready, c 0 untouched");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK); /* unchanged files */
    assert_int_equal(atomic_load(&n_open), 2);
    assert_int_equal(change(&served, REPOSITORY_LOAD, "c"), ST_BAD_MODEL);
    assert_non_null(strstr(served.err.text, "version 2: "));
    assert_non_null(strstr(served.err.text, "a torn file"));
    assert_int_equal(change(&served, REPOSITORY_UNLOAD, "a"), ST_OK);
    assert_int_equal(change(&served, REPOSITORY_UNLOAD, "nobody"), ST_OK);
    assert_int_equal(change(&served, REPOSITORY_LOAD, "nobody"), ST_UNKNOWN_MODEL);
    assert_listed(&served, "a 1 unloaded, b 1 ready, c 2 failed: a torn file");
    assert_true(repository_is_ready(served.repository));
    await_open(1);
    end(&served);
}

/* It is not the client's mistake. */
static void repository_load_that_server_cannot_carry_out_is_not_ready(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "busy");
    make(&served, REPOSITORY_EXPLICIT, NULL);
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_NOT_READY);
    assert_string_equal(served.err.text, "load failed for model 'a': version 1: no more threads");
    add(&served, "r/a/1/model.fake", "one");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    end(&served);
}

static void repository_load_invalid_name_is_refused(void **state) {
    static const char *const names[] = {"", ".", "..", "../r/a", "a/..", "/etc", "a/1", "a\n"};
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    make(&served, REPOSITORY_EXPLICIT, NULL);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(change(&served, REPOSITORY_LOAD, names[i]), ST_BAD_REQUEST);
        assert_int_equal(change(&served, REPOSITORY_UNLOAD, names[i]), ST_BAD_REQUEST);
    }
    struct asked asked;
    ask(&served, &asked, REPOSITORY_LOAD, "a");
    await_change(&served, &asked);
    assert_listed(&served, "a 1 ready");
    end(&served);
}

static void repository_failed_reload_keeps_served_versions(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "r/a/3/model.fake", "three");
    add(&served, "r/a/config.pbtxt", "version_policy { all { } }");
    make(&served, REPOSITORY_EXPLICIT, "a");
    assert_listed(&served, "a 1 ready, a 3 ready");
    add(&served, "r/a/3/model.fake", "bad and larger");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_BAD_MODEL);
    assert_listed(&served, "a 1 ready: version 3: a torn file, "
                           "a 3 ready: version 3: a torn file");
    assert_int_equal(atomic_load(&n_open), 2);
    add(&served, "r/a/3/model.fake", "mended");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready, a 3 ready");
    await_open(2);
    end(&served);
}

/* ---- versions that stay ---------------------------------------------------------------------- */

static void find_first(struct task *task) {
    struct error err;
    enum status st =
        repository_find(task->served->repository, str_of(task->name), STR("1"), &task->found, &err);
    assert_int_equal(st, ST_OK);
    size_t n;
    const uint64_t *siblings = model_version_siblings(task->found, &n);
    snprintf(task->text, sizeof(task->text), "%zu up to %d", n, (int)siblings[n - 1]);
    model_version_unref(task->found);
}

/* Version 1 of "a" is `version`, and has these siblings. */
static void assert_first_is(struct served *served, const struct model_version *version,
                            const char *siblings) {
    struct task task = {.name = "a"};
    on_worker(served, &task, find_first);
    assert_ptr_equal(task.found, version);
    assert_string_equal(task.text, siblings);
}

static void remove_version(struct served *served, const char *name) {
    char path[PATH_MAX];
    test_dir_remove_all(test_dir_path(&served->dir, name, path));
}

static void repository_load_leaves_unchanged_versions_open(void **state) {
    struct served served;
    struct task task = {.name = "a"};
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "r/a/config.pbtxt", "version_policy { all { } }");
    make(&served, REPOSITORY_EXPLICIT, "a");
    assert_listed(&served, "a 1 ready");
    on_worker(&served, &task, hold_version); /* a request is running all the time */
    const struct model_version *first = task.found;
    add(&served, "r/a/2/model.fake", "two");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready, a 2 ready");
    assert_first_is(&served, first, "2 up to 2");
    assert_int_equal(atomic_load(&n_opened), 2);
    add(&served, "r/a/2/model.fake", "changed");
    add(&served, "r/a/3/model.fake", "three");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready, a 2 ready, a 3 ready");
    assert_first_is(&served, first, "3 up to 3");
    assert_int_equal(atomic_load(&n_opened), 4);
    await_open(3); /* the old version 2 is closed, though version 1 is in use */
    add(&served, "r/a/3/model.fake", "bad and larger");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_BAD_MODEL);
    assert_first_is(&served, first, "3 up to 3");
    remove_version(&served, "r/a/3");
    remove_version(&served, "r/a/2");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready");
    assert_first_is(&served, first, "1 up to 1");
    assert_int_equal(atomic_load(&n_opened), 4);
    await_open(1);
    on_worker(&served, &task, release_version);
    assert_int_equal(change(&served, REPOSITORY_UNLOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 unloaded");
    await_open(0);
    end(&served);
}

static enum status change_version(struct served *served, enum repository_action act,
                                  uint64_t version) {
    struct asked asked = {.change = {.action = act,
                                     .model = STR("a"),
                                     .version = version,
                                     .worker = served->worker,
                                     .done = note_done}};
    repository_change(served->repository, &asked.change);
    return await_change(served, &asked);
}

static void repository_single_versions_are_loaded_and_unloaded(void **state) {
    struct served served;
    struct task task = {.name = "a"};
    (void)state;
    begin(&served);
    for (char name[] = "r/a/1/model.fake"; name[4] <= '3'; name[4]++) {
        add(&served, name, "file");
    }
    make(&served, REPOSITORY_EXPLICIT, NULL); /* the policy is the latest one */
    assert_int_equal(change_version(&served, REPOSITORY_LOAD, 9), ST_UNKNOWN_VERSION);
    assert_int_equal(change_version(&served, REPOSITORY_UNLOAD, 1), ST_OK);
    assert_listed(&served, "a 0 untouched");
    assert_int_equal(change_version(&served, REPOSITORY_LOAD, 1), ST_OK);
    assert_listed(&served, "a 1 ready");
    on_worker(&served, &task, hold_version);
    assert_int_equal(change_version(&served, REPOSITORY_LOAD, 2), ST_OK);
    assert_int_equal(change_version(&served, REPOSITORY_LOAD, 3), ST_OK);
    assert_int_equal(change_version(&served, REPOSITORY_LOAD, 3), ST_OK);
    assert_int_equal(change_version(&served, REPOSITORY_LOAD, 9), ST_UNKNOWN_VERSION);
    assert_listed(&served, "a 1 ready, a 2 ready, a 3 ready");
    assert_first_is(&served, task.found, "3 up to 3");
    assert_int_equal(atomic_load(&n_opened), 3);
    assert_int_equal(change_version(&served, REPOSITORY_UNLOAD, 2), ST_OK);
    assert_int_equal(change_version(&served, REPOSITORY_UNLOAD, 2), ST_OK);
    assert_listed(&served, "a 1 ready, a 3 ready");
    assert_first_is(&served, task.found, "2 up to 3");
    await_open(2);
    assert_int_equal(change_version(&served, REPOSITORY_UNLOAD, 1), ST_OK);
    assert_listed(&served, "a 3 ready, a 1 unloading"); /* it has a request */
    on_worker(&served, &task, release_version);
    assert_listed(&served, "a 3 ready");
    assert_int_equal(change_version(&served, REPOSITORY_LOAD, 1), ST_OK);
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK); /* back to the policy */
    assert_listed(&served, "a 3 ready");
    assert_int_equal(atomic_load(&n_opened), 4);
    assert_int_equal(change_version(&served, REPOSITORY_UNLOAD, 3), ST_OK);
    assert_listed(&served, "a 3 unloaded");
    await_open(0);
    end(&served);
}

static void repository_load_opens_all_versions_after_change_of_common_file(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "r/a/2/model.fake", "two");
    add(&served, "r/a/config.pbtxt", "version_policy { all { } }");
    make(&served, REPOSITORY_EXPLICIT, "a");
    assert_listed(&served, "a 1 ready, a 2 ready");
    add(&served, "r/a/config.pbtxt", "version_policy { all { } } max_batch_size: 2");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_int_equal(atomic_load(&n_opened), 4);
    add(&served, "r/a/labels.txt", "a");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_int_equal(atomic_load(&n_opened), 6);
    await_open(2);
    end(&served);
}

static void repository_latest_version_replaces_when_it_is_ready(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    make(&served, REPOSITORY_POLLED, NULL);
    assert_listed(&served, "a 1 ready");
    add(&served, "r/a/2/model.fake", "bad");
    await_listed(&served, "a 1 ready: version 2: a torn file");
    add(&served, "r/a/2/model.fake", "mended");
    await_listed(&served, "a 2 ready");
    await_open(1);
    end(&served);
}

static void repository_poll_leaves_unchanged_versions_open(void **state) {
    struct served served;
    struct task task = {.name = "a"};
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "r/a/config.pbtxt", "version_policy { all { } }");
    make(&served, REPOSITORY_POLLED, NULL);
    assert_listed(&served, "a 1 ready");
    on_worker(&served, &task, find_first);
    char from[PATH_MAX], to[PATH_MAX];
    test_dir_add(&served.dir, "new/model.fake", "two");
    rename(test_dir_path(&served.dir, "new", from), test_dir_path(&served.dir, "r/a/2", to));
    await_listed(&served, "a 1 ready, a 2 ready");
    assert_first_is(&served, task.found, "2 up to 2");
    assert_int_equal(atomic_load(&n_opened), 2);
    end(&served);
}

static void repository_unload_waits_for_referenced_version(void **state) {
    struct served served;
    struct task task = {.name = "a"};
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    make(&served, REPOSITORY_EXPLICIT, "a");
    assert_listed(&served, "a 1 ready");
    on_worker(&served, &task, hold_version);
    assert_non_null(task.found);
    add(&served, "r/a/1/model.fake", "another");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready, a 1 unloading");
    assert_int_equal(change(&served, REPOSITORY_UNLOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 unloading");
    assert_int_equal(model_version_spec(task.found)->version, 1);
    on_worker(&served, &task, release_version);
    assert_listed(&served, "a 1 unloaded");
    await_open(0);
    end(&served);
}

static void repository_load_with_config_and_files_overrides_directory(void **state) {
    struct served served;
    struct asked asked;
    struct repository_file files[] = {{STR("7/model.fake"), STR("given")}};
    struct repository_file bad[] = {{STR("../7/model.fake"), STR("x")}};
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    make(&served, REPOSITORY_EXPLICIT, "a");
    assert_listed(&served, "a 1 ready");
    for (int i = 0; i < 3; i++) { /* a bad name, no configuration, a valid load */
        asked.change = (struct repository_change){.action = REPOSITORY_LOAD,
                                                  .model = STR("a"),
                                                  .config = i == 1 ? (struct str){NULL, 0}
                                                                   : STR("{\"max_batch_size\": 0}"),
                                                  .files = i == 0 ? bad : files,
                                                  .n_files = 1,
                                                  .worker = served.worker,
                                                  .done = note_done};
        atomic_store(&asked.done, false);
        repository_change(served.repository, &asked.change);
        assert_int_equal(await_change(&served, &asked), i < 2 ? ST_BAD_FIELD : ST_OK);
    }
    assert_listed(&served, "a 7 ready");
    /* back to the files of the directory */
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready");
    end(&served);
}

enum { BLOCKS = 16 };

static atomic_bool load_has_failed;
static struct asked unloaded_late;
static struct arena *blocks[BLOCKS];
static struct model *fresh[BLOCKS]; /* in memory of the size that a failed model had */

/* The load has failed, and its thread has not ended it yet. */
static void unload_after_failure(void *user) {
    if (atomic_exchange(&load_has_failed, true)) {
        return;
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = arena_new(NULL, 0);
        fresh[i] = arena_calloc(blocks[i], 1, sizeof(*fresh[i]));
        assert_non_null(fresh[i]);
    }
    ask(user, &unloaded_late, REPOSITORY_UNLOAD, "new");
}

static void repository_unload_does_not_use_model_that_failed_to_load(void **state) {
    struct served served;
    struct asked asked;
    struct repository_file files[] = {{STR("1/model.fake"), STR("bad")}};
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    served.on_state_changed = unload_after_failure;
    make(&served, REPOSITORY_EXPLICIT, NULL);
    atomic_store(&load_has_failed, false);
    asked.change = (struct repository_change){.action = REPOSITORY_LOAD,
                                              .model = STR("new"), /* of no directory */
                                              .config = STR("{}"),
                                              .files = files,
                                              .n_files = 1,
                                              .worker = served.worker,
                                              .done = note_done};
    atomic_store(&asked.done, false);
    repository_change(served.repository, &asked.change);
    assert_int_equal(await_change(&served, &asked), ST_NOT_READY);
    assert_non_null(strstr(served.err.text, "cancelled"));
    assert_int_equal(await_change(&served, &unloaded_late), ST_OK);
    for (size_t i = 0; i < BLOCKS; i++) {
        assert_false(fresh[i]->abandoned);
        arena_free(blocks[i]);
    }
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_OK);
    assert_listed(&served, "a 1 ready");
    end(&served);
}

static void repository_poll_mode_follows_file_changes(void **state) {
    struct served served;
    char path[PATH_MAX];
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    make(&served, REPOSITORY_POLLED, NULL);
    assert_listed(&served, "a 1 ready");
    add(&served, "r/a/2/model.fake", "two");
    assert_listed(&served, "a 2 ready");
    add(&served, "r/b/1/model.fake", "bad");
    assert_listed(&served, "a 2 ready, b 1 failed: a torn file");
    assert_true(repository_is_ready(served.repository));
    add(&served, "r/b/1/model.fake", "whole now");
    assert_listed(&served, "a 2 ready, b 1 ready");
    add(&served, "r/a/2/model.fake", "bad now");
    assert_listed(&served, "a 2 ready: version 2: a torn file, b 1 ready");
    test_dir_remove_all(test_dir_path(&served.dir, "r/a/2", path));
    assert_listed(&served, "a 1 ready, b 1 ready");
    test_dir_remove_all(test_dir_path(&served.dir, "r/a", path));
    assert_listed(&served, "a 1 unloaded (gone), b 1 ready");
    char away[PATH_MAX]; /* the last one stays */
    assert_int_equal(
        rename(test_dir_path(&served.dir, "r/b", path), test_dir_path(&served.dir, "b", away)), 0);
    while (repository_count_unavailable(served.repository) == 0) {
        pause_a_little();
    }
    /* A poll that read the directory's name before has noted why its files could not be read. */
    struct task task;
    const char *kept = "a 1 unloaded (gone), b 1 ready";
    on_worker(&served, &task, list_entries);
    task.text[strlen(task.text) < strlen(kept) ? 0 : strlen(kept)] = '\0';
    assert_string_equal(task.text, kept);
    add(&served, "r/b/1/model.fake", "whole now");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "b"), ST_NOT_READY);
    add(&served, "r/a/9/model.fake", "back");
    assert_listed(&served, "a 9 ready, b 1 ready");
    await_open(2);
    end(&served);
}

/* ---- concurrency ----------------------------------------------------------------------------- */

enum { RELOADS = 200, MODELS = 3 };

/* Looks up every model in each loop iteration, and holds its reference until the next. */
struct looker {
    struct worker_msg msg;
    struct served *served;
    struct model_version *held[MODELS];
    int n_found;
    atomic_bool end;
    atomic_bool ended;
};

static void look_again(struct worker_msg *msg) {
    struct looker *looker = (struct looker *)(void *)msg;
    bool ending = atomic_load(&looker->end);
    for (int i = 0; i < MODELS; i++) {
        char name[8];
        struct error err;
        if (looker->held[i]) {
            assert_int_equal(model_version_spec(looker->held[i])->version, 1);
            model_version_unref(looker->held[i]);
            looker->held[i] = NULL;
        }
        snprintf(name, sizeof(name), "m%d", i);
        if (!ending) {
            assert_int_equal(repository_find(looker->served->repository, str_of(name),
                                             str_make(NULL, 0), &looker->held[i], &err),
                             ST_OK);
            looker->n_found++;
        }
    }
    if (ending) {
        atomic_store(&looker->ended, true);
    } else {
        worker_post(looker->served->worker, &looker->msg);
    }
}

/* The same on a thread that is no worker. */
static void *look_up_locked(void *user) {
    struct looker *looker = user;
    while (!atomic_load(&looker->end)) {
        struct model_version *found;
        struct error err;
        assert_int_equal(repository_find_locked(looker->served->repository, STR("m0"),
                                                str_make(NULL, 0), &found, &err),
                         ST_OK);
        assert_int_equal(model_version_spec(found)->version, 1);
        model_version_unref(found);
    }
    return NULL;
}

static void repository_poll_goes_on_while_one_model_hangs(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "r/stuck/1/model.fake", "one");
    make(&served, REPOSITORY_POLLED, NULL);
    assert_listed(&served, "a 1 ready, stuck 1 ready");
    atomic_store(&stuck_hangs, true);
    while (atomic_load(&n_hanging) == 0) {
        pause_a_little();
    }
    add(&served, "r/a/2/model.fake", "two");
    add(&served, "r/stuck/2/model.fake", "two");
    await_listed(&served, "a 2 ready, stuck 1 ready");
    add(&served, "r/a/3/model.fake", "three");
    assert_listed(&served, "a 3 ready, stuck 1 ready");
    assert_int_equal(atomic_load(&n_hanging), 1);
    atomic_store(&stuck_hangs, false);
    assert_listed(&served, "a 3 ready, stuck 2 ready");
    add(&served, "r/stuck/3/model.fake", "three");
    assert_listed(&served, "a 3 ready, stuck 3 ready");
    end(&served);
}

static void repository_start_reads_files_on_loading_threads(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "r/stuck/1/model.fake", "one");
    atomic_store(&stuck_hangs, true);
    make(&served, REPOSITORY_POLLED, NULL);
    while (atomic_load(&n_hanging) == 0) {
        pause_a_little();
    }
    assert_listed(&served, "a 1 ready, stuck 0 loading");
    atomic_store(&stuck_hangs, false);
    assert_listed(&served, "a 1 ready, stuck 1 ready");
    end(&served);
}

/* Registers DIR/`directory` under the name, or unregisters the name (NULL). */
static void ask_registered(struct served *served, struct asked *asked, const char *name,
                           const char *directory) {
    static char path[PATH_MAX]; /* until the next one: it is copied when it is asked for */
    snprintf(asked->name, sizeof(asked->name), "%s", name);
    asked->change = (struct repository_change){
        .action = directory ? REPOSITORY_LOAD : REPOSITORY_UNLOAD,
        .model = str_of(asked->name),
        .directory = directory ? test_dir_path(&served->dir, directory, path) : NULL,
        .unregister = !directory,
        .worker = served->worker,
        .done = note_done};
    atomic_store(&asked->done, false);
    repository_change(served->repository, &asked->change);
}

static enum status change_registered(struct served *served, const char *name,
                                     const char *directory) {
    struct asked asked;
    ask_registered(served, &asked, name, directory);
    return await_change(served, &asked);
}

static void repository_registered_directories_are_models_until_unloaded(void **state) {
    struct served served;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "x/1/model.fake", "one");
    add(&served, "bad/1/model.fake", "bad");
    make(&served, REPOSITORY_EXPLICIT, NULL);
    assert_int_equal(change_registered(&served, "n", "x"), ST_OK);
    assert_int_equal(change_registered(&served, "n", "x"), ST_MODEL_EXISTS);
    assert_int_equal(change_registered(&served, "a", "x"), ST_MODEL_EXISTS); /* the repository's */
    assert_int_equal(change_registered(&served, "o", "x"), ST_OK);
    assert_int_equal(change_registered(&served, "p", "bad"), ST_BAD_MODEL);
    assert_int_equal(change_registered(&served, "p", "absent"), ST_BAD_CONFIG);
    assert_int_equal(change(&served, REPOSITORY_SCAN, ""), ST_OK);
    assert_listed(&served, "a 0 untouched, n 1 ready, o 1 ready, p 0 untouched (gone)");
    assert_int_equal(change(&served, REPOSITORY_LOAD, "n"), ST_OK); /* it is known by its name */
    assert_int_equal(change_registered(&served, "n", NULL), ST_OK);
    assert_int_equal(change_registered(&served, "n", NULL), ST_UNKNOWN_MODEL);
    assert_int_equal(change_registered(&served, "a", NULL), ST_UNKNOWN_MODEL);
    assert_int_equal(change(&served, REPOSITORY_LOAD, "n"), ST_UNKNOWN_MODEL);
    assert_listed(&served, "a 0 untouched, n 0 untouched (gone), o 1 ready, p 0 untouched (gone)");
    assert_int_equal(change_registered(&served, "p", "x"), ST_OK);
    await_open(2);
    end(&served);
}

/* The load of a directory that does not answer is cancelled, and its result discarded. */
static void repository_registered_directory_that_hangs_is_unregistered(void **state) {
    struct served served;
    struct asked load;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    add(&served, "x/stuck/1/model.fake", "one");
    add(&served, "y/1/model.fake", "one");
    make(&served, REPOSITORY_EXPLICIT, NULL);
    atomic_store(&stuck_hangs, true);
    ask_registered(&served, &load, "n", "x/stuck");
    while (atomic_load(&n_hanging) == 0) {
        pause_a_little();
    }
    assert_int_equal(change_registered(&served, "n", NULL), ST_OK);
    assert_int_equal(await_change(&served, &load), ST_NOT_READY);
    assert_int_equal(change_registered(&served, "n", "y"), ST_OK);
    atomic_store(&stuck_hangs, false);
    while (repository_is_busy(served.repository)) {
        pause_a_little();
    }
    assert_listed(&served, "a 0 untouched, n 1 ready");
    await_open(1);
    end(&served);
}

static void set_loaded(void *user) {
    atomic_store((atomic_bool *)user, true);
}

static void await_hanging(int n) {
    for (int i = 0; i < TRIES && atomic_load(&n_hanging) != n; i++) {
        pause_a_little();
    }
    assert_int_equal(atomic_load(&n_hanging), n);
}

static void repository_start_scans_on_loading_thread(void **state) {
    struct served served;
    struct asked load;
    atomic_bool loaded = false;
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    make_unscanned(&served, REPOSITORY_EXPLICIT, NULL);
    atomic_store(&root_hangs, true);
    assert_int_equal(repository_load_start(served.repository, set_loaded, &loaded, &served.err),
                     ST_OK);
    await_hanging(1);
    assert_false(repository_is_ready(served.repository));
    assert_listed(&served, "");
    assert_int_equal(change(&served, REPOSITORY_SCAN, ""), ST_OK);
    assert_int_equal(change(&served, REPOSITORY_UNLOAD, "a"), ST_NOT_READY);
    ask(&served, &load, REPOSITORY_LOAD, "a");
    assert_listed(&served, "");
    assert_false(atomic_load(&loaded));
    atomic_store(&root_hangs, false);
    assert_int_equal(await_change(&served, &load), ST_OK);
    assert_listed(&served, "a 1 ready");
    assert_true(repository_is_ready(served.repository));
    end(&served);
}

/* Those that come while one runs share the next. */
static void repository_scans_of_a_crowd_are_two(void **state) {
    enum { CROWD = 100 };
    static struct asked first, asked[CROWD];
    struct served served;
    (void)state;
    begin(&served);
    clock_set_fake_ns(clock_now_ns()); /* the scan that hangs is never given up */
    add(&served, "r/a/1/model.fake", "one");
    make(&served, REPOSITORY_EXPLICIT, "a");
    assert_listed(&served, "a 1 ready");
    atomic_store(&root_hangs, true);
    int before = atomic_load(&n_roots_opened);
    ask(&served, &first, REPOSITORY_SCAN, "");
    await_hanging(1);
    add(&served, "r/b/1/model.fake", "one");
    for (int i = 0; i < CROWD; i++) {
        ask(&served, &asked[i], REPOSITORY_SCAN, "");
    }
    atomic_store(&root_hangs, false);
    assert_int_equal(await_change(&served, &first), ST_OK);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(await_change(&served, &asked[i]), ST_OK);
    }
    await_hanging(0);
    assert_true(atomic_load(&n_roots_opened) - before <= 2);
    assert_int_equal(change(&served, REPOSITORY_SCAN, ""), ST_OK);
    assert_listed(&served, "a 1 ready, b 0 untouched");
    end(&served);
    clock_set_fake_ns(0);
}

static void repository_start_scan_past_time_limit_fails(void **state) {
    struct served served = {.err = {.status = ST_OK}};
    struct error err;
    atomic_bool loaded = false;
    (void)state;
    begin(&served);
    served.load_timeout_ns = 1000000;
    add(&served, "r/a/1/model.fake", "one");
    make_unscanned(&served, REPOSITORY_FIXED, NULL);
    atomic_store(&root_hangs, true);
    assert_int_equal(repository_load_start(served.repository, set_loaded, &loaded, &served.err),
                     ST_OK);
    while (!atomic_load(&loaded)) {
        pause_a_little();
    }
    assert_true(repository_start_failed(served.repository, &err));
    assert_non_null(strstr(err.text, "--model-load-timeout"));
    assert_false(repository_is_ready(served.repository));
    atomic_store(&root_hangs, false);
    await_hanging(0);
    assert_listed(&served, "");
    assert_false(repository_is_ready(served.repository));
    end(&served);
}

static void repository_find_succeeds_during_reloads(void **state) {
    struct served served;
    struct asked asked[MODELS];
    (void)state;
    begin(&served);
    for (int i = 0; i < MODELS; i++) {
        char name[64];
        snprintf(name, sizeof(name), "r/m%d/1/model.fake", i);
        add(&served, name, "first");
    }
    make(&served, REPOSITORY_EXPLICIT, "*");
    assert_listed(&served, "m0 1 ready, m1 1 ready, m2 1 ready");
    struct looker looker = {.msg = {.run = look_again}, .served = &served};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look_up_locked, &looker), 0);
    worker_post(served.worker, &looker.msg);
    for (int n = 0; n < RELOADS; n++) {
        for (int i = 0; i < MODELS; i++) {
            char name[8];
            snprintf(name, sizeof(name), "m%d", i);
            ask_with(&served, &asked[i], REPOSITORY_LOAD, name, STR("{}"));
        }
        for (int i = 0; i < MODELS; i++) {
            assert_int_equal(await_change(&served, &asked[i]), ST_OK);
        }
    }
    atomic_store(&looker.end, true);
    while (!atomic_load(&looker.ended)) {
        pause_a_little();
    }
    pthread_join(thread, NULL);
    assert_true(looker.n_found > 0);
    await_open(MODELS);
    end(&served);
}

/* A drain refuses queued changes and finishes running ones. */
static void repository_drain_rejects_queued_changes(void **state) {
    enum { ASKED = 40 };
    struct served served;
    struct asked asked[ASKED];
    (void)state;
    begin(&served);
    add(&served, "r/a/1/model.fake", "one");
    make(&served, REPOSITORY_EXPLICIT, NULL);
    for (int i = 0; i < ASKED; i++) {
        ask(&served, &asked[i], i % 2 == 0 ? REPOSITORY_LOAD : REPOSITORY_UNLOAD, "a");
    }
    repository_drain(served.repository);
    for (int i = 0; i < ASKED; i++) {
        enum status st = await_change(&served, &asked[i]);
        assert_true(st == ST_OK || st == ST_NOT_READY);
    }
    assert_int_equal(change(&served, REPOSITORY_LOAD, "a"), ST_NOT_READY);
    while (repository_is_busy(served.repository)) {
        pause_a_little();
    }
    end(&served);
}

int main(void) {
    log_configure(LOG_ERROR, LOG_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repository_explicit_mode_loads_and_unloads_models),
        cmocka_unit_test(repository_load_that_server_cannot_carry_out_is_not_ready),
        cmocka_unit_test(repository_load_invalid_name_is_refused),
        cmocka_unit_test(repository_failed_reload_keeps_served_versions),
        cmocka_unit_test(repository_load_leaves_unchanged_versions_open),
        cmocka_unit_test(repository_single_versions_are_loaded_and_unloaded),
        cmocka_unit_test(repository_load_opens_all_versions_after_change_of_common_file),
        cmocka_unit_test(repository_latest_version_replaces_when_it_is_ready),
        cmocka_unit_test(repository_poll_leaves_unchanged_versions_open),
        cmocka_unit_test(repository_unload_waits_for_referenced_version),
        cmocka_unit_test(repository_load_with_config_and_files_overrides_directory),
        cmocka_unit_test(repository_unload_does_not_use_model_that_failed_to_load),
        cmocka_unit_test(repository_poll_mode_follows_file_changes),
        cmocka_unit_test(repository_poll_goes_on_while_one_model_hangs),
        cmocka_unit_test(repository_registered_directories_are_models_until_unloaded),
        cmocka_unit_test(repository_registered_directory_that_hangs_is_unregistered),
        cmocka_unit_test(repository_start_reads_files_on_loading_threads),
        cmocka_unit_test(repository_start_scans_on_loading_thread),
        cmocka_unit_test(repository_scans_of_a_crowd_are_two),
        cmocka_unit_test(repository_start_scan_past_time_limit_fails),
        cmocka_unit_test(repository_find_succeeds_during_reloads),
        cmocka_unit_test(repository_drain_rejects_queued_changes),
    };
    return cmocka_run_group_tests_name("serve/repository/change", tests, NULL, NULL);
}
