/* For tests of requests that models and the server make: models of the rig's backend in a
 * repository, run by an instance. Include cmocka.h before. */
#ifndef SLUICE_SERVE_INFERENCE_MODELS_FIXTURE_H
#define SLUICE_SERVE_INFERENCE_MODELS_FIXTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "serve/repository/repository.h"
#include "serve/repository/test_dir.h"
#include "serve/repository/test_rig.h"

/* Adds the model's files. `config`: what its config.pbtxt has besides. */
static inline void models_fixture_add(struct test_dir *dir, const char *name, const char *config) {
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "r/%s/1/model.fake", name);
    test_dir_add(dir, path, "x");
    (void)snprintf(path, sizeof(path), "r/%s/config.pbtxt", name);
    (void)snprintf(
        text, sizeof(text),
        "backend: \"fake\" max_batch_size: 8 parameters: { key: \"sluice.run_on\" value: "
        "{ string_value: \"instance\" } } %s",
        config);
    test_dir_add(dir, path, text);
}

/* A repository of these models. `builtin`: one backend; `calls`: NULL: models call no others. All
 * must outlive it. */
static inline struct repository *models_fixture_open(const struct test_dir *dir,
                                                     const sluice_backend *const *builtin,
                                                     struct worker **worker,
                                                     const sluice_calls *calls) {
    struct repository *repository = NULL;
    struct error err;
    char path[PATH_MAX];
    const char *const directories[] = {test_dir_path(dir, "r", path)};
    const char *all = "*";
    struct repository_options options = {.model_repositories = directories,
                                         .n_model_repositories = 1,
                                         .builtin = builtin,
                                         .n_builtin = 1,
                                         .default_max_batch_size = 8,
                                         .model_control_mode = REPOSITORY_EXPLICIT,
                                         .load_models = &all,
                                         .n_load_models = 1,
                                         .model_load_thread_count = 1,
                                         .workers = worker,
                                         .n_workers = 1,
                                         .calls = calls};
    if (repository_new(&options, &repository, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    return repository;
}

static inline void models_fixture_note_loaded(void *user) {
    atomic_store((atomic_bool *)user, true);
}

static inline void models_fixture_load(struct repository *repository) {
    struct error err;
    atomic_bool loaded = false;
    assert_int_equal(repository_scan(repository, &err), ST_OK);
    assert_int_equal(repository_load_start(repository, models_fixture_note_loaded, &loaded, &err),
                     ST_OK);
    while (!atomic_load(&loaded)) {
        rig_pause();
    }
}

#endif
