/* The attribute of endpoints that a plugin reads, as its parameters name it.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PROFILE_ATTRIBUTE_USER_H
#define SLUICE_PICK_POOL_PROFILE_ATTRIBUTE_USER_H

#include "pick/pool/profile/plugin.h"

/* First in the parameters of its plugins. */
struct attribute_user {
    struct attribute_key key;
    uint32_t index; /* among those of the profile */
};

/* `check` of the row of the attribute's name, which is in user->key.name: it is required. And the
 * reader of the row `producer`, after it, whose `out` is the user: by default it is the
 * core-metrics-extractor. */
void attribute_user_check_name(struct doc_reader *reader, const struct doc_node *node, void *user);
void attribute_user_read_producer(struct doc_reader *reader, const struct doc_node *node,
                                  void *user);
/* `add_needs` of its plugins. */
enum status attribute_user_add_needs(void *user, struct pool_request_needs *needs,
                                     struct error *err) SLUICE_MUST_USE;

#endif
