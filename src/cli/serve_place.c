/* Addresses with schemes. */
#include "cli/serve_place.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

/* Cuts "SCHEME://" or "SCHEME+" off what is "SCHEME+unix:". */
static bool cut_scheme(struct str *text, const char *scheme) {
    struct str name = str_of(scheme);
    if (!str_starts(*text, name)) {
        return false;
    }
    struct str rest = str_make(text->ptr + name.len, text->len - name.len);
    size_t n = str_starts(rest, STR("://")) ? 3 : str_starts(rest, STR("+unix:")) ? 1 : 0;
    if (n == 0) {
        return false;
    }
    *text = str_make(rest.ptr + n, rest.len - n);
    return true;
}

enum status serve_place_parse(const struct serve_scheme *scheme, const char *text,
                              struct serve_place *out, struct error *err) {
    struct str rest = str_of(text);
    bool tls = cut_scheme(&rest, scheme->tls);
    bool plain = !tls && cut_scheme(&rest, scheme->plain);
    enum status st = address_parse(rest, &out->address, err);
    if (st != ST_OK) {
        return error_prefix(err, "--%s %s", scheme->flag, text);
    }
    bool local = out->address.storage.ss_family == AF_UNIX;
    out->said = tls || plain;
    out->tls = tls || (!plain && !local && scheme->has_cert);
    if (tls && !scheme->has_cert) {
        return error_set(err, ST_BAD_CONFIG,
                         "--%s %s: TLS needs --%s-tls-cert FILE and --%s-tls-key FILE",
                         scheme->flag, text, scheme->flag, scheme->flag);
    }
    return ST_OK;
}

bool serve_place_is_local(const struct address *address) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->storage;
    switch (address->storage.ss_family) {
    case AF_INET:
        return (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    case AF_INET6:
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    default:
        return true;
    }
}
