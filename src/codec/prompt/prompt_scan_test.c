/* Scanning a body for the prompt: rows with the text collected from each body, cut at every
 * byte; bodies without a prompt; and the limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/prompt/prompt_scan.h"
#include "core/base/arena_fixture.h"
#include "core/base/random.h"

enum { ROOM = 4096 };

/* In two parts, each in its own allocation. */
static void scan_cut(struct str text, size_t cut, size_t room, struct prompt_scan *out) {
    prompt_scan_init(out, arena, room);
    for (int i = 0; i < 2; i++) {
        struct str part =
            i == 0 ? str_make(text.ptr, cut) : str_make(text.ptr + cut, text.len - cut);
        char *copy = malloc(part.len + 1);
        memcpy(copy, part.ptr, part.len);
        prompt_scan_feed(out, str_make(copy, part.len));
        free(copy);
    }
}

static struct prompt_scan scan(struct str text) {
    struct prompt_scan out;
    prompt_scan_init(&out, arena, ROOM);
    prompt_scan_feed(&out, text);
    return out;
}

static void assert_text(const struct buf *got, const char *wanted, const char *of) {
    if (!str_is(buf_str(got), wanted)) {
        fail_msg("%s: got \"%.*s\", wanted \"%s\"", of, STR_ARG(buf_str(got)), wanted);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

#define M "\x02" /* before a message */
#define T "\x03" /* before a role, and after a text of a list */

static const struct row {
    struct str body;
    const char *text, *system;
    uint64_t n_bytes, n_tokens, max_tokens;
} rows[] = {
    {STR("{\"model\":\"m\",\"prompt\":\"Say hi\"}"), "Say hi", "", 6, 0, 0},
    {STR(" {\n\"prompt\" :\t\"a\\u0062\\n\\\"\\ud83d\\ude00\" , \"max_tokens\" : 16 } "),
     "ab\n\"\xf0\x9f\x98\x80", "", 8, 0, 16},
    {STR("{\"prompt\":[\"one\",\"two\"]}"), "one" T "two" T, "", 6, 0, 0},
    {STR("{\"prompt\":[16843009, 33686018 ,50529027],\"max_tokens\":5}"),
     "\x01\x01\x01\x01\x02\x02\x02\x02\x03\x03\x03\x03", "", 0, 3, 5},
    {STR("{\"prompt\":[[16843009,33686018],[67305985]]}"),
     "\x01\x01\x01\x01\x02\x02\x02\x02\x01\x02\x03\x04", "", 0, 3, 0},
    {STR("{\"prompt\":[]}"), "", "", 0, 0, 0},
    {STR("{\"prompt\":null,\"max_tokens\":null}"), "", "", 0, 0, 0},
    {STR("{\"prompt\":{\"text\":\"no\"},\"suffix\":\"no\"}"), "", "", 0, 0, 0},
    {STR("{\"prompt\":\"\"}"), "", "", 0, 0, 0},
    {STR("{\"pro\\u006dpt\":\"a\",\"prompts\":\"no\",\"promp\":\"no\"}"), "a", "", 1, 0, 0},
    {STR("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_completion_tokens\":7}"),
     M "Hi" T "user", "", 6, 0, 7},
    /* bug-N6: members in another order */
    {STR("{\"messages\":[{\"content\":\"Hi\",\"role\":\"user\"}],\"max_output_tokens\":7}"),
     M "Hi" T "user", "", 6, 0, 7},
    {STR("{\"messages\":[{\"role\":\"a\",\"content\":\"Hi\",\"role\":\"\\u0075ser\"}]}"),
     M "Hi" T "user", "", 6, 0, 0},
    /* bug-N6: OpenAI's responses */
    {STR("{\"input\":\"Hi\",\"instructions\":\"Be brief\"}"), "Hi", "Be brief", 10, 0, 0},
    {STR("{\"instructions\":null,\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
         "\"input_text\",\"text\":\"Hi\"}]},{\"type\":\"function_call\"}]}"),
     M "Hi" T "user" M T, "", 6, 0, 0},
    /* a text as a string, and as a part */
    {STR("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}]}]}"),
     M "Hi" T "user", "", 6, 0, 0},
    {STR("{\"messages\":[{\"role\":\"user\",\"content\":[\"H\",{\"text\":\"i\"},{\"type\":"
         "\"image_url\",\"image_url\":{\"text\":[7]}}]}]}"),
     M "Hi" T "user", "", 6, 0, 0},
    {STR("{\"messages\":[{\"role\":\"system\",\"content\":\"Be.\"},{\"role\":\"user\",\"name\":"
         "\"no\",\"content\":\"Go\"}, 7, \"no\", "
         "{\"content\":null,\"tool_calls\":[{\"role\":\"no\"}]}]}"),
     M "Be." T "system" M "Go" T "user" M T, "", 15, 0, 0},
    {STR("{\"system\":\"Be brief\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"),
     M "Hi" T "user", "Be brief", 14, 0, 0},
    {STR("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"system\":[{\"type\":\"text\","
         "\"text\":\"Be \"},{\"text\":\"brief\"}],\"prompt\":\"!\"}"),
     M "Hi" T "user!", "Be brief", 15, 0, 0},
    {STR("{\"a\":{\"prompt\":\"no\"},\"b\":[{\"messages\":[]}],\"c\":\"\\\"prompt\\\":"
         "\\\"no\\\"\"}"),
     "", "", 0, 0, 0},
    {STR("{\"max_tokens\":-1}"), "", "", 0, 0, 0},
    {STR("{\"max_tokens\":1.5}"), "", "", 0, 0, 0},
    {STR("{\"max_tokens\":\"8\"}"), "", "", 0, 0, 0},
    {STR("{\"max_tokens\":99999999999999999999}"), "", "", 0, 0, 0},
    {STR("{}"), "", "", 0, 0, 0},
};

static void prompt_scan_rows_at_each_split_match(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (size_t cut = 0; cut <= rows[i].body.len; cut++) {
            struct prompt_scan got;
            scan_cut(rows[i].body, cut, ROOM, &got);
            assert_int_equal(got.result, PROMPT_SCAN_END);
            assert_text(&got.text, rows[i].text, rows[i].body.ptr);
            assert_text(&got.system, rows[i].system, rows[i].body.ptr);
            assert_int_equal(got.n_bytes, rows[i].n_bytes);
            assert_int_equal(got.n_tokens, rows[i].n_tokens);
            assert_int_equal(got.max_tokens, rows[i].max_tokens);
        }
    }
}

/* A picture counts as text of the size that the caller sets, and another one as another text; what
 * does not fit is counted all the same. */
static void prompt_scan_media_have_the_set_sizes(void **state) {
    static const struct {
        const char *part;
        uint64_t n_bytes;
    } sizes[] = {
        {"\"type\":\"image_url\",\"image_url\":{\"url\":\"http://a\"}", 3000},
        {"\"type\":\"image\",\"source\":{\"data\":\"abc\"}", 3000},
        {"\"video_url\":{\"url\":\"http://a\"}", 50000},
        {"\"input_audio\":{\"data\":\"abc\"}", 1024},
        {"\"text\":\"abc\"", 3},
    };
    struct arena *own = arena_new(NULL, 0);
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char body[300];
        struct prompt_scan scan;
        snprintf(body, sizeof(body), "{\"messages\":[{\"content\":[{%s}]}]}", sizes[i].part);
        prompt_scan_init(&scan, own, 10000);
        scan.image_bytes = 3000;
        scan.video_bytes = 50000;
        assert_int_equal(prompt_scan_feed(&scan, str_of(body)), PROMPT_SCAN_END);
        assert_int_equal(scan.n_bytes, sizes[i].n_bytes);
        assert_int_equal(scan.text.len, sizes[i].n_bytes < 9998 ? sizes[i].n_bytes + 2 : 10000);
    }
    arena_free(own);
}

static void prompt_scan_not_a_json_object_is_none(void **state) {
    static const struct str bodies[] = {
        STR("[\"prompt\"]"),
        STR("prompt=hi"),
        STR("\x1f\x8b\x08\x00"),
        STR("{prompt:\"a\"}"),
        STR("{\"prompt\" \"a\"}"),
        STR("{\"prompt\":}"),
        STR("{\"prompt\":\"a\" \"b\"}"),
        STR("{\"prompt\":\"\\q\"}"),
        STR("{\"prompt\":\"\\ud83d\"}"),
        STR("{\"prompt\":\"a\nb\"}"),
        STR("{\"prompt\":[1}"),
        STR("{\"messages\":[{\"role\":\"user\"]}"),
        STR("{\"a\":1,}"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        for (size_t cut = 0; cut <= bodies[i].len; cut++) {
            struct prompt_scan got;
            scan_cut(bodies[i], cut, ROOM, &got);
            assert_int_equal(got.result, PROMPT_SCAN_NONE);
        }
    }
}

/* Text is searched in vectors: each byte at each position of some of them. */
static void prompt_scan_bytes_at_each_position_are_seen(void **state) {
    enum { N = 150 };
    (void)state;
    for (int byte = 1; byte < 256; byte++) {
        for (size_t at = 0; at < N; at++) {
            char body[N + 32];
            memset(body, 'x', sizeof(body));
            memcpy(body, "{\"prompt\":\"", 11);
            body[11 + at] = (char)(unsigned char)byte;
            memcpy(body + 11 + N, "\",\"a\":1}", 9);
            struct prompt_scan got = scan(str_make(body, 11 + N + 9));
            if (byte == '\\' && at < N - 1) { /* "\x" is no escape */
                assert_int_equal(got.result, PROMPT_SCAN_NONE);
            } else if (byte == '\\') {
                assert_int_not_equal(got.result, PROMPT_SCAN_END); /* the text has not ended */
            } else if (byte < 0x20 || byte == '"') {
                assert_int_equal(got.result, PROMPT_SCAN_NONE);
            } else if (byte < 0x80) {
                assert_int_equal(got.result, PROMPT_SCAN_END);
                assert_int_equal(got.text.len, N);
                assert_memory_equal(got.text.data, body + 11, N);
            }
        }
    }
}

/* A valid prefix needs more. */
static void prompt_scan_prefix_needs_more(void **state) {
    struct str body = rows[17].body;
    (void)state;
    for (size_t n = 0; n < body.len; n++) {
        assert_int_equal(scan(str_make(body.ptr, n)).result, PROMPT_SCAN_MORE);
    }
}

/* ---- formats and errors ---------------------------------------------------------------------- */

/* A format, whether a member is required, and the error; NULL: none. */
static const struct format_row {
    enum prompt_format format;
    const char *required, *body, *error;
    uint64_t n_tokens, max_tokens;
} format_rows[] = {
    {PROMPT_OF_VLLM_TOKENS, NULL,
     "{\"token_ids\":[1,4294967295],\"sampling_params\":{\"max_tokens\":9},"
     "\"model\":\"m\",\"prompt\":\"no\"}",
     NULL, 2, 9},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":[]}",
     "token_ids: expected a list of token ids, got none", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":null}",
     "token_ids: expected a list of token ids, got none", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"input_ids\":[1]}",
     "token_ids: expected a list of token ids, got none", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":\"1\"}",
     "token_ids: expected a list of whole numbers", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":1}",
     "token_ids: expected a list of whole numbers", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":[1,-1]}",
     "token_ids: expected a list of whole numbers", 1, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":[4294967296]}",
     "token_ids: expected a list of whole numbers", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":[\"1\"]}",
     "token_ids: expected a list of whole numbers", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":[[1]]}",
     "token_ids: expected a list of whole numbers", 1, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":{\"a\":1}}",
     "token_ids: expected a list of whole numbers", 0, 0},
    {PROMPT_OF_VLLM_TOKENS, NULL, "{\"token_ids\":[1],\"cache_salt\":5}",
     "cache_salt: expected a text", 1, 0},
    {PROMPT_OF_SGLANG_TOKENS, NULL,
     "{\"input_ids\":[5,6,7],\"sampling_params\":{\"max_new_tokens\":3},"
     "\"extra_key\":null}",
     NULL, 3, 3},
    {PROMPT_OF_SGLANG_TOKENS, NULL, "{\"text\":\"a prompt\"}",
     "input_ids: expected a list of token ids, got none", 0, 0},
    {PROMPT_OF_SGLANG_TOKENS, NULL, "{\"input_ids\":[[5],[6]]}",
     "input_ids: expected a list of whole numbers", 2, 0},
    {PROMPT_OF_SGLANG_TOKENS, NULL, "{\"input_ids\":[1],\"extra_key\":[\"k\"]}",
     "extra_key: expected a text", 1, 0},
    {PROMPT_OF_TEXT, "messages", "{\"messages\":[{\"content\":\"a\"}]}", NULL, 0, 0},
    {PROMPT_OF_TEXT, "messages", "{\"messages\":[]}", "messages: expected a value, got none", 0, 0},
    {PROMPT_OF_TEXT, "messages", "{\"messages\":null}", "messages: expected a value, got none", 0,
     0},
    {PROMPT_OF_TEXT, "messages", "{\"prompt\":\"a\"}", "messages: expected a value, got none", 0,
     0},
    {PROMPT_OF_TEXT, "messages", "{\"x\":{\"messages\":[1]}}",
     "messages: expected a value, got none", 0, 0},
    {PROMPT_OF_TEXT, "prompt", "{\"prompt\":\"a\"}", NULL, 0, 0},
    {PROMPT_OF_TEXT, "prompt", "{\"prompt\":\"\"}", "prompt: expected a value, got none", 0, 0},
    {PROMPT_OF_TEXT, "prompt", "{\"prompt\":[\"a\"]}", NULL, 0, 0},
    {PROMPT_OF_TEXT, "prompt", "{\"prompt\":[7]}", NULL, 1, 0},
    {PROMPT_OF_TEXT, "prompt", "{\"prompt\":[7,1.5]}", "prompt: expected a text, or a list", 1, 0},
    {PROMPT_OF_TEXT, "input", "{\"input\":\"\"}", NULL, 0, 0},
    {PROMPT_OF_TEXT, "input", "{\"input\":[\"a\",\"b\"]}", NULL, 0, 0},
    {PROMPT_OF_TEXT, "input", "{\"input\":[8,9]}", NULL, 2, 0},
    {PROMPT_OF_TEXT, "input", "{\"input\":null}", "input: expected a value, got none", 0, 0},
    {PROMPT_OF_TEXT, "items", "{\"items\":[{\"role\":\"user\",\"content\":\"a\"}]}", NULL, 0, 0},
    {PROMPT_OF_TEXT, NULL, "{\"prompt\":null}", NULL, 0, 0},
    {PROMPT_OF_TEXT, NULL, "no JSON", "the request body is not a JSON object", 0, 0},
    {PROMPT_OF_TEXT, NULL, "{\"prompt\":\"a\"", "the request body is not a JSON object", 0, 0},
    {PROMPT_OF_TEXT, NULL, "", "the request body is not a JSON object", 0, 0},
};

static void prompt_scan_formats_have_errors(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(format_rows) / sizeof(*format_rows); i++) {
        const struct format_row *row = &format_rows[i];
        size_t n = strlen(row->body);
        for (size_t cut = 0; cut <= n; cut++) {
            struct prompt_scan got;
            struct error err = {0};
            prompt_scan_init(&got, arena, ROOM);
            got.format = row->format;
            got.may_have_system = false;
            got.required = row->required ? str_of(row->required) : str_make(NULL, 0);
            prompt_scan_feed(&got, str_make(row->body, cut));
            prompt_scan_feed(&got, str_make(row->body + cut, n - cut));
            enum status st = prompt_scan_check(&got, true, &err);
            if ((st == ST_OK) != !row->error || (row->error && !strstr(err.text, row->error))) {
                fail_msg("%s: %s", row->body, err.text);
            }
            assert_int_equal(got.n_tokens, row->n_tokens);
            assert_int_equal(got.max_tokens, row->max_tokens);
        }
    }
}

/* The form of the tokens makes no difference: four bytes each. */
static void prompt_scan_tokens_are_four_bytes(void **state) {
    static const char *const bodies[] = {"{\"prompt\":[1,258]}", "{\"token_ids\":[1,258]}",
                                         "{\"input_ids\": [ 1 , 258 ]}"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct prompt_scan got;
        prompt_scan_init(&got, arena, ROOM);
        got.format = (enum prompt_format)i;
        prompt_scan_feed(&got, str_of(bodies[i]));
        assert_int_equal(got.text.len, 8);
        assert_memory_equal(got.text.data, "\x01\0\0\0\x02\x01\0\0", 8);
    }
}

static void prompt_scan_hashes_salt_and_stream_are_read(void **state) {
    static const char body[] =
        "{\"features\":{\"mm_hashes\":{\"image\":[\"a\"],\"audio\":[\"a\",\"b\"]},\"x\":[{}]},"
        "\"stream\":true,\"cache_salt\":\"s\",\"token_ids\":[1]}";
    struct prompt_scan got, other;
    (void)state;
    for (size_t cut = 0; cut < sizeof(body); cut++) {
        prompt_scan_init(&got, arena, ROOM);
        got.format = PROMPT_OF_VLLM_TOKENS;
        got.lists_items = true;
        prompt_scan_feed(&got, str_make(body, cut));
        prompt_scan_feed(&got, str_make(body + cut, sizeof(body) - 1 - cut));
        assert_int_equal(got.n_items, 2);
        assert_int_equal(got.item_kinds[0], PROMPT_MEDIA_IMAGE);
        assert_int_equal(got.item_kinds[1], PROMPT_MEDIA_AUDIO);
        assert_true(got.is_streamed && got.has_media && got.salt != 0);
        assert_int_equal(got.text.len, 4);
    }
    other = scan(STR("{\"prompt\":\"a\",\"cache_salt\":\"t\",\"stream\":false}"));
    assert_true(other.salt != 0 && other.salt != got.salt && !other.is_streamed);
    other = scan(STR("{\"prompt\":\"a\",\"cache_salt\":\"s\"}"));
    assert_true(other.salt == got.salt);
    assert_true(scan(STR("{\"prompt\":\"a\"}")).salt == 0);
}

/* ---- media ----------------------------------------------------------------------------------- */

static struct prompt_scan scan_picture(const char *format, const char *data, size_t cut) {
    struct prompt_scan got;
    size_t n = strlen(format) + strlen(data) + 1;
    char *body = malloc(n);
    snprintf(body, n, format, data);
    scan_cut(str_of(body), cut < strlen(body) ? cut : strlen(body), 1 << 20, &got);
    assert_int_equal(got.result, PROMPT_SCAN_END);
    free(body);
    return got;
}

/* bug-N6: a picture counts by its bytes, in whatever order members are and however it is cut. */
static void prompt_scan_media_count_by_their_bytes(void **state) {
    enum { N = 600000 };
    static const char *const same[] = {
        "{\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"%s\",\"detail\":\"low\"}},"
        "{\"text\":\"Hi\"}]}]}",
        "{\"messages\":[{\"content\":[{\"type\":\"x\",\"image_url\":{ \"detail\":\"low\",\"url\":"
        "\"%s\"}},{\"text\":\"Hi\"}]}]}",
        "{\"input\":[{\"content\":[{\"source\":{\"data\":\"%s\",\"type\":\"low\"}},\"Hi\"]}]}"};
    char *data = malloc(N + 1);
    (void)state;
    for (size_t n = 1; n <= N; n = n * 7 + 1) {
        memset(data, 'A', n);
        data[n] = '\0';
        struct prompt_scan first = scan_picture(same[0], data, 0), other;
        assert_true(first.text.len >= 1024 + 4);
        for (size_t i = 0; i < 3; i++) {
            for (size_t cut = 70; cut < 140; cut++) {
                other = scan_picture(same[i], data, cut);
                assert_true(str_eq(buf_str(&first.text), buf_str(&other.text)));
            }
        }
        data[n - 1] = 'B';
        other = scan_picture(same[0], data, 0);
        assert_int_equal(first.text.len, other.text.len);
        assert_false(str_eq(buf_str(&first.text), buf_str(&other.text)));
    }
    free(data);
}

static void scan_items(const char *part, uint64_t seed, size_t cut, struct prompt_scan *out) {
    char body[2000];
    snprintf(body, sizeof(body), "{\"messages\":[{\"content\":[%s]}]}", part);
    prompt_scan_init(out, arena, 10);
    out->lists_items = true;
    out->media_seed = seed;
    prompt_scan_feed(out, str_make(body, cut < strlen(body) ? cut : strlen(body)));
    if (cut < strlen(body)) {
        prompt_scan_feed(out, str_of(body + cut));
    }
    assert_int_equal(out->result, PROMPT_SCAN_END);
}

#define IMAGE(url) "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"

/* Each picture once, by its URL or data alone, also beyond the text that is collected. */
static void prompt_scan_items_are_listed_once(void **state) {
    static const struct {
        const char *part;
        uint32_t n;
        bool is_first; /* the first one is IMAGE("a") */
        enum prompt_media kind;
    } rows_of_items[] = {
        {IMAGE("a"), 1, true, PROMPT_MEDIA_IMAGE},
        {IMAGE("a") "," IMAGE("a"), 1, true, PROMPT_MEDIA_IMAGE},
        {IMAGE("a") "," IMAGE("b") "," IMAGE("a"), 2, true, PROMPT_MEDIA_IMAGE},
        {"{\"image_url\":{\"detail\":\"low\",\"url\":\"a\"}}", 1, true, PROMPT_MEDIA_IMAGE},
        {"{\"image_url\":{\"url\":\"a\",\"detail\":\"high\"}}", 1, true, PROMPT_MEDIA_IMAGE},
        {"{\"image_url\":\"a\"}", 1, true, PROMPT_MEDIA_IMAGE},
        {"{\"image_url\":\"\\u0061\"}", 1, true, PROMPT_MEDIA_IMAGE},
        {"{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"a\"}}", 1, true,
         PROMPT_MEDIA_IMAGE},
        {"{\"source\":{\"media_type\":\"image/png\",\"data\":\"a\"}}", 1, true, PROMPT_MEDIA_IMAGE},
        {"{\"video_url\":{\"url\":\"a\"}}", 1, true, PROMPT_MEDIA_VIDEO},
        {"{\"audio_url\":{\"url\":\"a\"}}", 1, true, PROMPT_MEDIA_AUDIO},
        {"{\"file_url\":\"a\"}", 1, true, PROMPT_MEDIA_OTHER},
        {"{\"input_audio\":{\"data\":\"a\",\"format\":\"wav\"}}", 1, false, PROMPT_MEDIA_AUDIO},
        {"{\"input_audio\":{\"data\":\"a\",\"format\":\"wav\"}},"
         "{\"input_audio\":{\"data\":\"a\",\"format\":\"mp3\"}}",
         2, false, PROMPT_MEDIA_AUDIO},
        {IMAGE("data:image/png;base64,iVBORw0KGgo="), 1, false, PROMPT_MEDIA_IMAGE},
        {"{\"type\":\"text\",\"text\":\"a long text without pictures\"}", 0, false,
         PROMPT_MEDIA_OTHER},
        {"{\"image_url\":{\"detail\":\"low\"}}", 0, false, PROMPT_MEDIA_OTHER},
    };
    struct prompt_scan first, got, again;
    (void)state;
    scan_items(IMAGE("a"), 0, 2000, &first);
    for (size_t i = 0; i < sizeof(rows_of_items) / sizeof(*rows_of_items); i++) {
        for (size_t cut = 0; cut < 200; cut++) {
            scan_items(rows_of_items[i].part, 0, cut, &got);
            assert_int_equal(got.n_items, rows_of_items[i].n);
            if (got.n_items > 0) {
                assert_int_equal(got.items[0] == first.items[0], rows_of_items[i].is_first);
                assert_int_equal(got.item_kinds[0], rows_of_items[i].kind);
            }
        }
    }
    scan_items(IMAGE("a"), 7, 2000, &again); /* the seed makes hashes that clients don't know */
    assert_true(again.items[0] != first.items[0]);
}

static void prompt_scan_items_are_bounded(void **state) {
    struct prompt_scan got;
    (void)state;
    prompt_scan_init(&got, arena, 10);
    got.lists_items = true;
    prompt_scan_feed(&got, STR("{\"messages\":[{\"content\":["));
    for (uint32_t i = 0; i < PROMPT_SCAN_MAX_ITEMS + 50; i++) {
        char part[100];
        snprintf(part, sizeof(part), "{\"image_url\":\"%u\"},", i);
        prompt_scan_feed(&got, str_of(part));
        assert_int_equal(got.n_items, i < PROMPT_SCAN_MAX_ITEMS ? i + 1 : PROMPT_SCAN_MAX_ITEMS);
    }
    prompt_scan_feed(&got, STR("\"\"]}]}"));
    assert_int_equal(got.result, PROMPT_SCAN_END);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void prompt_scan_text_is_bounded(void **state) {
    enum { N = 1000000 };
    struct buf body;
    struct prompt_scan got;
    (void)state;
    buf_init(&body, arena, N + 100);
    buf_add_str(&body, STR("{\"prompt\":\""));
    for (int i = 0; i < N; i++) {
        buf_add_char(&body, (char)('a' + i % 26));
    }
    buf_add_str(&body, STR("\",\"max_tokens\":3}"));
    prompt_scan_init(&got, arena, 100);
    got.may_have_system = false;
    prompt_scan_feed(&got, str_make(body.data, 50));
    assert_false(prompt_scan_is_full(&got));
    prompt_scan_feed(&got, str_make(body.data + 50, 100));
    assert_true(prompt_scan_is_full(&got));
    prompt_scan_feed(&got, str_make(body.data + 150, body.len - 150));
    assert_int_equal(got.result, PROMPT_SCAN_END);
    assert_int_equal(got.text.len, 100);
    assert_int_equal(got.n_bytes, N);
    assert_int_equal(got.max_tokens, 3);
}

static void prompt_scan_endless_nesting_is_bounded(void **state) {
    static const char *const begins[] = {
        "{\"prompt\":", "{\"messages\":", "{\"system\":", "{\"x\":"};
    (void)state;
    for (size_t i = 0; i < sizeof(begins) / sizeof(*begins); i++) {
        struct prompt_scan got = scan(str_of(begins[i]));
        for (int k = 0; k < 100000; k++) {
            prompt_scan_feed(&got, k % 2 == 0 || i > 0 ? STR("[") : STR("[1,\"a\","));
        }
        assert_int_equal(got.result, PROMPT_SCAN_MORE);
        assert_true(got.text.len <= 20);
    }
}

/* Random texts give the same result at any cut. */
static void prompt_scan_random_splits_match(void **state) {
    static const char pieces[][20] = {"\"messages\":[",
                                      "{\"role\":\"user\",",
                                      "\"content\":\"",
                                      "\\u0041",
                                      "text",
                                      "\"}",
                                      "]",
                                      "}",
                                      ",",
                                      "{",
                                      "[",
                                      "\"",
                                      "\"prompt\":",
                                      "12",
                                      "\\",
                                      " ",
                                      "\"text\":"};
    struct prng prng = {1};
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct prompt_scan one, two;
        char text[400] = "{";
        uint32_t n = prng_below(&prng, 18);
        for (uint32_t k = 0; k < n; k++) {
            strcat(text, pieces[prng_below(&prng, sizeof(pieces) / sizeof(*pieces))]);
        }
        size_t len = strlen(text);
        one = scan(str_of(text));
        scan_cut(str_of(text), prng_below(&prng, (uint32_t)len + 1), ROOM, &two);
        assert_int_equal(one.result, two.result);
        assert_true(str_eq(buf_str(&one.text), buf_str(&two.text)));
        assert_true(str_eq(buf_str(&one.system), buf_str(&two.system)));
        assert_int_equal(one.n_bytes, two.n_bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_scan_rows_at_each_split_match),
        cmocka_unit_test(prompt_scan_media_have_the_set_sizes),
        cmocka_unit_test(prompt_scan_not_a_json_object_is_none),
        cmocka_unit_test(prompt_scan_bytes_at_each_position_are_seen),
        cmocka_unit_test(prompt_scan_prefix_needs_more),
        cmocka_unit_test(prompt_scan_formats_have_errors),
        cmocka_unit_test(prompt_scan_tokens_are_four_bytes),
        cmocka_unit_test(prompt_scan_hashes_salt_and_stream_are_read),
        cmocka_unit_test(prompt_scan_media_count_by_their_bytes),
        cmocka_unit_test(prompt_scan_items_are_listed_once),
        cmocka_unit_test(prompt_scan_items_are_bounded),
        cmocka_unit_test(prompt_scan_text_is_bounded),
        cmocka_unit_test(prompt_scan_endless_nesting_is_bounded),
        cmocka_unit_test(prompt_scan_random_splits_match),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
