/* Where a client connects to. Numeric addresses are known at once, names are looked up when a
 * connection is made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/num.h"
#include "net/client/grpc/conn.h"

static enum status target_error(struct str text, const char *why, struct error *err) {
    return error_set(err, ST_BAD_CONFIG,
                     "\"%.*s\" is no server: %s. Expected HOST:PORT (127.0.0.1:8001), [IPV6]:PORT, "
                     "or unix:/PATH",
                     STR_ARG(text), why);
}

static char *dup_text(struct str text) {
    char *copy = malloc(text.len + 1);
    if (copy) {
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
    }
    return copy;
}

static enum status set_parts(struct grpc_client_target *out, struct str text, struct str host,
                             struct error *err) {
    out->text = dup_text(text);
    out->host = dup_text(host);
    if (!out->text || !out->host) {
        grpc_client_target_fini(out);
        return error_set(err, ST_NO_MEMORY, "no memory for a gRPC client");
    }
    return ST_OK;
}

/* Letters, digits, dots, hyphens; underscores are no part of a host's name, and common in those of
 * containers. */
static bool is_name(struct str host) {
    bool good = host.len > 0 && host.len <= 253;
    for (size_t i = 0; i < host.len && good; i++) {
        char c = host.ptr[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_';
    }
    return good;
}

enum status grpc_client_target_parse(struct str text, struct grpc_client_target *out,
                                     struct error *err) {
    *out = (struct grpc_client_target){0};
    if (str_starts_with(text, STR("unix:"))) {
        enum status st = address_parse(text, &out->address, err);
        return st == ST_OK ? set_parts(out, text, STR("localhost"), err) : st;
    }
    size_t colon = text.len;
    while (colon > 0 && text.ptr[colon - 1] != ':') {
        colon--;
    }
    struct str host = str_make(text.ptr, colon > 0 ? colon - 1 : 0);
    uint64_t port;
    if (colon == 0) {
        return target_error(text, "the port is missing", err);
    }
    if (!num_parse_u64(str_make(text.ptr + colon, text.len - colon), &port) || port == 0 ||
        port > UINT16_MAX) {
        return target_error(text, "the port is a number from 1 to 65535", err);
    }
    snprintf(out->port, sizeof(out->port), "%u", (unsigned)port);
    bool numeric = host.len > 0 && !str_eq_nocase(host, STR("localhost")) &&
                   address_parse(text, &out->address, NULL) == ST_OK;
    if (!numeric) {
        out->address.len = 0;
        if (!is_name(host)) {
            return target_error(text, "the host is neither a name nor an address", err);
        }
    }
    bool bracketed = host.len >= 2 && host.ptr[0] == '[';
    return set_parts(out, text, bracketed ? str_make(host.ptr + 1, host.len - 2) : host, err);
}

void grpc_client_target_fini(struct grpc_client_target *target) {
    free(target->text);
    free(target->host);
    target->text = target->host = NULL;
}
