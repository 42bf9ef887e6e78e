/* URLs of servers, parsed strictly: what is not understood is refused, never passed on. */
#include "client/client_url.h"

#include <string.h>
#include <sys/un.h>

#include "base/num.h"

static enum status bad(struct error *err, struct str text, const char *why) {
    return error_set(err, ST_BAD_CONFIG, "\"%.*s\": %s", STR_ARG(text), why);
}

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "no memory for a URL");
}

static enum status parse_unix(struct arena *arena, struct str text, struct str path,
                              struct client_url *out, struct error *err) {
    if (str_starts(path, STR("//"))) {
        path = str_make(path.ptr + 2, path.len - 2);
    }
    if (path.len < 2 || path.ptr[0] != '/' || memchr(path.ptr, '\0', path.len)) {
        return bad(err, text, "expected the absolute path of a socket: http+unix:/path/to.sock");
    }
    if (path.len >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        return bad(err, text, "a socket's path has at most 107 bytes");
    }
    out->is_unix = true;
    out->path = arena_dup(arena, path);
    out->host = out->authority = STR("localhost");
    out->base = STR("");
    return out->path.ptr ? ST_OK : no_memory(err);
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

/* "HOST", "HOST:PORT", "[V6]:PORT" */
static enum status parse_authority(struct arena *arena, struct str text, struct str authority,
                                   struct client_url *out, struct error *err) {
    struct str host, rest = authority;
    bool v6 = authority.len > 0 && authority.ptr[0] == '[';
    if (v6) {
        rest = str_make(authority.ptr + 1, authority.len - 1);
        host = str_cut(&rest, ']');
        if (!rest.ptr) {
            return bad(err, text, "the bracket of the IPv6 address is not closed");
        }
        if (rest.len > 0 && rest.ptr[0] != ':') {
            return bad(err, text, "behind the IPv6 address only :PORT may stand");
        }
        rest = rest.len > 0 ? str_make(rest.ptr + 1, rest.len - 1) : str_make(NULL, 0);
    } else {
        host = str_cut(&rest, ':');
    }
    if (!is_host(host, v6)) {
        return bad(err, text, "the host is not a name or an address: http://HOST:PORT");
    }
    uint64_t port = 80;
    if (rest.ptr && (!num_parse_u64(rest, &port) || port == 0 || port > 65535)) {
        return bad(err, text, "the port is not a number from 1 to 65535");
    }
    out->port = (uint16_t)port;
    out->host = arena_dup(arena, host);
    out->authority = arena_dup(arena, authority);
    return out->host.ptr && out->authority.ptr ? ST_OK : no_memory(err);
}

static enum status parse_base(struct arena *arena, struct str text, struct str base,
                              struct client_url *out, struct error *err) {
    for (size_t i = 0; i < base.len; i++) {
        unsigned char c = (unsigned char)base.ptr[i];
        if (c == '?' || c == '#') {
            return bad(err, text, "a query or a fragment has no meaning here");
        }
        if (c <= ' ' || c >= 0x7f) {
            return bad(err, text, "the path holds a character that must be percent-encoded");
        }
    }
    while (base.len > 0 && base.ptr[base.len - 1] == '/') {
        base.len--;
    }
    out->base = arena_dup(arena, base);
    return out->base.ptr ? ST_OK : no_memory(err);
}

static enum status parse_tcp(struct arena *arena, struct str text, struct str rest,
                             struct client_url *out, struct error *err) {
    size_t n = 0;
    while (n < rest.len && rest.ptr[n] != '/' && rest.ptr[n] != '?' && rest.ptr[n] != '#') {
        n++;
    }
    struct str authority = str_make(rest.ptr, n);
    if (memchr(authority.ptr, '@', n)) {
        return bad(err, text, "a user name has no meaning here");
    }
    enum status status = parse_authority(arena, text, authority, out, err);
    if (status != ST_OK) {
        return status;
    }
    return parse_base(arena, text, str_make(rest.ptr + n, rest.len - n), out, err);
}

/* What to say of a text without a scheme that we know. */
static enum status bad_scheme(struct str text, struct error *err) {
    struct str rest = text;
    struct str scheme = str_cut(&rest, ':');
    if (str_is(scheme, "https")) {
        return bad(err, text, "TLS is not supported yet; write http://HOST:PORT");
    }
    if (str_is(scheme, "unix")) {
        return error_set(err, ST_BAD_CONFIG,
                         "\"%.*s\": expected a protocol too; did you mean http+%.*s?",
                         STR_ARG(text), STR_ARG(text));
    }
    if (!rest.ptr || (rest.len > 0 && rest.ptr[0] >= '0' && rest.ptr[0] <= '9')) {
        return error_set(err, ST_BAD_CONFIG, "\"%.*s\" has no scheme; did you mean http://%.*s?",
                         STR_ARG(text), STR_ARG(text));
    }
    return bad(err, text, "expected http://HOST:PORT or http+unix:/path/to.sock");
}

enum status client_url_parse(struct arena *arena, struct str text, struct client_url *out,
                             struct error *err) {
    *out = (struct client_url){0};
    if (str_starts(text, STR("http+unix:"))) {
        return parse_unix(arena, text, str_make(text.ptr + 10, text.len - 10), out, err);
    }
    if (str_starts(text, STR("http://"))) {
        return parse_tcp(arena, text, str_make(text.ptr + 7, text.len - 7), out, err);
    }
    return bad_scheme(text, err);
}
