/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cupti: the part of NVIDIA's CUPTI that this library uses: the functions, which are found in the
 * libcupti of the process, and the numbers and layouts of what they read and write. These are our
 * own declarations. The names in comments are those of cupti_callbacks.h, cupti_activity.h,
 * cupti_result.h and cupti_*_cbid.h; cuda/headers_test.py compares every number here with the
 * headers of CUPTI 11.8, 12.9 and 13.5. NVIDIA promises that new fields of a record come only at
 * its end, and that the number of a function (cbid) does not change.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* values of CUptiResult */
enum {
	CUPTI_OK = 0,
	CUPTI_OUT_OF_MEMORY = 8,	/* CUPTI_ERROR_OUT_OF_MEMORY */
	CUPTI_NO_MORE_RECORDS = 12,	/* CUPTI_ERROR_MAX_LIMIT_REACHED */
	CUPTI_OTHER_SUBSCRIBER = 39,	/* CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED */
};

/* CUPTI_API_VERSION */
enum {
	CUPTI_OF_CUDA_11 = 13,
	CUPTI_OF_CUDA_12_6 = 24,
};

/* CUpti_CallbackDomain and CUpti_ApiCallbackSite */
enum {
	CUPTI_DRIVER = 1,
	CUPTI_RUNTIME = 2,
};
enum {
	CUPTI_ENTER = 0,
	CUPTI_EXIT = 1,
};

/* CUpti_ActivityKind, CUpti_ActivityFlag and CUpti_ActivityAttribute */
enum {
	CUPTI_MEMCPY = 1,
	CUPTI_MEMSET = 2,
	CUPTI_KERNEL = 3,
	CUPTI_CONCURRENT_KERNEL = 10,
	CUPTI_MEMCPY2 = 22,		/* between two devices */
};
enum {
	CUPTI_FLUSH_FORCED = 1,		/* CUPTI_ACTIVITY_FLAG_FLUSH_FORCED */
};
enum {
	CUPTI_DEVICE_BUFFER_SIZE = 0,	/* values are size_t */
	CUPTI_DEVICE_BUFFER_POOL_LIMIT = 2,
};

/* CUpti_CallbackData */
struct cupti_call {
	int site;
	const char *function;
	const void *parameters;
	void *result;
	/* for a kernel launch: the kernel's mangled name; else anything */
	const char *symbol;
	void *context;
	uint32_t context_number;
	uint64_t *data;
	uint32_t correlation;
};

typedef void cupti_callback(void *user, int domain, uint32_t cbid, const void *call);
typedef void cupti_buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void cupti_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
				    size_t valid_size);

/* CUPTI's functions. Each returns a CUptiResult. */
struct cupti {
	int (*GetVersion)(uint32_t *version);
	int (*Subscribe)(void **subscriber, cupti_callback *callback, void *user);
	int (*Unsubscribe)(void *subscriber);
	int (*EnableCallback)(uint32_t enable, void *subscriber, int domain, uint32_t cbid);
	int (*ActivityRegisterCallbacks)(cupti_buffer_requested *requested,
					 cupti_buffer_completed *completed);
	int (*ActivityEnable)(int kind);
	int (*ActivityDisable)(int kind);
	int (*ActivityFlushAll)(uint32_t flags);
	int (*ActivityGetNextRecord)(uint8_t *buffer, size_t valid_size, void **record);
	int (*ActivityGetNumDroppedRecords)(void *context, uint32_t stream, size_t *n);
	int (*ActivitySetAttribute)(int attribute, size_t *size, void *value);
	int (*Finalize)(void);
};

/*
 * Opens a libcupti, if this was not done yet, and keeps it open. Tries, in this order: the libcupti
 * that the process has loaded; the one that belongs to the loaded libcudart; those in the loader's
 * paths that are not newer than the driver; those of /usr/local/cuda. Returns the functions, or
 * NULL if no libcupti was found or if it lacks a function. Only one thread may call this.
 */
const struct cupti *cupti_open(void);

/*
 * Offsets of the fields of an activity record, or CUPTI_NO_FIELD. They are the same since CUDA
 * 11.0.
 */
#define CUPTI_NO_FIELD UINT16_MAX
struct cupti_record {
	uint8_t cupti_kind;
	uint8_t kind;			/* enum podflame_cuda_kind */
	/* in CUpti_ActivityKernel5 and newer, Memcpy3, MemcpyPtoP2, Memset2 and newer: */
	uint16_t device, context, stream, correlation, graph_node;
	uint16_t name, graph;		/* fields of kernels' records */
	/* fields of copies' records; `bytes` is also one of sets' records */
	uint16_t bytes, copy_kind;
};
enum {
	CUPTI_RECORD_START = 16,	/* in a record of any kind: u64, ns; 0: not known */
	CUPTI_RECORD_END = 24,
};

/* The layout of a record of this kind, or NULL if the library does not read such records. */
const struct cupti_record *cupti_record(uint32_t cupti_kind);

/* Calls of the runtime and the driver that give work to a device: cbids from first to last. */
struct cupti_calls {
	int domain;
	uint16_t first, last;
	uint8_t kind;			/* enum podflame_cuda_kind */
};
extern const struct cupti_calls cupti_calls[];
extern const size_t cupti_n_calls;
