/* Reviews are written as the API has them, and answers that are none are errors. */
#include "codec/kube/review.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codec/kube/stream.h"

static struct arena *arena;

static int setup(void **state) {
    (void)state;
    arena = arena_new(NULL, 0);
    return arena ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    arena_free(arena);
    return 0;
}

static struct doc *parse(const char *text) {
    struct doc *doc = NULL;
    struct error err;
    assert_int_equal(kube_object_parse(str_of(text), &doc, &err), ST_OK);
    return doc;
}

#define TOKEN(status) "{\"kind\":\"TokenReview\",\"status\":" status "}"
#define ACCESS(status) "{\"kind\":\"SubjectAccessReview\",\"status\":" status "}"

static void review_of_token_is_printed(void **state) {
    struct buf out;
    (void)state;
    buf_init(&out, arena, 64);
    kube_token_review_print(STR("a\"b"), &out);
    assert_true(str_is(buf_str(&out),
                       "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\","
                       "\"spec\":{\"token\":\"a\\\"b\"}}"));
}

static void review_of_token_names_the_user_or_none(void **state) {
    static const struct {
        const char *text;
        enum status status;
        const char *user; /* NULL: none */
    } rows[] = {
        {TOKEN("{\"authenticated\":true,\"user\":{\"username\":\"u\"}}"), ST_OK, "u"},
        {TOKEN("{\"authenticated\":false,\"error\":\"expired\"}"), ST_OK, NULL},
        {TOKEN("{}"), ST_OK, NULL},
        {TOKEN("{\"authenticated\":false,\"user\":{\"username\":\"u\"}}"), ST_OK, NULL},
        {TOKEN("{\"authenticated\":true}"), ST_BAD_ANSWER, NULL},
        {TOKEN("{\"authenticated\":true,\"user\":{\"username\":\"\"}}"), ST_BAD_ANSWER, NULL},
        {TOKEN("{\"authenticated\":true,\"user\":[]}"), ST_BAD_ANSWER, NULL},
        {TOKEN("{\"authenticated\":\"yes\"}"), ST_BAD_ANSWER, NULL},
        {TOKEN("[]"), ST_BAD_ANSWER, NULL},
        {"{\"kind\":\"Status\",\"status\":{\"authenticated\":true}}", ST_BAD_ANSWER, NULL},
        {"{}", ST_BAD_ANSWER, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct doc *doc = parse(rows[i].text);
        struct doc_node root = doc_root(doc), user = {0};
        struct error err;
        assert_int_equal(kube_token_review_read(&root, &user, &err), rows[i].status);
        if (rows[i].status == ST_OK) {
            assert_int_equal(doc_is_present(&user), rows[i].user != NULL);
        }
        if (rows[i].user) {
            assert_true(str_is(kube_member_text(&user, "username"), rows[i].user));
        }
        doc_free(doc);
    }
}

static void review_of_access_has_all_of_the_user(void **state) {
    struct doc *doc = parse("{\"username\":\"u\",\"uid\":\"7\",\"groups\":[\"g\",\"h\"],"
                            "\"extra\":{\"k\":[\"v\"]},\"other\":1}");
    struct doc *bare = parse("{\"username\":\"u\"}");
    struct doc_node user = doc_root(doc), other = doc_root(bare);
    struct buf out;
    (void)state;
    buf_init(&out, arena, 64);
    kube_access_review_print(&user, STR("get"), STR("/metrics"), &out);
    assert_true(str_is(
        buf_str(&out),
        "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SubjectAccessReview\",\"spec\":"
        "{\"user\":\"u\",\"uid\":\"7\",\"groups\":[\"g\",\"h\"],\"extra\":{\"k\":[\"v\"]},"
        "\"nonResourceAttributes\":{\"path\":\"/metrics\",\"verb\":\"get\"}}}"));
    buf_init(&out, arena, 64);
    kube_access_review_print(&other, STR("head"), STR("/"), &out);
    assert_true(str_is(
        buf_str(&out),
        "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SubjectAccessReview\",\"spec\":"
        "{\"user\":\"u\",\"nonResourceAttributes\":{\"path\":\"/\",\"verb\":\"head\"}}}"));
    doc_free(doc);
    doc_free(bare);
}

static void review_of_access_allows_or_not(void **state) {
    static const struct {
        const char *text;
        enum status status;
        bool is_allowed;
    } rows[] = {
        {ACCESS("{\"allowed\":true}"), ST_OK, true},
        {ACCESS("{\"allowed\":false,\"reason\":\"no\"}"), ST_OK, false},
        {ACCESS("{\"allowed\":true,\"denied\":true}"), ST_OK, false},
        {ACCESS("{}"), ST_OK, false},
        {ACCESS("{\"allowed\":1}"), ST_BAD_ANSWER, false},
        {ACCESS("null"), ST_BAD_ANSWER, false},
        {TOKEN("{\"allowed\":true}"), ST_BAD_ANSWER, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct doc *doc = parse(rows[i].text);
        struct doc_node root = doc_root(doc);
        struct error err;
        bool is_allowed = true;
        assert_int_equal(kube_access_review_read(&root, &is_allowed, &err), rows[i].status);
        assert_int_equal(is_allowed, rows[i].is_allowed);
        doc_free(doc);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(review_of_token_is_printed),
        cmocka_unit_test(review_of_token_names_the_user_or_none),
        cmocka_unit_test(review_of_access_has_all_of_the_user),
        cmocka_unit_test(review_of_access_allows_or_not),
    };
    return cmocka_run_group_tests_name("codec/kube/review", tests, setup, teardown);
}
