/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/demangle/demangle_type.c - types, and the arguments of templates and functions.
 *
 * Threads: as demangle.h says.
 */
#include <stdio.h>
#include <string.h>

#include "sdk/lib/demangle/demangle_parts.h"

static bool read_argument(struct plainer *p, struct piece *ret);

/* ---- arguments ---- */

/* All of them with commas, packs spread. */
static bool put_list(struct plainer *p, struct list l)
{
    bool first = true;
    for (uint32_t i = 0; i < l.n; i++) {
        const struct piece *a = &p->pieces[l.first + i];
        struct list one = {a->pack ? a->first : l.first + i, a->pack ? a->n_pack : 1};
        for (uint32_t k = 0; k < one.n; k++) {
            if ((!first && !plain_puts(p, ", ")) || !plain_put_piece(p, &p->pieces[one.first + k]))
                return false;
            first = false;
        }
    }
    return true;
}

/* Types up to `E` or the end; with brackets around.  Nothing: "()". */
bool plain_read_parameters(struct plainer *p, struct piece *ret)
{
    uint32_t base = p->n_scratch;
    struct piece one;
    if (*p->s == 'v' && (p->s[1] == 'E' || p->s[1] == '\0' || p->s[1] == '.')) {
        p->s++;
        return plain_make(p, "()", ret);
    }
    while (*p->s != 'E' && *p->s != '\0' && *p->s != '.') {
        if ((*p->s == 'R' || *p->s == 'O') && p->s[1] == 'E')
            return false;
        if (!plain_read_type(p, &one) || !plain_collect(p, &one))
            return false;
    }
    struct list l;
    if (!plain_keep_collected(p, base, &l))
        return false;
    *ret = plain_begin(p);
    return plain_puts(p, "(") && put_list(p, l) && plain_puts(p, ")") && plain_end(p, ret);
}

/* ---- expressions: literals, parameters, and addresses of functions ---- */

static bool put_number(struct plainer *p)
{
    size_t n;
    if (plain_take(p, 'n') && !plain_puts(p, "-"))
        return false;
    for (n = 0; plain_is_digit(p->s[n]); n++)
        ;
    bool ok = n > 0 && plain_put(p, p->s, n);
    p->s += n;
    return ok;
}

static bool read_literal(struct plainer *p, struct piece *ret)
{
    static const struct {
        char type;
        const char *behind;
    } plain[] = {{'i', ""}, {'j', "u"}, {'l', "l"}, {'m', "ul"}, {'x', "ll"}, {'y', "ull"}};
    struct piece type;
    const char *behind = NULL;
    if (p->s[0] == '_' && p->s[1] == 'Z') {
        p->s += 2;
        return plain_read_encoding(p, /* inner= */ false, ret) && plain_take(p, 'E');
    }
    if (p->s[0] == 'b' && (p->s[1] == '0' || p->s[1] == '1') && p->s[2] == 'E') {
        bool yes = p->s[1] == '1';
        p->s += 3;
        return plain_make(p, yes ? "true" : "false", ret);
    }
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (*p->s == plain[i].type)
            behind = plain[i].behind;
    if (behind) {
        p->s++;
        *ret = plain_begin(p);
        return put_number(p) && plain_puts(p, behind) && plain_end(p, ret) && plain_take(p, 'E');
    }
    if (!plain_read_type(p, &type))
        return false;
    *ret = plain_begin(p);
    return plain_puts(p, "(") && plain_put_piece(p, &type) && plain_puts(p, ")") && put_number(p) &&
           plain_end(p, ret) && plain_take(p, 'E');
}

/* adL_Z: the address of a function, written without its parameters if it has a simple name. */
static bool read_address(struct plainer *p, struct piece *ret)
{
    struct piece name, whole;
    const char *qualifiers, *from = p->s += 5;
    uint32_t n_substitutions = p->n_substitutions;
    struct list arguments = p->arguments;
    if (!plain_read_name(p, &name, &qualifiers))
        return false;
    bool simple = !p->templated && (*p->s == 'E' || *from == 'N');
    p->s = from;
    p->n_substitutions = n_substitutions;
    p->arguments = arguments;
    if (!plain_read_encoding(p, /* inner= */ false, &whole) || !plain_take(p, 'E') ||
        !plain_take(p, 'E'))
        return false;
    p->arguments = arguments;
    *ret = plain_begin(p);
    return plain_puts(p, simple ? "&" : "&(") && plain_put_piece(p, simple ? &name : &whole) &&
           plain_puts(p, simple ? "" : ")") && plain_end(p, ret);
}

/* Others have not been seen in the name of a kernel. */
static bool read_expression(struct plainer *p, struct piece *ret)
{
    if (plain_take(p, 'T'))
        return plain_read_template_parameter(p, ret) && plain_take(p, 'E');
    if (plain_take(p, 'L'))
        return read_literal(p, ret) && plain_take(p, 'E');
    return strncmp(p->s, "adL_Z", 5) == 0 && read_address(p, ret);
}

static bool read_pack(struct plainer *p, struct piece *ret)
{
    uint32_t base = p->n_scratch;
    struct piece one;
    struct list l;
    while (!plain_take(p, 'E'))
        if (!read_argument(p, &one) || one.pack || !plain_collect(p, &one))
            return false;
    if (!plain_keep_collected(p, base, &l))
        return false;
    *ret = (struct piece){.pack = true, .first = l.first, .n_pack = l.n};
    return true;
}

static bool read_argument(struct plainer *p, struct piece *ret)
{
    bool ok;
    if (p->depth >= PLAIN_DEPTH || !plain_step(p))
        return false;
    p->depth++;
    if (plain_take(p, 'L'))
        ok = read_literal(p, ret);
    else if (plain_take(p, 'X'))
        ok = read_expression(p, ret);
    else
        ok = plain_take(p, 'J') ? read_pack(p, ret) : plain_read_type(p, ret);
    p->depth--;
    return ok;
}

/* Behind the `I`.  ret: "<...>". */
bool plain_read_arguments(struct plainer *p, struct piece *ret)
{
    uint32_t base = p->n_scratch;
    struct piece one;
    struct list l;
    if (p->depth >= PLAIN_DEPTH)
        return false;
    p->depth++;
    while (!plain_take(p, 'E'))
        if (!read_argument(p, &one) || !plain_collect(p, &one))
            return false;
    p->depth--;
    if (!plain_keep_collected(p, base, &l))
        return false;
    const struct piece *last = l.n ? &p->pieces[l.first + l.n - 1] : NULL;
    *ret = plain_begin(p);
    if (!plain_puts(p, "<") || !put_list(p, l))
        return false;
    /* Behind no arguments at all c++filt leaves no blank. */
    bool close = p->room[p->used - 1] == '>' && !(last && last->pack && !last->n_pack);
    p->arguments = l;
    return plain_puts(p, close ? " >" : ">") && plain_end(p, ret);
}

/* T_: of the template whose arguments were read last. */
bool plain_read_template_parameter(struct plainer *p, struct piece *ret)
{
    const char *from = p->s - 1;
    uint32_t i;
    char text[32];
    p->uses++;
    if (!plain_read_index(p, 10, &i))
        return false;
    if (p->lambda) { /* of a generic one */
        (void)snprintf(text, sizeof(text), "auto:%u", i + 1);
        bool ok = plain_make(p, text, ret);
        ret->from = from;
        ret->to = p->s;
        return ok;
    }
    if (i >= p->arguments.n)
        return false;
    *ret = p->pieces[p->arguments.first + i];
    if (ret->pack && p->element >= 0) {
        p->saw_pack = true;
        p->packed = ret->n_pack;
        if ((uint64_t)p->element >= ret->n_pack)
            return plain_make(p, "", ret); /* it is only looked how many there are */
        *ret = p->pieces[ret->first + (uint32_t)p->element];
    }
    ret->from = from;
    ret->to = p->s;
    return true;
}

/* Dp: once for each of a pack. */
static bool read_expansion(struct plainer *p, struct piece *ret)
{
    const char *from = p->s;
    uint32_t n = 0, n_substitutions = p->n_substitutions, base = p->n_scratch;
    struct piece one;
    struct list l;
    if (p->element >= 0)
        return false;
    p->saw_pack = false;
    do {
        p->s = from;
        p->n_substitutions = n_substitutions;
        p->element = n;
        bool ok = plain_read_type(p, &one);
        p->element = -1;
        if (!ok || !p->saw_pack || one.pack || (n < p->packed && !plain_collect(p, &one)))
            return false;
    } while (++n < p->packed);
    if (!plain_keep_collected(p, base, &l))
        return false;
    *ret = (struct piece){.pack = true, .first = l.first, .n_pack = l.n};
    return true;
}

/* ---- types ---- */

static const char *builtin_type(char c)
{
    static const char *const names['z' - 'a' + 1] = {"signed char",
                                                     "bool",
                                                     "char",
                                                     "double",
                                                     "long double",
                                                     "float",
                                                     "__float128",
                                                     "unsigned char",
                                                     "int",
                                                     "unsigned int",
                                                     NULL,
                                                     "long",
                                                     "unsigned long",
                                                     "__int128",
                                                     "unsigned __int128",
                                                     NULL,
                                                     NULL,
                                                     NULL,
                                                     "short",
                                                     "unsigned short",
                                                     NULL,
                                                     "void",
                                                     "wchar_t",
                                                     "long long",
                                                     "unsigned long long",
                                                     "..."};
    return c >= 'a' && c <= 'z' ? names[c - 'a'] : NULL;
}

/* to: "*", "&", "&&" */
static bool add_pointer(struct plainer *p, const struct piece *a, const char *to, struct piece *ret)
{
    if (a->pack)
        return false;
    struct piece b = plain_begin(p);
    if (a->kind == PLAIN) {
        uint32_t n = a->n;
        bool refers = to[0] == '&' && n && p->room[a->at + n - 1] == '&';
        while (refers && n && p->room[a->at + n - 1] == '&')
            n--; /* & of && is & */
        const char *as = refers && !(to[1] == '&' && a->n - n == 2) ? "&" : to;
        if (!plain_put(p, p->room + a->at, n) || !plain_puts(p, as) || !plain_end(p, &b))
            return false;
        b.behind = a->behind;
        b.n_behind = a->n_behind;
    } else {
        if (!plain_put(p, p->room + a->at, a->n) || !plain_puts(p, a->kind == ARRAY ? " (" : "(") ||
            !plain_puts(p, to) || !plain_end(p, &b))
            return false;
        b.behind = p->used;
        if (!plain_puts(p, ")") || !plain_put(p, p->room + a->behind, a->n_behind))
            return false;
        b.n_behind = p->used - b.behind;
    }
    *ret = b;
    return true;
}

/* Behind the `F`. */
static bool read_function(struct plainer *p, struct piece *ret)
{
    struct piece result, parameters;
    (void)plain_take(p, 'Y');
    if (!plain_read_type(p, &result) || result.pack || result.kind != PLAIN || result.n_behind ||
        !plain_read_parameters(p, &parameters) || !plain_take(p, 'E'))
        return false;
    *ret = plain_begin(p);
    ret->kind = FUNCTION;
    if (!plain_put_piece(p, &result) || !plain_puts(p, " ") || !plain_end(p, ret))
        return false;
    ret->behind = parameters.at;
    ret->n_behind = parameters.n;
    return true;
}

/* Behind the `A`. */
static bool read_array(struct plainer *p, struct piece *ret)
{
    struct piece of;
    uint32_t n = 0;
    char text[32] = " []";
    if (plain_is_digit(*p->s) && !plain_read_number(p, &n))
        return false;
    if (p->s[-1] != 'A')
        (void)snprintf(text, sizeof(text), " [%u]", n);
    if (!plain_take(p, '_') || !plain_read_type(p, &of) || of.pack || of.kind != PLAIN ||
        of.n_behind)
        return false;
    *ret = of;
    ret->kind = ARRAY;
    ret->behind = p->used;
    ret->n_behind = (uint32_t)strlen(text);
    return plain_puts(p, text);
}

/* Behind the `D`. */
static bool read_other(struct plainer *p, struct piece *ret, bool *ret_substitutable)
{
    static const char *const types[][2] = {
        {"h", "half"},           {"s", "char16_t"},    {"i", "char32_t"},
        {"u", "char8_t"},        {"a", "auto"},        {"n", "decltype(nullptr)"},
        {"c", "decltype(auto)"}, {"F16_", "_Float16"}, {"F16b", "std::bfloat16_t"}};
    uint32_t n;
    char text[32];
    struct piece of;
    *ret_substitutable = false;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strncmp(p->s, types[i][0], strlen(types[i][0])) == 0) {
            p->s += strlen(types[i][0]);
            return plain_make(p, types[i][1], ret);
        }
    *ret_substitutable = true;
    if (plain_take(p, 'p'))
        return read_expansion(p, ret);
    if (!plain_take(p, 'v') || !plain_read_number(p, &n) || !plain_take(p, '_') ||
        !plain_read_type(p, &of) || of.pack)
        return false;
    (void)snprintf(text, sizeof(text), " __vector(%u)", n);
    return plain_append(p, &of, text, ret);
}

/* M: a member of a class. */
static bool read_member(struct plainer *p, struct piece *ret)
{
    struct piece class, of;
    if (!plain_read_type(p, &class) || class.pack || class.kind != PLAIN ||
        !plain_read_type(p, &of) || of.pack)
        return false;
    *ret = plain_begin(p);
    if (!plain_put(p, p->room + of.at, of.n) || !plain_puts(p, of.kind == FUNCTION ? "(" : " ") ||
        !plain_put_piece(p, &class) || !plain_puts(p, "::*") || !plain_end(p, ret))
        return false;
    ret->behind = p->used;
    if (!plain_puts(p, of.kind == FUNCTION ? ")" : "") ||
        !plain_put(p, p->room + of.behind, of.n_behind))
        return false;
    ret->n_behind = p->used - ret->behind;
    return of.kind != ARRAY;
}

static bool read_qualified(struct plainer *p, struct piece *ret)
{
    const char *from = p->s;
    while (*p->s == 'r' || *p->s == 'V' || *p->s == 'K')
        p->s++;
    const char *to = p->s;
    if (!plain_read_type(p, ret) || ret->pack || ret->kind == FUNCTION)
        return false;
    for (const char *q = to; q > from; q--) { /* the one before the type is of the type */
        const char *text = q[-1] == 'K' ? " const" : q[-1] == 'V' ? " volatile" : " restrict";
        size_t n = strlen(text);
        struct piece b = plain_begin(p);
        if (ret->n >= n && memcmp(p->room + ret->at + ret->n - n, text, n) == 0)
            continue; /* an argument that is so already */
        if (!plain_put(p, p->room + ret->at, ret->n) || !plain_puts(p, text) || !plain_end(p, &b))
            return false;
        b.kind = ret->kind;
        b.behind = ret->behind;
        b.n_behind = ret->n_behind;
        *ret = b;
    }
    return true;
}

static bool read_template_type(struct plainer *p, struct piece *ret)
{
    struct piece part;
    if (!plain_read_template_parameter(p, ret))
        return false;
    if (*p->s != 'I' || p->s == p->to)
        return true;
    p->s++;
    return !ret->pack && plain_substitutable(p, ret) && plain_read_arguments(p, &part) &&
           plain_join(p, ret, "", &part, ret);
}

static bool read_substituted_type(struct plainer *p, struct piece *ret, bool *ret_substitutable)
{
    struct piece part;
    bool standard;
    if (p->s[1] == 't') {
        const char *qualifiers;
        return plain_read_name(p, ret, &qualifiers);
    }
    p->s++;
    if (!plain_read_substitution(p, ret, &standard))
        return false;
    *ret_substitutable = *p->s == 'I';
    return !plain_take(p, 'I') ||
           (!ret->pack && plain_read_arguments(p, &part) && plain_join(p, ret, "", &part, ret));
}

static bool read_any_type(struct plainer *p, struct piece *ret, bool *ret_substitutable)
{
    struct piece of;
    const char *qualifiers, *name = builtin_type(*p->s);
    if (name) {
        p->s++;
        *ret_substitutable = false;
        return plain_make(p, name, ret);
    }
    switch (*p->s) {
    case 'r':
    case 'V':
    case 'K':
        return read_qualified(p, ret);
    case 'P':
        p->s++;
        return plain_read_type(p, &of) && add_pointer(p, &of, "*", ret);
    case 'R':
        p->s++;
        return plain_read_type(p, &of) && add_pointer(p, &of, "&", ret);
    case 'O':
        p->s++;
        return plain_read_type(p, &of) && add_pointer(p, &of, "&&", ret);
    case 'F':
        p->s++;
        return read_function(p, ret);
    case 'A':
        p->s++;
        return read_array(p, ret);
    case 'M':
        p->s++;
        return read_member(p, ret);
    case 'D':
        p->s++;
        return read_other(p, ret, ret_substitutable);
    case 'T':
        p->s++;
        return read_template_type(p, ret);
    case 'S':
        return read_substituted_type(p, ret, ret_substitutable);
    case 'u':
        p->s++;
        return plain_read_source_name(p, ret);
    default: /* a letter of the ABI: N, Z, a digit; else plain_read_name() refuses it */
        return plain_read_name(p, ret, &qualifiers);
    }
}

bool plain_read_type(struct plainer *p, struct piece *ret)
{
    struct list arguments = p->arguments;
    const char *from = p->s;
    uint32_t uses = p->uses;
    bool substitute = true, templated = p->templated, structor = p->structor;
    if (p->depth >= PLAIN_DEPTH || !plain_step(p))
        return false;
    p->depth++;
    bool ok = read_any_type(p, ret, &substitute);
    if (ok) {
        ret->from = p->uses > uses ? from : NULL;
        ret->to = p->s;
    }
    ok = ok && (!substitute || plain_substitutable(p, ret));
    p->depth--;
    p->arguments = arguments;
    p->templated = templated;
    p->structor = structor;
    return ok;
}
