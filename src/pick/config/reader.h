/* What the files that read the configuration of pools share: each pool's spec as it grows, and
 * readers of the values that come again and again. For reading*.c and
 * pick/discovery/file/pool_file.c only.
 *
 * Every reader refuses with the file, the line and the path of the value, what was expected and
 * what is there. Texts are copied into the spec. */
#ifndef SLUICE_PICK_CONFIG_READER_H
#define SLUICE_PICK_CONFIG_READER_H

#include "core/base/doc/doc.h"
#include "pick/pool/set.h"

enum { POOL_CONFIG_MAX_PORTS = 8, POOL_CONFIG_MAX_TARGETS = 100, POOL_CONFIG_NAME_BYTES = 256 };
enum {
    POOL_CONFIG_MAX_WAITING = 10000000,
    POOL_CONFIG_MAX_BANDS = 64,
    POOL_CONFIG_MAX_PATH = 1024
};
static const uint64_t POOL_CONFIG_MIN_BYTES = UINT64_C(1) << 16;
static const uint64_t POOL_CONFIG_MAX_BYTES = UINT64_C(1) << 40;

/* Names that may be there once, and their lines. */
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

/* Of one pool. */
struct pool_config_reader {
    const char *file;
    struct pool_spec *spec;
    struct arena *arena;                              /* the file's: lives while it is read */
    struct pool_config_ports ports;                   /* of addresses without one */
    bool has_models;                                  /* a list of models, even an empty one */
    bool has_pool;                                    /* an InferencePool */
    bool has_profile;                                 /* of its own */
    bool saturation_limits_given, flow_control_given; /* in `saturation`, in `flow_control` */
    bool metrics_given;                               /* by somebody, not as our usual */
    unsigned line; /* of its item in the list of pools; 0: there is no list */
    enum pool_config_unknown_models unknown;
    struct pool_config_names endpoints, models, split, objectives, rewrites; /* split: with
                                                                                targets */
};

/* Of the whole file: a reading for each pool. */
struct pool_config_file {
    const char *name;
    struct arena *arena;
    struct pool_config_reader *items; /* in the file's order; without a list there is one */
    size_t n;
    struct pool_config_reader **by_name; /* sorted; NULL without a list */
    bool has_sluice_document;            /* a document without `kind` */
};

/* ---- values (reader.c) ---------------------------------------------------------------------- */

/* A name: 1 to 256 bytes without control characters. It must be there. */
enum status pool_config_read_name(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct str *out, struct error *err)
    __attribute__((warn_unused_result));
/* As num_parse_duration_ns: text with a unit, or a number of seconds. An absent one changes
 * nothing. */
enum status pool_config_read_duration(const struct doc_node *node, uint64_t min_ns, uint64_t max_ns,
                                      uint64_t *out, struct error *err)
    __attribute__((warn_unused_result));
/* A number from `min`, which is not below 0, to `max`. An absent one changes nothing. */
enum status pool_config_read_unsigned(const struct doc_node *node, int64_t min, int64_t max,
                                      uint64_t *out, struct error *err)
    __attribute__((warn_unused_result));
/* One of `words` (ending with NULL), as its index. An absent one changes nothing. */
enum status pool_config_read_word(const struct doc_node *node, const char *const *words,
                                  unsigned *out, struct error *err)
    __attribute__((warn_unused_result));
/* A path of visible ASCII that begins with /, as it goes into a request. An absent one changes
 * nothing. */
enum status pool_config_read_path(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct str *out, struct error *err)
    __attribute__((warn_unused_result));
/* A port from 1 to 65535. An absent one changes nothing. */
enum status pool_config_read_port(const struct doc_node *node, uint16_t *out, struct error *err)
    __attribute__((warn_unused_result));
/* A list of such. An absent one changes nothing. */
enum status pool_config_read_port_list(const struct doc_node *list, struct pool_config_ports *out,
                                       struct error *err) __attribute__((warn_unused_result));
/* The name of a header, in lower case. An absent one changes nothing. */
enum status pool_config_read_header(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct str *out, struct error *err)
    __attribute__((warn_unused_result));
/* An object of texts. An absent one is empty. */
enum status pool_config_read_labels(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct pool_labels *out, struct error *err)
    __attribute__((warn_unused_result));
/* A list of {`key`: NAME, weight: N}: a weight for all of them or for none. */
enum status pool_config_read_targets(struct pool_config_reader *reader, const struct doc_node *list,
                                     const char *key, struct pool_targets *out, struct error *err)
    __attribute__((warn_unused_result));

/* Remembers that `name` stands at `node`. */
enum status pool_config_add_name(struct pool_config_reader *reader, struct pool_config_names *names,
                                 struct str name, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));
/* Sorts them. Refuses one that is there twice; `what` is "model". */
enum status pool_config_check_unique(const struct pool_config_reader *reader,
                                     struct pool_config_names *names, const char *what,
                                     struct error *err) __attribute__((warn_unused_result));
/* Refuses a name that is in both, which are sorted. */
enum status pool_config_check_disjoint(const struct pool_config_reader *reader,
                                       const struct pool_config_names *models,
                                       const struct pool_config_names *rewrites, struct error *err)
    __attribute__((warn_unused_result));
enum status pool_config_no_memory(const struct pool_config_reader *reader, struct error *err);

/* ---- sections -------------------------------------------------------------------------------- */

/* endpoints.c: the members `endpoints`, `ports`, `selector` of `node`. */
enum status pool_config_read_endpoints(struct pool_config_reader *reader,
                                       const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* The member `dns` of `node`. */
enum status pool_config_read_dns(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) __attribute__((warn_unused_result));

/* models.c: the members `models`, `unknown_models`, `objectives`, `rewrites`. */
enum status pool_config_read_models(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct error *err) __attribute__((warn_unused_result));
/* One of each; what is noted, and refused when it comes twice, is what requests name. */
enum status pool_config_add_model(struct pool_config_reader *reader, const struct doc_node *node,
                                  const struct pool_model *model, struct error *err)
    __attribute__((warn_unused_result));
enum status pool_config_add_objective(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct str name,
                                      const struct doc_node *priority, struct error *err)
    __attribute__((warn_unused_result));
enum status pool_config_read_criticality(const struct doc_node *node, enum pool_criticality *out,
                                         struct error *err) __attribute__((warn_unused_result));

/* settings.c: these, and the members `health`, `refused_for`, `protocol`. */
enum status pool_config_read_settings(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* profile.c: the members `plugins` and `schedulingProfiles` of `node`. */
enum status pool_config_read_profile(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) __attribute__((warn_unused_result));

/* picker_config.c: the other members of an EndpointPickerConfig. */
enum status pool_config_read_picker_config(struct pool_config_reader *reader,
                                           const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* metrics.c: the member `metrics`, behind the endpoints. */
enum status pool_config_read_metrics(struct pool_config_reader *reader, const struct doc_node *node,
                                     struct error *err) __attribute__((warn_unused_result));

/* pools.c: makes a reading for each item of `pools` of `node`, with its name and match; for
 * an absent one there is one reading, of a pool for all. Texts are of their specs. */
enum status pool_config_read_pools(struct pool_config_file *file, const struct doc_node *node,
                                   struct error *err) __attribute__((warn_unused_result));
/* Returns: NULL when there is no pool of this name in the list. */
struct pool_config_reader *pool_config_find_pool(const struct pool_config_file *file,
                                                 struct str name);
/* Refuses two that take the same requests. */
enum status pool_config_check_pools(const struct pool_config_file *file,
                                    const struct pool_specs *specs, struct error *err)
    __attribute__((warn_unused_result));
/* Puts the pool's name behind the sentence, where there is a list. Returns: err->status. */
enum status pool_config_error_add_pool(const struct pool_config_reader *reader, struct error *err);

/* kube_objects.c: objects of the API. */
/* Is it one, by its `kind`? */
bool pool_config_is_kube_object(const struct doc_node *node);
/* Reads an InferencePool (`pools`) or all others, for the pool that it is or that it refers to;
 * what it is not to read it leaves alone. */
enum status pool_config_read_kube_object(struct pool_config_file *file, const struct doc_node *node,
                                         bool pools, struct error *err)
    __attribute__((warn_unused_result));
/* Reads one of this kind ("InferenceModel") that is known to be for this pool. What a rewrite that
 * is refused has added already stays. */
enum status pool_config_read_kube_object_of_kind(struct pool_config_reader *reader,
                                                 const char *kind, const struct doc_node *object,
                                                 struct error *err)
    __attribute__((warn_unused_result));

#endif
