/* What the files share that read an EndpointPickerConfig, the upstream picker's configuration, but
 * for its plugins and profiles. For pool_config_read_picker_config*.c and profile.c only.
 *
 * What means the same here is taken over. What changes nothing has a note (pool_spec_add_note).
 * What somebody would rely on, and we don't do, is an error. */
#ifndef SLUICE_PICK_CONFIG_PICKER_CONFIG_H
#define SLUICE_PICK_CONFIG_PICKER_CONFIG_H

#include "pick/config/reader.h"

struct picker_config_reader {
    struct pool_config_reader *reader;
    const struct doc_node *node; /* the document */
    bool flow_control;           /* its gate is open */
};

/* A kind of plugin that has no place in a profile: what others of the file refer to. */
enum picker_plugin_kind {
    PICKER_PLUGIN_HANDLER,
    PICKER_PLUGIN_DETECTOR,
    PICKER_PLUGIN_FAIRNESS,
    PICKER_PLUGIN_ORDERING,
    PICKER_PLUGIN_LIMIT,
    PICKER_PLUGIN_DATA,
    PICKER_PLUGIN_PARSER,
    PICKER_PLUGIN_PRODUCER,
};

struct picker_plugin_type {
    const char *type;
    enum picker_plugin_kind kind;
    const char *note; /* what is otherwise where it is named; NULL: nothing */
};

extern const struct picker_plugin_type PICKER_PLUGIN_TYPES[];
extern const size_t N_PICKER_PLUGIN_TYPES;
/* Returns: NULL when there is none of this type. */
const struct picker_plugin_type *picker_plugin_type_find(struct str type);

/* An item of the document's `plugins`, where it stands: not to be moved. */
struct picker_plugin {
    struct doc_node list, item, parameters;
    const struct picker_plugin_type *part; /* NULL: it is of another kind */
};

/* Points `out` to the item of this name. Returns: false when there is none. */
bool picker_plugin_find_by_name(const struct picker_config_reader *self, struct str name,
                                struct picker_plugin *out);
/* Finds what `ref` names, which is to be of this kind; a part that nobody has written down goes by
 * its type, without parameters. */
enum status picker_plugin_find_by_ref(const struct picker_config_reader *self,
                                      const struct doc_node *ref, enum picker_plugin_kind kind,
                                      struct picker_plugin *out, struct error *err)
    __attribute__((warn_unused_result));

/* A time as Go writes it. An absent one changes nothing. */
enum status picker_config_read_duration(const struct doc_node *node, uint64_t max_ns, uint64_t *out,
                                        struct error *err) __attribute__((warn_unused_result));
/* Says of the setting at `node` why it is not, or not quite, what it is upstream. */
enum status picker_config_add_note(const struct picker_config_reader *self,
                                   const struct doc_node *node, const char *why, struct error *err)
    __attribute__((warn_unused_result));

/* picker_config_data_sources.c: plugins that say how loads are asked for. */
enum status picker_config_read_data_sources(const struct picker_config_reader *self,
                                            struct error *err) __attribute__((warn_unused_result));
/* picker_config_saturation_detector.c: `saturationDetector`, in both places. */
enum status picker_config_read_saturation_detector(const struct picker_config_reader *self,
                                                   struct error *err)
    __attribute__((warn_unused_result));
/* picker_config_flow_control.c: `flowControl`. */
enum status picker_config_read_flow_control(const struct picker_config_reader *self,
                                            struct error *err) __attribute__((warn_unused_result));

#endif
