/* Configuration files. YAML, Triton's config.pbtxt (protobuf text format) and JSON are parsed into
 * the same tree (yyjson's). One set of typed readers reads it; their errors contain the file, the
 * line and the path of the value. What a value is, they ask core/base/json_value.h, as the reader
 * of requests (codec/json/tree.h) does, whose errors have no file and no line. Objects of more than
 * a few members are read by tables, with reader.h, which keeps the first error.
 *
 * In YAML, plain scalars become numbers, booleans, null or strings by YAML 1.2's core schema;
 * anchors and tags are errors. In the protobuf text format a field that is given once is a plain
 * value, and one that is given several times, or as a list, is an array: `doc_next` treats a single
 * value as an array of one, so that both read the same. Enum names are strings.
 *
 * With DOC_YAML_MULTI a YAML file may contain several documents: the root is then a list of
 * them. */
#ifndef SLUICE_CORE_BASE_DOC_DOC_H
#define SLUICE_CORE_BASE_DOC_DOC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum doc_format { DOC_YAML, DOC_YAML_MULTI, DOC_PBTXT, DOC_JSON };

struct doc; /* a parsed file: the tree, the line of each value, the file's name for messages */

/* Parses `text`. `name` is what messages call it ("models/digits/config.pbtxt"). Depth is limited
 * to 64 and the size to 4 MiB. Returns: ST_BAD_CONFIG with "NAME:LINE: …". Owns: *out until
 * doc_free. */
enum status doc_parse(enum doc_format format, const char *name, struct str text, struct doc **out,
                      struct error *err) SLUICE_MUST_USE;
/* Reads the file and parses it. Returns: also ST_IO. */
enum status doc_load(enum doc_format format, const char *path, struct doc **out,
                     struct error *err) SLUICE_MUST_USE;
/* Parses a peer's JSON of any size, whose depth was checked, such as the response of an API server.
 * The document has no lines; doc_reject_unknown accepts unknown members in it, as the server may be
 * newer than Sluice. Returns: ST_NO_MEMORY; ST_BAD_JSON with the reason. Owns: *out until
 * doc_free. */
enum status doc_parse_answer(const char *name, struct str text, struct doc **out,
                             struct error *err) SLUICE_MUST_USE;
void doc_free(struct doc *doc);

/* A value in the tree, with its path for messages ("input[1].dims"). A node is valid as long as the
 * doc and its parent node, to which it links. */
struct doc_node {
    const struct doc *doc;
    yyjson_val *val;               /* NULL: absent */
    const struct doc_node *parent; /* NULL at the root */
    const char *key;               /* member of an object, or NULL */
    size_t index;                  /* element of an array when key is NULL */
};

/* The root of the tree. */
struct doc_node doc_root(const struct doc *doc);
/* The member `key`; absent (val NULL) when there is none or `node` is absent. */
struct doc_node doc_get(const struct doc_node *node, const char *key);
bool doc_is_present(const struct doc_node *node); /* present and not null */
/* The type of the value; false when the node is absent. */
bool doc_is_text(const struct doc_node *node);
bool doc_is_whole(const struct doc_node *node); /* a number without point and exponent */
bool doc_is_list(const struct doc_node *node);
bool doc_is_object(const struct doc_node *node);
/* Number of elements: an array's, 1 for any other value, 0 when absent. */
size_t doc_count(const struct doc_node *node);
/* The element at `index`, below doc_count. */
struct doc_node doc_at(const struct doc_node *node, size_t index);
/* Iterates over the elements of a list (any other value is a list of one), in linear time: `*item`
 * is zeroed at first. Returns: false after the last; `*item` is then zeroed again. */
bool doc_next(const struct doc_node *list, struct doc_node *item);
/* The same for the members of an object, whose names are in item->key (a name with a NUL in it ends
 * there); anything else has none. */
bool doc_next_member(const struct doc_node *object, struct doc_node *item);
/* The line in the file, from 1; 0 where there are no lines. */
unsigned doc_line(const struct doc_node *node);
/* Enough for any place; longer ones are cut. */
enum { DOC_PLACE_BYTES = 128 };
/* Prints where the value was read, for messages to clients: the file's name without its path, and
 * the line unless the document is JSON, whose text may be a program's: "config.pbtxt, line 4".
 * Returns: `out`. */
const char *doc_place_print(const struct doc_node *node, char out[DOC_PLACE_BYTES]);

/* The readers of core/base/json_value.h with errors: each leaves *out alone when the node is
 * absent, and otherwise requires its type. Returns: ST_BAD_CONFIG with file, line, path, the
 * expected type and the value. */
enum status doc_read_bool(const struct doc_node *node, bool *out, struct error *err);
enum status doc_read_i64(const struct doc_node *node, int64_t min, int64_t max, int64_t *out,
                         struct error *err);
enum status doc_read_f64(const struct doc_node *node, double *out, struct error *err);
/* From 0 to 1; 0 itself only with `allow_zero`. */
enum status doc_read_share(const struct doc_node *node, bool allow_zero, double *out,
                           struct error *err);
/* The text is borrowed from the doc. */
enum status doc_read_str(const struct doc_node *node, struct str *out, struct error *err);
enum status doc_expect_object(const struct doc_node *node, struct error *err);

/* Reports a member of `node` that is not among `names` (ending with NULL): "NAME:LINE: unknown
 * field \"input[0].dim\"; did you mean \"dims\"?". */
enum status doc_reject_unknown(const struct doc_node *node, const char *const *names,
                               struct error *err);
/* The same for the members after `*member`, which was zeroed at first; it becomes the one that is
 * reported, or zeroed after the last. */
enum status doc_reject_unknown_after(const struct doc_node *node, const char *const *names,
                                     struct doc_node *member, struct error *err);
/* Copies some members of an object into a document without lines. `paths`, which ends with NULL,
 * has names of members and of members of members ("metadata/name"); absent ones are left out.
 * Returns: ST_NO_MEMORY. Owns: *out until doc_free. */
enum status doc_copy_members(const char *name, const struct doc_node *object,
                             const char *const *paths, struct doc **out,
                             struct error *err) SLUICE_MUST_USE;

/* Fills `err` with file, line, path and the formatted text. Returns: ST_BAD_CONFIG. */
enum status doc_error(const struct doc_node *node, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum status doc_errorv(const struct doc_node *node, struct error *err, const char *format,
                       va_list args) __attribute__((format(printf, 3, 0)));

#endif
