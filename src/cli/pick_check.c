/* Checking a pool's configuration, and explaining one pick of it. */
#include "cli/pick_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/pick_tls.h"
#include "discover/pool_print.h"
#include "pick/explain.h"

/* Returns: `code`, or that it could not be written. */
static int write_out(const struct buf *out, int code) {
    if (!out->failed && fwrite(out->data, 1, out->len, stdout) == out->len && fflush(stdout) == 0) {
        return code;
    }
    fprintf(stderr, "sluice pick: writing the result: %s\n", strerror(errno));
    return EXIT_CODE_FAILED;
}

static int failed(const struct error *err) {
    fprintf(stderr, "sluice pick: %s\n", err->text);
    return EXIT_CODE_FAILED;
}

int pick_check(const struct pick_settings *settings, struct arena *arena) {
    struct pool_watch_options options = pick_pool_options(settings);
    struct pool_spec *spec = NULL;
    struct tls_server *tls = NULL;
    struct error err;
    struct buf out;
    if (pool_watch_read(&options, &spec, &err) != ST_OK) {
        return failed(&err);
    }
    buf_init(&out, arena, 4096);
    pool_print(spec, &out);
    pool_spec_free(spec);
    int code = write_out(&out, EXIT_CODE_OK);
    if (pick_tls_open(settings, &tls, &err) != ST_OK) {
        code = failed(&err);
    }
    tls_server_free(tls);
    return code;
}

/* Nobody asks the endpoints here: all of them count as ready. */
static void make_ready(struct pool *pool, struct pool_reader *reader, struct buf *out) {
    const struct pool_snapshot *snapshot = pool_look(reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        pool_set_ready(pool, snapshot->members[i].endpoint, true);
    }
    if (snapshot->spec->health.kind != POOL_HEALTH_NONE) {
        buf_printf(out, "note        health is not checked here: every endpoint counts as ready\n");
    }
}

static enum status explain(const struct pick_settings *settings, struct pool *pool, struct buf *out,
                           struct error *err) {
    struct pick_question question = {.method = str_of(settings->method),
                                     .path = str_of(settings->path),
                                     .model = str_of(settings->model),
                                     .objective = str_of(settings->objective),
                                     .subset = str_of(settings->subset),
                                     .selection = str_of(settings->selection)};
    struct pool_watch_options options = pick_pool_options(settings);
    struct pool_watch *watch = NULL;
    struct pool_reader *reader = NULL;
    enum status st = pool_watch_new(&options, pool, &watch, err);
    pool_watch_free(watch);
    if (st == ST_OK) {
        st = pool_reader_new(pool, 0, &reader, err);
    }
    if (st == ST_OK) {
        make_ready(pool, reader, out);
        st = pick_explain(reader, &question, out, err);
    }
    pool_reader_free(reader);
    return st;
}

int pick_explain_one(const struct pick_settings *settings, struct arena *arena) {
    struct pool *pool = NULL;
    struct error err;
    struct buf out;
    buf_init(&out, arena, 4096);
    enum status st = pool_new(&pool, &err);
    if (st == ST_OK) {
        st = explain(settings, pool, &out, &err);
    }
    pool_free(pool);
    if (st != ST_OK && out.len == 0) {
        return failed(&err);
    }
    return write_out(&out, st == ST_OK ? EXIT_CODE_OK : EXIT_CODE_FAILED);
}
