/* Digests by OpenSSL's EVP interface, in pieces: a file may be larger than the memory. */
#include "serve/repository/checksum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "core/base/hex.h"

enum { PIECE_BYTES = 1 << 20, TEXT_BYTES = 2 * EVP_MAX_MD_SIZE + 1 };

static bool is_cancelled(const atomic_bool *cancelled) {
    return cancelled && atomic_load_explicit(cancelled, memory_order_relaxed);
}

/* Where a digest is computed. */
struct digest {
    EVP_MD *algorithm;
    EVP_MD_CTX *context;
    unsigned char *piece;
    const atomic_bool *cancelled;
};

static enum status digest_read(struct digest *digest, FILE *file, const char *path,
                               char out[TEXT_BYTES], struct error *err) {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned n_bytes = 0;
    size_t n;
    bool ok = EVP_DigestInit_ex2(digest->context, digest->algorithm, NULL) == 1;
    while (ok && (n = fread(digest->piece, 1, PIECE_BYTES, file)) > 0) {
        ok = EVP_DigestUpdate(digest->context, digest->piece, n) == 1;
        if (is_cancelled(digest->cancelled)) {
            return error_set(err, ST_NOT_READY, "the look at the files was cancelled");
        }
    }
    if (ferror(file)) {
        return error_set(err, status_of_errno(errno, ST_BAD_MODEL), "%s: %s", path,
                         strerror(errno));
    }
    if (!ok || EVP_DigestFinal_ex(digest->context, bytes, &n_bytes) != 1) {
        return error_set(err, ST_BAD_MODEL, "%s: its MD5 digest could not be computed", path);
    }
    hex_encode_lower(bytes, n_bytes, out);
    out[2 * (size_t)n_bytes] = '\0';
    return ST_OK;
}

static enum status verify_one(const struct model *model, struct digest *digest,
                              const struct model_config_checksum *checksum, struct error *err) {
    char got[TEXT_BYTES];
    const char *reason;
    struct str path =
        arena_printf(model->arena, "%s/%s", model->directory.ptr, checksum->filename.ptr);
    if (!path.ptr) {
        return error_no_memory(err, "the path of a file");
    }
    FILE *file = model_file_open(&model->config, model->directory, path.ptr, &reason);
    if (!file) {
        return error_set(err, status_of_errno(errno, ST_BAD_MODEL),
                         "%s: %s can't be read (%s); its MD5 digest should be %s",
                         checksum->place.ptr, path.ptr, reason, checksum->md5.ptr);
    }
    enum status st = digest_read(digest, file, path.ptr, got, err);
    fclose(file);
    if (st == ST_OK && !str_is(checksum->md5, got)) {
        st = error_set(err, ST_BAD_MODEL, "%s: %s has the MD5 digest %s, expected %s",
                       checksum->place.ptr, path.ptr, got, checksum->md5.ptr);
    }
    return st;
}

enum status checksums_verify(const struct model *model, const atomic_bool *cancelled,
                             struct error *err) {
    const struct model_config *config = &model->config;
    enum status st = ST_OK;
    if (config->n_checksums == 0) {
        return ST_OK;
    }
    if (model->directory.len == 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: a model that is a single file has no directory for it",
                         config->checksums[0].place.ptr);
    }
    struct digest digest = {
        .algorithm = EVP_MD_fetch(NULL, "MD5", NULL),
        .context = EVP_MD_CTX_new(),
        .piece = malloc(PIECE_BYTES),
        .cancelled = cancelled,
    };
    if (!digest.algorithm) {
        st = error_set(err, ST_BAD_MODEL,
                       "%s: the OpenSSL of this machine has no MD5 (as in FIPS mode), so no "
                       "checksum can be verified",
                       config->checksums[0].place.ptr);
    } else if (!digest.context || !digest.piece) {
        st = error_no_memory(err, "a digest");
    }
    for (size_t i = 0; i < config->n_checksums && st == ST_OK; i++) {
        st = verify_one(model, &digest, &config->checksums[i], err);
    }
    EVP_MD_CTX_free(digest.context);
    EVP_MD_free(digest.algorithm);
    free(digest.piece);
    return st;
}
