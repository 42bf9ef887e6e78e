/* What the readers of a configuration share. Each reads one part of it; config_read.c calls
 * them. */
#ifndef SLUICE_MODEL_CONFIG_READ_H
#define SLUICE_MODEL_CONFIG_READ_H

#include "model/config.h"

/* A field of text, copied; left alone when absent. */
enum status config_read_text(struct arena *arena, const struct doc_node *parent, const char *key,
                             struct str *out, struct error *err)
    __attribute__((warn_unused_result));
/* A name of a file inside a directory: relative, without "..". */
enum status config_read_filename(struct arena *arena, const struct doc_node *parent,
                                 const char *key, struct str *out, struct error *err)
    __attribute__((warn_unused_result));
/* A list of whole numbers from `min` on. */
enum status config_read_numbers(struct arena *arena, const struct doc_node *node, int64_t min,
                                const uint64_t **out, size_t *n, struct error *err)
    __attribute__((warn_unused_result));
enum status config_no_memory(struct error *err);

/* config_tensor.c */
enum status config_read_tensors(struct arena *arena, const struct doc_node *root,
                                struct model_config *out, struct error *err)
    __attribute__((warn_unused_result));
/* config_param.c */
enum status config_read_params(struct arena *arena, const struct doc_node *root,
                               struct model_config *out, struct error *err)
    __attribute__((warn_unused_result));
/* config_serving.c: version_policy, instance_group, dynamic_batching; and parameters */
enum status config_read_serving(struct arena *arena, const struct doc_node *root,
                                struct model_config *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
