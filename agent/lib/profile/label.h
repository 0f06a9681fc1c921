/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the labels of samples. A label is a key and a value of a single sample; what all
 * samples of a process share are the tags of its profile. To add a label, add a row at the end:
 * wire, store, queries, pprof and the page use this table.
 *
 * X(NAME, tag, attribute, form, events, title, help)
 *
 *	NAME		enum profile_label has LABEL_NAME
 *	tag		its name in queries, and its key in pprof
 *	attribute	the name of the sample's attribute in OTLP: docs/otlp.md
 *	form		samples have a number, and this function of label.c makes its text (except
 *			for on-gpu); NULL: samples have the text itself
 *	events		the events that have it: 1 << enum event for each
 *	title		its name on the page
 *	help		what it is
 */
#pragma once

#define LABEL_EVENTS_GPU  (1u << EVENT_HBM_ALLOC | 1u << EVENT_HBM_INUSE | 1u << EVENT_ON_GPU)
#define LABEL_EVENTS_RDMA (1u << EVENT_RDMA | 1u << EVENT_RDMA_LATENCY)

#define PROFILE_LABELS(X)                                                                          \
	X(GPU_DEVICE, "gpu_device", "podflame.gpu.device", decimal, LABEL_EVENTS_GPU, "GPU",       \
	  "number of the GPU")                                                                     \
	X(GPU_CONTEXT, "gpu_context", "podflame.gpu.context", handle, LABEL_EVENTS_GPU,            \
	  "GPU context",                                                                           \
	  "handle of the GPU context: 0x and hexadecimal digits; on-gpu: CUPTI's number")          \
	X(GPU_STREAM, "gpu_stream", "podflame.gpu.stream", stream, LABEL_EVENTS_GPU, "GPU stream", \
	  "stream of the GPU: default, per-thread, or its handle; on-gpu: CUPTI's number")         \
	X(RDMA_OPERATION, "rdma_operation", "podflame.rdma.operation", operation,                  \
	  LABEL_EVENTS_RDMA, "RDMA operation",                                                     \
	  "what the request does: send, write, read, atomic, other, receive or register")          \
	X(RDMA_QP_TYPE, "rdma_qp_type", "podflame.rdma.qp_type", qp_type, LABEL_EVENTS_RDMA,       \
	  "Queue pair type", "type of the queue pair: RC, UC, UD, ...")                            \
	X(RDMA_DEVICE, "rdma_device", "podflame.rdma.device", NULL, LABEL_EVENTS_RDMA,             \
	  "RDMA device", "name of the RDMA device: mlx5_0")
