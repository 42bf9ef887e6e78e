/* Checks the head of a request: version, form of the target, Host, the length of the body,
 * Connection and Expect. Nothing is repaired: a head that two parsers could take for two different
 * requests is an error. */
#include "codec/http1/head_check.h"

#include <string.h>

#include "core/base/num.h"

/* A set of ASCII characters: bit c of the two words. */
struct char_set {
    uint64_t bits[2];
};

static bool char_set_has(const struct char_set *set, char c) {
    unsigned char u = (unsigned char)c;
    return u < 128 && ((set->bits[u >> 6] >> (u & 63)) & 1);
}

bool http1_is_token_char(char c) {
    /* digits, letters and !#$%&'*+-.^_`|~ */
    static const struct char_set TOKEN = {
        {UINT64_C(0x03ff6cfa00000000), UINT64_C(0x57ffffffc7fffffe)}};
    return char_set_has(&TOKEN, c);
}

bool http1_is_token(struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        if (!http1_is_token_char(text.ptr[i])) {
            return false;
        }
    }
    return text.len > 0;
}

size_t http_head_find(const struct http_head *head, struct str name, struct str *value) {
    size_t n = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http_field *field = &head->fields[i];
        if (!str_eq_nocase(field->name, name)) {
            continue;
        }
        if (n == 0) {
            *value = field->value;
        }
        n++;
    }
    return n;
}

/* The fields that determine how a request is framed: their number, and the first one's value. */
struct framing {
    size_t n_host, n_length, n_transfer, n_expect;
    struct str host, length, transfer, expect;
    bool close, keep_alive; /* named by Connection */
    bool names_site;        /* Origin or Sec-Fetch-Site */
};

static void framing_add(struct str value, size_t *n, struct str *first) {
    if ((*n)++ == 0) {
        *first = value;
    }
}

/* RFC 9110, 7.6.1: a list. */
static void connection_read(struct str list, struct framing *framing) {
    while (list.ptr) {
        struct str option = str_trim(str_cut(&list, ','));
        framing->close |= str_eq_nocase(option, STR("close"));
        framing->keep_alive |= str_eq_nocase(option, STR("keep-alive"));
    }
}

static void framing_read(const struct http_head *head, struct framing *framing) {
    *framing = (struct framing){0};
    for (size_t i = 0; i < head->n_fields; i++) {
        struct str name = head->fields[i].name, value = head->fields[i].value;
        switch (name.len) { /* most fields have another length and need no comparison */
        case 4:
            if (str_eq_nocase(name, STR("Host"))) {
                framing_add(value, &framing->n_host, &framing->host);
            }
            break;
        case 6:
            if (str_eq_nocase(name, STR("Expect"))) {
                framing_add(value, &framing->n_expect, &framing->expect);
            } else if (name.ptr[0] != 'A') { /* Accept */
                framing->names_site |= str_eq_nocase(name, STR("Origin"));
            }
            break;
        case 10:
            if (str_eq_nocase(name, STR("Connection"))) {
                connection_read(value, framing);
            }
            break;
        case 14:
            if (str_eq_nocase(name, STR("Content-Length"))) {
                framing_add(value, &framing->n_length, &framing->length);
            } else {
                framing->names_site |= str_eq_nocase(name, STR("Sec-Fetch-Site"));
            }
            break;
        case 17:
            if (str_eq_nocase(name, STR("Transfer-Encoding"))) {
                framing_add(value, &framing->n_transfer, &framing->transfer);
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
        return error_set(err, ST_BAD_REQUEST, "expected HTTP/1.1 after the request's target");
    }
    return error_set(err, ST_BAD_VERSION, "expected HTTP/1.1 or HTTP/1.0, got HTTP/%.*s",
                     STR_ARG(version));
}

/* RFC 3986, 3.2.2 and 3.2.3: a host and an optional port; user information is not allowed. */
static bool authority_is_well_formed(struct str authority) {
    /* digits, letters and -._~%!$&'()*+,;=:[] */
    static const struct char_set HOST = {
        {UINT64_C(0x2fff7ff200000000), UINT64_C(0x47fffffeaffffffe)}};
    for (size_t i = 0; i < authority.len; i++) {
        if (!char_set_has(&HOST, authority.ptr[i])) {
            return false;
        }
    }
    return true;
}

/* Visible ASCII; a request's target has no fragment. */
static bool target_is_visible(struct str target) {
    for (size_t i = 0; i < target.len; i++) {
        char c = target.ptr[i];
        if (c <= ' ' || c > '~' || c == '#') {
            return false;
        }
    }
    return target.len > 0;
}

/* Removes "http://host" from an absolute form (RFC 9112, 3.2.2); `host` gets the host. Returns:
 * false when it is not one. */
static bool strip_authority(struct str *target, struct str *host) {
    static const struct str SCHEMES[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < 2; i++) {
        size_t n = SCHEMES[i].len;
        if (target->len > n && str_eq_nocase(str_make(target->ptr, n), SCHEMES[i])) {
            struct str rest = str_make(target->ptr + n, target->len - n);
            size_t len = 0;
            while (len < rest.len && rest.ptr[len] != '/' && rest.ptr[len] != '?') {
                len++;
            }
            *host = str_make(rest.ptr, len);
            *target = str_make(rest.ptr + len, rest.len - len);
            return len > 0 && authority_is_well_formed(*host);
        }
    }
    return false;
}

enum status http1_connect_error(struct error *err) {
    return error_set(err, ST_METHOD_NOT_ALLOWED, "this server is not a proxy: no CONNECT");
}

/* RFC 9112, 3.2: the forms of a target. */
static enum status target_check(struct http_head *head, struct error *err) {
    struct str rest = head->target;
    head->query = str_make(NULL, 0);
    if (str_is(head->method, "CONNECT")) {
        return http1_connect_error(err);
    }
    if (!target_is_visible(rest)) {
        return error_set(err, ST_BAD_REQUEST, "malformed target \"%.*s\"", STR_ARG(rest));
    }
    if (str_is(rest, "*") && str_is(head->method, "OPTIONS")) {
        head->path = rest;
        return ST_OK;
    }
    if (rest.ptr[0] != '/' && !strip_authority(&rest, &head->host)) {
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

/* RFC 9110, 7.2 and RFC 9112, 3.2: exactly one Host in HTTP/1.1, which the host of an absolute form
 * replaces. */
static enum status host_check(struct http_head *head, const struct framing *framing,
                              struct error *err) {
    if (framing->n_host > 1 || (framing->n_host == 0 && !head->http10)) {
        return error_set(err, ST_BAD_REQUEST, "expected one Host field, got %zu", framing->n_host);
    }
    if (!authority_is_well_formed(framing->host)) {
        return error_set(err, ST_BAD_REQUEST, "malformed Host \"%.*s\"", STR_ARG(framing->host));
    }
    if (!head->host.ptr) {
        head->host = framing->host;
    }
    return ST_OK;
}

/* RFC 9112, 6.1 to 6.3: the length of the body. */
static enum status length_check(struct http_head *head, const struct framing *framing,
                                struct error *err) {
    if (framing->n_length > 1 || (framing->n_length == 1 && framing->n_transfer > 0)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected one Content-Length, and none beside Transfer-Encoding");
    }
    if (framing->n_length == 1 && !num_parse_u64(framing->length, &head->content_length)) {
        return error_set(err, ST_BAD_REQUEST,
                         "expected a Content-Length of decimal digits below 2^64, got \"%.*s\"",
                         STR_ARG(framing->length));
    }
    if (framing->n_transfer > 0 && head->http10) {
        return error_set(err, ST_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding");
    }
    if (framing->n_transfer > 1 ||
        (framing->n_transfer == 1 && !str_eq_nocase(framing->transfer, STR("chunked")))) {
        return error_set(err, ST_UNSUPPORTED,
                         "expected Transfer-Encoding \"chunked\" and no other, got \"%.*s\"",
                         STR_ARG(framing->transfer));
    }
    head->chunked = framing->n_transfer == 1;
    head->has_body = head->chunked || head->content_length > 0;
    return ST_OK;
}

/* RFC 9110, 10.1.1: an HTTP/1.0 client does not understand 100 (Continue). */
static enum http_expect parse_expect(const struct http_head *head, const struct framing *framing) {
    if (head->http10 || framing->n_expect == 0) {
        return HTTP_EXPECT_NOTHING;
    }
    bool one = framing->n_expect == 1 && str_eq_nocase(framing->expect, STR("100-continue"));
    return one ? HTTP_EXPECT_CONTINUE : HTTP_EXPECT_UNKNOWN;
}

enum status http1_head_check(struct http_head *head, struct str version, struct error *err) {
    struct framing framing;
    framing_read(head, &framing);
    enum status st = version_check(head, version, err);
    if (st == ST_OK) {
        st = target_check(head, err);
    }
    if (st == ST_OK) {
        st = host_check(head, &framing, err);
    }
    if (st == ST_OK) {
        st = length_check(head, &framing, err);
    }
    /* RFC 9112, 9.3: persistence. */
    head->keep_alive = !framing.close && (!head->http10 || framing.keep_alive);
    head->expect = parse_expect(head, &framing);
    head->names_site = framing.names_site;
    return st;
}
