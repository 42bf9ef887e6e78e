/* What client.c and step.c share, and nobody else sees. */
#ifndef SLUICE_CLIENT_STATE_H
#define SLUICE_CLIENT_STATE_H

#include "client/client.h"
#include "client/connection.h"

enum client_state {
    CLIENT_IDLE,       /* no exchange is under way */
    CLIENT_STARTED,    /* one is; no step was made */
    CLIENT_CONNECTING, /* the socket is not connected yet */
    CLIENT_EXCHANGING, /* bytes move */
};

struct client {
    struct arena *arena; /* of the URL */
    struct client_url url;
    struct client_options options;
    void *transport_context; /* for options.transport_free */
    struct client_connection connection;
    struct session *session;   /* one of these two */
    struct http_session *http; /* NULL: the URL is of MIP */
    struct mip_session *mip;   /* NULL: the URL is of HTTP */
    enum client_state state;
    bool reused; /* the exchange under way is not the first on its connection */
    bool wants_read, wants_write;
    bool step_again; /* the last step stopped although more was possible */
    uint64_t timeout_ns;
    uint64_t started_ns;
    uint64_t connecting_ns;  /* since when */
    uint64_t last_io_ns;     /* when a byte moved, or the connection was made or found good */
    struct error send_error; /* why the request can't be sent to its end; ST_OK: it can */
};

/* The deadline that comes next. Not when idle. */
enum client_deadline { CLIENT_DEADLINE_TOTAL, CLIENT_DEADLINE_CONNECT, CLIENT_DEADLINE_IDLE };
uint64_t client_deadline_ns(const struct client *client, enum client_deadline *which);

#endif
