/* The reviews have few members: they are written one by one, and read by name. */
#include "codec/kube/review.h"

#include "codec/kube/stream.h"
#include "core/base/json_writer.h"

static void open_review(struct json_writer *json, const char *version, const char *kind) {
    json_write_open(json, JSON_ELEMENT, '{');
    json_write_string(json, "apiVersion", str_of(version));
    json_write_string(json, "kind", str_of(kind));
    json_write_open(json, "spec", '{');
}

static void close_review(struct json_writer *json) {
    json_write_close(json, '}');
    json_write_close(json, '}');
}

void kube_token_review_print(struct str token, struct buf *out) {
    struct json_writer json = {.out = out};
    open_review(&json, "authentication.k8s.io/v1", "TokenReview");
    json_write_string(&json, "token", token);
    close_review(&json);
}

/* Returns: the status of a review of this kind. */
static enum status read_status(const struct doc_node *answer, const char *kind,
                               struct doc_node *status, struct error *err) {
    *status = doc_get(answer, "status");
    if (!str_is(kube_member_text(answer, "kind"), kind) || !doc_is_object(status)) {
        return error_set(err, ST_BAD_ANSWER, "expected a %s with a status from the API server",
                         kind);
    }
    return ST_OK;
}

/* An absent member is false, as in the API's Go types. */
static enum status read_flag(const struct doc_node *status, const char *key, bool *out,
                             struct error *err) {
    struct doc_node node = doc_get(status, key);
    *out = false;
    return doc_is_present(&node) && doc_read_bool(&node, out, err) != ST_OK
               ? error_set(err, ST_BAD_ANSWER, "status.%s of a review: expected true or false", key)
               : ST_OK;
}

enum status kube_token_review_read(const struct doc_node *answer, struct doc_node *user,
                                   struct error *err) {
    struct doc_node status;
    bool is_known = false;
    enum status st = read_status(answer, "TokenReview", &status, err);
    if (st == ST_OK) {
        st = read_flag(&status, "authenticated", &is_known, err);
    }
    if (st != ST_OK) {
        return st;
    }
    *user = doc_get(&status, is_known ? "user" : "");
    if (is_known && kube_member_text(user, "username").len == 0) {
        return error_set(err, ST_BAD_ANSWER, "expected a TokenReview with status.user.username");
    }
    return ST_OK;
}

/* The user's groups and extra fields are passed on as they are. */
static void write_member(struct json_writer *json, const struct doc_node *user, const char *key,
                         const char *name) {
    struct doc_node node = doc_get(user, key);
    if (doc_is_present(&node)) {
        json_write_value(json, name, node.val);
    }
}

void kube_access_review_print(const struct doc_node *user, struct str verb, struct str path,
                              struct buf *out) {
    struct json_writer json = {.out = out};
    open_review(&json, "authorization.k8s.io/v1", "SubjectAccessReview");
    write_member(&json, user, "username", "user");
    write_member(&json, user, "uid", "uid");
    write_member(&json, user, "groups", "groups");
    write_member(&json, user, "extra", "extra");
    json_write_open(&json, "nonResourceAttributes", '{');
    json_write_string(&json, "path", path);
    json_write_string(&json, "verb", verb);
    json_write_close(&json, '}');
    close_review(&json);
}

enum status kube_access_review_read(const struct doc_node *answer, bool *is_allowed,
                                    struct error *err) {
    struct doc_node status;
    bool is_denied = false;
    enum status st = read_status(answer, "SubjectAccessReview", &status, err);
    st = st == ST_OK ? read_flag(&status, "allowed", is_allowed, err) : st;
    st = st == ST_OK ? read_flag(&status, "denied", &is_denied, err) : st;
    *is_allowed = st == ST_OK && *is_allowed && !is_denied;
    return st;
}
