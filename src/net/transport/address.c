/* Parses and prints addresses. Only numeric hosts and "localhost" are accepted; no name is looked
 * up. */
#include "net/transport/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/num.h"

static enum status address_error(struct str text, struct error *err, const char *why) {
    return error_set(err, ST_BAD_CONFIG,
                     "\"%.*s\" is not an address: %s. Expected HOST:PORT (127.0.0.1:8000), "
                     "[IPV6]:PORT, :PORT for all addresses of this machine, or unix:/PATH",
                     STR_ARG(text), why);
}

static enum status unix_parse(struct str text, struct address *out, struct error *err) {
    struct sockaddr_un *sun = (struct sockaddr_un *)&out->storage;
    struct str path = str_make(text.ptr + 5, text.len - 5);
    if (path.len == 0) {
        return address_error(text, err, "the path of the socket is missing");
    }
    if (path.len >= sizeof(sun->sun_path) || memchr(path.ptr, '\0', path.len)) {
        return error_set(err, ST_BAD_CONFIG,
                         "\"%.*s\" is not an address: the path of a socket has at most %zu bytes",
                         STR_ARG(text), sizeof(sun->sun_path) - 1);
    }
    sun->sun_family = AF_UNIX;
    memcpy(sun->sun_path, path.ptr, path.len);
    out->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.len + 1);
    return ST_OK;
}

/* Returns: whether `host` is a numeric address of that family. */
static bool host_parse(int family, struct str host, void *out) {
    char text[INET6_ADDRSTRLEN];
    if (host.len >= sizeof(text)) {
        return false;
    }
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    return inet_pton(family, text, out) == 1;
}

static bool host4_parse(struct str host, uint16_t port, struct address *out) {
    struct sockaddr_in *sin = (struct sockaddr_in *)&out->storage;
    sin->sin_family = AF_INET;
    sin->sin_port = htons(port);
    out->len = sizeof(*sin);
    return host_parse(AF_INET, str_eq_nocase(host, STR("localhost")) ? STR("127.0.0.1") : host,
                      &sin->sin_addr);
}

/* An empty host means all addresses of both families. */
static bool host6_parse(struct str host, uint16_t port, struct address *out) {
    struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)&out->storage;
    sin6->sin6_family = AF_INET6;
    sin6->sin6_port = htons(port);
    out->len = sizeof(*sin6);
    return host_parse(AF_INET6, host.len == 0 ? STR("::") : host, &sin6->sin6_addr);
}

enum status address_parse(struct str text, struct address *out, struct error *err) {
    *out = (struct address){0};
    if (str_starts_with(text, STR("unix:"))) {
        return unix_parse(text, out, err);
    }
    size_t colon = text.len;
    while (colon > 0 && text.ptr[colon - 1] != ':') {
        colon--;
    }
    if (colon == 0) {
        return address_error(text, err, "the port is missing");
    }
    struct str host = str_make(text.ptr, colon - 1);
    uint64_t port;
    if (!num_parse_u64(str_make(text.ptr + colon, text.len - colon), &port) || port > UINT16_MAX) {
        return address_error(text, err, "the port is a number from 0 to 65535");
    }
    bool bracketed = host.len >= 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (bracketed) {
        host = str_make(host.ptr + 1, host.len - 2);
    }
    bool v6 = bracketed || host.len == 0;
    if ((bracketed && host.len == 0) ||
        !(v6 ? host6_parse(host, (uint16_t)port, out) : host4_parse(host, (uint16_t)port, out))) {
        return address_error(text, err,
                             v6 ? "expected a numeric IPv6 address in brackets"
                                : "the host is not a numeric address or localhost");
    }
    return ST_OK;
}

const char *address_print(const struct address *address, char out[ADDRESS_TEXT_BYTES]) {
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *sin = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&address->storage;
    const struct sockaddr_un *sun = (const struct sockaddr_un *)&address->storage;
    switch (address->storage.ss_family) {
    case AF_INET:
        inet_ntop(AF_INET, &sin->sin_addr, host, sizeof(host));
        snprintf(out, ADDRESS_TEXT_BYTES, "%s:%u", host, ntohs(sin->sin_port));
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &sin6->sin6_addr, host, sizeof(host));
        snprintf(out, ADDRESS_TEXT_BYTES, "[%s]:%u", host, ntohs(sin6->sin6_port));
        break;
    case AF_UNIX:
        snprintf(out, ADDRESS_TEXT_BYTES, "unix:%.*s", (int)sizeof(sun->sun_path), sun->sun_path);
        break;
    default:
        snprintf(out, ADDRESS_TEXT_BYTES, "?");
        break;
    }
    return out;
}

bool address_is_unix(const struct address *address) {
    return address->storage.ss_family == AF_UNIX;
}

bool address_is_local(const struct address *address) {
    const struct sockaddr_in *sin = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&address->storage;
    switch (address->storage.ss_family) {
    case AF_INET:
        return (ntohl(sin->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    case AF_INET6:
        /* IPv4 addresses may be written as those of IPv6 (RFC 4291, 2.5.5.2). */
        return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr) &&
                sin6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    default:
        return address_is_unix(address);
    }
}

uint16_t address_port(const struct address *address) {
    const struct sockaddr_in *sin = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&address->storage;
    switch (address->storage.ss_family) {
    case AF_INET:
        return ntohs(sin->sin_port);
    case AF_INET6:
        return ntohs(sin6->sin6_port);
    default:
        return 0;
    }
}

void address_unlink(const struct address *address) {
    if (address_is_unix(address)) {
        unlink(((const struct sockaddr_un *)&address->storage)->sun_path);
    }
}

uint64_t address_peer_hash(const struct address *address) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&address->storage;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&address->storage;
    const char *host = (const char *)&v6->sin6_addr;
    if (address->storage.ss_family == AF_INET) {
        return hash_text(str_make((const char *)&v4->sin_addr, sizeof(v4->sin_addr)), 0);
    }
    if (address->storage.ss_family != AF_INET6) {
        return 0;
    }
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        return hash_text(str_make(host + 12, sizeof(v4->sin_addr)), 0);
    }
    return hash_text(str_make(host, 8), 0);
}
