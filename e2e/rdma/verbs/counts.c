/* SPDX-License-Identifier: Apache-2.0 */
/* What was posted and registered, and what a test orders: failures, and when requests end. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../internal.h"

#define N_ROWS 16 /* pairs of a device and a type of queue pair that can occur */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct row {
	const struct ibv_device *device;
	int qp_type;
	struct standin_rdma_counts counts;
} rows[N_ROWS];
static size_t n_rows;
static __thread struct order {
	bool is_open;
	unsigned int passing;
	int value;
} failure, end;
static __thread uint64_t delay_ns;

/* The caller holds the lock. */
static struct row *row_of(const struct ibv_device *device, int qp_type)
{
	for (size_t i = 0; i < n_rows; i++)
		if (rows[i].device == device && rows[i].qp_type == qp_type)
			return &rows[i];
	if (n_rows == N_ROWS)
		abort();
	rows[n_rows].device = device;
	rows[n_rows].qp_type = qp_type;
	return &rows[n_rows++];
}

void standin_rdma_add(const struct ibv_device *device, int qp_type,
		      enum standin_operation operation, uint64_t bytes)
{
	struct standin_rdma_counts *c;

	pthread_mutex_lock(&lock);
	c = &row_of(device, qp_type)->counts;
	c->requests[operation]++;
	c->bytes[operation] += bytes;
	pthread_mutex_unlock(&lock);
}

static void add_up(struct standin_rdma_counts *sum, const struct standin_rdma_counts *c)
{
	for (int i = 0; i < _STANDIN_OPERATIONS; i++) {
		sum->requests[i] += c->requests[i];
		sum->bytes[i] += c->bytes[i];
	}
}

void standin_rdma_count(const char *device, int qp_type, struct standin_rdma_counts *ret)
{
	memset(ret, 0, sizeof(*ret));
	pthread_mutex_lock(&lock);
	for (const struct row *r = rows; r < rows + n_rows; r++)
		if ((!device || strcmp(r->device->name, device) == 0) &&
		    (!qp_type || r->qp_type == qp_type))
			add_up(ret, &r->counts);
	pthread_mutex_unlock(&lock);
}

/* For a program that does not know the stand-in, and ends by itself. */
__attribute__((destructor)) static void print_counts(void)
{
	const char *path = getenv("STANDIN_RDMA_COUNTS");
	FILE *f = path ? fopen(path, "we") : NULL;
	struct standin_rdma_counts c;

	if (!f)
		return;
	standin_rdma_count(NULL, 0, &c);
	for (int i = 0; i < _STANDIN_OPERATIONS; i++)
		fprintf(f, "%llu%c", (unsigned long long)c.bytes[i],
			i < _STANDIN_OPERATIONS - 1 ? ' ' : '\n');
	fclose(f);
}

/* ---- what a test orders ---- */

/* Returns the value of the order if this is the request that it is for; 0: it is not. */
static int take(struct order *o)
{
	if (!o->is_open || o->passing--)
		return 0;
	o->is_open = false;
	return o->value;
}

void standin_rdma_fail_after(unsigned int passing, int error)
{
	failure = (struct order){true, passing, error};
}

int standin_rdma_failure(void)
{
	return take(&failure);
}

void standin_rdma_end_with(unsigned int passing, int status)
{
	end = (struct order){true, passing, status};
}

enum ibv_wc_status standin_rdma_end(void)
{
	return (enum ibv_wc_status)take(&end); /* 0 is IBV_WC_SUCCESS */
}

void standin_rdma_set_delay(uint64_t ns)
{
	delay_ns = ns;
}

uint64_t standin_rdma_delay_ns(void)
{
	return delay_ns;
}
