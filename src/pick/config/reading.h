/* What the files that read the configuration of pools share: each pool's spec as it grows, and
 * readers of the values that come again and again. For reading*.c and
 * pick/discovery/file/pool_file.c only.
 *
 * Every reader refuses with the file, the line and the path of the value, what was expected and
 * what is there. Texts are copied into the spec. */
#ifndef SLUICE_PICK_CONFIG_READING_H
#define SLUICE_PICK_CONFIG_READING_H

#include "core/base/doc/doc.h"
#include "pick/pool/set.h"

enum { READING_MOST_PORTS = 8, READING_MOST_TARGETS = 100, READING_NAME_BYTES = 256 };
enum { READING_MOST_WAITING = 10000000, READING_MOST_BANDS = 64, READING_MOST_PATH = 1024 };
static const uint64_t READING_LEAST_BYTES = UINT64_C(1) << 16;
static const uint64_t READING_MOST_BYTES = UINT64_C(1) << 40;

/* Names that may be there once, and their lines. */
struct reading_named {
    struct str name;
    unsigned line;
};

struct reading_names {
    struct reading_named *items;
    size_t n, cap;
};

struct reading_ports {
    uint16_t items[READING_MOST_PORTS];
    size_t n;
};

enum reading_unknown { UNKNOWN_UNSAID, UNKNOWN_REFUSE, UNKNOWN_PASS };

/* Of one pool. */
struct reading {
    const char *file;
    struct pool_spec *spec;
    struct arena *arena;         /* the file's: lives while it is read */
    struct reading_ports ports;  /* of addresses without one */
    bool has_models;             /* a list of models, even an empty one */
    bool has_pool;               /* an InferencePool */
    bool has_profile;            /* of its own */
    bool limits_said, flow_said; /* in `saturation`, in `flow_control` */
    bool metrics_said;           /* by somebody, not as our usual */
    unsigned line;               /* of its item in the list of pools; 0: there is no list */
    enum reading_unknown unknown;
    struct reading_names endpoints, models, split, objectives, rewrites; /* split: with targets */
};

/* Of the whole file: a reading for each pool. */
struct reading_file {
    const char *name;
    struct arena *arena;
    struct reading *items; /* in the file's order; without a list there is one */
    size_t n;
    struct reading **by_name; /* sorted; NULL without a list */
    bool has_own;             /* a document without `kind` */
};

/* ---- values (reading.c) ---------------------------------------------------------------------- */

/* A name: 1 to 256 bytes without control characters. It must be there. */
enum status reading_name(struct reading *reading, const struct doc_node *node, struct str *out,
                         struct error *err) __attribute__((warn_unused_result));
/* As num_parse_duration_ns: text with a unit, or a number of seconds. An absent one changes
 * nothing. */
enum status reading_duration(const struct doc_node *node, uint64_t min_ns, uint64_t max_ns,
                             uint64_t *out, struct error *err) __attribute__((warn_unused_result));
/* A number from `min`, which is not below 0, to `max`. An absent one changes nothing. */
enum status reading_unsigned(const struct doc_node *node, int64_t min, int64_t max, uint64_t *out,
                             struct error *err) __attribute__((warn_unused_result));
/* One of `words` (ending with NULL), as its index. An absent one changes nothing. */
enum status reading_word(const struct doc_node *node, const char *const *words, unsigned *out,
                         struct error *err) __attribute__((warn_unused_result));
/* A path of visible ASCII that begins with /, as it goes into a request. An absent one changes
 * nothing. */
enum status reading_path(struct reading *reading, const struct doc_node *node, struct str *out,
                         struct error *err) __attribute__((warn_unused_result));
/* A port from 1 to 65535. An absent one changes nothing. */
enum status reading_port(const struct doc_node *node, uint16_t *out, struct error *err)
    __attribute__((warn_unused_result));
/* A list of such. An absent one changes nothing. */
enum status reading_port_list(const struct doc_node *list, struct reading_ports *out,
                              struct error *err) __attribute__((warn_unused_result));
/* The name of a header, in lower case. An absent one changes nothing. */
enum status reading_header(struct reading *reading, const struct doc_node *node, struct str *out,
                           struct error *err) __attribute__((warn_unused_result));
/* An object of texts. An absent one is empty. */
enum status reading_labels(struct reading *reading, const struct doc_node *node,
                           struct pool_labels *out, struct error *err)
    __attribute__((warn_unused_result));
/* A list of {`key`: NAME, weight: N}: a weight for all of them or for none. */
enum status reading_targets(struct reading *reading, const struct doc_node *list, const char *key,
                            struct pool_targets *out, struct error *err)
    __attribute__((warn_unused_result));

/* Remembers that `name` stands at `node`. */
enum status reading_note(struct reading *reading, struct reading_names *names, struct str name,
                         const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));
/* Sorts them. Refuses one that is there twice; `what` is "model". */
enum status reading_check_once(const struct reading *reading, struct reading_names *names,
                               const char *what, struct error *err)
    __attribute__((warn_unused_result));
/* Refuses a name that is in both, which are sorted. */
enum status reading_check_apart(const struct reading *reading, const struct reading_names *models,
                                const struct reading_names *rewrites, struct error *err)
    __attribute__((warn_unused_result));
enum status reading_no_memory(const struct reading *reading, struct error *err);

/* ---- sections -------------------------------------------------------------------------------- */

/* reading_endpoints.c: the members `endpoints`, `ports`, `selector` of `node`. */
enum status reading_endpoints(struct reading *reading, const struct doc_node *node,
                              struct error *err) __attribute__((warn_unused_result));

/* reading_dns.c: an endpoint that is a name ("NAME:PORT", or a name alone), with its own ports, of
 * which there may be none, and the kind of records. Returns: ST_BAD_CONFIG with what an address may
 * look like when `text` is neither. */
enum status reading_name_endpoint(struct reading *reading, const struct doc_node *node,
                                  struct str text, struct pool_labels labels,
                                  const struct reading_ports *own, const struct doc_node *type,
                                  struct error *err) __attribute__((warn_unused_result));
/* The member `dns` of `node`. */
enum status reading_dns(struct reading *reading, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* reading_models.c: the members `models`, `unknown_models`, `objectives`, `rewrites`. */
enum status reading_models(struct reading *reading, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));
/* One of each; what is noted, and refused when it comes twice, is what requests name. */
enum status reading_add_model(struct reading *reading, const struct doc_node *node,
                              const struct pool_model *model, struct error *err)
    __attribute__((warn_unused_result));
enum status reading_add_objective(struct reading *reading, const struct doc_node *node,
                                  struct str name, const struct doc_node *priority,
                                  struct error *err) __attribute__((warn_unused_result));
enum status reading_criticality(const struct doc_node *node, enum pool_criticality *out,
                                struct error *err) __attribute__((warn_unused_result));

/* reading_flow.c: the members `saturation`, `flow_control`. */
enum status reading_flow(struct reading *reading, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* reading_settings.c: these, and the members `health`, `refused_for`, `protocol`. */
enum status reading_settings(struct reading *reading, const struct doc_node *node,
                             struct error *err) __attribute__((warn_unused_result));

/* reading_profile.c: the members `plugins` and `schedulingProfiles` of `node`. */
enum status reading_profile(struct reading *reading, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* reading_picker.c: the other members of an EndpointPickerConfig. */
enum status reading_picker(struct reading *reading, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* reading_metrics.c: the member `metrics`, behind the endpoints. */
enum status reading_metrics(struct reading *reading, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));

/* reading_pools.c: makes a reading for each item of `pools` of `node`, with its name and match; for
 * an absent one there is one reading, of a pool for all. Texts are of their specs. */
enum status reading_pools(struct reading_file *file, const struct doc_node *node, struct error *err)
    __attribute__((warn_unused_result));
/* Returns: NULL when there is no pool of this name in the list. */
struct reading *reading_pools_find(const struct reading_file *file, struct str name);
/* Refuses two that take the same requests. */
enum status reading_pools_check(const struct reading_file *file, const struct pool_specs *specs,
                                struct error *err) __attribute__((warn_unused_result));
/* Puts the pool's name behind the sentence, where there is a list. Returns: err->status. */
enum status reading_pools_blame(const struct reading *reading, struct error *err);

/* reading_object.c: objects of the API. */
/* Is it one, by its `kind`? */
bool reading_is_object(const struct doc_node *node);
/* Reads an InferencePool (`pools`) or all others, for the pool that it is or that it refers to;
 * what it is not to read it leaves alone. */
enum status reading_object(struct reading_file *file, const struct doc_node *node, bool pools,
                           struct error *err) __attribute__((warn_unused_result));
/* Reads one of this kind ("InferenceModel") that is known to be for this pool. What a rewrite that
 * is refused has added already stays. */
enum status reading_object_of_kind(struct reading *reading, const char *kind,
                                   const struct doc_node *object, struct error *err)
    __attribute__((warn_unused_result));

#endif
