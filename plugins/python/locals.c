/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/locals.c - a frame's variables as JSON, by guarded reads.
 *
 * One thread at a time per struct walk.  Simple values are read by the type of their object; of
 * containers the length and the first items, two levels deep; of all others only the type's name.
 * A frame that is another one afterwards has no variables here: better none than those of somebody
 * else.
 */
#include "locals.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dicts.h"

#define VARIABLES 24   /* a frame */
#define ITEMS 5        /* shown of a list, tuple or dict */
#define DEPTH 2        /* of containers in containers */
#define TEXT_CHARS 96  /* of a str, bytes of a bytes */
#define INT_DIGITS 35  /* of 30 bits: what is printed in full; 1,024 bits */
#define TAIL_BYTES 700 /* kept free for the longest simple value and what closes the containers */
#define NUMPY_DIMS 8   /* of an array; numpy allows 64 */

struct out {
    char *p;
    size_t n, size;
};

static void put(struct out *o, const char *text)
{
    size_t n = strlen(text);
    if (n >= o->size - o->n)
        n = o->size - o->n - 1;
    memcpy(o->p + o->n, text, n);
    o->n += n;
    o->p[o->n] = '\0';
}

static void put_string(struct out *o, const char *text)
{
    put(o, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char piece[8] = {(char)c};
        if (c == '"' || c == '\\')
            (void)snprintf(piece, sizeof(piece), "\\%c", c);
        else if (c < ' ' || c == 0x7f)
            (void)snprintf(piece, sizeof(piece), "\\u%04x", c);
        put(o, piece);
    }
    put(o, "\"");
}

static bool full(const struct out *o)
{
    return o->size - o->n < TAIL_BYTES;
}

static void put_length(struct out *o, const char *type, uint64_t length)
{
    char text[40];
    put(o, "{\"type\":");
    put_string(o, type);
    (void)snprintf(text, sizeof(text), ",\"len\":%llu", (unsigned long long)length);
    put(o, text);
}

/* ---- simple values ---- */

/* Digits of 30 bits, lowest first, as decimal text. */
static void decimal(uint32_t *digits, unsigned n, bool negative, char *ret, size_t size)
{
    char *p = ret + size;
    *--p = '\0';
    do { /* divide by 10**9 until nothing is left */
        uint64_t rest = 0;
        for (unsigned i = n; i-- > 0;) {
            rest = rest << 30 | digits[i];
            digits[i] = (uint32_t)(rest / 1000000000);
            rest %= 1000000000;
        }
        while (n && !digits[n - 1])
            n--;
        for (int i = 0; i < 9 && (n || rest || i == 0); i++, rest /= 10)
            *--p = (char)('0' + rest % 10);
    } while (n);
    if (negative)
        *--p = '-';
    memmove(ret, p, strlen(p) + 1);
}

static void put_int(const struct walk *w, struct out *o, uint64_t object, const uint8_t *head)
{
    uint32_t digit[INT_DIGITS] = {0};
    char text[340]; /* 1,050 bits have 317 decimal digits */
    int64_t size = (int64_t)u64_at(head, w->o.ob_head);
    bool negative = size < 0;
    uint64_t n = (uint64_t)(negative ? -size : size);
    if (w->o.minor >= 12) { /* from there on a word of flags: count << 3 | sign */
        n = (uint64_t)size >> 3;
        negative = (size & 3) == 2;
        if ((size & 3) == 1)
            n = 0;
    }
    if (n > INT_DIGITS) {
        uint64_t at = object + (uint64_t)w->o.ob_head + 8 + 4 * (n - 1);
        int32_t top = 0;
        if (peek_i32(&w->peek, at, &top) || top <= 0 || top >> 30)
            put(o, "{\"type\":\"int\"}");
        else {
            uint64_t bits = 30 * (n - 1) + 32 - (unsigned)__builtin_clz((unsigned)top);
            (void)snprintf(text, sizeof(text), "{\"type\":\"int\",\"bits\":%llu}",
                           (unsigned long long)bits);
            put(o, text);
        }
        return;
    }
    if (n && peek_bytes(&w->peek, object + (uint64_t)w->o.ob_head + 8, digit, n * 4)) {
        put(o, "{\"type\":\"int\"}");
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        digit[i] &= 0x3fffffff; /* torn or not, a digit has no more */
    decimal(digit, (unsigned)n, negative, text, sizeof(text));
    put(o, text);
}

static void put_float(const struct walk *w, struct out *o, const uint8_t *head)
{
    double value;
    char text[48];
    memcpy(&value, head + w->o.ob_head, sizeof(value));
    (void)snprintf(text, sizeof(text), "%.15g", value);
    if (isfinite(value) && strtod(text, NULL) != value)
        (void)snprintf(text, sizeof(text), "%.17g", value);
    if (!isfinite(value)) /* JSON has no such numbers */
        (void)snprintf(text, sizeof(text), "\"%s\"",
                       isnan(value) ? "nan"
                       : value > 0  ? "inf"
                                    : "-inf");
    put(o, text);
}

static void put_text(const struct walk *w, struct out *o, uint64_t object, const uint8_t *head)
{
    char text[TEXT_CHARS * 4 + 8];
    uint64_t length = u64_at(head, w->o.str_length);
    bool read = walk_string_some(w, object, TEXT_CHARS, text, sizeof(text));
    if (read && length <= TEXT_CHARS) {
        put_string(o, text);
        return;
    }
    put_length(o, "str", length);
    if (read) {
        put(o, ",\"start\":");
        put_string(o, text);
    }
    put(o, "}");
}

static void put_bytes(const struct walk *w, struct out *o, uint64_t object, const uint8_t *head)
{
    uint8_t data[TEXT_CHARS];
    uint64_t length = u64_at(head, w->o.var_size);
    size_t take = length < sizeof(data) ? (size_t)length : sizeof(data);
    put_length(o, "bytes", length);
    if (peek_bytes(&w->peek, object + (uint64_t)w->o.bytes_data, data, take) == 0) {
        char text[TEXT_CHARS * 4 + 1] = "";
        for (size_t i = 0, n = 0; i < take; i++) /* as Python writes them */
            n += (size_t)snprintf(
                text + n, sizeof(text) - n,
                data[i] >= ' ' && data[i] < 0x7f && data[i] != '\\' ? "%c" : "\\x%02x", data[i]);
        put(o, ",\"start\":");
        put_string(o, text);
    }
    put(o, "}");
}

/* ---- others, by their type's name ---- */

/* tp_name, behind the head of an object with a size. */
static void type_name(const struct walk *w, uint64_t type, char *ret, size_t size)
{
    uint64_t at;
    size_t n = 0;
    if (peek_u64(&w->peek, type + (uint64_t)w->o.var_size + 8, &at) == 0)
        n = peek_some(&w->peek, at, ret, size - 1);
    ret[n] = '\0';
    for (char *p = ret; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    if (!ret[0])
        (void)snprintf(ret, size, "?");
}

/* numpy's public struct, the same since 1.0: data, nd, dimensions, strides, base, descr; a dtype
 * begins with its scalar type, then kind and type as characters. */
static void put_array(const struct walk *w, struct out *o, uint64_t object)
{
    static const struct {
        char type;
        const char *name;
    } dtypes[] = {
        {'?', "bool"},       {'b', "int8"},        {'B', "uint8"},      {'h', "int16"},
        {'H', "uint16"},     {'i', "int32"},       {'I', "uint32"},     {'l', "int64"},
        {'L', "uint64"},     {'q', "int64"},       {'Q', "uint64"},     {'e', "float16"},
        {'f', "float32"},    {'d', "float64"},     {'g', "longdouble"}, {'F', "complex64"},
        {'D', "complex128"}, {'O', "object"},      {'S', "bytes"},      {'U', "str"},
        {'M', "datetime64"}, {'m', "timedelta64"}, {'V', "void"}};
    uint8_t fields[48], descr[32];
    uint64_t shape[NUMPY_DIMS];
    char text[32];
    uint64_t at = object + (uint64_t)w->o.ob_head;
    if (peek_bytes(&w->peek, at, fields, sizeof(fields)))
        return;
    int32_t nd = i32_at(fields, 8);
    if (nd < 0 || nd > NUMPY_DIMS ||
        (nd && peek_bytes(&w->peek, u64_at(fields, 16), shape, (size_t)nd * 8)) ||
        peek_bytes(&w->peek, u64_at(fields, 40) + (uint64_t)w->o.ob_head, descr, sizeof(descr)))
        return;
    put(o, ",\"shape\":[");
    for (int i = 0; i < nd; i++) {
        (void)snprintf(text, sizeof(text), "%s%lld", i ? "," : "", (long long)shape[i]);
        put(o, text);
    }
    put(o, "]");
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (dtypes[i].type == (char)descr[9]) {
            put(o, ",\"dtype\":");
            put_string(o, dtypes[i].name);
        }
}

static void put_value(const struct walk *w, struct out *o, uint64_t object, int depth);

static void put_other(const struct walk *w, struct out *o, uint64_t object, uint64_t type,
                      int depth)
{
    char name[80];
    uint64_t inner;
    type_name(w, type, name, sizeof(name));
    /* a variable that an inner function shares */
    if (strcmp(name, "cell") == 0 && depth == 0 &&
        peek_u64(&w->peek, object + (uint64_t)w->o.ob_head, &inner) == 0 && inner) {
        put_value(w, o, inner, depth + 1);
        return;
    }
    put(o, "{\"type\":");
    put_string(o, name);
    if (strcmp(name, "numpy.ndarray") == 0)
        put_array(w, o, object);
    put(o, "}");
}

/* ---- containers ---- */

static void put_items(const struct walk *w, struct out *o, uint64_t at, uint64_t n, int depth)
{
    uint64_t items[ITEMS];
    uint64_t some = n < ITEMS ? n : ITEMS;
    if (depth >= DEPTH || full(o) || (some && peek_bytes(&w->peek, at, items, some * 8)))
        return;
    put(o, ",\"items\":[");
    for (uint64_t i = 0; i < some && !full(o); i++) {
        put(o, i ? "," : "");
        put_value(w, o, items[i], depth + 1);
    }
    put(o, "]");
}

static void put_list(const struct walk *w, struct out *o, uint64_t object, const uint8_t *head,
                     int depth)
{
    uint64_t n = u64_at(head, w->o.var_size), at = 0;
    put_length(o, "list", n);
    if (peek_u64(&w->peek, object + (uint64_t)w->o.list_items, &at) == 0)
        put_items(w, o, at, n, depth);
    put(o, "}");
}

static void put_tuple(const struct walk *w, struct out *o, uint64_t object, const uint8_t *head,
                      int depth)
{
    uint64_t n = u64_at(head, w->o.var_size);
    put_length(o, "tuple", n);
    put_items(w, o, object + (uint64_t)w->o.tuple_items, n, depth);
    put(o, "}");
}

/* Keys that are text stand as they are, others as the JSON of their value. */
static void put_key(const struct walk *w, struct out *o, uint64_t object, int depth)
{
    char text[LOCALS_BYTES / 8], key[TEXT_CHARS * 4 + 8];
    struct out one = {text, 0, sizeof(text)};
    if (walk_string_some(w, object, TEXT_CHARS, key, sizeof(key))) {
        put_string(o, key);
        return;
    }
    text[0] = '\0';
    put_value(w, &one, object, depth);
    put_string(o, text);
}

static void put_dict(const struct walk *w, struct out *o, uint64_t object, const uint8_t *head,
                     int depth)
{
    struct entries e = {.bytes = NULL};
    put_length(o, "dict", u64_at(head, w->o.ob_head));
    /* some more than are shown: deleted ones leave holes */
    if (depth < DEPTH && !full(o) && dicts_read(w, object, 4 * ITEMS, &e)) {
        int shown = 0;
        put(o, ",\"items\":{");
        for (uint64_t i = 0; i < e.n && shown < ITEMS && !full(o); i++) {
            uint64_t value = dicts_value(w, &e, i);
            if (!value)
                continue;
            put(o, shown++ ? "," : "");
            put_key(w, o, dicts_key(&e, i), DEPTH);
            put(o, ":");
            put_value(w, o, value, depth + 1);
        }
        put(o, "}");
    }
    free(e.bytes);
    put(o, "}");
}

static bool is(uint64_t address, const PyObject *object)
{
    return address == address_of(object);
}

static void put_value(const struct walk *w, struct out *o, uint64_t object, int depth)
{
    const struct cpython *py = w->py;
    uint8_t head[80] = {0};
    size_t n = object & 7 ? 0 : peek_some(&w->peek, object, head, sizeof(head));
    uint64_t type = n >= (size_t)w->o.ob_head + 16 ? u64_at(head, w->o.ob_type) : 0;
    if (is(object, py->_Py_NoneStruct))
        put(o, "null");
    else if (is(object, py->_Py_TrueStruct))
        put(o, "true");
    else if (is(object, py->_Py_FalseStruct))
        put(o, "false");
    else if (!type)
        put(o, "{\"type\":\"?\"}");
    else if (is(type, py->PyLong_Type))
        put_int(w, o, object, head);
    else if (is(type, py->PyFloat_Type))
        put_float(w, o, head);
    else if (is(type, py->PyUnicode_Type))
        put_text(w, o, object, head);
    else if (is(type, py->PyList_Type))
        put_list(w, o, object, head, depth);
    else if (is(type, py->PyTuple_Type))
        put_tuple(w, o, object, head, depth);
    else if (is(type, py->PyBytes_Type))
        put_bytes(w, o, object, head);
    else if (is(type, py->PyDict_Type))
        put_dict(w, o, object, head, depth);
    else
        put_other(w, o, object, type, depth);
}

/* ---- a frame ---- */

/* What a variable's slot refers to: from 3.14 on with marks; an int may stand in it as such. */
static void put_slot(const struct walk *w, struct out *o, uint64_t slot)
{
    char text[32];
    if (w->o.minor >= 14 && (slot & OFFSETS_MARKS) == OFFSETS_MARKS) {
        (void)snprintf(text, sizeof(text), "%lld", (long long)((int64_t)slot >> 2));
        put(o, text);
        return;
    }
    put_value(w, o, w->o.minor >= 14 ? slot & ~OFFSETS_MARKS : slot, /* depth= */ 0);
}

/* Names and values of the frame's variables; false: not readable. */
static bool put_all(struct walk *w, const struct walk_frame *f, struct out *o)
{
    uint64_t names, name, values[VARIABLES];
    int32_t count;
    char text[100];
    if (peek_u64(&w->peek, f->code + (uint64_t)w->o.co_local_names, &names) ||
        peek_i32(&w->peek, f->code + (uint64_t)w->o.co_n_locals, &count) || count < 0)
        return false;
    int some = count < VARIABLES ? count : VARIABLES, shown = 0;
    if (peek_bytes(&w->peek, f->address + (uint64_t)w->o.f_locals, values, (size_t)some * 8))
        return false;
    for (int i = 0; i < some; i++) {
        if (!(values[i] & ~OFFSETS_MARKS)) /* not assigned yet, or deleted */
            continue;
        if (peek_u64(&w->peek, names + (uint64_t)(w->o.tuple_items + 8 * i), &name) ||
            !walk_string(w, name, text, sizeof(text)))
            return false;
        if (full(o)) {
            count = VARIABLES + 1;
            break;
        }
        put(o, shown++ ? "," : "");
        put_string(o, text);
        put(o, ":");
        put_slot(w, o, values[i]);
    }
    if (count > VARIABLES)
        put(o, shown ? ",\"...\":null" : "\"...\":null");
    return true;
}

void locals_json(struct walk *w, const struct walk_frame *f, char *ret, size_t size)
{
    struct out o = {ret, 0, size};
    ret[0] = '\0';
    put(&o, "{");
    bool read = put_all(w, f, &o);
    put(&o, "}");
    if (!read || !walk_still(w, f))
        ret[0] = '\0';
}
