// SPDX-License-Identifier: Apache-2.0
/*
 * A CUPTI whose records have the layout of 12.9: Kernel9, Memcpy5, MemcpyPtoP4, Memset4. This file
 * defines the layouts itself: it does not use those of the library that is tested.
 */
#include "../standin_cupti.h"
#include "../standin.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	OK = 0,
	INVALID_PARAMETER = 1,
	NO_MORE = 12,
	INVALID_KIND = 21,
	OTHER_SUBSCRIBER = 39,
	UNKNOWN = 999
};
enum { MEMCPY = 1, MEMSET = 2, CONCURRENT_KERNEL = 10, MEMCPY2 = 22, N_KINDS = 64, BROKEN = 63 };
#define N_IDS  1024
#define N_FULL 128

struct kernel {
	uint32_t kind;
	uint8_t configuration[12];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	int32_t shape[10];
	uint32_t correlation;
	int64_t grid;
	const char *name;
	uint8_t more[32];
	uint64_t graph_node;
	uint32_t cache;
	uint32_t graph;
	uint8_t rest[48];
};
struct copy {
	uint32_t kind;
	uint8_t copy_kind, source, destination, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, correlation, runtime_correlation, padding;
	void *reserved;
	uint64_t graph_node;
	uint32_t graph;
	uint8_t rest[12];
};
struct peer_copy {
	uint32_t kind;
	uint8_t copy_kind, source, destination, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, source_device, source_context, to_device, to_context;
	uint32_t correlation;
	void *reserved;
	uint64_t graph_node;
	uint32_t graph;
	uint8_t rest[12];
};
struct set {
	uint32_t kind, value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, correlation;
	uint16_t flags, memory;
	uint32_t padding;
	void *reserved;
	uint64_t graph_node;
	uint32_t graph;
	uint8_t rest[12];
};
_Static_assert(sizeof(struct kernel) == 208, "CUpti_ActivityKernel9");
_Static_assert(sizeof(struct copy) == 88, "CUpti_ActivityMemcpy5");
_Static_assert(sizeof(struct peer_copy) == 96, "CUpti_ActivityMemcpyPtoP4");
_Static_assert(sizeof(struct set) == 88, "CUpti_ActivityMemset4");

struct call_data {
	int site;
	const char *function;
	const void *parameters;
	void *result;
	const char *symbol;
	void *context;
	uint32_t context_number;
	uint64_t *data;
	uint32_t correlation;
};
_Static_assert(offsetof(struct call_data, correlation) == 64, "CUpti_CallbackData");

typedef void callback(void *user, int domain, uint32_t id, const void *data);
typedef void requested(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

struct buffer {
	uint8_t *data;
	size_t size, used;
	unsigned int n; /* records */
};

struct standin_cupti standin_cupti = {.version = 28};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* not held during a callback */
static callback *subscriber;
static bool enabled_ids[3][N_IDS], enabled_kinds[N_KINDS];
/* `request` and `complete` are set while threads run */
static requested *request;
static completed *complete;
static struct buffer current, full[N_FULL];
static size_t n_full;
static size_t n_dropped;

static void count(void)
{
	__atomic_fetch_add(&standin_cupti.n_calls, 1, __ATOMIC_RELAXED);
}

/* ---- calls ---- */

static void on_call(const struct standin_call *call, int site, uint32_t correlation)
{
	uint64_t data = 0;
	struct call_data d = {.site = site,
			      .function = call->function,
			      .symbol = call->kernel ? call->kernel : "not a kernel",
			      .context_number = call->context,
			      .data = &data,
			      .correlation = correlation};
	callback *to;

	pthread_mutex_lock(&lock);
	to = call->id < N_IDS && enabled_ids[call->domain][call->id] ? subscriber : NULL;
	pthread_mutex_unlock(&lock);
	if (to)
		to(NULL, call->domain, call->id, &d);
}

/* ---- records ---- */

static size_t size_of(const void *record)
{
	uint32_t kind;

	memcpy(&kind, record, sizeof(kind));
	switch (kind) {
	case CONCURRENT_KERNEL:
		return sizeof(struct kernel);
	case MEMCPY:
		return sizeof(struct copy);
	case MEMCPY2:
		return sizeof(struct peer_copy);
	case MEMSET:
		return sizeof(struct set);
	default:
		return 0;
	}
}

union record {
	uint32_t kind;
	struct kernel kernel;
	struct copy copy;
	struct peer_copy peer_copy;
	struct set set;
};

static void fill(union record *r, uint32_t correlation, const struct standin_work *w)
{
	uint64_t start = w->has_no_time ? 0 : w->start_ns, end = start ? start + w->ns : 0;

	if (w->kind == STANDIN_KERNEL)
		r->kernel = (struct kernel){.kind = CONCURRENT_KERNEL,
					    .start = start,
					    .end = end,
					    .device = w->device,
					    .context = w->context,
					    .stream = w->stream,
					    .correlation = correlation,
					    .name = w->name,
					    .graph_node = w->graph_node,
					    .graph = w->graph};
	else if (w->kind == STANDIN_COPY)
		r->copy = (struct copy){.kind = MEMCPY,
					.copy_kind = w->copy_kind,
					.bytes = w->n_bytes,
					.start = start,
					.end = end,
					.device = w->device,
					.context = w->context,
					.stream = w->stream,
					.correlation = correlation,
					.graph_node = w->graph_node};
	else if (w->kind == STANDIN_PEER_COPY)
		r->peer_copy = (struct peer_copy){.kind = MEMCPY2,
						  .copy_kind = w->copy_kind,
						  .bytes = w->n_bytes,
						  .start = start,
						  .end = end,
						  .device = w->device,
						  .context = w->context,
						  .stream = w->stream,
						  .correlation = correlation,
						  .graph_node = w->graph_node};
	else
		r->set = (struct set){.kind = MEMSET,
				      .bytes = w->n_bytes,
				      .start = start,
				      .end = end,
				      .device = w->device,
				      .context = w->context,
				      .stream = w->stream,
				      .correlation = correlation,
				      .graph_node = w->graph_node};
}

static void deliver(struct buffer b)
{
	if (!b.data)
		return;
	__atomic_load_n(&complete, __ATOMIC_ACQUIRE)(NULL, 0, b.data, b.size, b.used);
	__atomic_fetch_sub(&standin_cupti.n_waiting, b.n, __ATOMIC_RELEASE);
}

/*
 * Removes the current buffer, which is full. Returns it, so that the caller gives it back; or keeps
 * it for the next flush, and returns no buffer.
 */
static struct buffer change_buffer(void)
{
	struct buffer old = current;

	current = (struct buffer){0};
	if (old.data && standin_cupti.keeps_buffers) {
		full[n_full++] = old;
		return current;
	}
	return old;
}

/*
 * Asks for a buffer, without holding the lock. Another thread may have got a buffer meanwhile; then
 * this one is given back.
 */
static void get_buffer(void)
{
	struct buffer b = {0}, extra = {0};
	size_t max_records;

	__atomic_load_n(&request, __ATOMIC_ACQUIRE)(&b.data, &b.size, &max_records);
	pthread_mutex_lock(&lock);
	if (!current.data)
		current = b;
	else
		extra = b;
	pthread_mutex_unlock(&lock);
	deliver(extra);
}

/* Adds a record to the current buffer. Returns whether the buffer had room for it. */
static bool put(const union record *r, size_t size)
{
	bool has_room;

	pthread_mutex_lock(&lock);
	has_room = current.data && current.used + size <= current.size;
	if (has_room) {
		memcpy(current.data + current.used, r, size);
		current.used += size;
		current.n++;
		__atomic_fetch_add(&standin_cupti.n_waiting, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
	return has_room;
}

static void on_work(const struct standin_work *work, uint32_t correlation)
{
	union record r = {0};
	struct buffer old;
	size_t size;

	fill(&r, correlation, work);
	size = size_of(&r);
	pthread_mutex_lock(&lock);
	if (!enabled_kinds[r.kind]) {
		pthread_mutex_unlock(&lock);
		return;
	}
	pthread_mutex_unlock(&lock);
	if (put(&r, size))
		return;
	pthread_mutex_lock(&lock);
	old = change_buffer();
	pthread_mutex_unlock(&lock);
	deliver(old);
	get_buffer();
	if (put(&r, size))
		return;
	pthread_mutex_lock(&lock);
	n_dropped++;
	standin_cupti.n_dropped++;
	pthread_mutex_unlock(&lock);
}

static const struct standin_hooks hooks = {on_call, on_work};

/* ---- the functions of CUPTI ---- */

int cuptiGetVersion(uint32_t *version);
int cuptiSubscribe(void **handle, callback *function, void *user);
int cuptiUnsubscribe(void *handle);
int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t id);
int cuptiActivityRegisterCallbacks(requested *r, completed *c);
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityFlushAll(uint32_t flags);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n);
int cuptiActivitySetAttribute(int attribute, size_t *size, void *value);
int cuptiFinalize(void);

int cuptiGetVersion(uint32_t *version)
{
	count();
	if (standin_cupti.version == 0)
		return UNKNOWN;
	*version = standin_cupti.version;
	return OK;
}

int cuptiSubscribe(void **handle, callback *function, void *user)
{
	(void)user;
	count();
	if (standin_cupti.has_subscriber)
		return OTHER_SUBSCRIBER;
	pthread_mutex_lock(&lock);
	standin_cupti.has_subscriber = true;
	standin_cupti.n_subscribed++;
	subscriber = function;
	memset(enabled_ids, 0, sizeof(enabled_ids));
	pthread_mutex_unlock(&lock);
	*handle = &subscriber;
	standin_hook(&hooks);
	return OK;
}

int cuptiUnsubscribe(void *handle)
{
	count();
	if (handle != &subscriber)
		return INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	standin_cupti.has_subscriber = false;
	subscriber = NULL;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t id)
{
	count();
	if (handle != &subscriber || id >= 800) /* this version does not have these ids */
		return INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	enabled_ids[domain][id] = enable;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuptiActivityRegisterCallbacks(requested *r, completed *c)
{
	count();
	__atomic_store_n(&request, r, __ATOMIC_RELEASE);
	__atomic_store_n(&complete, c, __ATOMIC_RELEASE);
	return OK;
}

static int enable(int kind, bool on)
{
	count();
	pthread_mutex_lock(&lock);
	standin_cupti.n_enabled += on - enabled_kinds[kind];
	enabled_kinds[kind] = on;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuptiActivityEnable(int kind)
{
	if (kind == MEMCPY && standin_cupti.fails_enable)
		return standin_cupti.fails_enable;
	return enable(kind, true);
}

int cuptiActivityDisable(int kind)
{
	return enable(kind, false);
}

int cuptiActivityFlushAll(uint32_t flags)
{
	struct buffer give[N_FULL + 1];
	size_t n;

	(void)flags;
	count();
	while (__atomic_load_n(&standin_cupti.is_stuck, __ATOMIC_RELAXED))
		pause();
	pthread_mutex_lock(&lock);
	n = n_full;
	memcpy(give, full, n * sizeof(full[0]));
	n_full = 0;
	if (current.data)
		give[n++] = current;
	current = (struct buffer){0};
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < n; i++)
		deliver(give[i]);
	return OK;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
	uint8_t *next = *record ? (uint8_t *)*record + size_of(*record) : buffer;

	count();
	if (next >= buffer + valid)
		return NO_MORE;
	if (__atomic_exchange_n(&standin_cupti.breaks_record, false, __ATOMIC_RELAXED))
		return INVALID_KIND;
	*record = next;
	return OK;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n)
{
	(void)context;
	(void)stream;
	count();
	pthread_mutex_lock(&lock);
	*n = n_dropped;
	n_dropped = 0;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuptiActivitySetAttribute(int attribute, size_t *size, void *value)
{
	(void)attribute;
	(void)value;
	count();
	return *size == sizeof(size_t) ? OK : INVALID_PARAMETER;
}

int cuptiFinalize(void)
{
	count();
	standin_hook(NULL);
	pthread_mutex_lock(&lock);
	standin_cupti.n_finalized++;
	standin_cupti.n_enabled = 0;
	memset(enabled_kinds, 0, sizeof(enabled_kinds));
	pthread_mutex_unlock(&lock);
	return OK;
}

/* ---- another profiler ---- */

#define OTHER_SIZE 10000

static uint8_t *other_buffer; /* the other profiler's last buffer; NULL: it has come back */

static void other_requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
	*size = OTHER_SIZE;
	*buffer = other_buffer = malloc(*size);
	*max_records = 0;
}

static void other_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
			    size_t valid)
{
	(void)context;
	(void)stream;
	(void)valid;
	standin_cupti.n_foreign_buffers += size != OTHER_SIZE;
	if (buffer == other_buffer)
		other_buffer = NULL;
	free(buffer);
}

void standin_other_profiler(void)
{
	request = other_requested;
	complete = other_completed;
	enable(CONCURRENT_KERNEL, true);
	standin_hook(&hooks);
}

void standin_cupti_begin(void)
{
	standin_hook(NULL);
	pthread_mutex_lock(&lock);
	standin_cupti = (struct standin_cupti){.version = 28};
	subscriber = NULL;
	memset(enabled_kinds, 0, sizeof(enabled_kinds));
	n_dropped = 0;
	if (current.data != other_buffer)
		free(current.data);
	free(other_buffer);
	other_buffer = NULL;
	current = (struct buffer){0};
	complete = NULL;
	pthread_mutex_unlock(&lock);
}
