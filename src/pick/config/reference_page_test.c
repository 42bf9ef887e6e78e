/* docs/reference/picker-config.md is what the tables of members say: values, defaults, effects; and
 * the pages of plugins have the parameters and defaults of their tables. Runs in the repository's
 * root; with SLUICE_WRITE_PAGES=1 in the environment it writes the page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/buf.h"
#include "pick/config/dns_plan.h"
#include "pick/config/page_fixture.h"
#include "pick/config/producers.h"
#include "pick/config/profile_handler.h"
#include "pick/config/scrape_rules.h"
#include "pick/config/topology.h"
#include "pick/pool/profile/plugin.h"

static const char PAGE[] = "docs/reference/picker-config.md";
static const char HEAD[] =
    "# The picker's configuration, setting by setting\n\n"
    "The sections of a pool's configuration that are settings, and what is read of upstream's\n"
    "`EndpointPickerConfig`. [picker.md](../picker.md) and its pages explain them. This page is "
    "made\n"
    "of the tables that read them: `SLUICE_WRITE_PAGES=1 "
    "build/unit/pick/config/reference_page_test`\n"
    "writes it, and the test compares it.\n";

/* ---- values ---------------------------------------------------------------------------------- */

static void print_number(struct buf *out, double value) {
    bool whole = value < 1e15 && value == (double)(int64_t)value;
    buf_printf(out, whole ? "%.0f" : "%g", value);
}

/* A duration and a size as the configuration has them: in the largest unit that makes it whole. */
static void print_in_unit(struct buf *out, double value, enum doc_unit unit) {
    static const struct {
        enum doc_unit of;
        double size;
        const char *name;
    } units[] = {
        {DOC_UNIT_NS, 3600e9, "h"},       {DOC_UNIT_NS, 60e9, "m"},
        {DOC_UNIT_NS, 1e9, "s"},          {DOC_UNIT_NS, 1e6, "ms"},
        {DOC_UNIT_BYTES, 1 << 30, "GiB"}, {DOC_UNIT_BYTES, 1 << 20, "MiB"},
        {DOC_UNIT_BYTES, 1 << 10, "KiB"},
    };
    for (size_t i = 0; value > 0 && i < sizeof(units) / sizeof(units[0]); i++) {
        double n = value / units[i].size;
        if (unit == units[i].of && n == (double)(int64_t)n) {
            buf_printf(out, "%.0f%s", n, units[i].name);
            return;
        }
    }
    print_number(out, value);
}

static void print_words(struct buf *out, const char *const *words) {
    for (size_t i = 0; words[i]; i++) {
        buf_printf(out, "%s`%s`", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
    }
}

static void print_values(struct buf *out, const struct doc_member *row) {
    buf_printf(out, "%s%s", row->form ? row->form : "", row->form && row->max != 0 ? " " : "");
    if (row->kind == DOC_MEMBER_BOOL || row->kind == DOC_MEMBER_REFUSED_TRUE) {
        buf_printf(out, "`true` or `false`");
    } else if (row->kind == DOC_MEMBER_WORD) {
        print_words(out, row->words);
    } else if (row->kind == DOC_MEMBER_SHARE) {
        buf_printf(out, row->min == 0 ? "0 to 1" : "above 0, up to 1");
    } else if (row->max != 0) {
        buf_printf(out, "%s", row->above_min ? "above " : "");
        print_in_unit(out, (double)row->min, row->unit);
        buf_printf(out, row->max == INT64_MAX ? " or more" : row->above_min ? ", up to " : " to ");
        if (row->max != INT64_MAX) {
            print_in_unit(out, (double)row->max, row->unit);
        }
    }
}

static double load(const void *field, enum doc_store store) {
    switch (store) {
    case DOC_STORE_NONE:
        break;
    case DOC_STORE_BOOL:
        return *(const bool *)field;
    case DOC_STORE_U16:
        return *(const uint16_t *)field;
    case DOC_STORE_U32:
        return *(const uint32_t *)field;
    case DOC_STORE_U64:
        return (double)*(const uint64_t *)field;
    case DOC_STORE_I64:
        return (double)*(const int64_t *)field;
    case DOC_STORE_F32:
        return (double)*(const float *)field;
    case DOC_STORE_F64:
        return *(const double *)field;
    }
    return 0;
}

/* Returns: of a name of the protocol, which has no number; NULL: the row is no such name. */
static const char *preset_name(const struct doc_member *row) {
    static const struct {
        const char *field, *preset;
    } names[] = {
#define NAME(field, kind, preset, help) {#field, preset},
#include "pick/pool/endpoint/protocol.def"
#undef NAME
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].field, row->name) == 0) {
            return names[i].preset;
        }
    }
    return NULL;
}

static void print_names(struct buf *out, const char *names) {
    struct str rest = str_of(names);
    while (rest.len > 0) {
        struct str name = str_cut(&rest, ',');
        buf_printf(out, "`%.*s`%s", STR_ARG(name), rest.ptr ? ", " : "");
    }
}

/* The row's preset, or else what `object` has, which may be NULL. */
static void print_default(struct buf *out, const struct doc_member *row, const void *object) {
    const void *field = object ? (const char *)object + row->offset : NULL;
    double value = row->preset != 0 || !field ? row->preset : load(field, row->store);
    if (row->unused) {
        return;
    }
    if (preset_name(row)) {
        print_names(out, preset_name(row));
    } else if (row->kind == DOC_MEMBER_WORD && field) {
        buf_printf(out, "`%s`", row->words[*(const unsigned *)field]);
    } else if (row->store == DOC_STORE_BOOL) {
        buf_printf(out, value != 0 ? "true" : "false");
    } else if (value == 0 && row->min > 0 && row->kind != DOC_MEMBER_SHARE) {
        buf_printf(out, "%s", field && row->store != DOC_STORE_NONE ? "none" : "");
    } else if (row->store != DOC_STORE_NONE) {
        print_in_unit(out, value, row->unit);
    }
}

static void print_effect(struct buf *out, const struct doc_member *row) {
    if (row->kind == DOC_MEMBER_REFUSED || row->kind == DOC_MEMBER_REFUSED_TRUE) {
        buf_printf(out, "%s**refused**: %s",
                   row->kind == DOC_MEMBER_REFUSED_TRUE ? "`true` is " : "", row->text);
    }
    buf_printf(out, "%s%s%s", row->help ? row->help : "", row->help && row->note ? "; " : "",
               row->note ? "a note: " : "");
    buf_printf(out, "%s", row->note ? row->note : "");
}

static void print_table(struct buf *out, const char *title, const struct doc_member *rows,
                        const void *object) {
    buf_printf(out, "\n## %s\n\n| member | value | default | |\n| --- | --- | --- | --- |\n",
               title);
    for (; rows->name; rows++) {
        buf_printf(out, "| `%s` | ", rows->name);
        print_values(out, rows);
        buf_printf(out, " | ");
        print_default(out, rows, object);
        buf_printf(out, " | ");
        print_effect(out, rows);
        buf_printf(out, " |\n");
    }
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void print_plugins(struct buf *out) {
    buf_printf(out, "\n## Parameters of plugins\n\nTheir pages say what they mean.\n\n"
                    "| plugin | parameter | value | default |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < N_PLUGINS; i++) {
        const struct doc_member *row = PLUGINS[i]->parameters;
        for (; row && row->name; row++) {
            buf_printf(out, "| [`%s`](../../src/pick/pool/plugins/%s/README.md) | `%s` | ",
                       PLUGINS[i]->type, PLUGINS[i]->type, row->name);
            print_values(out, row);
            buf_printf(out, " | ");
            print_default(out, row, NULL);
            buf_printf(out, " |\n");
        }
    }
}

static void print_page(struct buf *out) {
    struct pool_spec *spec;
    struct scrape_plan plan;
    spec = pool_spec_new();
    scrape_plan_init(&plan);
    buf_printf(out, "%s", HEAD);
    print_table(out, "health", POOL_CONFIG_HEALTH, &spec->health);
    print_table(out, "saturation", POOL_CONFIG_SATURATION, spec);
    print_table(out, "flow_control", POOL_CONFIG_FLOW_CONTROL,
                &(struct pool_config_flow){.flow = spec->flow_control});
    print_table(out, "A band of flow_control", POOL_CONFIG_BAND, NULL);
    print_table(out, "usage_limit of flow_control", POOL_CONFIG_USAGE_LIMIT, NULL);
    print_table(out, "outlier_detection", POOL_CONFIG_OUTLIER_DETECTION, &spec->outlier_detection);
    print_table(out, "metrics", POOL_CONFIG_METRICS, &plan);
    print_table(out, "dns", POOL_CONFIG_DNS, dns_plan_get(spec));
    print_table(out, "protocol", POOL_CONFIG_PROTOCOL, &spec->protocol);
    print_plugins(out);
    print_table(out, "Handlers: disagg-profile-handler", PICKER_DISAGG,
                &(const struct picker_disagg){.prefill_first = false});
    print_table(out, "Handlers: pd-profile-handler", PICKER_PD, NULL);
    print_table(out, "Handlers: header-profile-handler", PICKER_BY_HEADER, NULL);
    print_table(out, "Handlers: data-parallel-profile-handler", PICKER_DATA_PARALLEL, NULL);
    print_table(out, "Handlers: prefix-based-pd-decider", PICKER_PREFIX_DECIDER, NULL);
    print_table(out, "topology-extractor", PICKER_TOPOLOGY, NULL);
    print_table(out, "Upstream: utilization-detector, saturationDetector",
                plugin_utilization_detector.parameters, NULL);
    print_table(out, "Upstream: concurrency-detector", plugin_concurrency_detector.parameters,
                NULL);
    print_table(out, "Upstream: flowControl", PICKER_FLOW_CONTROL, NULL);
    print_table(out, "Upstream: a band of flowControl", PICKER_BAND, NULL);
    print_table(out, "Upstream: program-aware-fairness", PICKER_PROGRAM_AWARE, NULL);
    print_table(out, "Upstream: agent-identity", PICKER_AGENT_IDENTITY, NULL);
    print_table(out, "Upstream: session-id-producer", PICKER_SESSION_PRODUCER, NULL);
    print_table(out, "Upstream: probabilistic-admitter", PICKER_ADMITTER, NULL);
    print_table(out, "Upstream: request-attribute-reporter", PICKER_REPORTER, NULL);
    print_table(out, "Upstream: static-usage-limit-policy", PICKER_STATIC_USAGE, NULL);
    print_table(out, "Upstream: priority-holdback-policy", PICKER_HOLDBACK, NULL);
    print_table(out, "Upstream: core-metrics-extractor", PICKER_EXTRACTOR, NULL);
    print_table(out, "Upstream: engineConfigs of core-metrics-extractor", PICKER_ENGINE, NULL);
    print_table(out, "Upstream: metrics-data-source", PICKER_SOURCE, NULL);
    print_table(out, "Upstream: dcgm-data-source", PICKER_GPU_SOURCE, NULL);
    pool_spec_free(spec);
}

static void reference_page_is_the_tables(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf expected;
    (void)state;
    buf_init(&expected, arena, 0);
    print_page(&expected);
    buf_add_char(&expected, '\0');
    assert_false(expected.failed);
    if (getenv("SLUICE_WRITE_PAGES")) {
        FILE *file = fopen(PAGE, "w");
        assert_non_null(file);
        fputs(expected.data, file);
        fclose(file);
    }
    assert_string_equal(page_read(PAGE), expected.data);
    arena_free(arena);
}

/* Each parameter has a row in the page of its plugin, which begins with its name and default. */
static void reference_plugin_pages_have_parameters(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    for (size_t i = 0; i < N_PLUGINS; i++) {
        const struct doc_member *row = PLUGINS[i]->parameters;
        struct str path =
            arena_printf(arena, "src/pick/pool/plugins/%s/README.md", PLUGINS[i]->type);
        const char *page = page_read(path.ptr);
        size_t n = 0, n_rows = 0;
        for (; row && row->name; row++, n++) {
            struct buf expected;
            buf_init(&expected, arena, 0);
            buf_printf(&expected, "\n| `%s` | ", row->name);
            print_default(&expected, row, NULL);
            buf_add_char(&expected, '\0');
            if (!strstr(page, expected.data)) {
                fail_msg("%s lacks \"%s\"", path.ptr, expected.data);
            }
        }
        const char *table = strstr(page, "\n| parameter |");
        for (const char *at = table; at && (at = strstr(at, "\n| `")) != NULL; at++) {
            n_rows++;
        }
        assert_int_equal(n_rows, n);
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_page_is_the_tables),
        cmocka_unit_test(reference_plugin_pages_have_parameters),
    };
    return cmocka_run_group_tests_name("pick/config/reference_page", tests, NULL, NULL);
}
