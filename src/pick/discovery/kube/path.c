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

static void add_segment(struct buf *out, const char *segment) {
    buf_add_char(out, '/');
    kube_query_print(out, str_of(segment));
}

void kube_path_print(struct buf *out, const struct kube_resource *resource, const char *object,
                     const char *sub) {
    bool core = resource->group[0] == '\0';
    add_segment(out, core ? "api" : "apis");
    if (!core) {
        add_segment(out, resource->group);
    }
    add_segment(out, resource->version);
    if (resource->name_space) {
        add_segment(out, "namespaces");
        add_segment(out, resource->name_space);
    }
    add_segment(out, resource->name);
    if (object) {
        add_segment(out, object);
    }
    if (sub) {
        add_segment(out, sub);
    }
}
