/* `sluice serve --check`: checks settings and models without listening. */
#include "program/model_server/process.h"

#include <stdio.h>

#include "program/model_server/mip.h"
#include "program/model_server/security.h"
#include "program/options/command.h"
#include "program/process/memory_share.h"
#include "serve/frontend/mip/plan.h"

/* Prints whether pictures can be decoded. Without the decoder, the models are still served. */
static enum status print_pictures(const struct serve_settings *settings, struct buf *out,
                                  struct error *err) {
    struct pictures *pictures = NULL;
    enum status st = serve_mip_pictures(settings, 1, NULL, &pictures, err);
    if (st == ST_OK && pictures_missing(pictures)) {
        buf_printf(out, "  %-10s pictures cannot be decoded here: %s\n", "warning",
                   pictures_missing(pictures));
    }
    pictures_free(pictures);
    return st;
}

/* Prints one listener; `text` is as given. */
static enum status print_target(const struct serve_settings *settings,
                                struct repository *repository, const char *text,
                                const struct mip_target *target, struct buf *out,
                                struct error *err) {
    struct model_version *version;
    buf_printf(out, "\nMIP  %s\n", text);
    if (repository_find(repository, target->model, target->version, &version, err) != ST_OK) {
        buf_printf(out, "  %-10s %s\n", "error", err->text);
        return ST_OK; /* the failed model is counted already */
    }
    const struct mip_plan *plan = mip_plan_of(version);
    mip_plan_print(plan, out);
    enum status st = mip_plan_decodes_pictures(plan) ? print_pictures(settings, out, err) : ST_OK;
    model_version_unref(version);
    return st;
}

static enum status print_mip(const struct serve_settings *settings, struct repository *repository,
                             struct arena *arena, struct buf *out, struct error *err) {
    struct mip_target *targets = NULL;
    enum status st = serve_mip_targets(settings, arena, &targets, err);
    if (st == ST_OK) {
        st = serve_mip_resolve(settings, targets, repository, err);
    }
    for (size_t i = 0; st == ST_OK && i < settings->mip.n; i++) {
        st = print_target(settings, repository, settings->mip.items[i], &targets[i], out, err);
    }
    return st;
}

int serve_check(const struct serve_settings *settings, const struct repository_options *options,
                struct arena *arena) {
    struct error err;
    struct repository *repository = NULL;
    struct buf out;
    enum status found = repository_new(options, &repository, &err);
    if (found == ST_OK) {
        found = repository_scan(repository, &err);
    }
    if (found != ST_OK) {
        fprintf(stderr, "sluice serve: %s\n", err.text);
        repository_free(repository);
        return EXIT_CODE_FAILED;
    }
    enum status loaded = repository_load(repository, NULL);
    buf_init(&out, arena, 4096);
    repository_print(repository, &out);
    enum status st = print_mip(settings, repository, arena, &out, &err);
    if (st == ST_OK) {
        struct serve_security guard = {0};
        st = serve_security_open(&guard, settings, &err);
        serve_security_free(&guard);
    }
    buf_add_char(&out, '\n');
    memory_share_add_line(&out, "client memory", &settings->client_memory, &settings->memory_limit);
    memory_share_add_line(&out, "body memory", &settings->body_memory, &settings->memory_limit);
    int code = command_write_out("sluice serve", &out);
    if (st != ST_OK) {
        fprintf(stderr, "sluice serve: %s\n", err.text);
    }
    repository_stop(repository);
    repository_free(repository);
    return loaded == ST_OK && st == ST_OK ? code : EXIT_CODE_FAILED;
}
