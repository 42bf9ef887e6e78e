/* Routing of the admin listener. */
#include "telemetry/admin/router.h"

#include "codec/json/error_body.h"
#include "core/base/buf.h"
#include "core/base/quote.h"
#include "net/transport/memory_account.h"
#include "telemetry/admin/http_text.h"
#include "telemetry/admin/web_gate.h"

static const struct admin_route *find_route(const struct admin_routes *routes, struct str path) {
    for (size_t i = 0; i < routes->n; i++) {
        if (str_is(path, routes->items[i].path)) {
            return &routes->items[i];
        }
    }
    return NULL;
}

static bool is_health(struct str path) {
    return str_starts_with(path, STR("/v2/health/"));
}

static void answer_not_found(const struct admin_routes *routes, struct http_exchange *exchange) {
    char text[QUOTED_NAME_BYTES];
    struct error err;
    struct buf paths;
    buf_init(&paths, exchange->arena, 128);
    for (size_t i = 0; i < routes->n; i++) { /* "/, /metrics and /debug/state" */
        const char *before = i == 0 ? "" : i + 1 < routes->n ? ", " : " and ";
        buf_printf(&paths, "%s%s", before, routes->items[i].path);
    }
    error_set(&err, ST_NOT_FOUND, "no resource %s here; there are %.*s",
              quote_name(exchange->head.path, text), STR_ARG(buf_str(&paths)));
    http_reply_error(exchange, &err, NULL, 0);
}

/* ---- pages that are printed or sent ---------------------------------------------------------- */

/* Of an exchange whose page counts. */
struct page {
    struct memory_account *account;
    size_t *n; /* of the routes: n_pages or n_reports */
};

enum { PAGE_HELD_BYTES = 1 }; /* its connection holds a page; how much it takes is not counted */

/* Where as many are open, those that are not read are closed. */
static enum status begin_page(struct admin_routes *routes, const struct admin_route *route,
                              struct http_exchange *exchange, struct error *err) {
    size_t *n = route->is_report ? &routes->n_reports : &routes->n_pages;
    int most = route->is_report ? ADMIN_MAX_REPORTS : ADMIN_MAX_PAGES;
    if (*n >= (size_t)most) {
        if (exchange->account) {
            net_budget_relieve_pages(exchange->account->quota->options.budget);
        }
        return error_set(err, ST_OVERLOADED,
                         "%d other pages of this listener are being printed, or not read yet by "
                         "their clients; there are no more at a time",
                         most);
    }
    struct page *page = arena_calloc(exchange->arena, 1, sizeof(*page));
    if (!page) {
        return error_no_memory(err, "the page");
    }
    page->account = exchange->account;
    page->n = n;
    memory_page_hold(page->account, PAGE_HELD_BYTES);
    exchange->user = page;
    ++*n;
    return ST_OK;
}

static void on_end(struct http_exchange *exchange, void *context) {
    struct page *page = exchange->user;
    (void)context;
    if (page) {
        memory_page_release(page->account, PAGE_HELD_BYTES);
        --*page->n;
    }
}

static void answer(struct admin_routes *routes, const struct admin_route *route,
                   struct http_exchange *exchange) {
    struct error err;
    if (is_health(exchange->head.path) || begin_page(routes, route, exchange, &err) == ST_OK) {
        route->answer(exchange, routes->context);
    } else {
        http_reply_error(exchange, &err, NULL, 0);
    }
}

static void on_body(struct http_exchange *exchange, void *context) {
    struct admin_routes *routes = context;
    if (routes->authorize && !is_health(exchange->head.path)) {
        routes->authorize(exchange, routes->context);
    } else {
        answer(routes, find_route(routes, exchange->head.path), exchange);
    }
}

void admin_routes_decide(struct admin_routes *routes, struct http_exchange *exchange,
                         const struct error *err) {
    static const struct http_field challenge = {STR("WWW-Authenticate"), STR("Bearer")};
    if (err->status == ST_OK && !exchange->client_disconnected) {
        answer(routes, find_route(routes, exchange->head.path), exchange);
    } else {
        http_reply_error(exchange, err, &challenge, err->status == ST_UNAUTHENTICATED);
    }
}

static const struct http_handler page_handler = {.on_body = on_body, .on_end = on_end};

/* ---- requests -------------------------------------------------------------------------------- */

enum { MAX_BODY_BYTES = 65536 };

/* Some pages are answered later, when other threads have told their part. So a body, which no page
 * needs, is received first: if it failed meanwhile, that would be a second response. */
static void on_head(struct http_exchange *exchange, void *context) {
    struct admin_routes *routes = context;
    const struct admin_route *route = find_route(routes, exchange->head.path);
    enum web_resource resource = is_health(exchange->head.path) ? WEB_ANY_SITE : WEB_CONTROL;
    if (!web_gate_admits(routes->web, exchange, resource, HTTP_READ)) {
        return;
    }
    if (!route) {
        answer_not_found(routes, exchange);
    } else if (http_check_method(exchange, HTTP_READ)) {
        exchange->handler = &page_handler;
        exchange->plan.max_bytes = MAX_BODY_BYTES;
        exchange->plan.setting = "the limit of this resource";
    }
}

static const char *error_body(struct buf *out, const struct error *error, void *context) {
    (void)context;
    json_error_body_print(out, error);
    return "application/json";
}

struct http_router admin_routes_router(struct admin_routes *routes) {
    return (struct http_router){.context = routes, .on_head = on_head, .error_body = error_body};
}
