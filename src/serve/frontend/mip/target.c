/* Parsing of --mip. */
#include "serve/frontend/mip/target.h"

#include <stdio.h>

#include "core/base/suggest.h"
#include "core/tensor/tensor.h"

static const char TCP[] = "tcp://";
static const char UNIX_SCHEME[] = "unix://";

/* Cuts at the last `sep`. Returns: false when there is none; the out-parameters are unchanged. */
static bool cut_last(struct str text, char sep, struct str *before, struct str *behind) {
    size_t at = text.len;
    while (at > 0 && text.ptr[at - 1] != sep) {
        at--;
    }
    if (at == 0) {
        return false;
    }
    *before = str_make(text.ptr, at - 1);
    *behind = str_make(text.ptr + at, text.len - at);
    return true;
}

static enum status error_expected(struct str text, const char *why, struct error *err) {
    return error_set(err, ST_BAD_CONFIG,
                     "\"%.*s\": %s; expected tcp://HOST:PORT=MODEL, unix:///PATH=MODEL or one of "
                     "them with MODEL:VERSION",
                     STR_ARG(text), why);
}

/* Converts a URL to the form of net/transport/address.h: without tcp://, and with unix: before a
 * path. */
static enum status parse_url(struct str url, struct address *out, struct error *err) {
    char text[ADDRESS_TEXT_BYTES];
    if (str_starts_with(url, str_of(TCP))) {
        struct str host = str_make(url.ptr + sizeof(TCP) - 1, url.len - (sizeof(TCP) - 1));
        if (str_starts_with(host, STR("unix:"))) {
            return error_set(err, ST_BAD_CONFIG, "\"%.*s\" is a socket with a path, not TCP's",
                             STR_ARG(host));
        }
        return address_parse(host, out, err);
    }
    struct str path =
        str_make(url.ptr + sizeof(UNIX_SCHEME) - 1, url.len - (sizeof(UNIX_SCHEME) - 1));
    int n = snprintf(text, sizeof(text), "unix:%.*s", STR_ARG(path));
    if (n < 0 || (size_t)n >= sizeof(text) || memchr(path.ptr, '\0', path.len)) {
        return error_set(err, ST_BAD_CONFIG, "\"%.*s\" is not the path of a socket, or is too long",
                         STR_ARG(path));
    }
    return address_parse(str_make(text, (size_t)n), out, err);
}

enum status mip_target_parse(struct str text, struct mip_target *out, struct error *err) {
    struct str url;
    *out = (struct mip_target){.version = {NULL, 0}};
    if (!str_starts_with(text, str_of(TCP)) && !str_starts_with(text, str_of(UNIX_SCHEME))) {
        return error_expected(text, "it begins with no scheme of MIP", err);
    }
    if (!cut_last(text, '=', &url, &out->model) || out->model.len == 0) {
        return error_expected(text, "it names no model", err);
    }
    if (str_starts_with(url, str_of(UNIX_SCHEME)) && url.len == sizeof(UNIX_SCHEME) - 1) {
        return error_expected(text, "it names no path", err);
    }
    return parse_url(url, &out->address, err);
}

/* ---- name and version ------------------------------------------------------------------------ */

static bool is_number(struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') {
            return false;
        }
    }
    return text.len > 0;
}

static enum status check_model_exists(struct repository *repository, struct str name,
                                      struct str version, struct error *err) {
    struct model_version *found;
    enum status st = repository_find(repository, name, version, &found, err);
    if (st == ST_OK) {
        model_version_unref(found);
    }
    return st;
}

struct guess {
    struct str wanted;
    struct suggestion suggestion;
};

static void consider_model(void *user, const struct repository_entry *entry) {
    struct guess *guess = user;
    suggest_consider(&guess->suggestion, guess->wanted, entry->model);
}

enum status mip_target_resolve(struct mip_target *target, struct repository *repository,
                               struct error *err) {
    struct str model = target->model, name, version, none = {NULL, 0};
    enum status st = check_model_exists(repository, target->model, target->version, err);
    if (st == ST_UNKNOWN_MODEL && !target->version.ptr &&
        cut_last(target->model, ':', &name, &version) && is_number(version)) {
        model = name;
        st = check_model_exists(repository, name, none, err);
        if (st != ST_UNKNOWN_MODEL) {
            target->model = name;
            target->version = version;
            st = check_model_exists(repository, name, version, err);
        }
    }
    if (st == ST_UNKNOWN_MODEL) {
        struct guess guess = {.wanted = model};
        char text[QUOTED_NAME_BYTES], hint[SUGGEST_HINT_BYTES];
        repository_visit(repository, consider_model, &guess);
        return error_set(err, ST_BAD_CONFIG, "unknown model %s%s", quote_name(model, text),
                         suggest_hint(&guess.suggestion, hint));
    }
    if (st == ST_UNKNOWN_VERSION) {
        err->status = ST_BAD_CONFIG;
        return ST_BAD_CONFIG;
    }
    atomic_store_explicit(&target->resolved, true, memory_order_release);
    return ST_OK; /* the model may be loading, or have failed: then its packets get that error */
}

const char *mip_url_print(const struct address *address, char out[MIP_URL_BYTES]) {
    char text[ADDRESS_TEXT_BYTES];
    struct str printed = str_of(address_print(address, text));
    bool local = str_starts_with(printed, STR("unix:"));
    snprintf(out, MIP_URL_BYTES, "%s%s", local ? UNIX_SCHEME : TCP,
             local ? printed.ptr + sizeof("unix:") - 1 : printed.ptr);
    return out;
}
