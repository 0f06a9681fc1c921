/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads protobuf's wire format, field by field, from hostile bytes: no recursion, no memory.
 * https://protobuf.dev/programming-guides/encoding/
 */
#pragma once

#include "lib/base/base.h"

struct pprof_wire {
	const uint8_t *p, *end;
};
enum pprof_wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
struct pprof_field {
	uint32_t number;
	enum pprof_wire_type type;
	uint64_t value;		 /* unless the type is WIRE_BYTES */
	struct pprof_wire bytes; /* if the type is WIRE_BYTES */
};
struct pprof_wire pprof_wire_of(const void *p, size_t n);
/* Reads the next field. Returns 1; 0: there is none; -EBADMSG: the bytes are no field. */
int pprof_wire_next(struct pprof_wire *w, struct pprof_field *ret);
/*
 * Reads one number of a repeated field, which is packed or not. *w is the field's own state: it
 * begins as f->bytes. Returns 1; 0: there is no further one; -EBADMSG.
 */
int pprof_wire_number(const struct pprof_field *f, struct pprof_wire *w, uint64_t *ret);
size_t pprof_wire_left(const struct pprof_wire *w);
