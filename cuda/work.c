// SPDX-License-Identifier: Apache-2.0
#include "work.h"
#include "clock.h"
#include "process.h"
#include "probes.h"
#include "sampling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* `given` is the number of the request that gave it to CUPTI; 0: CUPTI does not have it. */
static struct {
	uint8_t *data;
	uint64_t given;
} buffers[WORK_N_BUFFERS];
static uint64_t n_requests;
static const struct cupti *cupti;

struct podflame_cuda_status work_counts;

void work_counts_get(struct podflame_cuda_status *ret)
{
	typedef uint64_t __attribute__((may_alias)) word;
	const word *from = (const word *)&work_counts;
	word *to = (word *)ret;

	_Static_assert(sizeof(*ret) % sizeof(*to) == 0, "only whole words");
	for (size_t i = 0; i < sizeof(*ret) / sizeof(*to); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

/* ---- buffers ---- */

int work_begin(const struct cupti *functions)
{
	cupti = functions;
	for (size_t i = 0; i < WORK_N_BUFFERS; i++) {
		buffers[i].data = malloc(WORK_BUFFER_BYTES);
		if (!buffers[i].data) {
			work_end();
			return -ENOMEM;
		}
	}
	return 0;
}

void work_end(void)
{
	for (size_t i = 0; i < WORK_N_BUFFERS; i++) {
		if (__atomic_exchange_n(&buffers[i].given, 0, __ATOMIC_ACQUIRE) == 0)
			free(buffers[i].data);
		buffers[i].data = NULL;
	}
}

void work_buffer_requested(uint8_t **ret_buffer, size_t *ret_size, size_t *ret_max_records)
{
	uint64_t number = __atomic_add_fetch(&n_requests, 1, __ATOMIC_RELAXED), free_one;

	*ret_buffer = NULL;
	*ret_size = 0;
	*ret_max_records = 0; /* no limit */
	for (size_t i = 0; i < WORK_N_BUFFERS; i++) {
		free_one = 0;
		if (buffers[i].data &&
		    __atomic_compare_exchange_n(&buffers[i].given, &free_one, number, false,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			*ret_buffer = buffers[i].data;
			*ret_size = WORK_BUFFER_BYTES;
			return;
		}
	}
	WORK_COUNT(n_refused_buffers, 1);
}

static void take_back(const uint8_t *buffer)
{
	for (size_t i = 0; i < WORK_N_BUFFERS; i++)
		if (buffers[i].data == buffer)
			__atomic_store_n(&buffers[i].given, 0, __ATOMIC_RELEASE);
}

uint64_t work_mark(void)
{
	return __atomic_load_n(&n_requests, __ATOMIC_RELAXED);
}

bool work_is_kept_since(uint64_t mark)
{
	uint64_t given;

	for (size_t i = 0; i < WORK_N_BUFFERS; i++) {
		given = __atomic_load_n(&buffers[i].given, __ATOMIC_RELAXED);
		if (given != 0 && given <= mark)
			return true;
	}
	return false;
}

/* ---- records ---- */

/* What one buffer has. It is on the stack of the thread that CUPTI calls from. */
struct reader {
	struct podflame_cuda_sum all[PODFLAME_CUDA_WORK_KINDS], told[PODFLAME_CUDA_WORK_KINDS];
	uint64_t n_untimed, n_unseen;
	uint32_t n_work; /* in `work`, not told yet */
	struct podflame_cuda_work work[PODFLAME_CUDA_WORK_MAX];
};

static uint64_t u64_at(const uint8_t *record, uint16_t offset)
{
	uint64_t value = 0;

	if (offset != CUPTI_NO_FIELD)
		memcpy(&value, record + offset, sizeof(value));
	return value;
}

static uint32_t u32_at(const uint8_t *record, uint16_t offset)
{
	uint32_t value = 0;

	if (offset != CUPTI_NO_FIELD)
		memcpy(&value, record + offset, sizeof(value));
	return value;
}

static void tell(struct reader *r)
{
	if (r->n_work == 0)
		return;
	probe_work(r->work, r->n_work, sizeof(r->work[0]));
	sampling_spend(r->n_work);
	r->n_work = 0;
}

static void add(struct podflame_cuda_sum *sum, const struct podflame_cuda_work *w)
{
	sum->n++;
	sum->ns += w->end_ns - w->start_ns;
}

static void read_work(const struct cupti_record *layout, const uint8_t *record,
		      struct podflame_cuda_work *ret)
{
	*ret = (struct podflame_cuda_work){
		.start_ns = u64_at(record, CUPTI_RECORD_START),
		.end_ns = u64_at(record, CUPTI_RECORD_END),
		.name = u64_at(record, layout->name),
		.n_bytes = u64_at(record, layout->bytes),
		.graph_node = u64_at(record, layout->graph_node),
		.graph = u32_at(record, layout->graph),
		.correlation = u32_at(record, layout->correlation),
		.device = u32_at(record, layout->device),
		.context = u32_at(record, layout->context),
		.stream = u32_at(record, layout->stream),
		.kind = layout->kind,
	};
	if (layout->copy_kind != CUPTI_NO_FIELD)
		ret->copy_kind = record[layout->copy_kind];
}

static void count_and_tell(struct reader *r, struct podflame_cuda_work *w)
{
	enum sampled sampled;

	if (w->start_ns == 0 || w->end_ns < w->start_ns) {
		r->n_untimed++;
		return;
	}
	add(&r->all[w->kind], w);
	sampled = sampling_work(w->correlation, &w->level);
	r->n_unseen += sampled == SAMPLED_UNSEEN;
	if (sampled != SAMPLED_YES || !usdt_wanted(&probe_work_semaphore))
		return;
	add(&r->told[w->kind], w);
	if (++r->n_work == PODFLAME_CUDA_WORK_MAX)
		tell(r);
}

static void read_buffer(struct reader *r, uint8_t *buffer, size_t valid_size)
{
	const struct cupti_record *layout;
	void *record = NULL;
	int err;

	while ((err = cupti->ActivityGetNextRecord(buffer, valid_size, &record)) == CUPTI_OK) {
		layout = cupti_record(u32_at(record, 0));
		if (!layout)
			continue;
		read_work(layout, record, &r->work[r->n_work]);
		count_and_tell(r, &r->work[r->n_work]);
	}
	tell(r);
	if (err != CUPTI_NO_MORE_RECORDS)
		WORK_COUNT(n_unread, 1);
}

static void add_counts(const struct reader *r)
{
	for (int kind = 0; kind < PODFLAME_CUDA_WORK_KINDS; kind++) {
		WORK_COUNT(all[kind].n, r->all[kind].n);
		WORK_COUNT(all[kind].ns, r->all[kind].ns);
		WORK_COUNT(told[kind].n, r->told[kind].n);
		WORK_COUNT(told[kind].ns, r->told[kind].ns);
	}
	WORK_COUNT(n_untimed, r->n_untimed);
	WORK_COUNT(n_unseen, r->n_unseen);
}

void work_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			   size_t valid_size)
{
	uint64_t begin_ns = now_ns();
	struct reader r = {0};
	size_t n_dropped;

	(void)size;
	if (buffer && valid_size > 0) {
		read_buffer(&r, buffer, valid_size);
		add_counts(&r);
	}
	if (cupti->ActivityGetNumDroppedRecords(context, stream, &n_dropped) == CUPTI_OK)
		WORK_COUNT(n_dropped, n_dropped);
	take_back(buffer);
	if (!process_is_watcher())
		WORK_COUNT(own_ns, now_ns() - begin_ns);
}
