/* The checks of web_access.h. A request without Origin and Sec-Fetch-Site costs a look at its Host,
 * and only where the host is checked. */
#include "codec/http1/web_access.h"

#include <string.h>

#include "core/base/num.h"

enum { SHOWN_BYTES = 100 }; /* of a client's value in an error */

static struct str shown(struct str text) {
    return str_make(text.ptr, text.len < SHOWN_BYTES ? text.len : SHOWN_BYTES);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The parts of "name:port". */
struct authority {
    struct str name; /* without a final dot; an IPv6 address with its brackets */
    struct str port; /* ptr NULL: none */
};

static inline struct authority authority_split(struct str text) {
    struct authority out = {.name = text};
    bool bracketed = text.len > 0 && text.ptr[0] == '[';
    const char *from = bracketed ? memchr(text.ptr, ']', text.len) : text.ptr;
    const char *colon = from ? memchr(from, ':', text.len - (size_t)(from - text.ptr)) : NULL;
    if (colon) {
        out.name.len = (size_t)(colon - text.ptr);
        out.port = str_make(colon + 1, text.len - out.name.len - 1);
    }
    if (out.name.len > 0 && out.name.ptr[out.name.len - 1] == '.') {
        out.name.len--; /* "localhost." is the same name, fully qualified */
    }
    return out;
}

/* Returns: whether the text, up to its port, is four decimal numbers. Browsers write an IPv4
 * address in this form, whatever the page wrote. */
static bool is_ipv4(struct str text) {
    unsigned n_dots = 0, n_digits = 0, number = 0;
    for (size_t i = 0; i < text.len && text.ptr[i] != ':'; i++) {
        unsigned digit = (unsigned)(text.ptr[i] - '0');
        if (digit <= 9 && n_digits < 3) {
            n_digits++;
            number = number * 10 + digit;
        } else if (text.ptr[i] == '.' && n_digits > 0 && number <= 255) {
            n_dots++;
            n_digits = 0;
            number = 0;
        } else {
            return false;
        }
    }
    /* A final dot makes no difference. */
    return number <= 255 && ((n_dots == 3 && n_digits > 0) || (n_dots == 4 && n_digits == 0));
}

/* Returns: whether it is an address, with a port or without. */
static bool is_address(struct str text) {
    if (text.ptr[0] != '[') {
        return is_ipv4(text);
    }
    const char *end = memchr(text.ptr, ']', text.len);
    return end && (end + 1 == text.ptr + text.len || end[1] == ':');
}

/* Returns: whether it ends with `suffix`, which begins with a dot, and has something before it. */
static bool has_suffix(struct str name, struct str suffix) {
    return name.len > suffix.len &&
           str_eq_nocase(str_make(name.ptr + (name.len - suffix.len), suffix.len), suffix);
}

/* The names by which this machine is always addressed. */
static bool is_own_name(const struct web_access *access, struct str name) {
    struct str machine = str_of(access->machine), rest = machine;
    if (str_eq_nocase(name, STR("localhost")) || has_suffix(name, STR(".localhost"))) {
        return true;
    }
    return machine.len > 0 &&
           (str_eq_nocase(name, machine) || str_eq_nocase(name, str_cut(&rest, '.')));
}

static bool is_allowed_host(const struct web_access *access, struct str name) {
    for (size_t i = 0; i < access->n_hosts; i++) {
        struct str host = str_of(access->hosts[i]);
        if (str_is(host, "*") || str_eq_nocase(name, host) ||
            (host.ptr[0] == '*' && has_suffix(name, str_make(host.ptr + 1, host.len - 1)))) {
            return true;
        }
    }
    return false;
}

/* ---- the host -------------------------------------------------------------------------------- */

/* Returns: whether the client believes that it is connected to the listener itself: a browser
 * leaves out the port of the scheme. With another port it is connected to a proxy, which passes on
 * the name that its clients use. */
static bool has_port_of(const struct web_listener *listener, struct str port) {
    uint64_t number;
    if (port.len == 0) {
        return listener->port == 80 || listener->port == 443;
    }
    return !num_parse_u64(port, &number) || number == listener->port;
}

static bool host_is_accepted(const struct web_access *access, const struct web_listener *listener,
                             struct str text) {
    if (!web_access_checks_host(access, listener) || text.len == 0 || is_address(text)) {
        return true;
    }
    struct authority host = authority_split(text);
    return (access->n_hosts == 0 && !has_port_of(listener, host.port)) ||
           is_own_name(access, host.name) || is_allowed_host(access, host.name);
}

/* ---- origins --------------------------------------------------------------------------------- */

/* "scheme://name:port" */
struct origin {
    struct str scheme;
    struct authority authority;
};

static bool is_scheme_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("+-.", c));
}

/* Returns: false for what is not an origin of RFC 6454, 6.2, such as "null". */
static bool origin_parse(struct str text, struct origin *out) {
    uint64_t port;
    size_t n = 0;
    while (n < text.len && is_scheme_char(text.ptr[n])) {
        n++;
    }
    struct str rest = str_make(text.ptr + n, text.len - n);
    if (n == 0 || !str_starts_with(rest, STR("://"))) {
        return false;
    }
    struct str authority = str_make(rest.ptr + 3, rest.len - 3);
    *out = (struct origin){str_make(text.ptr, n), authority_split(authority)};
    for (size_t i = 0; i < authority.len; i++) {
        char c = authority.ptr[i];
        if (c <= ' ' || c > '~' || strchr("/?#@\\,\"", c)) {
            return false;
        }
    }
    return out->authority.name.len > 0 &&
           (!out->authority.port.ptr ||
            (num_parse_u64(out->authority.port, &port) && port > 0 && port <= UINT16_MAX));
}

/* The port of "host:port"; without one, that of the origin's scheme; 0: unknown. */
static uint64_t port_of(struct str port, struct str scheme) {
    uint64_t number;
    if (port.len > 0) {
        return num_parse_u64(port, &number) ? number : UINT64_MAX;
    }
    return str_eq_nocase(scheme, STR("http")) ? 80 : str_eq_nocase(scheme, STR("https")) ? 443 : 0;
}

static bool is_same_place(const struct origin *origin, const struct authority *other) {
    return str_eq_nocase(origin->authority.name, other->name) &&
           port_of(origin->authority.port, origin->scheme) == port_of(other->port, origin->scheme);
}

/* Cuts the prefix that allows the control group too. Returns: whether it is there. */
static bool cut_control(struct str *setting) {
    static const struct str PREFIX = {"control=", 8};
    bool found = str_starts_with(*setting, PREFIX);
    if (found) {
        *setting = str_make(setting->ptr + PREFIX.len, setting->len - PREFIX.len);
    }
    return found;
}

/* Returns: what the response says to the browser; "": no setting allows the origin. */
static struct str allowed_origin(const struct web_access *access, struct str text,
                                 enum web_resource resource) {
    struct origin origin, allowed;
    bool parsed = text.len > 0 && origin_parse(text, &origin);
    for (size_t i = 0; i < access->n_origins; i++) {
        struct str setting = str_of(access->origins[i]);
        bool controls = cut_control(&setting);
        if (resource == WEB_CONTROL && !controls) {
            continue;
        }
        if (str_is(setting, "*")) {
            return STR("*");
        }
        if (parsed && origin_parse(setting, &allowed) &&
            str_eq_nocase(origin.scheme, allowed.scheme) &&
            is_same_place(&origin, &allowed.authority)) {
            return text;
        }
    }
    return STR("");
}

/* ---- the site -------------------------------------------------------------------------------- */

/* What a browser says of a request. */
struct web_fields {
    size_t n_origins, n_sites;
    struct str origin, site, mode, dest; /* the first of each */
    bool is_own_site;                    /* every Sec-Fetch-Site says so */
};

static void fields_read(const struct http_head *head, struct web_fields *out) {
    *out = (struct web_fields){.is_own_site = true};
    for (size_t i = 0; i < head->n_fields; i++) {
        struct str name = head->fields[i].name, value = head->fields[i].value;
        if (str_eq_nocase(name, STR("Origin"))) {
            out->origin = out->n_origins++ == 0 ? value : out->origin;
        } else if (str_eq_nocase(name, STR("Sec-Fetch-Site"))) {
            out->site = out->n_sites++ == 0 ? value : out->site;
            /* "none": the user typed the address or opened a bookmark. */
            out->is_own_site &= str_is(value, "same-origin") || str_is(value, "none");
        } else if (str_eq_nocase(name, STR("Sec-Fetch-Mode"))) {
            out->mode = value;
        } else if (str_eq_nocase(name, STR("Sec-Fetch-Dest"))) {
            out->dest = value;
        }
    }
}

/* The page's origin is that of the request. Behind a proxy the scheme may differ. */
static bool is_own_origin(const struct http_head *head, const struct web_fields *fields) {
    struct origin origin;
    struct authority host = authority_split(head->host);
    return fields->n_origins == 1 && origin_parse(fields->origin, &origin) &&
           is_same_place(&origin, &host);
}

static enum status site_error(enum web_resource resource, const struct web_fields *fields,
                              struct error *err) {
    struct str name = fields->n_origins > 0 ? STR("Origin") : STR("Sec-Fetch-Site");
    return error_set(
        err, ST_FOREIGN_ORIGIN,
        "a web page of another site made this request (%.*s \"%.*s\"): expected one of "
        "this server's own, or of an origin that --allowed-origin %sORIGIN allows",
        STR_ARG(name), STR_ARG(shown(fields->n_origins > 0 ? fields->origin : fields->site)),
        resource == WEB_CONTROL ? "control=" : "");
}

static enum status site_check(const struct web_access *access, enum web_resource resource,
                              const struct http_head *head, struct str *allow_origin,
                              struct error *err) {
    struct web_fields fields;
    fields_read(head, &fields);
    if (fields.n_origins <= 1) {
        *allow_origin = allowed_origin(access, fields.origin, resource);
    }
    if (allow_origin->len > 0 || resource == WEB_ANY_SITE) {
        return ST_OK;
    }
    /* Sec-Fetch-Site decides where it is present: Host may be another one behind a proxy. */
    bool is_own = fields.n_sites > 0 ? fields.is_own_site : is_own_origin(head, &fields);
    /* A link from another site, opened in a window of its own: that site reads nothing of it. */
    bool is_link = str_is(head->method, "GET") && str_is(fields.mode, "navigate") &&
                   str_is(fields.dest, "document");
    return is_own || is_link ? ST_OK : site_error(resource, &fields, err);
}

/* ---- the media type -------------------------------------------------------------------------- */

/* Pages cannot set it without a preflight. */
static bool is_browser(const struct http_head *head) {
    const struct str mark = STR("Mozilla/");
    struct str value;
    return http_head_find(head, STR("User-Agent"), &value) > 0 && value.len >= mark.len &&
           str_eq(str_make(value.ptr, mark.len), mark);
}

/* The types that need no preflight. `curl -d` sends the third one as well; of a browser it is
 * refused, unless that says the site. */
static bool is_type_of_pages(const struct http_head *head, struct str type) {
    return str_eq_nocase(type, STR("text/plain")) ||
           str_eq_nocase(type, STR("multipart/form-data")) ||
           (str_eq_nocase(type, STR("application/x-www-form-urlencoded")) && !head->names_site &&
            is_browser(head));
}

static enum status type_check(const struct http_head *head, struct error *err) {
    struct str value = {NULL, 0};
    if (!str_is(head->method, "POST") || http_head_find(head, STR("Content-Type"), &value) == 0) {
        return ST_OK;
    }
    struct str rest = value, type = str_trim(str_cut(&rest, ';'));
    if (is_type_of_pages(head, type)) {
        return error_set(err, ST_BAD_MEDIA_TYPE,
                         "expected Content-Type application/json, got \"%.*s\", which web pages of "
                         "all sites can send",
                         STR_ARG(shown(value)));
    }
    return ST_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

bool web_access_is_plain(const struct web_access *access, const struct web_listener *listener,
                         enum web_resource resource, const struct http_head *head) {
    return !head->names_site && resource != WEB_CONTROL &&
           (resource == WEB_ANY_SITE || host_is_accepted(access, listener, head->host));
}

enum status web_access_check(const struct web_access *access, const struct web_listener *listener,
                             enum web_resource resource, const struct http_head *head,
                             struct str *allow_origin, struct error *err) {
    enum status st = ST_OK;
    *allow_origin = STR("");
    if (resource != WEB_ANY_SITE && !host_is_accepted(access, listener, head->host)) {
        st = error_set(err, ST_UNKNOWN_HOST,
                       "the host \"%.*s\" is not a name of this server: expected an address, "
                       "localhost, the machine's name or a name of --allowed-host; this keeps web "
                       "pages out whose name leads here",
                       STR_ARG(shown(authority_split(head->host).name)));
    }
    if (st == ST_OK && head->names_site) {
        st = site_check(access, resource, head, allow_origin, err);
    }
    if (st == ST_OK && resource == WEB_CONTROL) {
        st = type_check(head, err);
    }
    return st;
}

bool web_access_is_preflight(const struct http_head *head, struct str *headers) {
    struct str value;
    *headers = STR("");
    if (!head->names_site || !str_is(head->method, "OPTIONS") ||
        http_head_find(head, STR("Origin"), &value) == 0 ||
        http_head_find(head, STR("Access-Control-Request-Method"), &value) == 0) {
        return false;
    }
    http_head_find(head, STR("Access-Control-Request-Headers"), headers);
    return true;
}

/* ---- settings -------------------------------------------------------------------------------- */

static bool is_host_setting(struct str text) {
    static const char CHARS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (str_is(text, "*")) {
        return true;
    }
    if (str_starts_with(text, STR("*."))) {
        text = str_make(text.ptr + 2, text.len - 2);
    }
    return text.len > 0 && text.ptr[0] != '.' && text.ptr[text.len - 1] != '.' &&
           strspn(text.ptr, CHARS) == text.len;
}

static enum status origin_setting_check(struct str text, struct error *err) {
    struct str origin_text = text;
    bool controls = cut_control(&origin_text);
    struct origin origin;
    if (controls && str_is(origin_text, "*")) {
        return error_set(err, ST_BAD_CONFIG,
                         "--allowed-origin control=*: expected the origins by name, as every page "
                         "could change the server");
    }
    if (str_is(origin_text, "null")) {
        return error_set(err, ST_BAD_CONFIG,
                         "--allowed-origin null: expected an origin of one site; files, and frames "
                         "in a sandbox of any site, have this one. * allows all");
    }
    if (!str_is(origin_text, "*") && !origin_parse(origin_text, &origin)) {
        return error_set(err, ST_BAD_CONFIG,
                         "--allowed-origin %.*s: expected SCHEME://HOST or SCHEME://HOST:PORT, as "
                         "https://app.example or http://localhost:3000, control= before it, or *",
                         STR_ARG(shown(text)));
    }
    return ST_OK;
}

enum status web_access_validate(const struct web_access *access, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < access->n_hosts; i++) {
        if (!is_host_setting(str_of(access->hosts[i]))) {
            return error_set(err, ST_BAD_CONFIG,
                             "--allowed-host %.*s: expected a name without scheme and port, as "
                             "models.example or *.example, or *",
                             STR_ARG(shown(str_of(access->hosts[i]))));
        }
    }
    for (size_t i = 0; i < access->n_origins && st == ST_OK; i++) {
        st = origin_setting_check(str_of(access->origins[i]), err);
    }
    return st;
}
