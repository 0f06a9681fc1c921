/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the debug information of HotSpot's compiled methods: see jvm_scopes.h. */
#include "node/runtime/jvm/jvm_scopes.h"

#define PCS_MAX	    (1u << 20) /* entries of one method; real methods have at most about 10,000 */
#define PCS_AT_ONCE 64
#define U5_BYTES    5
#define U5_HIGH	    192 /* if a byte of a number is this or larger, another byte follows */
#define BCI_OFFSET  1u	/* the number 0 means InvocationEntryBci, which is -1 */

int runtime_jvm_stream_u32(struct jvm_stream *s, uint32_t *ret)
{
	uint8_t excluded = s->no_zero ? 1 : 0;
	uint32_t sum = 0;

	for (unsigned i = 0; i < U5_BYTES; i++) {
		uint8_t b;

		if (s->at == s->end)
			return -EBADMSG;
		b = *s->at++;
		if (b < excluded)
			return -EBADMSG;
		sum += (uint32_t)(b - excluded) << (6 * i);
		if (b < U5_HIGH)
			break;
	}
	*ret = sum;
	return 0;
}

int runtime_jvm_stream_i32(struct jvm_stream *s, int32_t *ret)
{
	uint32_t value;
	int r = runtime_jvm_stream_u32(s, &value);

	if (r == 0)
		*ret = (int32_t)((value >> 1) ^ -(value & 1));
	return r;
}

int runtime_jvm_pc_find(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			struct jvm_pc *ret)
{
	struct jvm_pc pcs[PCS_AT_ONCE];
	uint64_t first = 0, n = (d->pcs_end - d->pcs) / sizeof(*pcs);
	int r;

	if (d->pcs_end < d->pcs || n > PCS_MAX)
		return -EBADMSG;
	while (n > PCS_AT_ONCE) {
		struct jvm_pc middle;

		r = runtime_memory_read(m, d->pcs + (first + n / 2) * sizeof(middle), &middle,
					sizeof(middle));
		if (r < 0)
			return r;
		if (middle.pc < (int64_t)pc) {
			first += n / 2 + 1;
			n -= n / 2 + 1;
		} else {
			n = n / 2 + 1;
		}
	}
	r = runtime_memory_read(m, d->pcs + first * sizeof(*pcs), pcs, n * sizeof(*pcs));
	for (uint64_t i = 0; r == 0 && i < n; i++)
		if (pcs[i].pc >= (int64_t)pc) {
			*ret = pcs[i];
			return 0;
		}
	return r < 0 ? r : -ENOENT;
}

/* Reads one scope. Sets *at to the offset of its caller's scope; 0: the scope is the outermost. */
static int read_scope(struct memory *m, const struct jvm_debug *d, uint32_t *at,
		      struct jvm_scope *ret)
{
	uint8_t bytes[3 * U5_BYTES];
	uint64_t size = d->data_end - d->data;
	struct jvm_stream s = {bytes, bytes, d->no_zero};
	uint32_t caller, index, bci;
	int r;

	if (d->data_end < d->data || *at >= size)
		return -EBADMSG;
	s.end += MIN(sizeof(bytes), size - *at);
	r = runtime_memory_read(m, d->data + *at, bytes, s.end - bytes);
	if (r < 0)
		return r;
	if (runtime_jvm_stream_u32(&s, &caller) < 0 || runtime_jvm_stream_u32(&s, &index) < 0 ||
	    runtime_jvm_stream_u32(&s, &bci) < 0)
		return -EBADMSG;
	if (index == 0 || d->metadata_end < d->metadata ||
	    index > (d->metadata_end - d->metadata) / sizeof(uint64_t))
		return -EBADMSG;
	r = runtime_memory_u64(m, d->metadata + (index - 1) * sizeof(uint64_t), &ret->method);
	if (r < 0)
		return r;
	ret->bci = (int32_t)(bci - BCI_OFFSET);
	*at = caller;
	return 0;
}

int runtime_jvm_scopes_at(struct memory *m, const struct jvm_debug *d, uint32_t pc,
			  bool interrupted, struct jvm_scope ret[JVM_SCOPES_MAX], size_t *ret_n)
{
	struct jvm_pc at = {0};
	uint32_t scope;
	size_t n = 0;
	int r = interrupted ? runtime_jvm_pc_ahead(m, d, pc, &at)
			    : runtime_jvm_pc_find(m, d, pc, &at);

	if (r < 0)
		return r;
	if (at.scope == 0)
		return -ENOENT;
	for (scope = at.scope; scope; n++) {
		if (n == JVM_SCOPES_MAX)
			return -E2BIG;
		r = read_scope(m, d, &scope, &ret[n]);
		if (r < 0)
			return r;
	}
	*ret_n = n;
	return 0;
}
