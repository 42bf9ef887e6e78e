/* Strict parsing of server URLs: anything unknown is an error. */
#include "client/connection/url.h"

#include <string.h>
#include <sys/un.h>

#include "core/base/num.h"

static enum status error_bad_url(struct error *err, struct str text, const char *why) {
    return error_set(err, ST_BAD_CONFIG, "\"%.*s\": %s", STR_ARG(text), why);
}

#define HTTP_URLS "http://HOST:PORT, https://HOST:PORT or http+unix:/path/to.sock"
#define GRPC_URLS "grpc://HOST:PORT, grpcs://HOST:PORT or grpc+unix:/path/to.sock"
#define MIP_URLS "tcp://HOST:PORT or unix:///path/to.sock"

static enum status set_socket(struct arena *arena, struct str text, struct str path,
                              struct client_url *out, struct error *err) {
    if (path.len >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        return error_bad_url(err, text, "a socket's path has at most 107 bytes");
    }
    if (memchr(path.ptr, '\0', path.len)) {
        return error_bad_url(err, text, "a socket's path has no NUL");
    }
    out->is_unix = true;
    out->path = arena_dup(arena, path);
    out->host = out->authority = STR("localhost");
    out->base = STR("");
    return out->path.ptr ? ST_OK : error_no_memory(err, "a URL");
}

/* http+unix:/PATH, http+unix:///PATH; so with grpc+unix: */
static enum status parse_v2_unix(struct arena *arena, struct str text, struct str path,
                                 struct client_url *out, struct error *err) {
    if (str_starts_with(path, STR("//"))) {
        path = str_make(path.ptr + 2, path.len - 2);
    }
    if (path.len < 2 || path.ptr[0] != '/') {
        return error_bad_url(
            err, text,
            out->protocol == CLIENT_HTTP
                ? "expected the absolute path of a socket: http+unix:/path/to.sock"
                : "expected the absolute path of a socket: grpc+unix:/path/to.sock");
    }
    return set_socket(arena, text, path, out, err);
}

static bool is_host_char(char c, bool v6) {
    if ((c >= '0' && c <= '9') || c == '.') {
        return true;
    }
    if (v6) {
        return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':';
    }
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

static bool is_host(struct str host, bool v6) {
    for (size_t i = 0; i < host.len; i++) {
        if (!is_host_char(host.ptr[i], v6)) {
            return false;
        }
    }
    return host.len > 0 && host.len < 254;
}

/* "HOST", "HOST:PORT", "[V6]:PORT". `port`: the default; 0: it is required. */
static enum status parse_authority(struct arena *arena, struct str text, struct str authority,
                                   uint64_t port, struct client_url *out, struct error *err) {
    struct str host, rest = authority;
    bool v6 = authority.len > 0 && authority.ptr[0] == '[';
    if (v6) {
        rest = str_make(authority.ptr + 1, authority.len - 1);
        host = str_cut(&rest, ']');
        if (!rest.ptr) {
            return error_bad_url(err, text, "the bracket of the IPv6 address is not closed");
        }
        if (rest.len > 0 && rest.ptr[0] != ':') {
            return error_bad_url(err, text, "after the IPv6 address only :PORT is allowed");
        }
        rest = rest.len > 0 ? str_make(rest.ptr + 1, rest.len - 1) : str_make(NULL, 0);
    } else {
        host = str_cut(&rest, ':');
    }
    if (!is_host(host, v6)) {
        return error_bad_url(err, text,
                             "the host is not a name or an address, as in SCHEME://HOST:PORT");
    }
    if (!rest.ptr && port == 0) {
        return error_bad_url(err, text, "the port is missing, as in SCHEME://HOST:PORT");
    }
    if (rest.ptr && (!num_parse_u64(rest, &port) || port == 0 || port > 65535)) {
        return error_bad_url(err, text, "the port is not a number from 1 to 65535");
    }
    out->port = (uint16_t)port;
    out->host = arena_dup(arena, host);
    out->authority = arena_dup(arena, authority);
    return out->host.ptr && out->authority.ptr ? ST_OK : error_no_memory(err, "a URL");
}

static enum status parse_base(struct arena *arena, struct str text, struct str base,
                              struct client_url *out, struct error *err) {
    for (size_t i = 0; i < base.len; i++) {
        unsigned char c = (unsigned char)base.ptr[i];
        if (c == '?' || c == '#') {
            return error_bad_url(err, text, "a query or a fragment is not supported");
        }
        if (c <= ' ' || c >= 0x7f) {
            return error_bad_url(err, text,
                                 "the path contains a character that must be percent-encoded");
        }
    }
    while (base.len > 0 && base.ptr[base.len - 1] == '/') {
        base.len--;
    }
    out->base = arena_dup(arena, base);
    return out->base.ptr ? ST_OK : error_no_memory(err, "a URL");
}

/* The part after "http://", "grpc://", "tcp://" and similar. */
static enum status parse_host(struct arena *arena, struct str text, struct str rest, uint64_t port,
                              struct client_url *out, struct error *err) {
    size_t n = 0;
    while (n < rest.len && rest.ptr[n] != '/' && rest.ptr[n] != '?' && rest.ptr[n] != '#') {
        n++;
    }
    struct str authority = str_make(rest.ptr, n);
    if (memchr(authority.ptr, '@', n)) {
        return error_bad_url(err, text, "a user name is not supported");
    }
    enum status status = parse_authority(arena, text, authority, port, out, err);
    if (status != ST_OK) {
        return status;
    }
    status = parse_base(arena, text, str_make(rest.ptr + n, rest.len - n), out, err);
    if (status == ST_OK && out->protocol != CLIENT_HTTP && out->base.len > 0) {
        return error_bad_url(err, text, "a path after SCHEME://HOST:PORT is not supported");
    }
    return status;
}

/* The error for a text without a known scheme. */
static enum status error_bad_scheme(struct str text, struct error *err) {
    struct str rest = text;
    struct str scheme = str_cut(&rest, ':');
    if (str_is(scheme, "unix") && rest.ptr) {
        return error_set(
            err, ST_BAD_CONFIG,
            "\"%.*s\": expected unix://PATH for MIP, http+unix:PATH for KServe v2; did "
            "you mean unix://%.*s?",
            STR_ARG(text), STR_ARG(rest));
    }
    if (!rest.ptr || (rest.len > 0 && rest.ptr[0] >= '0' && rest.ptr[0] <= '9')) {
        return error_set(err, ST_BAD_CONFIG, "\"%.*s\" has no scheme; did you mean http://%.*s?",
                         STR_ARG(text), STR_ARG(text));
    }
    return error_bad_url(err, text,
                         "expected " HTTP_URLS " for KServe v2 (" GRPC_URLS
                         " for the same over gRPC), " MIP_URLS " for MIP");
}

static enum status parse_scheme(struct arena *arena, struct str text, struct client_url *out,
                                struct error *err) {
    static const struct {
        struct str scheme;
        enum client_protocol protocol;
        uint64_t port; /* default; 0: required */
        bool is_tls, is_unix;
    } rows[] = {
        {{"http+unix:", 10}, CLIENT_HTTP, 0, false, true},
        {{"http://", 7}, CLIENT_HTTP, 80, false, false},
        {{"https://", 8}, CLIENT_HTTP, 443, true, false},
        {{"grpc+unix:", 10}, CLIENT_GRPC, 0, false, true},
        {{"grpc://", 7}, CLIENT_GRPC, 0, false, false},
        {{"grpcs://", 8}, CLIENT_GRPC, 0, true, false},
        {{"tcp://", 6}, CLIENT_MIP, 0, false, false},
        {{"unix://", 7}, CLIENT_MIP, 0, false, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t n = rows[i].scheme.len;
        if (!str_starts_with(text, rows[i].scheme)) {
            continue;
        }
        struct str rest = str_make(text.ptr + n, text.len - n);
        out->protocol = rows[i].protocol;
        out->is_tls = rows[i].is_tls;
        if (!rows[i].is_unix) {
            return parse_host(arena, text, rest, rows[i].port, out, err);
        }
        if (out->protocol != CLIENT_MIP) {
            return parse_v2_unix(arena, text, rest, out, err);
        }
        if (rest.len == 0 || str_is(rest, "/")) { /* unix:///PATH, unix://relative/PATH */
            return error_bad_url(err, text, "expected the path of a socket: unix:///path/to.sock");
        }
        return set_socket(arena, text, rest, out, err);
    }
    return error_bad_scheme(text, err);
}

enum status client_url_parse(struct arena *arena, struct str text, struct client_url *out,
                             struct error *err) {
    *out = (struct client_url){.text = arena_dup(arena, text)};
    return out->text.ptr ? parse_scheme(arena, text, out, err) : error_no_memory(err, "a URL");
}

enum status client_url_expect(const struct client_url *url, enum client_protocol protocol,
                              const char *what, struct error *err) {
    static const char *const SPEAKS[] = {
        [CLIENT_HTTP] = "KServe v2",
        [CLIENT_GRPC] = "gRPC",
        [CLIENT_MIP] = "MIP",
    };
    static const char *const URLS[] = {
        [CLIENT_HTTP] = "KServe v2: " HTTP_URLS,
        [CLIENT_GRPC] = "gRPC: " GRPC_URLS,
        [CLIENT_MIP] = "MIP: " MIP_URLS,
    };
    if (url->protocol == protocol) {
        return ST_OK;
    }
    return error_set(err, ST_UNSUPPORTED, "\"%.*s\" is the URL of a server of %s; %s is for %s",
                     STR_ARG(url->text), SPEAKS[url->protocol], what, URLS[protocol]);
}
