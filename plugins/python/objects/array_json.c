/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/objects/array_json.c - numpy's and torch's values in a frame's variables, by
 * guarded reads.
 *
 * One thread at a time per struct walk.  Of elements only a tensor's only one is read, and
 * nothing on a device; what does not look as it should is told by its type only.
 */
#include <stdio.h>
#include <string.h>

#include "objects/object_json.h"

#define DIMS 8  /* shown of a shape; numpy allows 64 */
#define BASES 8 /* of a type, first ones: Parameter, Tensor, torch._C.TensorBase, object */

static void put_shape(struct out *o, const uint64_t *shape, int n)
{
    char text[32];
    out_put(o, ",\"shape\":[");
    for (int i = 0; i < n; i++) {
        (void)snprintf(text, sizeof(text), "%s%lld", i ? "," : "", (long long)shape[i]);
        out_put(o, text);
    }
    out_put(o, "]");
}

static void put_member(struct out *o, const char *name, const char *text)
{
    out_put(o, ",\"");
    out_put(o, name);
    out_put(o, "\":");
    out_string(o, text);
}

/* ---- numpy ---- */

/* numpy's public struct, the same since 1.0: data, nd, dimensions, strides, base, descr; a dtype
 * begins with its scalar type, then kind and type as characters. */
static void put_ndarray(const struct walk *w, struct out *o, uint64_t object)
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
    uint64_t shape[DIMS];
    uint64_t at = object + (uint64_t)w->o.ob_head;
    if (peek_bytes(&w->peek, at, fields, sizeof(fields)))
        return;
    int32_t nd = i32_at(fields, 8);
    if (nd < 0 || nd > DIMS ||
        (nd && peek_bytes(&w->peek, u64_at(fields, 16), shape, (size_t)nd * 8)) ||
        peek_bytes(&w->peek, u64_at(fields, 40) + (uint64_t)w->o.ob_head, descr, sizeof(descr)))
        return;
    put_shape(o, shape, nd);
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (dtypes[i].type == (char)descr[9])
            put_member(o, "dtype", dtypes[i].name);
}

/* A numpy scalar's value stands behind the object's head. */
static bool put_scalar(const struct walk *w, struct out *o, uint64_t object, const char *type)
{
    static const struct {
        const char *name;
        char kind; /* i, u or f */
        uint8_t bytes;
    } scalars[] = {{"int64", 'i', 8},  {"int32", 'i', 4},   {"int16", 'i', 2},
                   {"int8", 'i', 1},   {"uint64", 'u', 8},  {"uint32", 'u', 4},
                   {"uint16", 'u', 2}, {"uint8", 'u', 1},   {"bool_", 'u', 1},
                   {"bool", 'u', 1},   {"float32", 'f', 4}, {"float64", 'f', 8}};
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]); i++) {
        uint8_t bytes[8] = {0};
        char text[48];
        double real = 0;
        float single;
        unsigned unused = 64 - 8u * scalars[i].bytes;
        if (strcmp(type, scalars[i].name) != 0)
            continue;
        if (peek_bytes(&w->peek, object + (uint64_t)w->o.ob_head, bytes, scalars[i].bytes))
            return true;
        uint64_t value = u64_at(bytes, 0);
        out_put(o, ",\"value\":");
        if (scalars[i].kind == 'f') {
            memcpy(&single, bytes, sizeof(single));
            memcpy(&real, bytes, sizeof(real));
            out_double(o, scalars[i].bytes == 4 ? (double)single : real, scalars[i].bytes == 4);
            return true;
        }
        if (scalars[i].kind == 'i') /* shifted out and back: the sign comes along */
            (void)snprintf(text, sizeof(text), "%lld",
                           (long long)((int64_t)(value << unused) >> unused));
        else
            (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
        out_put(o, strncmp(type, "bool", 4) != 0 ? text : value ? "true" : "false");
        return true;
    }
    return false;
}

/* ---- torch ---- */

/* c10::TensorImpl promises nothing about its layout, but from torch 1.8 to 2.13 these follow each
 * other in it: how many dimensions, sizes and strides (of up to five in place, else a pointer to
 * them), the offset in the storage, how many elements, the dtype's number, the device.  Only what
 * stands before them changes.  They are believed where the sizes multiply to the elements. */
#define IMPL_BYTES 200
#define IN_PLACE 5
#define AT_ELEMENTS (8 + 2 * IN_PLACE * 8 + 8)
#define AT_DTYPE (AT_ELEMENTS + 8)
#define AT_DEVICE (AT_DTYPE + 2)
static const uint8_t impl_begins[] = {56, 64, 72}; /* 2.13, 2.0, 1.13 */

static const char *dtype_name(const uint8_t *number)
{
    static const char *const names[] = {
        "uint8",   "int8",      "int16",       "int32",        "int64",   "float16", "float32",
        "float64", "complex32", "complex64",   "complex128",   "bool",    "qint8",   "quint8",
        "qint32",  "bfloat16",  "quint4x2",    "quint2x4",     "bits1x8", "bits2x4", "bits4x2",
        "bits8",   "bits16",    "float8_e5m2", "float8_e4m3fn"};
    return number[1] == 0 && number[0] < sizeof(names) / sizeof(names[0]) ? names[number[0]] : NULL;
}

/* std::optional<Device>: kind, index, is it there; c10's own, to torch 2.0, has that first. */
static bool put_device(struct out *o, const uint8_t *at)
{
    const uint8_t *device = at[2] == 1 ? at : at + 1;
    char text[16];
    if ((at[2] != 1 && at[0] != 1) || device[0] > 1)
        return false; /* of the kinds, the two that nearly all have */
    (void)snprintf(text, sizeof(text), device[1] == 0xff ? "%s" : "%s:%d",
                   device[0] ? "cuda" : "cpu", device[1]);
    put_member(o, "device", text);
    return true;
}

static bool put_impl(const struct walk *w, struct out *o, const uint8_t *at)
{
    uint64_t shape[DIMS], n = u64_at(at, 0), elements = 1;
    const char *dtype = dtype_name(at + AT_DTYPE);
    if (n > DIMS || !dtype)
        return false;
    if (n <= IN_PLACE)
        memcpy(shape, at + 8, (size_t)n * 8);
    else if (peek_bytes(&w->peek, u64_at(at, 8), shape, (size_t)n * 8))
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (shape[i] > INT64_MAX || __builtin_mul_overflow(elements, shape[i], &elements))
            return false;
    if (elements != u64_at(at, AT_ELEMENTS))
        return false;
    put_shape(o, shape, (int)n);
    put_member(o, "dtype", dtype);
    (void)put_device(o, at + AT_DEVICE);
    return true;
}

/* c10::Storage is the first of TensorImpl's own fields, a pointer to StorageImpl, whose first are
 * the data's address, two words about who frees it, the device and the size; before them stand, in
 * both, a vtable and two counts, since 2.13 in one word. */
#define STORAGE_WORDS 5

static uint32_t dtype_bytes(uint8_t dtype)
{
    static const uint8_t bytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 0, 0, 0, 1};
    return dtype < sizeof(bytes) ? bytes[dtype] : 0;
}

static void put_element(struct out *o, uint8_t dtype, const uint8_t *bytes)
{
    uint64_t value = u64_at(bytes, 0);
    unsigned unused = 64 - 8 * dtype_bytes(dtype);
    char text[32];
    float single;
    double real;
    memcpy(&single, bytes, sizeof(single));
    memcpy(&real, bytes, sizeof(real));
    out_put(o, ",\"value\":");
    if (dtype == 6 || dtype == 7) {
        out_double(o, dtype == 6 ? (double)single : real, dtype == 6);
        return;
    }
    (void)snprintf(text, sizeof(text), "%lld",
                   (long long)(dtype == 0 ? (int64_t)value : (int64_t)(value << unused) >> unused));
    out_put(o, dtype != 11 ? text : value ? "true" : "false");
}

/* The value of a tensor of one element that is all of a storage on the CPU: a view of a larger one
 * may stand for its negative, which is not told here.  On a device it would have to be waited for.
 */
static void put_only(const struct walk *w, struct out *o, const uint8_t *impl, uint8_t begin)
{
    uint8_t dtype = impl[begin + AT_DTYPE], fields[8 * STORAGE_WORDS], bytes[8] = {0};
    uint64_t first = begin == 56 ? 16 : 24; /* behind the vtable and the counts */
    uint32_t size = dtype_bytes(dtype);
    if (u64_at(impl, begin + AT_ELEMENTS) != 1)
        return;
    const uint8_t *device = impl + begin + AT_DEVICE + (impl[begin + AT_DEVICE + 2] != 1);
    if (device[0] == 1) { /* CUDA, as put_device() reads it */
        put_member(o, "note", "reading its value would wait for its device");
        return;
    }
    bool whole =
        u64_at(impl, begin + AT_ELEMENTS - 8) == 0 &&
        peek_bytes(&w->peek, u64_at(impl, (int)first) + first, fields, sizeof(fields)) == 0;
    if (whole && size && dtype != 5 && fields[24] == 0 && u64_at(fields, 32) == size &&
        peek_bytes(&w->peek, u64_at(fields, 0), bytes, size) == 0)
        put_element(o, dtype, bytes);
}

static void put_tensor(const struct walk *w, struct out *o, uint64_t object)
{
    uint8_t head[16], impl[IMPL_BYTES];
    if (peek_bytes(&w->peek, object + (uint64_t)w->o.ob_head, head, sizeof(head)))
        return;
    /* to some 2.x a word that says whether it owns it, then the pointer */
    uint64_t at = u64_at(head, 0) > 1 ? u64_at(head, 0) : u64_at(head, 8);
    if (peek_bytes(&w->peek, at, impl, sizeof(impl)))
        return;
    for (size_t i = 0; i < sizeof(impl_begins); i++)
        if (put_impl(w, o, impl + impl_begins[i])) {
            put_only(w, o, impl, impl_begins[i]);
            return;
        }
}

bool array_put(const struct walk *w, struct out *o, uint64_t object, uint64_t type)
{
    for (int i = 0; i < BASES && type; i++) {
        char name[80];
        value_type_name(w, type, name, sizeof(name));
        if (strcmp(name, "numpy.ndarray") == 0) {
            put_ndarray(w, o, object);
            return true;
        }
        if (strncmp(name, "numpy.", 6) == 0 && put_scalar(w, o, object, name + 6))
            return true;
        if (strcmp(name, "torch._C.TensorBase") == 0 || strcmp(name, "torch._C._TensorBase") == 0) {
            put_tensor(w, o, object);
            return true;
        }
        if (peek_u64(&w->peek, type + (uint64_t)w->o.type_base, &type))
            return false;
    }
    return false;
}
