/* Where trusted certificates are looked for. */
#include "net/transport/tls/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void trust_first_readable_path_is_taken(void **state) {
    const char *const paths[] = {"/nonexistent/ca.pem", "/proc/self/status", "/proc/self/stat"};
    (void)state;
    assert_string_equal(tls_trust_first(paths, 3), "/proc/self/status");
    assert_null(tls_trust_first(paths, 1));
    assert_null(tls_trust_first(paths, 0));
}

static void trust_environment_replaces_system(void **state) {
    (void)state;
    unsetenv("SSL_CERT_DIR");
    setenv("SSL_CERT_FILE", "/nonexistent/own.pem", 1);
    assert_string_equal(tls_trust_system().file, "/nonexistent/own.pem");
    assert_null(tls_trust_system().directory);
    unsetenv("SSL_CERT_FILE");
    setenv("SSL_CERT_DIR", "/nonexistent/certs", 1);
    assert_null(tls_trust_system().file);
    assert_string_equal(tls_trust_system().directory, "/nonexistent/certs");
    unsetenv("SSL_CERT_DIR");
    const char *file = tls_trust_system().file;
    assert_true(!file || file[0] == '/');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trust_first_readable_path_is_taken),
        cmocka_unit_test(trust_environment_replaces_system),
    };
    return cmocka_run_group_tests_name("net/transport/tls/peer", tests, NULL, NULL);
}
