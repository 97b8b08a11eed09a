/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/locals.c - a frame's variables as JSON, by guarded reads.
 *
 * One thread at a time per struct walk.  Simple values are read by the type of their object; of all
 * others only the type's name and the length are told.  A frame that is another one afterwards has
 * no variables here: better none than those of somebody else.
 */
#include "locals.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define VARIABLES 24  /* a frame */
#define TEXT_CHARS 96 /* of a str */

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

static uint64_t word(const uint8_t *p, size_t at)
{
    uint64_t value;
    memcpy(&value, p + at, sizeof(value));
    return value;
}

static bool is(uint64_t address, const PyObject *object)
{
    return address == (uint64_t)(uintptr_t)object;
}

static void put_length(struct out *o, const char *type, int64_t length)
{
    char text[40];
    put(o, "{\"type\":");
    put_string(o, type);
    (void)snprintf(text, sizeof(text), ",\"len\":%lld}", (long long)length);
    put(o, text);
}

/* An int of up to two digits of 30 bits; of a longer one only the type is told. */
static void put_int(const struct walk *w, struct out *o, const uint8_t *head)
{
    int64_t size = (int64_t)word(head, 16), sign = size < 0 ? -1 : 1;
    uint64_t digits = (uint64_t)(size * sign), value = 0;
    char text[32];
    if (w->o.minor >= 12) { /* from there on a word of flags: count << 3 | sign */
        digits = word(head, 16) >> 3;
        sign = (word(head, 16) & 3) == 2 ? -1 : 1;
        if ((word(head, 16) & 3) == 1)
            digits = 0;
    }
    if (digits > 2) {
        put(o, "{\"type\":\"int\"}");
        return;
    }
    for (uint64_t i = digits; i-- > 0;) {
        uint32_t digit;
        memcpy(&digit, head + 24 + 4 * i, sizeof(digit));
        value = value << 30 | (digit & 0x3fffffff);
    }
    (void)snprintf(text, sizeof(text), "%lld", (long long)value * sign);
    put(o, text);
}

static void put_float(struct out *o, const uint8_t *head)
{
    double value;
    char text[48];
    memcpy(&value, head + 16, sizeof(value));
    /* JSON has no such numbers */
    (void)snprintf(text, sizeof(text), isfinite(value) ? "%.17g" : "\"%f\"", value);
    put(o, text);
}

static void put_text(const struct walk *w, struct out *o, uint64_t object, const uint8_t *head)
{
    char text[TEXT_CHARS * 4 + 8];
    uint64_t length = word(head, (size_t)w->o.str_length);
    if (length <= TEXT_CHARS && walk_string(w, object, text, sizeof(text)))
        put_string(o, text);
    else
        put_length(o, "str", (int64_t)length);
}

/* Any other object: the name of its type. */
static void put_type(const struct walk *w, struct out *o, uint64_t type)
{
    char name[80] = "?";
    uint64_t at;
    if (peek_u64(&w->peek, type + 24, &at) == 0) {
        size_t n = peek_some(&w->peek, at, name, sizeof(name) - 1);
        name[n] = '\0';
        for (char *p = name; *p; p++)
            if (*p < ' ' || *p > '~')
                *p = '?';
    }
    put(o, "{\"type\":");
    put_string(o, name);
    put(o, "}");
}

static void put_value(const struct walk *w, struct out *o, uint64_t object)
{
    const struct cpython *py = w->py;
    uint8_t head[48] = {0};
    size_t n = object & 7 ? 0 : peek_some(&w->peek, object, head, sizeof(head));
    uint64_t type = n >= 32 ? word(head, 8) : 0;
    if (is(object, py->_Py_NoneStruct))
        put(o, "null");
    else if (is(object, py->_Py_TrueStruct))
        put(o, "true");
    else if (is(object, py->_Py_FalseStruct))
        put(o, "false");
    else if (!type)
        put(o, "{\"type\":\"?\"}");
    else if (is(type, py->PyLong_Type))
        put_int(w, o, head);
    else if (is(type, py->PyFloat_Type))
        put_float(o, head);
    else if (is(type, py->PyUnicode_Type))
        put_text(w, o, object, head);
    else if (is(type, py->PyList_Type))
        put_length(o, "list", (int64_t)word(head, 16));
    else if (is(type, py->PyTuple_Type))
        put_length(o, "tuple", (int64_t)word(head, 16));
    else if (is(type, py->PyBytes_Type))
        put_length(o, "bytes", (int64_t)word(head, 16));
    else if (is(type, py->PyDict_Type))
        put_length(o, "dict", (int64_t)word(head, 16));
    else
        put_type(w, o, type);
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
        if (!values[i]) /* not assigned yet, or deleted */
            continue;
        if (peek_u64(&w->peek, names + (uint64_t)(w->o.tuple_items + 8 * i), &name) ||
            !walk_string(w, name, text, sizeof(text)))
            return false;
        if (o->size - o->n < 700) { /* the longest value has 96 * 6 bytes */
            count = VARIABLES + 1;
            break;
        }
        put(o, shown++ ? "," : "");
        put_string(o, text);
        put(o, ":");
        put_value(w, o, values[i]);
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
