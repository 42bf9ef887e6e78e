/* What the readers of a configuration share (read.c, read_batching.c). */
#ifndef SLUICE_SERVE_CONFIG_READ_H
#define SLUICE_SERVE_CONFIG_READ_H

#include "core/base/doc/reader.h"
#include "serve/config/config.h"

enum { BACKEND_NAME_MAX = 64 };
/* Returns: whether `name` can be a backend's name and part of its file name: [a-z0-9_-]+, at most
 * BACKEND_NAME_MAX bytes. */
bool backend_name_is_valid(struct str name);

/* Logs a warning with file, line and path. */
void config_warn(const struct doc_node *node, const char *what);
/* Reads a list of whole numbers that are at least 1. */
void config_read_numbers(struct doc_reader *reader, const struct doc_node *list,
                         const uint64_t **out, size_t *n);

/* Functions of rows (MEMBER_CUSTOM). A name that is required, into a struct str: */
doc_member_fn config_read_name;
/* A datatype, into an enum datatype; it is unchanged where the value is TYPE_INVALID. */
doc_member_fn config_read_datatype;
/* dynamic_batching, into struct model_config. */
doc_member_fn config_read_batching;
/* sequence_batching, into struct model_config; call after dynamic_batching, which excludes it, and
 * the inputs. */
doc_member_fn config_read_sequences;

#endif
