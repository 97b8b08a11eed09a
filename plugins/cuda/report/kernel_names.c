/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/report/kernel_names.c - names of kernels for people.
 *
 * One thread, of the command.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/demangle/demangle.h"
#include "report.h"

/* Find the parameters: the last '(' that is in no '<...>' and no '(...)' of its own. */
static size_t parameters_at(const char *text)
{
    size_t n = strlen(text);
    int depth = 0;
    for (size_t i = n; i > 0 && text[n - 1] == ')'; i--) {
        depth += text[i - 1] == ')' ? 1 : text[i - 1] == '(' ? -1 : 0;
        if (depth == 0)
            return i - 1;
    }
    return n;
}

/* Behind the type that a template's instance gives: "void f<...>". */
static const char *behind_result(const char *text)
{
    return strncmp(text, "void ", 5) == 0 ? text + 5 : text;
}

void kernel_name(const char *name, char *ret, size_t size)
{
    static struct plainer *reader; /* one thread; it stays */
    const char *plain = reader || plainer_new(&reader) == 0 ? plainer_name(reader, name) : NULL;
    const char *from = behind_result(plain ? plain : name);
    size_t n = parameters_at(from);
    if (n == 0 || n >= size)
        n = n == 0 ? strlen(from) : n;
    n = n < size ? n : size - 1;
    memcpy(ret, from, n);
    ret[n] = '\0';
}
