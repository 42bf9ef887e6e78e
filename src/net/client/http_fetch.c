/* HTTP requests with libcurl's multi interface on a worker's loop: curl reports which sockets to
 * watch and when to call it, the loop reports events. Easy handles are reused.
 *
 * curl's callbacks must not call back into curl, so finished transfers are collected after each
 * curl_multi_socket_action. */
#include "net/client/http_fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "net/client/dial.h"
#include "net/client/socket_watcher.h"
#include "net/transport/tls/peer.h"

/* Lists that an easy handle borrows while it runs. */
struct http_curl_lists {
    struct curl_slist *fields;
    struct curl_slist *connect_to;
};

enum { NS_PER_MS = 1000000, READ_BYTES = 72 << 10, FIELD_BYTES = 8 << 10 };
/* TCP keepalive: the first probe after half of the configured time, then one every sixth. */
enum { ALIVE_IDLE_PART = 2, ALIVE_EVERY_PART = 6, MS_PER_S = 1000 };

/* ---- options of all fetches ------------------------------------------------------------------ */

static void set_pem(CURL *easy, CURLoption option, struct str pem) {
    struct curl_blob blob = {.data = (void *)(uintptr_t)pem.ptr,
                             .len = pem.len,
                             .flags = CURL_BLOB_COPY}; /* read only; curl's type has no const */
    if (pem.len > 0) {
        curl_easy_setopt(easy, option, &blob);
    }
}

static void set_tls(CURL *easy, const struct http_fetch_tls *tls, const struct tls_trust *trust) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, tls->insecure ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, tls->insecure ? 0L : 2L);
    if (tls->ca && tls->ca_pem.len == 0) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, tls->ca);
    } else if (tls->ca_pem.len == 0 && !tls->insecure && (trust->file || trust->directory)) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, trust->file);
        curl_easy_setopt(easy, CURLOPT_CAPATH, trust->directory);
    } /* where none was found curl's own places stay */
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

/* Sets the options that all fetches with this TLS share, on a new or reset handle. curl reuses a
 * connection only for the same TLS settings. */
static void http_curl_set_common(CURL *easy, const struct http_fetch_tls *tls,
                                 const struct tls_trust *trust) {
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* Most addresses are numeric, and each fetch would scan the whole cache. */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*"); /* ignores the environment's proxy */
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)READ_BYTES);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice");
    set_tls(easy, tls, trust);
}

/* The limit applies to sent bytes that are not acknowledged (TCP_USER_TIMEOUT) and to unanswered
 * keepalive probes, however many are sent. Returns: 0 as curl requires; a socket on which an option
 * fails is still used. */
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

/* A line break in a field would add another one: curl does not check. */
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
        return error_no_memory(err, "an HTTP request");
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
    /* curl would wait for "100 Continue" before a larger body, and set a form's content type. */
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

/* ---- another name in the certificate --------------------------------------------------------- */

/* The URL gets the certificate's name, which curl verifies; the connection and the Host field keep
 * the original host. */
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
                   : error_no_memory(err, "fetching %s", request->url);
    }
    CURLU *url = curl_url();
    enum status status = error_set(err, ST_BAD_CONFIG, "is not a URL");
    if (url && curl_url_set(url, CURLUPART_URL, request->url, CURLU_PATH_AS_IS) == CURLUE_OK) {
        status = rename_host(easy, url, tls->name, lists, err);
    }
    curl_url_cleanup(url);
    return status;
}

/* ---- options of one request ------------------------------------------------------------------ */

/* Returns: whether the handle must be reset before and after this request. */
static bool http_curl_needs_reset(const struct http_fetch_request *request) {
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
    return code == CURLE_OK ? ST_OK : error_no_memory(err, "an HTTP request");
}

static void set_limits(CURL *easy, const struct http_fetch_request *request) {
    uint64_t connect_ns =
        request->connect_timeout_ns > 0 ? request->connect_timeout_ns : request->timeout_ns;
    uint64_t most = request->max_body_size;
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, ms_of(request->timeout_ns));
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, ms_of(connect_ns));
    curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE,
                     (curl_off_t)(most < INT64_MAX ? most : INT64_MAX));
    curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_socket);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request->own_connection ? 1L : 0L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, request->own_connection ? 1L : 0L);
}

/* Sets all options of one request on a handle that is set up with `tls`. Returns: ST_NO_MEMORY,
 * ST_BAD_CONFIG. Owns: the caller, `lists`, also after an error, until the handle is no longer in
 * use. */
static enum status http_curl_set_request(CURL *easy, const struct http_fetch_request *request,
                                         const struct http_fetch_tls *tls,
                                         struct http_curl_lists *lists, struct error *err) {
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

enum { FIRST_BODY_BYTES = 4 << 10 };

struct http_fetcher {
    struct worker *worker;
    struct http_fetch_tls tls;
    struct tls_trust trust; /* without a CA of their own */
    CURLM *multi;
    struct timer timer;
    LIST_HEAD(, http_fetch) running, idle;
    struct socket_watcher_set sockets;
    void (*done)(void *user);
    void *user;
};

struct http_fetch {
    struct http_fetcher *fetcher;
    LIST_ENTRY(http_fetch) link; /* in `running` or `idle` */
    CURL *easy;
    http_fetch_done_cb *done;
    void (*piece)(void *user, struct str bytes);
    void *user;
    char *body;
    size_t len, cap, max_bytes;
    bool too_large, no_memory;
    int local_error; /* of errno: why there is no socket; 0: there is one */
    struct http_curl_lists lists;
    bool non_default; /* the handle has options of its last request and must be reset */
};

/* ---- fetches --------------------------------------------------------------------------------- */

/* Removes it from curl and puts it into the idle list. */
static void fetch_recycle(struct http_fetch *fetch) {
    struct http_fetcher *fetcher = fetch->fetcher;
    curl_multi_remove_handle(fetcher->multi, fetch->easy);
    LIST_REMOVE(fetch, link);
    curl_slist_free_all(fetch->lists.fields);
    curl_slist_free_all(fetch->lists.connect_to);
    fetch->lists = (struct http_curl_lists){0};
    free(fetch->body);
    fetch->body = NULL;
    fetch->local_error = 0;
    LIST_INSERT_HEAD(&fetcher->idle, fetch, link);
}

static size_t on_body(char *data, size_t size, size_t n, void *user) {
    struct http_fetch *fetch = user;
    size_t n_bytes = size * n; /* size is 1 */
    if (fetch->max_bytes == 0) {
        return n_bytes;
    }
    fetch->too_large = n_bytes > fetch->max_bytes - fetch->len;
    if (fetch->too_large) {
        return 0;
    }
    if (fetch->piece) {
        fetch->piece(fetch->user, str_make(data, n_bytes));
        fetch->len += n_bytes;
        return n_bytes;
    }
    if (fetch->cap - fetch->len < n_bytes) {
        size_t cap = 2 * (fetch->len + n_bytes) + FIRST_BODY_BYTES; /* below 3 x max_bytes */
        char *larger = realloc(fetch->body, cap);
        fetch->no_memory = !larger;
        if (!larger) {
            return 0;
        }
        fetch->body = larger;
        fetch->cap = cap;
    }
    memcpy(fetch->body + fetch->len, data, n_bytes);
    fetch->len += n_bytes;
    return n_bytes;
}

/* libcurl does not tell why it got no socket. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address) {
    struct http_fetch *fetch = user;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    fetch->local_error = fd < 0 && dial_error_is_local(errno) ? errno : 0;
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* ---- results --------------------------------------------------------------------------------- */

static void set_io_error(struct http_fetch *fetch, CURLcode code, struct http_fetch_result *out) {
    long number = 0;
    curl_easy_getinfo(fetch->easy, CURLINFO_OS_ERRNO, &number);
    out->refused = code == CURLE_COULDNT_CONNECT && number == ECONNREFUSED;
    int local = code == CURLE_COULDNT_CONNECT ? fetch->local_error : 0;
    local = local == 0 && dial_error_is_local((int)number) ? (int)number : local;
    if (local != 0) {
        error_set(&out->error, ST_OVERLOADED, "no connection can be made: %s", strerror(local));
    } else if (out->refused) {
        error_set(&out->error, ST_IO, "refused the connection");
    } else if (code == CURLE_COULDNT_CONNECT && number != 0) {
        error_set(&out->error, ST_IO, "cannot be reached: %s", strerror((int)number));
    } else if (code == CURLE_GOT_NOTHING) {
        error_set(&out->error, ST_IO, "closed the connection without an answer");
    } else {
        error_set(&out->error, ST_IO, "%s", curl_easy_strerror(code));
    }
}

static void set_curl_error(struct http_fetch *fetch, CURLcode code, struct http_fetch_result *out) {
    struct error *err = &out->error;
    if (fetch->no_memory || code == CURLE_OUT_OF_MEMORY) {
        error_no_memory(err, "the answer");
    } else if (fetch->too_large || code == CURLE_FILESIZE_EXCEEDED) {
        error_set(err, ST_BODY_TOO_LARGE, "answered with more than %zu bytes", fetch->max_bytes);
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
        error_set(err, ST_DEADLINE_EXCEEDED, "timed out");
    } else if (code == CURLE_URL_MALFORMAT) {
        error_set(err, ST_BAD_CONFIG, "is not a URL");
    } else if (code == CURLE_PARTIAL_FILE) {
        error_set(err, ST_BAD_ANSWER, "closed the connection within its answer");
    } else if (code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_UNSUPPORTED_PROTOCOL) {
        error_set(err, ST_BAD_ANSWER, "answered with something that is not HTTP");
    } else {
        set_io_error(fetch, code, out);
    }
}

static void finish_fetch(struct http_fetch *fetch, CURLcode code) {
    struct http_fetch_result out = {.error.status = ST_OK,
                                    .body = str_make(fetch->body, fetch->body ? fetch->len : 0)};
    const char *type = NULL;
    curl_off_t retry_after = 0;
    curl_easy_getinfo(fetch->easy, CURLINFO_CONTENT_TYPE, &type);
    curl_easy_getinfo(fetch->easy, CURLINFO_RETRY_AFTER, &retry_after);
    out.status = http_fetch_status(fetch);
    out.retry_after_s = retry_after > 0 ? (uint64_t)retry_after : 0;
    out.content_type = str_of(type ? type : "");
    if (code != CURLE_OK) {
        set_curl_error(fetch, code, &out);
    }
    fetch->done(fetch->user, &out);
    fetch_recycle(fetch);
}

static void process_completed(struct http_fetcher *fetcher) {
    int n_left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(fetcher->multi, &n_left))) {
        char *user = NULL;
        if (message->msg == CURLMSG_DONE) {
            CURLcode code = message->data.result;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
            finish_fetch((struct http_fetch *)(void *)user, code);
        }
    }
}

static void run_curl(struct http_fetcher *fetcher, curl_socket_t fd, int events) {
    int n_running;
    curl_multi_socket_action(fetcher->multi, fd, events, &n_running);
    process_completed(fetcher);
}

/* ---- sockets and time ------------------------------------------------------------------------ */

static struct http_fetcher *fetcher_of_sockets(struct socket_watcher_set *sockets) {
    return CONTAINER_OF(sockets, struct http_fetcher, sockets);
}

static void on_ready(struct socket_watcher_set *sockets, int fd, bool readable, bool writable,
                     bool broken) {
    int seen = broken ? CURL_CSELECT_ERR : 0;
    seen |= readable ? CURL_CSELECT_IN : 0;
    seen |= writable ? CURL_CSELECT_OUT : 0;
    run_curl(fetcher_of_sockets(sockets), fd, seen);
}

/* curl callback: watch this socket. Returns: 0; -1 would end all transfers. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *assigned) {
    struct socket_watcher *polled = assigned;
    struct http_fetcher *fetcher = user;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (polled) {
            curl_multi_assign(fetcher->multi, fd, NULL);
            socket_watcher_close(polled);
        }
        return 0;
    }
    polled = socket_watcher_update(&fetcher->sockets, polled, fd, what & CURL_POLL_IN,
                                   what & CURL_POLL_OUT);
    if (polled && !assigned) {
        curl_multi_assign(fetcher->multi, fd, polled);
    }
    return polled ? 0 : -1;
}

static void on_timeout(struct timer *timer) {
    struct http_fetcher *fetcher = CONTAINER_OF(timer, struct http_fetcher, timer);
    run_curl(fetcher, CURL_SOCKET_TIMEOUT, 0);
}

/* curl callback: set the timer; -1: stop it. */
static int on_timer(CURLM *multi, long timeout_ms, void *user) {
    struct http_fetcher *fetcher = user;
    struct loop_timers *timers = worker_timers(fetcher->worker);
    (void)multi;
    if (timeout_ms < 0) {
        timer_stop(timers, &fetcher->timer);
        return 0;
    }
    timer_start(timers, &fetcher->timer, clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS);
    return 0;
}

/* ---- the fetcher ----------------------------------------------------------------------------- */

enum status http_fetcher_new(struct worker *worker, const struct http_fetch_tls *tls,
                             unsigned max_idle, struct http_fetcher **out, struct error *err) {
    struct http_fetcher *fetcher = calloc(1, sizeof(*fetcher));
    bool global = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    CURLM *multi = global ? curl_multi_init() : NULL;
    if (!fetcher || !multi) {
        if (global) {
            curl_global_cleanup();
        }
        free(fetcher);
        return error_no_memory(err, "an HTTP client");
    }
    fetcher->worker = worker;
    fetcher->tls = tls ? *tls : (struct http_fetch_tls){0};
    fetcher->trust = tls_trust_system();
    fetcher->multi = multi;
    fetcher->timer.on_expire = on_timeout;
    fetcher->sockets = (struct socket_watcher_set){.worker = worker, .on_ready = on_ready};
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, fetcher);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, fetcher);
    http_fetcher_set_max_idle(fetcher, max_idle);
    *out = fetcher;
    return ST_OK;
}

void http_fetcher_set_max_idle(struct http_fetcher *fetcher, unsigned max_idle) {
    curl_multi_setopt(fetcher->multi, CURLMOPT_MAXCONNECTS, (long)max_idle);
}

static void on_sockets_closed(struct socket_watcher_set *sockets) {
    struct http_fetcher *fetcher = fetcher_of_sockets(sockets);
    fetcher->done(fetcher->user);
}

void http_fetcher_stop(struct http_fetcher *fetcher, void (*done)(void *user), void *user) {
    struct http_fetch_result cancelled = {.error.status = ST_OK};
    error_set(&cancelled.error, ST_CANCELLED, "given up");
    struct http_fetch *fetch;
    while ((fetch = LIST_FIRST(&fetcher->running))) {
        fetch->done(fetch->user, &cancelled);
        fetch_recycle(fetch);
    }
    while ((fetch = LIST_FIRST(&fetcher->idle))) {
        LIST_REMOVE(fetch, link);
        curl_easy_cleanup(fetch->easy);
        free(fetch);
    }
    curl_multi_cleanup(fetcher->multi);
    fetcher->multi = NULL;
    timer_stop(worker_timers(fetcher->worker), &fetcher->timer);
    fetcher->done = done;
    fetcher->user = user;
    socket_watcher_set_close(&fetcher->sockets, on_sockets_closed);
}

void http_fetcher_free(struct http_fetcher *fetcher) {
    if (fetcher) {
        free(fetcher);
        curl_global_cleanup();
    }
}

/* ---- lookups --------------------------------------------------------------------------------- */

/* Sets what all fetches with this TLS share. */
static void init_handle(struct http_fetch *fetch, const struct http_fetch_tls *tls) {
    curl_easy_setopt(fetch->easy, CURLOPT_PRIVATE, fetch);
    curl_easy_setopt(fetch->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(fetch->easy, CURLOPT_WRITEDATA, fetch);
    curl_easy_setopt(fetch->easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(fetch->easy, CURLOPT_OPENSOCKETDATA, fetch);
    http_curl_set_common(fetch->easy, tls, &fetch->fetcher->trust);
}

/* Returns: a fetch from the idle list, or a new one. */
static struct http_fetch *fetch_new(struct http_fetcher *fetcher,
                                    const struct http_fetch_request *request) {
    const struct http_fetch_tls *tls = request->tls ? request->tls : &fetcher->tls;
    bool non_default = request->tls || http_curl_needs_reset(request);
    struct http_fetch *fetch = LIST_FIRST(&fetcher->idle);
    if (fetch) {
        bool other = fetch->non_default || non_default;
        LIST_REMOVE(fetch, link);
        *fetch = (struct http_fetch){
            .fetcher = fetcher, .easy = fetch->easy, .non_default = non_default};
        if (other) {
            curl_easy_reset(fetch->easy);
            init_handle(fetch, tls);
        }
        return fetch;
    }
    fetch = calloc(1, sizeof(*fetch));
    CURL *easy = fetch ? curl_easy_init() : NULL;
    if (!easy) {
        free(fetch);
        return NULL;
    }
    *fetch = (struct http_fetch){.fetcher = fetcher, .easy = easy, .non_default = non_default};
    init_handle(fetch, tls);
    return fetch;
}

/* Starts the transfer. On an error the fetch is idle again. */
static enum status start_transfer(struct http_fetch *fetch,
                                  const struct http_fetch_request *request, struct error *err) {
    LIST_INSERT_HEAD(&fetch->fetcher->running, fetch, link);
    fetch->done = request->done;
    fetch->piece = request->piece;
    fetch->user = request->user;
    fetch->max_bytes = request->max_body_size;
    const struct http_fetch_tls *tls = request->tls ? request->tls : &fetch->fetcher->tls;
    enum status status = http_curl_set_request(fetch->easy, request, tls, &fetch->lists, err);
    if (status == ST_OK && curl_multi_add_handle(fetch->fetcher->multi, fetch->easy) != CURLM_OK) {
        status = error_no_memory(err, "fetching %s", request->url);
    }
    if (status != ST_OK) {
        fetch_recycle(fetch);
    }
    return status;
}

enum status http_fetch_start(struct http_fetcher *fetcher, const struct http_fetch_request *request,
                             struct http_fetch **out, struct error *err) {
    struct http_fetch *fetch = fetch_new(fetcher, request);
    enum status status = fetch ? start_transfer(fetch, request, err)
                               : error_no_memory(err, "fetching %s", request->url);
    if (status == ST_OK && out) {
        *out = fetch;
    }
    return status;
}

int http_fetch_status(const struct http_fetch *fetch) {
    long status = 0;
    curl_easy_getinfo(fetch->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

void http_fetch_cancel(struct http_fetch *fetch) {
    fetch_recycle(fetch);
}
