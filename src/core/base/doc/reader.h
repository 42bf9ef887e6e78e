/* Reads the objects of a document (doc.h) and keeps the first error, as core/base/buf.h and
 * json_writer.h do: after it nothing more is read, outputs keep their values, and the caller looks
 * at `status` once, at the end. Members that are absent leave their output alone, so that a default
 * is what the caller set before, by hand or from the table (doc_reader_presets).
 *
 * The members of an object are a table, a row each; the last row is zero. A row names the member,
 * how it is read, its bounds, and the field of a C struct that receives it. doc_reader_object first
 * rejects members that have no row, then reads the rows in the order of the table.
 *
 *     static const struct doc_member LIMITS[] = {
 *         {"threshold", MEMBER_WHOLE(struct limits, n_waiting, 1, UINT32_MAX)},
 *         {"share", MEMBER_SHARE(struct limits, share, true), .check = check_share},
 *         {"profile", MEMBER_IGNORED("there are no profiles")},
 *         {0}};
 *     struct limits limits = {.n_waiting = 5};
 *     struct doc_reader reader = {.arena = arena, .what = "the limits", .err = err};
 *     doc_reader_object(&reader, &node, LIMITS, &limits);
 *     return reader.status;
 *
 * Thread: one at a time. */
#ifndef SLUICE_CORE_BASE_DOC_READER_H
#define SLUICE_CORE_BASE_DOC_READER_H

#include <stddef.h>

#include "core/base/doc/doc.h"

/* Errors beyond the first, for a check of a whole document: see doc_reader_begin_part. */
enum { DOC_MAX_ERRORS = 100 };
struct doc_errors {
    struct arena *arena; /* receives the texts */
    struct str items[DOC_MAX_ERRORS];
    size_t n; /* further errors are not collected */
};

struct doc_reader {
    struct arena *arena; /* receives copies of texts, and lists; the results live as long */
    const char *what;    /* what is read, for the text "out of memory for …" */
    /* Receives members of MEMBER_IGNORED that are not at their default value, and members with a
     * note; NULL: they are accepted silently. */
    void (*on_ignored)(struct doc_reader *reader, const struct doc_node *node, const char *why);
    struct error *err;
    enum status status;           /* ST_OK until the first error */
    const struct doc_member *row; /* of the member, when its `read` is called */
    struct doc_errors *errors;    /* collects all errors; NULL: reading ends with the first */
};

/* ---- the first error ------------------------------------------------------------------------- */

static inline bool doc_reader_ok(const struct doc_reader *reader) {
    return reader->status == ST_OK;
}
/* Reports an error at `node`, as doc_error. */
void doc_reader_fail(struct doc_reader *reader, const struct doc_node *node, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));
void doc_reader_no_memory(struct doc_reader *reader);
/* Returns: `n` zeroed items in the arena; NULL after an error. */
void *doc_reader_calloc(struct doc_reader *reader, size_t n, size_t size);

/* Where a value is, as the errors of its node begin: "config.pbtxt:4: input[1].dims". The text is
 * in the arena. */
struct str doc_reader_place(struct doc_reader *reader, const struct doc_node *node);

/* Where errors are collected, the functions between these two report those of a part of the
 * document on their own: an error before does not keep it from being read, and one in it does not
 * keep the next part. Each row of a table is such a part. Elsewhere they have no effect. `before`:
 * what doc_reader_begin_part returned. */
enum status doc_reader_begin_part(struct doc_reader *reader);
void doc_reader_end_part(struct doc_reader *reader, enum status before);

/* Copies a text into the arena, followed by a NUL; after an error it does nothing. */
void doc_reader_dup(struct doc_reader *reader, struct str text, struct str *out);
/* As doc_reader_dup, with ASCII's letters in lower case. */
void doc_reader_dup_lower(struct doc_reader *reader, struct str text, struct str *out);

/* ---- values ---------------------------------------------------------------------------------- */

/* As the readers of doc.h. */
void doc_reader_expect_object(struct doc_reader *reader, const struct doc_node *node);
void doc_reader_bool(struct doc_reader *reader, const struct doc_node *node, bool *out);
void doc_reader_i64(struct doc_reader *reader, const struct doc_node *node, int64_t min,
                    int64_t max, int64_t *out);
/* `min` is at least 0. */
void doc_reader_u64(struct doc_reader *reader, const struct doc_node *node, int64_t min,
                    int64_t max, uint64_t *out);
void doc_reader_f64(struct doc_reader *reader, const struct doc_node *node, double *out);
void doc_reader_share(struct doc_reader *reader, const struct doc_node *node, bool allow_zero,
                      double *out);
/* Nanoseconds: a text as num_parse_duration_ns reads it, or a number of seconds. */
void doc_reader_duration(struct doc_reader *reader, const struct doc_node *node, uint64_t min_ns,
                         uint64_t max_ns, uint64_t *out);
/* A view of the document's text. */
void doc_reader_view(struct doc_reader *reader, const struct doc_node *node, struct str *out);
/* A copy, which is a C string: a NUL byte is an error. */
void doc_reader_text(struct doc_reader *reader, const struct doc_node *node, struct str *out);
/* Prints the words, which end with NULL and are one at least, separated by commas, the last one by
 * `before_last`. The list is cut to `n_bytes`, with its NUL. */
void doc_words_print(char *out, size_t n_bytes, const char *const *words, const char *before_last);
/* One of `words`, which ends with NULL, as its index. `expected` is their list in the error text;
 * NULL: all of them. */
void doc_reader_word(struct doc_reader *reader, const struct doc_node *node,
                     const char *const *words, const char *expected, unsigned *out);

/* Allocates items for the elements of a list, zeroed. Returns: NULL, and 0 in *n, after an error;
 * doc_reader_next then has no elements either. */
void *doc_reader_list(struct doc_reader *reader, const struct doc_node *list, size_t size,
                      size_t *n);
/* As doc_next. Returns: false also after an error. */
bool doc_reader_next(const struct doc_reader *reader, const struct doc_node *list,
                     struct doc_node *item);
/* The same for elements that are parts each: where errors are collected it goes on after one. */
bool doc_reader_next_part(const struct doc_reader *reader, const struct doc_node *list,
                          struct doc_node *item);

/* ---- objects --------------------------------------------------------------------------------- */

/* Reads or checks a member. `node` is the member, absent where the object has none; its parent is
 * the object. */
typedef void doc_member_fn(struct doc_reader *reader, const struct doc_node *node, void *out);

enum doc_member_kind {
    DOC_MEMBER_CUSTOM, /* `read` reads it */
    DOC_MEMBER_BOOL,
    DOC_MEMBER_WHOLE,
    DOC_MEMBER_NUMBER,
    DOC_MEMBER_SHARE,
    DOC_MEMBER_DURATION,
    DOC_MEMBER_TEXT,
    DOC_MEMBER_WORD,
    DOC_MEMBER_OBJECT,
    DOC_MEMBER_IGNORED,      /* accepted: the result is the same without it */
    DOC_MEMBER_REFUSED,      /* an error: the result would be another one */
    DOC_MEMBER_REFUSED_TRUE, /* the same, when its value is true */
};

/* The type of a field that receives a number. */
enum doc_store {
    DOC_STORE_NONE, /* it is no number */
    DOC_STORE_BOOL,
    DOC_STORE_U16,
    DOC_STORE_U32,
    DOC_STORE_U64,
    DOC_STORE_I64,
    DOC_STORE_F32,
    DOC_STORE_F64,
};

/* Of the bounds of a number. */
enum doc_unit { DOC_UNIT_NONE, DOC_UNIT_NS, DOC_UNIT_BYTES };

struct doc_member {
    const char *name;
    enum doc_member_kind kind;
    enum doc_store store;
    size_t offset;                    /* of the field in the struct */
    int64_t min, max;                 /* of numbers; a share with `min` 0 may be 0 */
    bool above_min;                   /* of MEMBER_NUMBER: `min` itself is too small */
    double preset;                    /* of numbers: the value that doc_reader_presets sets */
    const char *const *words;         /* of MEMBER_WORD; the first is the default of an ignored or
                                         refused member that is an enum */
    const struct doc_member *members; /* of MEMBER_OBJECT; of MEMBER_CUSTOM for documentation */
    const char *text;     /* ignored and refused members: the reason; of words: their list for the
                             error text, or NULL; of MEMBER_NUMBER: the error text, or NULL */
    doc_member_fn *read;  /* of MEMBER_CUSTOM; `out` is the field */
    doc_member_fn *check; /* called when the value was read without an error, also where the object
                             has no such member; `out` is the struct. NULL: none */
    bool unused;          /* the value is checked, and no field receives it */
    const char *note;     /* why the member has less effect than it may seem: on_ignored gets it
                             where the member is there; where it is unused, only if it is not 0
                             either */
    /* For documentation: what the member is for; the values that it may have, before its bounds if
     * it has any, NULL: as the kind says; and the unit of the bounds. */
    const char *help, *form;
    enum doc_unit unit;
};

/* What follows the name in a row. `type` and `field` are the struct and its field, whose type must
 * be the one that the member needs: another one does not compile. */
#define MEMBER_BOOL(type, field)                                                                   \
    .kind = DOC_MEMBER_BOOL, .store = DOC_STORE_BOOL, .offset = DOC_MEMBER_OFFSET(type, field, bool)
/* A whole number from `least` to `most`, in a field of a type of enum doc_store that holds them. */
#define MEMBER_WHOLE(type, field, least, most)                                                     \
    .kind = DOC_MEMBER_WHOLE, DOC_MEMBER_FIELD(type, field), .min = (least), .max = (most)
/* Any number from `least` to `most`, in a double or a float. */
#define MEMBER_NUMBER(type, field, least, most)                                                    \
    .kind = DOC_MEMBER_NUMBER, DOC_MEMBER_FIELD(type, field), .min = (least), .max = (most)
/* As doc_read_share, in a double or a float. */
#define MEMBER_SHARE(type, field, allow_zero)                                                      \
    .kind = DOC_MEMBER_SHARE, DOC_MEMBER_FIELD(type, field), .min = (allow_zero) ? 0 : 1
/* As doc_reader_duration, in a uint64_t. */
#define MEMBER_DURATION(type, field, least, most)                                                  \
    .kind = DOC_MEMBER_DURATION, DOC_MEMBER_FIELD(type, field), .min = (int64_t)(least),           \
    .max = (int64_t)(most), .unit = DOC_UNIT_NS
/* As doc_reader_text. */
#define MEMBER_TEXT(type, field)                                                                   \
    .kind = DOC_MEMBER_TEXT, .offset = DOC_MEMBER_OFFSET(type, field, struct str)
/* As doc_reader_word, in an enum whose values are the indexes. */
#define MEMBER_WORD(type, field, list)                                                             \
    .kind = DOC_MEMBER_WORD, .offset = DOC_MEMBER_OFFSET(type, field, unsigned), .words = (list)
/* An object whose members go into the same struct; with an `.offset`, into a struct inside it. */
#define MEMBER_OBJECT(table) .kind = DOC_MEMBER_OBJECT, .members = (table)
/* Known, and read by the caller after doc_reader_object. */
#define MEMBER_BY_CALLER .kind = DOC_MEMBER_CUSTOM
/* Read by a function, whose `out` is the struct itself; or its field, a `value`. */
#define MEMBER_CUSTOM(function) .kind = DOC_MEMBER_CUSTOM, .read = (function)
#define MEMBER_CUSTOM_FIELD(type, field, value, function)                                          \
    .kind = DOC_MEMBER_CUSTOM, .offset = DOC_MEMBER_OFFSET(type, field, value), .read = (function)
/* The same of a field that is a number, which may have a preset. */
#define MEMBER_CUSTOM_NUMBER(type, field, function)                                                \
    .kind = DOC_MEMBER_CUSTOM, DOC_MEMBER_FIELD(type, field), .read = (function)
/* A number, or one of some words, that is checked and has no effect. */
#define MEMBER_UNUSED_NUMBER(least, most)                                                          \
    .kind = DOC_MEMBER_NUMBER, .store = DOC_STORE_F64, .unused = true, .min = (least), .max = (most)
#define MEMBER_UNUSED_WHOLE(least, most)                                                           \
    .kind = DOC_MEMBER_WHOLE, .store = DOC_STORE_I64, .unused = true, .min = (least), .max = (most)
#define MEMBER_UNUSED_WORD(list) .kind = DOC_MEMBER_WORD, .unused = true, .words = (list)
/* Members that have no effect here, with the reason. At its default value (null, false, 0, an empty
 * text or list) a member is accepted silently: a configuration that was printed in full contains
 * every member. */
#define MEMBER_IGNORED(why) .kind = DOC_MEMBER_IGNORED, .text = (why)
#define MEMBER_REFUSED(why) .kind = DOC_MEMBER_REFUSED, .text = (why)
#define MEMBER_REFUSED_TRUE(why) .kind = DOC_MEMBER_REFUSED_TRUE, .text = (why)

#define DOC_MEMBER_OFFSET(type, field, value)                                                      \
    (offsetof(type, field) + _Generic(((type *)0)->field, __typeof__(value) : (size_t)0))

#define DOC_MEMBER_FIELD(type, field)                                                              \
    .offset = offsetof(type, field), .store = _Generic(((type *)0)->field, bool                    \
                                                       : DOC_STORE_BOOL, uint16_t                  \
                                                       : DOC_STORE_U16, uint32_t                   \
                                                       : DOC_STORE_U32, uint64_t                   \
                                                       : DOC_STORE_U64, int64_t                    \
                                                       : DOC_STORE_I64, float                      \
                                                       : DOC_STORE_F32, double                     \
                                                       : DOC_STORE_F64)

enum { DOC_MAX_MEMBERS = 64 /* rows of a table, or of two for one object */ };
/* Reads an object into the struct `object`; an absent one leaves it alone. `object` may be NULL
 * where no row has a field. */
void doc_reader_object(struct doc_reader *reader, const struct doc_node *node,
                       const struct doc_member *members, void *object);
/* The two steps of it. Rejects members that are in neither table; `more` may be NULL. */
void doc_reader_reject_unknown(struct doc_reader *reader, const struct doc_node *node,
                               const struct doc_member *members, const struct doc_member *more);
/* Reads the rows. In an absent object all members are absent. */
void doc_reader_members(struct doc_reader *reader, const struct doc_node *node,
                        const struct doc_member *members, void *object);
/* A uint64_t: a duration as Go writes it, within the bounds of the row, whose `text` is the error
 * for one that is too short. For rows of MEMBER_CUSTOM_NUMBER. */
doc_member_fn doc_reader_go_duration;
/* Sets the fields that are numbers to the presets of their rows. */
void doc_reader_presets(const struct doc_member *members, void *object);
#endif
