/* Matching. A pool is written in a line: authorities separated by commas, a path prefix, a header
 * and metadata, each optional: "a.b,.c /v1 x=1 s/k=2". */
#include "pick/pool/match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/base/random.h"

enum { MOST_POOLS = 512, MOST_AUTHORITIES = 4 };

struct fixture {
    struct arena *arena;
    struct str authorities[MOST_POOLS][MOST_AUTHORITIES];
    struct pool_match matches[MOST_POOLS];
    const struct pool_match *list[MOST_POOLS];
    size_t n;
    struct pool_index index;
    struct pool_match_conflict conflict;
};

static void read_word(struct fixture *f, struct pool_match *match, struct str word) {
    struct str value = word, key = str_cut(&value, '=');
    if (word.ptr[0] == '/') {
        match->path = word;
    } else if (value.ptr && memchr(key.ptr, '/', key.len)) {
        match->key = key;
        match->space = str_cut(&match->key, '/');
        match->metadata_value = value;
    } else if (value.ptr) {
        match->header = key;
        match->header_value = value;
    } else {
        match->authorities = f->authorities[f->n];
        while (word.ptr) {
            f->authorities[f->n][match->n_authorities++] = str_cut(&word, ',');
        }
    }
}

/* Borrows the texts. */
static void add(struct fixture *f, const char *text) {
    struct str rest = str_of(text);
    struct pool_match *match = &f->matches[f->n];
    assert_true(f->n < MOST_POOLS);
    while (rest.ptr && rest.len > 0) {
        read_word(f, match, str_cut(&rest, ' '));
    }
    f->list[f->n++] = match;
}

static void begin(struct fixture *f) {
    *f = (struct fixture){.arena = arena_new(NULL, 0)};
    assert_non_null(f->arena);
}

static enum status make(struct fixture *f) {
    struct error err;
    return pool_index_build(f->list, f->n, f->arena, &f->index, &f->conflict, &err);
}

static void end(struct fixture *f) {
    arena_free(f->arena);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

/* A request in a line: authority, path, then headers and metadata. */
static size_t find(const struct fixture *f, const char *text) {
    struct pool_match_input facts = {.authority = {NULL, 0}};
    struct str rest = str_of(text);
    facts.authority = str_cut(&rest, ' ');
    facts.path = str_cut(&rest, ' ');
    while (rest.ptr && rest.len > 0) {
        struct str value = str_cut(&rest, ' '), name = str_cut(&value, '='), key = name;
        struct str space = str_cut(&key, '/');
        for (size_t i = 0; i < f->index.headers.n && !key.ptr; i++) {
            if (str_eq(f->index.headers.items[i].name, name)) {
                facts.headers[i] = value;
            }
        }
        for (size_t i = 0; i < f->index.metadata.n && key.ptr; i++) {
            if (str_eq(f->index.metadata.items[i].name, key) &&
                str_eq(f->index.metadata.items[i].space, space)) {
                facts.metadata[i] = value;
            }
        }
    }
    return pool_index_find(&f->index, &facts);
}

static void expect(const struct fixture *f, const char *request, size_t pool) {
    size_t found = find(f, request);
    if (found != pool) {
        fail_msg("\"%s\": expected pool %zd, got %zd", request, (ssize_t)pool, (ssize_t)found);
    }
}

static const size_t NONE = SIZE_MAX;

/* ---- single conditions ----------------------------------------------------------------------- */

static void pool_match_without_conditions_takes_all_requests(void **state) {
    static struct fixture f;
    (void)state;
    begin(&f);
    add(&f, "");
    assert_int_equal(make(&f), ST_OK);
    assert_true(f.index.is_single_catch_all);
    expect(&f, "a.b /x", 0);
    expect(&f, " ", 0);
    end(&f);
}

static void pool_match_without_catch_all_returns_none(void **state) {
    static struct fixture f;
    (void)state;
    begin(&f);
    assert_int_equal(make(&f), ST_OK);
    expect(&f, "a.b /x", NONE);
    add(&f, "a.b");
    assert_int_equal(make(&f), ST_OK);
    expect(&f, "a.b /x", 0);
    expect(&f, "b.b /x", NONE);
    expect(&f, " /x", NONE);
    end(&f);
}

static void pool_match_most_specific_authority_wins(void **state) {
    static struct fixture f;
    (void)state;
    begin(&f);
    add(&f, ".b.c");
    add(&f, "a.b.c,[::1]");
    add(&f, ".c");
    add(&f, "a.b.c:8443");
    add(&f, "");
    assert_int_equal(make(&f), ST_OK);
    expect(&f, "a.b.c /", 1);
    expect(&f, "A.b.C:80 /", 1);
    expect(&f, "a.b.c. /", 1);
    expect(&f, "a.b.c:8443 /", 3);
    expect(&f, "x.b.c:8443 /", 0);
    expect(&f, "x.y.b.c /", 0);
    expect(&f, "b.c /", 2); /* "*.b.c" matches names below b.c only */
    expect(&f, "xb.c /", 2);
    expect(&f, "c /", 4);
    expect(&f, ".b.c /", 4); /* not a name */
    expect(&f, "[::1]:80 /", 1);
    expect(&f, "[::1] /", 1);
    expect(&f, "[::1 /", 4);
    expect(&f, ": /", 4);
    expect(&f, ". /", 4);
    end(&f);
}

static void pool_match_too_long_authority_is_ignored(void **state) {
    static struct fixture f;
    static char request[70000];
    (void)state;
    begin(&f);
    add(&f, ".c");
    add(&f, "");
    assert_int_equal(make(&f), ST_OK);
    memset(request, '.', sizeof(request) - 1);
    memcpy(request + sizeof(request) - 6, ".c /x", 5);
    expect(&f, request, 1);
    expect(&f, request + sizeof(request) - 6 - 200, 1);
    end(&f);
}

static void pool_match_longest_path_prefix_wins(void **state) {
    static struct fixture f;
    (void)state;
    begin(&f);
    add(&f, "/a");
    add(&f, "/a/b");
    add(&f, "/a/b/c");
    add(&f, "/ab");
    add(&f, "h /a/b");
    assert_int_equal(make(&f), ST_OK);
    expect(&f, "x /a", 0);
    expect(&f, "x /a?b", 0);
    expect(&f, "x /a?/a/b", 0);
    expect(&f, "x /a/", 0);
    expect(&f, "x /a/bc", 0); /* whole segments */
    expect(&f, "x /a/b/", 1);
    expect(&f, "x /a/b/cc", 1);
    expect(&f, "x /a/b/c/d", 2);
    expect(&f, "x /ab/c", 3);
    expect(&f, "x /abc", NONE);
    expect(&f, "x /", NONE);
    expect(&f, "x ", NONE);
    expect(&f, "h /a/b/c", 4);
    expect(&f, "h /a",
           0); /* the pools of the authority don't match: those without an authority do */
    end(&f);
}

static void pool_match_header_and_metadata_select_pool(void **state) {
    static struct fixture f;
    (void)state;
    begin(&f);
    add(&f, "/v1");
    add(&f, "/v1 s/k=1");
    add(&f, "/v1 tenant=a");
    add(&f, "/v1 tenant=a s/k=1");
    add(&f, "/v1 tenant=b");
    add(&f, "/v1 zone=b");
    add(&f, "s/other=1");
    assert_int_equal(make(&f), ST_OK);
    expect(&f, "x /v1", 0);
    expect(&f, "x /v1 tenant=c", 0);
    expect(&f, "x /v1 tenant=", 0);
    expect(&f, "x /v1 s/k=1", 1);
    expect(&f, "x /v1 s/k=1 tenant=b", 4);
    expect(&f, "x /v1 tenant=a s/k=2", 2);
    expect(&f, "x /v1 tenant=a s/k=1", 3);
    expect(&f, "x /v1 zone=b", 5);
    expect(&f, "x /v1 zone=b tenant=b", 4); /* equal: the first in the file */
    expect(&f, "x /v1 s/other=1", 0);       /* the path counts first */
    expect(&f, "x /v2 s/other=1", 6);
    expect(&f, "x /v2 tenant=a", NONE);
    end(&f);
}

/* ---- conflicts ------------------------------------------------------------------------------- */

static void pool_match_equal_conditions_are_a_conflict(void **state) {
    static const char *const pairs[][2] = {
        {"", ""},
        {"a.b", "a.b"},
        {"a.b,c.d", ".x,c.d"},
        {".b /v1", ".b /v1"},
        {"/v1 t=1", "/v1 t=1"},
        {"t=1 s/k=1", "t=1 s/k=1"},
    };
    static struct fixture f;
    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        begin(&f);
        add(&f, "other /v9 q=9");
        add(&f, pairs[i][0]);
        add(&f, pairs[i][1]);
        assert_int_equal(make(&f), ST_BAD_CONFIG);
        assert_int_equal(f.conflict.first, 1);
        assert_int_equal(f.conflict.second, 2);
        assert_true(i != 2 || str_is(f.conflict.authority, "c.d"));
        end(&f);
    }
}

static void pool_match_too_many_names_are_rejected(void **state) {
    static char texts[POOL_MATCH_MAX_NAMES + 1][16];
    static struct fixture f;
    (void)state;
    begin(&f);
    for (size_t i = 0; i <= POOL_MATCH_MAX_NAMES; i++) {
        snprintf(texts[i], sizeof(texts[i]), "h%zu=1", i);
        assert_int_equal(make(&f), ST_OK);
        add(&f, texts[i]);
    }
    assert_int_equal(make(&f), ST_BAD_CONFIG);
    assert_int_equal(f.conflict.first, f.conflict.second);
    end(&f);
}

/* ---- against a linear search ----------------------------------------------------------------- */

static struct str without_port(struct str authority) {
    struct str rest = authority;
    return str_cut(&rest, ':');
}

/* How specific the match of an authority is; 0: none. */
static size_t fit_of_authority(struct str wanted, struct str got) {
    struct str host = without_port(got);
    return str_eq(wanted, got)                                   ? 1000
           : str_eq(wanted, host)                                ? 999
           : wanted.ptr[0] == '.' && str_ends_with(host, wanted) ? 1 + wanted.len
                                                                 : 0;
}

/* How specific the match of a pool is; 0: none. */
static size_t fit_of(const struct pool_match *match, const struct pool_match_input *facts,
                     const struct pool_index *index) {
    size_t best = match->n_authorities == 0;
    struct str path = facts->path;
    for (size_t i = 0; i < match->n_authorities; i++) {
        size_t fit = fit_of_authority(match->authorities[i], facts->authority);
        best = fit > 0 && fit + 1 > best ? fit + 1 : best;
    }
    bool fits = str_starts_with(path, match->path) &&
                (path.len == match->path.len || path.ptr[match->path.len] == '/');
    for (size_t i = 0; i < index->headers.n && match->header.ptr; i++) {
        fits = fits && (!str_eq(index->headers.items[i].name, match->header) ||
                        (facts->headers[i].ptr && str_eq(facts->headers[i], match->header_value)));
    }
    for (size_t i = 0; i < index->metadata.n && match->key.ptr; i++) {
        fits = fits && facts->metadata[i].ptr && str_eq(facts->metadata[i], match->metadata_value);
    }
    size_t asks = (match->header.ptr ? 2U : 0U) + (match->key.ptr ? 1U : 0U);
    return best > 0 && fits ? (best * 1000 + match->path.len) * 4 + asks : 0;
}

static size_t find_slowly(const struct fixture *f, const struct pool_match_input *facts) {
    size_t found = SIZE_MAX, best = 0;
    for (size_t i = 0; i < f->n; i++) {
        size_t fit = fit_of(&f->matches[i], facts, &f->index);
        if (fit > best) {
            best = fit;
            found = i;
        }
    }
    return found;
}

static const char *const AUTHORITIES[] = {"a.b", "b", ".b", ".a.b", "c.a.b", "a.b:1", ".c"};
static const char *const PATHS[] = {"", "/a", "/a/a", "/aa", "/a/b", "/a/a/a", "/b"};
static const char *const VALUES[] = {"1", "2"};

#define ANY_OF(prng, list) str_of((list)[prng_below(prng, sizeof(list) / sizeof((list)[0]))])

static void add_some(struct fixture *f, struct prng *prng) {
    struct pool_match *match = &f->matches[f->n];
    if (prng_below(prng, 2) > 0) {
        f->authorities[f->n][0] = ANY_OF(prng, AUTHORITIES);
        match->authorities = f->authorities[f->n];
        match->n_authorities = 1;
    }
    match->path = ANY_OF(prng, PATHS);
    if (prng_below(prng, 3) == 0) {
        match->header = prng_below(prng, 2) > 0 ? STR("h") : STR("g");
        match->header_value = ANY_OF(prng, VALUES);
    }
    if (prng_below(prng, 3) == 0) {
        match->space = STR("s");
        match->key = STR("k");
        match->metadata_value = ANY_OF(prng, VALUES);
    }
    f->list[f->n++] = match;
}

static void ask_some(const struct fixture *f, struct prng *prng) {
    struct pool_match_input facts = {.authority = ANY_OF(prng, AUTHORITIES),
                                     .path = ANY_OF(prng, PATHS)};
    facts.authority = facts.authority.ptr[0] == '.' ? STR("x.y.a.b:2") : facts.authority;
    for (size_t i = 0; i < 2; i++) {
        facts.headers[i] = prng_below(prng, 2) > 0 ? ANY_OF(prng, VALUES) : str_make(NULL, 0);
    }
    facts.metadata[0] = prng_below(prng, 2) > 0 ? ANY_OF(prng, VALUES) : str_make(NULL, 0);
    assert_int_equal(pool_index_find(&f->index, &facts), find_slowly(f, &facts));
}

static void pool_match_index_agrees_with_linear_search(void **state) {
    static struct fixture f;
    struct prng prng = {1};
    unsigned n_made = 0;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t n = 1 + prng_below(&prng, 12);
        begin(&f);
        while (f.n < n) {
            add_some(&f, &prng);
        }
        if (make(&f) == ST_OK) {
            n_made++;
            for (int i = 0; i < 60; i++) {
                ask_some(&f, &prng);
            }
        }
        end(&f);
    }
    assert_true(n_made > 500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_match_without_conditions_takes_all_requests),
        cmocka_unit_test(pool_match_without_catch_all_returns_none),
        cmocka_unit_test(pool_match_most_specific_authority_wins),
        cmocka_unit_test(pool_match_too_long_authority_is_ignored),
        cmocka_unit_test(pool_match_longest_path_prefix_wins),
        cmocka_unit_test(pool_match_header_and_metadata_select_pool),
        cmocka_unit_test(pool_match_equal_conditions_are_a_conflict),
        cmocka_unit_test(pool_match_too_many_names_are_rejected),
        cmocka_unit_test(pool_match_index_agrees_with_linear_search),
    };
    return cmocka_run_group_tests_name("pick/pool/match", tests, NULL, NULL);
}
