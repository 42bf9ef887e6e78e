/* The plugins of a document: declared once in its list `plugins`, and referred to by their names in
 * the profile and, in upstream's EndpointPickerConfig, elsewhere. And the readers of what an
 * EndpointPickerConfig has beside its profile. */
#ifndef SLUICE_PICK_CONFIG_PLUGIN_LIST_H
#define SLUICE_PICK_CONFIG_PLUGIN_LIST_H

#include "pick/config/reader.h"
#include "pick/pool/profile/detector.h"

enum { MOST_PLUGINS = 64 };

/* Kinds of upstream's plugins that can't be in a profile; other members of the document refer to
 * them. */
enum picker_plugin_kind {
    PICKER_PLUGIN_HANDLER,
    PICKER_PLUGIN_PROFILE_HANDLER,
    PICKER_PLUGIN_DECIDER,
    PICKER_PLUGIN_TOPOLOGY,
    PICKER_PLUGIN_DETECTOR,
    PICKER_PLUGIN_FAIRNESS,
    PICKER_PLUGIN_ORDERING,
    PICKER_PLUGIN_LIMIT,
    PICKER_PLUGIN_DATA,
    PICKER_PLUGIN_DISCOVERY,
    PICKER_PLUGIN_SCREENER,
    PICKER_PLUGIN_PARSER,
    PICKER_PLUGIN_PRODUCER,
    PICKER_PLUGIN_REQUEST,
    PICKER_PLUGIN_REFUSED,
};

struct picker_plugin_type {
    const char *type;
    enum picker_plugin_kind kind;
    const char *note;                    /* how it differs from upstream; NULL: it does not */
    const struct doc_member *parameters; /* NULL: read by the code for what refers to the plugin */
    size_t parameters_size;              /* of the struct that they are read into */
};

/* Not to be moved: doc_node points to its parents. */
struct declared_plugin {
    struct doc_node item, parameters;
    struct str name;                       /* its type, where it has no name */
    const struct plugin *plugin;           /* of profiles; NULL: `type` is set */
    const struct picker_plugin_type *type; /* NULL: `plugin` is set. Both are of detectors */
    bool is_step;                          /* of a profile */
    bool is_unknown;                       /* there is no such type, or it is refused: reported */
    void *settings;                        /* its parameters, read; NULL: it has no table */
};

struct plugin_list {
    struct doc_node node;
    struct declared_plugin items[MOST_PLUGINS];
    size_t n;
};

/* Reads the members `plugins` and `schedulingProfiles` of `node` into `*list` (zeroed) and the
 * spec's profile. Without profiles all plugins make up one. `upstream`: the document is an
 * EndpointPickerConfig, whose plugins may be of every kind, others only steps and handlers. */
void pool_config_read_profile(struct doc_reader *reader, const struct doc_node *node, bool upstream,
                              struct plugin_list *list);
/* Returns: NULL if no plugin of the list has this name. */
const struct declared_plugin *plugin_list_find(const struct plugin_list *list, struct str name);

/* Returns: NULL if there is no such type. */
const struct picker_plugin_type *picker_plugin_type_find(struct str type);
/* Returns: the types of this kind, "a, b, c". */
struct str picker_plugin_types_of_kind(struct arena *arena, enum picker_plugin_kind kind);

/* ---- an EndpointPickerConfig ----------------------------------------------------------------- */

/* What a member of the document refers to: a declared plugin, or a type with its defaults. */
struct picker_plugin {
    const struct picker_plugin_type *type; /* NULL after an error */
    struct doc_node parameters;
    const void *settings; /* of a type with a table: its parameters */
};
/* Reads the name of a plugin of this kind, or its type. */
struct picker_plugin picker_plugin_of_ref(struct doc_reader *reader, const struct doc_node *ref,
                                          enum picker_plugin_kind kind);

/* The parameters of file-discovery. */
struct picker_file_discovery {
    struct str path;
    bool is_watched;
};
extern const struct doc_member PICKER_FILE_DISCOVERY[];

/* The parameters of plugins, `flowControl` and a band of it, for documentation. */
extern const struct doc_member PICKER_FLOW_CONTROL[], PICKER_BAND[], PICKER_STATIC_USAGE[],
    PICKER_HOLDBACK[], PICKER_SOFT_CEILING[], PICKER_PROGRAM_AWARE[], PICKER_EXTRACTOR[],
    PICKER_ENGINE[], PICKER_SOURCE[], PICKER_GPU_SOURCE[];

/* Upstream's parsers of request bodies, and their bits of pool_spec.parsers. */
struct picker_parser {
    const char *type;
    unsigned bit;
};
extern const struct picker_parser PICKER_PARSERS[];
extern const size_t N_PICKER_PARSERS;

/* limits.c: the pool's detector, with the settings of a plugin, NULL: the defaults, or the members
 * of `node`; notes are about `said`, or `node`. */
void picker_set_utilization(struct doc_reader *reader, const struct doc_node *said,
                            const struct utilization_settings *settings);
void picker_read_utilization(struct doc_reader *reader, const struct doc_node *node);
void picker_set_concurrency(struct doc_reader *reader, const struct concurrency_settings *settings);
/* Of the detectors that are filters: how old loads may be, and notes. */
void picker_check_detectors(struct doc_reader *reader, const struct plugin_list *plugins);
/* agent_identity.c: the plugin's parameters, and its effect. */
struct picker_agent_identity {
    struct protocol_headers additional;
};
extern const struct doc_member PICKER_AGENT_IDENTITY[];
void picker_read_agent_identity(struct doc_reader *reader, const struct doc_node *document);
/* reporter.c: the parameters of a request-attribute-reporter, and all of them. */
extern const struct doc_member PICKER_REPORTER[];
void picker_read_reporters(struct doc_reader *reader, const struct doc_node *document);
/* limits.c: the plugin probabilistic-admitter. */
extern const struct doc_member PICKER_ADMITTER[];
void picker_read_admitter(struct doc_reader *reader, const struct doc_node *document);
/* flow_control.c: the member `flowControl`. Without the feature gate it is checked, and has no
 * effect. */
void picker_read_flow_control(struct doc_reader *reader, const struct doc_node *document);
/* rollout.c: the parameters of a disaggregatedset-rollout-screener, and it becomes the pool's. */
extern const struct doc_member PICKER_ROLLOUT[];
void picker_read_rollout(struct doc_reader *reader);
/* data_sources.c: the parameters of plugins that scrape loads and attributes, and which of them
 * `sources`, which may be absent, puts together. */
void picker_read_data_sources(struct doc_reader *reader, const struct doc_node *sources);

#endif
