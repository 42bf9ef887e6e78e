/* The MIP server as its clients see it: each row is the input on a new connection, sent whole, byte
 * by byte, and in two parts at every split, and all expected bytes. The packets of
 * tests/vectors/mip are included. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "core/base/log.h"
#include "net/server/mip/server_fixture.h"

#define TEXT(literal)                                                                              \
    { literal, sizeof(literal) - 1 }

static const struct row {
    const char *what;
    struct str sent, answer;
    int error;  /* error code that is counted once; -1: none */
    bool stays; /* the connection accepts another packet */
} ROWS[] = {
    {"a ping", TEXT(PING), TEXT(PONG), -1, true},
    {"pings", TEXT(PING PING PING PING), TEXT(PONG PONG PONG PONG), -1, true},
    {"the reserved byte is ignored", TEXT("\0\1\0\xff\0\0\0\0"), TEXT(PONG), -1, true},
    {"an inference", TEXT(ASK("hello")), TEXT(TOLD("HELLO")), -1, true},
    {"the text of the vectors",
     TEXT(HEAD("\2", "\0", "\0\0\0\x12") "\1\0\0\1"
                                         "\0\0\0\1"
                                         "\0\0\0\6"
                                         "kubemo"),
     TEXT(HEAD("\2", "\1", "\0\0\0\x12") "\1\1\0\1"
                                         "\0\0\0\1"
                                         "\0\0\0\6"
                                         "KUBEMO"),
     -1, true},
    {"a batch of two, two inputs, kinds of items, one empty",
     TEXT(HEAD("\2", "\0", "\0\0\0\x2c") "\2\0\0\2"
                                         "\0\0\0\2\0\0\0\3[1]"
                                         "\0\0\0\1\0\0\0\0"
                                         "\0\0\0\3\0\0\0\4pict"
                                         "\0\0\0\x63\0\0\0\1x"),
     TEXT(HEAD("\2", "\1", "\0\0\0\x2c") "\2\2\0\2"
                                         "\0\0\0\2\0\0\0\3[1]"
                                         "\0\0\0\1\0\0\0\0"
                                         "\0\0\0\3\0\0\0\4PICT"
                                         "\0\0\0\x63\0\0\0\1X"),
     -1, true},
    {"answers in order, whenever they are made",
     TEXT(ASK("later") PING ASK("one..") ASK("later") ASK("later") PING ASK("two..")),
     TEXT(TOLD("LATER") PONG TOLD("ONE..") TOLD("LATER") TOLD("LATER") PONG TOLD("TWO..")), -1,
     true},
    {"an answer in many pieces", TEXT(ASK("parts") ASK("parts")), TEXT(TOLD("PARTS") TOLD("PARTS")),
     -1, true},
    {"an answer after all memory is taken", TEXT(ASK("greed") PING), TEXT(TOLD("GREED") PONG), -1,
     true},
    {"the handler refuses", TEXT(ASK("fails") PING), TEXT(INTERNAL PONG), 5, true},
    {"another version", TEXT("\1\1\0\0\0\0\0\0"), TEXT(PROTOCOL), 0, false},
    {"another version, and more", TEXT("\1\1\0\0\0\0\0\4abcd" PING), TEXT(PROTOCOL), 0, false},
    {"the version comes first", TEXT("\xff\7\7\0\0\0\0\0"), TEXT(PROTOCOL), 0, false},
    {"a response", TEXT(HEAD("\1", "\1", "\0\0\0\0")), TEXT(SUBTYPE), 1, true},
    {"then the subtype", TEXT(HEAD("\7", "\7", "\0\0\0\0") PING), TEXT(SUBTYPE PONG), 1, true},
    {"a response with its payload", TEXT(TOLD("HELLO") PING), TEXT(SUBTYPE PONG), 1, true},
    {"another kind", TEXT(HEAD("\7", "\0", "\0\0\0\0") PING), TEXT(METHOD PONG), 2, true},
    {"an error", TEXT(HEAD("\0", "\0", "\0\0\0\3") "abc" PING), TEXT(METHOD PONG), 2, true},
    {"another kind, and far too much", TEXT(HEAD("\7", "\0", "\0\2\0\0") PING), TEXT(METHOD), 2,
     false},
    {"a payload over the limit", TEXT(HEAD("\2", "\0", "\1\0\0\1") PING), TEXT(MEMORY), 3, false},
    {"4 GiB", TEXT(HEAD("\2", "\0", "\xff\xff\xff\xff") PING), TEXT(MEMORY), 3, false},
    {"a ping with a payload", TEXT(HEAD("\1", "\0", "\0\0\0\1") "x" PING), TEXT(SHAPE PONG), 4,
     true},
    {"an inference without its counts", TEXT(HEAD("\2", "\0", "\0\0\0\3") "\1\0\0" PING),
     TEXT(SHAPE PONG), 4, true},
    {"no payload at all", TEXT(HEAD("\2", "\0", "\0\0\0\0") PING), TEXT(SHAPE PONG), 4, true},
    {"batch size 0", TEXT(HEAD("\2", "\0", "\0\0\0\4") "\1\0\0\0" PING), TEXT(SHAPE PONG), 4, true},
    {"an item that overruns",
     TEXT(HEAD("\2", "\0", "\0\0\0\x0f") "\1\0\0\1"
                                         "\0\0\0\2\0\0\0\x64[1]" PING),
     TEXT(SHAPE PONG), 4, true},
    {"a missing item",
     TEXT(HEAD("\2", "\0", "\0\0\0\x0f") "\1\0\0\2"
                                         "\0\0\0\2\0\0\0\3[1]" PING),
     TEXT(SHAPE PONG), 4, true},
    {"bytes behind the items",
     TEXT(HEAD("\2", "\0", "\0\0\0\x13") "\1\0\0\1"
                                         "\0\0\0\2\0\0\0\3[1]tail" PING),
     TEXT(SHAPE PONG), 4, true},
};

static int64_t errors_of(int code) {
    return metric_read((enum metric)(METRIC_MIP_ERRORS_PROTOCOL + code));
}

static int64_t errors_in_all(void) {
    int64_t n = 0;
    for (int code = 0; code < MIP_ERRORS; code++) {
        n += errors_of(code);
    }
    return n;
}

/* Sends the row in pieces that end at each multiple of `piece`, except the first, which has `first`
 * bytes. */
static void check_row(const struct test_mip *mip, const struct row *row, size_t first,
                      size_t piece) {
    int fd = test_connect(mip), on = 1;
    int64_t all = errors_in_all(), own = row->error >= 0 ? errors_of(row->error) : 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    for (size_t at = 0, n = first; at < row->sent.len; at += n, n = piece) {
        n = row->sent.len - at < n ? row->sent.len - at : n;
        if (!test_try_send(fd, row->sent.ptr + at, n)) {
            break; /* refused before the end of the packet */
        }
    }
    char got[512];
    size_t came = test_read(fd, got, row->answer.len);
    if (came != row->answer.len || memcmp(got, row->answer.ptr, came) != 0) {
        fail_msg("%s, by %zu and %zu: got %zu of %zu bytes, or others", row->what, first, piece,
                 came, row->answer.len);
    }
    assert_int_equal(errors_in_all() - all, row->error >= 0);
    assert_int_equal(row->error >= 0 ? errors_of(row->error) - own : 0, row->error >= 0);
    if (row->stays) {
        test_ask(fd, STR(PING), STR(PONG));
    } else {
        shutdown(fd, SHUT_WR);
        if (!test_is_closed(fd)) {
            fail_msg("%s: the connection is still open", row->what);
        }
    }
    close(fd);
}

static void check_rows(const char *address) {
    struct test_mip mip;
    struct net_limits limits = test_limits();
    test_mip_start_with(&mip, &limits, test_budget(), address);
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        size_t n = ROWS[i].sent.len;
        check_row(&mip, &ROWS[i], n, n);
        check_row(&mip, &ROWS[i], 1, 1);
        for (size_t split = 1; split < n; split++) {
            check_row(&mip, &ROWS[i], split, n);
        }
    }
    test_mip_stop(&mip);
}

static void server_over_tcp_matches_table(void **state) {
    (void)state;
    check_rows("127.0.0.1:0");
}

static void server_over_unix_socket_matches_table(void **state) {
    (void)state;
    char folder[] = "/tmp/sluice-mip-XXXXXX", address[64];
    assert_non_null(mkdtemp(folder));
    snprintf(address, sizeof(address), "unix:%s/s", folder);
    check_rows(address);
    assert_int_equal(rmdir(folder), 0); /* the socket's file is gone */
}

/* ---- pipelined packets ----------------------------------------------------------------------- */

static char *repeat(struct str text, size_t n) {
    char *all = malloc(n * text.len);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++) {
        memcpy(all + i * text.len, text.ptr, text.len);
    }
    return all;
}

static void pipelined_packets_answered_in_order(void **state) {
    (void)state;
    static const struct {
        struct str sent, answer;
        size_t n;
    } ROUNDS[] = {
        {TEXT(PING), TEXT(PONG), 1000},
        {TEXT(PING), TEXT(PONG), 100000},
        {TEXT(ASK("hello")), TEXT(TOLD("HELLO")), 10000},
        {TEXT(ASK("later") PING), TEXT(TOLD("LATER") PONG), 10000},
        {TEXT(HEAD("\7", "\0", "\0\0\0\3") "abc"), TEXT(METHOD), 10000},
    };
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    int fd = test_connect(&mip), size = 4 << 20;
    /* All are sent before the first response is read: the socket buffers suffice. */
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    for (size_t i = 0; i < sizeof(ROUNDS) / sizeof(ROUNDS[0]); i++) {
        size_t n = ROUNDS[i].n;
        char *sent = repeat(ROUNDS[i].sent, n), *answer = repeat(ROUNDS[i].answer, n);
        int64_t before = metric_read(METRIC_ARENAS);
        test_ask(fd, str_make(sent, n * ROUNDS[i].sent.len),
                 str_make(answer, n * ROUNDS[i].answer.len));
        assert_true(i > 1 || metric_read(METRIC_ARENAS) == before); /* a ping needs no arena */
        free(sent);
        free(answer);
    }
    close(fd);
    test_mip_stop(&mip);
}

static void payload_sizes_are_echoed(void **state) {
    (void)state;
    static const size_t SIZES[] = {1, 2047, 2049, 16372, 16373, 65536, 1000000, (16 << 20) - 12};
    struct test_mip mip;
    test_mip_start(&mip, test_limits());
    int fd = test_connect(&mip);
    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        struct mip_item item = {MIP_TEXT, {NULL, SIZES[i]}};
        struct mip_infer infer = {
            .n_inputs = 1, .n_outputs = 1, .batch = 1, .items = &item, .n_items = 1};
        char head[MIP_HEADER_BYTES + MIP_COUNTS_BYTES + MIP_ITEM_HEAD_BYTES];
        uint32_t n_bytes;
        struct error err;
        char *data = malloc(SIZES[i]);
        assert_non_null(data);
        for (size_t j = 0; j < SIZES[i]; j++) {
            data[j] = (char)(j * 2654435761u >> 13 & 31);
        }
        assert_int_equal(mip_infer_size(&infer, false, &n_bytes, &err), ST_OK);
        mip_infer_head_encode(&infer, false, n_bytes, head);
        mip_item_head_encode(&item, head + MIP_HEADER_BYTES + MIP_COUNTS_BYTES);
        test_send(fd, str_make(head, sizeof(head)));
        test_send(fd, str_make(data, SIZES[i]));
        mip_infer_head_encode(&infer, true, n_bytes, head);
        test_expect(fd, str_make(head, sizeof(head)));
        test_expect(fd, str_make(data, SIZES[i]));
        free(data);
    }
    close(fd);
    test_mip_stop(&mip);
}

static void connections_are_balanced_over_workers(void **state) {
    (void)state;
    enum { CONNS = 8 };
    struct test_mip mip;
    int fds[CONNS];
    test_mip_start(&mip, test_limits());
    for (int i = 0; i < CONNS; i++) {
        fds[i] = test_connect(&mip);
        test_ask(fds[i], STR(ASK("hello")), STR(TOLD("HELLO")));
    }
    for (int i = 0; i < TEST_WORKERS; i++) {
        assert_int_equal(mip.of_worker[i], CONNS / TEST_WORKERS);
    }
    for (int i = 0; i < CONNS; i++) {
        close(fds[i]);
    }
    test_mip_stop(&mip);
}

/* ---- error log and counters ------------------------------------------------------------------ */

static size_t occurrences(const char *text, const char *part) {
    size_t n = 0;
    while ((text = strstr(text, part))) {
        text += strlen(part);
        n++;
    }
    return n;
}

static void error_answers_are_logged_with_rate_limit(void **state) {
    (void)state;
    enum { ERRORS = 20000 };
    static char text[1 << 20];
    struct test_mip mip;
    char *all = repeat(STR(HEAD("\7", "\0", "\0\0\0\0")), ERRORS), where[ADDRESS_TEXT_BYTES];
    FILE *log = tmpfile();
    int err = dup(2);
    assert_non_null(log);
    log_configure(LOG_DEBUG, LOG_TEXT);
    dup2(fileno(log), 2);
    test_mip_start(&mip, test_limits());
    address_print(&mip.host.bound, where);
    int fd = test_connect(&mip);
    int64_t before = errors_of(MIP_ERROR_METHOD);
    test_ask(fd, STR(HEAD("\7", "\0", "\0\0\0\0")), STR(METHOD));
    test_send(fd, str_make(all, (size_t)ERRORS * MIP_HEADER_BYTES));
    for (int i = 0; i < ERRORS; i++) {
        test_expect(fd, STR(METHOD));
    }
    test_send(fd, STR("\0\1\0"));
    shutdown(fd, SHUT_WR);
    assert_true(test_is_closed(fd));
    close(fd);
    test_mip_stop(&mip);
    dup2(err, 2);
    close(err);
    rewind(log);
    text[fread(text, 1, sizeof(text) - 1, log)] = '\0';
    fclose(log);
    assert_int_equal(errors_of(MIP_ERROR_METHOD) - before, ERRORS + 1);
    size_t lines = occurrences(text, "MIP request failed");
    assert_true(lines >= 1 && lines < ERRORS / 2); /* the rate is limited */
    assert_int_equal(occurrences(text, "METHOD"), lines);
    assert_int_equal(occurrences(text, "expected a packet of kind 1 (ping) or 2"), lines);
    assert_true(occurrences(text, "127.0.0.1:") >= 2 * lines);
    assert_true(occurrences(text, where) >= lines);
    assert_int_equal(occurrences(text, "MIP connection closed mid-packet"), 1);
    log_configure(LOG_ERROR, LOG_TEXT);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(server_over_tcp_matches_table),
        cmocka_unit_test(server_over_unix_socket_matches_table),
        cmocka_unit_test(pipelined_packets_answered_in_order),
        cmocka_unit_test(payload_sizes_are_echoed),
        cmocka_unit_test(connections_are_balanced_over_workers),
        cmocka_unit_test(error_answers_are_logged_with_rate_limit),
    };
    log_configure(LOG_ERROR, LOG_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
