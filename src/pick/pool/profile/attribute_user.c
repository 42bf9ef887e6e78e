/* Names of attributes. */
#include "pick/pool/profile/attribute_user.h"

#include <string.h>

static const char DEFAULT_PRODUCER[] = "core-metrics-extractor";
enum { MOST_NAME_BYTES = 256 };

void attribute_user_check_name(struct doc_reader *reader, const struct doc_node *node, void *user) {
    const struct attribute_user *own = user;
    if (own->key.name.len == 0 || own->key.name.len > MOST_NAME_BYTES) {
        doc_reader_fail(reader, node, "expected the name of an attribute, of %d bytes at most",
                        MOST_NAME_BYTES);
    }
}

/* As upstream: NAME/PRODUCER in one text was an older form, which names no attribute now. */
void attribute_user_read_producer(struct doc_reader *reader, const struct doc_node *node,
                                  void *user) {
    struct attribute_user *own = user;
    if (doc_is_present(node)) {
        doc_reader_text(reader, node, &own->key.producer);
    } else if (own->key.name.len > 0 && memchr(own->key.name.ptr, '/', own->key.name.len)) {
        doc_reader_fail(reader, node,
                        "\"%.*s\" is the name of an attribute with a \"/\": expected `producer` "
                        "beside it",
                        STR_ARG(own->key.name));
    } else {
        own->key.producer = str_of(DEFAULT_PRODUCER);
    }
}

enum status attribute_user_add_needs(void *user, struct pool_request_needs *needs,
                                     struct error *err) {
    struct attribute_user *own = user;
    return pool_needs_use_attribute(needs, &own->key, &own->index, err);
}
