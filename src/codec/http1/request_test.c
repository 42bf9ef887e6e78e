/* Requests over HTTP/1.1: each row is a request and its meaning, parsed whole, cut in two at every
 * byte, and byte by byte; each prefix of a valid one needs more bytes. */
#include "codec/http1/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADER_BYTES = 512, MEANING_BYTES = 4096 };

/* What was parsed, in one line: "GET /path?query 1.1 keep [name=value] len 5 expect 0 | body". */
struct meaning {
    char text[MEANING_BYTES];
    size_t rest; /* bytes that were not consumed */
    enum status status;
    struct error err;
};

static void say(struct meaning *meaning, const char *format, ...) {
    size_t used = strlen(meaning->text);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(meaning->text + used, MEANING_BYTES - used, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < MEANING_BYTES - used);
}

static void say_head(struct meaning *meaning, const struct http_head *head) {
    say(meaning, "%.*s %.*s", STR_ARG(head->method), STR_ARG(head->path));
    if (head->query.ptr) {
        say(meaning, "?%.*s", STR_ARG(head->query));
    }
    say(meaning, " 1.%d %s", !head->http10, head->keep_alive ? "keep" : "close");
    for (size_t i = 0; i < head->n_fields; i++) {
        say(meaning, " [%.*s=%.*s]", STR_ARG(head->fields[i].name), STR_ARG(head->fields[i].value));
    }
    if (head->has_body) {
        say(meaning, head->chunked ? " chunked" : " length %llu",
            (unsigned long long)head->content_length);
    }
    static const char *const EXPECTS[] = {"", " continue", " unknown"};
    say(meaning, "%s", EXPECTS[head->expect]);
}

/* Parses one piece. Returns: false when the request is complete or an error. */
static bool read_piece(struct http1_request *request, struct meaning *meaning, struct str piece) {
    while (piece.len > 0) {
        enum http1_request_event event;
        struct str body;
        meaning->status = http1_request_step(request, &piece, &event, &body, &meaning->err);
        if (meaning->status != ST_OK) {
            return false;
        }
        if (event == HTTP1_REQUEST_MORE) {
            assert_int_equal(piece.len, 0);
            return true;
        }
        if (event == HTTP1_REQUEST_HEAD) {
            say_head(meaning, http1_request_head(request));
        }
        if (event == HTTP1_REQUEST_BODY) {
            assert_true(body.len > 0);
            say(meaning, "|%.*s", STR_ARG(body));
        }
        if (event == HTTP1_REQUEST_DONE ||
            (event == HTTP1_REQUEST_HEAD && !http1_request_head(request)->chunked)) {
            meaning->rest = piece.len;
            return false;
        }
    }
    return true;
}

/* Where a text is cut: nowhere, once, or everywhere. */
struct cut {
    size_t at;
    bool everywhere;
};

/* Returns: whether the request ended (or was an error) within the text. Pieces are copies in blocks
 * of their own, freed once parsed, so that the sanitizer sees a view that outlives its piece. */
static bool read_cut(struct str text, struct cut cut, struct meaning *meaning) {
    struct arena *arena = arena_new(NULL, 0);
    struct http1_request *request = http1_request_new(arena, HEADER_BYTES);
    assert_non_null(request);
    *meaning = (struct meaning){.status = ST_OK};
    bool more = true;
    size_t at = 0;
    while (more && at < text.len) {
        size_t n = cut.everywhere ? 1 : at < cut.at ? cut.at - at : text.len - at;
        char *piece = malloc(n);
        assert_non_null(piece);
        memcpy(piece, text.ptr + at, n);
        more = read_piece(request, meaning, str_make(piece, n));
        free(piece);
        at += n;
    }
    meaning->rest += text.len - at;
    arena_free(arena);
    return !more;
}

/* The pieces of a body depend on the cuts: their boundaries are removed. */
static void join_pieces(char *text) {
    char *head_end = strchr(text, '|');
    char *to = head_end ? head_end + 1 : text + strlen(text);
    for (const char *from = to; *from; from++) {
        if (*from != '|') {
            *to++ = *from;
        }
    }
    *to = '\0';
}

struct row {
    const char *what;
    struct str sent;
    enum status status;
    const char *meaning; /* when ST_OK */
    size_t rest;         /* bytes after the request */
};

struct bad_row {
    const char *what;
    struct str sent;
    enum status status;
};

#define HOST "Host: h\r\n"

static const struct row GOOD[] = {
    {"plain", STR("GET /v2 HTTP/1.1\r\nHost: h:80\r\n\r\n"), ST_OK, "GET /v2 1.1 keep [Host=h:80]",
     0},
    {"a next one behind it", STR("GET / HTTP/1.1\r\n" HOST "\r\nGET"), ST_OK,
     "GET / 1.1 keep [Host=h]", 3},
    {"a query", STR("GET /a?b=c?d HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "GET /a?b=c?d 1.1 keep [Host=h]", 0},
    {"an empty query", STR("GET /a? HTTP/1.1\r\n" HOST "\r\n"), ST_OK, "GET /a? 1.1 keep [Host=h]",
     0},
    {"an unknown method", STR("BREW /a HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "BREW /a 1.1 keep [Host=h]", 0},
    {"a method in small letters is another", STR("get /a HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "get /a 1.1 keep [Host=h]", 0},
    {"absolute", STR("GET http://x.y:8/a?b HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "GET /a?b 1.1 keep [Host=h]", 0},
    {"absolute without a path", STR("GET HTTP://[::1]:8 HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "GET / 1.1 keep [Host=h]", 0},
    {"absolute with only a query", STR("GET https://x?q HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "GET /?q 1.1 keep [Host=h]", 0},
    {"the server as a whole", STR("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "OPTIONS * 1.1 keep [Host=h]", 0},
    {"spaces around values", STR("GET / HTTP/1.1\r\nhOsT: \t h \t \r\nA:\r\nB:  \r\nC:d\r\n\r\n"),
     ST_OK, "GET / 1.1 keep [hOsT=h] [A=] [B=] [C=d]", 0},
    {"bytes over 127 in a value", STR("GET / HTTP/1.1\r\n" HOST "A: \xc3\xa4\xff\r\n\r\n"), ST_OK,
     "GET / 1.1 keep [Host=h] [A=\xc3\xa4\xff]", 0},
    {"empty Host", STR("GET / HTTP/1.1\r\nHost:\r\n\r\n"), ST_OK, "GET / 1.1 keep [Host=]", 0},
    {"two empty lines before", STR("\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n"), ST_OK,
     "GET / 1.1 keep [Host=h]", 0},
    {"1.0", STR("GET / HTTP/1.0\r\n\r\n"), ST_OK, "GET / 1.0 close", 0},
    {"1.0 that stays", STR("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), ST_OK,
     "GET / 1.0 keep [Connection=Keep-Alive]", 0},
    {"1.0 knows no 100",
     STR("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"), ST_OK,
     "POST / 1.0 close [Content-Length=1] [Expect=100-continue] length 1", 0},
    {"close", STR("GET / HTTP/1.1\r\n" HOST "Connection: a, CLOSE\r\n\r\n"), ST_OK,
     "GET / 1.1 close [Host=h] [Connection=a, CLOSE]", 0},
    {"close in a second field",
     STR("GET / HTTP/1.1\r\n" HOST "Connection: keep-alive\r\nConnection: close\r\n\r\n"), ST_OK,
     "GET / 1.1 close [Host=h] [Connection=keep-alive] [Connection=close]", 0},
    {"an upgrade is passed over",
     STR("GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\nX"), ST_OK,
     "GET / 1.1 keep [Host=h] [Connection=Upgrade] [Upgrade=h2c]", 1},
    {"a length", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 007\r\n\r\nabcdefg"), ST_OK,
     "POST / 1.1 keep [Host=h] [Content-Length=007] length 7", 7},
    {"length 0", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"), ST_OK,
     "POST / 1.1 keep [Host=h] [Content-Length=0]", 0},
    {"the largest length",
     STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n"), ST_OK,
     "POST / 1.1 keep [Host=h] [Content-Length=18446744073709551615] length "
     "18446744073709551615",
     0},
    {"a body of a GET", STR("GET / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab"), ST_OK,
     "GET / 1.1 keep [Host=h] [Content-Length=2] length 2", 2},
    {"100-continue",
     STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-Continue\r\n\r\n"), ST_OK,
     "POST / 1.1 keep [Host=h] [Content-Length=2] [Expect=100-Continue] length 2 continue", 0},
    {"another expectation", STR("POST / HTTP/1.1\r\n" HOST "Expect: tea\r\n\r\n"), ST_OK,
     "POST / 1.1 keep [Host=h] [Expect=tea] unknown", 0},
    {"chunks",
     STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
         "3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\nGET"),
     ST_OK, "POST / 1.1 keep [Host=h] [Transfer-Encoding=Chunked] chunked|abc0123456789", 3},
    {"no chunks", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     ST_OK, "POST / 1.1 keep [Host=h] [Transfer-Encoding=chunked] chunked", 0},
    {"extensions and trailers",
     STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
         "1;a\r\nx\r\n1;b=c;d=\"e;\\\"f\"\r\ny\r\n0;z\r\nA: b\r\nC:\r\n\r\n!"),
     ST_OK, "POST / 1.1 keep [Host=h] [Transfer-Encoding=chunked] chunked|xy", 1},
    {"chunks of an upgrade",
     STR("POST / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n"
         "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
     ST_OK,
     "POST / 1.1 keep [Host=h] [Connection=Upgrade] [Upgrade=h2c] [Transfer-Encoding=chunked] "
     "chunked|x",
     0},
};

#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"

static const struct bad_row BAD[] = {
    {"three empty lines before", STR("\r\n\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a bare LF before", STR("\nGET / HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a space before", STR(" GET / HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"TLS", STR("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), ST_BAD_REQUEST},
    {"garbage", STR("hello\r\n\r\n"), ST_BAD_REQUEST},
    {"a method without an end", STR("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n"),
     ST_BAD_REQUEST},
    {"a method that is no token", STR("G(T / HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"HTTP/0.9", STR("GET /\r\n\r\n"), ST_BAD_REQUEST},
    {"HTTP/2's preface", STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ST_BAD_VERSION},
    {"HTTP/1.2", STR("GET / HTTP/1.2\r\n" HOST "\r\n"), ST_BAD_VERSION},
    {"HTTP/3.0", STR("GET / HTTP/3.0\r\n" HOST "\r\n"), ST_BAD_VERSION},
    {"HTTP/1.x", STR("GET / HTTP/1.x\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"HTTP/11", STR("GET / HTTP/11\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"another protocol", STR("GET / RTSP/1.0\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"two spaces", STR("GET  / HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a tab", STR("GET\t/ HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"two spaces behind the target", STR("GET /  HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a space behind the version", STR("GET / HTTP/1.1 \r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"bare LF behind the request line", STR("GET / HTTP/1.1\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"bare CR behind the request line", STR("GET / HTTP/1.1\r" HOST "\r\n"), ST_BAD_REQUEST},
    {"bare LF behind a field", STR("GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n"), ST_BAD_REQUEST},
    {"bare LF at the end", STR("GET / HTTP/1.1\r\nHost: h\r\n\n"), ST_BAD_REQUEST},
    {"bare CR in a field", STR("GET / HTTP/1.1\r\nHost: h\r\nA: b\rC: d\r\n\r\n"), ST_BAD_REQUEST},
    {"a folded field", STR("GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n"), ST_BAD_REQUEST},
    {"a folded first field", STR("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), ST_BAD_REQUEST},
    {"NUL in a value", STR("GET / HTTP/1.1\r\n" HOST "A: b\0c\r\n\r\n"), ST_BAD_REQUEST},
    {"a control character in a value", STR("GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n"),
     ST_BAD_REQUEST},
    {"DEL in a value", STR("GET / HTTP/1.1\r\n" HOST "A: b\x7f\r\n\r\n"), ST_BAD_REQUEST},
    {"NUL in a name", STR("GET / HTTP/1.1\r\n" HOST "A\0: b\r\n\r\n"), ST_BAD_REQUEST},
    {"a space behind a name", STR("GET / HTTP/1.1\r\nHost : h\r\n\r\n"), ST_BAD_REQUEST},
    {"no name", STR("GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n"), ST_BAD_REQUEST},
    {"no colon", STR("GET / HTTP/1.1\r\n" HOST "A\r\n\r\n"), ST_BAD_REQUEST},
    {"NUL in the target", STR("GET /\0 HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a tab in the target", STR("GET /\t HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"bytes over 127 in the target", STR("GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a fragment", STR("GET /a#b HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a target without a slash", STR("GET a HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"another scheme", STR("GET ftp://x/ HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"no host in the target", STR("GET http:///a HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"a user in the target", STR("GET http://u@h/ HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"the server as a whole, got", STR("GET * HTTP/1.1\r\n" HOST "\r\n"), ST_BAD_REQUEST},
    {"CONNECT", STR("CONNECT h:1 HTTP/1.1\r\n" HOST "\r\n"), ST_METHOD_NOT_ALLOWED},
    {"no Host", STR("GET / HTTP/1.1\r\nA: b\r\n\r\n"), ST_BAD_REQUEST},
    {"two Hosts", STR("GET / HTTP/1.1\r\n" HOST HOST "\r\n"), ST_BAD_REQUEST},
    {"two Hosts in 1.0", STR("GET / HTTP/1.0\r\n" HOST HOST "\r\n"), ST_BAD_REQUEST},
    {"a Host with a path", STR("GET / HTTP/1.1\r\nHost: h/x\r\n\r\n"), ST_BAD_REQUEST},
    {"a Host with a user", STR("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"), ST_BAD_REQUEST},
    {"a Host with a space", STR("GET / HTTP/1.1\r\nHost: h h\r\n\r\n"), ST_BAD_REQUEST},
    {"two equal lengths",
     STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
     ST_BAD_REQUEST},
    {"two lengths in one", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n\r\nx"),
     ST_BAD_REQUEST},
    {"a length with a sign", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\nx"),
     ST_BAD_REQUEST},
    {"a negative length", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\nx"),
     ST_BAD_REQUEST},
    {"a hexadecimal length", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n\r\nx"),
     ST_BAD_REQUEST},
    {"a length with a space inside", STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 1 1\r\n\r\nx"),
     ST_BAD_REQUEST},
    {"an empty length", STR("POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\nx"), ST_BAD_REQUEST},
    {"a length of 2^64",
     STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551616\r\n\r\n"),
     ST_BAD_REQUEST},
    {"a length before chunked",
     STR("POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
     ST_BAD_REQUEST},
    {"a length behind chunked",
     STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"),
     ST_BAD_REQUEST},
    {"chunked twice",
     STR("POST / HTTP/1.1\r\n" HOST
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
     ST_UNSUPPORTED},
    {"chunked, chunked",
     STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n"), ST_UNSUPPORTED},
    {"gzip, chunked", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"),
     ST_UNSUPPORTED},
    {"gzip", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n"), ST_UNSUPPORTED},
    {"xchunked", STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n"),
     ST_UNSUPPORTED},
    {"chunked and a tab before",
     STR("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\x0b\r\n\r\n"), ST_BAD_REQUEST},
    {"chunked in 1.0", STR("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
     ST_BAD_REQUEST},
    {"a chunk's size is no number", STR(CHUNKED "x\r\n"), ST_BAD_REQUEST},
    {"a chunk's size has a prefix", STR(CHUNKED "0x1\r\nx\r\n"), ST_BAD_REQUEST},
    {"a chunk's size has a sign", STR(CHUNKED "-1\r\nx\r\n"), ST_BAD_REQUEST},
    {"a chunk has no size", STR(CHUNKED "\r\nx\r\n"), ST_BAD_REQUEST},
    {"a chunk's size is followed by a space", STR(CHUNKED "1 \r\nx\r\n"), ST_BAD_REQUEST},
    {"17 digits", STR(CHUNKED "10000000000000000\r\n"), ST_BAD_REQUEST},
    {"a bare LF behind the size", STR(CHUNKED "1\nx\r\n0\r\n\r\n"), ST_BAD_REQUEST},
    {"a bare LF behind an extension", STR(CHUNKED "1;a\nx\r\n0\r\n\r\n"), ST_BAD_REQUEST},
    {"a bare CR in an extension", STR(CHUNKED "1;a\rb\r\nx\r\n0\r\n\r\n"), ST_BAD_REQUEST},
    {"a bare LF behind a chunk", STR(CHUNKED "1\r\nx\n0\r\n\r\n"), ST_BAD_REQUEST},
    {"a chunk longer than its size", STR(CHUNKED "1\r\nxy\r\n0\r\n\r\n"), ST_BAD_REQUEST},
    {"a bare LF at the end", STR(CHUNKED "0\r\n\n"), ST_BAD_REQUEST},
    {"a folded trailer", STR(CHUNKED "0\r\nA: b\r\n c\r\n\r\n"), ST_BAD_REQUEST},
    {"a length in a trailer", STR(CHUNKED "0\r\nContent-Length: 1\r\n\r\n"), ST_BAD_REQUEST},
    {"NUL in a trailer", STR(CHUNKED "0\r\nA: \0\r\n\r\n"), ST_BAD_REQUEST},
};

static void check(const struct row *row, struct cut cut) {
    struct meaning meaning;
    bool ended = read_cut(row->sent, cut, &meaning);
    join_pieces(meaning.text);
    if (!ended || meaning.status != row->status) {
        fail_msg("%s (cut %zu%s): expected %s, got %s (%s)", row->what, cut.at,
                 cut.everywhere ? " everywhere" : "", status_name(row->status),
                 ended ? status_name(meaning.status) : "nothing yet",
                 meaning.status == ST_OK ? meaning.text : meaning.err.text);
    }
    if (row->status == ST_OK &&
        (strcmp(meaning.text, row->meaning) != 0 || meaning.rest != row->rest)) {
        fail_msg("%s (cut %zu%s): expected %s, then %zu bytes;\ngot %s, then %zu", row->what,
                 cut.at, cut.everywhere ? " everywhere" : "", row->meaning, row->rest, meaning.text,
                 meaning.rest);
    }
    if (row->status != ST_OK) {
        assert_int_equal(meaning.err.status, row->status);
        assert_true(strlen(meaning.err.text) > 10);
    }
}

static void check_cuts(const struct row *row) {
    check(row, (struct cut){0, true});
    for (size_t at = 0; at < row->sent.len; at++) {
        check(row, (struct cut){at, false});
    }
}

static void http1_request_valid_at_each_split_is_decoded(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        check_cuts(&GOOD[i]);
    }
}

static void http1_request_invalid_at_each_split_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct row row = {BAD[i].what, BAD[i].sent, BAD[i].status, "", 0};
        check_cuts(&row);
    }
}

static void http1_request_prefix_needs_more(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        size_t whole = GOOD[i].sent.len - GOOD[i].rest;
        for (size_t n = 0; n < whole; n++) {
            struct meaning meaning;
            struct str prefix = str_make(GOOD[i].sent.ptr, n);
            assert_false(read_cut(prefix, (struct cut){0, false}, &meaning));
        }
    }
}

/* Reads `prefix`, then `n` times `unit`, then `suffix`. */
static enum status read_repeated(const char *prefix, const char *unit, size_t n,
                                 const char *suffix) {
    size_t len = strlen(prefix) + n * strlen(unit) + strlen(suffix);
    char *text = malloc(len + 1);
    assert_non_null(text);
    char *at = text + snprintf(text, len + 1, "%s", prefix);
    for (size_t i = 0; i < n; i++) {
        memcpy(at, unit, strlen(unit));
        at += strlen(unit);
    }
    memcpy(at, suffix, strlen(suffix));
    struct meaning whole, bytes;
    bool ended = read_cut(str_make(text, len), (struct cut){0, false}, &whole);
    bool ended_too = read_cut(str_make(text, len), (struct cut){0, true}, &bytes);
    free(text);
    assert_true(ended && ended_too);
    assert_int_equal(whole.status, bytes.status);
    return whole.status;
}

static void http1_request_over_size_limits_is_refused(void **state) {
    (void)state;
    const char *line = "GET / HTTP/1.1\r\n" HOST "A: ";
    size_t rest = HEADER_BYTES - strlen(line) - 4;
    assert_int_equal(read_repeated(line, "x", rest, "\r\n\r\n"), ST_OK);
    assert_int_equal(read_repeated(line, "x", rest + 1, "\r\n\r\n"), ST_HEADER_TOO_LARGE);
    assert_int_equal(read_repeated("GET /", "x", 65536, " HTTP/1.1\r\n"), ST_HEADER_TOO_LARGE);
    const size_t extra = HTTP1_REQUEST_MAX_EXTRA_BYTES;
    const char *end = "\r\nx\r\n0\r\n\r\n";
    assert_int_equal(read_repeated(CHUNKED "1;", "x", extra - 1, end), ST_OK);
    assert_int_equal(read_repeated(CHUNKED "1;", "x", extra, end), ST_HEADER_TOO_LARGE);
    assert_int_not_equal(read_repeated(CHUNKED "1", ";", 2 * extra, end), ST_OK);
    assert_int_not_equal(read_repeated(CHUNKED "1", ";=", 2 * extra, end), ST_OK);
    assert_int_equal(read_repeated(CHUNKED "1;", "x", 2 * extra, end), ST_HEADER_TOO_LARGE);
    assert_int_equal(read_repeated(CHUNKED "0\r\n", "A: b\r\n", extra, "\r\n"),
                     ST_HEADER_TOO_LARGE);
}

static void http1_request_over_max_fields_is_refused(void **state) {
    (void)state;
    char text[8192];
    for (size_t n = HTTP1_REQUEST_MAX_FIELDS; n <= HTTP1_REQUEST_MAX_FIELDS + 1; n++) {
        size_t len = (size_t)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n" HOST);
        for (size_t i = 1; i < n; i++) {
            len += (size_t)snprintf(text + len, sizeof(text) - len, "n%zu:v\r\n", i);
        }
        len += (size_t)snprintf(text + len, sizeof(text) - len, "\r\n");
        struct arena *arena = arena_new(NULL, 0);
        struct http1_request *request = http1_request_new(arena, sizeof(text));
        struct str data = str_make(text, len), body, value;
        enum http1_request_event event;
        struct error err;
        enum status st = http1_request_step(request, &data, &event, &body, &err);
        assert_int_equal(st, n > HTTP1_REQUEST_MAX_FIELDS ? ST_HEADER_TOO_LARGE : ST_OK);
        if (st == ST_OK) {
            assert_int_equal(event, HTTP1_REQUEST_HEAD);
            const struct http_head *head = http1_request_head(request);
            assert_int_equal(http_head_find(head, STR("N255"), &value), 1);
            assert_true(str_is(value, "v"));
        }
        arena_free(arena);
    }
}

static void http1_request_chunk_left_is_known_before_its_bytes(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct http1_request *request = http1_request_new(arena, HEADER_BYTES);
    struct str data = STR(CHUNKED "1000"), body;
    enum http1_request_event event;
    struct error err;
    assert_int_equal(http1_request_step(request, &data, &event, &body, &err), ST_OK);
    assert_int_equal(event, HTTP1_REQUEST_HEAD);
    assert_int_equal(http1_request_chunk_left(request), 0);
    assert_int_equal(http1_request_step(request, &data, &event, &body, &err), ST_OK);
    assert_int_equal(event, HTTP1_REQUEST_MORE);
    assert_int_equal(http1_request_chunk_left(request), 0); /* no chunk was started */
    data = STR("00005\r\n");
    assert_int_equal(http1_request_step(request, &data, &event, &body, &err), ST_OK);
    assert_int_equal(event, HTTP1_REQUEST_MORE);
    assert_true(http1_request_chunk_left(request) == 0x100000005);
    data = STR("abc");
    assert_int_equal(http1_request_step(request, &data, &event, &body, &err), ST_OK);
    assert_int_equal(event, HTTP1_REQUEST_BODY);
    assert_true(http1_request_chunk_left(request) == 0x100000002);
    arena_free(arena);
}

static void http1_request_small_chunks_use_constant_memory(void **state) {
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    struct http1_request *request = http1_request_new(arena, HEADER_BYTES);
    struct str data = STR(CHUNKED), body;
    enum http1_request_event event;
    struct error err;
    assert_int_equal(http1_request_step(request, &data, &event, &body, &err), ST_OK);
    size_t n_bytes = 0, before = arena_bytes(arena);
    for (unsigned i = 0; i < 100000; i++) {
        data = STR("1\r\nx\r\n1\r\nx\r\n1\r\nx\r\n1\r\nx\r\n1\r\nx\r\n"
                   "1\r\nx\r\n1\r\nx\r\n1\r\nx\r\n1\r\nx\r\n1\r\nx\r\n");
        while (data.len > 0) {
            assert_int_equal(http1_request_step(request, &data, &event, &body, &err), ST_OK);
            n_bytes += event == HTTP1_REQUEST_BODY ? body.len : 0;
        }
    }
    assert_int_equal(n_bytes, 1000000);
    assert_int_equal(arena_bytes(arena), before);
    arena_free(arena);
}

/* Is a head with this character accepted? */
static bool takes_char(const char *before, char c, const char *behind) {
    char text[128];
    int n = snprintf(text, sizeof(text), "%s%c%s", before, c, behind);
    struct meaning meaning;
    assert_true(n > 0 && (size_t)n < sizeof(text)); /* a NUL does not end it */
    return read_cut(str_make(text, (size_t)n), (struct cut){0, false}, &meaning) &&
           meaning.status == ST_OK;
}

static void http1_request_each_character_follows_grammar(void **state) {
    (void)state;
    static const char ALNUM[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        bool alnum = c && strchr(ALNUM, c);
        bool token = alnum || (c && strchr("!#$%&'*+-.^_`|~", c));
        bool host = alnum || (c && strchr("-._~%!$&'()*+,;=:[] \t", c)); /* spaces are cut off */
        bool path = i > ' ' && i < 127 && c != '#' && c != '?';
        bool value = i == '\t' || (i >= ' ' && i != 127);
        assert_int_equal(takes_char("M", c, "M / HTTP/1.1\r\n" HOST "\r\n"), token);
        assert_int_equal(takes_char("GET / HTTP/1.1\r\nHost: ", c, "\r\n\r\n"), host);
        assert_int_equal(takes_char("GET /", c, "x HTTP/1.1\r\n" HOST "\r\n"), path || c == '?');
        assert_int_equal(takes_char("GET / HTTP/1.1\r\n" HOST "A: b", c, "c\r\n\r\n"), value);
        assert_int_equal(takes_char("GET / HTTP/1.1\r\n" HOST "A", c, "B: b\r\n\r\n"),
                         token || c == ':');
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http1_request_valid_at_each_split_is_decoded),
        cmocka_unit_test(http1_request_invalid_at_each_split_is_refused),
        cmocka_unit_test(http1_request_prefix_needs_more),
        cmocka_unit_test(http1_request_each_character_follows_grammar),
        cmocka_unit_test(http1_request_over_size_limits_is_refused),
        cmocka_unit_test(http1_request_over_max_fields_is_refused),
        cmocka_unit_test(http1_request_chunk_left_is_known_before_its_bytes),
        cmocka_unit_test(http1_request_small_chunks_use_constant_memory),
    };
    return cmocka_run_group_tests_name("codec/http1/request", tests, NULL, NULL);
}
