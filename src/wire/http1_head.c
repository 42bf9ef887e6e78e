/* Heads of requests: version, form of the target, Host, the length of the body, Connection and
 * Expect. It refuses to repair anything: a head that two readers could take for two requests is an
 * error. */
#include "wire/http1_head.h"

#include <string.h>

#include "base/num.h"

bool http1_is_token_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

size_t http_head_find(const struct http_head *head, const char *name, struct str *value) {
    struct str wanted = str_of(name);
    size_t n = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        if (str_eq_nocase(head->fields[i].name, wanted)) {
            if (n == 0) {
                *value = head->fields[i].value;
            }
            n++;
        }
    }
    return n;
}

/* Is `token` among the elements of all fields of that name? */
static bool list_has(const struct http_head *head, struct str name, struct str token) {
    for (size_t i = 0; i < head->n_fields; i++) {
        struct str rest = head->fields[i].value;
        while (rest.ptr && str_eq_nocase(head->fields[i].name, name)) {
            if (str_eq_nocase(str_trim(str_cut(&rest, ',')), token)) {
                return true;
            }
        }
    }
    return false;
}

/* RFC 9112, 2.3 and 3: HTTP-version. A line without one is HTTP/0.9. */
static enum status version_check(struct http_head *head, struct str version, struct error *err) {
    head->http10 = str_is(version, "1.0");
    if (head->http10 || str_is(version, "1.1")) {
        return ST_OK;
    }
    if (version.len == 0) {
        return error_set(err, ST_BAD_REQUEST, "expected HTTP/1.1 behind the request's target");
    }
    return error_set(err, ST_BAD_VERSION, "expected HTTP/1.1 or HTTP/1.0, got HTTP/%.*s",
                     STR_ARG(version));
}

/* RFC 3986, 3.2.2 and 3.2.3: a host and an optional port; user information is refused. */
static bool authority_is_well_formed(struct str authority) {
    for (size_t i = 0; i < authority.len; i++) {
        char c = authority.ptr[i];
        if (!http1_is_token_char(c) && (c == '\0' || strchr("()[]:,;=", c) == NULL)) {
            return false;
        }
        if (c == '#' || c == '^' || c == '`' || c == '|') {
            return false;
        }
    }
    return true;
}

/* Visible ASCII; a fragment has no place in a request. */
static bool target_is_visible(struct str target) {
    for (size_t i = 0; i < target.len; i++) {
        char c = target.ptr[i];
        if (c <= ' ' || c > '~' || c == '#') {
            return false;
        }
    }
    return target.len > 0;
}

/* Cuts "http://host" off an absolute form (RFC 9112, 3.2.2). Returns: false when it is not one. */
static bool absolute_cut(struct str *target) {
    static const struct str SCHEMES[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < 2; i++) {
        size_t n = SCHEMES[i].len;
        if (target->len > n && str_eq_nocase(str_make(target->ptr, n), SCHEMES[i])) {
            struct str rest = str_make(target->ptr + n, target->len - n);
            size_t host = 0;
            while (host < rest.len && rest.ptr[host] != '/' && rest.ptr[host] != '?') {
                host++;
            }
            *target = str_make(rest.ptr + host, rest.len - host);
            return host > 0 && authority_is_well_formed(str_make(rest.ptr, host));
        }
    }
    return false;
}

enum status http1_connect_refuse(struct error *err) {
    return error_set(err, ST_METHOD_NOT_ALLOWED, "this server is not a proxy: no CONNECT");
}

/* RFC 9112, 3.2: the forms of a target. */
static enum status target_check(struct http_head *head, struct error *err) {
    struct str rest = head->target;
    head->query = str_make(NULL, 0);
    if (str_is(head->method, "CONNECT")) {
        return http1_connect_refuse(err);
    }
    if (!target_is_visible(rest)) {
        return error_set(err, ST_BAD_REQUEST, "malformed target \"%.*s\"", STR_ARG(rest));
    }
    if (str_is(rest, "*") && str_is(head->method, "OPTIONS")) {
        head->path = rest;
        return ST_OK;
    }
    if (rest.ptr[0] != '/' && !absolute_cut(&rest)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected a target that begins with \"/\" or \"http://HOST\", got "
                         "\"%.*s\"",
                         STR_ARG(head->target));
    }
    head->path = str_cut(&rest, '?');
    head->query = rest;
    if (head->path.len == 0) {
        head->path = STR("/");
    }
    return ST_OK;
}

/* RFC 9110, 7.2 and RFC 9112, 3.2: exactly one Host in HTTP/1.1. */
static enum status host_check(const struct http_head *head, struct error *err) {
    struct str host = str_make("", 0);
    size_t n = http_head_find(head, "Host", &host);
    if (n > 1 || (n == 0 && !head->http10)) {
        return error_set(err, ST_BAD_REQUEST, "expected one Host field, got %zu", n);
    }
    if (!authority_is_well_formed(host)) {
        return error_set(err, ST_BAD_REQUEST, "malformed Host \"%.*s\"", STR_ARG(host));
    }
    return ST_OK;
}

/* RFC 9112, 6.1 to 6.3: what says how long the body is. */
static enum status length_check(struct http_head *head, struct error *err) {
    struct str length = str_make("", 0), transfer = str_make("", 0);
    size_t n_length = http_head_find(head, "Content-Length", &length);
    size_t n_transfer = http_head_find(head, "Transfer-Encoding", &transfer);
    if (n_length > 1 || (n_length == 1 && n_transfer > 0)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected one Content-Length, and none beside Transfer-Encoding");
    }
    if (n_length == 1 && !num_parse_u64(length, &head->content_length)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected a Content-Length of decimal digits below 2^64, got \"%.*s\"",
                         STR_ARG(length));
    }
    if (n_transfer > 0 && head->http10) {
        return error_set(err, ST_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding");
    }
    if (n_transfer > 1 || (n_transfer == 1 && !str_eq_nocase(transfer, STR("chunked")))) {
        return error_set(err, ST_UNSUPPORTED,
                         "expected Transfer-Encoding \"chunked\" and no other, got \"%.*s\"",
                         STR_ARG(transfer));
    }
    head->chunked = n_transfer == 1;
    head->has_body = head->chunked || head->content_length > 0;
    return ST_OK;
}

/* RFC 9112, 9.3: persistence. */
static void connection_read(struct http_head *head) {
    const struct str name = STR("Connection");
    head->keep_alive = !list_has(head, name, STR("close")) &&
                       (!head->http10 || list_has(head, name, STR("keep-alive")));
}

/* RFC 9110, 10.1.1: a client of HTTP/1.0 knows no 100. */
static void expect_read(struct http_head *head) {
    struct str value;
    size_t n = head->http10 ? 0 : http_head_find(head, "Expect", &value);
    head->expect = HTTP_EXPECT_NOTHING;
    if (n > 1 || (n == 1 && !str_eq_nocase(value, STR("100-continue")))) {
        head->expect = HTTP_EXPECT_UNKNOWN;
    } else if (n == 1) {
        head->expect = HTTP_EXPECT_CONTINUE;
    }
}

enum status http1_head_check(struct http_head *head, struct str version, struct error *err) {
    enum status st = version_check(head, version, err);
    if (st == ST_OK) {
        st = target_check(head, err);
    }
    if (st == ST_OK) {
        st = host_check(head, err);
    }
    if (st == ST_OK) {
        st = length_check(head, err);
    }
    connection_read(head);
    expect_read(head);
    return st;
}
