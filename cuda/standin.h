/* SPDX-License-Identifier: Apache-2.0 */
/*
 * standin: a CUDA runtime and a CUPTI for tests, of our own. The runtime (libcudart.so.12) runs
 * calls whose work the test describes; the work ends at once and takes the time that the test says.
 * CUPTI (libcupti.so.12) reports the calls and the work as NVIDIA's does: callbacks by id, records
 * in buffers, one subscriber. It counts what is asked of it, and does what `standin_cupti` says.
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

/* Runs a call. Any thread. Returns its correlation id. */
uint32_t standin_run(const struct standin_call *call);

/* What CUPTI sees of the driver; NULL: there is none. */
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
	bool has_subscriber;		/* another profiler is there, or ours */
	bool keeps_buffers;		/* full buffers are given back by a flush only */
	bool is_stuck;			/* a flush never returns */
	bool breaks_record;		/* the next buffer ends with a record that cannot be read */
	int fails_enable;		/* what cuptiActivityEnable says of copies; 0: success */
	/* what it counts */
	unsigned n_calls;		/* of all functions */
	unsigned n_subscribed, n_finalized, n_dropped;
	unsigned n_enabled;		/* kinds of activity that are on */
	unsigned n_foreign_buffers;	/* ours that the other profiler got */
};
extern struct standin_cupti standin_cupti;

/* A new CUPTI: of version 28, with nothing on and nothing counted. */
void standin_cupti_begin(void);

/* Another profiler registers its callbacks for buffers, and frees those that it gets. */
void standin_other_profiler(void);
