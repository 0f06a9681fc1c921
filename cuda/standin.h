/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standin: our own CUDA runtime and CUPTI, for tests. The runtime (libcudart.so.12) runs calls
 * whose work the test describes. The work ends at once, and its records have the duration that the
 * test gives. CUPTI (libcupti.so.12) reports the calls and the work as NVIDIA's does: callbacks by
 * id, records in buffers, one subscriber. It counts the calls of its functions, and behaves as
 * `standin_cupti` says.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- libcudart.so.12 ---- */

enum standin_kind { STANDIN_KERNEL, STANDIN_COPY, STANDIN_SET, STANDIN_PEER_COPY };

struct standin_work {
	enum standin_kind kind;
	const char *name;		/* of a kernel */
	uint64_t ns, n_bytes, graph_node;
	uint32_t device, context, stream, graph;
	bool has_no_time;
};

struct standin_call {
	bool runtime;			/* a call of the runtime, which calls the driver */
	uint32_t runtime_id, driver_id;	/* cbids */
	const char *function;
	const char *kernel;		/* mangled name, or NULL */
	uint32_t context;
	const struct standin_work *work;
	size_t n_work;
};

/* Runs a call. Returns its correlation id. Any thread may call this. */
uint32_t standin_run(const struct standin_call *call);

/* Functions of CUPTI that the runtime calls for each call and each piece of work. */
struct standin_hooks {
	void (*call)(int domain, uint32_t id, int site, uint32_t correlation,
		     const struct standin_call *call);
	void (*work)(uint32_t correlation, uint64_t start_ns, const struct standin_work *work);
};
void standin_hook(const struct standin_hooks *hooks);

/* ---- libcupti.so.12 ---- */

struct standin_cupti {
	/* what the test sets */
	uint32_t version;		/* CUPTI_API_VERSION; 0: cuptiGetVersion fails */
	bool has_subscriber;		/* another profiler or the library has subscribed */
	bool keeps_buffers;		/* only a flush gives back full buffers */
	bool is_stuck;			/* a flush never returns */
	bool breaks_record;		/* the next buffer ends with a record that cannot be read */
	int fails_enable;		/* result of cuptiActivityEnable() for copies; 0: success */
	/* what it counts */
	unsigned n_calls;		/* calls of all functions */
	unsigned n_subscribed, n_finalized, n_dropped;
	unsigned n_enabled;		/* kinds of activity that are on */
	unsigned n_foreign_buffers;	/* the library's buffers that the other profiler got */
};
extern struct standin_cupti standin_cupti;

/* Begins with a new CUPTI of version 28: nothing is on, and all counts are 0. */
void standin_cupti_begin(void);

/*
 * Acts as another profiler, which registers its callbacks for buffers and frees the buffers that it
 * gets.
 */
void standin_other_profiler(void);
