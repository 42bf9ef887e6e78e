/* Reading the configuration of pools: each pool's spec while it is filled, readers of common values
 * and of the sections. For the files of this folder, pick/discovery/file/pool_file.c and the
 * Kubernetes store.
 *
 * Every reader rejects a wrong value with the file, the line and the path of the value, what was
 * expected and what the file contains. Texts are copied into the spec. */
#ifndef SLUICE_PICK_CONFIG_READER_H
#define SLUICE_PICK_CONFIG_READER_H

#include "core/base/doc/doc.h"
#include "pick/pool/set.h"

enum { POOL_CONFIG_MAX_PORTS = 8, POOL_CONFIG_MAX_TARGETS = 100, POOL_CONFIG_NAME_BYTES = 256 };
enum {
    POOL_CONFIG_MAX_WAITING = 10000000,
    POOL_CONFIG_MAX_BANDS = 64,
    POOL_CONFIG_MAX_MODEL_PATHS = 64,
    POOL_CONFIG_MAX_PATH = 1024
};
static const uint64_t POOL_CONFIG_MIN_BYTES = UINT64_C(1) << 16;
static const uint64_t POOL_CONFIG_MAX_BYTES = UINT64_C(1) << 40;

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

/* One pool. */
struct pool_config_reader {
    const char *file;
    struct pool_spec *spec;
    struct arena *arena;            /* the file's, freed when it has been read */
    struct pool_config_ports ports; /* for addresses without a port */
    bool has_models;                /* a list of models is given, even an empty one */
    bool has_pool;                  /* an InferencePool is given */
    bool has_profile;               /* a profile of its own is given */
    bool saturation_limits_given, flow_control_given; /* `saturation`, `flow_control` are given */
    bool metrics_given; /* by the file or by flags, not only by our defaults */
    unsigned line;      /* of its item in `pools`; 0: the file has no such list */
    enum pool_config_unknown_models unknown;
    struct pool_config_names endpoints, models, objectives, rewrites;
    struct pool_config_names split; /* models with targets */
};

/* The whole file: a reader for each pool. */
struct pool_config_file {
    const char *name;
    struct arena *arena;
    struct pool_config_reader *items; /* in the file's order; one item if the file has no list */
    size_t n;
    struct pool_config_reader **by_name; /* sorted by name; NULL without a list */
    bool has_sluice_document;            /* it has a document without `kind` */
};

/* ---- values (reader.c) ---------------------------------------------------------------------- */

/* A name of 1 to 256 bytes without control characters. It is required. */
enum status pool_config_read_name(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct str *out, struct error *err) SLUICE_MUST_USE;
/* As num_parse_duration_ns: text with a unit, or a number of seconds. An absent value leaves `*out`
 * unchanged, here and below. */
enum status pool_config_read_duration(const struct doc_node *node, uint64_t min_ns, uint64_t max_ns,
                                      uint64_t *out, struct error *err) SLUICE_MUST_USE;
/* A number from `min`, which is at least 0, to `max`. */
enum status pool_config_read_unsigned(const struct doc_node *node, int64_t min, int64_t max,
                                      uint64_t *out, struct error *err) SLUICE_MUST_USE;
/* One of `words` (ending with NULL), as its index. */
enum status pool_config_read_word(const struct doc_node *node, const char *const *words,
                                  unsigned *out, struct error *err) SLUICE_MUST_USE;
/* A path of visible ASCII that begins with /, for use in a request. */
enum status pool_config_read_path(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct str *out, struct error *err) SLUICE_MUST_USE;
/* A port from 1 to 65535. */
enum status pool_config_read_port(const struct doc_node *node, uint16_t *out,
                                  struct error *err) SLUICE_MUST_USE;
/* A list of ports. */
enum status pool_config_read_port_list(const struct doc_node *list, struct pool_config_ports *out,
                                       struct error *err) SLUICE_MUST_USE;
/* The name of a header, in lower case (settings.c). */
enum status pool_config_read_header(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct str *out, struct error *err) SLUICE_MUST_USE;
/* An object of texts. If it is absent, `*out` is empty. */
enum status pool_config_read_labels(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct pool_labels *out, struct error *err) SLUICE_MUST_USE;
/* A list of {`key`: NAME, weight: N}: every target has a weight, or none has. */
enum status pool_config_read_targets(struct pool_config_reader *reader, const struct doc_node *list,
                                     const char *key, struct pool_targets *out,
                                     struct error *err) SLUICE_MUST_USE;

/* Appends `name`, read at `node`, to `names`. */
enum status pool_config_add_name(struct pool_config_reader *reader, struct pool_config_names *names,
                                 struct str name, const struct doc_node *node,
                                 struct error *err) SLUICE_MUST_USE;
/* Sorts the names. Rejects a name that occurs twice; `what` is "model". */
enum status pool_config_check_unique(const struct pool_config_reader *reader,
                                     struct pool_config_names *names, const char *what,
                                     struct error *err) SLUICE_MUST_USE;
/* Rejects a name that is in both lists, which are sorted. */
enum status pool_config_check_disjoint(const struct pool_config_reader *reader,
                                       const struct pool_config_names *models,
                                       const struct pool_config_names *rewrites,
                                       struct error *err) SLUICE_MUST_USE;
enum status pool_config_no_memory(const struct pool_config_reader *reader, struct error *err);

/* ---- sections -------------------------------------------------------------------------------- */

/* pools.c: the members `endpoints`, `ports`, `selector` of `node`. */
enum status pool_config_read_endpoints(struct pool_config_reader *reader,
                                       const struct doc_node *node,
                                       struct error *err) SLUICE_MUST_USE;

/* pools.c: the member `dns` of `node`. */
enum status pool_config_read_dns(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) SLUICE_MUST_USE;

/* models.c: the members `models`, `unknown_models`, `model_paths`, `objectives`,
 * `rewrites`. */
enum status pool_config_read_models(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct error *err) SLUICE_MUST_USE;
/* Add one of each kind. A name that requests use is recorded, so that pool_config_check_unique
 * finds a second one. */
enum status pool_config_add_model(struct pool_config_reader *reader, const struct doc_node *node,
                                  const struct pool_model *model,
                                  struct error *err) SLUICE_MUST_USE;
enum status pool_config_add_objective(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct str name,
                                      const struct doc_node *priority,
                                      struct error *err) SLUICE_MUST_USE;
enum status pool_config_read_criticality(const struct doc_node *node, enum pool_criticality *out,
                                         struct error *err) SLUICE_MUST_USE;

/* settings.c: the members `health`, `saturation`, `flow_control`, `refused_for`,
 * `outlier_detection`, `protocol`. */
enum status pool_config_read_settings(struct pool_config_reader *reader,
                                      const struct doc_node *node,
                                      struct error *err) SLUICE_MUST_USE;

/* picker_config.c: the members `plugins` and `schedulingProfiles` of `node`. */
enum status pool_config_read_profile(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) SLUICE_MUST_USE;

/* picker_config.c: the other members of an EndpointPickerConfig. */
enum status pool_config_read_picker_config(struct pool_config_reader *reader,
                                           const struct doc_node *node,
                                           struct error *err) SLUICE_MUST_USE;

/* settings.c: the member `metrics`. The endpoints must have been read: their labels are checked. */
enum status pool_config_read_metrics(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) SLUICE_MUST_USE;

/* pools.c: makes a reader for each item of `pools` of `node`, with its name and match; if `pools`
 * is absent, one reader of a pool for all requests. Texts are copied into the specs. */
enum status pool_config_read_pools(struct pool_config_file *file, const struct doc_node *node,
                                   struct error *err) SLUICE_MUST_USE;
/* Returns: NULL if the list has no pool of this name. */
struct pool_config_reader *pool_config_find_pool(const struct pool_config_file *file,
                                                 struct str name);
/* Rejects two pools that match the same requests. */
enum status pool_config_check_pools(const struct pool_config_file *file,
                                    const struct pool_specs *specs,
                                    struct error *err) SLUICE_MUST_USE;
/* Appends the pool's name to the error text if the file has a list. Returns: err->status. */
enum status pool_config_error_add_pool(const struct pool_config_reader *reader, struct error *err);

/* kube_objects.c: objects of the Kubernetes API. */
/* Does the document have a `kind`? */
bool pool_config_is_kube_object(const struct doc_node *node);
/* Reads the document if it is an InferencePool (`pools` true), or if it is any other object
 * (`pools` false), into the pool that it is or that it refers to. Other documents are skipped. */
enum status pool_config_read_kube_object(struct pool_config_file *file, const struct doc_node *node,
                                         bool pools, struct error *err) SLUICE_MUST_USE;
/* Reads an object of this kind ("InferenceModel") that is known to belong to this pool. When a
 * rewrite is rejected, what it has added already stays. */
enum status pool_config_read_kube_object_of_kind(struct pool_config_reader *reader,
                                                 const char *kind, const struct doc_node *object,
                                                 struct error *err) SLUICE_MUST_USE;

#endif
