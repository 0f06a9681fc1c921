/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold: adds samples up to profiles. There is one profile a process, event and window; threads of
 * one name become one. fold owns the open window until fold_flush() hands it over. It reads no
 * files and names no frames. Pipeline worker only.
 */
#pragma once

#include "node/stack/stack.h"

struct fold_config {
	const char *node_uid, *boot_id;	/* parts of the profile id */
	const char *node_name, *cluster_name;
	uint64_t window_ns;		/* 1..60 s */
	bool per_cpu;
	/*
	 * Wall time minus CLOCK_BOOTTIME, for start times of processes, which tell processes apart.
	 * 0: fold_new() takes it from the clocks.
	 */
	uint64_t start_offset_ns;
};
struct fold;
/* -ERANGE: window_ns is out of range. */
int fold_new(const struct fold_config *c, struct fold **ret);
struct fold *fold_free(struct fold *f);

/* What fold must know of a process besides the owner's tags. */
struct fold_process {
	struct process_id id;
	uint32_t container_pid;
	const char *comm;		/* of the leader: app_service */
	struct owner *owner;		/* borrowed; NULL: host process without a container */
};
/*
 * The caller interns in fold_batch() and adds samples between the two calls. The bytes count for
 * this owner (NULL: for no container; then there is no limit). false: the owner already has half of
 * the bytes that the others leave in the window, and the caller must report its sample lost as
 * "window_full".
 */
bool fold_begin(struct fold *f, struct owner *owner);
void fold_end(struct fold *f);
/*
 * Adds a sample; its time is last_ns (CLOCK_BOOTTIME). stack is an index of fold_batch(). false:
 * the window is full; fold_add() has added the sample to its losses.
 * - A sample of an earlier window goes into the open one, and is counted as late.
 * - Samples that differ by their link are kept apart up to a budget. Over the budget a sample loses
 *   its link, and that is counted.
 * - Some events have snapshots as profiles. Their samples with equal last_ns are one snapshot. The
 *   newest snapshot of a process replaces the one in the open window. A sample with n 0 and value 0
 *   is an empty snapshot.
 */
bool fold_add(struct fold *f, const struct fold_process *p, const struct raw_sample *s,
	      const struct raw_names *names, uint32_t stack);
/*
 * The part of an off-cpu sample's value that was waited before boot_ns (CLOCK_BOOTTIME). The value
 * is spread evenly over the time in which it was measured, which ends with last_ns. For other
 * events it is the whole value.
 */
uint64_t fold_value_before(const struct raw_sample *s, const struct owner *o, uint64_t boot_ns);
/*
 * Says how sure the values are that were added for this event of the owner since the last call.
 * ppm: which share of what happened was seen (0: all). error: one standard error of the sum, in the
 * event's unit. Errors of one window add up; those of snapshots replace each other. When the window
 * ends, they are divided among its profiles by their values.
 */
void fold_estimate(struct fold *f, struct owner *owner, enum event event, uint32_t ppm,
		   uint64_t error);
/* Adds CPU time that was counted for the whole node. time_ns: CLOCK_BOOTTIME. */
void fold_total(struct fold *f, const struct raw_total *t, uint64_t time_ns);
/* A container's CPU limit kept it from running for us microseconds, in n periods of the limit. */
void fold_throttled(struct fold *f, struct owner *owner, uint64_t us, uint64_t n);
/*
 * Adds a loss of n samples or of time_ns to each event of the mask (1 << enum event), so that a
 * user who looks at one of these events sees it. owner NULL: a loss of the whole node.
 */
void fold_lose(struct fold *f, const struct owner *owner, unsigned event_mask, const char *reason,
	       uint64_t n, uint64_t time_ns);
/* The batch of the open window, to resolve stacks into. */
struct batch *fold_batch(struct fold *f);
/*
 * Notes that the machine was suspended for ns since the last fold_flush(). The next fold_flush()
 * then ends the window: it lasts only as long as the machine was awake. The window after it begins
 * there, and has the sleep as loss "asleep".
 */
void fold_note_sleep(struct fold *f, uint64_t ns);
/*
 * Closes the window if now is past its end, if the clock was set, if the machine slept, or if force
 * is set. *ret: the window, which the caller owns; NULL: it is not closed yet, or it is empty.
 * Always returns 0.
 */
int fold_flush(struct fold *f, uint64_t now_boot_ns, uint64_t now_wall_ns, bool force,
	       struct batch **ret);
uint64_t fold_next_flush_ns(const struct fold *f);	/* CLOCK_BOOTTIME */
/*
 * When the open window ends if it is flushed at boot_ns (CLOCK_BOOTTIME): as many whole windows
 * later as boot_ns is late.
 */
uint64_t fold_window_end_ns(const struct fold *f, uint64_t boot_ns);
