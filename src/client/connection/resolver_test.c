/* Looking up names, against a DNS server of the test's own: alone, and in the steps of a client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>

#include "client/call.h"
#include "client/connection/resolver.h"
#include "client/test_expect.h"
#include "client/test_server.h"
#include "net/client/dns_fixture.h"

enum { WAIT_MS = 100, PORT = 8000 };

static const struct test_dns_record records[] = {
    {.name = "a.test", .type = TEST_DNS_A, .ip = INADDR_LOOPBACK}};
static struct test_dns dns;
static sluice_client_error error = {.size = sizeof(error)};

static int start_dns(void **state) {
    (void)state;
    test_dns_init(&dns);
    test_dns_set(&dns, records, 1);
    return 0;
}

static int stop_dns(void **state) {
    (void)state;
    test_dns_fini(&dns);
    return 0;
}

/* ---- the resolver ---------------------------------------------------------------------------- */

static struct client_resolver *begin(const char *host, int timeout_ms) {
    const struct client_resolver_options options = {.servers = dns.address,
                                                    .timeout_ms = timeout_ms};
    struct client_resolver *resolver;
    struct error err = {0};
    assert_int_equal(client_resolver_start(host, PORT, &options, &resolver, &err), ST_OK);
    return resolver;
}

/* Steps when the descriptor is readable, and now and then. */
static enum status finish(struct client_resolver *resolver, struct error *err) {
    bool done = false;
    enum status status;
    while ((status = client_resolver_step(resolver, &done, err)) == ST_OK && !done) {
        struct pollfd fd = {.fd = client_resolver_fd(resolver), .events = POLLIN};
        (void)poll(&fd, 1, WAIT_MS);
    }
    return status;
}

static void expect_address(const char *host, int family) {
    struct error err = {0};
    struct client_resolver *resolver = begin(host, 0);
    assert_int_equal(finish(resolver, &err), ST_OK);
    const struct client_address *address = client_resolver_address(resolver, 0);
    assert_non_null(address);
    assert_int_equal(address->socket.ss_family, family);
    assert_int_equal(ntohs(((const struct sockaddr_in *)(const void *)&address->socket)->sin_port),
                     PORT); /* at the same place in both */
    assert_null(client_resolver_address(resolver, 1));
    client_resolver_free(resolver);
}

static void resolver_numeric_address_asks_no_server(void **state) {
    (void)state;
    int before = atomic_load(&dns.n_asked);
    expect_address("127.0.0.1", AF_INET);
    expect_address("::1", AF_INET6);
    assert_int_equal(atomic_load(&dns.n_asked), before);
}

static void resolver_name_is_looked_up(void **state) {
    (void)state;
    expect_address("a.test", AF_INET);
}

static void resolver_failures_say_why(void **state) {
    static const struct {
        int manners, timeout_ms;
        const char *host, *says;
    } rows[] = {{TEST_DNS_ANSWERS, 0, "b.test", "no address of b.test: there is no such name"},
                {TEST_DNS_FAILS, 10, "a.test", "no address of a.test: "},
                {TEST_DNS_BABBLES, 10, "a.test", "no address of a.test: "}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct error err = {0};
        atomic_store(&dns.manners, rows[i].manners);
        struct client_resolver *resolver = begin(rows[i].host, rows[i].timeout_ms);
        assert_int_equal(finish(resolver, &err), ST_IO);
        assert_non_null(strstr(err.text, rows[i].says));
        client_resolver_free(resolver);
    }
    atomic_store(&dns.manners, TEST_DNS_ANSWERS);
    expect_address("a.test", AF_INET);
}

/* ---- a client -------------------------------------------------------------------------------- */

/* Opens a client that asks the test's server. */
static sluice_client *open_client(const char *url) {
    sluice_client_options options = {.size = sizeof(options), .url = url};
    sluice_client *client;
    assert_int_equal(sluice_client_open(&options, &client, &error), SLUICE_CLIENT_OK);
    client->resolving.servers = dns.address;
    return client;
}

/* While the DNS server says nothing a step returns, and waits for the descriptor. */
static void pass_silence(sluice_client *client) {
    sluice_call *call;
    atomic_store(&dns.manners, TEST_DNS_SILENT);
    assert_int_equal(sluice_client_start_ping(client, NULL, &call, &error), SLUICE_CLIENT_OK);
    for (int i = 0; i < 3; i++) {
        sluice_client_step(client);
        assert_int_equal(sluice_call_status(call, &error), SLUICE_CLIENT_PENDING);
        assert_true(sluice_client_timeout_ns(client) > 0);
    }
    sluice_call_free(call);
    atomic_store(&dns.manners, TEST_DNS_ANSWERS);
}

static void client_step_does_not_wait_for_dns(void **state) {
    static const struct script script = {.texts = {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}};
    struct test_server server;
    char url[URL_BYTES], named[URL_BYTES];
    (void)state;
    test_server_start(&server, url, &script, 1);
    snprintf(named, sizeof(named), "http://a.test:%s", strrchr(url, ':') + 1);
    sluice_client *client = open_client(named);
    pass_silence(client);
    test_expect(&error, sluice_client_ping(client, NULL, &error), SLUICE_CLIENT_OK, "");
    sluice_client_close(client);
    test_server_stop(&server);
}

static void client_unknown_name_is_resolve(void **state) {
    static const char *const urls[] = {"http://b.test:80", "grpc://b.test:80", "tcp://b.test:80"};
    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        sluice_client *client = open_client(urls[i]);
        pass_silence(client);
        for (int k = 0; k < 2; k++) {
            test_expect(&error, sluice_client_ping(client, NULL, &error), SLUICE_CLIENT_RESOLVE,
                        "there is no such name");
            assert_int_equal(error.may_have_run, 0);
        }
        sluice_client_close(client);
    }
}

/* The deadline of connecting is that of the lookup, too. */
static void client_silent_dns_times_out(void **state) {
    static const char *const urls[] = {"http://a.test:80", "grpc://a.test:80"};
    (void)state;
    atomic_store(&dns.manners, TEST_DNS_SILENT);
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        sluice_client *client = open_client(urls[i]);
        const sluice_call_options options = {.size = sizeof(options), .timeout_ns = 1000000};
        test_expect(&error, sluice_client_ping(client, &options, &error), SLUICE_CLIENT_TIMEOUT,
                    "a.test");
        assert_int_equal(error.may_have_run, 0);
        sluice_client_close(client);
    }
    atomic_store(&dns.manners, TEST_DNS_ANSWERS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolver_numeric_address_asks_no_server),
        cmocka_unit_test(resolver_name_is_looked_up),
        cmocka_unit_test(resolver_failures_say_why),
        cmocka_unit_test(client_step_does_not_wait_for_dns),
        cmocka_unit_test(client_unknown_name_is_resolve),
        cmocka_unit_test(client_silent_dns_times_out),
    };
    return cmocka_run_group_tests(tests, start_dns, stop_dns);
}
