/* Content-Encoding and Accept-Encoding (RFC 9110), and the compression of responses. The fastest
 * level is used, because a worker compresses between the requests of its connections. */
#include "serve/frontend/http/coding.h"

#include "codec/http1/content_coding.h"
#include "core/base/checked.h"
#include "core/base/num.h"

enum { COMPRESSION_LEVEL_FASTEST = 1 };

const char *http_coding_name(enum http_coding coding) {
    switch (coding) {
    case HTTP_GZIP:
        return "gzip";
    case HTTP_DEFLATE:
        return "deflate";
    case HTTP_IDENTITY:
        break;
    }
    return "identity";
}

static bool coding_parse(struct str word, enum http_coding *out) {
    if (str_eq_nocase(word, STR("gzip")) || str_eq_nocase(word, STR("x-gzip"))) {
        *out = HTTP_GZIP;
    } else if (str_eq_nocase(word, STR("deflate"))) {
        *out = HTTP_DEFLATE;
    } else if (str_eq_nocase(word, STR("identity")) || word.len == 0) {
        *out = HTTP_IDENTITY;
    } else {
        return false;
    }
    return true;
}

enum status http_coding_of_body(const struct http_head *head, enum http_coding *out,
                                struct error *err) {
    struct str value = {NULL, 0};
    size_t n = http_head_find(head, STR("Content-Encoding"), &value);
    *out = HTTP_IDENTITY;
    if (n == 0) {
        return ST_OK;
    }
    if (n > 1) {
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "expected one Content-Encoding (gzip or deflate), got %zu of them", n);
    }
    if (!coding_parse(value, out)) {
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "expected Content-Encoding gzip, deflate or identity, got \"%.*s\"",
                         STR_ARG(value));
    }
    return ST_OK;
}

/* Parses one list element: "gzip", "gzip;q=0.5", "gzip ; q=0.5". Returns: its weight in
 * thousandths. An invalid weight is 0, which excludes the coding: an uncompressed answer is always
 * acceptable. */
static unsigned element_parse(struct str element, struct str *word) {
    struct str rest = element;
    *word = str_trim(str_cut(&rest, ';'));
    unsigned weight = 1000;
    while (rest.ptr) {
        struct str parameter = str_trim(str_cut(&rest, ';'));
        if (str_starts_with(parameter, STR("q=")) || str_starts_with(parameter, STR("Q="))) {
            double q = 0;
            bool valid = num_parse_f64(str_make(parameter.ptr + 2, parameter.len - 2), &q) &&
                         q >= 0 && q <= 1;
            weight = valid ? (unsigned)(q * 1000 + 0.5) : 0;
        }
    }
    return weight;
}

/* The weight of each coding; -1: not listed. */
struct weights {
    int of[3];
    int others; /* "*" */
};

static void weights_read(struct str list, struct weights *weights, enum http_coding order[3]) {
    size_t n_named = 0;
    while (list.ptr) {
        struct str word;
        int weight = (int)element_parse(str_trim(str_cut(&list, ',')), &word);
        enum http_coding coding;
        if (str_is(word, "*")) {
            weights->others = weight;
        } else if (word.len > 0 && coding_parse(word, &coding) && weights->of[coding] < 0) {
            weights->of[coding] = weight;
            order[n_named++] = coding;
        }
    }
    static const enum http_coding rest[] = {HTTP_GZIP, HTTP_DEFLATE, HTTP_IDENTITY};
    for (size_t i = 0; i < 3; i++) {
        if (weights->of[rest[i]] < 0) {
            order[n_named++] = rest[i];
        }
    }
}

enum http_coding http_coding_of_answer(const struct http_head *head) {
    struct str list = {NULL, 0};
    if (http_head_find(head, STR("Accept-Encoding"), &list) == 0) {
        return HTTP_IDENTITY;
    }
    struct weights weights = {{-1, -1, -1}, -1};
    enum http_coding order[3] = {HTTP_IDENTITY, HTTP_GZIP, HTTP_DEFLATE};
    weights_read(list, &weights, order);
    enum http_coding best = HTTP_IDENTITY;
    int best_weight = 0;
    for (size_t i = 0; i < 3; i++) {
        int weight = weights.of[order[i]];
        if (weight < 0) { /* not listed: "*" applies; identity is always acceptable */
            weight = weights.others >= 0 ? weights.others : 0;
        }
        if (weight > best_weight) {
            best = order[i];
            best_weight = weight;
        }
    }
    return best;
}

/* ---- compression ----------------------------------------------------------------------------- */

/* Compresses all pieces; `capacity` is deflate_bound of their sum, so that every step has output
 * capacity. Returns: false when the arena's work was cancelled. */
static bool compress_pieces(struct deflate *codec, const struct arena *arena,
                            const struct piece *pieces, size_t n_pieces, char *out, size_t capacity,
                            size_t *n_out) {
    bool done = true;
    *n_out = 0;
    for (size_t i = 0; done && i < n_pieces; i++) {
        size_t n = 0;
        done = deflate_piece(codec, arena, str_make(pieces[i].data, pieces[i].n_bytes),
                             i + 1 == n_pieces, out + *n_out, capacity - *n_out, &n);
        *n_out += n;
    }
    return done && n_pieces > 0;
}

/* Returns: the capacity that the compressed bytes need at most; 0 when it overflows. */
static size_t compressed_capacity(struct deflate *codec, const struct piece *pieces,
                                  size_t n_pieces) {
    size_t total = 0;
    for (size_t i = 0; i < n_pieces; i++) {
        if (!checked_add(total, pieces[i].n_bytes, &total)) {
            return 0;
        }
    }
    if (!codec) {
        return 0;
    }
    size_t capacity = deflate_bound(codec, total);
    return capacity < SIZE_MAX ? capacity : 0;
}

bool http_compress(struct arena *arena, enum http_coding coding, const struct piece *pieces,
                   size_t n_pieces, struct piece *out) {
    struct deflate *codec = deflate_new(coding, COMPRESSION_LEVEL_FASTEST);
    size_t capacity = compressed_capacity(codec, pieces, n_pieces);
    char *data = capacity > 0 ? arena_alloc(arena, capacity) : NULL;
    *out = (struct piece){data, 0};
    bool done =
        data && compress_pieces(codec, arena, pieces, n_pieces, data, capacity, &out->n_bytes);
    deflate_free(codec);
    return done;
}
