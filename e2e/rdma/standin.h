/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stand-in libibverbs.so.1 has besides the verbs: a program can ask it for exact sums and
 * can order failures. A program that is linked with the real library finds these functions with
 * dlsym(). Any thread may call them. If the environment variable STANDIN_RDMA_COUNTS names a file,
 * the bytes of each operation (enum standin_operation) are in a line there when the program ends.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum standin_operation {
	STANDIN_SEND,
	STANDIN_WRITE,
	STANDIN_READ,
	STANDIN_ATOMIC,
	STANDIN_OTHER, /* a send-queue request without data: the end of a remote key */
	STANDIN_RECEIVE,
	STANDIN_REGISTER, /* memory regions */
	_STANDIN_OPERATIONS,
};

struct standin_rdma_counts {
	/*
	 * Requests that were accepted, and the bytes of their buffers, by enum standin_operation.
	 * For STANDIN_REGISTER: the regions that were registered, and their lengths.
	 */
	uint64_t requests[_STANDIN_OPERATIONS], bytes[_STANDIN_OPERATIONS];
};

/*
 * The sums of all queue pairs of this type (enum ibv_qp_type; 0: all types) of this device (NULL:
 * all devices). Memory regions have type 0 only.
 */
void standin_rdma_count(const char *device, int qp_type, struct standin_rdma_counts *ret);
/*
 * This thread's next `passing` work requests and registrations are accepted, and the one after
 * them fails with this errno. Of ibv_wr_*(), all requests up to ibv_wr_complete() fail together.
 */
void standin_rdma_fail_after(unsigned int passing, int error);
/*
 * Requests for send queues that this thread posts from now on end so long after the library has
 * accepted them, but not before an earlier request of the queue. 0, as at the beginning: at once.
 * If the program waits for an event of completions by poll() or epoll instead of
 * ibv_get_cq_event(), the event comes before the completion does.
 */
void standin_rdma_set_delay(uint64_t ns);
/*
 * This thread's next `passing` requests for send queues succeed, and the one after them ends with
 * this status (enum ibv_wc_status). All later requests of its queue pair are flushed, until the
 * program resets it. A request that fails has a completion even if it is not signaled.
 */
void standin_rdma_end_with(unsigned int passing, int status);

#ifdef __cplusplus
}
#endif
