/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/token.c - the token of relays that listen: from PROBING_TOKEN or a file, never from
 * words that `ps` shows.
 *
 * One thread.
 */
#include "cli/link/token.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal/secret_file.h"
#include "core/base/err.h"

bool token_is(const char *token, const char *shown)
{
    size_t n = strlen(token), k = strlen(shown);
    unsigned differs = n != k;

    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(token[i] ^ shown[k > 0 ? i % k : 0]);
    return differs == 0;
}

int link_token(const char *file, char *ret, size_t size)
{
    const char *value = getenv("PROBING_TOKEN");

    ret[0] = '\0';
    if (file == NULL && value != NULL && value[0] != '\0') {
        if (strlen(value) >= size)
            return err_set(-E2BIG, "PROBING_TOKEN is longer than %zu bytes", size - 1);
        memcpy(ret, value, strlen(value) + 1);
        return 0;
    }
    if (file != NULL)
        return secret_read("--token-file", file, ret, size);
    file = getenv("PROBING_TOKEN_FILE");
    return file != NULL && file[0] != '\0' ? secret_read("PROBING_TOKEN_FILE", file, ret, size) : 0;
}
