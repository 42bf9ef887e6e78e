/* How a model server's metrics page becomes an endpoint's load: which series with which labels are
 * read, how several of them are combined, and into which member of the load. There are presets for
 * common model servers; rules replace those of a preset, or are given without one.
 *
 * A plan is part of a pool's spec and does not change once it is read.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_CONFIG_SCRAPE_RULES_H
#define SLUICE_PICK_CONFIG_SCRAPE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/str.h"
#include "pick/pool/endpoint/attribute.h"
#include "pick/pool/spec.h"

/* The member of a load that a value is stored in (pick/pool/endpoint/load.h). */
enum scrape_metric {
    SCRAPE_WAITING,
    SCRAPE_RUNNING,
    SCRAPE_KV_CACHE,
    SCRAPE_KV_BLOCK_TOKENS,
    SCRAPE_KV_BLOCKS,
    SCRAPE_ADAPTERS, /* from labels: max_lora, running_lora_adapters, waiting_lora_adapters */
    N_SCRAPE_METRICS,
    SCRAPE_ATTRIBUTE = N_SCRAPE_METRICS, /* no member of the load: an attribute of the endpoint */
};

/* How several series of one rule are combined. */
enum scrape_combine {
    SCRAPE_SUM,
    SCRAPE_MAX,
    SCRAPE_NEWEST, /* greatest timestamp; of adapters, greatest value; then the last */
    SCRAPE_FIRST,  /* the same, then the first */
};

struct scrape_rule {
    enum scrape_metric into;
    enum scrape_combine combine;
    struct str series;
    struct pool_labels labels; /* only series that have all of these */
    struct str value_label;    /* the label whose value is read; empty: the sample's value */
    uint32_t attribute; /* of SCRAPE_ATTRIBUTE: which of those that the pool's plugins read */
    bool of_pod;        /* series that have the label `pod` must name the endpoint's pod there */
    double divisor;     /* the value is divided by it; 0: it is not */
    bool rate;          /* the series is a counter; the value is its increase per second */
    double factor;      /* the value is multiplied by it; 0: it is not */
};

/* Eight for a load, and a rule for each attribute. */
enum { SCRAPE_MAX_RULES = 8 + ATTRIBUTES_MAX };

/* Of several rules for one metric or attribute the first whose series is on the page is used. */
struct scrape_rules {
    struct scrape_rule items[SCRAPE_MAX_RULES];
    size_t n;
    struct str series[SCRAPE_MAX_RULES]; /* all names, without duplicates */
    size_t n_series;
};

struct scrape_preset {
    const char *path;
    uint16_t port; /* 0: the endpoint's own */
    const struct scrape_rule *rules;
    size_t n_rules;
};

enum scrape_preset_index {
    SCRAPE_PRESET_SLUICE,
    SCRAPE_PRESET_TRITON,
    SCRAPE_PRESET_VLLM,
    SCRAPE_PRESET_SGLANG,
    SCRAPE_PRESET_TENSORRT_LLM,
    SCRAPE_PRESET_TRTLLM_SERVE,
    N_SCRAPE_PRESETS,
};
extern const struct scrape_preset SCRAPE_PRESETS[N_SCRAPE_PRESETS];
/* The names of presets and of metrics, ending with NULL. */
extern const char *const SCRAPE_PRESET_NAMES[N_SCRAPE_PRESETS + 1];
extern const char *const SCRAPE_METRIC_NAMES[N_SCRAPE_METRICS + 1];
extern const char *const SCRAPE_COMBINE_NAMES[];

/* Rules, and the path and port of the page. */
struct scrape_source {
    struct scrape_rules rules;
    struct str path;
    uint16_t port; /* 0: the endpoint's own */
};

/* A kind of model server, by the name that labels of endpoints have for it. */
struct scrape_engine {
    struct str name;
    bool is_preset; /* it has the rules of a preset */
    struct scrape_source source;
};

struct scrape_plan {
    struct str preset;             /* its name; empty: none */
    struct scrape_source source;   /* for endpoints without `preset_label` */
    struct str preset_label;       /* the endpoint label that names the preset; empty: none */
    struct scrape_source *presets; /* one for each preset; NULL if no label names presets */
    struct str engine_label;       /* without `preset_label`: the endpoint label that names its
                                      engine, before those of upstream; empty: those alone */
    struct scrape_engine *engines; /* NULL: labels name no engines */
    size_t n_engines;
    struct str token_file_label; /* the endpoint label that names its token file; empty: none */
    struct str port_label;       /* the endpoint label that has the port; empty: none */
    bool https;
    struct str ca_file;             /* with https, NUL-terminated; empty: the system's */
    struct str cert_file, key_file; /* with https: the client certificate; empty: none */
    bool insecure_skip_verify;      /* with https: certificates are not verified */
    uint64_t interval_ns, timeout_ns;
    uint64_t max_age_ns; /* at least; longer when endpoints are scraped less often */
    uint32_t most_per_second;
    size_t max_page_bytes;
    bool at_node; /* the page is at the host of the endpoint's pod, where that is known */
    /* The attributes that rules set, of the pool's plugins. */
    const struct attribute_key *attributes;
    uint32_t n_attributes;
    struct str token_file; /* NUL-terminated; empty: none */
};

/* Sets the defaults that apply before the section is read; there are no rules. */
void scrape_plan_init(struct scrape_plan *plan);
/* Copies rules, path and port of a preset. */
void scrape_source_init(struct scrape_source *source, const struct scrape_preset *preset);
/* Begins with a preset's rules, path and port. */
void scrape_plan_use_preset(struct scrape_plan *plan, enum scrape_preset_index preset);
/* Makes plan->presets, in the spec's arena, unless they exist. */
void scrape_plan_make_presets(struct scrape_plan *plan, struct arena *arena);
/* Makes plan->engines of the `n` given ones, which are copied, and of the presets, by upstream's
 * names for them, unless one of the given ones has the name. */
void scrape_plan_make_engines(struct scrape_plan *plan, const struct scrape_engine *given, size_t n,
                              struct arena *arena);
/* Returns: NULL if there is none of this name. */
struct scrape_engine *scrape_plan_find_engine(const struct scrape_plan *plan, struct str name);
/* Does upstream's engine label name a preset? */
bool scrape_engine_is_known(struct pool_labels labels);
/* Adds a rule after the others. Returns: false if there are too many. */
bool scrape_rules_add(struct scrape_rules *rules, const struct scrape_rule *rule);
/* Adds a rule in place of all rules for the same metric. Returns: false if there are too many. */
bool scrape_rules_replace(struct scrape_rules *rules, const struct scrape_rule *rule);

/* Prometheus, "Data model": the name of a series may contain a colon, that of a label may not. */
bool scrape_is_series_name(struct str name, bool colon);

/* How an endpoint with certain labels is scraped. */
struct scrape_request {
    const struct scrape_source *source;
    struct endpoint_address host; /* with the port */
    struct str pod;               /* the endpoint's; empty: unknown */
    struct str token_file;        /* the endpoint's own; empty: the plan's */
};
/* Returns: false if a label is invalid: it names no preset, or no port. */
bool scrape_plan_resolve(const struct scrape_plan *plan, const struct pool_spec_endpoint *endpoint,
                         struct scrape_request *out);

/* A hash of all that the request for an endpoint's page, and reading it, depend on: as long as it
 * is equal, a running scrape is also one of the newer plan. */
uint64_t scrape_request_hash(const struct scrape_plan *plan, const struct scrape_request *request);

/* Prints the plan for `sluice pick --check`, after "loads". `plan` NULL: loads are not scraped. */
void scrape_plan_print(const char *title, const struct scrape_plan *plan, struct buf *out);

#endif
