/* Functions that the readers of a configuration share (read.c, read_batching.c). */
#ifndef SLUICE_SERVE_CONFIG_READ_H
#define SLUICE_SERVE_CONFIG_READ_H

#include "serve/config/config.h"

enum { BACKEND_NAME_MAX = 64 };
/* Returns: whether `name` can be a backend's name and part of its file name: [a-z0-9_-]+, at most
 * BACKEND_NAME_MAX bytes. */
bool backend_name_is_valid(struct str name);

/* Copies a text field; *out is unchanged when it is absent. */
enum status config_read_text(struct arena *arena, const struct doc_node *parent, const char *key,
                             struct str *out, struct error *err) SLUICE_MUST_USE;
/* Reads a list of whole numbers that are at least `min`. */
enum status config_read_numbers(struct arena *arena, const struct doc_node *node, int64_t min,
                                const uint64_t **out, size_t *n, struct error *err) SLUICE_MUST_USE;
/* Reads a whole number >= 0; *out is unchanged when it is absent. */
enum status config_read_count(const struct doc_node *parent, const char *key, uint64_t *out,
                              struct error *err) SLUICE_MUST_USE;

/* Reads `data_type`; *out is unchanged when it is absent or TYPE_INVALID. */
enum status config_read_datatype(const struct doc_node *parent, enum datatype *out,
                                 struct error *err) SLUICE_MUST_USE;
/* dynamic_batching */
enum status config_read_batching(struct arena *arena, const struct doc_node *root,
                                 struct model_config *out, struct error *err) SLUICE_MUST_USE;
/* sequence_batching; call after config_read_batching, which excludes it */
enum status config_read_sequences(struct arena *arena, const struct doc_node *root,
                                  struct model_config *out, struct error *err) SLUICE_MUST_USE;

#endif
