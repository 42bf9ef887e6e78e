/* A metrics page becomes a load; the first byte selects the rules. Splits make no difference,
 * and the load is within its limits, also after a previous page. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pick/discovery/scrape/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct pool_label LABEL = {STR("kind"), STR("a\"b")};

/* Rules beyond the presets. */
static const struct scrape_rule OWN[] = {
    {.into = SCRAPE_WAITING, .series = STR("depth"), .labels = {&LABEL, 1}},
    {.into = SCRAPE_RUNNING, .series = STR("busy_total"), .rate = true, .factor = 1e-6},
    {.into = SCRAPE_KV_CACHE, .series = STR("used"), .combine = SCRAPE_NEWEST},
    {.into = SCRAPE_KV_BLOCKS, .series = STR("info"), .value_label = STR("blocks")},
    {.into = SCRAPE_ADAPTERS, .series = STR("adapters"), .combine = SCRAPE_NEWEST},
};
static const struct scrape_rule ATTRIBUTES[] = {
    {.into = SCRAPE_ATTRIBUTE, .attribute = 3, .series = STR("depth"), .combine = SCRAPE_FIRST},
    {.into = SCRAPE_ATTRIBUTE,
     .attribute = 15,
     .series = STR("used"),
     .combine = SCRAPE_MAX,
     .of_pod = true,
     .divisor = 100},
};

static void choose_rules(uint8_t choice, struct scrape_rules *out) {
    size_t preset = choice % (N_SCRAPE_PRESETS + 1);
    struct scrape_source source = {.rules.n = 0};
    if (preset < N_SCRAPE_PRESETS) {
        scrape_source_init(&source, &SCRAPE_PRESETS[preset]);
    }
    for (size_t i = 0; preset == N_SCRAPE_PRESETS && i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (!scrape_rules_replace(&source.rules, &OWN[i])) {
            __builtin_trap();
        }
    }
    for (size_t i = 0; i < sizeof(ATTRIBUTES) / sizeof(ATTRIBUTES[0]); i++) {
        if (!scrape_rules_add(&source.rules, &ATTRIBUTES[i])) {
            __builtin_trap();
        }
    }
    *out = source.rules;
}

static enum status read_page(const struct scrape_rules *rules, struct str text, size_t step,
                             uint64_t asked_ns, struct scrape_history *past,
                             struct endpoint_load *out, struct attribute_report *attributes) {
    struct scrape_page *page = malloc(sizeof(*page));
    struct error err;
    scrape_page_begin(page, rules, STR("p-1"));
    while (text.len > 0) {
        size_t n = text.len < step ? text.len : step;
        scrape_page_read(page, str_make(text.ptr, n));
        text = str_make(text.ptr + n, text.len - n);
    }
    enum status st = scrape_page_end(page, asked_ns, past, out, attributes, &err);
    free(page);
    return st;
}

static void check(const struct endpoint_load *load, const struct attribute_report *attributes) {
    for (uint32_t i = 0; i < ATTRIBUTES_MAX; i++) {
        if ((attributes->known >> i & 1) &&
            (!isfinite(attributes->values[i]) || (i != 3 && i != 15))) {
            __builtin_trap();
        }
    }
    if ((load->known & LOAD_KV_CACHE) && !(load->kv_cache_used >= 0 && load->kv_cache_used <= 1)) {
        __builtin_trap();
    }
    if (load->n_running_adapters + load->n_waiting_adapters > LOAD_MAX_ADAPTERS) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t STEPS[] = {1, 7, 4096, SIZE_MAX};
    struct scrape_rules rules;
    if (size < 2) {
        return 0;
    }
    choose_rules(data[0], &rules);
    struct str text = str_make((const char *)data + 2, size - 2);
    struct str first = str_make(text.ptr, text.len * data[1] / 255); /* the previous page */
    struct endpoint_load expected = {0};
    struct attribute_report expected_attributes = {0};
    for (size_t i = 0; i < sizeof(STEPS) / sizeof(STEPS[0]); i++) {
        struct scrape_history past = {0};
        struct endpoint_load load;
        struct attribute_report attributes;
        (void)read_page(&rules, first, STEPS[i], 1000000000, &past, &load, &attributes);
        check(&load, &attributes);
        enum status st = read_page(&rules, text, STEPS[i], 1200000000, &past, &load, &attributes);
        check(&load, &attributes);
        if (i > 0 &&
            (load.known != expected.known || load.n_waiting != expected.n_waiting ||
             load.n_running != expected.n_running || load.n_kv_blocks != expected.n_kv_blocks)) {
            __builtin_trap();
        }
        if (st != ST_OK && (load.known != 0 || attributes.known != 0)) {
            __builtin_trap();
        }
        if (i > 0 && memcmp(&attributes, &expected_attributes, sizeof(attributes)) != 0) {
            __builtin_trap();
        }
        expected = load;
        expected_attributes = attributes;
    }
    return 0;
}
