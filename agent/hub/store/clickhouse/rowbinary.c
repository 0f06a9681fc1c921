/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RowBinary: rows of values one after another; numbers little-endian, texts and arrays behind a
 * varint with their length (clickhouse.com/docs, "RowBinary").
 */
#include "hub/store/clickhouse/clickhouse.h"

void store_ch_put_text(struct buf *b, const char *s, size_t n)
{
	buf_put_varint(b, n);
	buf_add(b, s, n);
}

static const void *get(struct ch_rows *r, size_t n)
{
	const char *p = r->p;

	if (r->failed || (size_t)(r->end - r->p) < n) {
		r->failed = true;
		return NULL;
	}
	r->p += n;
	return p;
}

uint8_t store_ch_get_u8(struct ch_rows *r)
{
	const uint8_t *p = get(r, 1);

	return p ? *p : 0;
}

uint64_t store_ch_get_varint(struct ch_rows *r)
{
	const uint8_t *p = (const uint8_t *)r->p;
	uint64_t v;

	if (r->failed || !varint_read(&p, (const uint8_t *)r->end, &v)) {
		r->failed = true;
		return 0;
	}
	r->p = (const char *)p;
	return v;
}

uint64_t store_ch_get_u64(struct ch_rows *r)
{
	const void *p = get(r, sizeof(uint64_t));
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return v;
}

uint32_t store_ch_get_u32(struct ch_rows *r)
{
	const void *p = get(r, sizeof(uint32_t));
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return v;
}

double store_ch_get_double(struct ch_rows *r)
{
	const void *p = get(r, sizeof(double));
	double v = 0;

	if (p)
		memcpy(&v, p, sizeof(v));
	return v;
}

const char *store_ch_get_text(struct ch_rows *r, size_t *ret_n)
{
	uint64_t n = store_ch_get_varint(r);
	const char *p = r->failed ? NULL : get(r, n);

	*ret_n = p ? (size_t)n : 0;
	return p ?: "";
}

char *store_ch_get_str(struct ch_rows *r)
{
	size_t n;
	const char *p = store_ch_get_text(r, &n);

	return xstrndup(p, n);
}
