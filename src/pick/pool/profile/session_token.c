/* The parameters of both strategies, and tokens: names of endpoints in base64. */
#include "pick/pool/profile/session_token.h"

#include <string.h>

#include "core/base/base64.h"

static const char DEFAULT_HEADER[] = "x-session-token";
enum { MOST_HEADER_BYTES = 256 };

/* ---- parameters ------------------------------------------------------------------------------ */

static void read_header(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct session_parameters *parameters = object;
    struct str text = str_of(DEFAULT_HEADER);
    doc_reader_view(reader, node, &text);
    bool fits = text.len > 0 && text.len <= MOST_HEADER_BYTES;
    for (size_t i = 0; fits && i < text.len; i++) {
        fits = text.ptr[i] > ' ' && text.ptr[i] < 0x7f && text.ptr[i] != ':';
    }
    if (!fits) {
        doc_reader_fail(reader, node, "expected the name of a header, got \"%.*s\"", STR_ARG(text));
    }
    doc_reader_dup_lower(reader, text, &parameters->header);
}

static const struct doc_member HEADER[] = {{"header", MEMBER_CUSTOM(read_header)}, {0}};

static void read_config(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct doc_node header = doc_get(node, "header");
    if (doc_is_present(node)) {
        doc_reader_object(reader, node, HEADER, object);
    } else {
        read_header(reader, &header, object);
    }
}

static void read_strategy(struct doc_reader *reader, const struct doc_node *node, void *object) {
    static const char *const words[] = {"encoded_endpoint_header", "session_id", NULL};
    struct session_parameters *parameters = object;
    unsigned word = 0;
    doc_reader_word(reader, node, words, NULL, &word);
    parameters->by_id = word == 1;
}

static void read_id_config(struct doc_reader *reader, const struct doc_node *node, void *object) {
    struct session_parameters *parameters = object;
    if (parameters->by_id) {
        session_id_read(reader, node, &parameters->id);
    } else if (doc_is_present(node)) {
        doc_reader_fail(reader, node, "not supported: it is of the strategy session_id");
    }
}

static void read_token_config(struct doc_reader *reader, const struct doc_node *node,
                              void *object) {
    const struct session_parameters *parameters = object;
    if (!parameters->by_id) {
        read_config(reader, node, object);
    } else if (doc_is_present(node)) {
        doc_reader_fail(reader, node,
                        "not supported: it is of the strategy encoded_endpoint_header");
    }
}

static void check_profile(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct session_parameters *parameters = object;
    if (!parameters->by_id && parameters->id.profile.len > 0) {
        doc_reader_fail(reader, node, "not supported: a token names the request's destination");
    }
}

const struct doc_member SESSION_PARAMETERS[] = {
    {"strategy", MEMBER_CUSTOM(read_strategy), .form = "`encoded_endpoint_header` or `session_id`"},
    {"encodedEndpointHeaderConfig", MEMBER_CUSTOM(read_token_config), .form = "`{header}`"},
    {"sessionIdConfig", MEMBER_CUSTOM(read_id_config),
     .form = "`{sources, evictionTtlSeconds, evictionSweepSeconds}`"},
    {"profileName", MEMBER_TEXT(struct session_parameters, id.profile), .check = check_profile},
    {0}};

static enum status add_token_needs(const struct session_parameters *parameters,
                                   struct pool_request_needs *needs, struct error *err) {
    if (needs->session_token.ptr && !str_eq(needs->session_token, parameters->header)) {
        return error_set(err, ST_BAD_CONFIG,
                         "the plugins of session affinity name the headers %.*s and %.*s: expected "
                         "one",
                         STR_ARG(needs->session_token), STR_ARG(parameters->header));
    }
    needs->session_token = parameters->header;
    return ST_OK;
}

enum status session_add_needs(struct session_parameters *parameters, const char *type,
                              struct pool_request_needs *needs, struct error *err) {
    return parameters->by_id ? session_id_add_needs(&parameters->id, type, needs, err)
                             : add_token_needs(parameters, needs, err);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* What a token names: NAMESPACE/POD, or an address in the form that it is printed in. */
struct named {
    struct str text;
    bool is_address;
    struct endpoint_address address;
};

static struct named read_name(struct str text) {
    struct named named = {.text = text};
    char printed[ENDPOINT_TEXT_BYTES];
    named.is_address = endpoint_address_parse(text, &named.address) &&
                       str_eq(text, endpoint_address_print(&named.address, printed));
    return named;
}

static bool names_member(const struct named *named, const struct pool_member *member) {
    const struct pool_endpoint_name *name = &member->name;
    struct str text = named->text;
    if (name->text.len == 0) {
        return named->is_address && endpoint_address_equal(&named->address, &member->address);
    }
    size_t n = name->name_space.len;
    return text.len == n + 1 + name->text.len && memcmp(text.ptr, name->name_space.ptr, n) == 0 &&
           text.ptr[n] == '/' && memcmp(text.ptr + n + 1, name->text.ptr, name->text.len) == 0;
}

static uint32_t find_named(const struct session_parameters *parameters,
                           const struct candidate_set *candidates) {
    const struct pool_headers *headers = &candidates->headers;
    char bytes[SESSION_TOKEN_MAX_BYTES / 4 * 3 + 3];
    struct str text;
    struct str token =
        headers->find ? headers->find(headers->of, parameters->header) : str_make(NULL, 0);
    uint32_t i = candidates->n;
    if (token.len > 0 && token.len <= SESSION_TOKEN_MAX_BYTES &&
        base64_decode(token, bytes, &text)) {
        struct named named = read_name(text);
        for (i = 0; i < candidates->n && !names_member(&named, candidate_set_member(candidates, i));
             i++) {
        }
    }
    return i;
}

uint32_t session_find(const struct session_parameters *parameters,
                      struct candidate_set *candidates) {
    return parameters->by_id ? session_id_find(&parameters->id, candidates)
                             : find_named(parameters, candidates);
}

struct str session_token_print(const struct pool_member *member, struct arena *arena) {
    const struct pool_endpoint_name *name = &member->name;
    char address[ENDPOINT_TEXT_BYTES];
    struct buf out;
    struct str text =
        name->text.len > 0
            ? arena_printf(arena, "%.*s/%.*s", STR_ARG(name->name_space), STR_ARG(name->text))
            : endpoint_address_print(&member->address, address);
    buf_init(&out, arena, text.len * 2 + 4);
    if (text.ptr) {
        base64_print(&out, text);
        for (size_t i = 0; out.len % 4 != 0 && i < 2; i++) {
            buf_add_char(&out, '=');
        }
    }
    return text.ptr && !out.failed ? buf_str(&out) : str_make(NULL, 0);
}
