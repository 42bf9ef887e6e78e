/* Which requests a web page may make, sans I/O. A page of any site can send requests to every
 * server that its browser reaches, also on loopback. Three checks of a request's head:
 *
 *  - the site: browsers say whether a page of another site made the request (Fetch Metadata,
 *    section 2.3: Sec-Fetch-Site), or of which origin the page is (RFC 6454, 7: Origin). Clients
 *    that are not browsers send neither.
 *  - the host: with DNS rebinding a page's own name leads to this server, so that its requests come
 *    from the same site. Their Host is that name, with the port that the server listens on.
 *  - the media type: what a page sends without a preflight (Fetch standard, 2.2.2) is no request of
 *    the control group.
 *
 * docs/decisions/044-web-pages-are-not-clients.md has the reasons. Thread: any. */
#ifndef SLUICE_CODEC_HTTP1_WEB_ACCESS_H
#define SLUICE_CODEC_HTTP1_WEB_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/http1/request.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* The settings. Zeroed memory is the default of each. */
struct web_access {
    const char *const *hosts; /* --allowed-host: "models.example", "*.example", "*" */
    size_t n_hosts;
    const char *const *origins; /* --allowed-origin: "https://app.example", "control=ORIGIN", "*" */
    size_t n_origins;
    const char *machine; /* its name, as "node7" or "node7.example"; NULL: unknown */
};

/* The listener of a request. */
struct web_listener {
    bool is_tcp; /* a browser can't connect to another */
    bool is_loopback;
    uint16_t port;
};

enum web_resource {
    WEB_ANY_SITE, /* health: for pages of all sites and all hosts */
    WEB_SERVICE,  /* inference and metadata */
    WEB_CONTROL,  /* what changes the server, and the operators' pages */
};

/* Checks the values of the two settings. Returns: ST_BAD_CONFIG with the flag. */
enum status web_access_validate(const struct web_access *access, struct error *err) SLUICE_MUST_USE;

/* Returns: whether the host of requests is checked at this listener. */
static inline bool web_access_checks_host(const struct web_access *access,
                                          const struct web_listener *listener) {
    return access->n_hosts > 0 ? listener->is_tcp : listener->is_loopback;
}

/* Returns: whether web_access_check would accept the request, and allow no other origin to read the
 * response: true for most requests of clients that are not browsers. */
bool web_access_is_plain(const struct web_access *access, const struct web_listener *listener,
                         enum web_resource resource, const struct http_head *head);

/* `allow_origin` gets the value of Access-Control-Allow-Origin, a view of the head or of a literal;
 * "" when a page of another origin may not read the response. Returns: ST_FOREIGN_ORIGIN,
 * ST_UNKNOWN_HOST or ST_BAD_MEDIA_TYPE with the setting that allows the request. */
enum status web_access_check(const struct web_access *access, const struct web_listener *listener,
                             enum web_resource resource, const struct http_head *head,
                             struct str *allow_origin, struct error *err) SLUICE_MUST_USE;

/* Returns: whether it is the OPTIONS request by which a browser asks before another one (Fetch
 * standard, 3.3.2), for which web_access_check decides too; `headers` gets the names of the fields
 * that the other one will have, "": none. */
bool web_access_is_preflight(const struct http_head *head, struct str *headers);

#endif
