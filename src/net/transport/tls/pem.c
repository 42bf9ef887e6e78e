/* Reading PEM. The sentences are for whoever set the server up: they name the file, say what was
 * found in it, and how to make the right one. */
#include "net/transport/tls/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdbool.h>

static const char BEGIN[] = "-----BEGIN ";

const char *tls_pem_reason(void) {
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return reason ? reason : "OpenSSL gives no reason";
}

/* ---- what a file is instead ------------------------------------------------------------------ */

/* The label of its first block, "CERTIFICATE"; empty: it has none. */
static struct str first_label(struct str text) {
    const char *begin = text.len > 0 ? memmem(text.ptr, text.len, BEGIN, sizeof(BEGIN) - 1) : NULL;
    if (!begin) {
        return STR("");
    }
    begin += sizeof(BEGIN) - 1;
    struct str rest = str_make(begin, text.len - (size_t)(begin - text.ptr));
    return str_cut(&rest, '-');
}

/* There is no block in the file that could be read as `wanted`. */
static enum status wrong_content_error(const struct tls_text *file, const char *wanted,
                                       struct error *err) {
    struct str label = first_label(file->text);
    if (file->text.len == 0) {
        return error_set(err, ST_BAD_CONFIG, "%s: expected %s, the file is empty", file->name,
                         wanted);
    }
    if (label.len > 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected %s, the file holds \"%.*s\" (are two files swapped?)",
                         file->name, wanted, STR_ARG(label));
    }
    return error_set(err, ST_BAD_CONFIG,
                     "%s: expected %s in PEM, a text with lines that begin with -----BEGIN; from "
                     "DER it is made with `openssl x509` or `openssl pkey` and -inform DER, from "
                     "PKCS#12 with `openssl pkcs12 -nodes`",
                     file->name, wanted);
}

/* Was the last error that no (further) block was found? */
static bool is_no_block(void) {
    unsigned long error = ERR_peek_last_error();
    return error == 0 ||
           (ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE);
}

static BIO *open_text(struct str text) {
    ERR_clear_error();
    return BIO_new_mem_buf(text.ptr, (int)text.len); /* files are at most a few MiB */
}

static enum status no_memory(struct error *err) {
    ERR_clear_error();
    return error_set(err, ST_NO_MEMORY, "no memory for a certificate");
}

/* ---- certificates ---------------------------------------------------------------------------- */

static enum status read_certs(const struct tls_text *file, BIO *bio, STACK_OF(X509) * certs,
                              struct error *err) {
    X509 *cert;
    while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        if (sk_X509_push(certs, cert) == 0) {
            X509_free(cert);
            return no_memory(err);
        }
    }
    int n = sk_X509_num(certs);
    if (!is_no_block()) {
        return error_set(err, ST_BAD_CONFIG, "%s: certificate %d of the file is damaged: %s",
                         file->name, n + 1, tls_pem_reason());
    }
    ERR_clear_error();
    return n > 0 ? ST_OK : wrong_content_error(file, "a certificate", err);
}

enum status tls_pem_certs(const struct tls_text *file, STACK_OF(X509) * *out, struct error *err) {
    BIO *bio = open_text(file->text);
    STACK_OF(X509) *certs = sk_X509_new_null();
    enum status st = bio && certs ? read_certs(file, bio, certs, err) : no_memory(err);
    BIO_free(bio);
    if (st != ST_OK) {
        sk_X509_pop_free(certs, X509_free);
        certs = NULL;
    }
    *out = certs;
    return st;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A passphrase is asked for: nobody is there to type it. */
static int on_passphrase(char *out, int n_bytes, int writing, void *asked) {
    (void)out, (void)n_bytes, (void)writing;
    *(bool *)asked = true;
    return -1;
}

/* OpenSSL says the same of a file without a key as of one with a damaged key. */
static bool has_key(struct str text) {
    static const char LABEL[] = "PRIVATE KEY-----";
    return text.len > 0 && memmem(text.ptr, text.len, LABEL, sizeof(LABEL) - 1) != NULL;
}

enum status tls_pem_key(const struct tls_text *file, EVP_PKEY **out, struct error *err) {
    bool asked = false;
    if (!has_key(file->text)) {
        return wrong_content_error(file, "a private key", err);
    }
    BIO *bio = open_text(file->text);
    if (!bio) {
        return no_memory(err);
    }
    *out = PEM_read_bio_PrivateKey(bio, NULL, on_passphrase, &asked);
    BIO_free(bio);
    if (*out) {
        ERR_clear_error();
        return ST_OK;
    }
    if (asked) {
        ERR_clear_error();
        return error_set(err, ST_BAD_CONFIG,
                         "%s: the key is encrypted, and a server can't type its passphrase; "
                         "`openssl pkey -in FILE -out NEW` writes it without one",
                         file->name);
    }
    return error_set(err, ST_BAD_CONFIG, "%s: the private key is damaged: %s", file->name,
                     tls_pem_reason());
}
