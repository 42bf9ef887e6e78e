/* Paths of the API, as they stand in a URL. */
#include "pick/discovery/kube/client.h"

void kube_query_print(struct buf *out, struct str text) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '.' || c == '_' || c == '~';
        if (plain) {
            buf_add_char(out, text.ptr[i]);
        } else {
            buf_add_char(out, '%');
            buf_add_char(out, digits[c >> 4]);
            buf_add_char(out, digits[c & 15]);
        }
    }
}

static void add(struct buf *out, const char *segment) {
    buf_add_char(out, '/');
    kube_query_print(out, str_of(segment));
}

void kube_path_print(struct buf *out, const struct kube_resource *resource, const char *object,
                     const char *sub) {
    bool core = resource->group[0] == '\0';
    add(out, core ? "api" : "apis");
    if (!core) {
        add(out, resource->group);
    }
    add(out, resource->version);
    if (resource->name_space) {
        add(out, "namespaces");
        add(out, resource->name_space);
    }
    add(out, resource->name);
    if (object) {
        add(out, object);
    }
    if (sub) {
        add(out, sub);
    }
}
