/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/object_json.c - one object as JSON, by guarded reads.
 *
 * One thread at a time per struct walk.  Simple values are read by the type of their object; of
 * containers the length and the first items, two levels deep; of a variable that is an instance of
 * a Python class its first attributes; of all others the type's name.  What derives from a simple
 * type is told with its own type's name.
 */
#include "objects/object_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects/dict_reader.h"

#define ITEMS 5        /* shown of a list, tuple, set or dict */
#define ATTRIBUTES 8   /* shown of an instance */
#define DEPTH 2        /* of containers in containers */
#define TEXT_CHARS 96  /* of a str, bytes of a bytes */
#define KEY_BYTES 1024 /* of a dict's key as JSON */
#define SET_PLACES 64  /* of a set's table that are looked at */
#define TAIL_BYTES 900 /* kept free for a name, the longest simple value and what closes the rest */

/* Py_TPFLAGS_...: what a type derives from, the same since 3.0 */
#define IS_INT (UINT64_C(1) << 24)
#define IS_LIST (UINT64_C(1) << 25)
#define IS_TUPLE (UINT64_C(1) << 26)
#define IS_BYTES (UINT64_C(1) << 27)
#define IS_STR (UINT64_C(1) << 28)
#define IS_DICT (UINT64_C(1) << 29)
#define IS_ERROR (UINT64_C(1) << 30)
#define IS_TYPE (UINT64_C(1) << 31)

/* An object as it was read. */
struct object {
    uint64_t address, type, flags;
    uint8_t head[WALK_STR_HEAD];
    char name[80]; /* of its type, where that is not one of Python's simple ones; else "" */
};

static void put_number(struct out *o, const char *name, uint64_t value)
{
    char text[60];
    (void)snprintf(text, sizeof(text), ",\"%s\":%llu", name, (unsigned long long)value);
    out_put(o, text);
}

bool value_full(const struct out *o)
{
    return o->size - o->n < TAIL_BYTES;
}

/* {"type":"..."  of a type with a name of its own, else of the simple one. */
static void put_type(struct out *o, const struct object *v, const char *simple)
{
    out_put(o, "{\"type\":");
    out_string(o, v->name[0] ? v->name : simple);
}

/* ---- numbers ---- */

/* The digits of an int; how many, lowest first. */
static uint64_t int_digits(const struct walk *w, const struct object *v, bool *ret_negative)
{
    int64_t size = (int64_t)u64_at(v->head, w->o.ob_head);
    *ret_negative = size < 0;
    if (w->o.minor < 12)
        return (uint64_t)(size < 0 ? -size : size);
    *ret_negative = (size & 3) == 2; /* from there on a word of flags: count << 3 | sign */
    return (size & 3) == 1 ? 0 : (uint64_t)size >> 3;
}

/* How many bits an int of n digits has; 0: not readable. */
static uint64_t int_bits(const struct walk *w, const struct object *v, uint64_t n)
{
    int32_t top = 0;
    uint64_t at = v->address + (uint64_t)w->o.ob_head + 8 + 4 * (n - 1);
    if (peek_i32(&w->peek, at, &top) || top <= 0 || top >> 30)
        return 0;
    return 30 * (n - 1) + 32 - (unsigned)__builtin_clz((unsigned)top);
}

static void put_int(const struct walk *w, struct out *o, const struct object *v)
{
    uint32_t digit[OUT_DIGITS] = {0};
    bool negative;
    uint64_t n = int_digits(w, v, &negative);
    uint64_t bits = n > OUT_DIGITS ? int_bits(w, v, n) : 0, at = v->address + 8;
    at += (uint64_t)w->o.ob_head;
    if (n > OUT_DIGITS || (n && peek_bytes(&w->peek, at, digit, n * 4))) {
        put_type(o, v, "int");
        if (bits)
            put_number(o, "bits", bits);
        out_put(o, "}");
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        digit[i] &= 0x3fffffff; /* torn or not, a digit has no more */
    if (v->name[0]) {
        put_type(o, v, "int");
        out_put(o, ",\"value\":");
    }
    out_int(o, digit, (unsigned)n, negative);
    out_put(o, v->name[0] ? "}" : "");
}

static double double_at(const struct walk *w, const struct object *v, int index)
{
    double value;
    memcpy(&value, v->head + w->o.ob_head + 8 * index, sizeof(value));
    return value;
}

static void put_complex(const struct walk *w, struct out *o, const struct object *v)
{
    put_type(o, v, "complex");
    out_put(o, ",\"real\":");
    out_double(o, double_at(w, v, 0), /* single= */ false);
    out_put(o, ",\"imag\":");
    out_double(o, double_at(w, v, 1), /* single= */ false);
    out_put(o, "}");
}

/* ---- text and bytes ---- */

/* Find the characters; false: it does not look like a str. */
static bool find_chars(const struct walk *w, const struct object *v, struct walk_str *ret,
                       uint64_t *ret_at)
{
    if (!v->name[0] && walk_str(w, v->head, TEXT_CHARS, ret)) {
        *ret_at = v->address + ret->at;
        return true;
    }
    uint64_t length = u64_at(v->head, w->o.str_length); /* a derived one's are elsewhere */
    unsigned width = (unsigned)i32_at(v->head, w->o.str_state) >> w->o.str_kind & 7;
    *ret = (struct walk_str){.length = length,
                             .width = width,
                             .count = length < TEXT_CHARS ? (size_t)length : TEXT_CHARS};
    return v->name[0] && (width == 1 || width == 2 || width == 4) && length <= 1u << 30 &&
           peek_u64(&w->peek, v->address + (uint64_t)w->o.str_compact, ret_at) == 0;
}

static void put_text(const struct walk *w, struct out *o, const struct object *v)
{
    uint8_t data[TEXT_CHARS * 4];
    uint64_t at = 0;
    struct walk_str s;
    bool head = find_chars(w, v, &s, &at);
    bool read = head && peek_bytes(&w->peek, at, data, s.count * s.width) == 0;
    if (read && !v->name[0] && s.count == s.length) {
        out_chars(o, data, s.width, s.count);
        return;
    }
    put_type(o, v, "str");
    if (head)
        put_number(o, "len", s.length);
    if (read) {
        out_put(o, s.count == s.length ? ",\"value\":" : ",\"start\":");
        out_chars(o, data, s.width, s.count);
    }
    out_put(o, "}");
}

static void put_bytes(const struct walk *w, struct out *o, const struct object *v)
{
    uint8_t data[TEXT_CHARS];
    uint64_t length = u64_at(v->head, w->o.var_size);
    size_t take = length < sizeof(data) ? (size_t)length : sizeof(data);
    put_type(o, v, "bytes");
    put_number(o, "len", length);
    if (peek_bytes(&w->peek, v->address + (uint64_t)w->o.bytes_data, data, take) == 0) {
        char text[TEXT_CHARS * 4 + 1] = "";
        for (size_t i = 0, n = 0; i < take; i++) /* as Python writes them */
            n += (size_t)snprintf(
                text + n, sizeof(text) - n,
                data[i] >= ' ' && data[i] < 0x7f && data[i] != '\\' ? "%c" : "\\x%02x", data[i]);
        out_put(o, ",\"start\":");
        out_string(o, text);
    }
    out_put(o, "}");
}

/* ---- containers ---- */

static void put_items(const struct walk *w, struct out *o, uint64_t at, uint64_t n, int depth)
{
    uint64_t items[ITEMS];
    uint64_t some = n < ITEMS ? n : ITEMS;
    if (depth >= DEPTH || value_full(o) || (some && peek_bytes(&w->peek, at, items, some * 8)))
        return;
    out_put(o, ",\"items\":[");
    for (uint64_t i = 0; i < some && !value_full(o); i++) {
        out_put(o, i ? "," : "");
        value_put(w, o, items[i], depth + 1);
    }
    out_put(o, "]");
}

static void put_list(const struct walk *w, struct out *o, const struct object *v, int depth)
{
    uint64_t n = u64_at(v->head, w->o.var_size), at = 0;
    put_type(o, v, "list");
    put_number(o, "len", n);
    if (peek_u64(&w->peek, v->address + (uint64_t)w->o.list_items, &at) == 0)
        put_items(w, o, at, n, depth);
    out_put(o, "}");
}

static void put_tuple(const struct walk *w, struct out *o, const struct object *v, int depth)
{
    uint64_t n = u64_at(v->head, w->o.var_size);
    put_type(o, v, "tuple");
    put_number(o, "len", n);
    put_items(w, o, v->address + (uint64_t)w->o.tuple_items, n, depth);
    out_put(o, "}");
}

/* A set's table has a key and its hash in each place; no key: empty, hash -1: one was there. */
static void put_set(const struct walk *w, struct out *o, const struct object *v, int depth)
{
    uint8_t places[SET_PLACES * 16];
    uint64_t n = u64_at(v->head, w->o.set_used), table = u64_at(v->head, w->o.set_table);
    uint64_t some = u64_at(v->head, w->o.set_mask) + 1;
    int shown = 0;
    some = some < SET_PLACES ? some : SET_PLACES;
    put_type(o, v, "set");
    put_number(o, "len", n);
    if (depth < DEPTH && !value_full(o) &&
        peek_bytes(&w->peek, table, places, (size_t)some * 16) == 0) {
        out_put(o, ",\"items\":[");
        for (uint64_t i = 0; i < some && shown < ITEMS && !value_full(o); i++) {
            uint64_t key = u64_at(places + 16 * i, 0);
            if (!key || u64_at(places + 16 * i, 8) == UINT64_MAX)
                continue;
            out_put(o, shown++ ? "," : "");
            value_put(w, o, key, depth + 1);
        }
        out_put(o, "]");
    }
    out_put(o, "}");
}

/* Keys that are text stand as they are, others as the JSON of their value. */
static void put_key(const struct walk *w, struct out *o, uint64_t object)
{
    char text[KEY_BYTES] = "";
    struct out one = {text, 0, sizeof(text)};
    value_put(w, &one, object, DEPTH);
    if (text[0] == '"')
        out_put(o, text);
    else
        out_string(o, text);
}

/* The first of these; how many there were to show. */
static int put_entries(const struct walk *w, struct out *o, const struct entries *e, int most,
                       int depth)
{
    int shown = 0;
    for (uint64_t i = 0; i < e->n && !value_full(o); i++) {
        uint64_t value = dicts_value(w, e, i);
        if (!value || shown++ >= most)
            continue;
        out_put(o, shown > 1 ? "," : "");
        put_key(w, o, dicts_key(e, i));
        out_put(o, ":");
        value_put(w, o, value, depth + 1);
    }
    return shown;
}

static void put_dict(const struct walk *w, struct out *o, const struct object *v, int depth)
{
    struct entries e = {.bytes = NULL};
    put_type(o, v, "dict");
    put_number(o, "len", u64_at(v->head, w->o.ob_head));
    /* some more than are shown: deleted ones leave holes */
    if (depth < DEPTH && !value_full(o) && dicts_read(w, v->address, 4 * ITEMS, &e)) {
        out_put(o, ",\"items\":{");
        (void)put_entries(w, o, &e, ITEMS, depth);
        out_put(o, "}");
    }
    dicts_done(&e);
    out_put(o, "}");
}

/* ---- others, by their type's name ---- */

void value_type_name(const struct walk *w, uint64_t type, char *ret, size_t size)
{
    uint64_t at; /* tp_name, behind the head of an object with a size */
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

static void put_attributes(const struct walk *w, struct out *o, const struct object *v)
{
    struct entries e;
    if (!dicts_attributes(w, v->address, /* most= */ 4 * ATTRIBUTES, &e))
        return;
    size_t before = o->n;
    out_put(o, ",\"attributes\":{");
    int shown = put_entries(w, o, &e, ATTRIBUTES, /* depth= */ 0);
    if (shown > ATTRIBUTES)
        out_put(o, ",\"...\":null");
    out_put(o, "}");
    if (!shown)
        o->p[o->n = before] = '\0';
    dicts_done(&e);
}

static bool is_object(uint64_t address, const PyObject *object)
{
    return address == address_of(object);
}

/* ,"name":"..."  where an object has a pointer to a str; nothing where it has none. */
static void put_name(const struct walk *w, struct out *o, uint64_t object, int offset)
{
    char name[WALK_NAME];
    uint64_t text;
    if (peek_u64(&w->peek, object + (uint64_t)offset, &text) ||
        !walk_string_some(w, text, TEXT_CHARS, name, sizeof(name)))
        return;
    out_put(o, ",\"name\":");
    out_string(o, name);
}

static void put_error(const struct walk *w, struct out *o, const struct object *v, int depth)
{
    uint8_t args[OFFSETS_HEAD];
    uint64_t tuple = u64_at(v->head, w->o.error_args);
    if (peek_bytes(&w->peek, tuple, args, (size_t)w->o.var_size + 8) == 0 &&
        is_object(u64_at(args, w->o.ob_type), w->py->PyTuple_Type))
        put_items(w, o, tuple + (uint64_t)w->o.tuple_items, u64_at(args, w->o.var_size), depth);
}

static void put_other(const struct walk *w, struct out *o, const struct object *v, int depth)
{
    const struct cpython *py = w->py;
    char text[80];
    put_type(o, v, "?");
    if (v->flags & IS_TYPE) {
        value_type_name(w, v->address, text, sizeof(text));
        out_put(o, ",\"name\":");
        out_string(o, text);
    } else if (is_object(v->type, py->PyFunction_Type)) {
        put_name(w, o, v->address, w->o.function_name);
    } else if (is_object(v->type, py->PyMethod_Type)) { /* its first field is the function */
        put_name(w, o, u64_at(v->head, w->o.ob_head), w->o.function_name);
    } else if (is_object(v->type, py->PyModule_Type)) {
        put_name(w, o, v->address, w->o.module_name);
    } else if (v->flags & IS_ERROR) {
        put_error(w, o, v, depth);
    } else if (!group_put(w, o, v->address, v->name) && !array_put(w, o, v->address, v->type) &&
               depth == 0) {
        put_attributes(w, o, v);
    }
    out_put(o, "}");
}

/* ---- any ---- */

static bool derives_from(const struct walk *w, uint64_t type, const PyObject *other)
{
    for (int i = 0; i < 16 && type; i++) {
        if (is_object(type, other))
            return true;
        if (peek_u64(&w->peek, type + (uint64_t)w->o.type_base, &type))
            return false;
    }
    return false;
}

static bool object_read(const struct walk *w, uint64_t address, struct object *ret)
{
    const struct cpython *py = w->py;
    const PyObject *simple[] = {py->PyLong_Type, py->PyFloat_Type, py->PyUnicode_Type,
                                py->PyList_Type, py->PyTuple_Type, py->PyBytes_Type,
                                py->PyDict_Type, py->PyBool_Type};
    *ret = (struct object){.address = address};
    size_t n = address & 7 ? 0 : peek_some(&w->peek, address, ret->head, sizeof(ret->head));
    if (n < (size_t)w->o.ob_head + 8)
        return false;
    ret->type = u64_at(ret->head, w->o.ob_type);
    if (peek_u64(&w->peek, ret->type + (uint64_t)w->o.type_flags, &ret->flags))
        return false;
    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++)
        if (is_object(ret->type, simple[i]))
            return true;
    value_type_name(w, ret->type, ret->name, sizeof(ret->name));
    return true;
}

static void put_float(const struct walk *w, struct out *o, const struct object *v)
{
    if (v->name[0]) {
        put_type(o, v, "float");
        out_put(o, ",\"value\":");
    }
    out_double(o, double_at(w, v, 0), /* single= */ false);
    out_put(o, v->name[0] ? "}" : "");
}

void value_put(const struct walk *w, struct out *o, uint64_t object, int depth)
{
    const struct cpython *py = w->py;
    struct object v;
    if (is_object(object, py->_Py_NoneStruct))
        out_put(o, "null");
    else if (is_object(object, py->_Py_TrueStruct))
        out_put(o, "true");
    else if (is_object(object, py->_Py_FalseStruct))
        out_put(o, "false");
    else if (!object_read(w, object, &v))
        out_put(o, "{\"type\":\"?\"}");
    else if (v.flags & IS_INT)
        put_int(w, o, &v);
    else if (derives_from(w, v.type, py->PyFloat_Type))
        put_float(w, o, &v);
    else if (v.flags & IS_STR)
        put_text(w, o, &v);
    else if (v.flags & IS_LIST)
        put_list(w, o, &v, depth);
    else if (v.flags & IS_TUPLE)
        put_tuple(w, o, &v, depth);
    else if (v.flags & IS_BYTES)
        put_bytes(w, o, &v);
    else if (v.flags & IS_DICT)
        put_dict(w, o, &v, depth);
    else if (is_object(v.type, py->PySet_Type) || is_object(v.type, py->PyFrozenSet_Type))
        put_set(w, o, &v, depth);
    else if (is_object(v.type, py->PyComplex_Type))
        put_complex(w, o, &v);
    else if (is_object(v.type, py->PyByteArray_Type)) {
        put_type(o, &v, "bytearray");
        put_number(o, "len", u64_at(v.head, w->o.var_size));
        out_put(o, "}");
    } else
        put_other(w, o, &v, depth);
}

bool value_is_program(const struct walk *w, uint64_t object)
{
    struct object v;
    return object_read(w, object, &v) &&
           ((v.flags & IS_TYPE) || is_object(v.type, w->py->PyModule_Type) ||
            is_object(v.type, w->py->PyFunction_Type) ||
            strcmp(v.name, "builtin_function_or_method") == 0);
}
