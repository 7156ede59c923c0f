/* Protobuf's wire format, read in place: a field after the other over a byte range that nothing reads beyond. */
#ifndef KN_ONNX_WIRE_H
#define KN_ONNX_WIRE_H
#include "base/base.h"

/* A message: bytes and where it stands in the file, for errors. */
typedef struct kn_wire {
    const uint8_t *p, *end;
} kn_wire;

/* One field. type 0: a varint; 1: 8 bytes; 2: bytes or a message; 5: 4 bytes. Groups (3, 4) are refused. */
typedef struct kn_field {
    uint32_t number;
    int type;
    uint64_t u;
    const uint8_t *p;
    size_t n;
} kn_field;

enum kn_wire_state { KN_WIRE_FIELD, KN_WIRE_END, KN_WIRE_BROKEN };
enum kn_wire_state kn_wire_next(kn_wire *w, kn_field *f);
bool kn_onnx_packed(int type); /* ONNX's number of a dtype of 4 bits that constants may have: they are read as ones of 8 (tensor.c) */
bool kn_wire_varint(kn_wire *w, uint64_t *out);
/* Elements of a repeated number, packed (type 2) or one (its own type): calls once an element. size: 0 varint, 4, 8. False: broken. */
typedef void (*kn_wire_each)(void *user, uint64_t bits);
bool kn_wire_numbers(const kn_field *f, int size, kn_wire_each each, void *user);
#endif
