/* Decoding a string in runs gives what decoding it byte by byte does. */
#include "codec/json/chunks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "core/base/str.h"

enum { MOST_BYTES = 400, N_TEXTS = 20000 };

struct decoded {
    char bytes[2 * MOST_BYTES + JSON_RUN_SLACK];
    size_t n, at; /* at: after the byte that ended it */
    enum json_string_event event;
};

/* In chunks of `piece` bytes. With `runs` in runs where that is allowed. */
static void decode(struct str text, size_t piece, bool runs, struct decoded *out) {
    struct json_string_decoder decoder = {.code = 0};
    out->n = out->at = 0;
    out->event = JSON_STRING_BYTES;
    while (out->at < text.len && out->event == JSON_STRING_BYTES) {
        size_t end = (out->at / piece + 1) * piece;
        end = end < text.len ? end : text.len;
        if (runs && decoder.escape == 0 && decoder.high == 0) {
            size_t n;
            memset(out->bytes + out->n, 'x', JSON_RUN_SLACK);
            const char *at =
                json_string_decode_run(text.ptr + out->at, text.ptr + end, out->bytes + out->n, &n);
            assert_true(n <= (size_t)(at - text.ptr) - out->at);
            out->at = (size_t)(at - text.ptr);
            out->n += n;
        }
        if (out->at < end) {
            out->event = json_string_decoder_feed(&decoder, text.ptr[out->at++]);
            memcpy(out->bytes + out->n, decoder.out, decoder.n_out);
            out->n += out->event == JSON_STRING_BYTES ? decoder.n_out : 0;
        }
    }
}

static size_t add(char *to, size_t n, const char *bytes) {
    memcpy(to + n, bytes, strlen(bytes));
    return n + strlen(bytes);
}

/* Plain bytes in runs of all lengths, with what is special between them. */
static struct str make_text(struct prng *random, char *to) {
    static const char *const parts[] = {
        "\\n",      "\\\"",           "\\\\",    "\\/",      "\\b\\f\\r\\t", "\\u00e4", "\\u20AC",
        "\\u0000",  "\\ud83d\\ude00", "\x7f",    "\xc3\xa4", "\"",           "\\x",     "\n",
        "\\ud83dx", "\\udc00",        "\\u12g4", "\\u00",    "\\\x80",       "\\"};
    enum { N_PARTS = sizeof(parts) / sizeof(*parts), N_GOOD = 11 };
    size_t n = 0, most = 1 + prng_next(random) % (MOST_BYTES - 120);
    while (n < most) {
        for (uint64_t plain = prng_next(random) % 80; plain > 0; plain--) {
            to[n++] = (char)('a' + plain % 26);
        }
        bool is_good = prng_next(random) % 16 != 0;
        n = add(to, n, parts[prng_next(random) % (is_good ? N_GOOD : N_PARTS)]);
    }
    return str_make(to, n);
}

static void json_string_runs_match_bytes(void **state) {
    static char text[MOST_BYTES];
    static struct decoded bytes, runs;
    size_t n_ended = 0, n_invalid = 0;
    struct prng random = {5};
    (void)state;
    for (int i = 0; i < N_TEXTS; i++) {
        struct str of = make_text(&random, text);
        size_t piece = 1 + prng_next(&random) % (i % 2 == 0 ? MOST_BYTES : 40);
        decode(of, MOST_BYTES, false, &bytes);
        decode(of, piece, true, &runs);
        assert_int_equal(runs.event, bytes.event);
        assert_int_equal(runs.at, bytes.at);
        assert_int_equal(runs.n, bytes.n);
        assert_memory_equal(runs.bytes, bytes.bytes, bytes.n);
        n_ended += bytes.event == JSON_STRING_END;
        n_invalid += bytes.event == JSON_STRING_INVALID;
    }
    assert_true(n_ended > 100 && n_invalid > 100 && n_ended + n_invalid < N_TEXTS - 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(json_string_runs_match_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
