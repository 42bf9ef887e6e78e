/* Messages of a real Envoy 1.40, stream by stream (tests/vectors/ext_proc), and the expected
 * answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/session/pick_fixture.h"

#define FOLDER "tests/vectors/ext_proc/"
#define SMALL "{\"model\":\"m\",\"prompt\":\"hi\",\"max_tokens\":8}"

/* A stream: the names of its messages; "part" and "end" are of the response's body. Answers are
 * written as
 *
 *     H h     headers of the request, of the response: unchanged
 *     >A      the same with a pick
 *     B5 b5.  bytes of a body sent on; the dot is end_of_stream
 *     T t     trailers
 *     !503    immediate response */
static const struct {
    const char *name, *messages, *answers;
} streams[] = {
    {"GET", "get-headers answer-headers part end", ">127.0.0.1:18101 h b5 b0."},
    {"POST over HTTP/1.1", "post-headers body body-end answer-headers part end",
     ">127.0.0.1:18101 B42 B0. h b5 b0."},
    {"POST over HTTP/2", "post-headers body-with-end answer-headers part end",
     ">127.0.0.1:18101 B42. h b5 b0."},
    {"an answer piece by piece",
     "post-headers body body-end answer-headers part part part part end",
     ">127.0.0.1:18101 B42 B0. h b5 b5 b5 b5 b0."},
    {"request trailers", "post-headers body trailers answer-headers part end",
     ">127.0.0.1:18101 B42 T h b5 b0."},
    {"an answer with trailers", "post-headers body-with-end answer-headers part answer-trailers",
     ">127.0.0.1:18101 B42. h b5 t"},
    {"a client that goes away in its body", "post-headers", ""},
    {"a client that goes away in the answer", "post-headers body body-end answer-headers part",
     ">127.0.0.1:18101 B42 B0. h b5"},
    {"headers only", "headers-only", ">127.0.0.1:18101"},
    {"a subset as a list", "subset-list body body-end served part end",
     ">127.0.0.1:18101 B42 B0. h b5 b0."},
    {"a subset as a text", "subset-string body body-end served part end",
     ">127.0.0.1:18101 B42 B0. h b5 b0."},
    {"an empty subset", "subset-empty body body-end", "!503"},
    {"attributes", "attributes body body-end answer-headers part end",
     ">127.0.0.1:18101 B42 B0. h b5 b0."},
};

static struct str load(struct arena *arena, const char *name) {
    char path[200];
    unsigned byte;
    struct buf bytes;
    snprintf(path, sizeof(path), FOLDER "%s-request.hex", name);
    FILE *file = fopen(path, "r");
    if (!file) {
        fail_msg("%s can't be opened", path);
    }
    buf_init(&bytes, arena, 512);
    while (fscanf(file, "%2x", &byte) == 1) {
        buf_add_char(&bytes, (char)byte);
    }
    fclose(file);
    return buf_str(&bytes);
}

static void send_one(struct fake_proxy *proxy, const char *name) {
    if (strcmp(name, "part") == 0) {
        proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR("12345"), false);
    } else if (strcmp(name, "end") == 0) {
        proxy_part(proxy, EXT_PROC_RESPONSE_BODY, STR(""), true);
    } else {
        struct arena *arena = arena_new(NULL, 0);
        proxy_take(proxy, load(arena, name));
        arena_free(arena);
    }
}

static void write_down(struct buf *out, const struct ext_proc_client_response *reply) {
    static const char letters[] = {
        [EXT_PROC_REQUEST_HEADERS] = 'H',  [EXT_PROC_RESPONSE_HEADERS] = 'h',
        [EXT_PROC_REQUEST_BODY] = 'B',     [EXT_PROC_RESPONSE_BODY] = 'b',
        [EXT_PROC_REQUEST_TRAILERS] = 'T', [EXT_PROC_RESPONSE_TRAILERS] = 't'};
    buf_add_str(out, out->len > 0 ? STR(" ") : STR(""));
    if (reply->is_immediate) {
        buf_printf(out, "!%u", reply->http_status);
    } else if (proxy_set(reply, PROXY_DESTINATION).ptr) {
        buf_printf(out, ">%.*s", STR_ARG(proxy_pick(reply)));
    } else {
        buf_add_char(out, letters[reply->kind]);
    }
    if (reply->body_mutation == EXT_PROC_BODY_STREAMED_RESPONSE) {
        buf_printf(out, "%zu%s", reply->body.len, reply->end_of_stream ? "." : "");
    }
}

static struct pool_spec *spec_of_captures(bool models) {
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, "127.0.0.1:18101");
    spec->strict_models = models;
    proxy_add_model(spec, "m", POOL_STANDARD);
    return spec;
}

/* Whether the model matters or not, the proxy gets the same in the end; only the order differs. */
static void capture_streams_give_same_result_in_each_mode(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(streams) / sizeof(streams[0]); i++) {
        bool models = i % 2 == 1;
        struct fake_proxy *proxy = proxy_open(spec_of_captures(models));
        struct buf out;
        buf_init(&out, proxy->arena, 0);
        for (struct str rest = str_of(streams[i / 2].messages); rest.ptr;) {
            struct str one = str_cut(&rest, ' ');
            char name[40];
            snprintf(name, sizeof(name), "%.*s", STR_ARG(one));
            if (!proxy->finished) {
                send_one(proxy, name);
            }
        }
        while (proxy->n_read < proxy->n_sent) {
            write_down(&out, proxy_next(proxy));
        }
        const char *expected = streams[i / 2].answers;
        bool body_buffer = models && *expected == '\0';
        if (!body_buffer && *expected == '\0') {
            expected = ">127.0.0.1:18101";
        }
        if (!str_is(out.len > 0 ? buf_str(&out) : STR(""), expected)) {
            fail_msg("%s: expected %s, got %.*s", streams[i / 2].name, expected,
                     STR_ARG(buf_str(&out)));
        }
        proxy_close(proxy);
    }
}

/* Capture 43: a large body in one message, in mode BUFFERED, and a response whose body is not
 * sent. */
static void capture_large_buffered_body_is_picked(void **state) {
    struct fake_proxy *proxy = proxy_open(spec_of_captures(true));
    char *body = malloc(200000);
    (void)state;
    memset(body, ' ', 200000);
    memcpy(body, SMALL, sizeof(SMALL) - 1);
    proxy_request(proxy, ":method=POST|:path=/v1/completions", false, PROXY_CONFIG(BUFFERED, NONE));
    proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    proxy_part(proxy, EXT_PROC_REQUEST_BODY, str_make(body, 200000), true);
    const struct ext_proc_client_response *reply = proxy_next(proxy);
    proxy_assert_text(proxy_pick(reply), "127.0.0.1:18101");
    assert_int_equal(reply->body_mutation, EXT_PROC_BODY_UNCHANGED);
    proxy_answer(proxy, ":status=200", false);
    proxy_expect_continue(proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_close(proxy);
    free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capture_streams_give_same_result_in_each_mode),
        cmocka_unit_test(capture_large_buffered_body_is_picked),
    };
    return cmocka_run_group_tests_name("pick/session/capture", tests, NULL, NULL);
}
