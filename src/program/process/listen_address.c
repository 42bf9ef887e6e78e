/* Listen addresses with schemes. */
#include "program/process/listen_address.h"

#include "core/base/log.h"
#include "net/server/grpc/server.h"

/* Removes the prefix "SCHEME://", or "SCHEME+" of "SCHEME+unix:". Returns: false when there is
 * none. */
static bool cut_scheme(struct str *text, const char *scheme) {
    struct str name = str_of(scheme);
    if (!str_starts_with(*text, name)) {
        return false;
    }
    struct str rest = str_make(text->ptr + name.len, text->len - name.len);
    size_t n = str_starts_with(rest, STR("://")) ? 3 : str_starts_with(rest, STR("+unix:")) ? 1 : 0;
    if (n == 0) {
        return false;
    }
    *text = str_make(rest.ptr + n, rest.len - n);
    return true;
}

enum status listen_address_check_tls_files(const char *flag, const char *cert, const char *key,
                                           const char *ca, struct error *err) {
    if (cert && !key) {
        return error_set(err, ST_BAD_CONFIG,
                         "--%s-tls-cert needs --%s-tls-key FILE, which may be the same file", flag,
                         flag);
    }
    if (!cert && (key || ca)) {
        return error_set(err, ST_BAD_CONFIG, "--%s-tls-%s needs --%s-tls-cert FILE", flag,
                         key ? "key" : "client-ca", flag);
    }
    return ST_OK;
}

enum status listen_address_parse(const struct listen_scheme *scheme, const char *text,
                                 struct listen_address *out, struct error *err) {
    struct str rest = str_of(text);
    bool tls = cut_scheme(&rest, scheme->tls);
    bool plain = !tls && cut_scheme(&rest, scheme->plain);
    enum status st = address_parse(rest, &out->address, err);
    if (st != ST_OK) {
        return error_prefix(err, "--%s %s", scheme->flag, text);
    }
    bool local = address_is_unix(&out->address);
    out->scheme_given = tls || plain;
    out->tls = tls || (!plain && !local && scheme->has_cert);
    if (tls && !scheme->has_cert) {
        return error_set(err, ST_BAD_CONFIG,
                         "--%s %s: TLS needs --%s-tls-cert FILE and --%s-tls-key FILE",
                         scheme->flag, text, scheme->flag, scheme->flag);
    }
    return ST_OK;
}

void listen_address_log(const struct listen_scheme *scheme,
                        const struct listen_address *listen_address, bool any_tls) {
    char text[ADDRESS_TEXT_BYTES];
    address_print(&listen_address->address, text);
    log_event(LOG_INFO, "listening",
              LOG_CSTR(listen_address->tls ? scheme->tls : scheme->plain, text));
    if (any_tls && !listen_address->tls && !listen_address->scheme_given &&
        !address_is_local(&listen_address->address)) {
        log_event(LOG_WARNING, "listener without TLS while others use TLS",
                  LOG_CSTR(scheme->plain, text));
    }
}

const char *listen_address_url(struct arena *arena, const struct listen_scheme *scheme,
                               const struct listen_address *listen_address) {
    char text[ADDRESS_TEXT_BYTES];
    bool local = address_is_unix(&listen_address->address);
    address_print(&listen_address->address, text);
    return arena_printf(arena, "%s%s%s", listen_address->tls ? scheme->tls : scheme->plain,
                        local ? "+" : "://", text)
        .ptr;
}

enum status grpc_listen(struct grpc_server *server, const struct listen_scheme *scheme,
                        const char *text, const struct tls_server *tls, bool any_tls,
                        struct listen_address *listen_address, struct error *err) {
    enum status st = listen_address_parse(scheme, text, listen_address, err);
    if (st != ST_OK) {
        return st;
    }
    struct address address = listen_address->address;
    st = grpc_server_listen(server, &address, listen_address->tls ? tls : NULL,
                            &listen_address->address, err);
    if (st != ST_OK) {
        return error_prefix(err, "--%s %s", scheme->flag, text);
    }
    listen_address_log(scheme, listen_address, any_tls);
    return ST_OK;
}
