/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c -- computes SHA-256 with libcrypto. */
#include "base/base.h"

#include <openssl/evp.h>
#include <stdio.h>

cgp_status cgp__sha256_create(cgp__sha256 **out) {
    cgp__sha256 *hash = EVP_MD_CTX_new();
    if (hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1) {
        *out = hash;
        return CGP_OK;
    }
    EVP_MD_CTX_free(hash);
    return cgp_fail(CGP_ENOMEM, "sha256: out of memory (libcrypto could not start a digest)");
}

cgp_status cgp__sha256_add(cgp__sha256 *hash, const void *data, size_t bytes) {
    if (EVP_DigestUpdate(hash, data, bytes) != 1)
        return cgp_fail(CGP_ENOMEM, "sha256: libcrypto could not digest %zu bytes", bytes);
    return CGP_OK;
}

cgp_status cgp__sha256_finish_bytes(cgp__sha256 *hash, unsigned char digest[32]) {
    unsigned int length = 0;
    if (EVP_DigestFinal_ex(hash, digest, &length) != 1 || length != 32)
        return cgp_fail(CGP_ENOMEM, "sha256: libcrypto could not finish a digest");
    return CGP_OK;
}

cgp_status cgp__sha256_finish(cgp__sha256 *hash, char hex[65]) {
    unsigned char digest[32];
    CGP_TRY(cgp__sha256_finish_bytes(hash, digest));
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return CGP_OK;
}

cgp_status cgp__sha256_restart(cgp__sha256 *hash) {
    if (EVP_DigestInit_ex(hash, NULL, NULL) != 1)
        return cgp_fail(CGP_ENOMEM, "sha256: libcrypto could not restart a digest");
    return CGP_OK;
}

void cgp__sha256_destroy(cgp__sha256 *hash) {
    EVP_MD_CTX_free(hash);
}
