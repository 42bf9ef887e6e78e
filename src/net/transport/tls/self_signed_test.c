/* The self-signed certificate: accepted by OpenSSL for a server, matching its key, valid now and
 * for years, different each time. */
#include "net/transport/tls/self_signed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <openssl/x509v3.h>

#include "net/transport/tls/context.h"

static const time_t NOW = 1800000000, YEAR = 365 * 24 * 3600;

static struct tls_context *context_of(struct str pem) {
    struct tls_texts texts = {.cert = {"cert", pem}, .key = {"key", pem}};
    struct tls_context *context = NULL;
    struct error err;
    if (tls_context_new(&texts, &context, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    return context;
}

static void self_signed_certificate_is_valid_for_localhost(void **state) {
    (void)state;
    struct str pem;
    struct error err;
    assert_int_equal(tls_self_signed_new(NOW, &pem, &err), ST_OK);
    struct tls_context *context = context_of(pem);
    assert_int_equal(tls_context_check_dates(context, NOW, &err), ST_OK);
    assert_int_equal(tls_context_check_dates(context, NOW - 3600, &err), ST_OK);
    assert_int_equal(tls_context_check_dates(context, NOW + 9 * YEAR, &err), ST_OK);
    assert_int_equal(tls_context_check_dates(context, NOW + 11 * YEAR, &err), ST_BAD_CONFIG);
    X509 *cert = SSL_CTX_get0_certificate(context->ssl);
    assert_int_equal(X509_check_host(cert, "localhost", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(cert, "example.com", 0, 0, NULL), 0);
    assert_int_equal(X509_check_ip_asc(cert, "127.0.0.1", 0), 1);
    assert_int_equal(X509_check_ip_asc(cert, "::1", 0), 1);
    assert_int_equal(X509_check_ca(cert), 0);
    assert_int_equal(X509_verify(cert, X509_get0_pubkey(cert)), 1);
    tls_context_unref(context);
    tls_self_signed_free(&pem);
    assert_null(pem.ptr);
    tls_self_signed_free(&pem);
}

static void self_signed_key_differs_each_time(void **state) {
    (void)state;
    struct str first, second;
    struct error err;
    assert_int_equal(tls_self_signed_new(NOW, &first, &err), ST_OK);
    assert_int_equal(tls_self_signed_new(NOW, &second, &err), ST_OK);
    struct tls_context *a = context_of(first), *b = context_of(second);
    X509 *one = SSL_CTX_get0_certificate(a->ssl), *other = SSL_CTX_get0_certificate(b->ssl);
    assert_int_not_equal(EVP_PKEY_eq(X509_get0_pubkey(one), X509_get0_pubkey(other)), 1);
    assert_int_not_equal(
        ASN1_INTEGER_cmp(X509_get0_serialNumber(one), X509_get0_serialNumber(other)), 0);
    tls_context_unref(a);
    tls_context_unref(b);
    tls_self_signed_free(&first);
    tls_self_signed_free(&second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_signed_certificate_is_valid_for_localhost),
        cmocka_unit_test(self_signed_key_differs_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
