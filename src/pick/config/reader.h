/* Reading the configuration of pools: the reader of a pool, which fills its spec and keeps the
 * first error, readers of common values, and the sections. For the files of this folder,
 * pick/discovery/file/pool_file.c and the Kubernetes store.
 *
 * The readers are rows of tables (core/base/doc/reader.h). Each rejects a wrong value with the
 * file, the line and the path of the value, what was expected and what the file contains. Texts are
 * copied into the spec. */
#ifndef SLUICE_PICK_CONFIG_READER_H
#define SLUICE_PICK_CONFIG_READER_H

#include "core/base/doc/reader.h"
#include "pick/pool/set.h"

enum { POOL_CONFIG_MAX_PORTS = 8, POOL_CONFIG_MAX_TARGETS = 100, POOL_CONFIG_NAME_BYTES = 256 };
enum {
    POOL_CONFIG_MAX_WAITING = 10000000,
    POOL_CONFIG_MAX_BANDS = 64,
    POOL_CONFIG_MAX_MODEL_PATHS = 64,
    POOL_CONFIG_MAX_PATH = 1024
};
#define POOL_CONFIG_MIN_BYTES (INT64_C(1) << 16)
#define POOL_CONFIG_MAX_BYTES (INT64_C(1) << 40)
/* Nanoseconds. */
#define CONFIG_MS INT64_C(1000000)
#define CONFIG_S INT64_C(1000000000)
#define CONFIG_MINUTE INT64_C(60000000000)
#define CONFIG_HOUR INT64_C(3600000000000)

/* Names that must be unique, with their lines. */
struct pool_config_name {
    struct str name;
    unsigned line;
};

struct pool_config_names {
    struct pool_config_name *items;
    size_t n, cap;
};

struct pool_config_ports {
    uint16_t items[POOL_CONFIG_MAX_PORTS];
    size_t n;
};

enum pool_config_unknown_models {
    POOL_CONFIG_UNKNOWN_UNSET,
    POOL_CONFIG_UNKNOWN_REFUSE,
    POOL_CONFIG_UNKNOWN_PASS
};

struct plugin_list;
struct scrape_plan;

/* One pool. */
struct pool_config_reader {
    struct doc_reader doc; /* first, so that rows find the pool; its arena is the spec's */
    const char *file;
    struct pool_spec *spec;
    struct arena *arena;            /* the file's, freed when it has been read */
    struct pool_config_ports ports; /* for addresses without a port */
    bool has_models;                /* a list of models is given, even an empty one */
    bool has_pool;                  /* an InferencePool is given */
    bool has_profile;               /* a profile of its own is given */
    bool saturation_limits_given, flow_control_given; /* `saturation`, `flow_control` are given */
    bool load_age_given;                              /* by a detector: how old loads may be */
    bool metrics_given; /* by the file or by flags, not only by our defaults */
    bool has_programs;  /* a band has the plugin program-aware-fairness, with these parameters */
    struct program_rules programs;
    bool flow_control_gate; /* the EndpointPickerConfig has the feature gate flowControl */
    unsigned line;          /* of its item in `pools`; 0: the file has no such list */
    enum pool_config_unknown_models unknown;
    struct pool_config_names endpoints, models, objectives, rewrites;
    struct pool_config_names split; /* models with targets */
    struct plugin_list *plugins;    /* of the EndpointPickerConfig; NULL: none was read */
    struct scrape_plan *scrape;     /* the spec's, which may be changed until the file is read */
};

/* The whole file: a reader for each pool. */
struct pool_config_file {
    struct doc_reader doc; /* of the documents; its arena is `arena` */
    const char *name;
    struct arena *arena;
    struct pool_config_reader *items; /* in the file's order; one item if the file has no list */
    size_t n;
    struct pool_config_reader **by_name; /* sorted by name; NULL without a list */
    bool has_sluice_document;            /* it has a document without `kind` */
};

/* Prepares the reading into `spec`; errors go to `err`. */
void pool_config_reader_init(struct pool_config_reader *reader, const char *file,
                             struct pool_spec *spec, struct arena *arena, struct error *err);

/* The pool of the reader that a row gets. */
static inline struct pool_config_reader *pool_config_reader_of(struct doc_reader *reader) {
    return (struct pool_config_reader *)(void *)reader;
}

/* ---- values (reader.c) ----------------------------------------------------------------------- */

/* An absent value leaves `*out` unchanged, except where it is required. */

/* A struct str: a name of 1 to 256 bytes without control characters. The first requires it. */
doc_member_fn pool_config_read_name, pool_config_read_optional_name;
/* A struct str: a path of visible ASCII that begins with /, for use in a request; and one of at
 * most POOL_CONFIG_MAX_PATH bytes. */
doc_member_fn pool_config_read_path, pool_config_read_page_path;
/* A struct str: the name of a header, in lower case (settings.c). */
doc_member_fn pool_config_read_header;
/* Whether it is one. */
bool pool_config_is_header(struct str name);
/* A struct pool_config_ports. */
doc_member_fn pool_config_read_port_list;
/* A list of ports, of which `read_port` reads each; the one above is of numbers. */
typedef uint16_t pool_config_read_port(struct doc_reader *reader, const struct doc_node *item);
void pool_config_read_each_port(struct doc_reader *reader, const struct doc_node *list,
                                pool_config_read_port *read_port, struct pool_config_ports *ports);
/* Reads a port. Returns: 0 after an error. */
uint16_t pool_config_port(struct doc_reader *reader, const struct doc_node *node);
/* A struct pool_labels: an object of texts. If it is absent, there are none. */
doc_member_fn pool_config_read_labels;
/* A list of {`key`: NAME, weight: N}: every target has a weight, or none has. */
void pool_config_read_targets(struct doc_reader *reader, const struct doc_node *list,
                              const char *key, struct pool_targets *out);
/* A bool: `https` of `http` and `https` (metrics.c). */
doc_member_fn pool_config_read_https;
/* Sets the spec's plan for its loads to a new one. Returns: NULL after an error (metrics.c). */
struct scrape_plan *pool_config_new_scrape_plan(struct doc_reader *reader);
/* Adds a note on the member to the spec. */
void pool_config_add_note(struct doc_reader *reader, const struct doc_node *node, const char *why);
/* The names of enum pool_criticality. */
extern const char *const POOL_CONFIG_CRITICALITIES[];

/* Appends `name`, read at `node`, to `names`. */
void pool_config_add_name(struct pool_config_reader *reader, struct pool_config_names *names,
                          struct str name, const struct doc_node *node);
/* Sorts the names. Rejects a name that occurs twice; `what` is "model". */
void pool_config_check_unique(struct pool_config_reader *reader, struct pool_config_names *names,
                              const char *what);
/* Rejects a name that is in both lists, which are sorted. */
void pool_config_check_disjoint(struct pool_config_reader *reader,
                                const struct pool_config_names *models,
                                const struct pool_config_names *rewrites);

/* ---- sections -------------------------------------------------------------------------------- */

/* The settings of a pool: the members of a document, or of an item of `pools`, which are read into
 * the spec. In the order of their dependencies: ports before endpoints, endpoints before metrics,
 * whose labels are checked (settings.c). */
extern const struct doc_member POOL_CONFIG_SECTIONS[];

/* What POOL_CONFIG_FLOW_CONTROL is read into. */
struct pool_config_flow {
    struct pool_flow_control flow;
    struct flow_band_rules others; /* of priorities that are no `bands` */
};

/* The tables of those that have one, for documentation. */
extern const struct doc_member POOL_CONFIG_HEALTH[], POOL_CONFIG_SATURATION[],
    POOL_CONFIG_FLOW_CONTROL[], POOL_CONFIG_BAND[], POOL_CONFIG_USAGE_LIMIT[],
    POOL_CONFIG_OUTLIER_DETECTION[], POOL_CONFIG_METRICS[], POOL_CONFIG_DNS[],
    POOL_CONFIG_PROTOCOL[];

/* Rows of it in pools.c, models.c, limits.c, flow_control.c, metrics.c and profile.c. */
doc_member_fn pool_config_read_selector, pool_config_read_ports, pool_config_read_endpoints,
    pool_config_read_dns;
doc_member_fn pool_config_read_unknown_models, pool_config_read_models,
    pool_config_read_model_paths, pool_config_read_objectives, pool_config_read_rewrites;
doc_member_fn pool_config_read_saturation, pool_config_read_flow_control, pool_config_read_metrics;
doc_member_fn pool_config_read_profile_section;

/* models.c: add one of each kind. A name that requests use is recorded, so that
 * pool_config_check_unique finds a second one. */
void pool_config_add_model(struct pool_config_reader *reader, const struct doc_node *node,
                           const struct pool_model *model);
void pool_config_add_objective(struct pool_config_reader *reader, const struct doc_node *node,
                               struct str name, const struct doc_node *priority);
void pool_config_add_rewrite(struct pool_config_reader *reader, const struct pool_rewrite *rewrite);
/* The models that a rewrite is for. `read_one` reads the name of an item. Returns: its node. */
typedef struct doc_node pool_config_read_model(struct doc_reader *reader,
                                               const struct doc_node *item, struct str *name);
void pool_config_read_rewritten(struct doc_reader *reader, const struct doc_node *list,
                                pool_config_read_model *read_one, struct pool_rewrite *out);

/* picker_config.c: an EndpointPickerConfig, beside its `apiVersion` and `kind`. */
extern const struct doc_member POOL_CONFIG_PICKER[];
void pool_config_read_picker_config(struct pool_config_reader *reader, const struct doc_node *node);

/* ---- pools and objects ----------------------------------------------------------------------- */

/* pools.c: makes a reader for each item of `pools` of `node`, with its name and match; if `pools`
 * is absent, one reader of a pool for all requests. Texts are copied into the specs. The error is
 * the file's, here and below. */
void pool_config_read_pools(struct pool_config_file *file, const struct doc_node *node);
/* Returns: NULL if the list has no pool of this name. */
struct pool_config_reader *pool_config_find_pool(const struct pool_config_file *file,
                                                 struct str name);
/* Rejects two pools that match the same requests. */
enum status pool_config_check_pools(const struct pool_config_file *file,
                                    const struct pool_specs *specs,
                                    struct error *err) SLUICE_MUST_USE;
/* Makes the pool's error the file's. Appends the pool's name to the text if the file has a list. */
void pool_config_end_pool(struct pool_config_file *file, struct pool_config_reader *reader);

/* kube_objects.c: objects of the Kubernetes API. */
/* Does the document have a `kind`? */
bool pool_config_is_kube_object(const struct doc_node *node);
/* Reads the document if it is an InferencePool (`pools` true), or if it is any other object
 * (`pools` false), into the pool that it is or that it refers to. Other documents are skipped. */
void pool_config_read_kube_object(struct pool_config_file *file, const struct doc_node *node,
                                  bool pools);
/* Reads an object of this kind ("InferenceModel") that is known to belong to this pool. When a
 * rewrite is rejected, what it has added already stays. Returns: the reader's status. */
enum status pool_config_read_kube_object_of_kind(struct pool_config_reader *reader,
                                                 const char *kind,
                                                 const struct doc_node *object) SLUICE_MUST_USE;

#endif
