/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/demangle/demangle_name.c - one pass over the mangled name; each part of it becomes a
 * text, which those that contain it copy.
 *
 * Threads: as demangle.h says.
 */
#include "sdk/lib/demangle/demangle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/demangle/demangle_parts.h"

/* ---- names ---- */

/* The same T_ is another thing in another template. */
static bool read_again(struct plainer *p, struct piece *ret)
{
    const char *next = p->s, *to = p->to;
    uint32_t n_substitutions = p->n_substitutions;
    p->s = ret->from;
    p->to = ret->to;
    bool ok = plain_read_type(p, ret) && p->s == p->to;
    p->s = next;
    p->to = to;
    p->n_substitutions = n_substitutions;
    return ok;
}

/* Behind the `S`; St is not for here. */
bool plain_read_substitution(struct plainer *p, struct piece *ret, bool *ret_standard)
{
    static const struct {
        char letter;
        const char *text;
    } standard[] = {{'a', "std::allocator"}, {'b', "std::basic_string"}, {'s', "std::string"},
                    {'i', "std::istream"},   {'o', "std::ostream"},      {'d', "std::iostream"}};
    uint32_t i;
    *ret_standard = true;
    for (size_t k = 0; k < sizeof(standard) / sizeof(standard[0]); k++)
        if (plain_take(p, standard[k].letter))
            return plain_make(p, standard[k].text, ret);
    *ret_standard = false;
    if (!plain_read_index(p, 36, &i) || i >= p->n_substitutions)
        return false;
    *ret = p->substitutions[i];
    return !ret->from || read_again(p, ret);
}

/* Ul...E_, Ut_ */
static bool read_unnamed(struct plainer *p, struct piece *ret)
{
    struct piece parameters = {.n = 0};
    char text[40];
    uint32_t i;
    bool lambda = p->s[1] == 'l';
    if (!lambda && p->s[1] != 't')
        return false;
    p->s += 2;
    p->lambda += lambda;
    bool ok = !lambda || (plain_read_parameters(p, &parameters) && plain_take(p, 'E'));
    p->lambda -= lambda;
    if (!ok || !plain_read_index(p, 10, &i))
        return false;
    *ret = plain_begin(p);
    (void)snprintf(text, sizeof(text), "#%u}", i + 1);
    return plain_puts(p, lambda ? "{lambda" : "{unnamed type") && plain_put_piece(p, &parameters) &&
           plain_puts(p, text) && plain_end(p, ret);
}

static bool read_operator(struct plainer *p, struct piece *ret)
{
    static const char *const operators[][2] = {
        {"cl", "()"}, {"ix", "[]"}, {"pl", "+"},  {"mi", "-"},  {"ml", "*"},  {"dv", "/"},
        {"rm", "%"},  {"eq", "=="}, {"ne", "!="}, {"lt", "<"},  {"gt", ">"},  {"le", "<="},
        {"ge", ">="}, {"aS", "="},  {"pL", "+="}, {"mI", "-="}, {"ls", "<<"}, {"rs", ">>"},
        {"an", "&"},  {"or", "|"},  {"aa", "&&"}, {"oo", "||"}, {"nt", "!"},  {"de", "*"},
        {"ad", "&"},  {"pp", "++"}, {"mm", "--"}, {"pt", "->"}, {"ng", "-"},  {"co", "~"}};
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
        if (strncmp(p->s, operators[i][0], 2) == 0) {
            p->s += 2;
            *ret = plain_begin(p);
            return plain_puts(p, "operator") && plain_puts(p, operators[i][1]) && plain_end(p, ret);
        }
    return false;
}

/* One part of a name, without arguments.  last: the one before, of which C1 is the constructor. */
static bool read_part(struct plainer *p, const struct piece *last, struct piece *ret)
{
    p->structor = false;
    (void)(*p->s == 'L' && plain_is_digit(p->s[1]) && plain_take(p, 'L')); /* of this file only */
    if (plain_is_digit(*p->s))
        return plain_read_source_name(p, ret);
    if (*p->s == 'U')
        return read_unnamed(p, ret);
    if ((*p->s == 'C' || *p->s == 'D') && plain_is_digit(p->s[1])) {
        bool destroys = *p->s == 'D';
        p->s += 2;
        p->structor = true;
        *ret = plain_begin(p);
        return last && plain_puts(p, destroys ? "~" : "") && plain_put_piece(p, last) &&
               plain_end(p, ret);
    }
    return read_operator(p, ret);
}

/* Behind the `N`. */
static bool read_nested(struct plainer *p, struct piece *ret, const char **ret_qualifiers)
{
    struct piece whole = {.n = 0}, part, last = {.n = 0};
    bool any = false, standard;
    bool is_const = false, by_reference = false, by_value = false;
    for (; *p->s == 'K' || *p->s == 'V' || *p->s == 'r'; p->s++)
        is_const |= *p->s == 'K';
    by_reference = plain_take(p, 'R');
    by_value = !by_reference && plain_take(p, 'O');
    *ret_qualifiers = is_const       ? by_reference ? " const &"
                                       : by_value   ? " const &&"
                                                    : " const"
                      : by_reference ? " &"
                      : by_value     ? " &&"
                                     : "";
    while (!plain_take(p, 'E')) {
        bool again = false; /* it is a substitution already */
        if (!plain_step(p))
            return false;
        if (any && plain_take(p, 'M')) /* what follows is in its initialiser */
            continue;
        if (*p->s == 'I') {
            p->s++;
            if (!any || !plain_read_arguments(p, &part))
                return false;
            bool spaced = plain_ends_with(p, &whole, '<');
            if (!plain_join(p, &whole, spaced ? " " : "", &part, &whole))
                return false;
            p->templated = true;
        } else {
            p->templated = false;
            if (p->s[0] == 'S' && p->s[1] == 't') {
                p->s += 2;
                again = true;
                if (any || !plain_make(p, "std", &whole))
                    return false;
            } else if (plain_take(p, 'S')) {
                again = true;
                if (any || !plain_read_substitution(p, &whole, &standard) || whole.pack)
                    return false;
                last = (struct piece){.n = 0};
            } else if (plain_take(p, 'T')) {
                if (any || !plain_read_template_parameter(p, &whole) || whole.pack)
                    return false;
            } else {
                if (!read_part(p, any && last.n ? &last : NULL, &part))
                    return false;
                last = part;
                if (any ? !plain_join(p, &whole, "::", &part, &whole) : (whole = part, false))
                    return false;
            }
            any = true;
        }
        if (!again && *p->s != 'E' && !plain_substitutable(p, &whole))
            return false;
    }
    *ret = whole;
    return any;
}

/* Behind the `Z`: something in a function. */
static bool read_local(struct plainer *p, struct piece *ret, const char **ret_qualifiers)
{
    struct piece function, entity;
    uint32_t number;
    if (!plain_read_encoding(p, /* inner= */ true, &function) || !plain_take(p, 'E'))
        return false;
    if (*p->s == 's' || *p->s == 'd') /* a text, an argument's default: of no kernel */
        return false;
    if (!plain_read_name(p, &entity, ret_qualifiers))
        return false;
    if (plain_take(p, '_')) { /* which of several; __12_ */
        bool many = plain_take(p, '_');
        if (many ? !plain_read_number(p, &number) || !plain_take(p, '_') : !plain_is_digit(*p->s++))
            return false;
    }
    return plain_join(p, &function, "::", &entity, ret);
}

/* A name with its arguments.  ret_qualifiers: of the object whose function it is. */
bool plain_read_name(struct plainer *p, struct piece *ret, const char **ret_qualifiers)
{
    struct piece part;
    bool standard, known = false;
    *ret_qualifiers = "";
    if (p->depth >= PLAIN_DEPTH || !plain_step(p))
        return false;
    p->depth++;
    p->templated = false;
    bool ok;
    if (plain_take(p, 'N')) {
        ok = read_nested(p, ret, ret_qualifiers);
    } else if (plain_take(p, 'Z')) {
        ok = read_local(p, ret, ret_qualifiers);
    } else {
        if (p->s[0] == 'S' && p->s[1] == 't') {
            p->s += 2;
            struct piece std;
            ok = plain_make(p, "std", &std) && read_part(p, NULL, &part) &&
                 plain_join(p, &std, "::", &part, ret);
        } else if (plain_take(p, 'S')) {
            ok = known = plain_read_substitution(p, ret, &standard);
        } else {
            ok = read_part(p, NULL, ret);
        }
        if (ok && plain_take(p, 'I')) {
            bool spaced = plain_ends_with(p, ret, '<');
            ok = (known || plain_substitutable(p, ret)) && plain_read_arguments(p, &part) &&
                 plain_join(p, ret, spaced ? " " : "", &part, ret);
            p->templated = true;
        }
    }
    p->depth--;
    return ok;
}

/* ---- the whole ---- */

/* A function with its parameters, or a variable. */
bool plain_read_encoding(struct plainer *p, bool inner, struct piece *ret)
{
    struct piece name, result = {.n = 0}, parameters;
    const char *qualifiers;
    struct list arguments = p->arguments;
    if (!plain_read_name(p, &name, &qualifiers))
        return false;
    bool templated = p->templated && !p->structor;
    if (*p->s == 'E' || *p->s == '\0') {
        *ret = name;
        return true;
    }
    if (templated && (!plain_read_type(p, &result) || result.pack || result.kind != PLAIN))
        return false;
    if (!plain_read_parameters(p, &parameters))
        return false;
    p->arguments = arguments;
    *ret = plain_begin(p);
    bool first = templated && !inner;
    return (!first || (plain_put(p, p->room + result.at, result.n) &&
                       plain_puts(p, result.n_behind ? "" : " "))) &&
           plain_put_piece(p, &name) && plain_put_piece(p, &parameters) &&
           (!first || plain_put(p, p->room + result.behind, result.n_behind)) &&
           plain_puts(p, qualifiers) && plain_end(p, ret);
}

int plainer_new(struct plainer **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

void plainer_free(struct plainer *p)
{
    free(p);
}

const char *plainer_name(struct plainer *p, const char *mangled)
{
    struct piece whole;
    if (strncmp(mangled, "_Z", 2) != 0)
        return NULL;
    p->s = mangled + 2;
    p->to = NULL;
    p->uses = p->depth = p->steps = p->lambda = p->used = p->n_pieces = p->n_scratch =
        p->n_substitutions = 0;
    p->element = -1;
    p->arguments = (struct list){0, 0};
    p->templated = p->structor = false;
    if (!plain_read_encoding(p, /* inner= */ false, &whole) || *p->s != '\0' || whole.pack ||
        !plain_put(p, "", 1))
        return NULL;
    /* It was written last. */
    uint32_t at = p->used;
    if (!plain_put_piece(p, &whole) || !plain_put(p, "", 1))
        return NULL;
    return p->room + at;
}
