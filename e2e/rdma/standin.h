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

#ifdef __cplusplus
}
#endif
