/* Heads of requests: version, form of the target, Host, the length of the body, Connection and
 * Expect. It refuses to repair anything: a head that two readers could take for two requests is an
 * error. */
#include "codec/http1/head.h"

#include <string.h>

#include "core/base/num.h"

/* A set of ASCII characters: bit c of the two words. */
struct char_set {
    uint64_t bits[2];
};

static bool char_in(const struct char_set *set, char c) {
    unsigned char u = (unsigned char)c;
    return u < 128 && ((set->bits[u >> 6] >> (u & 63)) & 1);
}

bool http1_is_token_char(char c) {
    /* digits, letters and !#$%&'*+-.^_`|~ */
    static const struct char_set TOKEN = {
        {UINT64_C(0x03ff6cfa00000000), UINT64_C(0x57ffffffc7fffffe)}};
    return char_in(&TOKEN, c);
}

size_t http_head_find(const struct http_head *head, const char *name, struct str *value) {
    struct str wanted = str_of(name);
    size_t n = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        struct str field = head->fields[i].name;
        if (str_eq_nocase(field, wanted)) {
            if (n == 0) {
                *value = head->fields[i].value;
            }
            n++;
        }
    }
    return n;
}

/* The fields that say how a request is to be read: how many there are of each, and the first
 * one. */
struct known {
    size_t n_host, n_length, n_transfer, n_expect;
    struct str host, length, transfer, expect;
    bool close, keep_alive; /* named by Connection */
};

static void known_take(struct str value, size_t *n, struct str *first) {
    if ((*n)++ == 0) {
        *first = value;
    }
}

/* RFC 9110, 7.6.1: a list. */
static void connection_take(struct str list, struct known *known) {
    while (list.ptr) {
        struct str option = str_trim(str_cut(&list, ','));
        known->close |= str_eq_nocase(option, STR("close"));
        known->keep_alive |= str_eq_nocase(option, STR("keep-alive"));
    }
}

static void known_read(const struct http_head *head, struct known *known) {
    *known = (struct known){0};
    for (size_t i = 0; i < head->n_fields; i++) {
        struct str name = head->fields[i].name, value = head->fields[i].value;
        switch (name.len) { /* most fields are none of these, and need no comparison */
        case 4:
            if (str_eq_nocase(name, STR("Host"))) {
                known_take(value, &known->n_host, &known->host);
            }
            break;
        case 6:
            if (str_eq_nocase(name, STR("Expect"))) {
                known_take(value, &known->n_expect, &known->expect);
            }
            break;
        case 10:
            if (str_eq_nocase(name, STR("Connection"))) {
                connection_take(value, known);
            }
            break;
        case 14:
            if (str_eq_nocase(name, STR("Content-Length"))) {
                known_take(value, &known->n_length, &known->length);
            }
            break;
        case 17:
            if (str_eq_nocase(name, STR("Transfer-Encoding"))) {
                known_take(value, &known->n_transfer, &known->transfer);
            }
            break;
        default:
            break;
        }
    }
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
    /* digits, letters and -._~%!$&'()*+,;=:[] */
    static const struct char_set HOST = {
        {UINT64_C(0x2fff7ff200000000), UINT64_C(0x47fffffeaffffffe)}};
    for (size_t i = 0; i < authority.len; i++) {
        if (!char_in(&HOST, authority.ptr[i])) {
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
static enum status host_check(const struct http_head *head, const struct known *known,
                              struct error *err) {
    if (known->n_host > 1 || (known->n_host == 0 && !head->http10)) {
        return error_set(err, ST_BAD_REQUEST, "expected one Host field, got %zu", known->n_host);
    }
    if (!authority_is_well_formed(known->host)) {
        return error_set(err, ST_BAD_REQUEST, "malformed Host \"%.*s\"", STR_ARG(known->host));
    }
    return ST_OK;
}

/* RFC 9112, 6.1 to 6.3: what says how long the body is. */
static enum status length_check(struct http_head *head, const struct known *known,
                                struct error *err) {
    if (known->n_length > 1 || (known->n_length == 1 && known->n_transfer > 0)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected one Content-Length, and none beside Transfer-Encoding");
    }
    if (known->n_length == 1 && !num_parse_u64(known->length, &head->content_length)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected a Content-Length of decimal digits below 2^64, got \"%.*s\"",
                         STR_ARG(known->length));
    }
    if (known->n_transfer > 0 && head->http10) {
        return error_set(err, ST_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding");
    }
    if (known->n_transfer > 1 ||
        (known->n_transfer == 1 && !str_eq_nocase(known->transfer, STR("chunked")))) {
        return error_set(err, ST_UNSUPPORTED,
                         "expected Transfer-Encoding \"chunked\" and no other, got \"%.*s\"",
                         STR_ARG(known->transfer));
    }
    head->chunked = known->n_transfer == 1;
    head->has_body = head->chunked || head->content_length > 0;
    return ST_OK;
}

/* RFC 9110, 10.1.1: a client of HTTP/1.0 knows no 100. */
static enum http_expect expectation(const struct http_head *head, const struct known *known) {
    if (head->http10 || known->n_expect == 0) {
        return HTTP_EXPECT_NOTHING;
    }
    bool one = known->n_expect == 1 && str_eq_nocase(known->expect, STR("100-continue"));
    return one ? HTTP_EXPECT_CONTINUE : HTTP_EXPECT_UNKNOWN;
}

enum status http1_head_check(struct http_head *head, struct str version, struct error *err) {
    struct known known;
    known_read(head, &known);
    enum status st = version_check(head, version, err);
    if (st == ST_OK) {
        st = target_check(head, err);
    }
    if (st == ST_OK) {
        st = host_check(head, &known, err);
    }
    if (st == ST_OK) {
        st = length_check(head, &known, err);
    }
    /* RFC 9112, 9.3: persistence. */
    head->keep_alive = !known.close && (!head->http10 || known.keep_alive);
    head->expect = expectation(head, &known);
    return st;
}
