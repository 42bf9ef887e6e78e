/* The tree of an expression. Internal to codec/cel. */
#ifndef SLUICE_CODEC_CEL_CEL_PROGRAM_H
#define SLUICE_CODEC_CEL_CEL_PROGRAM_H

#include "codec/cel/cel.h"

enum cel_op {
    CEL_LITERAL,
    CEL_VARIABLE,
    CEL_SELECT, /* the member `name` of the first operand */
    CEL_HAS,    /* whether there is one */
    CEL_INDEX,
    CEL_NOT,
    CEL_NEGATE,
    CEL_MULTIPLY,
    CEL_DIVIDE,
    CEL_MODULO,
    CEL_ADD,
    CEL_SUBTRACT,
    CEL_LESS,
    CEL_LESS_EQUAL,
    CEL_GREATER,
    CEL_GREATER_EQUAL,
    CEL_EQUAL,
    CEL_NOT_EQUAL,
    CEL_IN,
    CEL_AND,
    CEL_OR,
    CEL_CONDITIONAL,
    CEL_TO_INT,
    CEL_TO_UINT,
    CEL_TO_DOUBLE,
    CEL_TO_BOOL,
    CEL_TO_STRING,
    CEL_TO_DYN,
    CEL_SIZE,
    CEL_CONTAINS,
    CEL_STARTS_WITH,
    CEL_ENDS_WITH,
};

struct cel_node {
    enum cel_op op;
    enum cel_type type; /* of its value */
    struct str name;    /* CEL_SELECT, CEL_HAS; of an operator: for messages */
    struct cel_value literal;
    const struct cel_node *operands[3];
    int n_operands;
};

struct cel_program {
    const struct cel_node *root;
};

/* Whether values of these types have the operation, and the type of its value; a CEL_DYN may be of
 * any type. `types` are those of its operands. */
bool cel_type_of(enum cel_op op, const enum cel_type *types, enum cel_type *out);

#endif
