/* What the readers of a configuration share. Each reads one part of it; read.c calls
 * them. */
#ifndef SLUICE_SERVE_CONFIG_READ_H
#define SLUICE_SERVE_CONFIG_READ_H

#include "serve/config/config.h"

enum { BACKEND_NAME_MAX = 64 };
/* May a backend have this name, which is a part of a file's: [a-z0-9_-]+, at most
 * BACKEND_NAME_MAX? */
bool backend_name_is_valid(struct str name);

/* A field of text, copied; left alone when absent. */
enum status config_read_text(struct arena *arena, const struct doc_node *parent, const char *key,
                             struct str *out, struct error *err)
    __attribute__((warn_unused_result));
/* A list of whole numbers from `min` on. */
enum status config_read_numbers(struct arena *arena, const struct doc_node *node, int64_t min,
                                const uint64_t **out, size_t *n, struct error *err)
    __attribute__((warn_unused_result));
/* A whole number from 0 on; left alone when absent. */
enum status config_read_count(const struct doc_node *parent, const char *key, uint64_t *out,
                              struct error *err) __attribute__((warn_unused_result));
enum status config_no_memory(struct error *err);

/* `data_type`; left alone when absent or TYPE_INVALID. */
enum status config_read_datatype(const struct doc_node *parent, enum datatype *out,
                                 struct error *err) __attribute__((warn_unused_result));
/* dynamic_batching */
enum status config_read_batching(struct arena *arena, const struct doc_node *root,
                                 struct model_config *out, struct error *err)
    __attribute__((warn_unused_result));
/* sequence_batching; after dynamic_batching, which excludes it */
enum status config_read_sequences(struct arena *arena, const struct doc_node *root,
                                  struct model_config *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
