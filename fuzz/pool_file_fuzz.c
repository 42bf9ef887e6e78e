/* A configuration file of the picker's pools, in both of its languages: valid ones have values that
 * the pool relies on, and can be printed; errors contain the file's name. */
#include "pick/config/scrape_rules.h"
#include "pick/config/spec_print.h"
#include "pick/discovery/file/pool_file.h"
#include "pick/pool/profile/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void check_spec(const struct pool_spec *spec) {
    const struct pool_health *health = &spec->health;
    for (size_t i = 0; i < spec->n_endpoints; i++) {
        check(spec->endpoints[i].address.port > 0);
    }
    for (size_t i = 0; i < spec->n_models; i++) {
        check(spec->models[i].name.len > 0);
    }
    for (size_t i = 0; i < spec->flow_control.limits.n_bands; i++) {
        check(spec->flow_control.limits.bands[i].fairness <= FLOW_BY_PROGRAM);
    }
    check(health->kind == POOL_HEALTH_NONE ||
          (health->interval_ns > 0 && health->timeout_ns > 0 && health->n_unhealthy > 0));
    check(spec->retry_after_s > 0 && spec->kv_cache >= 0 && spec->kv_cache <= 1);
    if (spec->scrape) {
        check(spec->scrape->interval_ns >= 50000000 && spec->scrape->source.path.len > 0);
        check(spec->scrape->most_per_second > 0 && spec->scrape->max_page_bytes > 0);
    }
    check(!spec->profile || spec->profile->picker.plugin);
}

/* All errors are collected where there is one, and only then. */
static void check_errors(struct str text, enum status expected, struct arena *arena) {
    struct pool_config_source source = {.name = "pool", .text = text};
    struct doc_errors errors = {.arena = arena};
    struct pool_specs specs;
    struct error err = {0};
    enum status status = pool_file_parse_all(&source, 1, &errors, &specs, &err);
    check((status == ST_OK) == (expected == ST_OK));
    check(expected != ST_OK || errors.n == 0);
    if (status == ST_OK) {
        pool_specs_free(&specs);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct pool_specs specs;
    struct error err = {0};
    struct buf out;
    buf_init(&out, arena, 4096);
    enum status status = pool_file_parse("pool", str_make((const char *)data, size), &specs, &err);
    if (status == ST_OK) {
        for (size_t i = 0; i < specs.n; i++) {
            check_spec(specs.items[i]);
        }
        pool_specs_print(&specs, &out);
        check(specs.n > 0 && !out.failed && out.len > 0);
        pool_specs_free(&specs);
    } else {
        check(status == ST_BAD_CONFIG && strncmp(err.text, "pool:", 5) == 0);
    }
    check_errors(str_make((const char *)data, size), status, arena);
    arena_free(arena);
    return 0;
}
