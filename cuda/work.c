// SPDX-License-Identifier: Apache-2.0
#include "work.h"
#include "clock.h"
#include "process.h"
#include "probes.h"
#include "sampling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The buffers that CUPTI does not have at the moment; NULL: this place is empty. */
static uint8_t *buffers[WORK_N_BUFFERS];
static uint32_t n_given, n_returned; /* buffers given to CUPTI and got back, in this session */
static bool met_other;		     /* CUPTI gave back a buffer that is not ours */
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

static bool put(size_t place, uint8_t *buffer)
{
	uint8_t *none = NULL;

	return __atomic_compare_exchange_n(&buffers[place], &none, buffer, false, __ATOMIC_RELEASE,
					   __ATOMIC_RELAXED);
}

static uint8_t *take(size_t place)
{
	return __atomic_exchange_n(&buffers[place], NULL, __ATOMIC_ACQUIRE);
}

int work_begin(const struct cupti *functions)
{
	uint8_t *buffer;

	cupti = functions;
	__atomic_store_n(&n_given, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&n_returned, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&met_other, false, __ATOMIC_RELAXED);
	for (size_t i = 0; i < WORK_N_BUFFERS; i++) {
		buffer = malloc(WORK_BUFFER_BYTES);
		if (!buffer) {
			work_end();
			return -ENOMEM;
		}
		if (!put(i, buffer)) /* the place has a buffer that came back late */
			free(buffer);
	}
	return 0;
}

void work_end(void)
{
	for (size_t i = 0; i < WORK_N_BUFFERS; i++)
		free(take(i));
}

void work_buffer_requested(uint8_t **ret_buffer, size_t *ret_size, size_t *ret_max_records)
{
	uint8_t *buffer = NULL;

	for (size_t i = 0; i < WORK_N_BUFFERS && !buffer && !process_is_forked(); i++)
		buffer = take(i);
	if (buffer)
		__atomic_fetch_add(&n_given, 1, __ATOMIC_RELAXED);
	else
		WORK_COUNT(n_refused_buffers, 1);
	*ret_buffer = buffer;
	*ret_size = buffer ? WORK_BUFFER_BYTES : 0;
	*ret_max_records = 0; /* no limit */
}

static void take_back(uint8_t *buffer)
{
	WORK_COUNT(n_buffers, 1);
	for (size_t i = 0; i < WORK_N_BUFFERS; i++)
		if (put(i, buffer))
			return;
	/* all places are full, so the buffer is of an earlier session */
	free(buffer);
}

uint32_t work_mark(void)
{
	return __atomic_load_n(&n_given, __ATOMIC_RELAXED);
}

bool work_is_kept_since(uint32_t mark)
{
	return __atomic_load_n(&n_returned, __ATOMIC_RELAXED) < mark;
}

bool work_met_other(void)
{
	return __atomic_load_n(&met_other, __ATOMIC_RELAXED);
}

/* ---- records ---- */

/* What is read from one buffer. It is on the stack of the thread on which CUPTI calls. */
struct reader {
	struct podflame_cuda_sum all[PODFLAME_CUDA_WORK_KINDS], told[PODFLAME_CUDA_WORK_KINDS];
	uint64_t n_untimed, n_unseen;
	uint32_t n_work; /* pieces in `work` that are not reported yet */
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

/*
 * Reads the name, so that its pages are in memory: a BPF program at the probe cannot wait until the
 * kernel has read a page.
 */
static void touch_name(uint64_t name)
{
	size_t length = name ? strlen((const char *)(uintptr_t)name) : 0;

	__asm__ volatile("" : : "r"(length));
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
	touch_name(w->name);
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

/*
 * Counts a buffer that has come back. Returns whether it is ours: if another profiler gave CUPTI
 * buffers, too, their size differs.
 */
static bool count_buffer(size_t size)
{
	if (size == WORK_BUFFER_BYTES)
		__atomic_fetch_add(&n_returned, 1, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&met_other, true, __ATOMIC_RELAXED);
	return size == WORK_BUFFER_BYTES;
}

void work_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			   size_t valid_size)
{
	uint64_t begin_ns = now_ns();
	struct reader r = {0};
	size_t n_dropped;

	/* the buffer is counted before it is read: stop() asks whether it has come back */
	if (process_is_forked() || (buffer && !count_buffer(size)))
		return;
	if (buffer && valid_size > 0) {
		read_buffer(&r, buffer, valid_size);
		add_counts(&r);
	}
	if (cupti->ActivityGetNumDroppedRecords(context, stream, &n_dropped) == CUPTI_OK)
		WORK_COUNT(n_dropped, n_dropped);
	if (buffer)
		take_back(buffer);
	if (!process_is_watcher())
		WORK_COUNT(own_ns, now_ns() - begin_ns);
}
