/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of seven bits in each byte, the lowest first: LEB128, as Protocol Buffers have them. */
#include "lib/base/base.h"

bool varint_read(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < VARINT_BYTES && *p < end; i++) {
		uint8_t byte = *(*p)++;

		if (i == VARINT_BYTES - 1 && byte > 1)
			break; /* more than 64 bits */
		v |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (byte < 0x80) {
			*ret = v;
			return true;
		}
	}
	return false;
}

size_t varint_write(uint64_t v, uint8_t ret[static VARINT_BYTES])
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		ret[n++] = (uint8_t)(v | 0x80);
	ret[n++] = (uint8_t)v;
	return n;
}

int buf_put_varint(struct buf *b, uint64_t v)
{
	uint8_t bytes[VARINT_BYTES];

	return buf_add(b, bytes, varint_write(v, bytes));
}
