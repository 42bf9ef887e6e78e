/* A document under construction, and the finished one: shared by doc.c, build.c and the parsers.
 * Other modules read documents through doc.h. */
#ifndef SLUICE_CORE_BASE_DOC_BUILD_H
#define SLUICE_CORE_BASE_DOC_BUILD_H

#include "core/base/doc/doc.h"

enum { DOC_MAX_DEPTH = 64, DOC_MAX_BYTES = 4 << 20 };

struct doc {
    enum doc_format format;
    yyjson_doc *tree;
    /* the line of each value (keys too), at its index in the tree, which is in preorder; NULL:
     * none */
    unsigned *lines;
    char *name;
};

enum doc_kind {
    DOC_NULL,
    DOC_BOOL,
    DOC_SINT, /* below 0 */
    DOC_UINT,
    DOC_REAL,
    DOC_STR,
    DOC_ARRAY,
    DOC_OBJECT,
};

struct doc_children {
    struct doc_value *first;
    struct doc_value *last;
    size_t n;
};

/* A value under construction; lives in the parser's arena. */
struct doc_value {
    struct doc_value *next; /* the next element or member in its parent */
    struct str key;         /* as a member of an object */
    unsigned key_line;
    unsigned line;
    enum doc_kind kind;
    union {
        bool boolean;
        int64_t sint;
        uint64_t uint;
        double real;
        struct str text;
        struct doc_children children;
    };
};

/* A parser's input. */
struct doc_source {
    const char *name;
    struct str text;
    struct arena *arena; /* of the values and their texts; freed when the tree is finished */
    struct error *err;
};

/* Returns: NULL when out of memory; the caller reports it with doc_no_memory. */
struct doc_value *doc_value_new(struct arena *arena, enum doc_kind kind, unsigned line);
void doc_value_append(struct doc_value *parent, struct doc_value *child);

/* Fills source->err with "NAME:LINE: text". Returns: ST_BAD_CONFIG. */
enum status doc_parse_error(const struct doc_source *source, unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fills source->err. Returns: ST_NO_MEMORY. */
enum status doc_no_memory(const struct doc_source *source);

/* The parsers: *root is the document's value. */
enum status doc_yaml_parse(const struct doc_source *source, bool multi, struct doc_value **root);
enum status doc_pbtxt_parse(const struct doc_source *source, struct doc_value **root);

/* Makes a document of a finished tree, without lines. Returns: ST_NO_MEMORY, as for a `tree` of
 * NULL. Owns: takes the tree, also on failure. */
enum status doc_of_tree(const char *name, yyjson_doc *tree, struct doc **out,
                        struct error *err) SLUICE_MUST_USE;

/* Copies the values into `doc`: its tree and its lines. */
enum status doc_build(const struct doc_source *source, const struct doc_value *root,
                      struct doc *doc);

#endif
