/* google.protobuf.Struct, in which proxies keep metadata: maps of values that nest. It is checked
 * once, with a bound on the nesting and without recursion, and read in place after that. For the
 * ext_proc*.c files only.
 *
 * struct.proto: Struct{fields 1: map<string, Value>}, ListValue{values 1: Value},
 * Value{null 1, number 2, string 3, bool 4, struct 5, list 6}. */
#ifndef SLUICE_CODEC_EXT_PROC_STRUCT_H
#define SLUICE_CODEC_EXT_PROC_STRUCT_H

#include "codec/ext_proc/request.h"
#include "core/base/buf.h"

/* What a message is; each says which of its fields are messages of which sort. */
enum ext_proc_node {
    EXT_PROC_NODE_IGNORED, /* a field that is not looked at */
    EXT_PROC_NODE_TEXT,
    EXT_PROC_NODE_METADATA,  /* Metadata{filter_metadata 1: map<string, Struct>} */
    EXT_PROC_NODE_NAMESPACE, /* an entry of that map */
    EXT_PROC_NODE_STRUCT,
    EXT_PROC_NODE_ENTRY, /* of the map in a Struct */
    EXT_PROC_NODE_VALUE,
    EXT_PROC_NODE_LIST,
};

enum {
    EXT_PROC_F_MAP_KEY = 1,
    EXT_PROC_F_MAP_VALUE = 2,
    EXT_PROC_F_FILTER_METADATA = 1, /* Metadata's filter_metadata */
    EXT_PROC_F_ENTRIES = 1,
    EXT_PROC_F_LIST_VALUES = 1,
    EXT_PROC_F_VALUE_STRING = 3,
    EXT_PROC_F_VALUE_STRUCT = 5,
    EXT_PROC_F_VALUE_LIST = 6,
};

/* Is it well formed, all of it, and nested at most EXT_PROC_MAX_DEPTH messages deep? Returns: as
 * ext_proc_request_decode; `what` is what the error calls it. */
enum status ext_proc_struct_check(struct str message, enum ext_proc_node node, const char *what,
                                  struct error *err) __attribute__((warn_unused_result));
/* Has the map<string, Struct> that is field `number` of `message` such an entry? */
bool ext_proc_struct_has(struct str message, uint32_t number, struct str space);
/* Looks into the map<string, Struct> that is field `number` of `message`. */
struct ext_proc_value ext_proc_struct_find(struct str message, uint32_t number, struct str space,
                                           struct str key);
/* Looks into the Struct of Structs `message`, as dynamic metadata is. */
struct ext_proc_value ext_proc_struct_find_nested(struct str message, struct str space,
                                                  struct str key);
/* Appends the map that ext_proc_struct_find looks into: entries of field `number`. `nested`: that
 * of a Struct of Structs. */
void ext_proc_struct_add(struct buf *out, uint32_t number, const struct ext_proc_namespace *spaces,
                         size_t n, bool nested);

#endif
