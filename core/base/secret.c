/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/secret.c - see secret.h.
 *
 * Any thread; keeps nothing.
 */
#include "core/base/secret.h"

#include <string.h>
#include <strings.h>

bool secret_name(const char *name, size_t n)
{
    static const char *const words[] = {"token",      "secret", "passw",  "passphrase", "key",
                                        "credential", "auth",   "cookie", "private",    "license"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (size_t at = 0; at + strlen(words[i]) <= n; at++)
            if (strncasecmp(name + at, words[i], strlen(words[i])) == 0)
                return true;
    return false;
}

/* Of "redis://user:word@host/0" what stands between ':' and '@'; 0: there is no such thing.  The
 * last '@' before the path counts: a password may hold one. */
static size_t password_in(const char *value, size_t *ret_at)
{
    const char *scheme = strstr(value, "://");
    if (!scheme)
        return 0;
    const char *from = scheme + 3, *at = NULL, *colon = NULL;
    for (const char *p = from; *p && !strchr("/?# \t\n", *p); p++) {
        colon = *p == ':' && !colon ? p : colon;
        at = *p == '@' ? p : at;
    }
    if (!colon || !at || colon > at)
        return 0;
    *ret_at = (size_t)(colon + 1 - value);
    return (size_t)(at - colon - 1);
}

int secret_show(const char *name, size_t name_n, const char *value, struct buf *ret)
{
    size_t n, at = 0;

    if (secret_name(name, name_n))
        return buf_adds(ret, value[0] ? SECRET_SHOWN : "");
    for (; (n = password_in(value, &at)) > 0; value += at + n) { /* a list of them, perhaps */
        (void)buf_add(ret, value, at);
        (void)buf_adds(ret, SECRET_SHOWN);
    }
    return buf_adds(ret, value);
}
