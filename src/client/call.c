/* Public calls: their state, their errors, and the caller's structs with a size. */
#include "client/call.h"

#include <stdio.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

/* What a failed connection or a lost one is called, by how far it came. */
static sluice_client_status connection_status(const struct client *client) {
    switch (client_phase(client)) {
    case CLIENT_RESOLVING:
        return SLUICE_CLIENT_RESOLVE;
    case CLIENT_DIALING:
        return SLUICE_CLIENT_CONNECT;
    case CLIENT_AGREEING:
        return SLUICE_CLIENT_TLS;
    case CLIENT_CONNECTED:
        break;
    }
    return SLUICE_CLIENT_CLOSED;
}

/* The only place that maps internal statuses to public ones. Before a call has started the reasons
 * that no row has mean that the request can't be sent. */
static sluice_client_status public_status(const sluice_client *client, enum status status) {
    static const struct {
        enum status status;
        sluice_client_status is;
    } rows[] = {
        {ST_OK, SLUICE_CLIENT_OK},
        {ST_DEADLINE_EXCEEDED, SLUICE_CLIENT_TIMEOUT},
        {ST_BAD_ANSWER, SLUICE_CLIENT_PROTOCOL},
        {ST_REFUSED, SLUICE_CLIENT_SERVER_ERROR},
        {ST_NO_MEMORY, SLUICE_CLIENT_NO_MEMORY},
        {ST_NO_ROOM, SLUICE_CLIENT_BUFFER_TOO_SMALL},
        {ST_UNSUPPORTED, SLUICE_CLIENT_UNSUPPORTED},
    };
    if (status == ST_IO && client) {
        return connection_status(client->client);
    }
    if (status == ST_BODY_TOO_LARGE && client && client->state == CLIENT_CALL_RUNNING) {
        return SLUICE_CLIENT_TOO_LARGE; /* else it is the request that is too large */
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].status == status) {
            return rows[i].is;
        }
    }
    return SLUICE_CLIENT_INVALID;
}

static sluice_client_status write_error(const sluice_client_error *made, const char *text,
                                        sluice_client_error *error) {
    if (error) {
        sluice_client_error all = *made;
        snprintf(all.text, sizeof(all.text), "%s", text);
        sized_struct_write(error, error->size, &all, sizeof(all));
    }
    return made->status;
}

static sluice_client_status set_public_error(sluice_client_status status, const char *text,
                                             sluice_client_error *error) {
    const sluice_client_error made = {.status = status, .mip_error = -1};
    return write_error(&made, text, error);
}

/* The error of a call that can't start. */
static sluice_client_status start_error(enum status status, const struct error *err,
                                        sluice_client_error *error) {
    return set_public_error(public_status(NULL, status), err->text, error);
}

sluice_client_status client_call_set_error(const sluice_client *client, const struct error *err,
                                           sluice_client_error *error) {
    sluice_client_error made = {.status = public_status(client, err->status), .mip_error = -1};
    if (client && client->state == CLIENT_CALL_RUNNING) {
        made.may_have_run = client_has_sent(client->client);
    }
    if (client && client->answered) {
        if (client_url(client->client)->protocol == CLIENT_HTTP) {
            made.http_status = http_session_status(client_http(client->client));
        } else if (made.status == SLUICE_CLIENT_SERVER_ERROR) {
            made.mip_error = (int32_t)mip_session_error(client_mip(client->client));
        }
    }
    return write_error(&made, err->text, error);
}

/* ---- structs with a size --------------------------------------------------------------------- */

enum status sized_struct_check(size_t n_given, struct error *err) {
    if (n_given >= sizeof(size_t)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_FIELD, "a struct was given without its size: set its `size`");
}

enum status sized_struct_read(void *out, size_t n_known, const void *from, size_t n_given,
                              struct error *err) {
    enum status status = sized_struct_check(n_given, err);
    if (status != ST_OK) {
        return status;
    }
    memset(out, 0, n_known);
    memcpy(out, from, n_given < n_known ? n_given : n_known);
    return ST_OK;
}

void sized_struct_write(void *out, size_t n_taken, const void *from, size_t n_known) {
    size_t n = n_taken < n_known ? n_taken : n_known;
    if (n > sizeof(size_t)) {
        memcpy((char *)out + sizeof(size_t), (const char *)from + sizeof(size_t),
               n - sizeof(size_t));
    }
}

/* ---- a call ---------------------------------------------------------------------------------- */

enum status client_call_begin(sluice_client *client, const struct client_call_kind *kind,
                              struct error *err) {
    if (client->state == CLIENT_CALL_RUNNING) {
        return error_set(err, ST_BAD_FIELD,
                         "a call is under way: step it to its end, or cancel it, before the next");
    }
    client->state = CLIENT_CALL_NONE;
    client->answered = false;
    client->answer_buffer = (sluice_buffer){0};
    client->buffers = (struct client_buffers){0};
    client->kind = kind;
    memset(&client->result, 0, sizeof(client->result));
    arena_free(client->arena);
    client->arena = arena_new(client->cache, 0);
    return client->arena ? ST_OK : error_no_memory(err, "a call");
}

sluice_client_status client_call_start(sluice_client *client, enum status status,
                                       const struct error *err, uint64_t timeout_ns,
                                       sluice_client_error *error) {
    if (status != ST_OK) {
        return start_error(status, err, error);
    }
    client_start(client->client, timeout_ns);
    client->state = CLIENT_CALL_RUNNING;
    return SLUICE_CLIENT_OK;
}

/* The exchange is complete, or has failed. */
static sluice_client_status finish_call(sluice_client *client, enum status status,
                                        struct error *err, sluice_client_error *error) {
    client->answered = status == ST_OK;
    if (status == ST_OK) {
        status = client->kind->finish(client, err);
    }
    if (status == ST_OK) {
        client->state = CLIENT_CALL_DONE;
        return SLUICE_CLIENT_OK;
    }
    sluice_client_status failed = client_call_set_error(client, err, error);
    client->state = CLIENT_CALL_NONE;
    return failed;
}

sluice_client_status client_call_run(sluice_client *client, sluice_client_status started,
                                     sluice_client_error *error) {
    struct error err = {0};
    if (started != SLUICE_CLIENT_OK) {
        return started;
    }
    enum status status = client_run(client->client, &err);
    return finish_call(client, status, &err, error);
}

sluice_client_status sluice_client_step(sluice_client *client, sluice_client_error *error) {
    struct error err = {0};
    bool done = false;
    if (client->state == CLIENT_CALL_DONE) {
        return SLUICE_CLIENT_OK;
    }
    if (client->state == CLIENT_CALL_NONE) {
        return set_public_error(SLUICE_CLIENT_INVALID,
                                "no call is under way: start one before the step", error);
    }
    enum status status = client_step(client->client, &done, &err);
    if (status == ST_OK && !done) {
        return set_public_error(SLUICE_CLIENT_PENDING, "the call is not done yet", error);
    }
    return finish_call(client, status, &err, error);
}

void sluice_client_wait(const sluice_client *client, sluice_client_waiting *waiting) {
    struct client_waiting is;
    client_wait(client->client, &is);
    sluice_client_waiting made = {
        .fd = is.fd, .read = is.read, .write = is.write, .timeout_ns = is.timeout_ns};
    sized_struct_write(waiting, waiting->size, &made, sizeof(made));
}

void sluice_client_cancel(sluice_client *client) {
    if (client->state == CLIENT_CALL_RUNNING) {
        client_cancel(client->client);
    }
    client->state = CLIENT_CALL_NONE;
}

sluice_client_status client_call_check_done(const sluice_client *client,
                                            const struct client_call_kind *kind,
                                            sluice_client_error *error) {
    char text[128];
    if (client->state == CLIENT_CALL_DONE && client->kind == kind) {
        return SLUICE_CLIENT_OK;
    }
    snprintf(text, sizeof(text), "%s: no call with such a result is done", kind->name);
    return set_public_error(SLUICE_CLIENT_INVALID, text, error);
}

sluice_client_status client_call_check_out(const void *out, sluice_client_error *error) {
    size_t n_bytes;
    struct error err = {0};
    memcpy(&n_bytes, out, sizeof(n_bytes));
    return sized_struct_check(n_bytes, &err) == ST_OK ? SLUICE_CLIENT_OK
                                                      : start_error(err.status, &err, error);
}

sluice_client_status client_call_take_result(const sluice_client *client,
                                             const struct client_call_kind *kind, void *out,
                                             const void *made, size_t n_bytes,
                                             sluice_client_error *error) {
    size_t n_taken;
    sluice_client_status status = client_call_check_done(client, kind, error);
    if (status == SLUICE_CLIENT_OK) {
        status = client_call_check_out(out, error);
    }
    if (status == SLUICE_CLIENT_OK) {
        memcpy(&n_taken, out, sizeof(n_taken));
        sized_struct_write(out, n_taken, made, n_bytes);
    }
    return status;
}
