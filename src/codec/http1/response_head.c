/* Prints the head of a response, with one reservation for all of it. */
#include "codec/http1/response_head.h"

#include <stdio.h>
#include <string.h>

#include "core/base/num.h"

const char *http1_reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } REASONS[] = {
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < sizeof(REASONS) / sizeof(REASONS[0]); i++) {
        if (REASONS[i].status == status) {
            return REASONS[i].reason;
        }
    }
    return "Unknown";
}

static char *put_text(char *at, struct str text) {
    if (text.len > 0) {
        memcpy(at, text.ptr, text.len);
    }
    return at + text.len;
}

static char *put_number(char *at, uint64_t number) {
    return at + num_print_u64(at, number);
}

/* Fetch standard, 3.3.3: what a page of another origin may read besides the body. The response
 * depends on Origin: caches must know (Vary). */
#define EXPOSED                                                                                    \
    "Inference-Header-Content-Length, Retry-After, WWW-Authenticate, endpoint-load-metrics"
#define CORS_FIELDS "\r\nVary: Origin\r\nAccess-Control-Expose-Headers: " EXPOSED "\r\n"

void http_cors_fields(struct str allow_origin, struct http_field out[HTTP_CORS_FIELDS]) {
    out[0] = (struct http_field){STR("Access-Control-Allow-Origin"), allow_origin};
    out[1] = (struct http_field){STR("Vary"), STR("Origin")};
    out[2] = (struct http_field){STR("Access-Control-Expose-Headers"), STR(EXPOSED)};
}

/* An upper bound of the constant text around the variable parts. */
enum { FIXED_BYTES = 200, ALLOW_ORIGIN_BYTES = 32 + sizeof(CORS_FIELDS) };

static size_t max_size(const struct http1_response_head *reply, struct str reason,
                       struct str type) {
    size_t n_bytes = FIXED_BYTES + reply->common.len + reason.len + type.len;
    if (reply->allow_origin.len > 0) {
        n_bytes += ALLOW_ORIGIN_BYTES + reply->allow_origin.len;
    }
    for (size_t i = 0; i < reply->n_fields; i++) {
        n_bytes += reply->fields[i].name.len + reply->fields[i].value.len + 4;
    }
    return n_bytes;
}

void http1_response_head_print(struct buf *out, const struct http1_response_head *reply) {
    struct str reason = str_of(http1_reason(reply->status));
    struct str type = str_of(reply->content_type);
    char *start = buf_reserve(out, max_size(reply, reason, type));
    if (!start) {
        return;
    }
    char *at = put_text(start, STR("HTTP/1.1 "));
    at = put_number(at, (uint64_t)reply->status);
    *at++ = ' ';
    at = put_text(at, reason);
    at = put_text(at, STR("\r\n"));
    at = put_text(at, reply->common);
    if (type.len > 0) {
        at = put_text(put_text(put_text(at, STR("Content-Type: ")), type), STR("\r\n"));
    }
    if (reply->chunked) {
        at = put_text(at, STR("Transfer-Encoding: chunked\r\n"));
    } else if (!reply->until_close) {
        at = put_number(put_text(at, STR("Content-Length: ")), reply->content_length);
        at = put_text(at, STR("\r\n"));
    }
    for (size_t i = 0; i < reply->n_fields; i++) {
        at = put_text(put_text(at, reply->fields[i].name), STR(": "));
        at = put_text(put_text(at, reply->fields[i].value), STR("\r\n"));
    }
    if (reply->allow_origin.len > 0) {
        at = put_text(put_text(at, STR("Access-Control-Allow-Origin: ")), reply->allow_origin);
        at = put_text(at, STR(CORS_FIELDS));
    }
    if (reply->close) {
        at = put_text(at, STR("Connection: close\r\n"));
    } else if (reply->keep_alive) {
        at = put_text(at, STR("Connection: keep-alive\r\n"));
    }
    at = put_text(at, STR("\r\n"));
    buf_advance(out, (size_t)(at - start));
}

struct str http1_common_fields_print(char out[HTTP1_COMMON_FIELDS_BYTES], const char *server,
                                     time_t now) {
    static const char DAYS[] = "SunMonTueWedThuFriSat";
    static const char MONTHS[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm;
    gmtime_r(&now, &tm);
    /* strftime would use the locale's names. */
    int n = snprintf(out, HTTP1_COMMON_FIELDS_BYTES,
                     "Server: %.64s\r\nDate: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n", server,
                     &DAYS[3 * (size_t)tm.tm_wday], tm.tm_mday, &MONTHS[3 * (size_t)tm.tm_mon],
                     tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    return str_make(out, n > 0 && n < HTTP1_COMMON_FIELDS_BYTES ? (size_t)n : 0);
}
