/* SPDX-License-Identifier: Apache-2.0 */
/* See wire.h. */
#include "lib/pprof/wire.h"

#define MAX_NUMBER ((1u << 29) - 1)

struct pprof_wire pprof_wire_of(const void *p, size_t n)
{
	return (struct pprof_wire){p, n ? (const uint8_t *)p + n : p};
}

size_t pprof_wire_left(const struct pprof_wire *w)
{
	return (size_t)(w->end - w->p);
}

static int read_fixed(struct pprof_wire *w, size_t n, uint64_t *ret)
{
	uint64_t value = 0;

	if (pprof_wire_left(w) < n)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++)
		value |= (uint64_t)*w->p++ << (8 * i);
	*ret = value;
	return 0;
}

static int read_bytes(struct pprof_wire *w, struct pprof_wire *ret)
{
	uint64_t n;
	int r = varint_read(&w->p, w->end, &n) ? 0 : -EBADMSG;

	if (r < 0 || n > pprof_wire_left(w))
		return -EBADMSG;
	*ret = (struct pprof_wire){w->p, w->p + n};
	w->p += n;
	return 0;
}

int pprof_wire_next(struct pprof_wire *w, struct pprof_field *ret)
{
	struct pprof_field f = {0};
	uint64_t key;
	int r = 0;

	if (w->p == w->end)
		return 0;
	if (!varint_read(&w->p, w->end, &key) || key >> 3 == 0 || key >> 3 > MAX_NUMBER)
		return -EBADMSG;
	f.number = (uint32_t)(key >> 3);
	f.type = (enum pprof_wire_type)(key & 7);
	switch (f.type) {
	case WIRE_VARINT:
		r = varint_read(&w->p, w->end, &f.value) ? 0 : -EBADMSG;
		break;
	case WIRE_FIXED64:
		r = read_fixed(w, 8, &f.value);
		break;
	case WIRE_BYTES:
		r = read_bytes(w, &f.bytes);
		break;
	case WIRE_FIXED32:
		r = read_fixed(w, 4, &f.value);
		break;
	default: /* groups, which proto3 does not have */
		r = -EBADMSG;
	}
	if (r < 0)
		return r;
	*ret = f;
	return 1;
}

int pprof_wire_number(const struct pprof_field *f, struct pprof_wire *w, uint64_t *ret)
{
	if (f->type == WIRE_VARINT && !w->end) {
		*ret = f->value;
		*w = pprof_wire_of(f, 0); /* the only one */
		return 1;
	}
	if (w->p == w->end)
		return 0;
	return varint_read(&w->p, w->end, ret) ? 1 : -EBADMSG;
}
