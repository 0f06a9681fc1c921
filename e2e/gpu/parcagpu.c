/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for parcagpu's library, by the description of its probes
 * (https://github.com/parca-dev/parcagpu). Like it, this library subscribes when the driver loads
 * it, gives CUPTI buffers only while cuda_correlation's semaphore is raised, reports a call at its
 * end, and each kernel twice: in a batch and alone. It reports no copies and sets. It reports every
 * launch, so the sums of its kernels are exact.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/cupti.h"
#include "cuda/usdt.h"

#define BATCH	     128
#define BUFFER_BYTES 65536
#define FLUSH_US     100000
#define LATE_MAX     16

USDT_PROBE("parcagpu", "cuda_correlation", "4@%edi -4@%esi 8@%rdx");
USDT_PROBE("parcagpu", "kernel_executed", "8@%rdi 8@%rsi 4@%edx");
USDT_PROBE("parcagpu", "activity_batch", "8@%rdi 4@%esi");

void probe_cuda_correlation(uint32_t correlation, int32_t cbid, const char *name);
void probe_kernel_executed(uint64_t start_ns, uint64_t end_ns, uint32_t correlation);
void probe_activity_batch(const void **records, uint32_t n);
extern const uint16_t probe_cuda_correlation_semaphore;

int cuptiSubscribe(void **subscriber, cupti_callback *callback, void *user);
int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t cbid);
int cuptiActivityRegisterCallbacks(cupti_buffer_requested *r, cupti_buffer_completed *c);
int cuptiActivityEnable(int kind);
int cuptiActivityFlushAll(uint32_t flags);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_size, void **record);

__attribute__((visibility("default"))) int InitializeInjection(void);

static void report_alone(const uint8_t *record)
{
	const struct cupti_record *layout = cupti_record(CUPTI_CONCURRENT_KERNEL);

	probe_kernel_executed(*(const uint64_t *)(record + CUPTI_RECORD_START),
			      *(const uint64_t *)(record + CUPTI_RECORD_END),
			      *(const uint32_t *)(record + layout->correlation));
}

static void report(uint8_t *buffer, size_t valid)
{
	const void *records[BATCH];
	void *record = NULL;
	uint32_t n = 0;

	while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_OK) {
		report_alone(record);
		records[n++] = record;
		if (n == BATCH) {
			probe_activity_batch(records, n);
			n = 0;
		}
	}
	if (n)
		probe_activity_batch(records, n);
	free(buffer);
}

/*
 * With the stand-in driver, a kernel ends before the call that launches it returns, so before this
 * library has reported that call. So the library gets no records while a thread is in a call. If
 * the call itself fills a buffer, its thread reports the buffer after the call.
 */
static pthread_rwlock_t calls = PTHREAD_RWLOCK_INITIALIZER;
static __thread bool in_call;
static __thread struct {
	uint8_t *buffer;
	size_t valid;
} late[LATE_MAX];
static __thread unsigned int n_late;

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	(void)context, (void)stream, (void)size;
	if (!in_call) {
		report(buffer, valid);
		return;
	}
	if (n_late == LATE_MAX)
		abort();
	late[n_late].buffer = buffer;
	late[n_late++].valid = valid;
}

static void call_begins(void)
{
	pthread_rwlock_rdlock(&calls);
	in_call = true;
}

static void call_ends(const struct cupti_call *call, uint32_t cbid)
{
	if (usdt_wanted(&probe_cuda_correlation_semaphore))
		probe_cuda_correlation(call->correlation, -(int32_t)cbid,
				       call->symbol ? call->symbol : call->function);
	in_call = false;
	for (unsigned int i = 0; i < n_late; i++)
		report(late[i].buffer, late[i].valid);
	n_late = 0;
	pthread_rwlock_unlock(&calls);
}

static void on_call(void *user, int domain, uint32_t cbid, const void *data)
{
	const struct cupti_call *call = data;

	(void)user, (void)domain;
	if (call->site == CUPTI_ENTER)
		call_begins();
	else
		call_ends(call, cbid);
}

static void requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
	*buffer = usdt_wanted(&probe_cuda_correlation_semaphore) ? malloc(BUFFER_BYTES) : NULL;
	*size = *buffer ? BUFFER_BYTES : 0;
	*max_records = 0;
}

static void *flush(void *arg)
{
	for (;;) {
		pthread_rwlock_wrlock(&calls);
		cuptiActivityFlushAll(0);
		pthread_rwlock_unlock(&calls);
		usleep(FLUSH_US);
	}
	return arg;
}

int InitializeInjection(void)
{
	static const uint32_t cbids[] = {307, 442, 514, 515, 652, 653}; /* cuLaunchKernel, ... */
	void *subscriber;
	pthread_t thread;

	if (cuptiSubscribe(&subscriber, on_call, NULL) != CUPTI_OK)
		return 0;
	for (size_t i = 0; i < sizeof(cbids) / sizeof(cbids[0]); i++)
		cuptiEnableCallback(1, subscriber, CUPTI_DRIVER, cbids[i]);
	cuptiActivityRegisterCallbacks(requested, completed);
	cuptiActivityEnable(CUPTI_CONCURRENT_KERNEL);
	return pthread_create(&thread, NULL, flush, NULL) == 0;
}
