/* Metrics pages of model servers, in one piece and in many, and invalid pages. */
#include "pick/discovery/scrape/page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t S = 1000000000;

static const struct scrape_preset *preset_of(const char *name) {
    for (size_t i = 0; i < N_SCRAPE_PRESETS; i++) {
        if (strcmp(SCRAPE_PRESET_NAMES[i], name) == 0) {
            return &SCRAPE_PRESETS[i];
        }
    }
    fail_msg("no preset %s", name);
    return NULL;
}

static enum status read_page(const struct scrape_rules *rules, struct str text, size_t piece,
                             uint64_t asked_ns, struct scrape_history *history,
                             struct endpoint_load *out) {
    struct scrape_page *page = malloc(sizeof(*page));
    struct attribute_report attributes;
    struct error err;
    assert_non_null(page);
    memset(page, 0xa5, sizeof(*page)); /* begin must initialize everything */
    scrape_page_begin(page, rules, STR(""));
    for (size_t i = 0; i < text.len; i += piece) {
        size_t n = text.len - i < piece ? text.len - i : piece;
        scrape_page_read(page, str_make(text.ptr + i, n));
    }
    enum status st = scrape_page_end(page, asked_ns, history, out, &attributes, &err);
    free(page);
    return st;
}

/* ---- presets --------------------------------------------------------------------------------- */

static const struct {
    const char *preset, *page;
    struct endpoint_load load;
    const char *adapters[4]; /* running adapters come first */
} pages[] = {
    {"sluice",
     "# HELP sluice_queued_requests Requests that wait.\n# TYPE sluice_queued_requests gauge\n"
     "sluice_queued_requests 5\nsluice_running_requests 3\nsluice_instances 9\n",
     {.known = LOAD_WAITING | LOAD_RUNNING, .n_waiting = 5, .n_running = 3},
     {NULL}},
    {"triton",
     "nv_inference_pending_request_count{model=\"a\",version=\"1\"} 2\n"
     "nv_inference_pending_request_count{model=\"b\",version=\"1\"} 5\n"
     "nv_inference_exec_count{model=\"a\",version=\"1\"} 1000000\n",
     {.known = LOAD_WAITING, .n_waiting = 7},
     {NULL}},
    {"vllm",
     "vllm:num_requests_running{engine=\"0\",model_name=\"llama\"} 8.0\n"
     "vllm:num_requests_running{engine=\"1\",model_name=\"llama\"} 6.0\n"
     "vllm:num_requests_waiting{engine=\"0\",model_name=\"llama\"} 1.0\n"
     "vllm:num_requests_waiting{engine=\"1\",model_name=\"llama\"} 2.0\n"
     "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llama\"} 0.25\n"
     "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"llama\"} 0.75\n"
     "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"2000\",engine=\"0\"} 1.0\n"
     "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",engine=\"1\"} 1.0\n"
     "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\","
     "waiting_lora_adapters=\"older\"} 1.7e+09\n"
     "vllm:lora_requests_info{max_lora=\"3\",running_lora_adapters=\"sql, b\\\"c\","
     "waiting_lora_adapters=\"poems,\"} 1.700000001e+09\n"
     "vllm:lora_requests_info{max_lora=\"5\",running_lora_adapters=\"x\","
     "waiting_lora_adapters=\"y\"} 1.6e+09\n",
     {.known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE | LOAD_KV_SIZE | LOAD_ADAPTERS,
      .n_waiting = 3,
      .n_running = 14,
      .kv_cache_used = 0.75F,
      .kv_block_tokens = 16,
      .n_kv_blocks = 3000,
      .max_adapters = 3,
      .n_running_adapters = 2,
      .n_waiting_adapters = 1},
     {"sql", "b\"c", "poems"}},
    {"vllm", /* an older series, and one without blocks and running adapters */
     "vllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.5\n"
     "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"\"} 1\n"
     "vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\"} 1\n",
     {.known = LOAD_WAITING | LOAD_KV_CACHE | LOAD_ADAPTERS, .kv_cache_used = 0.5F},
     {NULL}},
    {"sglang",
     "sglang:num_running_reqs{model_name=\"m\"} 162.0\nsglang:num_queue_reqs{model_name=\"m\"} "
     "2826.0\nsglang:token_usage{model_name=\"m\"} 0.28\n"
     "sglang:cache_config_info{page_size=\"64\",num_pages=\"500\"} 1\n",
     {.known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE | LOAD_KV_SIZE,
      .n_waiting = 2826,
      .n_running = 162,
      .kv_cache_used = 0.28F,
      .kv_block_tokens = 64,
      .n_kv_blocks = 500},
     {NULL}},
    {"tensorrt-llm",
     "nv_trt_llm_request_metrics{model=\"llm\",request_type=\"waiting\",version=\"1\"} 1\n"
     "nv_trt_llm_request_metrics{model=\"llm\",request_type=\"context\",version=\"1\"} 50\n"
     "nv_trt_llm_request_metrics{model=\"llm\",request_type=\"scheduled\",version=\"1\"} 4\n"
     "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"llm\"} 0.4875\n"
     "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"llm\"} 64\n"
     "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"llm\"} 39\n"
     "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"llm\"} 80\n",
     {.known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE | LOAD_KV_SIZE,
      .n_waiting = 1,
      .n_running = 4,
      .kv_cache_used = 0.4875F,
      .kv_block_tokens = 64,
      .n_kv_blocks = 80},
     {NULL}},
    {"trtllm-serve",
     "trtllm_num_requests_running{model_name=\"m\"} 3.0\n"
     "trtllm_num_requests_waiting{model_name=\"m\"} 2.0\ntrtllm_kv_cache_utilization 0.125\n"
     "trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 100\n",
     {.known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE | LOAD_KV_SIZE,
      .n_waiting = 2,
      .n_running = 3,
      .kv_cache_used = 0.125F,
      .kv_block_tokens = 32,
      .n_kv_blocks = 100},
     {NULL}},
};

static void expect_load(const struct endpoint_load *got, const struct endpoint_load *wanted,
                        const char *const *adapters) {
    assert_int_equal(got->known, wanted->known);
    assert_int_equal(got->n_waiting, wanted->n_waiting);
    assert_int_equal(got->n_running, wanted->n_running);
    assert_true(got->kv_cache_used == wanted->kv_cache_used);
    assert_int_equal(got->kv_block_tokens, wanted->kv_block_tokens);
    assert_int_equal(got->n_kv_blocks, wanted->n_kv_blocks);
    assert_int_equal(got->max_adapters, wanted->max_adapters);
    assert_int_equal(got->n_running_adapters, wanted->n_running_adapters);
    assert_int_equal(got->n_waiting_adapters, wanted->n_waiting_adapters);
    for (size_t i = 0; adapters[i]; i++) {
        assert_int_equal(got->adapters[i], load_adapter_hash(str_of(adapters[i])));
    }
}

static void page_of_presets_gives_load(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        struct scrape_source source;
        struct str text = str_of(pages[i].page);
        scrape_source_init(&source, preset_of(pages[i].preset));
        for (size_t piece = 1; piece <= text.len; piece += piece < 100 ? 1 : 37) {
            struct scrape_history history = {0};
            struct endpoint_load load;
            assert_int_equal(read_page(&source.rules, text, piece, S, &history, &load), ST_OK);
            expect_load(&load, &pages[i].load, pages[i].adapters);
        }
    }
}

/* ---- invalid numbers ------------------------------------------------------------------------- */

static enum status read_text(const struct scrape_rules *rules, const char *text,
                             struct endpoint_load *out) {
    struct scrape_history history = {0};
    return read_page(rules, str_of(text), 4096, S, &history, out);
}

static void page_invalid_numbers_are_ignored(void **state) {
    static const struct {
        const char *page;
        enum status status;
        unsigned known;
        uint32_t n_waiting;
        double used;
    } cases[] = {
        {"vllm:num_requests_waiting NaN\n", ST_BAD_ANSWER, 0, 0, 0},
        {"vllm:num_requests_waiting +Inf\n", ST_BAD_ANSWER, 0, 0, 0},
        {"vllm:num_requests_waiting NaN\nvllm:num_requests_waiting{e=\"1\"} 4\n", ST_OK,
         LOAD_WAITING, 4, 0},
        {"vllm:num_requests_waiting -3\n", ST_BAD_ANSWER, 0, 0, 0},
        {"vllm:num_requests_waiting -3\nvllm:num_requests_waiting{e=\"1\"} 4\n", ST_OK,
         LOAD_WAITING, 4, 0},
        {"vllm:num_requests_waiting -0\n", ST_OK, LOAD_WAITING, 0, 0},
        {"vllm:num_requests_waiting 1e30\n", ST_OK, LOAD_WAITING, UINT32_MAX, 0},
        {"vllm:num_requests_waiting 2.5\n", ST_OK, LOAD_WAITING, 3, 0},
        {"vllm:kv_cache_usage_perc 87\n", ST_OK, LOAD_KV_CACHE, 0, 1},
        {"vllm:kv_cache_usage_perc -1\n", ST_BAD_ANSWER, 0, 0, 0},
        {"\x1f\x8b\x08", ST_BAD_ANSWER, 0, 0, 0},
        {"vllm:num_requests_waiting many\n", ST_BAD_ANSWER, 0, 0, 0},
        {"", ST_BAD_ANSWER, 0, 0, 0},
        {"<html>not found</html>", ST_BAD_ANSWER, 0, 0, 0},
        {"vllm:num_requests_waiting_total 3\n", ST_BAD_ANSWER, 0, 0, 0},
    };
    struct scrape_source source;
    (void)state;
    scrape_source_init(&source, preset_of("vllm"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct endpoint_load load;
        assert_int_equal(read_text(&source.rules, cases[i].page, &load), cases[i].status);
        assert_int_equal(load.known, cases[i].known);
        assert_int_equal(load.n_waiting, cases[i].n_waiting);
        assert_true((double)load.kv_cache_used == cases[i].used);
    }
}

/* ---- configured rules ------------------------------------------------------------------------ */

static const struct pool_label GPU = {{"kind", 4}, {"g\"pu", 4}};

static void page_custom_rules_are_applied(void **state) {
    struct scrape_rules rules = {.n = 0};
    const struct scrape_rule given[] = {
        {.into = SCRAPE_WAITING, .series = STR("depth"), .labels = {&GPU, 1}},
        {.into = SCRAPE_RUNNING, .combine = SCRAPE_NEWEST, .series = STR("depth")},
        {.into = SCRAPE_KV_CACHE, .combine = SCRAPE_MAX, .series = STR("percent"), .factor = 0.01},
    };
    struct endpoint_load load;
    (void)state;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        assert_true(scrape_rules_replace(&rules, &given[i]));
    }
    assert_int_equal(rules.n_series, 2);
    assert_int_equal(read_text(&rules,
                               "depth{kind=\"g\\\"pu\"} 2 300\ndepth{kind=\"g\\\"pu\",x=\"\"} 3 "
                               "500\ndepth{kind=\"cpu\"} 70 400\npercent 25\npercent 50\n",
                               &load),
                     ST_OK);
    assert_int_equal(load.n_waiting, 5);
    assert_int_equal(load.n_running, 3);
    assert_true(load.kv_cache_used == 0.5F);
    struct scrape_rule other = {.into = SCRAPE_WAITING, .series = STR("percent")};
    assert_true(scrape_rules_replace(&rules, &other));
    assert_int_equal(rules.n, 3);
    assert_int_equal(read_text(&rules, "depth{kind=\"g\\\"pu\"} 2\npercent 25\n", &load), ST_OK);
    assert_int_equal(load.n_waiting, 25);
}

static void page_counters_become_rates(void **state) {
    static const struct {
        const char *page;
        uint64_t asked_s;
        unsigned known;
        uint32_t n_running;
    } steps[] = {
        {"busy_us{m=\"a\"} 1e6\nbusy_us{m=\"b\"} 1e6\n", 10, 0, 0},
        {"busy_us{m=\"a\"} 9e6\nbusy_us{m=\"b\"} 5e6\n", 12, LOAD_RUNNING, 6},
        {"busy_us{m=\"a\"} 9e6\nbusy_us{m=\"b\"} 5e6\n", 13, LOAD_RUNNING, 0},
        {"busy_us{m=\"a\"} 1e6\n", 14, 0, 0}, /* the counter was reset */
        {"busy_us{m=\"a\"} 4e6\n", 15, LOAD_RUNNING, 3},
        {"busy_us{m=\"a\"} 9e6\n", 15, 0, 0}, /* no time has passed */
        {"busy_us{m=\"a\"} 10e6\n", 3, 0, 0}, /* the same */
        {"busy_us{m=\"a\"} 12e6\n", 4, LOAD_RUNNING, 2},
    };
    struct scrape_rules rules = {.n = 0};
    struct scrape_rule rule = {
        .into = SCRAPE_RUNNING, .series = STR("busy_us"), .rate = true, .factor = 1e-6};
    struct scrape_history history = {0};
    (void)state;
    assert_true(scrape_rules_replace(&rules, &rule));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct endpoint_load load;
        struct str text = str_of(steps[i].page);
        assert_int_equal(read_page(&rules, text, 7, steps[i].asked_s * S, &history, &load), ST_OK);
        assert_int_equal(load.known, steps[i].known);
        assert_int_equal(load.n_running, steps[i].n_running);
    }
}

/* ---- endless pages --------------------------------------------------------------------------- */

static void feed_many(struct scrape_page *page, struct str piece, size_t n) {
    for (size_t i = 0; i < n; i++) {
        scrape_page_read(page, piece);
    }
}

/* One line of 64 MiB, as many other lines, and the selected series at the end. */
static void page_huge_is_read_in_fixed_memory(void **state) {
    struct scrape_page *page = malloc(sizeof(*page));
    struct scrape_source source;
    struct scrape_history history = {0};
    struct endpoint_load load;
    struct attribute_report attributes;
    struct error err;
    (void)state;
    assert_non_null(page);
    scrape_source_init(&source, preset_of("vllm"));
    scrape_page_begin(page, &source.rules, STR(""));
    feed_many(page, STR("vllm:lora_requests_info{running_lora_adapters=\"a,"), 1);
    feed_many(page, STR("abcdefghijklmnopqrstuvwxyzabcde,"), 2 << 20);
    feed_many(page, STR("\"} 1\n"), 1);
    feed_many(page, STR("other_seconds_bucket{le=\"0.005\",model_name=\"llama\"} 12345\n"),
              1 << 18);
    scrape_page_read(page, STR("vllm:num_requests_waiting 6")); /* without a newline */
    assert_int_equal(scrape_page_end(page, S, &history, &load, &attributes, &err), ST_OK);
    assert_int_equal(page->reader.n_too_long, 1);
    assert_int_equal(load.known, LOAD_WAITING);
    assert_int_equal(load.n_waiting, 6);
    free(page);
}

/* Of too many adapters the first ones are used. */
static void page_adapters_beyond_limit_are_cut(void **state) {
    struct scrape_page *page = malloc(sizeof(*page));
    struct scrape_source source;
    struct scrape_history history = {0};
    struct endpoint_load load;
    struct attribute_report attributes;
    struct error err;
    (void)state;
    assert_non_null(page);
    scrape_source_init(&source, preset_of("vllm"));
    scrape_page_begin(page, &source.rules, STR(""));
    scrape_page_read(page, STR("vllm:lora_requests_info{running_lora_adapters=\"first"));
    feed_many(page, STR(",adapter"), 100);
    scrape_page_read(page, STR("\",waiting_lora_adapters=\"late\"} 1\n"));
    assert_int_equal(scrape_page_end(page, S, &history, &load, &attributes, &err), ST_OK);
    assert_int_equal(load.n_running_adapters, LOAD_MAX_ADAPTERS);
    assert_int_equal(load.n_waiting_adapters, 0);
    assert_int_equal(load.adapters[0], load_adapter_hash(STR("first")));
    free(page);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static const struct pool_label GOLD = {STR("tier"), STR("gold")};

/* Of one page without load, with a name for the endpoint's pod. */
static enum status read_attributes(const struct scrape_rules *rules, const char *pod,
                                   const char *text, struct attribute_report *out,
                                   struct error *err) {
    struct scrape_page *page = malloc(sizeof(*page));
    struct scrape_history history = {0};
    struct endpoint_load load;
    assert_non_null(page);
    memset(page, 0xa5, sizeof(*page));
    scrape_page_begin(page, rules, str_of(pod));
    for (size_t i = 0; i < strlen(text); i++) {
        scrape_page_read(page, str_make(text + i, 1));
    }
    enum status st = scrape_page_end(page, S, &history, &load, out, err);
    assert_int_equal(load.known, 0);
    free(page);
    return st;
}

/* The newest series counts, of equally new ones the first; also below 0. */
static void page_attribute_is_first_of_the_newest(void **state) {
    static const struct scrape_rule rules[] = {
        {.into = SCRAPE_ATTRIBUTE,
         .attribute = 1,
         .series = STR("depth"),
         .labels = {&GOLD, 1},
         .combine = SCRAPE_FIRST},
        {.into = SCRAPE_ATTRIBUTE, .attribute = 0, .series = STR("heat"), .combine = SCRAPE_FIRST},
    };
    static const struct {
        const char *page;
        unsigned known;
        double heat, depth;
    } rows[] = {
        {"depth{tier=\"gold\"} 3\ndepth{tier=\"gold\"} 4\nheat -2.5\n", 3, -2.5, 3},
        {"depth{tier=\"gold\"} 3 1000\ndepth{tier=\"gold\"} 4 2000\n", 2, 0, 4},
        {"depth{tier=\"gold\"} 3 2000\ndepth{tier=\"gold\"} 4 1000\n", 2, 0, 3},
        {"depth{tier=\"iron\"} 3\nheat 1e300\nheat NaN\n", 1, 1e300, 0},
        {"depth{tier=\"gold\"} +Inf\nheat 0\n", 1, 0, 0},
    };
    struct scrape_rules all = {.n = 0};
    (void)state;
    assert_true(scrape_rules_add(&all, &rules[0]));
    assert_true(scrape_rules_add(&all, &rules[1]));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct attribute_report got;
        struct error err;
        assert_int_equal(read_attributes(&all, "", rows[i].page, &got, &err), ST_OK);
        assert_int_equal(got.known, rows[i].known);
        assert_true(got.values[0] == rows[i].heat && got.values[1] == rows[i].depth);
    }
}

/* A DCGM exporter of a node has the GPUs of several pods; the highest one counts. */
static void page_attribute_is_of_the_pod(void **state) {
    static const struct scrape_rule rule = {.into = SCRAPE_ATTRIBUTE,
                                            .series = STR("DCGM_FI_DEV_GPU_UTIL"),
                                            .combine = SCRAPE_MAX,
                                            .of_pod = true,
                                            .divisor = 100};
    static const char page[] =
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"a\"} 57\n"
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",pod=\"a\"} 12\n"
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",pod=\"b\"} 90\n";
    static const char unlabelled[] = "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 7\n"
                                     "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",pod=\"b\"} 90\n";
    static const struct {
        const char *pod, *page;
        double value;
    } rows[] = {
        {"a", page, 57 / 100.0},
        {"b", page, 0.9},
        {"", page, 0.9},
        {"a", unlabelled, 7 / 100.0},
        {"a", "DCGM_FI_DEV_GPU_UTIL 0\n", 0},
    };
    struct scrape_rules all = {.n = 0};
    struct attribute_report got;
    struct error err;
    (void)state;
    assert_true(scrape_rules_add(&all, &rule));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(read_attributes(&all, rows[i].pod, rows[i].page, &got, &err), ST_OK);
        assert_int_equal(got.known, 1);
        assert_true(got.values[0] == rows[i].value);
    }
    assert_int_equal(read_attributes(&all, "c", page, &got, &err), ST_BAD_ANSWER);
    assert_int_equal(got.known, 0);
    assert_string_equal(err.text, "its page has the wanted series, but none for the pod c");
    assert_int_equal(read_attributes(&all, "c", "DCGM_FI_DEV_GPU_UTIL -1\n", &got, &err),
                     ST_BAD_ANSWER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_of_presets_gives_load),
        cmocka_unit_test(page_invalid_numbers_are_ignored),
        cmocka_unit_test(page_custom_rules_are_applied),
        cmocka_unit_test(page_counters_become_rates),
        cmocka_unit_test(page_huge_is_read_in_fixed_memory),
        cmocka_unit_test(page_adapters_beyond_limit_are_cut),
        cmocka_unit_test(page_attribute_is_first_of_the_newest),
        cmocka_unit_test(page_attribute_is_of_the_pod),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
