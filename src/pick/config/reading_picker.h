/* What the files share that read an EndpointPickerConfig, the upstream picker's configuration, but
 * for its plugins and profiles. For reading_picker*.c and reading_profile.c only.
 *
 * What means the same here is taken over. What changes nothing has a note (pool_spec_note). What
 * somebody would rely on, and we don't do, is an error. */
#ifndef SLUICE_PICK_CONFIG_READING_PICKER_H
#define SLUICE_PICK_CONFIG_READING_PICKER_H

#include "pick/config/reading.h"

struct picker_reading {
    struct reading *reading;
    const struct doc_node *node; /* the document */
    bool flow_control;           /* its gate is open */
};

/* A kind of plugin that has no place in a profile: what others of the file refer to. */
enum picker_part_kind {
    PART_HANDLER,
    PART_DETECTOR,
    PART_FAIRNESS,
    PART_ORDERING,
    PART_LIMIT,
    PART_DATA,
    PART_PARSER,
    PART_PRODUCER,
};

struct picker_part {
    const char *type;
    enum picker_part_kind kind;
    const char *note; /* what is otherwise where it is named; NULL: nothing */
};

extern const struct picker_part PICKER_PARTS[];
extern const size_t N_PICKER_PARTS;
/* Returns: NULL when there is none of this type. */
const struct picker_part *picker_part_find(struct str type);

/* An item of the document's `plugins`, where it stands: not to be moved. */
struct picker_plugin {
    struct doc_node list, item, parameters;
    const struct picker_part *part; /* NULL: it is of another kind */
};

/* Points `out` to the item of this name. Returns: false when there is none. */
bool picker_item_find(const struct picker_reading *self, struct str name,
                      struct picker_plugin *out);
/* Finds what `ref` names, which is to be of this kind; a part that nobody has written down goes by
 * its type, without parameters. */
enum status picker_plugin_find(const struct picker_reading *self, const struct doc_node *ref,
                               enum picker_part_kind kind, struct picker_plugin *out,
                               struct error *err) __attribute__((warn_unused_result));

/* A time as Go writes it. An absent one changes nothing. */
enum status picker_read_time(const struct doc_node *node, uint64_t max_ns, uint64_t *out,
                             struct error *err) __attribute__((warn_unused_result));
/* Says of the setting at `node` why it is not, or not quite, what it is upstream. */
enum status picker_note(const struct picker_reading *self, const struct doc_node *node,
                        const char *why, struct error *err) __attribute__((warn_unused_result));

/* reading_picker_data.c: plugins that say how loads are asked for. */
enum status picker_read_data(const struct picker_reading *self, struct error *err)
    __attribute__((warn_unused_result));
/* reading_picker_detector.c: `saturationDetector`, in both places. */
enum status picker_read_detector(const struct picker_reading *self, struct error *err)
    __attribute__((warn_unused_result));
/* reading_picker_flow.c: `flowControl`. */
enum status picker_read_flow(const struct picker_reading *self, struct error *err)
    __attribute__((warn_unused_result));

#endif
