/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/rewrite_hints.c - what to do next, as a host has said it: "probing -t 4242 inject" is
 * right there, and of another process, or of none, here.
 *
 * One thread.
 */
#include <stdio.h>
#include <string.h>

#include "cli/link/link.h"

static const char HINT[] = "probing -t ";

/* How many digits begin a process's number here; 0: it is none. */
static size_t count_digits(const char *text)
{
    size_t n = strspn(text, "0123456789");

    return strchr(" ;,.)\n", text[n]) != NULL ? n : 0; /* and '\0' */
}

void link_hints(uint32_t host, const char *text, char *ret, size_t size)
{
    const char *name = link_name_of(host);
    size_t used = 0;

    for (const char *at; name != NULL && (at = strstr(text, HINT)) != NULL && used < size;) {
        size_t upto = (size_t)(at - text) + sizeof(HINT) - 1;
        int n = snprintf(ret + used, size - used, "%.*s%s%s", (int)upto, text,
                         count_digits(text + upto) > 0 ? name : "",
                         count_digits(text + upto) > 0 ? "/" : "");
        used += n > 0 ? (size_t)n : 0;
        text += upto;
    }
    if (used < size)
        (void)snprintf(ret + used, size - used, "%s", text);
}
