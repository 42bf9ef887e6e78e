/* What is read of a model server's metrics: which series, with which labels, what is made of
 * several of them, and what of an endpoint's load that is. Presets for the servers that people run,
 * and rules of one's own on top of one, or alone.
 *
 * A plan is part of a pool's spec: it is read with the file and never changes. It refuses to know
 * how a page is fetched.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_CONFIG_SCRAPE_RULES_H
#define SLUICE_PICK_CONFIG_SCRAPE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/str.h"
#include "pick/pool/spec.h"

/* Where a value goes (pick/pool/endpoint/load.h). */
enum scrape_metric {
    SCRAPE_WAITING,
    SCRAPE_RUNNING,
    SCRAPE_KV_CACHE,
    SCRAPE_KV_BLOCK_TOKENS,
    SCRAPE_KV_BLOCKS,
    SCRAPE_ADAPTERS, /* by its labels: max_lora, running_lora_adapters, waiting_lora_adapters */
    N_SCRAPE_METRICS,
};

/* What several series of one rule come to. */
enum scrape_combine {
    SCRAPE_SUM,
    SCRAPE_MAX,
    SCRAPE_NEWEST, /* by their timestamps; of adapters by their values. The later of equal ones */
};

struct scrape_rule {
    enum scrape_metric into;
    enum scrape_combine combine;
    struct str series;
    struct pool_labels labels; /* only series that have all of these */
    struct str value_label;    /* the value stands in this label; empty: it is the sample's */
    bool rate;                 /* a counter: by how much it grows in a second */
    double factor;             /* the value is multiplied by this; 0: it is not */
};

enum { SCRAPE_MAX_RULES = 16 };

/* Of several rules into one place the first counts that the page has a series for. */
struct scrape_rules {
    struct scrape_rule items[SCRAPE_MAX_RULES];
    size_t n;
    struct str series[SCRAPE_MAX_RULES]; /* the names, each once */
    size_t n_series;
};

struct scrape_preset {
    const char *name;
    const char *path;
    uint16_t port; /* 0: the endpoint's own */
    const struct scrape_rule *rules;
    size_t n_rules;
};

enum { N_SCRAPE_PRESETS = 6 };
extern const struct scrape_preset SCRAPE_PRESETS[N_SCRAPE_PRESETS];
/* The names of presets and of places, ending with NULL. */
extern const char *const SCRAPE_PRESET_NAMES[N_SCRAPE_PRESETS + 1];
extern const char *const SCRAPE_METRIC_NAMES[N_SCRAPE_METRICS + 1];
extern const char *const SCRAPE_COMBINE_NAMES[];

/* Rules, and where they are asked for. */
struct scrape_source {
    struct scrape_rules rules;
    struct str path;
    uint16_t port; /* 0: the endpoint's own */
};

struct scrape_plan {
    struct str preset;           /* its name; empty: none */
    struct scrape_source source; /* of endpoints without the label below */
    struct str preset_label;     /* an endpoint's label that names its preset; empty: none does */
    bool by_engine; /* else its labels of upstream's pickers do: "llm-d.ai/engine-type" */
    struct scrape_source *presets; /* of all presets; NULL without either */
    struct str token_file_label;   /* an endpoint's label with its token's file; empty: none has */
    struct str port_label;         /* an endpoint's label with its port; empty: none has */
    bool https;
    struct str ca_file;        /* with https: whom to trust, NUL-terminated; empty: whom the system
                            does */
    bool insecure_skip_verify; /* with https: certificates are not verified */
    uint64_t interval_ns, timeout_ns;
    uint64_t max_age_ns; /* at least; longer where endpoints are asked less often */
    uint32_t most_per_second;
    size_t max_page_bytes;
    struct str token_file; /* NUL-terminated; empty: none */
};

/* What a plan is before its section is read: no rules. */
void scrape_plan_init(struct scrape_plan *plan);
/* Rules, path and port of a preset. */
void scrape_source_init(struct scrape_source *source, const struct scrape_preset *preset);
/* Makes plan->presets, if there are none. Returns: false when out of memory. */
bool scrape_plan_make_presets(struct scrape_plan *plan, struct arena *arena);
/* Does a label of upstream's say what it is? */
bool scrape_engine_is_known(struct pool_labels labels);
/* Takes the rules away that go where this one goes, and adds it. Returns: false when there are too
 * many. */
bool scrape_rules_replace(struct scrape_rules *rules, const struct scrape_rule *rule);

/* What is asked of an endpoint with these labels. */
struct scrape_request {
    const struct scrape_source *source;
    uint16_t port;
    struct str token_file; /* its own; empty: the plan's */
};
/* Returns: false when a label says something that can't be: no preset, no port. */
bool scrape_plan_resolve(const struct scrape_plan *plan, const struct pool_spec_endpoint *endpoint,
                         struct scrape_request *out);

/* What `sluice pick --check` says of it. NULL: that nothing is asked for. */
void scrape_plan_print(const struct scrape_plan *plan, struct buf *out);

#endif
