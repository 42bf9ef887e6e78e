/* What the two halves of the protobuf text format's parser share: fields and messages
 * (pbtxt.c), and scalars (pbtxt_scalar.c). Clauses are sections of protobuf's "Text Format
 * Language Specification". */
#ifndef SLUICE_CORE_BASE_DOC_PBTXT_H
#define SLUICE_CORE_BASE_DOC_PBTXT_H

#include "core/base/doc/build.h"

struct pbtxt_reader {
    const struct doc_source *source;
    const char *at;
    const char *end;
    unsigned line;
    unsigned depth;
};

/* Goes past white space and comments ("Whitespace and Comments"). */
void pbtxt_skip(struct pbtxt_reader *reader);
/* The next byte, '\0' at the end. */
char pbtxt_peek(const struct pbtxt_reader *reader);
/* Takes an identifier ("Identifiers"); empty when there is none. */
struct str pbtxt_take_ident(struct pbtxt_reader *reader);
/* Refuses what stands at the reader. Returns: ST_BAD_CONFIG with "expected WHAT, got …". */
enum status pbtxt_syntax_error(const struct pbtxt_reader *reader, const char *what);

/* Reads a string (adjacent ones are one), a number or a word ("Fields", ScalarValue). */
enum status pbtxt_read_scalar(struct pbtxt_reader *reader, struct doc_value **out);

#endif
