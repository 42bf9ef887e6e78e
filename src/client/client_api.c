/* The public functions of sluice/client.h: each begins a fresh arena for its results, makes one
 * call of client_v2, and turns what came of it into the public form. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_convert.h"
#include "client/client_v2.h"
#include "sluice/client.h"

enum { CACHED_CHUNKS = 16 };

struct sluice_client {
    struct client *client;
    struct arena_cache *cache;
    struct arena *arena; /* of the last call's results */
};

/* The one place where our reasons become the public ones. */
static sluice_client_status public_status(enum status status) {
    static const struct {
        enum status status;
        sluice_client_status is;
    } rows[] = {
        {ST_OK, SLUICE_CLIENT_OK},
        {ST_IO, SLUICE_CLIENT_UNREACHABLE},
        {ST_DEADLINE_EXCEEDED, SLUICE_CLIENT_TIMEOUT},
        {ST_BAD_ANSWER, SLUICE_CLIENT_BROKEN},
        {ST_REFUSED, SLUICE_CLIENT_REFUSED},
        {ST_NO_MEMORY, SLUICE_CLIENT_NO_MEMORY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].status == status) {
            return rows[i].is;
        }
    }
    return SLUICE_CLIENT_INVALID; /* every other reason is one for which a request can't be made */
}

static sluice_client_status failed(const sluice_client *client, const struct error *err,
                                   sluice_client_error *error) {
    sluice_client_status status = public_status(err->status);
    if (error) {
        bool answered = client && (status == SLUICE_CLIENT_REFUSED);
        error->status = status;
        error->http_status = answered ? client_session_status(client_answer(client->client)) : 0;
        snprintf(error->text, sizeof(error->text), "%s", err->text);
    }
    return status;
}

/* Copies as much of a caller's struct as it has; what it lacks is zero. Returns: false when it is
 * too small to hold its own size. */
static bool take_struct(void *out, size_t n_known, const void *from, size_t n_given) {
    if (n_given < sizeof(size_t)) {
        return false;
    }
    memset(out, 0, n_known);
    memcpy(out, from, n_given < n_known ? n_given : n_known);
    return true;
}

/* The other way: the caller's `size` member stays as it is. */
static void give_struct(void *out, size_t n_taken, const void *from, size_t n_known) {
    size_t n = n_taken < n_known ? n_taken : n_known;
    if (n > sizeof(size_t)) {
        memcpy((char *)out + sizeof(size_t), (const char *)from + sizeof(size_t),
               n - sizeof(size_t));
    }
}

static enum status no_size(struct error *err) {
    return error_set(err, ST_BAD_FIELD, "a struct was given without its size: set its `size`");
}

sluice_client_status sluice_client_open(const sluice_client_options *options,
                                        sluice_client **client, sluice_client_error *error) {
    struct error err = {0};
    sluice_client_options given;
    sluice_client *made = NULL;
    enum status status = ST_OK;
    *client = NULL;
    if (!take_struct(&given, sizeof(given), options, options->size) || !given.url) {
        status = error_set(&err, ST_BAD_FIELD, "the options lack their size or the URL");
        goto out;
    }
    made = calloc(1, sizeof(*made));
    if (!made || !(made->cache = arena_cache_new(CACHED_CHUNKS))) {
        status = error_set(&err, ST_NO_MEMORY, "no memory for a client");
        goto out;
    }
    struct client_options resolved = {
        .url = str_of(given.url),
        .connect_timeout_ns =
            given.connect_timeout_ns ? given.connect_timeout_ns : CLIENT_CONNECT_TIMEOUT_NS,
        .timeout_ns = given.timeout_ns ? given.timeout_ns : CLIENT_TIMEOUT_NS,
        .max_answer_bytes =
            given.max_answer_bytes ? given.max_answer_bytes : CLIENT_MAX_ANSWER_BYTES};
    status = client_new(&resolved, &made->client, &err);
out:
    if (status == ST_OK) {
        *client = made;
        return SLUICE_CLIENT_OK;
    }
    sluice_client_close(made);
    return failed(NULL, &err, error);
}

void sluice_client_close(sluice_client *client) {
    if (!client) {
        return;
    }
    client_free(client->client);
    arena_free(client->arena);
    arena_cache_free(client->cache);
    free(client);
}

/* Drops the last call's results. */
static enum status begin(sluice_client *client, struct error *err) {
    arena_free(client->arena);
    client->arena = arena_new(client->cache, 0);
    return client->arena ? ST_OK : error_set(err, ST_NO_MEMORY, "no memory for a call");
}

static sluice_client_status end(const sluice_client *client, enum status status,
                                const struct error *err, sluice_client_error *error) {
    return status == ST_OK ? SLUICE_CLIENT_OK : failed(client, err, error);
}

static sluice_client_status health(sluice_client *client, enum client_health what, int32_t *yes,
                                   sluice_client_error *error) {
    struct error err = {0};
    bool is = false;
    enum status status = begin(client, &err);
    if (status == ST_OK) {
        status = client_health(client->client, client->arena, what, &is, &err);
    }
    *yes = is;
    return end(client, status, &err, error);
}

sluice_client_status sluice_client_is_live(sluice_client *client, int32_t *yes,
                                           sluice_client_error *error) {
    return health(client, CLIENT_LIVE, yes, error);
}

sluice_client_status sluice_client_is_ready(sluice_client *client, int32_t *yes,
                                            sluice_client_error *error) {
    return health(client, CLIENT_READY, yes, error);
}

sluice_client_status sluice_client_model_is_ready(sluice_client *client, const char *model,
                                                  const char *version, int32_t *yes,
                                                  sluice_client_error *error) {
    struct error err = {0};
    bool is = false;
    enum status status = begin(client, &err);
    if (status == ST_OK) {
        status = client_model_ready(client->client, client->arena, str_of(model), str_of(version),
                                    &is, &err);
    }
    *yes = is;
    return end(client, status, &err, error);
}

sluice_client_status sluice_client_server_metadata(sluice_client *client,
                                                   sluice_server_metadata *metadata,
                                                   sluice_client_error *error) {
    struct error err = {0};
    struct v2_server server;
    sluice_server_metadata made = {0};
    enum status status = begin(client, &err);
    if (status == ST_OK && metadata->size < sizeof(size_t)) {
        status = no_size(&err);
    }
    if (status == ST_OK) {
        status = client_server_metadata(client->client, client->arena, &server, &err);
    }
    if (status == ST_OK) {
        status = client_server_export(client->arena, &server, &made, &err);
    }
    if (status == ST_OK) {
        give_struct(metadata, metadata->size, &made, sizeof(made));
    }
    return end(client, status, &err, error);
}

sluice_client_status sluice_client_model_metadata(sluice_client *client, const char *model,
                                                  const char *version,
                                                  sluice_model_metadata *metadata,
                                                  sluice_client_error *error) {
    struct error err = {0};
    struct model_spec spec;
    sluice_model_metadata made = {0};
    enum status status = begin(client, &err);
    if (status == ST_OK && metadata->size < sizeof(size_t)) {
        status = no_size(&err);
    }
    if (status == ST_OK) {
        status = client_model_metadata(client->client, client->arena, str_of(model),
                                       str_of(version), &spec, &err);
    }
    if (status == ST_OK) {
        status = client_model_export(client->arena, &spec, &made, &err);
    }
    if (status == ST_OK) {
        give_struct(metadata, metadata->size, &made, sizeof(made));
    }
    return end(client, status, &err, error);
}

sluice_client_status sluice_client_infer(sluice_client *client, const sluice_infer_request *request,
                                         sluice_infer_answer *answer, sluice_client_error *error) {
    struct error err = {0};
    sluice_infer_request given;
    sluice_infer_answer made = {0};
    struct client_infer infer;
    struct v2_answer came;
    enum status status = begin(client, &err);
    if (status == ST_OK && (!take_struct(&given, sizeof(given), request, request->size) ||
                            answer->size < sizeof(size_t))) {
        status = no_size(&err);
    }
    if (status == ST_OK) {
        status = client_infer_import(client->arena, &given, &infer, &err);
    }
    if (status == ST_OK) {
        status = client_infer(client->client, client->arena, &infer, &came, &err);
    }
    if (status == ST_OK) {
        status = client_answer_export(client->arena, &came, &made, &err);
    }
    if (status == ST_OK) {
        give_struct(answer, answer->size, &made, sizeof(made));
    }
    return end(client, status, &err, error);
}
