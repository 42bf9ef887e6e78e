/* libcurl's options, set from what is asked for. It refuses to run anything. */
#include "net/client/http_curl.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { NS_PER_MS = 1000000, READ_BYTES = 72 << 10, FIELD_BYTES = 8 << 10 };
/* A silent connection is asked after half of the time that it is given, then every sixth. */
enum { ALIVE_IDLE_PART = 2, ALIVE_EVERY_PART = 6, MS_PER_S = 1000 };

/* ---- what lasts ------------------------------------------------------------------------------ */

static void set_pem(CURL *easy, CURLoption option, struct str pem) {
    struct curl_blob blob = {.data = (void *)(uintptr_t)pem.ptr,
                             .len = pem.len,
                             .flags = CURL_BLOB_COPY}; /* read only; curl's type has no const */
    if (pem.len > 0) {
        curl_easy_setopt(easy, option, &blob);
    }
}

static void set_tls(CURL *easy, const struct http_fetch_tls *tls) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, tls->insecure ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, tls->insecure ? 0L : 2L);
    if (tls->ca && tls->ca_pem.len == 0) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, tls->ca);
    }
    if (tls->cert && tls->cert_pem.len == 0) {
        curl_easy_setopt(easy, CURLOPT_SSLCERT, tls->cert);
    }
    if ((tls->key || tls->cert) && tls->key_pem.len == 0) {
        curl_easy_setopt(easy, CURLOPT_SSLKEY, tls->key ? tls->key : tls->cert);
    }
    set_pem(easy, CURLOPT_CAINFO_BLOB, tls->ca_pem);
    set_pem(easy, CURLOPT_SSLCERT_BLOB, tls->cert_pem);
    set_pem(easy, CURLOPT_SSLKEY_BLOB, tls->key_pem.len > 0 ? tls->key_pem : tls->cert_pem);
}

void http_curl_set_common(CURL *easy, const struct http_fetch_tls *tls) {
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* Addresses are numeric, mostly; and each fetch looks at all that the cache holds. */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*"); /* whatever the environment says */
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)READ_BYTES);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice");
    set_tls(easy, tls);
}

/* The time holds for bytes of ours that nobody has acknowledged, and it is what ends a connection
 * whose questions are not answered, however many those are. Returns: 0, as curl wants it; a
 * connection that can't be asked is still one. */
static int on_new_socket(void *user, curl_socket_t fd, curlsocktype purpose) {
    unsigned ms = (unsigned)(uintptr_t)user * MS_PER_S;
    (void)purpose;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    return CURL_SOCKOPT_OK;
}

static long fraction_of(unsigned seconds, unsigned parts) {
    return seconds > parts ? (long)(seconds / parts) : 1L;
}

static void set_alive(CURL *easy, unsigned seconds) {
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, fraction_of(seconds, ALIVE_IDLE_PART));
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, fraction_of(seconds, ALIVE_EVERY_PART));
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_new_socket);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, (void *)(uintptr_t)seconds);
}

/* ---- header fields --------------------------------------------------------------------------- */

/* Neither curl nor a server would tell two fields from one with a line break in it. */
static enum status check_field(const char *text, const char *what, struct error *err) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return error_set(err, ST_BAD_CONFIG,
                             "expected %s without control characters, got 0x%02x", what, c);
        }
    }
    return ST_OK;
}

static enum status list_append(struct curl_slist **list, const char *text, struct error *err) {
    struct curl_slist *longer = curl_slist_append(*list, text);
    if (!longer) {
        return error_set(err, ST_NO_MEMORY, "no memory for what is asked over HTTP");
    }
    *list = longer;
    return ST_OK;
}

static enum status add_field(struct http_curl_lists *lists, const char *text, struct error *err) {
    enum status status = check_field(text, "a header field", err);
    return status == ST_OK ? list_append(&lists->fields, text, err) : status;
}

static enum status set_fields(CURL *easy, const struct http_fetch_request *request,
                              struct http_curl_lists *lists, struct error *err) {
    char type[FIELD_BYTES];
    enum status status = ST_OK;
    /* curl would wait for a "100 Continue" before larger bodies, and name a form as their type. */
    if (request->body.ptr) {
        status = add_field(lists, "Expect:", err);
        snprintf(type, sizeof(type), "Content-Type:%s%s", request->content_type ? " " : "",
                 request->content_type ? request->content_type : "");
        status = status == ST_OK ? add_field(lists, type, err) : status;
    }
    for (size_t i = 0; status == ST_OK && i < request->n_fields; i++) {
        status = add_field(lists, request->fields[i], err);
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lists->fields);
    return status;
}

/* ---- another name for the certificate -------------------------------------------------------- */

/* The name stands in the URL, which is what curl asks the certificate for; the connection and the
 * field Host are those of the host. */
static enum status rename_host(CURL *easy, CURLU *url, const char *name,
                               struct http_curl_lists *lists, struct error *err) {
    char text[FIELD_BYTES], *host = NULL, *port = NULL, *given_port = NULL, *renamed = NULL;
    enum status status = error_set(err, ST_BAD_CONFIG, "no URL with a host that may be named");
    if (curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
        curl_url_set(url, CURLUPART_HOST, name, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_URL, &renamed, 0) == CURLUE_OK &&
        curl_easy_setopt(easy, CURLOPT_URL, renamed) == CURLE_OK) {
        snprintf(text, sizeof(text), "::%s:%s", host, port);
        status = list_append(&lists->connect_to, text, err);
        (void)curl_url_get(url, CURLUPART_PORT, &given_port, 0);
        snprintf(text, sizeof(text), "Host: %s%s%s", host, given_port ? ":" : "",
                 given_port ? given_port : "");
        status = status == ST_OK ? add_field(lists, text, err) : status;
        curl_easy_setopt(easy, CURLOPT_CONNECT_TO, lists->connect_to);
    }
    curl_free(host);
    curl_free(port);
    curl_free(given_port);
    curl_free(renamed);
    return status;
}

static enum status set_url(CURL *easy, const struct http_fetch_request *request,
                           const struct http_fetch_tls *tls, struct http_curl_lists *lists,
                           struct error *err) {
    if (!tls->name) {
        return curl_easy_setopt(easy, CURLOPT_URL, request->url) == CURLE_OK
                   ? ST_OK
                   : error_set(err, ST_NO_MEMORY, "no memory for fetching %s", request->url);
    }
    CURLU *url = curl_url();
    enum status status = error_set(err, ST_BAD_CONFIG, "is no URL");
    if (url && curl_url_set(url, CURLUPART_URL, request->url, CURLU_PATH_AS_IS) == CURLUE_OK) {
        status = rename_host(easy, url, tls->name, lists, err);
    }
    curl_url_cleanup(url);
    return status;
}

/* ---- one ask --------------------------------------------------------------------------------- */

bool http_curl_needs_reset(const struct http_fetch_request *request) {
    return request->method || request->body.ptr || request->n_fields > 0 ||
           request->keepalive_s > 0 || request->connect_timeout_ns > 0;
}

static long ms_of(uint64_t ns) {
    return (long)((ns + NS_PER_MS - 1) / NS_PER_MS);
}

static enum status set_body(CURL *easy, const struct http_fetch_request *request,
                            struct error *err) {
    CURLcode code = CURLE_OK;
    if (request->body.ptr) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
        code = curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request->body.ptr);
    }
    if (code == CURLE_OK && request->method) {
        code = curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    }
    return code == CURLE_OK ? ST_OK
                            : error_set(err, ST_NO_MEMORY, "no memory for what is sent over HTTP");
}

static void set_limits(CURL *easy, const struct http_fetch_request *request) {
    uint64_t connect_ns =
        request->connect_timeout_ns > 0 ? request->connect_timeout_ns : request->timeout_ns;
    uint64_t most = request->max_body_size;
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, ms_of(request->timeout_ns));
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, ms_of(connect_ns));
    curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE,
                     (curl_off_t)(most < INT64_MAX ? most : INT64_MAX));
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request->own_connection ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, request->own_connection ? 1L : 0L);
}

enum status http_curl_set_request(CURL *easy, const struct http_fetch_request *request,
                                  const struct http_fetch_tls *tls, struct http_curl_lists *lists,
                                  struct error *err) {
    enum status status = request->bearer ? check_field(request->bearer, "a token", err) : ST_OK;
    set_limits(easy, request);
    if (request->keepalive_s > 0) {
        set_alive(easy, request->keepalive_s);
    }
    curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, request->bearer);
    curl_easy_setopt(easy, CURLOPT_HTTPAUTH, request->bearer ? CURLAUTH_BEARER : CURLAUTH_NONE);
    status = status == ST_OK ? set_body(easy, request, err) : status;
    status = status == ST_OK ? set_url(easy, request, tls, lists, err) : status;
    return status == ST_OK ? set_fields(easy, request, lists, err) : status;
}

void http_curl_lists_fini(struct http_curl_lists *lists) {
    curl_slist_free_all(lists->fields);
    curl_slist_free_all(lists->connect_to);
    *lists = (struct http_curl_lists){0};
}
