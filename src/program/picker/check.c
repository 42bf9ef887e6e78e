/* Checks the configuration of the pools, and explains a pick for a described request. */
#include "program/picker/process.h"

#include <stdio.h>

#include "pick/config/dns_plan.h"
#include "pick/config/spec_print.h"
#include "pick/session/explain.h"
#include "program/options/command.h"
#include "program/picker/cluster.h"
#include "program/picker/grpc.h"
#include "program/process/memory_share.h"

static int failed(const struct error *err) {
    fprintf(stderr, "sluice pick: %s\n", err->text);
    return EXIT_CODE_FAILED;
}

/* All errors of the configuration, or else the one that there is. */
static int failed_check(const struct doc_errors *errors, const struct error *err) {
    for (size_t i = 0; i < errors->n; i++) {
        fprintf(stderr, "sluice pick: %.*s\n", STR_ARG(errors->items[i]));
    }
    return errors->n > 0 ? EXIT_CODE_FAILED : failed(err);
}

/* Prints the effective configuration. */
static enum status print_pools(const struct pick_settings *settings, struct doc_errors *errors,
                               struct buf *out, struct error *err) {
    struct pool_watch_options options = pick_pool_options(settings);
    struct pick_cluster *cluster = NULL;
    struct pool_specs specs;
    enum status st = pick_cluster_load(settings, &cluster, err);
    if (st != ST_OK) {
        return st;
    }
    options.cluster = pick_cluster_store(cluster);
    options.errors = errors;
    st = pool_watch_read(&options, &specs, err);
    if (st == ST_OK) {
        pool_specs_print(&specs, out);
        pool_specs_free(&specs);
    }
    if (st == ST_OK && cluster) {
        pick_cluster_print(cluster, out);
    }
    pick_cluster_free(cluster);
    return st;
}

int pick_check(const struct pick_settings *settings, struct arena *arena) {
    struct doc_errors errors = {.arena = arena};
    struct tls_server *tls = NULL;
    struct error err;
    struct buf out;
    buf_init(&out, arena, 4096);
    if (print_pools(settings, &errors, &out, &err) != ST_OK) {
        return failed_check(&errors, &err);
    }
    memory_share_add_line(&out, "client memory", &settings->client_memory, &settings->memory_limit);
    memory_share_add_line(&out, "body memory", &settings->body_memory, &settings->memory_limit);
    int code = command_write_out("sluice pick", &out);
    if (pick_tls_open(settings, &tls, &err) != ST_OK) {
        code = failed(&err);
    }
    tls_server_free(tls);
    return code;
}

/* Endpoints are not probed here: all of them count as ready. */
static void make_pool_ready(struct pool_reader *reader, bool *checked, bool *named) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        pool_set_ready(pool_reader_pool(reader), snapshot->members[i].endpoint, true);
    }
    *checked = *checked || snapshot->spec->health.kind != POOL_HEALTH_NONE;
    *named = *named || (snapshot->spec->dns && snapshot->spec->dns->n_names > 0);
}

static void make_ready(struct pool_set_reader *pools, struct buf *out) {
    const struct pool_list *list = pool_set_reader_refresh(pools);
    bool checked = false, named = false;
    for (size_t i = 0; i < list->n; i++) {
        struct pool_reader *reader = pool_set_reader_get(pools, &list->entries[i]);
        if (reader) {
            make_pool_ready(reader, &checked, &named);
        }
    }
    if (named) {
        buf_printf(out, "note        names are not resolved here: their endpoints are left out\n");
    }
    if (checked) {
        buf_printf(out, "note        health is not checked here: every endpoint counts as ready\n");
    }
}

static enum status explain(const struct pick_settings *settings, struct pool_set *pools,
                           struct buf *out, struct error *err) {
    struct pick_described_request question = {.method = str_of(settings->method),
                                              .path = str_of(settings->path),
                                              .model = str_of(settings->model),
                                              .objective = str_of(settings->objective),
                                              .subset = str_of(settings->subset),
                                              .selection = str_of(settings->selection),
                                              .prompt = str_of(settings->prompt),
                                              .session = str_of(settings->session),
                                              .pool = str_of(settings->pool),
                                              .authority = str_of(settings->authority),
                                              .header = str_of(settings->header),
                                              .metadata = str_of(settings->filter_metadata)};
    struct pool_watch_options options = pick_pool_options(settings);
    struct pick_cluster *cluster = NULL;
    struct pool_watch *watch = NULL;
    struct pool_set_reader *reader = NULL;
    enum status st = pick_cluster_load(settings, &cluster, err);
    if (st == ST_OK) {
        options.cluster = pick_cluster_store(cluster);
        st = pool_watch_new(&options, pools, &watch, err);
    }
    pool_watch_free(watch);
    pick_cluster_free(cluster);
    if (st == ST_OK) {
        st = pool_set_reader_new(pools, &reader, err);
    }
    if (st == ST_OK) {
        make_ready(reader, out);
        st = pick_explain_pools(reader, &question, out, err);
    }
    pool_set_reader_free(reader);
    return st;
}

int pick_explain_request(const struct pick_settings *settings, struct arena *arena) {
    struct pool_set *pools = NULL;
    struct error err;
    struct buf out;
    buf_init(&out, arena, 4096);
    enum status st = pool_set_new(&pools, &err);
    if (st == ST_OK) {
        st = explain(settings, pools, &out, &err);
    }
    pool_set_free(pools);
    if (st != ST_OK && out.len == 0) {
        return failed(&err);
    }
    int code = command_write_out("sluice pick", &out);
    return st == ST_OK ? code : EXIT_CODE_FAILED;
}
