/* What is asked for, in libcurl's words. For http_fetch.c only. */
#ifndef SLUICE_NET_CLIENT_HTTP_CURL_H
#define SLUICE_NET_CLIENT_HTTP_CURL_H

#include <curl/curl.h>

#include "net/client/http_fetch.h"

/* What the handle borrows while it runs. */
struct http_curl_lists {
    struct curl_slist *fields;
    struct curl_slist *connect_to;
};

/* On a handle that is new, or reset: what is the same for every fetch with this TLS. Connections
 * are kept by what they trust. */
void http_curl_set_common(CURL *easy, const struct http_fetch_tls *tls);
/* The handle must be reset before and after it. */
bool http_curl_needs_reset(const struct http_fetch_request *request);
/* All of one ask. `tls`: that it is set up with. Returns: ST_NO_MEMORY, ST_BAD_CONFIG. Owns: the
 * caller, `lists`, also after an error, until it has taken the handle out of use. */
enum status http_curl_set_request(CURL *easy, const struct http_fetch_request *request,
                                  const struct http_fetch_tls *tls, struct http_curl_lists *lists,
                                  struct error *err) __attribute__((warn_unused_result));
void http_curl_lists_fini(struct http_curl_lists *lists);

#endif
